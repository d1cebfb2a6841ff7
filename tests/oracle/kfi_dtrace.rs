//! KFI logs, output of dtrace and bpftrace: the known content of each file, and the results of `kd` and FlameGraph.
//!
//! KFI logs and dtrace's stacks are generated here ([`kfi_log`], [`dtrace_text`]). Golden files are counted by hand or
//! by simple means; for downloaded files there is a list (README-text.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use arrow::util::display::array_value_to_string;
use perfquet_events::event::{
    Aggregate, AggregateValue, Call, Context, Event, Fact, Function, Sink, Stack,
};
use perfquet_events::{Error, Format, Input};
use perfquet_import::{ImportOptions, import};
use perfquet_readers::bpftrace::BPFTRACE;
use perfquet_readers::dtrace::DTRACE;
use perfquet_readers::kfi::KFI;
use perfquet_tests::{bin, foreign_corpus, root};
use perfquet_trace::store::Directory;
use perfquet_trace::symbols;
use serde_json::{Value, json};

use crate::dtrace_text;
use crate::kfi_log::{self, Machine};

/// The content of a file, by the names in README-text.md. One struct, because each field is a row of that table.
#[derive(Default)]
struct Facts {
    rows: u64,
    no_exit: u64,
    zero: u64,
    interrupts: u64,
    microseconds: i64,
    functions: BTreeSet<String>,
    tids: BTreeSet<i32>,
    start: i64,
    first: Option<i64>,
    last: i64,
    distributions: u64,
    buckets: u64,
    bucket_sum: i128,
    stacks: u64,
    stack_sum: f64,
    frames: u64,
    text_keys: u64,
    text_sum: f64,
    hits: u64,
    messages: u64,
    probe: Option<u32>,
    types: u32,
    drops: u64,
    losses: u64,
    problems: u64,
}

impl Sink for Facts {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Call(call) => self.call(call),
            Event::Aggregate(aggregate) => self.aggregate(aggregate),
            Event::Fact(Fact::Other {
                name: "kfi.start",
                value,
            }) => self.start = value.parse().unwrap(),
            Event::Type(event_type) => {
                if event_type.name == "probe" {
                    self.probe = Some(self.types);
                }
                self.types += 1;
            }
            Event::Sample(sample) if self.probe == Some(sample.event.0) => self.hits += 1,
            Event::Sample(_) => self.messages += 1,
            Event::Loss(loss) => {
                self.losses += 1;
                if loss.reason.contains("drop") {
                    self.drops += loss.count.unwrap_or(0);
                }
            }
            Event::Problem(problem) => self.problems += problem.count,
            _ => {}
        }
        Ok(())
    }
}

impl Facts {
    fn of(format: &Format, path: &Path) -> Facts {
        let mut facts = Facts::default();
        format
            .read(&mut Input::open(path).unwrap(), &mut facts)
            .unwrap();
        facts
    }

    fn call(&mut self, call: &Call<'_>) {
        self.rows += 1;
        match call.duration {
            None => self.no_exit += 1,
            Some(0) => self.zero += 1,
            Some(duration) => self.microseconds += duration / 1000,
        }
        self.interrupts += u64::from(call.context == Some(Context::Irq));
        self.tids.extend(call.common.tid);
        self.functions.insert(match call.function {
            Function::Named { name, .. } => String::from_utf8_lossy(name).into_owned(),
            function => format!("{function:?}"),
        });
        let entry = call.common.time.unwrap() / 1000 - self.start;
        self.first.get_or_insert(entry);
        self.last = entry;
    }

    fn aggregate(&mut self, aggregate: &Aggregate<'_>) {
        self.rows += 1;
        if !aggregate.buckets.is_empty() {
            self.distributions += 1;
            self.buckets += aggregate.buckets.len() as u64;
            let counts = aggregate
                .buckets
                .iter()
                .map(|bucket| i128::from(bucket.count));
            self.bucket_sum += counts.sum::<i128>();
        }
        let mut has_stack = false;
        for stack in [aggregate.kernel_stack, aggregate.user_stack] {
            if let Stack::Named(frames) = stack {
                has_stack = true;
                self.frames += frames.iter().filter(|frame| !frame.inlined).count() as u64;
            }
        }
        let Some(value) = aggregate.value.map(AggregateValue::as_f64) else {
            return;
        };
        let is_text =
            |key: &&&[u8]| std::str::from_utf8(key).is_ok_and(|key| key.parse::<i64>().is_err());
        if has_stack {
            self.stacks += 1;
            self.stack_sum += value;
        } else if aggregate.keys.iter().find(is_text).is_some() {
            self.text_keys += 1;
            self.text_sum += value;
        }
    }

