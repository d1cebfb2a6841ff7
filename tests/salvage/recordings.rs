//! The recordings to damage: golden files of the readers, and files built from them.

use std::path::Path;

use perfquet_events::bytes::Endian;
use perfquet_tests::root;

use crate::grown::{self, File};

/// Family of recordings in the summary of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// perf.data whose records are plain.
    PerfData,
    /// perf.data whose records are compressed into one stream.
    Packed,
    /// trace.dat, compressed or not.
    TraceDat,
    /// trace.dat of a few pages: each of its compressed sections, which most rows need, is a large part of it.
    SmallTraceDat,
}

impl Family {
    pub(crate) const ALL: [Family; 4] = [
        Family::PerfData,
        Family::Packed,
        Family::TraceDat,
        Family::SmallTraceDat,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::PerfData => "perf.data",
            Family::Packed => "perf.data, packed",
            Family::TraceDat => "trace.dat",
            Family::SmallTraceDat => "trace.dat, small and packed",
        }
    }

    /// Minimum average share kept. docs/dev/salvage.md explains why compressed bytes are lost together.
    pub(crate) fn kept_min(self) -> f64 {
        match self {
            Family::PerfData | Family::TraceDat => 0.95,
            Family::Packed => 0.4,
            Family::SmallTraceDat => 0.65,
        }
    }
}

/// A recording of some kind.
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Recording {
    pub(crate) fn family(&self) -> Family {
        let has = |word: &str| self.name.contains(word);
        if SMALL_PACKED.contains(&self.name.as_str()) {
            Family::SmallTraceDat
        } else if has("trace.dat") {
            Family::TraceDat
        } else if has("packed") {
            Family::Packed
        } else {
            Family::PerfData
        }
    }
}

/// Golden files: name, path below formats/readers/src, family.
const GOLDEN: [(&str, &str); 14] = [
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
    ("trace.dat, calls", "trace_dat/golden/graph-events.dat"),
    ("trace.dat, stacks", "trace_dat/golden/stacktrace.dat"),
    ("trace.dat v6", "trace_dat/golden/made-big-32-v6.dat"),
];

/// 17 to 23 KB, half of which are compressed sections.
const SMALL_PACKED: [&str; 4] = [
    "trace.dat v7, zstd",
    "trace.dat, timers",
    "trace.dat, calls",
    "trace.dat, stacks",
];

/// The smaller set, measured in every test run.
const SMALL: [&str; 7] = [
    "file with a probe",
    "large file with stacks",
    "large file, packed",
    "large file with AUX area",
    "large pipe",
    "large trace.dat v6, instance",
    "large trace.dat v7",
];

/// Files below tests/corpus.
const CORPUS: [(&str, &str); 9] = [
    (
        "corpus: copied stacks",
        "perf-data/6.12/cpu-clock-dwarf.data",
    ),
    ("corpus: file, packed", "perf-data/6.12/compressed.data"),
    ("corpus: pipe, packed", "perf-data/6.12/pipe-z.data"),
    ("corpus: tracepoints", "perf-data/6.12/tracepoints.data"),
    ("corpus: stacks", "perf-data/6.12/cpu-clock-g.data"),
    ("corpus: losses", "perf-data/6.12/lost.data"),
    ("corpus: several events", "perf-data/6.12/multi.data"),
    ("corpus: kprobe", "perf-data/6.12/kprobe.data"),
    ("corpus: trace.dat v7", "trace-cmd/6.12/events-v7-none.dat"),
];

/// All recordings, or the smaller set.
pub(crate) fn recordings(all: bool) -> Vec<Recording> {
    let mut recordings: Vec<Recording> = GOLDEN
        .iter()
        .map(|(name, path)| read(name, &root().join("formats/readers/src").join(path)))
        .collect();
    let golden = |name: &str| {
        let folder = root().join("formats/readers/src/perf_data/golden");
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
        made("large trace.dat v6, instance", {
            let mut both = little.clone();
            let mut instance = grown::trace_dat(Endian::Little, 15).buffers.remove(0);
            instance.0 = "instance";
            both.buffers.push(instance);
            both.version6()
        }),
        made("large trace.dat v7", little.version7("none")),
        made("large trace.dat v7, zlib", larger.version7("zlib")),
        made("large trace.dat v7, zstd", larger.version7("zstd")),
    ]);
    if !all {
        recordings.retain(|recording| SMALL.contains(&recording.name.as_str()));
        return recordings;
    }
    let corpus = root().join("tests/corpus");
    let read_below = |(name, path): &(&str, &str)| read(name, &corpus.join(path));
    recordings.extend(CORPUS.iter().map(read_below));
    recordings
}

fn read(name: &str, path: &Path) -> Recording {
    Recording {
        name: name.to_owned(),
        bytes: std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    }
}
