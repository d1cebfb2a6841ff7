//! Every scope against the system: of one moment of a scheduler, made by [`host`], recordings of a process, of threads and of a command have,
//! for the threads that they cover, the rows of the recording of the system, and in each column its value or NULL.
//!
//! What a scope does not record, and what views make of that by definition (docs/views.md), are the [`Exception`]s.

mod host;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::{Covered, Host, Recorder};
use perfquet_tests::bin;

use super::views::number;

/// Recordings with options of perf, their threads at the start, and the process whose names they have.
const SCOPES: [(&str, &str, &[u32], u32); 4] = [
    ("process", "-p 100", &[100, 101, 102], 100),
    ("thread", "-t 101", &[101], 100),
    ("threads", "-t 100,102", &[100, 102], 100),
    // A command has one thread when it starts.
    ("command", "-- sh", &[300], 300),
];

/// How a column of a scope may differ from the system's, by definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exception {
    /// A sleep whose wake-up is not recorded lasts until the thread runs again.
    SleepUntilRunning,
    /// A thread's last period ends at the record of its exit.
    UntilExit,
    /// A sum lacks what is not recorded.
    AtMost,
    /// The same; and a wait for a CPU without its wake-up belongs to the sleep before it.
    AtMostWithWaits,
    /// The first known name in a step, of which a part is unknown.
    NameOfAPart,
    /// The last recorded name of a thread that is not recorded itself.
    RecordedName,
}

/// A view with rows by a number and a time; its other columns, with their exceptions.
struct View {
    name: &'static str,
    from: &'static str,
    key: &'static str,
    columns: &'static str,
    exceptions: &'static [(&'static str, Exception)],
}

const VIEWS: &[View] = &[
    View {
        name: "thread_states",
        from: "thread_states",
        key: "tid, time",
        columns: "duration, state, cpu, pid, comm, waker_tid, waker_comm, waker_context, interrupt, wake_time",
        exceptions: &[
            ("duration", Exception::SleepUntilRunning),
            ("duration", Exception::UntilExit),
        ],
    },
    View {
        name: "off_cpu",
        from: "off_cpu",
        key: "tid, time",
        columns: "duration, state, cpu, pid, comm, waker_tid, waker_comm, waker_context, interrupt, wake_time",
        exceptions: &[],
    },
    View {
        name: "runqueue_waits",
        from: "runqueue_waits",
        key: "tid, time",
        columns: "duration, why, cpu, pid, comm, waker_tid, waker_comm, from_cpu, migrated",
        exceptions: &[],
    },
    View {
        name: "wakeups",
        from: "wakeups",
        key: "tid, time",
        columns: "latency, is_new, target_cpu, pid, comm, waker_tid, waker_comm, waker_cpu, waker_context, interrupt, interrupted_tid, interrupted_comm, slept",
        exceptions: &[],
    },
    View {
        name: "thread_utilization",
        from: "thread_utilization(10ms)",
        // Two threads with one ID may run in a step.
        key: "coalesce(pid, 0) * 100000 + tid, time",
        columns: "pid, comm, busy, waiting, blocked",
        exceptions: &[
            ("busy", Exception::AtMost),
            ("waiting", Exception::AtMost),
            ("blocked", Exception::AtMostWithWaits),
            ("comm", Exception::NameOfAPart),
        ],
    },
    View {
        name: "syscalls",
        from: "syscalls",
        key: "tid, time",
        columns: "duration, cpu, pid, comm, name, nr, args, fd, path, ret, error",
        exceptions: &[],
    },
    View {
        name: "locks",
        from: "locks",
        key: "tid, time",
        // Not the owner: of several threads that hold a lock during a wait, it is the one of the recorded wake-ups.
        columns: "duration, cpu, pid, comm, kind, access, address, error",
        exceptions: &[],
    },
    View {
        name: "irqs",
        from: "irqs",
        key: "interrupted_tid, time",
        columns: "duration, self_time, cpu, kind, nr, name, interrupted_comm",
        exceptions: &[],
    },
    View {
        name: "block_io",
        from: "block_io",
        key: "sector, time",
        columns: "duration, queued, cpu, pid, tid, comm, device, op, bytes, error",
        exceptions: &[],
    },
    View {
        name: "cpu_utilization",
        from: "cpu_utilization(10ms)",
        key: "cpu, time",
        columns: "busy, idle",
        exceptions: &[],
    },
    View {
        name: "runqueue_lengths",
        from: "runqueue_lengths",
        key: "cpu, time",
        columns: "length",
        exceptions: &[],
    },
    View {
        name: "processes",
        from: "processes",
        key: "pid, coalesce(start_time, 0)",
        columns: "cpu_time, parent, comm, end_time, threads",
        exceptions: &[
            ("cpu_time", Exception::AtMost),
            ("threads", Exception::AtMost),
            ("comm", Exception::RecordedName),
        ],
    },
    View {
        name: "critical_path",
        from: "critical_path(100, 100005000000, 100025000000) WHERE state IS NOT NULL",
        key: "tid, time",
        columns: PATH,
        exceptions: &[
            ("duration", Exception::SleepUntilRunning),
            ("state", Exception::SleepUntilRunning),
        ],
    },
    View {
        name: "critical_path",
        from: "critical_path(101, 100005000000, 100025000000) WHERE state IS NOT NULL",
        key: "tid, time",
        columns: PATH,
        exceptions: &[
            ("duration", Exception::SleepUntilRunning),
            ("state", Exception::SleepUntilRunning),
        ],
    },
    View {
        name: "critical_path",
        from: "critical_path(300, 100005000000, 100025000000) WHERE state IS NOT NULL",
        key: "tid, time",
        columns: PATH,
        exceptions: &[
            ("duration", Exception::SleepUntilRunning),
            ("state", Exception::SleepUntilRunning),
        ],
    },
];