    /// The actual value of a fact in the list.
    fn known(&self, name: &str) -> Option<String> {
        Some(match name {
            "rows" => self.rows.to_string(),
            "functions" => self.functions.len().to_string(),
            "noexit" => self.no_exit.to_string(),
            "zero" => self.zero.to_string(),
            "intr" => self.interrupts.to_string(),
            "sumdelta" => self.microseconds.to_string(),
            "first" => self.first?.to_string(),
            "last" => self.last.to_string(),
            "distributions" => self.distributions.to_string(),
            "bucket_rows" => self.buckets.to_string(),
            "sum_of_bucket_counts" => self.bucket_sum.to_string(),
            "stacks" => self.stacks.to_string(),
            "stack_count_sum" => self.stack_sum.to_string(),
            "frames" => self.frames.to_string(),
            "string_key_rows" => self.text_keys.to_string(),
            "value_sum" => self.text_sum.to_string(),
            "probe_lines" => self.hits.to_string(),
            "drops" => self.drops.to_string(),
            _ => return None,
        })
    }
}

/// Understood differences: file, fact, reason.
const EXPLAINED: &[(&str, &str, &str)] = &[
    (
        "dtrace/linux-signedkeyspos.out",
        "string_key_rows",
        "the list counts three of the four widths of keys",
    ),
    (
        "dtrace/linux-signedkeyspos.out",
        "value_sum",
        "the list counts three of the four widths of keys",
    ),
];

/// Files of `folder` in the list of the corpus, with their facts.
fn listed(corpus: &Path, folder: &str) -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(corpus.join("README-text.md")).unwrap();
    text.lines()
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split(" | ");
            let file = cells.next()?.trim().to_owned();
            let facts = cells.nth(2)?.trim().trim_end_matches('|').trim();
            let facts = serde_json::from_str(facts).unwrap_or(Value::Null);
            file.starts_with(folder).then_some((file, facts))
        })
        .collect()
}

/// Compares one file; returns a line of the table and the unexplained differences.
fn compare(file: &str, format: &Format, facts: &Facts, expected: &Value) -> (String, Vec<String>) {
    let mut differences = Vec::new();
    let mut unexplained = Vec::new();
    let mut compared = Vec::new();
    for (name, value) in expected.as_object().into_iter().flatten() {
        let value = value.to_string();
        let Some(found) = facts.known(name) else {
            continue;
        };
        compared.push(format!("{name}={value}"));
        // A sum of more than 64 bits is read as a floating-point number.
        let is_near =
            expected[name].is_f64() && found.parse::<f64>().ok() == expected[name].as_f64();
        if found == value || is_near {
            continue;
        }
        let why = EXPLAINED
            .iter()
            .find(|(of, fact, _)| *of == file && fact == name);
        match why {
            Some((_, _, why)) => differences.push(format!("{name}: {found} ({why})")),
            None => {
                differences.push(format!("UNEXPLAINED {name}: {found}"));
                unexplained.push(format!("{file}: {name}: expected {value}, found {found}"));
            }
        }
    }
    let rows = facts.rows + facts.hits + facts.messages;
    let line = format!(
        "{file:<58} {:<7} {rows:>6}  {:<60} {}",
        format.name,
        compared.join(" "),
        differences.join("; ")
    );
    (line, unexplained)
}

