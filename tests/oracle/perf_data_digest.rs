//! Every sample of a perf.data against what `perf script -D` and an independent reader found in it.
//!
//! The corpus lists for each of its files the number of samples and a digest of them (README-binary.md): one line
//! `TIME CPU PID TID - PERIOD CHAIN` per sample, in decimal, the chain's addresses in hexadecimal; sorted, hashed.
//!
//! ```text
//! 1489506543925 0 3122 3122 - 1 ffffffff81234567,55f0c0de1234
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use perfquet_formats::event::{Event, EventType, Sample, Sink, Stack};
use perfquet_formats::perf_data::PERF_DATA;
use perfquet_formats::{Error, Input};
use perfquet_tests::{corpus, skip};
use sha2::{Digest as _, Sha256};

/// What the samples of a file amount to.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    types: Vec<EventType>,
    lines: Vec<String>,
    /// Samples by event, under the names that perf prints.
    pub(crate) by_event: BTreeMap<String, u64>,
    pub(crate) problems: Vec<String>,
    times: Vec<i64>,
}

impl Digest {
    /// Reads a file.
    pub(crate) fn of(path: &Path) -> Result<Digest, Error> {
        let mut digest = Digest::default();
        let mut input = Input::open(path)?;
        (PERF_DATA.read)(&mut input, &mut digest)?;
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
        let name = match declared.kind.is_sampled() || declared.system.is_empty() {
            true => declared.name.clone(),
            false => format!("{}:{}", declared.system, declared.name),
        };
        *self.by_event.entry(name).or_default() += 1;
        self.times.extend(sample.time);
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

/// A row of the corpus' table.
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
const DIFFERENCES: &[(&str, &str)] = &[];

#[test]
fn every_sample_of_the_public_corpus() {
    let Some(corpus) = corpus() else {
        return skip("needs the corpus");
    };
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
            // Not perf.data of version 2: the reader has to say so.
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
