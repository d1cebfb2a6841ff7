//! uftrace: every record that `uftrace dump` prints, and the sums of `uftrace report`, over the recordings of the corpus.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perfquet_events::event::{Common, Event, EventType, Function, Sink};
use perfquet_events::{Error, Input};
use perfquet_readers::uftrace::UFTRACE;
use perfquet_tests::foreign_corpus;

/// Kind, time, thread, name, depth.
type Row = (String, Option<i64>, Option<i32>, String, Option<u32>);

#[derive(Default)]
struct Ours {
    types: Vec<EventType>,
    rows: Vec<Row>,
    problems: u64,
    /// Open user functions by thread: functions of the kernel are inside of them.
    user_depths: BTreeMap<Option<i32>, u32>,
}

impl Ours {
    fn edge(
        &mut self,
        kind: &str,
        common: &Common<'_>,
        function: Function<'_>,
        depth: Option<u32>,
    ) {
        let name = match function {
            Function::Named { name, .. } => String::from_utf8_lossy(name).into_owned(),
            other => format!("{other:?}"),
        };
        let user_depth = self.user_depths.entry(common.tid).or_default();
        let depth = match common.cpu {
            // uftrace counts those of the kernel from 0.
            Some(_) if depth >= Some(*user_depth) => depth.map(|depth| depth - *user_depth),
            Some(_) => depth,
            None => {
                *user_depth = depth.unwrap_or(0) + u32::from(kind == "entry");
                depth
            }
        };
        // Calls made of context switches, which are rows of their own.
        if !name.starts_with("linux:schedule") {
            self.rows
                .push((kind.to_owned(), common.time, common.tid, name, depth));
        }
    }
}

impl Sink for Ours {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(of_type) => self.types.push(of_type.clone()),
            Event::Enter(enter) => self.edge("entry", &enter.common, enter.function, enter.depth),
            Event::Leave(leave) => self.edge("exit", &leave.common, leave.function, leave.depth),
            Event::Sample(sample) => {
                let of_type = &self.types[sample.event.0 as usize];
                let name = format!("{}:{}", of_type.system, of_type.name);
                if name != "uftrace:return_value" {
                    let (time, tid) = (sample.time, sample.tid);
                    self.rows.push(("event".into(), time, tid, name, None));
                }
            }
            Event::Exit(exit) => {
                let name = "linux:task_exit".to_owned();
                self.rows
                    .push(("event".into(), exit.time, Some(exit.tid), name, None));
            }
            Event::Problem(problem) => self.problems += problem.count,
            _ => {}
        }
        Ok(())
    }
}

fn rows(path: &Path) -> Ours {
    let mut ours = Ours::default();
    UFTRACE
        .read(&mut Input::open(path).unwrap(), &mut ours)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    ours.rows.sort();
    ours
}

/// The lines of `uftrace dump` by their text alone.
fn printed(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let Some((head, rest)) = line.split_once(": [") else {
            continue;
        };
        let mut words = head.split_whitespace();
        let (Some(time), Some(tid)) = (words.next(), words.next()) else {
            continue;
        };
        let Some((kind, rest)) = rest.split_once("] ") else {
            continue;
        };
        // The payload of an event of the kernel.
        let rest = match rest.split_once(") ") {
            Some((name, _)) if kind == "event" => &format!("{name})"),
            _ => rest,
        };
        if !matches!(kind, "entry" | "exit " | "event") {
            continue;
        }
        let time: i64 = time.replace('.', "").parse().unwrap();
        let (rest, depth) = match rest.rsplit_once(" depth: ") {
            Some((rest, depth)) => (rest, Some(depth.parse().unwrap())),
            None => (rest, None),
        };
        let name = &rest[..rest.rfind('(').unwrap()];
        let (name, depth) = match kind {
            "event" => {
                let name = name.strip_suffix(" (pre-empted)").unwrap_or(name);
                (name.replace(['-', '/'], "_"), None)
            }
            _ => (name.to_owned(), depth),
        };
        // States of threads, which task.txt has, too.
        if name != "linux:task_new" && name != "linux:task_name" {
            let kind = kind.trim_end().to_owned();
            rows.push((kind, Some(time), Some(tid.parse().unwrap()), name, depth));
        }
    }
    rows.sort();
    rows
}

fn corpus() -> Vec<PathBuf> {
    let Some(folder) = foreign_corpus().map(|corpus| corpus.join("more/uftrace")) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|end| end == "data"));
    found.sort();
    found
}

#[track_caller]
fn assert_same(name: &str, ours: &Ours, theirs: &[Row]) {
    assert_eq!(ours.rows.len(), theirs.len(), "{name}");
    for (our, their) in ours.rows.iter().zip(theirs) {
        assert_eq!(our, their, "{name}");
    }
    assert_eq!(ours.problems, 0, "{name}");
}

#[test]
fn golden_uftrace() {
    let golden = perfquet_tests::root().join("formats/readers/src/uftrace/golden");
    let theirs = printed(&std::fs::read_to_string(golden.join("args.dump")).unwrap());
    assert_same("args.tar", &rows(&golden.join("args.tar")), &theirs);
    assert_same("args.dump", &rows(&golden.join("args.dump")), &theirs);
}

