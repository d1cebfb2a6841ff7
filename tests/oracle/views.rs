//! Views compared with perf, which reads the same recording: `sched timehist`, `sched latency`, `kwork report`,
//! `lock contention` and `trace -s`.
//!
//! perf prints microseconds, and 0 for what it does not know; a view has NULL there. docs/views.md has the results.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use perfquet_tests::{bin, corpora, needs, skip};

/// Threads that wait for each other, for disks and for a CPU, with some system calls that fail.
const WORK: &str = "cd $0; for i in 1 2 3; do
    dd if=/dev/zero of=file bs=4k count=500 conv=fsync 2>/dev/null; cat file | md5sum >/dev/null; cat missing 2>/dev/null
  done & for i in 1 2 3; do ls -lR /usr/share/doc 2>/dev/null | head -n 2000 | sort >/dev/null; done; wait; sleep 0.02";

/// The output of perf, or `None` if a signal ended it, which is reported: perf 6.1 aborts on build IDs while a recorder runs.
fn perf(words: &[&str], data: &Path) -> Option<String> {
    let mut command = Command::new("perf");
    command.args(words).arg("-i").arg(data);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        None => {
            skip("needs a perf that does not crash");
            return None;
        }
        code => assert_eq!(code, Some(0), "perf {words:?}: {errors}"),
    }
    // perf trace prints to stderr.
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(if printed.is_empty() {
        errors.into_owned()
    } else {
        printed
    })
}

/// Records the work with perf.
fn recorded(folder: &Path, recorder: &[&str], events: &[&str]) -> Option<PathBuf> {
    let data = folder.join("perf.data");
    let mut command = Command::new("perf");
    command.args(recorder).arg("-o").arg(&data);
    for event in events {
        command.args(["-e", event]);
    }
    command.args(["--", "sh", "-c", WORK]).arg(folder);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        None => {
            skip("needs a perf that does not crash");
            None
        }
        code => {
            assert_eq!(code, Some(0), "{errors}");
            Some(data)
        }
    }
}

fn import(data: &Path, folder: &Path) -> PathBuf {
    let trace = folder.join("a.pqt");
    let mut command = Command::new(bin("perfquet-convert"));
    command
        .arg(data)
        .args(["--no-symbols", "-f", "-o"])
        .arg(&trace);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", data.display());
    trace
}

/// The cells of each row of a query; NULL is empty.
pub(super) fn rows(trace: &Path, sql: &str) -> Vec<Vec<String>> {
    let mut command = Command::new(bin("perfquet-query"));
    command.arg("sql").arg(trace).args([sql, "--format", "csv"]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sql}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let cells = |line: &str| line.split(',').map(str::to_owned).collect();
    text.lines().skip(1).map(cells).collect()
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> T {
    let parsed = text.parse();
    parsed.unwrap_or_else(|_| panic!("expected a number, found {text:?}"))
}

/// Nanoseconds of `12.345`, in seconds or milliseconds.
fn nanoseconds(text: &str, unit: i64) -> i64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let scale = 10_i64.pow(part.len() as u32);
    let part = if part.is_empty() { 0 } else { number(part) };
    number::<i64>(whole) * unit + part * (unit / scale)
}

/// Whether perf, which adds doubles and prints them in us, prints this time for these ns.
fn rounds_to(ns: i64, us: i64) -> bool {
    (ns - us * 1000).abs() <= 501
}

/// Prints one line of the table in docs/views.md.
fn report(view: &str, peer: &str, input: &str, compared: usize, differing: usize, why: &str) {
    println!("{view:<40} {peer:<22} {input:<34} {compared:>6} {differing:>4}  {why}");
}

/// A switch as `sched timehist` prints it: time in us, CPU, thread; then wait, delay and run time in us.
type Switch = (i64, u32, i32, [i64; 3]);

