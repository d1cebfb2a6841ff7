//! What is exported and read again, against the tables of docs/exports.md: every row that comes back is one of the exported, in each column
//! as the table says, and each that does not is counted in the closing lines.
//!
//! ```text
//! | samples | event | period | time | cpu | …         | `pprof` | = | sum | – | not 0 | …
//! ```
//! A cell is a rule for the values of a column ([`Rule`]); a word that has no rule fails the test, so table and test are one thing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, root};
use serde_json::Value;

use super::inputs::{Trace, traces};
use super::{export, matrix::Reported};
use crate::several::printed;

/// How the values of a column come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Equal,
    /// Periods of rows that are otherwise equal are added.
    Sum,
    /// The format does not have it.
    Null,
    /// 0 comes back as unknown.
    NotZero,
    /// Time since the first event.
    SinceFirst,
    /// A thread has its last name.
    LastName,
    /// All events are called `count`.
    Count,
    /// Functions follow the name of the thread.
    AfterName,
    /// The module of a frame without a function.
    OfUnnamed,
    /// A thread without a name is called `:-1`.
    Unnamed,
    /// Of events of the kernel.
    OfKernel,
    /// Of interrupts, and of calls without a thread.
    OfCpus,
    /// Interrupts belong to the thread that was interrupted.
    OfInterrupted,
}

impl Rule {
    fn of(cell: &str, format: &str, column: &str) -> Rule {
        match cell {
            "=" if column == "time" && matches!(format, "firefox" | "speedscope") => {
                Rule::SinceFirst
            }
            "=" => Rule::Equal,
            "sum" => Rule::Sum,
            "–" => Rule::Null,
            "not 0" => Rule::NotZero,
            "last name" => Rule::LastName,
            "`count`" => Rule::Count,
            "after the name" => Rule::AfterName,
            "of unnamed functions" => Rule::OfUnnamed,
            "`:-1` if unknown" => Rule::Unnamed,
            "of the kernel's" => Rule::OfKernel,
            "without a thread" => Rule::OfCpus,
            "of the interrupted thread" => Rule::OfInterrupted,
            _ => panic!("docs/exports.md: no rule for {cell:?} of {format}"),
        }
    }

    /// Whether the value of a row that comes back is known from that of the exported row alone.
    fn is_strict(self) -> bool {
        !matches!(
            self,
            Rule::Sum | Rule::LastName | Rule::OfKernel | Rule::OfInterrupted | Rule::OfCpus
        )
    }
}

/// A table of docs/exports.md: columns, and their rules by format.
struct Table {
    columns: Vec<String>,
    rules: BTreeMap<String, Vec<Rule>>,
}

/// The tables under "Reading exports", by their first word.
fn tables() -> BTreeMap<String, Table> {
    let text = std::fs::read_to_string(root().join("docs/exports.md")).unwrap();
    let (_, text) = text.split_once("\n## Reading exports\n").unwrap();
    let text = text.split("\n## ").next().unwrap();
    let mut found: BTreeMap<String, Table> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let first = cells.next().unwrap();
        let cells: Vec<&str> = cells.collect();
        if first == "---" {
            continue;
        }
        let Some(format) = first.strip_prefix('`') else {
            current = first.to_owned();
            let columns = cells.into_iter().map(str::to_owned).collect();
            let rules = BTreeMap::new();
            found.insert(current.clone(), Table { columns, rules });
            continue;
        };
        let table = found.get_mut(&current).unwrap();
        let format = format.trim_end_matches('`').to_owned();
        let rules = cells.iter().zip(&table.columns);
        let rules = rules.map(|(cell, column)| Rule::of(cell, &format, column));
        let rules: Vec<Rule> = rules.collect();
        assert_eq!(rules.len(), table.columns.len(), "{line}");
        table.rules.insert(format, rules);
    }
    let kinds: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["calls", "events", "samples"]);
    found
}

/// Values by column; NULL is missing.
type Row = BTreeMap<String, String>;

/// The rows of a trace.
pub(super) struct Contents {
    kinds: BTreeMap<&'static str, Vec<Row>>,
    /// Names of threads.
    names: BTreeSet<String>,
    /// Time of the first event.
    first: i64,
}

