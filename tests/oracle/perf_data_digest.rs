//! Every sample of a perf.data, compared with `perf script -D` and an independent reader.
//!
//! Next to each file of tests/corpus are its samples (`NAME.dump`), one line `TIME CPU PID TID - PERIOD CHAIN` each, in
//! decimal, the chain's addresses in hexadecimal; sorted. For downloaded files, a list (README-binary.md) has the
//! number of these lines and their digest.
//!
//! ```text
//! 1489506543925 0 3122 3122 - 1 ffffffff81234567,55f0c0de1234
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use perfquet_events::event::{Event, EventType, Sample, Sink, Stack};
use perfquet_events::{Error, Input};
use perfquet_readers::perf_data::PERF_DATA;
use perfquet_tests::{corpora, foreign_corpus, root};
use sha2::{Digest as _, Sha256};

/// Summary of a file's samples.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    types: Vec<EventType>,
    lines: Vec<String>,
    /// Samples by event, with perf's names.
    pub(crate) by_event: BTreeMap<String, u64>,
    pub(crate) problems: Vec<String>,
    /// Last value of each counter, by ID.
    counters: BTreeMap<u64, u64>,
}

impl Digest {
    /// Reads a file.
    pub(crate) fn of(path: &Path) -> Result<Digest, Error> {
        let mut digest = Digest::default();
        let mut input = Input::open(path)?;
        PERF_DATA.read(&mut input, &mut digest)?;
        Ok(digest)
    }

