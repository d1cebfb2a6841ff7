//! What bcc's tools, SystemTap and ktap print: the bars and counts of each text, as a few lines of parsing find them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perfquet_events::event::{Event, Place, Sink};
use perfquet_events::{Error, Format, Input};
use perfquet_readers::{bcc::BCC, dtrace::DTRACE, systemtap::SYSTEMTAP};
use perfquet_tests::foreign_corpus;

/// What a text has, or our events of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    histograms: u64,
    bars: u64,
    /// Of the bars.
    count: i64,
    /// Counts of ktap's keys.
    keys: u64,
    entries: u64,
    returns: u64,
    problems: Vec<String>,
}

#[derive(Default)]
struct Ours {
    totals: Totals,
    /// Rows of each name without bars: number and sum.
    values: BTreeMap<String, (u64, f64)>,
    stacks: u64,
    messages: u64,
}

impl Sink for Ours {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        let totals = &mut self.totals;
        match event {
            Event::Aggregate(aggregate) => {
                use perfquet_events::event::Stack;
                let has_stack = |stack| !matches!(stack, Stack::None);
                self.stacks +=
                    u64::from(has_stack(aggregate.kernel_stack) || has_stack(aggregate.user_stack));
                if let Some(value) = aggregate.value {
                    totals.keys += 1;
                    let name = String::from_utf8_lossy(aggregate.name).into_owned();
                    let (rows, sum) = self.values.entry(name).or_default();
                    *rows += 1;
                    *sum += value.as_f64();
                    return Ok(());
                }
                totals.histograms += 1;
                totals.bars += aggregate.buckets.len() as u64;
                totals.count += aggregate
                    .buckets
                    .iter()
                    .map(|bucket| bucket.count)
                    .sum::<i64>();
            }
            Event::Enter(_) => totals.entries += 1,
            Event::Leave(_) => totals.returns += 1,
            Event::Sample(_) => self.messages += 1,
            Event::Problem(problem) => totals.problems.push(match problem.place {
                Place::Line(line) => format!("line {line}: {}", problem.message),
                _ => problem.message.to_owned(),
            }),
            _ => {}
        }
        Ok(())
    }
}

fn ours(format: &Format, path: &Path) -> Ours {
    let mut ours = Ours::default();
    format
        .read(&mut Input::open(path).unwrap(), &mut ours)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    ours
}

impl Ours {
    /// Removes the problems of pages whose output was shortened by hand.
    fn without_elisions(mut self) -> Ours {
        let is_real = |problem: &String| !problem.contains("expected the omitted lines");
        self.totals.problems.retain(is_real);
        self
    }
}

fn texts(folder: &str) -> Vec<PathBuf> {
    let Some(folder) = foreign_corpus().map(|corpus| corpus.join("more").join(folder)) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for below in ["", "own", "public"] {
        let entries = std::fs::read_dir(folder.join(below)).into_iter().flatten();
        paths.extend(entries.map(|entry| entry.unwrap().path()));
    }
    paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    paths.sort();
    paths
}

/// The number at the end of a text, which may follow a full bar without a blank.
fn last_number(text: &str) -> Option<i64> {
    let digits = text
        .trim_end()
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()?;
    digits.parse().ok()
}

#[test]
fn corpus_bcc() {
    for path in texts("bcc") {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut expected = Totals::default();
        for line in text.lines() {
            expected.histograms +=
                u64::from(line.contains(": count") && line.ends_with("distribution"));
            let Some((range, rest)) = line.split_once(" : ") else {
                continue;
            };
            let Some((count, _)) = rest
                .split_once('|')
                .filter(|_| line.trim_end().ends_with('|'))
            else {
                continue;
            };
            let is_range = range.trim().chars().all(|c| "0123456789->  ".contains(c));
            if let (true, Ok(count)) = (is_range, count.trim().parse::<i64>()) {
                expected.bars += 1;
                expected.count += count;
            }
        }
        let found = ours(&BCC, &path).without_elisions();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        println!(
            "{name}: {:?} {} stacks {} messages {:?}",
            found.totals, found.stacks, found.messages, found.values
        );
        expected.keys = found.totals.keys;
        assert_eq!(found.totals, expected, "{name}");
    }
}

#[test]
fn corpus_systemtap() {
    for path in texts("systemtap") {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut expected = Totals::default();
        for line in text.lines() {
            if line.trim().starts_with("value |--") {
                expected.histograms += 1;
            } else if let Some((label, rest)) = line.split_once('|')
                && label.trim().parse::<i64>().is_ok()
            {
                expected.bars += 1;
                expected.count += last_number(rest).unwrap();
            }
            let is_timed =
                line.trim_start().starts_with(|c: char| c.is_ascii_digit()) && line.contains("):");
            expected.entries += u64::from(is_timed && line.contains("->"));
            expected.returns += u64::from(is_timed && line.contains("<-"));
        }
        let found = ours(&SYSTEMTAP, &path).without_elisions();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        println!(
            "{name}: {:?} {} stacks {} messages {:?}",
            found.totals, found.stacks, found.messages, found.values
        );
        expected.keys = found.totals.keys;
        assert_eq!(found.totals, expected, "{name}");
    }
}

#[test]
fn corpus_ktap() {
    for path in texts("ktap") {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text
            .lines()
            .filter(|line| line.contains('|') && !line.contains("--"));
        let counts: Vec<i64> = lines.filter_map(last_number).collect();
        let found = ours(&DTRACE, &path);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        println!("{name}: {:?} {} messages", found.totals, found.messages);
        let (rows, sum) = found.values.get("").copied().unwrap_or_default();
        assert_eq!(
            (rows, sum),
            (counts.len() as u64, counts.iter().sum::<i64>() as f64),
            "{name}"
        );
        assert_eq!(found.totals.problems, [""; 0], "{name}");
    }
}