/// The rows of each kind.
const QUERIES: [(&str, &str); 3] = [
    (
        "samples",
        "SELECT event, period, time, cpu, pid, tid, comm, user_stack, kernel_stack FROM samples",
    ),
    (
        "calls",
        "SELECT function, module, time, duration, cpu, pid, tid, comm, retval FROM calls",
    ),
    (
        "events",
        "SELECT event, time, cpu, pid, tid, comm FROM events WHERE event NOT IN (SELECT event FROM event_types WHERE table_name IN ('samples', ''))",
    ),
];

/// The rows of a query, without NULL.
fn asked(trace: &str, sql: &str) -> Vec<Row> {
    let text = printed("perfquet-query", &["sql", trace, sql, "--format", "json"]);
    let rows: Vec<serde_json::Map<String, Value>> = serde_json::from_str(&text).unwrap_or_default();
    let row = |row: serde_json::Map<String, Value>| -> Row {
        let cells = row.into_iter().filter_map(|(name, value)| match value {
            Value::Null => None,
            Value::String(text) => Some((name, text)),
            other => Some((name, other.to_string())),
        });
        cells.collect()
    };
    rows.into_iter().map(row).collect()
}

/// Function and module of each frame, from the outermost to the innermost one.
type Frames = Vec<(Option<String>, Option<String>)>;

/// The frames of each stack, with those of inlined code.
fn stacks(trace: &str) -> BTreeMap<String, Frames> {
    let frames = asked(
        trace,
        "SELECT frame_id, function, module, inlined_into FROM frames",
    );
    let frames: BTreeMap<&str, &Row> = frames
        .iter()
        .map(|row| (row["frame_id"].as_str(), row))
        .collect();
    let nodes = asked(
        trace,
        "SELECT stack_id, parent_id, frame_id FROM stacks ORDER BY stack_id",
    );
    let mut found: BTreeMap<String, Frames> = BTreeMap::from([("0".to_owned(), Vec::new())]);
    for node in nodes {
        let mut stack = found[&node["parent_id"]].clone();
        let mut own = Vec::new();
        let mut frame = frames.get(node["frame_id"].as_str());
        while let Some(row) = frame {
            own.push((row.get("function").cloned(), row.get("module").cloned()));
            frame = row
                .get("inlined_into")
                .and_then(|outer| frames.get(outer.as_str()));
        }
        stack.extend(own.into_iter().rev());
        found.insert(node["stack_id"].clone(), stack);
    }
    found
}

fn joined<'f>(words: impl Iterator<Item = Option<&'f String>>) -> String {
    let words: Vec<&str> = words.map(|word| word.map_or("?", String::as_str)).collect();
    words.join(";")
}

pub(super) fn contents(trace: &str) -> Contents {
    let stacks = stacks(trace);
    let mut kinds = BTreeMap::new();
    for (kind, sql) in QUERIES {
        let mut rows = asked(trace, sql);
        for row in rows.iter_mut().filter(|_| kind == "samples") {
            let mut frames = Frames::new();
            for column in ["user_stack", "kernel_stack"] {
                if let Some(stack) = row.remove(column) {
                    frames.extend(stacks[&stack].clone());
                }
            }
            if frames.is_empty() {
                continue;
            }
            let functions = joined(frames.iter().map(|(function, _)| function.as_ref()));
            let modules = joined(frames.iter().map(|(_, module)| module.as_ref()));
            let unnamed = frames.iter().filter(|(function, _)| function.is_none());
            // `[libc.so.6]` has no directories.
            let unnamed: Vec<&str> = unnamed
                .filter_map(|(_, module)| module.as_deref()?.rsplit('/').next())
                .collect();
            if !unnamed.is_empty() {
                let column = "modules of unnamed functions".to_owned();
                row.insert(column, unnamed.join(";"));
            }
            row.insert("functions".to_owned(), functions);
            row.insert("modules".to_owned(), modules);
        }
        kinds.insert(kind, rows);
    }
    let times = kinds.values().flatten().filter_map(|row| row.get("time"));
    let first = times.filter_map(|time| time.parse::<i64>().ok()).min();
    let first = first.unwrap_or_default();
    let mut names = asked(trace, "SELECT comm FROM threads");
    names.extend(kinds.values().flatten().cloned());
    Contents {
        names: names
            .iter()
            .filter_map(|row| row.get("comm").cloned())
            .collect(),
        kinds,
        first,
    }
}