    pub(crate) fn records(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Hash of the sorted lines.
    pub(crate) fn sha256(&mut self) -> String {
        self.lines.sort_unstable();
        let mut hasher = Sha256::new();
        for line in &self.lines {
            hasher.update(line.as_bytes());
            hasher.update(b"\n");
        }
        let mut text = String::new();
        for byte in hasher.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let declared = &self.types[sample.event.0 as usize];
        if declared.system == "perf" {
            return;
        }
        if sample.read.len() > 1 {
            self.members(sample);
        } else {
            *self.by_event.entry(name_of(declared)).or_default() += 1;
        }
        let declared = &self.types[sample.event.0 as usize];
        let period = sample.period.or(declared.period).or(declared.frequency);
        let line = format!(
            "{} {} {} {} - {} {}",
            or_dash(sample.time),
            or_dash(sample.cpu),
            or_dash(sample.pid),
            or_dash(sample.tid),
            or_dash(period),
            chain(sample)
        );
        self.lines.push(line);
    }

    /// A sample of a group counts for each member whose value has grown.
    fn members(&mut self, sample: &Sample<'_>) {
        for value in sample.read {
            let last = self.counters.insert(value.id.unwrap_or(0), value.value);
            let declared = &self.types[value.event.expect("an event for each id").0 as usize];
            if value.value != last.unwrap_or(0) {
                *self.by_event.entry(name_of(declared)).or_default() += 1;
            }
        }
    }
}

/// In perf's layout.
fn name_of(declared: &EventType) -> String {
    match declared.kind.is_sampled() || declared.system.is_empty() {
        true => declared.name.clone(),
        false => format!("{}:{}", declared.system, declared.name),
    }
}

impl Sink for Digest {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(declared) => self.types.push(declared.clone()),
            Event::Sample(sample) => self.sample(sample),
            Event::Problem(problem) => self
                .problems
                .push(format!("{}{}", problem.place, problem.message)),
            _ => {}
        }
        Ok(())
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

fn chain(sample: &Sample<'_>) -> String {
    let mut text = String::new();
    let mut is_recorded = false;
    for stack in [sample.kernel_stack, sample.user_stack] {
        let Stack::Addresses { addresses, .. } = stack else {
            continue;
        };
        is_recorded = true;
        for address in addresses {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{address:x}");
        }
    }
    match (is_recorded, sample.ip) {
        (false, Some(ip)) => format!("{ip:x}"),
        _ if text.is_empty() => "-".into(),
        _ => text,
    }
}

/// A row of the corpus table.
struct Row {
    file: String,
    records: Option<u64>,
    sha256: String,
}

fn rows(readme: &str) -> Vec<Row> {
    let lines = readme
        .lines()
        .filter(|line| line.starts_with("| perf-data-public/"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            Row {
                file: cells[1].to_owned(),
                records: cells[8].parse().ok(),
                sha256: cells[cells.len() - 2].to_owned(),
            }
        })
        .collect()
}

/// Rows that differ, with the cause; empty is the goal.
const DIFFERENCES: &[(&str, &str)] = &[(
    "perf-data-public/kdab/vector_static_gcc.perf.lbr.data",
    "user stacks are the calls that the CPU recorded, as perf report shows them; the digest is of the chain alone",
)];

#[test]
fn every_sample_of_the_corpus() {
    let mut compared = 0;
    for machine in ["6.12", "host"] {
        let folder = root().join("tests/corpus/perf-data").join(machine);
        for entry in std::fs::read_dir(&folder).unwrap() {
            let dump = entry.unwrap().path();
            if dump.extension() != Some("dump".as_ref()) {
                continue;
            }
            let file = dump.with_extension("data");
            let mut digest = Digest::of(&file).unwrap();
            digest.lines.sort_unstable();
            let theirs = std::fs::read_to_string(&dump).unwrap();
            let theirs: Vec<&str> = theirs.lines().collect();
            assert_eq!(digest.lines, theirs, "{}", file.display());
            assert!(
                digest.problems.is_empty(),
                "{}: {:?}",
                file.display(),
                digest.problems
            );
            compared += theirs.len();
        }
    }
    println!("{compared} samples");
    assert!(compared > 2_000, "{compared} samples");
    if let Some(corpus) = foreign_corpus() {
        every_sample_of_collected_files(&corpus);
    }
}

fn every_sample_of_collected_files(corpus: &Path) {
    let readme = std::fs::read_to_string(corpus.join("README-binary.md")).unwrap();
    let rows = rows(&readme);
    assert!(rows.len() >= 100, "{} rows", rows.len());
    let mut wrong = Vec::new();
    let mut refused = 0;
    for row in &rows {
        let path = corpus.join(row.file.trim_end_matches(" (directory)"));
        match (Digest::of(&path), row.records) {
            (Ok(mut digest), Some(records)) => {
                let is_same = digest.records() == records
                    && (row.sha256 == "-" || digest.sha256() == row.sha256);
                let explained = DIFFERENCES.iter().any(|(file, _)| *file == row.file);
                if is_same == explained {
                    wrong.push(format!(
                        "{}: expected {records} samples, found {}; {:?}",
                        row.file,
                        digest.records(),
                        digest.problems
                    ));
                }
            }
            // Not perf.data of version 2: the reader must report it.
            (Err(_), None) => refused += 1,
            (Ok(_), None) => wrong.push(format!("{}: read, expected a refusal", row.file)),
            (Err(error), Some(_)) => wrong.push(format!("{}: {error}", row.file)),
        }
    }
    println!(
        "{} files, {refused} refused as they should, {} wrong",
        rows.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Events in an output of `perf script`, counted: the word after time and period.
///
/// ```text
///         workload   212    42.788918830:    1001001 cpu-clock:  ffffffff8146b935 __d_lookup_rcu+0x55 (…)
/// ```
fn events_of_script(text: &str) -> BTreeMap<String, u64> {
    let mut events = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let event = words.windows(3).find_map(|words| {
            let (seconds, nanos) = words[0].strip_suffix(':')?.split_once('.')?;
            let is_time = seconds.parse::<u64>().is_ok() && nanos.len() >= 6;
            let is_period = words[1].parse::<u64>().is_ok();
            words[2].strip_suffix(':').filter(|_| is_time && is_period)
        });
        if let Some(event) = event {
            *events.entry(event.to_owned()).or_default() += 1;
        }
    }
    events
}

#[test]
fn every_line_of_perf_script() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    let corpora = corpora();
    let folders = corpora.iter().flat_map(|corpus| {
        let names = ["6.1", "6.12", "host", "host-6.18"];
        names.map(|name| corpus.join("perf-data").join(name))
    });
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let script = path.with_extension("script");
            if path.extension() != Some("data".as_ref()) || !script.exists() {
                continue;
            }
            let expected = events_of_script(&std::fs::read_to_string(&script).unwrap());
            let digest = Digest::of(&path).unwrap();
            checked += 1;
            if digest.by_event != expected || !digest.problems.is_empty() {
                wrong.push(format!(
                    "{}: expected {expected:?}, found {:?}; {:?}",
                    path.display(),
                    digest.by_event,
                    digest.problems
                ));
            }
        }
    }
    println!("{checked} recordings, {} wrong", wrong.len());
    assert!(checked >= 30, "{checked} recordings");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