/// Columns of a part; those of a sleep are in the places of thread_states'.
const PATH: &str = "duration, state, pid, comm, depth, waker_comm, waker_context, interrupt, depth AS again, waker_tid";

/// Rows by a number and a time; other columns in their order.
type Rows = BTreeMap<(i64, i64), Vec<String>>;

fn imported(text: &str, name: &str, folder: &Path) -> PathBuf {
    let input = folder.join(format!("{name}.txt"));
    std::fs::write(&input, text).unwrap();
    let trace = folder.join(format!("{name}.pqt"));
    let mut command = Command::new(bin("perfquet-convert"));
    let command = command
        .arg(&input)
        .args(["--no-symbols", "-f", "-o"])
        .arg(&trace);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    trace
}

/// The rows of views, in one run of the program. A view whose events are not in the recording has none.
fn answers(trace: &Path) -> Vec<Rows> {
    let mut found: Vec<Rows> = VIEWS.iter().map(|_| Rows::new()).collect();
    let mut asked: Vec<usize> = (0..VIEWS.len()).collect();
    loop {
        // The first column tells the view.
        let statement = |&place: &usize| {
            let View {
                from, key, columns, ..
            } = &VIEWS[place];
            format!("SELECT {place} AS view, {key}, {columns} FROM {from}")
        };
        let statements: Vec<String> = asked.iter().map(statement).collect();
        let output = Command::new(bin("perfquet-query"))
            .arg("sql")
            .arg(trace)
            .args([&statements.join("; "), "--format", "csv"])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            let text = String::from_utf8(output.stdout).unwrap();
            for line in text.lines().filter(|line| !line.starts_with("view,")) {
                let cells: Vec<String> = line.split(',').map(str::to_owned).collect();
                let key = (number(&cells[1]), number(&cells[2]));
                let before = found[number::<usize>(&cells[0])].insert(key, cells[3..].to_vec());
                assert!(before.is_none(), "two rows: {line}");
            }
            return found;
        }
        let lacks = |place: &usize| {
            let name = VIEWS[*place].name;
            errors.contains(&format!(
                "perfquet-query: {name} needs events that were not recorded"
            ))
        };
        let place = asked.iter().position(lacks);
        asked.remove(place.unwrap_or_else(|| panic!("{errors}")));
    }
}

/// A row of a scope beside the system's.
struct Pair<'a> {
    key: (i64, i64),
    own: &'a [String],
    whole: &'a [String],
    all: &'a Rows,
    covered: &'a Covered,
}

impl Exception {
    /// Whether it allows the value in this column.
    fn allows(self, place: usize, pair: &Pair<'_>) -> bool {
        let ((tid, time), own, whole) = (pair.key, pair.own, pair.whole);
        let share = |row: &[String], place: usize| row[place].parse::<f64>().unwrap_or(f64::NAN);
        match self {
            Exception::SleepUntilRunning => {
                let is_sleep = own[1].ends_with("interruptible") && own[9].is_empty();
                if place == 1 {
                    // It can run already where the interval begins.
                    return is_sleep && whole[1] == "runnable" && own[0] == whole[0];
                }
                let next = pair.all.range(pair.key..).nth(1);
                let wait = next.filter(|((next, _), wait)| *next == tid && wait[1] == "runnable");
                let until = wait.and_then(|((_, begin), wait)| {
                    Some(begin - time + wait[0].parse::<i64>().ok()?)
                });
                is_sleep && until == own[0].parse().ok()
            }
            Exception::UntilExit => {
                let end = pair.covered.life(tid as u32, time).flatten();
                own[1] == "running" && end == Some(time + number::<i64>(&own[0]))
            }
            Exception::AtMost => share(own, place) <= share(whole, place),
            Exception::AtMostWithWaits => {
                share(own, place) <= share(whole, place) + share(whole, place - 1) + 1e-9
            }
            Exception::NameOfAPart => own[2..] != whole[2..],
            // Without a CPU time: it is outside of the scope.
            Exception::RecordedName => !pair.covered.has(tid as u32) || own[0].is_empty(),
        }
    }
}