/// The value of a column with which an exported row is expected to come back.
fn expected(rule: Rule, column: &str, row: &Row, first: i64) -> Option<String> {
    let value = row.get(column).cloned();
    match rule {
        Rule::Equal => value,
        Rule::Unnamed => value.or_else(|| Some(":-1".to_owned())),
        Rule::Null => None,
        Rule::NotZero => value.filter(|value| value != "0"),
        Rule::SinceFirst => value.map(|time| (time.parse::<i64>().unwrap() - first).to_string()),
        // Both sides of a comparison keep their names.
        Rule::Count => Some(match value.as_deref() {
            Some(side @ ("before" | "after")) => side.to_owned(),
            _ => "count".to_owned(),
        }),
        Rule::AfterName => match (row.get("comm"), value) {
            (Some(name), Some(functions)) => Some(format!("{name};{functions}")),
            (Some(name), None) => Some(name.clone()),
            (None, functions) => functions,
        },
        Rule::OfUnnamed => row.get("modules of unnamed functions").cloned(),
        Rule::Sum | Rule::LastName | Rule::OfKernel | Rule::OfInterrupted | Rule::OfCpus => {
            unreachable!("not strict")
        }
    }
}

/// Rows by the strict columns, with the sum of their periods.
type Counted = BTreeMap<Vec<Option<String>>, (u64, i128)>;

fn counted<'r>(
    rows: impl Iterator<Item = &'r Row>,
    key: impl Fn(&Row) -> Vec<Option<String>>,
) -> Counted {
    let mut found = Counted::new();
    for row in rows {
        let entry = found.entry(key(row)).or_default();
        let period = row.get("period").map_or(Ok(1), |period| period.parse());
        *entry = (entry.0 + 1, entry.1 + period.unwrap_or(0_i128));
    }
    found
}

/// Names that come back and that no thread of the trace has; that of the idle tasks is known to readers.
fn strangers(original: &Contents, again: &[Row]) -> Vec<String> {
    let names = again.iter().filter_map(|row| row.get("comm"));
    let unknown = names.filter(|name| !original.names.contains(*name) && *name != "swapper");
    unknown
        .map(|name| format!("no thread is called {name:?}"))
        .collect()
}

/// What differs in the rows of one kind, and the number of rows that did not come back.
fn compared(
    table: &Table,
    rules: &[Rule],
    (original, first): (&[Row], i64),
    again: &[Row],
) -> (Vec<String>, u64) {
    let strict: Vec<(&String, Rule)> = table
        .columns
        .iter()
        .zip(rules.iter().copied())
        .filter(|(_, rule)| rule.is_strict())
        .collect();
    let is_sum = rules.contains(&Rule::Sum);
    let exported = counted(original.iter(), |row| {
        let value = |(column, rule): &(&String, Rule)| expected(*rule, column, row, first);
        strict.iter().map(value).collect()
    });
    let found = counted(again.iter(), |row| {
        let value = |(column, rule): &(&String, Rule)| match rule {
            Rule::OfUnnamed => row.get("modules of unnamed functions").cloned(),
            _ => row.get(*column).cloned(),
        };
        strict.iter().map(value).collect()
    });
    let (mut different, mut missing) = (Vec::new(), 0);
    for (key, (count, sum)) in &found {
        let (before, sum_before) = exported.get(key).copied().unwrap_or_default();
        let is_it = match is_sum {
            true => *sum == sum_before,
            false => *count <= before,
        };
        if !is_it {
            different.push(format!(
                "{count} rows (sum {sum}), exported {before} ({sum_before}): {key:?}"
            ));
        }
    }
    for (key, (before, _)) in &exported {
        let count = found.get(key).map_or(0, |found| found.0);
        match is_sum && count > 0 {
            true => {}
            false => missing += before.saturating_sub(count),
        }
    }
    (different, missing)
}

/// What comes back otherwise: the trace, the format (any if empty), and why.
const OTHERWISE: [(&str, &str, &str); 9] = [
    (
        "features.pftrace",
        "",
        "samples without a period come back with 1, from ctf with 0",
    ),
    (
        "features.pb",
        "",
        "faulty samples, and stacks whose outermost frame is inlined",
    ),
    (
        "one-process.data",
        "perfetto",
        "perf:context_switch comes back as sched:sched_switch, as documented",
    ),
    ("fields.trace", "perfetto", "a name that only a switch has"),
    (
        "args.tar",
        "chrome",
        "threads without a name are called [unknown]",
    ),
    (
        "group.data",
        "folded",
        "sums are those of one of two events, which all are `count`",
    ),
    (
        "irq.data",
        "",
        "interrupts come back without the thread that they interrupted",
    ),
    // Wrong: processes that only markers tell are unknown in what comes back.
    ("hostile.trace", "", "processes that only markers tell"),
    ("late.trace", "", "processes that only markers tell"),
];