/// Functions and events of the kernel, among those of the program.
#[test]
fn golden_uftrace_kernel() {
    let golden = perfquet_tests::root().join("formats/readers/src/uftrace/golden");
    for name in ["kernel", "kernel-events"] {
        let dump = golden.join(format!("{name}.dump"));
        let mut theirs = printed(&std::fs::read_to_string(&dump).unwrap());
        let is_of_kernel = |row: &&Row| row.3.contains("sched_") || row.3.contains("mm_fault");
        assert!(theirs.iter().filter(is_of_kernel).count() >= 10, "{name}");
        // An event of a thread that uftrace does not trace is shown as that of the thread in its fields.
        let without_threads = |rows: &mut Vec<Row>| {
            let events = rows.iter_mut().filter(|row| row.3.starts_with("sched:"));
            events.for_each(|row| row.2 = None);
            rows.sort();
        };
        without_threads(&mut theirs);
        for input in [format!("{name}.tar.gz"), format!("{name}.dump")] {
            let mut ours = rows(&golden.join(&input));
            without_threads(&mut ours.rows);
            assert_same(&input, &ours, &theirs);
        }
    }
}

#[test]
fn corpus_uftrace() {
    println!(
        "{:<16} {:>7} {:>8} {:>6}",
        "directory", "records", "expected", "text"
    );
    for path in corpus() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let dump = path.with_extension("dump.txt");
        let theirs = printed(&std::fs::read_to_string(&dump).unwrap());
        let (mut ours, text) = (rows(&path), rows(&dump));
        // uftrace shows no context switches of threads without a file.
        let has_file = |tid: i32| path.join(format!("{tid}.dat")).is_file();
        ours.rows
            .retain(|(_, _, tid, _, _)| tid.is_none_or(has_file));
        println!(
            "{name:<16} {:>7} {:>8} {:>6}",
            ours.rows.len(),
            theirs.len(),
            text.rows.len()
        );
        assert_same(&name, &ours, &theirs);
        assert_same(&format!("{name}.dump.txt"), &text, &theirs);
    }
}

/// Total and self time in nanoseconds, calls, by function.
type Sums = BTreeMap<String, (i64, i64, i64)>;

/// The table of `uftrace report -f total,self,call`.
fn reported(text: &str) -> Sums {
    let time = |number: &str, unit: &str| {
        let scale = match unit {
            "us" => 1_000.0,
            "ms" => 1_000_000.0,
            other => panic!("{other}"),
        };
        (number.parse::<f64>().unwrap() * scale).round() as i64
    };
    let mut sums = Sums::new();
    for line in text.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [total, total_unit, own, own_unit, calls, name @ ..] = words.as_slice() else {
            continue;
        };
        let (total, own) = (time(total, total_unit), time(own, own_unit));
        sums.insert(name.join(" "), (total, own, calls.parse().unwrap()));
    }
    sums
}

/// Sums of our calls with an exit, where recursion counts once, as in the report.
#[derive(Default)]
struct Report {
    /// Open calls of each thread: name and time in calls inside.
    stacks: BTreeMap<Option<i32>, Vec<(String, i64)>>,
    sums: Sums,
}

impl Sink for Report {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        let name = |function| match function {
            Function::Named { name, .. } => String::from_utf8_lossy(name).into_owned(),
            other => format!("{other:?}"),
        };
        match event {
            Event::Enter(enter) => {
                let stack = self.stacks.entry(enter.common.tid).or_default();
                stack.resize(enter.depth.unwrap() as usize, Default::default());
                stack.push((name(enter.function), 0));
            }
            Event::Leave(leave) => {
                let stack = self.stacks.entry(leave.common.tid).or_default();
                stack.truncate(leave.depth.unwrap() as usize + 1);
                let (_, inside) = stack.pop().unwrap_or_default();
                let name = name(leave.function);
                let duration = leave.duration.unwrap_or(0);
                if let Some((_, around)) = stack.last_mut() {
                    *around += duration;
                }
                let is_recursive = stack.iter().any(|(other, _)| *other == name);
                let sums = self.sums.entry(name).or_default();
                sums.0 += if is_recursive { 0 } else { duration };
                sums.1 += (duration - inside).max(0);
                sums.2 += 1;
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn corpus_uftrace_report() {
    /// uftrace counts calls up to the last record of their thread if they have no exit, and setjmp's second return from the call of longjmp.
    const UNFINISHED: [&str; 4] = ["main", "exit", "thrower", "_setjmp"];
    for path in corpus() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path.with_extension("report.txt")).unwrap();
        let mut theirs = reported(&text);
        let mut ours = Report::default();
        UFTRACE
            .read(&mut Input::open(&path).unwrap(), &mut ours)
            .unwrap();
        let mut ours = ours.sums;
        for unfinished in UNFINISHED {
            theirs.remove(unfinished);
            ours.remove(unfinished);
        }
        let keys = |sums: &Sums| sums.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&ours), keys(&theirs), "{name}");
        for (function, our) in &ours {
            let their = theirs[function];
            // Printed with three decimals, not rounded.
            let is_same = |our: i64, their: i64| (our - their).abs() < 1_000;
            assert!(
                our.2 == their.2 && is_same(our.0, their.0) && is_same(our.1, their.1),
                "{name}: {function}: {our:?} {their:?}"
            );
        }
        println!("{name:<16} {:>4} functions", ours.len());
    }
}