fn timehist(text: &str) -> Vec<Switch> {
    let mut switches = Vec::new();
    for line in text.lines() {
        let Some((time, rest)) = line.trim_start().split_once(" [") else {
            continue;
        };
        let Ok(time) = time.replace('.', "").parse::<i64>() else {
            continue;
        };
        let (cpu, rest) = rest.split_once(']').unwrap();
        let Some((thread, numbers)) = rest.rsplit_once(']') else {
            // The idle task has no ID.
            continue;
        };
        let thread = &thread[thread.rfind('[').unwrap() + 1..];
        let tid = thread.split('/').next().unwrap();
        let times: Vec<i64> = numbers
            .split_whitespace()
            .map(|word| nanoseconds(word, 1_000_000) / 1000)
            .collect();
        switches.push((
            time,
            number(cpu),
            number(tid),
            [times[0], times[1], times[2]],
        ));
    }
    switches.sort_unstable();
    switches
}

/// The last column is 1 if another thread had been switched in on the CPU: then switches are missing in the recording.
const SWITCHES: &str = "
WITH switches AS (
  SELECT *, lag(next_pid) OVER (PARTITION BY cpu ORDER BY time) <> prev_pid AS is_broken FROM sched_switch
)
SELECT s.time / 1000, s.cpu, s.prev_pid, coalesce(o.duration, 0) / 1000, coalesce(w.duration, 0) / 1000, coalesce(r.duration, 0) / 1000,
  CASE WHEN s.is_broken THEN 1 ELSE 0 END
FROM switches s
LEFT JOIN thread_states r ON r.tid = s.prev_pid AND r.cpu = s.cpu AND r.state = 'running' AND r.time + r.duration = s.time
LEFT JOIN off_cpu o ON o.tid = r.tid AND o.time + o.duration = r.time
LEFT JOIN runqueue_waits w ON w.tid = r.tid AND w.why <> 'preempted' AND w.time + w.duration = r.time
WHERE s.prev_pid <> 0";

/// Returns the number of compared switches.
fn compare_switches(data: &Path, trace: &Path, input: &str) -> Option<usize> {
    let theirs = timehist(&perf(&["sched", "timehist", "--no-call-graph"], data)?);
    // A thread that was reaped before its last switch has ID -1 in the sample, by which perf goes; ours is that of the switch.
    let (reaped, theirs): (Vec<Switch>, Vec<Switch>) =
        theirs.into_iter().partition(|&(_, _, tid, _)| tid == -1);
    let mut reaped: HashSet<(i64, u32)> =
        reaped.iter().map(|&(time, cpu, ..)| (time, cpu)).collect();
    let (mut ours, mut broken) = (Vec::new(), 0);
    for row in rows(trace, SWITCHES) {
        let at = |column: usize| number::<i64>(&row[column]);
        let times = [at(3), at(4), at(5)];
        broken += at(6) as usize;
        if !reaped.remove(&(at(0), at(1) as u32)) {
            ours.push((at(0), at(1) as u32, at(2) as i32, times));
        }
    }
    assert!(reaped.is_empty(), "{input}: not found: {reaped:?}");
    ours.sort_unstable();
    let keys = |switches: &[Switch]| -> Vec<(i64, u32, i32)> {
        let key = |&(time, cpu, tid, _): &Switch| (time, cpu, tid);
        switches.iter().map(key).collect()
    };
    assert_eq!(keys(&ours), keys(&theirs), "{input}");
    let differing = ours.iter().zip(&theirs).filter(|(our, their)| our != their);
    let differing: Vec<_> = differing.collect();
    let views = "thread_states, off_cpu, runqueue_waits";
    let why = "switches are missing: perf joins what is around, ours is NULL";
    let why = if differing.is_empty() { "" } else { why };
    let (count, others) = (ours.len(), differing.len());
    report(views, "perf sched timehist", input, count, others, why);
    // Where a switch is missing, three threads are concerned: those around it, and the one that was not seen.
    let is_unknown = |(our, their): &(&Switch, &Switch)| {
        let mut pairs = our.3.iter().zip(&their.3);
        pairs.all(|(our, their)| our == their || *our == 0)
    };
    let unexplained = differing.iter().filter(|pair| !is_unknown(pair));
    let unexplained: Vec<_> = unexplained.take(5).collect();
    assert!(
        unexplained.is_empty(),
        "{input}: (ours, perf's) {unexplained:#?}"
    );
    assert!(
        others <= 3 * broken,
        "{input}: {others} differences, {broken} gaps"
    );
    Some(count)
}

