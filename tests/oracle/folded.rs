//! Folded stacks: the known content of each file, and the round trip through `--to folded`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use perfquet_events::event::{Event, Sink};
use perfquet_events::{Error, Input};
use perfquet_readers::folded::FOLDED;
use perfquet_tests::{bin, foreign_corpus, root};

/// A file, lines with a stack, lines without, and the sum of the (last) counts.
type Known = (&'static str, usize, usize, f64);

/// Golden files, counted by hand.
const GOLDEN: &[Known] = &[
    (
        "formats/readers/src/folded/golden/bad-lines.folded",
        7,
        2,
        607.0,
    ),
    (
        "formats/readers/src/folded/golden/dd.folded",
        9,
        0,
        10_020_060.0,
    ),
    ("formats/readers/src/folded/golden/diff.folded", 6, 0, 513.0),
    (
        "formats/readers/src/folded/golden/fractional.folded",
        6,
        0,
        334.638,
    ),
    (
        "formats/readers/src/folded/golden/tricky-stack.folded",
        1,
        0,
        3.0,
    ),
];

/// Downloaded files: README-text.md.
const FOREIGN: &[Known] = &[
    ("folded/bad-lines.folded", 7, 2, 607.0),
    ("folded/diff.folded", 6, 0, 513.0),
    ("folded/fractional.folded", 6, 0, 334.618),
    ("folded/tricky-stack.folded", 1, 0, 3.0),
    ("folded/vertx.folded", 199, 0, 285.0),
    (
        "folded/perf-script/perf-cycles-instructions-01.folded-all",
        6,
        0,
        333.0,
    ),
    (
        "folded/perf-script/perf-dd-stacks-01.folded-all",
        9,
        0,
        101_010_100.0,
    ),
    (
        "folded/perf-script/perf-java-faults-01.folded-all",
        12,
        0,
        200.0,
    ),
    ("folded/perf-script/perf-js-stacks-01.folded-all", 2, 0, 2.0),
    (
        "folded/perf-script/perf-mirageos-stacks-01.folded-all",
        9,
        0,
        52.0,
    ),
    (
        "folded/perf-script/perf-numa-stacks-01.folded-all",
        17,
        0,
        199.0,
    ),
    ("dtrace/flamegraph-example-stacks.folded", 434, 0, 57441.0),
];

#[derive(Default)]
struct Counts {
    events: Vec<String>,
    samples: usize,
    problems: usize,
    sum: f64,
}

impl Sink for Counts {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(event) => self.events.push(event.name.clone()),
            Event::Sample(sample) => {
                self.samples += 1;
                let name = &self.events[sample.event.0 as usize];
                let unit: f64 = name
                    .split_once('/')
                    .map_or(1.0, |(_, unit)| unit.parse().unwrap());
                if !name.starts_with("before") {
                    self.sum += sample.period.unwrap() as f64 / unit;
                }
            }
            Event::Problem(problem) => self.problems += problem.count as usize,
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn corpus_folded() {
    let mut table = String::new();
    let mut wrong = Vec::new();
    let golden = GOLDEN.iter().map(|known| (root().to_path_buf(), known));
    let foreign = foreign_corpus().into_iter();
    let foreign =
        foreign.flat_map(|folder| FOREIGN.iter().map(move |known| (folder.clone(), known)));
    for (folder, (file, lines, bad, sum)) in golden.chain(foreign) {
        let path = folder.join(file);
        let mut counts = Counts::default();
        FOLDED
            .read(&mut Input::open(&path).unwrap(), &mut counts)
            .unwrap();
        let stacks = counts.samples / counts.events.len();
        let is_same =
            stacks == *lines && counts.problems == *bad && (counts.sum - sum).abs() < 1e-6;
        let comes_back = comes_back(&path, counts.events.len());
        let difference = match (is_same, comes_back) {
            (true, true) => "",
            (false, _) => "UNEXPLAINED: other counts",
            (true, false) => "UNEXPLAINED: does not come back by --to folded",
        };
        let _ = writeln!(
            table,
            "{file:<60} {stacks:>6} {lines:>6} {:>4} {:>14}  {difference}",
            counts.problems,
            (counts.sum * 1000.0).round() / 1000.0
        );
        if !difference.is_empty() {
            wrong.push(format!("{file}: {difference}"));
        }
    }
    println!(
        "{:<60} {:>6} {:>6} {:>4} {:>14}  difference\n{table}",
        "file (folded)", "stacks", "listed", "bad", "sum"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether exporting the import gives the same stacks with the same counts; duplicates are added.
fn comes_back(path: &Path, numbers: usize) -> bool {
    let output = Command::new(bin("perfquet-convert"))
        .arg(path)
        .args(["--from", "folded", "--no-symbols", "--to", "folded"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", path.display());
    let text = std::fs::read_to_string(path).unwrap();
    merged(&String::from_utf8(output.stdout).unwrap(), numbers) == merged(&text, numbers)
}

/// Counts of each stack in thousandths.
fn merged(text: &str, numbers: usize) -> BTreeMap<&str, Vec<u64>> {
    let mut stacks: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.trim_end().rsplitn(numbers + 1, ' ');
        let counts: Option<Vec<u64>> = words.by_ref().take(numbers).map(thousandths).collect();
        if let (Some(counts), Some(stack)) = (counts, words.next()) {
            let sums = stacks.entry(stack).or_insert_with(|| vec![0; numbers]);
            sums.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
    }
    stacks
}

fn thousandths(word: &str) -> Option<u64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    format!("{whole}{fraction:0<3}").parse().ok()
}
