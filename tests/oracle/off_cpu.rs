//! `off_cpu` compared with bpftrace, which measures the same switches at the same time, as `offcputime` does.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use perfquet_tests::{bin, needs};

/// Threads that wait for each other, for disks and for a CPU. They start after both tools and end before them, and have
/// names that no other program of the host has.
const WORK: &str = "
for name in dd cat md5sum ls head sort sleep; do ln -s $(command -v $name) off-cpu-$name; done
PATH=.:$PATH
for i in 1 2 3; do
  off-cpu-dd if=/dev/zero of=file bs=4k count=500 conv=fsync 2>/dev/null
  off-cpu-cat file | off-cpu-md5sum >/dev/null
done &
for i in 1 2 3; do off-cpu-ls -lR /usr/share/doc 2>/dev/null | off-cpu-head -n 2000 | off-cpu-sort >/dev/null; done
wait
off-cpu-sleep 0.02
";

/// Number of off-CPU periods and their nanoseconds, by thread. The first time on a CPU ends no period.
const SCRIPT: &str = "
tracepoint:sched:sched_switch {
  $now = nsecs;
  if (@left[args->next_pid]) {
    @periods[args->next_pid] = count();
    @total[args->next_pid] = sum($now - @left[args->next_pid]);
    delete(@left[args->next_pid]);
  }
  if (args->prev_pid != 0) { @left[args->prev_pid] = $now; }
}
END { clear(@left); }";

/// A thread's name before `exec` is that of the shell, so its periods are selected by its ID.
const PERIODS: &str = "
SELECT tid, count(duration), sum(duration) FROM off_cpu
WHERE tid IN (SELECT s.next_pid FROM sched_switch s WHERE s.next_comm LIKE 'off-cpu-%')
GROUP BY tid HAVING count(duration) > 0";

/// Number of off-CPU periods of a thread, and their nanoseconds.
type Periods = (i64, i64);

/// The maps that bpftrace prints at the end: `@periods[TID]: N` and `@total[TID]: NANOSECONDS`.
fn printed(text: &str) -> BTreeMap<i32, Periods> {
    let mut threads: BTreeMap<i32, Periods> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('@')) {
        let (map, rest) = line.split_once('[').unwrap();
        let (tid, value) = rest.split_once("]: ").unwrap();
        let periods = threads.entry(tid.parse().unwrap()).or_default();
        match map {
            "@periods" => periods.0 = value.parse().unwrap(),
            _ => periods.1 = value.parse().unwrap(),
        }
    }
    threads
}

fn selected(trace: &Path) -> BTreeMap<i32, Periods> {
    let mut command = Command::new(bin("perfquet-query"));
    command
        .arg("sql")
        .arg(trace)
        .args([PERIODS, "--format", "csv"]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let numbers: Vec<i64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        (numbers[0] as i32, (numbers[1], numbers[2]))
    };
    text.lines().skip(1).map(row).collect()
}

#[test]
fn off_cpu_periods_equal_those_of_bpftrace() {
    if !needs::met(&["root", "tracefs", "bpf", "bpftrace"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("work.sh"), WORK).unwrap();
    let recorder = format!(
        "{} -a -e sched:sched_switch -o a.pqt -- sh work.sh",
        bin("perfquet-record").display()
    );
    let mut command = Command::new("bpftrace");
    command
        .args(["-q", "-e", SCRIPT, "-c", &recorder])
        .current_dir(folder.path())
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains(" 0 lost"), "{errors}");

    let theirs = printed(&String::from_utf8_lossy(&output.stdout));
    let ours = selected(&folder.path().join("a.pqt"));
    assert!(ours.len() >= 16, "only {} threads", ours.len());
    let mut differences = Vec::new();
    for (tid, &(periods, total)) in &ours {
        let &(their_periods, their_total) = theirs.get(tid).unwrap_or(&(0, 0));
        assert_eq!(periods, their_periods, "thread {tid}");
        differences.push((total - their_total).abs() / periods);
    }
    // The two programs of the kernel read the clock one after the other.
    differences.sort_unstable();
    let median = differences[differences.len() / 2];
    let periods: i64 = ours.values().map(|&(periods, _)| periods).sum();
    println!(
        "off_cpu: {} threads, {periods} periods, 0 differences; median difference of a period's duration {median} ns",
        ours.len()
    );
    assert!(
        median < 20_000,
        "differences in ns a period, by thread: {differences:?}"
    );
}
