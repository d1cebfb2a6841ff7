//! Summaries of a lake: equal to sums over the rows, within the bound of the histogram, and true whatever happens to the lake.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use perfquet_trace::lake::Lake;
use perfquet_trace::reopen;
use perfquet_trace::store::Directory;

use super::super::values::Cell;
use super::files::{KILL_IN, STEPS_LEFT};
use super::tests::{FTRACE, PERF, Room, ends_alone};
use super::{Options, Partition, Summary, publish};

fn summarize(room: &Room, traces: &[&Path], partition: &str) -> anyhow::Result<Summary> {
    let partition = Partition::parse(partition).unwrap();
    let options = Options {
        partition: Some(&partition),
        summaries: true,
        ..Options::default()
    };
    publish(traces, &room.lake(), options)
}

const HOST: &str = "date=2026-11-22,host=h001";

/// The rows of a table of a lake, cells as texts.
fn rows_of(room: &Room, table: &str, columns: &[&str]) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    let folder = format!("{table}/");
    for name in room.files().keys().filter(|name| name.starts_with(&folder)) {
        let file = std::fs::File::open(room.lake().join(name)).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        for batch in reader.build().unwrap() {
            rows.extend(cells(&batch.unwrap(), columns));
        }
    }
    rows
}

fn cells(batch: &RecordBatch, columns: &[&str]) -> Vec<Vec<Option<String>>> {
    let cell = |name: &&str, row: usize| match Cell::at(batch[*name].as_ref(), row) {
        Cell::Null => None,
        value => Some(value.text().into_owned()),
    };
    let row = |row: usize| columns.iter().map(|name| cell(name, row)).collect();
    (0..batch.num_rows()).map(row).collect()
}

fn stored(trace: &Path, table: &str, columns: &[&str]) -> Vec<Vec<Option<String>>> {
    let trace = Directory::open(trace).unwrap();
    let batches = trace.read(table).unwrap();
    batches
        .flat_map(|batch| cells(&batch.unwrap(), columns))
        .collect()
}

fn number(cell: &Option<String>) -> i64 {
    cell.as_deref().unwrap().parse().unwrap()
}

#[test]
fn durations_are_those_of_the_calls_within_the_bound() {
    let room = Room::new();
    let trace = room.trace("a.pqt", FTRACE);
    summarize(&room, &[&trace], HOST).unwrap();
    let mut exact: BTreeMap<Option<String>, Vec<Option<i64>>> = BTreeMap::new();
    for row in stored(&trace, "calls", &["function", "duration"]) {
        let duration = row[1].as_ref().map(|text| text.parse().unwrap());
        exact.entry(row[0].clone()).or_default().push(duration);
    }
    assert!(exact.len() > 10);
    let columns = ["function", "duration", "calls", "total_duration"];
    type Bars = BTreeMap<Option<i64>, (i64, Option<i64>)>;
    let mut found: BTreeMap<Option<String>, Bars> = BTreeMap::new();
    for row in rows_of(&room, "summary_durations", &columns) {
        let duration = row[1].as_ref().map(|text| text.parse().unwrap());
        let bars = found.entry(row[0].clone()).or_default();
        let sum = row[3].as_ref().map(|text| text.parse().unwrap());
        bars.insert(duration, (number(&row[2]), sum));
    }
    assert_eq!(
        exact.keys().collect::<Vec<_>>(),
        found.keys().collect::<Vec<_>>()
    );
    for (function, mut durations) in exact {
        durations.sort();
        let bars = &found[&function];
        let unknown = durations
            .iter()
            .filter(|duration| duration.is_none())
            .count();
        assert_eq!(bars.get(&None).map_or(0, |bar| bar.0), unknown as i64);
        assert!(bars.get(&None).is_none_or(|bar| bar.1.is_none()));
        let sum: i64 = durations.iter().flatten().sum();
        assert_eq!(
            bars.values().filter_map(|bar| bar.1).sum::<i64>(),
            sum,
            "{function:?}"
        );
        let mut merged = Vec::new();
        for (bar, (calls, _)) in bars.iter().filter(|(bar, _)| bar.is_some()) {
            merged.extend(std::iter::repeat_n(
                bar.unwrap(),
                usize::try_from(*calls).unwrap(),
            ));
        }
        // The value in each place, and so each percentile.
        let known: Vec<i64> = durations.into_iter().flatten().collect();
        assert_eq!(merged.len(), known.len());
        for (found, exact) in merged.iter().zip(&known) {
            assert!(
                (found - exact).abs() * 128 <= *exact,
                "{function:?}: {found} for {exact}"
            );
        }
    }
}