/// Files of the corpus whose switches are compared.
const OF_CORPUS: [&str; 1] = ["perf-data/6.12/tracepoints.data"];

#[test]
fn switches_of_the_corpus_equal_timehist_and_latency() {
    if !needs::met(&["perf"]) {
        return;
    }
    for corpus in corpora() {
        for name in OF_CORPUS {
            let data = corpus.join(name);
            if data.is_file() {
                let folder = tempfile::tempdir().unwrap();
                let trace = import(&data, folder.path());
                compare_switches(&data, &trace, name);
                compare_latencies(&data, &trace, name);
            }
        }
    }
}

/// A line of `sched latency -p`: number of waits, maximum in us.
fn latencies(text: &str) -> BTreeMap<i32, (u64, i64)> {
    let mut latencies = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [thread, _, count, _, longest, ..] = fields[..] else {
            continue;
        };
        let Some(longest) = longest.strip_prefix("max:") else {
            continue;
        };
        let tid = number(thread.rsplit_once(':').unwrap().1);
        let longest = nanoseconds(longest.trim().trim_end_matches(" ms"), 1_000_000) / 1000;
        latencies.insert(tid, (number(count), longest));
    }
    latencies
}

/// Counts by the rules of perf: a thread is preempted if its state is 0, though kernels since 4.14 write 256 if it was preempted in
/// the kernel; a thread first seen when it is switched in counts with a wait of 0.
const LATENCIES: &str = "
WITH waits AS (
  SELECT w.tid, w.duration FROM runqueue_waits w LEFT JOIN sched_switch s ON s.prev_pid = w.tid AND s.time = w.time
  WHERE w.duration IS NOT NULL AND (w.why <> 'preempted' OR s.prev_state = 0)
), seen AS (
  SELECT next_pid AS tid, time, 1 AS is_in FROM sched_switch
  UNION ALL SELECT prev_pid, time, 0 FROM sched_switch
  UNION ALL SELECT arg_pid, time, 0 FROM sched_wakeup{new}
), first AS (
  SELECT tid, first_value(is_in ORDER BY time, is_in) AS is_in FROM seen WHERE tid <> 0 GROUP BY tid
)
SELECT tid, count(duration) + max(is_in) AS count, coalesce(max(duration), 0), max(is_in)
FROM first LEFT JOIN waits USING (tid) GROUP BY tid HAVING count(duration) + max(is_in) > 0";

/// Waits that perf leaves out: of threads preempted in the kernel.
const PREEMPTED_IN_KERNEL: &str = "
SELECT w.tid, w.duration FROM runqueue_waits w JOIN sched_switch s ON s.prev_pid = w.tid AND s.time = w.time
WHERE w.duration IS NOT NULL AND w.why = 'preempted' AND s.prev_state <> 0";

/// Threads that ran on a CPU before or after a switch that was not recorded.
const BROKEN: &str = "
WITH switches AS (SELECT *, lag(next_pid) OVER (PARTITION BY cpu ORDER BY time) AS running FROM sched_switch),
broken AS (SELECT * FROM switches WHERE running <> prev_pid)
SELECT running FROM broken UNION SELECT prev_pid FROM broken";