/// What differs in a scope, a line each.
fn differences(view: &View, all: &Rows, found: &Rows, covered: &Covered) -> Vec<String> {
    let mut different = Vec::new();
    let is_of_threads = view.key.contains("tid");
    for (key, row) in found {
        let place = format!("{} of {} at {}", view.name, key.0, key.1);
        if is_of_threads && !covered.has((key.0 % 100_000) as u32) {
            different.push(format!("{place}: outside of the scope: {row:?}"));
            continue;
        }
        // A process whose start is not recorded is one with its ID.
        let (number, from) = *key;
        let others = all.range((number, from)..=(number, i64::MAX));
        let alike = |whole: &&Vec<String>| {
            let cells = row.iter().zip(*whole);
            cells.filter(|(own, other)| own == other).count()
        };
        let whole = match from {
            0 => others.map(|(_, row)| row).max_by_key(alike),
            _ => all.get(key),
        };
        let Some(whole) = whole else {
            different.push(format!("{place}: the system has no such row: {row:?}"));
            continue;
        };
        let pair = Pair {
            key: *key,
            own: row,
            whole,
            all,
            covered,
        };
        for (column, name) in view.columns.split(", ").enumerate() {
            let (own, other) = (&row[column], &whole[column]);
            if own.is_empty() || own == other {
                continue;
            }
            let mut exceptions = view.exceptions.iter().filter(|(of, _)| *of == name);
            let is_allowed = exceptions.any(|(_, exception)| exception.allows(column, &pair));
            if !is_allowed {
                different.push(format!(
                    "{place}: {name} {own}, not {other}\n  {row:?}\n  {whole:?}"
                ));
            }
        }
    }
    different
}

/// Reports with a row for each thread.
const REPORTS: [&[&str]; 6] = [
    &["waits", "--by", "tid"],
    &["wakers", "--by", "tid"],
    &["locks", "--by", "tid"],
    &["syscalls", "--by", "tid"],
    &["utilization", "--by", "thread"],
    &["findings"],
];

/// Threads in reports that are not in the scope, a line each.
fn strangers(trace: &Path, covered: &Covered) -> Vec<String> {
    let mut found = Vec::new();
    for report in REPORTS {
        let mut command = Command::new(bin("perfquet-query"));
        command.args(report).arg(trace).args(["--format", "json"]);
        let output = command.output().unwrap();
        // No events of that kind, or no rows.
        if !output.status.success() {
            continue;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        for row in rows {
            // findings names the thread in its first column of text: "reader (20) was blocked …".
            let by_name = row["finding"].as_str().and_then(|text| {
                let (_, rest) = text.split_once('(')?;
                rest.split_once(')')?.0.parse::<u64>().ok()
            });
            let tid = row["tid"].as_u64().or(by_name);
            if tid.is_some_and(|tid| !covered.has(tid as u32)) {
                found.push(format!(
                    "{report:?}: of a thread outside of the scope: {row}"
                ));
            }
        }
    }
    found
}

fn check(seed: u64) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder {
        has_switches: seed % 2 == 1,
        has_deliveries: seed / 2 % 2 == 1,
        has_reuse: seed / 4 % 2 == 1,
    };
    let host = Host::of(seed, recorder);
    let system = imported(&host.recording("-a", None, 0).0, "system", folder.path());
    let all = answers(&system);
    let mut different = Vec::new();
    let mut counts = Vec::new();
    for (name, options, of, named) in SCOPES {
        let (text, covered) = host.recording(options, Some(of), named);
        let scope = imported(&text, name, folder.path());
        for ((view, all), found) in VIEWS.iter().zip(&all).zip(answers(&scope)) {
            let lines = differences(view, all, &found, &covered);
            different.extend(
                lines
                    .into_iter()
                    .map(|line| format!("seed {seed}: {name}: {line}")),
            );
            counts.push(found.len());
        }
        if seed.is_multiple_of(4) {
            let lines = strangers(&scope, &covered);
            different.extend(
                lines
                    .into_iter()
                    .map(|line| format!("seed {seed}: {name}: {line}")),
            );
        }
    }
    println!("seed {seed}: {counts:?} rows");
    different
}

/// `PERFQUET_SEEDS=100..200` tries others.
#[test]
fn columns_of_every_scope_are_those_of_the_system_or_null() {
    let range = std::env::var("PERFQUET_SEEDS").unwrap_or_else(|_| "0..6".to_owned());
    let (first, last) = range.split_once("..").expect("FIRST..LAST");
    let mut different = Vec::new();
    for seed in number::<u64>(first)..number(last) {
        different.extend(check(seed));
    }
    // One of each kind, and their number.
    let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for line in &different {
        let first = line.lines().next().unwrap_or_default();
        let words = first.split(": ").skip(2).collect::<Vec<_>>();
        let view = words[0].split(' ').next().unwrap_or_default();
        let column = words[1].split(' ').next().unwrap_or_default();
        kinds
            .entry(format!("{view} {column}"))
            .or_insert((0, line))
            .0 += 1;
    }
    for (kind, (count, line)) in kinds {
        println!("{kind}: {count}, such as {line}");
    }
    assert!(different.is_empty(), "{} differences", different.len());
}