/// What differs in the export of a trace in one format.
fn check(
    trace: &Trace,
    original: &Contents,
    format: &str,
    tables: &BTreeMap<String, Table>,
    folder: &Path,
) -> Vec<String> {
    let is_it = |(name, of, _): &&(&str, &str, &str)| *name == trace.name && format.starts_with(of);
    if let Some((_, _, why)) = OTHERWISE.iter().find(is_it) {
        println!("{} --to {format}: not compared: {why}", trace.name);
        return Vec::new();
    }
    let file = folder.join(format!("a.{format}"));
    let _ = std::fs::remove_dir_all(&file);
    let stderr = export(&trace.path, format, &file, &[]);
    let reported = Reported::of(&stderr, &file);
    if reported.written() == 0 {
        return Vec::new();
    }
    let again = folder.join("again.pqt").display().to_string();
    let file = file.display().to_string();
    let mut command = Command::new(bin("perfquet-convert"));
    command.args([&file, "--no-symbols", "-f", "-o", &again]);
    if format == "folded" {
        // Lines with one frame may be any text.
        command.args(["--from", format]);
    }
    let output = command.output().unwrap();
    let mut times = original.kinds.values().flatten();
    if format == "perf-script" && times.all(|row| !row.contains_key("time")) {
        return Vec::new();
    }
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return vec![format!("{} --to {format}: {errors}", trace.name)];
    }
    let again = contents(&again);
    let (mut different, mut missing) = (Vec::new(), 0);
    for (kind, original_rows) in &original.kinds {
        let Some(rules) = tables[*kind].rules.get(format) else {
            continue;
        };
        if original_rows.is_empty() {
            // What comes back as samples was none.
            continue;
        }
        let mut events: Vec<&String> = original_rows
            .iter()
            .filter_map(|row| row.get("event"))
            .collect();
        events.sort();
        // Hits, calls and aggregations that come back as samples have events of their own.
        let is_own = |row: &&Row| {
            rules.contains(&Rule::Count)
                || *kind == "calls"
                || row
                    .get("event")
                    .is_some_and(|event| events.binary_search(&event).is_ok())
        };
        let rows: Vec<Row> = again.kinds[kind].iter().filter(is_own).cloned().collect();
        let (lines, count) = compared(
            &tables[*kind],
            rules,
            (original_rows, original.first),
            &rows,
        );
        different.extend(
            lines
                .into_iter()
                .take(3)
                .map(|line| format!("{kind}: {line}")),
        );
        missing += count;
        if rules.contains(&Rule::LastName) {
            different.extend(strangers(original, &rows).into_iter().take(1));
        }
    }
    if missing > reported.omitted {
        different.push(format!(
            "{missing} rows missing, {} reported: {stderr}",
            reported.omitted
        ));
    }
    let named = |line: String| format!("{} --to {format}: {line}", trace.name);
    different.into_iter().map(named).collect()
}

#[test]
fn exports_come_back_as_documented() {
    let tables = tables();
    let folder = tempfile::tempdir().unwrap();
    let mut formats: Vec<&String> = tables
        .values()
        .flat_map(|table| table.rules.keys())
        .collect();
    formats.sort();
    formats.dedup();
    assert_eq!(formats.len(), 8, "{formats:?}");
    let mut different = Vec::new();
    for trace in traces() {
        let original = contents(&trace.path);
        for format in &formats {
            different.extend(check(trace, &original, format, &tables, folder.path()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Perfetto's importer needs a release of the kernel; one that the exporter makes up does not come back.
#[test]
fn an_unknown_release_stays_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let release = |trace: &str| {
        let sql = "SELECT value FROM trace_info WHERE name = 'os_release'";
        asked(trace, sql)
    };
    for (name, is_known) in [("fields.trace", false), ("user-regs.data", true)] {
        let original = super::inputs::trace(name);
        let file = folder.path().join("a.pftrace");
        export(&original.path, "perfetto", &file, &[]);
        let file = file.display().to_string();
        let again = folder.path().join("again.pqt").display().to_string();
        printed(
            "perfquet-convert",
            &[&file, "--no-symbols", "-f", "-o", &again],
        );
        assert_eq!(!release(&again).is_empty(), is_known, "{name}");
        assert_eq!(release(&again), release(&original.path), "{name}");
    }
}