#[test]
fn waits_equal_sched_latency() {
    if !needs::met(&["perf", "tracefs", "root"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let events = [
        "sched:sched_switch",
        "sched:sched_wakeup",
        "sched:sched_wakeup_new",
    ];
    let Some(data) = recorded(folder.path(), &["record", "-q", "-B", "-a"], &events) else {
        return;
    };
    let trace = import(&data, folder.path());
    let compared = compare_switches(&data, &trace, "live, 6.18");
    assert!(
        compared.is_none_or(|compared| compared > 300),
        "{compared:?} switches"
    );
    let waits = compare_latencies(&data, &trace, "live, threads");
    assert!(
        waits.is_none_or(|waits| waits > 100),
        "only {waits:?} waits"
    );
}

/// Returns the number of compared waits.
fn compare_latencies(data: &Path, trace: &Path, input: &str) -> Option<u64> {
    let theirs = latencies(&perf(&["sched", "latency", "-p"], data)?);
    let waits: u64 = theirs.values().map(|&(count, _)| count).sum();
    let mut ours: BTreeMap<i32, (u64, i64)> = BTreeMap::new();
    let mut first_seen = 0;
    let new = "SELECT count(*) FROM event_types WHERE event = 'sched_wakeup_new'";
    let new = match rows(trace, new)[0][0].as_str() {
        "0" => "",
        _ => "\n  UNION ALL SELECT arg_pid, time, 0 FROM sched_wakeup_new",
    };
    for row in rows(trace, &LATENCIES.replace("{new}", new)) {
        ours.insert(number(&row[0]), (number(&row[1]), number(&row[2])));
        first_seen += number::<u64>(&row[3]);
    }
    let threads = |of: &BTreeMap<i32, (u64, i64)>| of.keys().copied().collect::<Vec<i32>>();
    assert_eq!(threads(&ours), threads(&theirs), "{input}");
    let is_same = |tid: &i32| {
        let ((count, longest), (their_count, their_longest)) = (ours[tid], theirs[tid]);
        count == their_count && rounds_to(longest, their_longest)
    };
    let differing: Vec<i32> = ours.keys().copied().filter(|tid| !is_same(tid)).collect();
    // Where a switch is missing, perf omits the next wait of the thread.
    let broken: HashSet<i32> = rows(trace, BROKEN)
        .iter()
        .map(|row| number(&row[0]))
        .collect();
    for tid in &differing {
        let (our, their) = (ours[tid], theirs[tid]);
        let is_more = our.0 > their.0 && our.1 + 501 >= their.1 * 1000;
        assert!(
            broken.contains(tid) && is_more,
            "{input}: {tid}: {our:?}, perf {their:?}"
        );
    }
    // What the rules of perf add and leave out is every row in which the view differs from it.
    let preempted = rows(trace, PREEMPTED_IN_KERNEL).len() as u64;
    let of_view: u64 = {
        let sql = "SELECT count(*) FROM runqueue_waits WHERE duration IS NOT NULL AND tid <> 0";
        number(&rows(trace, sql)[0][0])
    };
    let counted: u64 = ours.values().map(|&(count, _)| count).sum();
    assert_eq!(of_view - preempted + first_seen, counted, "{input}");
    let mut why = format!(
        "by perf's rules: without {preempted} waits after a preemption in the kernel, with {first_seen} of 0 where a thread is first seen"
    );
    if !differing.is_empty() {
        why.push_str("; a switch is missing: perf omits the wait after it");
    }
    report(
        "runqueue_waits",
        "perf sched latency",
        input,
        ours.len(),
        differing.len(),
        &why,
    );
    Some(waits)
}

/// Count and total of `kwork report`, by name, number and CPU; us.
fn kworks(text: &str) -> BTreeMap<(String, u32), (u64, i64, i64)> {
    let mut kworks = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, cpu, total, count, longest, ..] = fields[..] else {
            continue;
        };
        let Ok(cpu) = cpu.parse() else {
            continue;
        };
        let us = |text: &str| nanoseconds(text.trim_end_matches(" ms"), 1_000_000) / 1000;
        kworks.insert(
            (name.to_owned(), cpu),
            (number(count), us(total), us(longest)),
        );
    }
    kworks
}

const INTERRUPTS: &str = "
SELECT CASE kind WHEN 'softirq' THEN concat('(s)', name, ':', nr) ELSE concat(name, ':', nr) END AS name, cpu,
  count(duration), sum(duration), max(duration)