/// Golden files of dtrace, counted by hand.
fn golden_facts() -> [(&'static str, Value); 3] {
    [
        (
            "by-program.out",
            json!({"string_key_rows": 7, "value_sum": 3457}),
        ),
        (
            "stacks.out",
            json!({"stacks": 5, "stack_count_sum": 28, "distributions": 1, "bucket_rows": 3, "sum_of_bucket_counts": 2}),
        ),
        ("malloc.out", json!({"probe_lines": 6, "drops": 12})),
    ]
}

/// The known facts of a generated log.
fn facts_of(machine: &Machine) -> Value {
    let rows = &machine.rows;
    let count = |is_it: &dyn Fn(&&kfi_log::Row) -> bool| rows.iter().filter(is_it).count();
    let functions: BTreeSet<&str> = rows.iter().map(|row| row.function).collect();
    json!({
        "rows": rows.len(),
        "functions": functions.len(),
        "noexit": count(&|row| row.delta == -1),
        "zero": count(&|row| row.delta == 0),
        "intr": count(&|row| row.pid.starts_with("-1")),
        "sumdelta": rows.iter().map(|row| row.delta.max(0)).sum::<i64>(),
        "first": rows[0].entry,
        "last": rows[rows.len() - 1].entry,
    })
}

#[test]
fn corpus_kfi_and_dtrace() {
    let mut table = String::new();
    let mut wrong = Vec::new();
    let mut add = |file: &str, format: &Format, path: &Path, expected: &Value| {
        let facts = Facts::of(format, path);
        let (line, unexplained) = compare(file, format, &facts, expected);
        let _ = writeln!(table, "{line}");
        wrong.extend(unexplained);
    };
    let folder = tempfile::tempdir().unwrap();
    for (seed, has_cpus) in [(1, false), (2, true)] {
        let machine = Machine::play(seed, 80, has_cpus);
        let (names, addresses) = machine.logs();
        for (ending, text) in [("lst", names), ("log", addresses)] {
            let name = format!("played{seed}.{ending}");
            let path = folder.path().join(&name);
            std::fs::write(&path, text).unwrap();
            add(&name, &KFI, &path, &facts_of(&machine));
        }
    }
    for (name, expected) in golden_facts() {
        let path = root().join("formats/readers/src/dtrace/golden").join(name);
        add(name, &DTRACE, &path, &expected);
    }
    let Some(corpus) = foreign_corpus() else {
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        return;
    };
    for (folder, format) in [("kfi/", &KFI), ("dtrace/", &DTRACE)] {
        for (file, expected) in listed(&corpus, folder) {
            let is_read = [".lst", ".log", ".out", ".json"]
                .iter()
                .any(|ending| file.ends_with(ending));
            let path = corpus.join(&file);
            if !is_read || !path.is_file() {
                continue;
            }
            add(&file, format, &path, &expected);
        }
    }
    println!(
        "{:<58} {:<7} {:>6}  {:<60} difference\n{table}",
        "file", "format", "rows", "expected"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Their damage is deliberate, or described in README-text.md.
#[test]
fn corpus_damaged_kfi() {
    let check = |folder: &Path, file: &str, rows: u64, problems: u64| {
        let facts = Facts::of(&KFI, &folder.join(file));
        assert_eq!((facts.rows, facts.problems), (rows, problems), "{file}");
    };
    // Three lines that are not rows and a truncated one, five odd rows, 8 rows instead of 12 announced, and no line
    // ending at the end.
    check(
        root(),
        "formats/readers/src/kfi/golden/damaged.lst",
        8,
        4 + 5 + 1 + 1,
    );
    let Some(corpus) = foreign_corpus() else {
        return;
    };
    let check = |file, rows, problems| check(&corpus, file, rows, problems);
    // Four lines that are not rows, three odd rows, 9 rows instead of 12 announced, and no line ending at the end.
    check("kfi/damaged.lst", 9, 4 + 3 + 1 + 1);
    // Three lines of a dot, and 38 rows instead of 1757 announced.
    check("kfi/elinux-boot-excerpt.lst", 38, 3 + 1);
}

/// Each line that begins with `@` is an entry, but `stats` gives three; each line that ends with a bar is one of a
/// histogram.
#[test]
fn corpus_bpftrace() {
    let golden = root().join("formats/readers/src/bpftrace/golden");
    let foreign = foreign_corpus().map(|corpus| corpus.join("folded/other/bpftrace-text.txt"));
    let golden = ["maps.txt", "stacks.txt"].map(|name| golden.join(name));
    for path in golden.into_iter().chain(foreign) {
        let text = std::fs::read_to_string(&path).unwrap();
        let entries = text.lines().filter(|line| line.starts_with('@'));
        let stats = text
            .lines()
            .filter(|line| line.contains(": count ") && line.contains(", total "));
        let bars = text.lines().filter(|line| line.ends_with('|'));
        let frames = text.lines().filter(|line| line.starts_with("    "));
        let facts = Facts::of(&BPFTRACE, &path);
        let found = (facts.rows, facts.buckets, facts.frames, facts.problems);
        let expected = (
            entries.count() as u64 + 2 * stats.count() as u64,
            bars.count() as u64,
            frames.count() as u64,
            0,
        );
        println!(
            "{}: rows, bars, frames, problems: {found:?}",
            path.display()
        );
        assert_eq!(found, expected, "{}", path.display());
    }
}

/// Each file is recognized as its format, or rejected; no other file is recognized as KFI, dtrace or bpftrace.
#[test]
fn corpus_is_recognized() {
    let folder = tempfile::tempdir().unwrap();
    let (names, addresses) = Machine::play(9, 20, false).logs();
    for text in [&names, &addresses] {
        let path = folder.path().join("log");
        std::fs::write(&path, text).unwrap();
        let format = perfquet_import::sniff(&mut Input::open(&path).unwrap()).unwrap();
        assert_eq!(format.name, "kfi");
    }
    let stacks = dtrace_text::stacks(&[(vec!["unix`idle+0x114"], 3)]);
    let path = folder.path().join("stacks");
    std::fs::write(&path, stacks).unwrap();
    let format = perfquet_import::sniff(&mut Input::open(&path).unwrap()).unwrap();
    assert_eq!(format.name, "dtrace");
    let Some(corpus) = foreign_corpus() else {
        return;
    };
    let mut wrong = Vec::new();
    let mut refused = 0;
    for (file, _) in listed(&corpus, "") {
        let path = corpus.join(&file);
        let Ok(mut input) = Input::open(&path) else {
            continue;
        };
        let expected = match file.split('/').next().unwrap_or_default() {
            "kfi" => "kfi",
            "dtrace" => "dtrace",
            _ if file.contains("bpftrace") => "bpftrace",
            _ => "",
        };
        match perfquet_import::sniff(&mut input) {
            Ok(format) if format.name == expected => {}
            Ok(format) if file.ends_with(".folded") && format.name == "folded" => {}
            Ok(format)
                if expected.is_empty() && !["kfi", "dtrace", "bpftrace"].contains(&format.name) => {
            }
            Ok(format) => wrong.push(format!("{file} is taken for {}", format.name)),
            Err(_) if expected == "kfi" && !file.ends_with(".map") => {
                wrong.push(format!("{file} is refused"))
            }
            Err(_) => refused += 1,
        }
    }
    println!("{refused} files are rejected, since nothing identifies their format");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rows of `calls` as text: time, CPU, thread, function, caller, duration, arguments.
fn calls(input: &Path, map: Option<&Path>) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("k.pqt");
    let mut names = symbols::Options::default();
    if let Some(map) = map {
        names.add(map).unwrap();
    }
    let options = ImportOptions {
        symbols: names,
        ..ImportOptions::default()
    };
    import(vec![Input::open(input).unwrap()], &output, options).unwrap();
    let mut rows = Vec::new();
    for batch in Directory::open(&output).unwrap().read("calls").unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            let columns = [
                "call_id", "time", "cpu", "tid", "function", "caller", "duration", "args",
            ];
            let text =
                |name| array_value_to_string(batch.column_by_name(name).unwrap(), row).unwrap();
            rows.push(columns.map(text).to_vec());
        }
    }
    rows.sort_by_key(|row| row[0].parse::<i64>().unwrap());
    rows
}

/// A log with addresses and its System.map gives the same rows as the log processed by `addr2sym`.
#[test]
fn corpus_kfi_with_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let map = file("System.map", &kfi_log::system_map());
    for (seed, has_cpus) in [(11, false), (12, true)] {
        let machine = Machine::play(seed, 50, has_cpus);
        let (names, addresses) = machine.logs();
        let with_names = calls(&file("played.lst", &names), None);
        let with_addresses = calls(&file("played.log", &addresses), Some(&map));
        assert_eq!(with_names.len(), machine.rows.len());
        assert_eq!(with_addresses, with_names, "{seed}");
    }
    let Some(corpus) = foreign_corpus() else {
        return;
    };
    for name in ["kft-up", "kft-smp", "kft-smp64", "kft-args"] {
        let file = |ending: &str| corpus.join("kfi").join(format!("{name}{ending}"));
        let map = match file(".System.map") {
            map if map.is_file() => map,
            _ => corpus.join("kfi/System.map"),
        };
        let resolved = calls(&file(".lst"), None);
        let with_addresses = calls(&file(".log"), Some(&map));
        assert_eq!(resolved.len(), with_addresses.len(), "{name}");
        for (resolved, ours) in resolved.iter().zip(&with_addresses) {
            assert_eq!(ours, resolved, "{name}");
        }
        println!(
            "{name}: {} rows are the same with addresses and with names",
            resolved.len()
        );
    }
}

