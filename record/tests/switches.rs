//! Context switches of tasks: `sched_switch` of a command or process has only switches out, so switches in are recorded
//! as well.

mod room;

use std::collections::BTreeMap;
use std::process::Command;

use perfquet_trace::store::Directory;
use room::{Room, Running, may_record};

/// Several processes that alternate between sleeping and working.
const WORK: &str = "for i in 1 2 3; do (for j in 1 2 3 4 5 6 7 8 9 10; do \
    k=0; while [ $k -lt 300 ]; do k=$((k+1)); done; /bin/sleep 0.01; done) & done; wait";

/// A switch in or out, with its time.
type Edge = (i64, bool);

#[test]
fn command_has_both_sides_of_switches() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let stderr = room.record(&["-e", "sched:sched_switch", "--", "sh", "-c", WORK]);
    let threads = check_edges(&room, &stderr);
    assert!(threads >= 34, "{threads} threads: {stderr}");
    assert_eq!(scope(&room), "command");
}

#[test]
fn process_has_both_sides_of_switches() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let mut shell =
        Running::start(Command::new("sh").args(["-c", &format!("while :; do {WORK}; done")]));
    let pid = shell.pid();
    let options = ["-p", &pid, "-e", "sched:sched_switch", "--duration", "1s"];
    let stderr = room.record(&options);
    assert!(check_edges(&room, &stderr) >= 4, "{stderr}");
    assert_eq!(scope(&room), format!("process {pid}"));
    shell.0.kill().expect("it runs");
    // For the whole system, sched_switch has both sides.
    room.record(&["-a", "-e", "sched:sched_switch", "--duration", "200ms"]);
    assert_eq!(scope(&room), "system");
    let trace = Directory::open(&room.path("t.pqt")).expect("a trace");
    assert!(trace.table("events/perf/context_switch").is_none());
}

/// Checks that in and out alternate in every thread, and that switches out equal those of `sched_switch`. Returns the
/// number of threads.
#[track_caller]
fn check_edges(room: &Room, stderr: &str) -> usize {
    let mut threads: BTreeMap<String, Vec<Edge>> = BTreeMap::new();
    for row in room.rows("events/perf/context_switch", &["tid", "time", "out"]) {
        let [tid, time, out] = row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let edge = (time.parse().expect("a time"), out == "true");
        threads.entry(tid.to_owned()).or_default().push(edge);
    }
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for tid in room.rows("events/sched/sched_switch", &["prev_pid"]) {
        *left.entry(tid).or_default() += 1;
    }
    let all = || threads.values().flatten().map(|(time, _)| *time);
    let elapsed = all().max().expect("switches") - all().min().expect("switches");
    let mut on_and_off = 0;
    for (tid, edges) in &mut threads.clone() {
        edges.sort_unstable();
        let outs = edges.iter().filter(|(_, is_out)| *is_out).count();
        let ins = edges.len() - outs;
        assert!(
            ins.abs_diff(outs) <= 1,
            "{tid}: {ins} in, {outs} out: {stderr}"
        );
        let mut pairs = edges.windows(2);
        assert!(pairs.all(|pair| pair[0].1 != pair[1].1), "{tid}: {edges:?}");
        let of_tracepoint = left.get(tid).copied().unwrap_or(0);
        assert!(
            of_tracepoint.abs_diff(outs) <= 1,
            "{tid}: {of_tracepoint}, {outs} out"
        );
        on_and_off += edges.last().expect("one").0 - edges[0].0;
    }
    assert!(on_and_off <= elapsed * threads.len() as i64);
    threads.len()
}

fn scope(room: &Room) -> String {
    let trace = Directory::open(&room.path("t.pqt")).expect("a trace");
    trace.manifest().facts.other["scope"].clone()
}
