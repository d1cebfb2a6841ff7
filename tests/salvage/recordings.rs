//! The recordings that are damaged: golden files of the readers, and what is made of them.

use std::path::Path;

use perfquet_formats::bytes::Endian;
use perfquet_tests::root;

use crate::grown::{self, File};

/// A recording of some kind.
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Golden files: name, path below formats/src, what it is.
const GOLDEN: [(&str, &str); 12] = [
    ("file with stacks", "perf_data/golden/mono.data"),
    ("file with groups", "perf_data/golden/group.data"),
    ("file with switches", "perf_data/golden/switch-events.data"),
    ("file with cgroups", "perf_data/golden/cgroups.data"),
    ("file with registers", "perf_data/golden/user-regs.data"),
    ("file with a probe", "perf_data/golden/usdt.data"),
    ("file of perf stat", "perf_data/golden/stat.data"),
    ("file, big-endian", "perf_data/golden/big-endian.data"),
    ("pipe, packed", "perf_data/golden/pipe-z.data"),
    ("trace.dat v7, zstd", "trace_dat/golden/events-v7.dat"),
    ("trace.dat, timers", "trace_dat/golden/irq-timer.dat"),
    ("trace.dat v6", "trace_dat/golden/made-big-32-v6.dat"),
];

/// Those of the smaller set, which every test run measures.
const SMALL: [&str; 5] = [
    "file with a probe",
    "large file with stacks",
    "large file with AUX area",
    "large pipe",
    "large trace.dat v7",
];

/// Files of the private corpus, where it is.
const CORPUS: [(&str, &str); 8] = [
    (
        "corpus: copied stacks",
        "perf-data/6.12/cpu-clock-dwarf.data",
    ),
    ("corpus: file, packed", "perf-data/6.12/compressed.data"),
    (
        "corpus: pipe of tracepoints",
        "perf-data/6.12/pipe-tracepoints.data",
    ),
    (
        "corpus: all switches",
        "perf-data/6.12/switch-events-a.data",
    ),
    ("corpus: stacks", "perf-data/6.12/cpu-clock-g.data"),
    ("corpus: losses", "perf-data/6.12/lost.data"),
    ("corpus: several events", "perf-data/6.12/multi.data"),
    ("corpus: kprobe", "perf-data/6.12/kprobe.data"),
];

/// All recordings, or the smaller set.
pub(crate) fn recordings(all: bool) -> Vec<Recording> {
    let mut recordings: Vec<Recording> = GOLDEN
        .iter()
        .map(|(name, path)| read(name, &root().join("formats/src").join(path)))
        .collect();
    let golden = |name: &str| {
        let folder = root().join("formats/src/perf_data/golden");
        std::fs::read(folder.join(name)).unwrap()
    };
    let (mono, switches, registers) = (
        golden("mono.data"),
        golden("switch-events.data"),
        golden("user-regs.data"),
    );
    let made = |name: &str, bytes: Vec<u8>| Recording {
        name: name.to_owned(),
        bytes,
    };
    let little = grown::trace_dat(Endian::Little, 30);
    let larger = grown::trace_dat(Endian::Little, 90);
    recordings.extend([
        made("large file with stacks", File::new(&mono).grown(60)),
        made("large file with switches", File::new(&switches).grown(80)),
        made("large file with registers", File::new(&registers).grown(24)),
        made("large file, packed", File::new(&mono).packed(100)),
        made("large file with AUX area", File::new(&mono).with_aux(40)),
        made("large pipe", File::new(&mono).as_pipe(60)),
        made("large trace.dat v6", little.version6()),
        made(
            "large trace.dat v6, big-endian",
            grown::trace_dat(Endian::Big, 30).version6(),
        ),
        made("large trace.dat v7", little.version7("none")),
        made("large trace.dat v7, zlib", larger.version7("zlib")),
        made("large trace.dat v7, zstd", larger.version7("zstd")),
    ]);
    if !all {
        recordings.retain(|recording| SMALL.contains(&recording.name.as_str()));
        return recordings;
    }
    if let Some(corpus) = perfquet_tests::foreign_corpus() {
        recordings.extend(
            CORPUS
                .iter()
                .map(|(name, path)| read(name, &corpus.join(path))),
        );
    }
    recordings
}

fn read(name: &str, path: &Path) -> Recording {
    Recording {
        name: name.to_owned(),
        bytes: std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    }
}