FROM irqs WHERE kind IN ('irq', 'softirq') GROUP BY ALL HAVING count(duration) > 0";

#[test]
fn interrupts_equal_kwork() {
    if !needs::met(&["perf", "tracefs", "root"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let events = [
        "irq:irq_handler_entry",
        "irq:irq_handler_exit",
        "irq:softirq_entry",
        "irq:softirq_exit",
    ];
    let Some(data) = recorded(folder.path(), &["record", "-q", "-B", "-a"], &events) else {
        return;
    };
    let Some(text) = perf(&["kwork", "-k", "irq,softirq", "report"], &data) else {
        return;
    };
    let theirs = kworks(&text);
    let trace = import(&data, folder.path());
    let mut ours: BTreeMap<(String, u32), (u64, i64, i64)> = BTreeMap::new();
    for row in rows(&trace, INTERRUPTS) {
        let values = (number(&row[2]), number(&row[3]), number(&row[4]));
        ours.insert((row[0].clone(), number(&row[1])), values);
    }
    report(
        "irqs",
        "perf kwork report",
        "live, interrupt × CPU",
        ours.len(),
        0,
        "",
    );
    assert!(ours.keys().eq(theirs.keys()), "{ours:?}, perf {theirs:?}");
    for ((work, our), their) in ours.iter().zip(theirs.values()) {
        let is_same = our.0 == their.0 && rounds_to(our.1, their.1) && rounds_to(our.2, their.2);
        assert!(is_same, "{work:?}: {our:?} ns, perf {their:?} us");
    }
    assert!(ours.len() > 4, "{ours:?}");
}

/// Waits of a thread, their total and the longest one, in hundredths of a unit.
type Contention = (u64, [(i64, String); 2]);

/// The threads of `lock contention -t`.
fn contentions(text: &str) -> BTreeMap<i32, Contention> {
    let mut contentions = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [
            count,
            total,
            total_unit,
            longest,
            longest_unit,
            _,
            _,
            tid,
            ..,
        ] = words[..]
        else {
            continue;
        };
        let (Ok(count), Ok(tid)) = (count.parse(), tid.parse()) else {
            continue;
        };
        let hundredths = |value: &str, unit: &str| (nanoseconds(value, 100), unit.to_owned());
        let times = [
            hundredths(total, total_unit),
            hundredths(longest, longest_unit),
        ];
        contentions.insert(tid, (count, times));
    }
    contentions
}

/// A duration as `perf lock` prints it.
fn in_unit_of_lock(ns: i64) -> (i64, String) {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let unit = units.iter().find(|(unit, _)| ns >= *unit);
    let (unit, name) = unit.copied().unwrap_or((1, "ns"));
    (ns * 100 / unit, name.to_owned())
}

#[test]
fn locks_equal_lock_contention() {
    if !needs::met(&["perf", "tracefs", "root", "lock:contention_begin"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let events = ["lock:contention_begin", "lock:contention_end"];
    let Some(data) = recorded(folder.path(), &["record", "-q", "-B", "-a"], &events) else {
        return;
    };
    let Some(text) = perf(&["lock", "contention", "-t", "-E", "10000"], &data) else {
        return;
    };
    let mut theirs = contentions(&text);
    let trace = import(&data, folder.path());
    let sql = "SELECT tid, count(duration), coalesce(sum(duration), 0), coalesce(max(duration), 0) FROM locks GROUP BY tid";
    let (mut ours, mut unfinished) = (BTreeMap::new(), HashSet::new());
    for row in rows(&trace, sql) {
        let time = |column: usize| in_unit_of_lock(number(&row[column]));
        let (tid, count): (i32, u64) = (number(&row[0]), number(&row[1]));
        if count > 0 {
            ours.insert(tid, (count, [time(2), time(3)]));
        } else {
            unfinished.insert(tid);
        }
    }
    report(
        "locks",
        "perf lock contention",
        "live, threads",
        ours.len(),
        0,
        "",
    );
    // perf adds up the waits of all reaped threads under ID -1; in the view, a wait has a thread.
    theirs.remove(&-1);
    // perf lists a thread whose only wait was not finished with a total of 0.
    theirs.retain(|tid, (_, times)| !(unfinished.contains(tid) && times[0].0 == 0));
    let keys = |of: &BTreeMap<i32, Contention>| of.keys().copied().collect::<Vec<i32>>();
    assert_eq!(keys(&ours), keys(&theirs));
    for (tid, (count, times)) in &ours {
        let (their_count, their_times) = &theirs[tid];
        assert_eq!(count, their_count, "{tid}");
        for ((our, unit), (their, their_unit)) in times.iter().zip(their_times) {
            // perf rounds twice.
            let is_same = unit == their_unit && our.abs_diff(*their) <= 1;
            assert!(is_same, "{tid}: {our} {unit}, perf {their} {their_unit}");
        }
    }
    assert!(!ours.is_empty());
}

/// Calls, errors, and total, minimum and maximum, by thread and name.
type SystemCalls = BTreeMap<(i32, String), (u64, u64, [i64; 3])>;

fn system_calls(text: &str) -> SystemCalls {
    let (mut calls, mut thread) = (BTreeMap::new(), None);
    for line in text.lines() {
        if let Some((name, _)) = line.split_once("), ") {
            thread = name.rsplit_once(" (").and_then(|(_, tid)| tid.parse().ok());
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, count, errors, total, shortest, _, longest, _] = words[..] else {
            continue;
        };
        let (Ok(count), Some(tid)) = (count.parse(), thread) else {
            continue;
        };
        let us = |text: &str| nanoseconds(text, 1_000_000) / 1000;
        let values = (
            count,
            number(errors),
            [us(total), us(shortest), us(longest)],
        );
        calls.insert((tid, name.to_owned()), values);
    }
    calls
}

/// perf takes for 0 the duration of a call whose entry was not recorded, as that of clone in the new process.
const SYSTEM_CALLS: &str = "
SELECT tid, name, count(ret), count(error), coalesce(sum(duration), 0),
  CASE WHEN count(ret) > count(duration) THEN 0 ELSE min(duration) END, coalesce(max(duration), 0)
FROM syscalls WHERE ret IS NOT NULL GROUP BY ALL";

#[test]
fn system_calls_equal_perf_trace() {
    if !needs::met(&["perf", "tracefs", "root"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(data) = recorded(folder.path(), &["trace", "record"], &[]) else {
        return;
    };
    let Some(text) = perf(&["trace", "-s"], &data) else {
        return;
    };
    let mut theirs = system_calls(&text);
    let trace = import(&data, folder.path());
    let mut ours = SystemCalls::new();
    for row in rows(&trace, SYSTEM_CALLS) {
        let times = [number(&row[4]), number(&row[5]), number(&row[6])];
        let values = (number(&row[2]), number(&row[3]), times);
        ours.insert((number(&row[0]), row[1].clone()), values);
    }
    report(
        "syscalls",
        "perf trace -s",
        "live, thread × system call",
        ours.len(),
        0,
        "",
    );
    // The return of a new thread from the call that created it is no call of its own; perf counts it, with a duration of 0.
    let creates = |call: &(i32, String)| ["clone", "clone3", "fork", "vfork"].contains(&&*call.1);
    theirs.retain(|call, their| ours.contains_key(call) || !creates(call) || their.0 > 1);
    assert!(ours.keys().eq(theirs.keys()), "{ours:?}, perf {theirs:?}");
    for ((call, our), their) in ours.iter().zip(theirs.values()) {
        let has_return = creates(call) && their.0 == our.0 + 1;
        let is_same = match has_return {
            true => our.1 == their.1 && rounds_to(our.2[0], their.2[0]),
            false => {
                let mut times = our.2.iter().zip(their.2);
                (our.0, our.1) == (their.0, their.1)
                    && times.all(|(&our, their)| rounds_to(our, their))
            }
        };
        assert!(is_same, "{call:?}: {our:?} ns, perf {their:?} us");
    }
    assert!(ours.len() > 50, "{} rows", ours.len());
}

/// A request: time of issue, device, first sector and bytes; then time in the device and, if it was queued, in the queue.
type Request = (i64, String, u64, u64, i64, Option<i64>);

/// The requests that `biosnoop` would print for these events: insertion, issue and completion of the same sectors.
fn requests(text: &str) -> Vec<Request> {
    let mut inserted: HashMap<(String, u64), i64> = HashMap::new();
    let mut issued: HashMap<(String, u64), (i64, u64, Option<i64>)> = HashMap::new();
    let mut found = Vec::new();
    for line in text.lines() {
        // [001] 32139.755298665: block:block_rq_insert: 254,0 WS 65536 () 371507008 + 128 0x2,0,4 [dd]
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, time, event, device, ..] = words.as_slice() else {
            continue;
        };
        let Some(plus) = words.iter().position(|word| *word == "+") else {
            continue;
        };
        let time = nanoseconds(time.trim_end_matches(':'), 1_000_000_000);
        let (sector, bytes) = (
            number(words[plus - 1]),
            number::<u64>(words[plus + 1]) * 512,
        );
        let key = (device.replace(',', ":"), sector);
        // A flush has no sectors.
        if bytes == 0 {
            continue;
        }
        match event.trim_end_matches(':') {
            "block:block_rq_insert" => {
                inserted.insert(key, time);
            }
            "block:block_rq_issue" => {
                let queued = inserted.remove(&key).map(|inserted| time - inserted);
                issued.insert(key, (time, bytes, queued));
            }
            "block:block_rq_complete" => {
                if let Some((begun, size, queued)) = issued.remove(&key)
                    && size == bytes
                {
                    found.push((begun, key.0, sector, bytes, time - begun, queued));
                }
            }
            // The driver had no room: the request is queued, and issued once more.
            "block:block_rq_requeue" => {
                if let Some((begun, _, queued)) = issued.remove(&key) {
                    inserted.insert(key, begun - queued.unwrap_or(0));
                }
            }
            other => panic!("{other} was not recorded"),
        }
    }
    found.sort();
    found
}

#[test]
fn block_requests_equal_their_events() {
    if !needs::met(&["perf", "tracefs", "root"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let events = [
        "block:block_rq_insert",
        "block:block_rq_issue",
        "block:block_rq_requeue",
        "block:block_rq_complete",
    ];
    let Some(data) = recorded(folder.path(), &["record", "-q", "-B", "-a"], &events) else {
        return;
    };
    let words = ["script", "--ns", "-F", "cpu,time,event,trace"];
    let Some(text) = perf(&words, &data) else {
        return;
    };
    let theirs = requests(&text);
    let trace = import(&data, folder.path());
    let sql = "SELECT time, device, sector, bytes, duration, queued FROM block_io WHERE duration IS NOT NULL AND bytes > 0";
    let request = |row: &Vec<String>| {
        let queued = (!row[5].is_empty()).then(|| number(&row[5]));
        let (time, duration) = (number(&row[0]), number(&row[4]));
        (
            time,
            row[1].clone(),
            number(&row[2]),
            number(&row[3]),
            duration,
            queued,
        )
    };
    let mut ours: Vec<Request> = rows(&trace, sql).iter().map(request).collect();
    ours.sort();
    report(
        "block_io",
        "perf script, paired",
        "live, request",
        ours.len(),
        0,
        "",
    );
    let differing = |these: &[Request], others: &[Request]| -> Vec<Request> {
        let each = these.iter().filter(|each| !others.contains(each));
        each.cloned().collect()
    };
    let (more, fewer) = (differing(&ours, &theirs), differing(&theirs, &ours));
    assert!(ours == theirs, "{more:?}, paired: {fewer:?}");
    if ours.is_empty() {
        skip("needs a disk with requests");
    }
}
