//! `off_cpu` compared with bpftrace, which measures the same switches at the same time, as `offcputime` does.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use perfquet_tests::{bin, needs};

use super::views::{number, rows};

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
SELECT tid, count(*), coalesce(sum(duration), 0), count(*) FILTER (WHERE duration IS NULL) FROM off_cpu
WHERE tid IN (SELECT s.next_pid FROM sched_switch s WHERE s.next_comm LIKE 'off-cpu-%')
GROUP BY tid";

/// Number of switches that are missing in the recording, mostly from idle tasks: another thread had been switched in on the CPU.
const MISSING: &str = "
SELECT count(*) FROM (SELECT lag(next_pid) OVER (PARTITION BY cpu ORDER BY time) <> prev_pid AS is_broken FROM sched_switch)
WHERE is_broken";

/// Off-CPU periods of a thread.
#[derive(Debug, Default)]
struct Periods {
    count: i64,
    nanoseconds: i64,
    /// Periods whose end was not recorded.
    open: i64,
}

/// The maps that bpftrace prints at the end: `@periods[TID]: N` and `@total[TID]: NANOSECONDS`.
fn printed(text: &str) -> BTreeMap<i32, Periods> {
    let mut threads: BTreeMap<i32, Periods> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('@')) {
        let (map, rest) = line.split_once('[').unwrap();
        let (tid, value) = rest.split_once("]: ").unwrap();
        let periods = threads.entry(number(tid)).or_default();
        match map {
            "@periods" => periods.count = number(value),
            _ => periods.nanoseconds = number(value),
        }
    }
    threads
}

fn selected(trace: &Path) -> BTreeMap<i32, Periods> {
    let periods = |row: Vec<String>| {
        let periods = Periods {
            count: number(&row[1]),
            nanoseconds: number(&row[2]),
            open: number(&row[3]),
        };
        (number(&row[0]), periods)
    };
    rows(trace, PERIODS).into_iter().map(periods).collect()
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
    let trace = folder.path().join("a.pqt");
    let ours = selected(&trace);
    assert!(ours.len() >= 16, "only {} threads", ours.len());
    let (mut periods, mut open, mut differences) = (0, 0, Vec::new());
    for (tid, our) in &ours {
        let none = Periods::default();
        let their = theirs.get(tid).unwrap_or(&none);
        // Where a switch is missing, bpftrace has seen it, or has missed it, too.
        let possible = our.count - our.open..=our.count;
        assert!(
            possible.contains(&their.count),
            "thread {tid}: {our:?}, bpftrace {their:?}"
        );
        (periods, open) = (periods + our.count, open + our.open);
        if our.open == 0 && our.count > 0 {
            differences.push((our.nanoseconds - their.nanoseconds).abs() / our.count);
        }
    }
    let missing: i64 = number(&rows(&trace, MISSING)[0][0]);
    assert!(
        open <= missing,
        "{open} open periods, {missing} missing switches"
    );
    // The two programs of the kernel read the clock one after the other.
    differences.sort_unstable();
    let median = differences[differences.len() / 2];
    println!(
        "off_cpu: {} threads, {periods} periods, 0 differences, {open} open at {missing} missing switches; median \
         difference of a period's duration {median} ns",
        ours.len()
    );
    assert!(
        median < 20_000,
        "differences in ns a period, by thread: {differences:?}"
    );
}