#[test]
fn functions_and_stacks_have_the_weight_of_the_samples() {
    let mut checked = 0;
    for golden in [
        PERF,
        "perf_script/golden/forms.txt",
        "perf_script/golden/group.txt",
        "perf_script/golden/memory.txt",
        "perf_script/golden/messages.txt",
    ] {
        let room = Room::new();
        let trace = room.trace("a.pqt", golden);
        summarize(&room, &[&trace], HOST).unwrap();
        let samples = stored(&trace, "samples", &["event", "period"]);
        let period = |row: &Vec<Option<String>>| row[1].as_ref().map_or(1, |_| number(&row[1]));
        let weight: i64 = samples.iter().map(period).sum();
        let columns = [
            "samples",
            "self_weight",
            "total_weight",
            "function",
            "event",
        ];
        let functions = rows_of(&room, "summary_functions", &columns);
        let columns = ["samples", "weight", "stack", "event"];
        let stacks = rows_of(&room, "summary_stacks", &columns);
        for (rows, name) in [(&functions, "functions"), (&stacks, "stacks")] {
            let count: i64 = rows.iter().map(|row| number(&row[0])).sum();
            let sum: i64 = rows.iter().map(|row| number(&row[1])).sum();
            assert_eq!(
                (count, sum),
                (samples.len() as i64, weight),
                "{golden}: {name}"
            );
        }
        // What a function has in all is the weight of the stacks with it, each once.
        for row in &functions {
            let is_same = |other: &&Vec<Option<String>>| other[3..] == row[3..];
            if functions.iter().filter(is_same).count() > 1 {
                continue;
            }
            let name = row[3].as_deref().unwrap();
            let has = |stack: &&Vec<Option<String>>| {
                let frames = stack[2].as_deref().unwrap_or("[no stack]");
                stack[3] == row[4] && frames.split(';').any(|frame| frame == name)
            };
            let with_it = stacks.iter().filter(has);
            let total: i64 = with_it.map(|stack| number(&stack[1])).sum();
            assert_eq!(number(&row[2]), total, "{golden}: {name}");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked} functions");
}

#[test]
fn losses_are_those_of_the_trace() {
    // Losses of a known number of events, and others.
    for golden in ["ctf/golden/version2.tar", "ctf/golden/kernel.tar"] {
        let room = Room::new();
        let trace = room.trace("a.pqt", golden);
        summarize(&room, &[&trace], HOST).unwrap();
        let losses = stored(&trace, "losses", &["count"]);
        assert!(!losses.is_empty(), "{golden}");
        let found = rows_of(&room, "summary_losses", &["losses", "lost", "uncounted"]);
        let sum = |rows: &[Vec<Option<String>>], place: usize| -> i64 {
            let known = rows.iter().filter(|row| row[place].is_some());
            known.map(|row| number(&row[place])).sum()
        };
        let known = losses.iter().filter(|row| row[0].is_some()).count();
        assert_eq!(sum(&found, 0), losses.len() as i64);
        assert_eq!(sum(&found, 1), sum(&losses, 0));
        assert_eq!(sum(&found, 2), (losses.len() - known) as i64);
    }
}

#[test]
fn a_lake_keeps_its_summaries_and_counts_traces_without() {
    let room = Room::new();
    let a = room.trace("a.pqt", PERF);
    let b = room.trace("b.pqt", FTRACE);
    let partition = Partition::parse(HOST).unwrap();
    let plain = Options {
        partition: Some(&partition),
        ..Options::default()
    };
    publish(&[&a], &room.lake(), plain).unwrap();
    assert!(
        room.files()
            .keys()
            .all(|name| !name.starts_with("summary_"))
    );
    let without = |expected: &[Option<&str>]| {
        let rows = rows_of(&room, "traces", &["summaries"]);
        let mut found: Vec<_> = rows.iter().map(|row| row[0].as_deref()).collect();
        found.sort();
        assert_eq!(found, expected);
    };
    without(&[Some("false")]);
    let summary = summarize(&room, &[&b], HOST).unwrap();
    assert_eq!((summary.published, summary.unsummarized), (1, 1));
    without(&[Some("false"), Some("true")]);
    // The lake remembers it.
    let summary = publish(&[&a], &room.lake(), plain).unwrap();
    assert_eq!((summary.published, summary.unchanged), (1, 0));
    without(&[Some("true"), Some("true")]);
    let summary = summarize(&room, &[&a, &b], HOST).unwrap();
    assert_eq!((summary.unchanged, summary.unsummarized), (2, 0));
    // Readers find them as tables of the trace.
    let lake = Lake::open(&room.lake()).unwrap();
    for record in lake.records().unwrap() {
        let trace = lake.trace(&record).unwrap().unwrap();
        let facts = &trace.manifest().facts.other;
        assert_eq!(facts[perfquet_trace::lake::SUMMARIES], "true");
        let mut found = 0;
        for (name, _) in trace
            .tables()
            .filter(|(name, _)| name.starts_with("summary_"))
        {
            let rows = trace
                .read(name)
                .unwrap()
                .map(|batch| batch.unwrap().num_rows());
            assert_eq!(
                rows.sum::<usize>() as u64,
                trace.table(name).unwrap().rows()
            );
            found += 1;
        }
        assert!(found > 0, "{}", record.trace);
    }
}

#[test]
fn hours_are_those_of_the_wall_clock() {
    let room = Room::new();
    let trace = room.trace("a.pqt", FTRACE);
    let manifest = trace.join(perfquet_trace::store::FILE_NAME);
    let text = std::fs::read_to_string(&manifest).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let times = stored(&trace, "calls", &["time"]);
    let times: Vec<i64> = times.iter().map(|row| number(&row[0])).collect();
    let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
    // The hour changes in the middle of the trace.
    let middle = first + (last - first) / 2;
    let hour = 20_780 * 24 * 3_600_i64;
    json["facts"]["wall_offset"] = (hour * 1_000_000_000 - middle).into();
    std::fs::write(&manifest, serde_json::to_vec(&json).unwrap()).unwrap();
    summarize(&room, &[&trace], HOST).unwrap();
    let mut found: BTreeMap<i64, i64> = BTreeMap::new();
    for row in rows_of(&room, "summary_durations", &["hour", "calls"]) {
        *found.entry(number(&row[0])).or_default() += number(&row[1]);
    }
    let before = times.iter().filter(|&&time| time < middle).count() as i64;
    let after = times.len() as i64 - before;
    assert_eq!(
        found,
        BTreeMap::from([(hour - 3_600, before), (hour, after)])
    );
}

fn compact(room: &Room) -> Summary {
    let options = Options {
        compact: true,
        ..Options::default()
    };
    publish(&[], &room.lake(), options).unwrap()
}

/// The summaries of a lake, in order.
fn all_summaries(room: &Room) -> Vec<Vec<Option<String>>> {
    let tables: [(&str, &[&str]); 3] = [
        (
            "summary_functions",
            &[
                "trace",
                "hour",
                "event",
                "function",
                "module",
                "samples",
                "self_weight",
                "total_weight",
            ],
        ),
        (
            "summary_stacks",
            &["trace", "hour", "event", "stack", "samples", "weight"],
        ),
        (
            "summary_durations",
            &[
                "trace",
                "hour",
                "function",
                "module",
                "duration",
                "calls",
                "total_duration",
            ],
        ),
    ];
    let mut rows: Vec<_> = tables
        .iter()
        .flat_map(|(table, columns)| rows_of(room, table, columns))
        .collect();
    rows.sort();
    rows
}

#[test]
fn summaries_stay_true_through_compaction_moves_and_retention() {
    let room = Room::new();
    let inputs = [
        ("a.pqt", PERF),
        ("b.pqt", FTRACE),
        ("c.pqt", "perf_data/golden/open-files.data"),
    ];
    let traces = inputs.map(|(name, golden)| room.trace(name, golden));
    let traces: Vec<&Path> = traces.iter().map(PathBuf::as_path).collect();
    summarize(&room, &traces, HOST).unwrap();
    let expected = all_summaries(&room);
    assert!(compact(&room).merged > 0);
    assert_eq!(all_summaries(&room), expected);
    // Symbolized again, one leaves the common files.
    reopen::name_again(traces[0], Default::default()).unwrap();
    assert_eq!(summarize(&room, &traces, HOST).unwrap().published, 1);
    assert_eq!(all_summaries(&room), expected);
    // One moves.
    summarize(&room, &[traces[1]], "date=2001-01-01,host=h002").unwrap();
    assert_eq!(all_summaries(&room), expected);
    compact(&room);
    assert_eq!(all_summaries(&room), expected);
    let days = std::time::Duration::from_secs(30 * 86_400);
    let options = Options {
        retain: Some(days),
        ..Options::default()
    };
    assert!(publish(&[], &room.lake(), options).unwrap().removed >= 1);
    let mut rest = expected;
    rest.retain(|row| !row[0].as_deref().unwrap().starts_with("b-"));
    assert_eq!(all_summaries(&room), rest);
}

/// Publishes `b`, and `a` at another place, in one process.
fn write(room: &Room, [a, b]: [&Path; 2]) -> anyhow::Result<()> {
    summarize(room, &[b], HOST)?;
    summarize(room, &[a], "date=2026-11-24,host=h002")?;
    Ok(())
}

#[test]
fn a_writer_of_summaries_that_stops_at_any_step_is_completed_by_the_next() {
    let room = Room::new();
    let a = room.trace("a.pqt", PERF);
    let b = room.trace("b.pqt", FTRACE);
    summarize(&room, &[&a], HOST).unwrap();
    write(&room, [&a, &b]).unwrap();
    let (expected, rows) = (all_summaries(&room), room.rows());
    let mut stopped = 0;
    for steps in 0.. {
        let _ = std::fs::remove_dir_all(room.lake());
        summarize(&room, &[&a], HOST).unwrap();
        STEPS_LEFT.set(Some(steps));
        let done = write(&room, [&a, &b]);
        STEPS_LEFT.set(None);
        if done.is_ok() {
            break;
        }
        stopped += 1;
        write(&room, [&a, &b]).unwrap();
        assert_eq!(
            all_summaries(&room),
            expected,
            "stopped after {steps} steps"
        );
        assert_eq!(room.rows(), rows, "stopped after {steps} steps");
    }
    assert!(stopped > 20, "{stopped}");
}

/// Names the step, the lake and the traces for the process that is killed.
const KILLED: &str = "PERFQUET_TEST_KILLED_SUMMARIES";

#[test]
fn a_killed_writer_of_summaries_leaves_nothing_double_and_nothing_lost() {
    let [a, b] = [("a.pqt", PERF), ("b.pqt", FTRACE)];
    if let Ok(words) = std::env::var(KILLED) {
        let words: Vec<&str> = words.lines().collect();
        let [step, lake, a, b] = words.as_slice() else {
            panic!("{words:?}");
        };
        KILL_IN.set(Some(step.parse().unwrap()));
        for (trace, place) in [(b, HOST), (a, "date=2026-11-24,host=h002")] {
            let partition = Partition::parse(place).unwrap();
            let options = Options {
                partition: Some(&partition),
                ..Options::default()
            };
            publish(&[Path::new(trace)], Path::new(lake), options).unwrap();
        }
        return;
    }
    let room = Room::new();
    let (a, b) = (room.trace(a.0, a.1), room.trace(b.0, b.1));
    summarize(&room, &[&a], HOST).unwrap();
    write(&room, [&a, &b]).unwrap();
    let (expected, rows) = (all_summaries(&room), room.rows());
    let mut killed = 0;
    for step in 0.. {
        let _ = std::fs::remove_dir_all(room.lake());
        summarize(&room, &[&a], HOST).unwrap();
        let words = [room.lake(), a.clone(), b.clone()].map(|path| path.display().to_string());
        let test = "export::lake::summary_tests::a_killed_writer_of_summaries_leaves_nothing_double_and_nothing_lost";
        if ends_alone(test, KILLED, &format!("{step}\n{}", words.join("\n"))) {
            break;
        }
        killed += 1;
        write(&room, [&a, &b]).unwrap();
        assert_eq!(all_summaries(&room), expected, "killed before step {step}");
        assert_eq!(room.rows(), rows, "killed before step {step}");
    }
    assert!(killed >= 50, "{killed} steps");
}