/// The sums of `kd` for each function.
#[derive(Default)]
struct Sums {
    count: i64,
    time: i64,
    sub_time: i64,
}

/// The output of `kd` for each function can be computed from the table, by kd's own rules.
#[test]
fn corpus_kfi_has_all_values_used_by_kd() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("played.lst");
    for (seed, has_cpus) in [(21, false), (22, true)] {
        let machine = Machine::play(seed, 60, has_cpus);
        std::fs::write(&log, machine.logs().0).unwrap();
        let rows = calls(&log, None);
        let played = machine.rows.iter().map(|row| {
            let delta = (row.delta != -1).then(|| (row.delta * 1000).to_string());
            let caller = row.caller.unwrap_or("0x10008094").to_owned();
            [row.function.to_owned(), caller, delta.unwrap_or_default()]
        });
        let found = rows
            .iter()
            .map(|row| [row[4].clone(), row[5].clone(), row[6].clone()]);
        assert_eq!(
            found.collect::<Vec<_>>(),
            played.collect::<Vec<_>>(),
            "{seed}"
        );
    }
    let Some(corpus) = foreign_corpus() else {
        return;
    };
    for name in ["kft-up", "kft-smp", "kft-smp64", "kft-args"] {
        let rows = calls(&corpus.join(format!("kfi/{name}.lst")), None);
        let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
        for row in &rows {
            let (function, caller) = (row[4].as_str(), row[5].as_str());
            let delta = row[6].parse::<i64>().map_or(-1, |duration| duration / 1000);
            let of = sums.entry(function).or_default();
            of.count += 1;
            of.time += delta;
            if delta != -1
                && let Some(of) = sums.get_mut(caller)
            {
                of.sub_time += delta;
            }
        }
        let expected =
            std::fs::read_to_string(corpus.join(format!("kfi/expected/{name}.kd-time.txt")))
                .unwrap();
        let mut compared = 0;
        for line in expected.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(of) = words.first().and_then(|function| sums.get(function)) else {
                continue;
            };
            let numbers: Vec<i64> = words[1..]
                .iter()
                .map_while(|word| word.parse().ok())
                .collect();
            let average = of.time.div_euclid(of.count);
            let found = [
                of.count,
                of.time,
                average,
                of.time - of.sub_time,
                of.sub_time,
            ];
            assert_eq!(numbers[..5], found, "{name}: {line}");
            compared += 1;
        }
        assert!(compared >= 15, "{name}: {compared} functions");
        println!("{name}: {compared} functions have the counts and times that kd prints");
    }
}

/// Folded stacks as produced by FlameGraph from dtrace's output.
#[test]
fn corpus_dtrace_folded() {
    let stacks = [
        (
            vec![
                "genunix`kmem_cpu_reload+0x20",
                "genunix`kmem_cache_free+0xce",
                "unix`sys_syscall+0x17a",
            ],
            1,
        ),
        (vec!["unix`mutex_exit+0x12", "unix`sys_syscall+0x17a"], 12),
        (vec!["unix`mutex_exit+0x19", "unix`sys_syscall+0x17a"], 30),
    ];
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("stacks.out");
    std::fs::write(&text, dtrace_text::stacks(&stacks)).unwrap();
    let output = Command::new(bin("perfquet-convert"))
        .arg(&text)
        .args(["--from", "dtrace", "--no-symbols", "--to", "folded"])
        .output()
        .unwrap();
    let mut ours: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    ours.sort();
    assert_eq!(ours, dtrace_text::folded(&stacks));
    let Some(corpus) = foreign_corpus() else {
        return;
    };
    // inferno's result uses `--includeoffset`, to show an error of `stackcollapse.pl`.
    let with_offsets = "inferno-flamegraph-bug";
    for name in [
        "flamegraph-example-stacks",
        "inferno-hex-addresses",
        "inferno-java",
        with_offsets,
    ] {
        let file = |ending: &str| corpus.join("dtrace").join(format!("{name}{ending}"));
        let output = Command::new(bin("perfquet-convert"))
            .arg(file(".out"))
            .args(["--from", "dtrace", "--no-symbols", "--to", "folded"])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let ours: BTreeSet<String> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        let theirs = std::fs::read_to_string(file(".folded")).unwrap();
        let theirs: BTreeSet<String> = theirs
            .lines()
            .map(|line| match name == with_offsets {
                true => without_offsets(line),
                false => line.to_owned(),
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
        println!("{name}: {} lines are the same", ours.len());
    }
}

fn without_offsets(line: &str) -> String {
    let frames = line.split(';').map(|frame| match frame.split_once("+0x") {
        Some((name, rest)) => match rest.split_once(' ') {
            Some((_, count)) => format!("{name} {count}"),
            None => name.to_owned(),
        },
        None => frame.to_owned(),
    });
    frames.collect::<Vec<_>>().join(";")
}
