//! `findings` on eighteen traces, written here as texts of ftrace and perf: nine with one problem each, which is the first finding,
//! and the same nine without it, in which nothing is more than a remark.

use std::process::Command;

use perfquet_tests::bin;

/// Lines of ftrace with their time in microseconds.
#[derive(Default)]
struct Events(Vec<(u64, String)>);

impl Events {
    /// An event of a thread on a CPU.
    fn add(&mut self, us: u64, (comm, tid): (&str, u32), cpu: u32, event: &str) {
        let (seconds, rest) = (1000 + us / 1_000_000, us % 1_000_000);
        let line = format!("{comm:>16}-{tid:<7} [{cpu:03}] d..2. {seconds}.{rest:06}: {event}");
        self.0.push((us, line));
    }

    /// A switch between threads on a CPU.
    fn switch(&mut self, us: u64, cpu: u32, from: (&str, u32), state: &str, to: (&str, u32)) {
        let event = format!(
            "sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={state} ==> next_comm={} next_pid={} next_prio=120",
            from.0, from.1, to.0, to.1
        );
        self.add(us, from, cpu, &event);
    }

    fn waking(&mut self, us: u64, cpu: u32, by: (&str, u32), woken: (&str, u32)) {
        let event = format!(
            "sched_waking: comm={} pid={} prio=120 target_cpu={cpu:03}",
            woken.0, woken.1
        );
        self.add(us, by, cpu, &event);
    }

    /// A system call with its result.
    fn call(&mut self, us: u64, lasts: u64, thread: (&str, u32), entry: &str, result: &str) {
        let name = entry.split('(').next().unwrap();
        self.add(us, thread, 0, entry);
        self.add(us + lasts, thread, 0, &format!("{name} -> {result}"));
    }

    fn text(mut self) -> String {
        self.0.sort_by_key(|(us, _)| *us);
        let count = self
            .0
            .iter()
            .filter(|(_, line)| !line.starts_with("CPU:"))
            .count();
        let mut text = format!(
            "# tracer: nop\n#\n# entries-in-buffer/entries-written: {count}/{count}   #P:2\n#\n"
        );
        text.push_str("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n#              | |         |   |||||     |         |\n");
        for (_, line) in self.0 {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

const IDLE: [(&str, u32); 2] = [("swapper/0", 0), ("swapper/1", 0)];

/// A thread that runs for 1 ms out of 10, for `seconds`.
fn server(events: &mut Events, seconds: u64) {
    let server = ("server", 10);
    for round in 0..seconds * 100 {
        let us = 100 + round * 10_000;
        events.waking(us, 1, IDLE[1], server);
        events.switch(us + 20, 1, IDLE[1], "R", server);
        events.switch(us + 1_020, 1, server, "S", IDLE[1]);
    }
}

/// A thread that spins; or one that computes in many functions, of several threads.
fn spinning(is_planted: bool) -> String {
    let mut text = String::new();
    for sample in 0..500u64 {
        let (tid, function) = match is_planted && sample % 20 != 0 {
            true => (77, "spin_loop".to_owned()),
            false => (70 + sample % 3, format!("compute_{}", sample % 13)),
        };
        text.push_str(&format!(
            "work {tid} [000] {}.{:06}: 10000000 cpu-clock: \n\t{:>16x} {function}+0x4 (/usr/bin/work)\n\t{:>16x} main+0x20 (/usr/bin/work)\n\n",
            50 + sample / 100, sample % 100 * 10_000, 0x401_000 + sample % 13 * 256, 0x402_020
        ));
    }
    text
}

/// A lock that is held for 80 ms while others wait; or for 50 us. Threads that wait for work with a futex are healthy.
fn held_lock(is_planted: bool) -> String {
    let mut events = Events::default();
    let held = if is_planted { 80_000 } else { 50 };
    let owner = ("owner", 30);
    for round in 0..20u64 {
        let us = 1_000 + round * 200_000;
        for waiter in [("waiter", 31), ("waiter", 32)] {
            let entry =
                "sys_futex(uaddr: 7f0000001000, op: 80, val: 2, utime: 0, uaddr2: 0, val3: 0)";
            events.call(us + u64::from(waiter.1), held, waiter, entry, "0x0");
        }
        let wake = "sys_futex(uaddr: 7f0000001000, op: 81, val: 1, utime: 0, uaddr2: 0, val3: 0)";
        events.call(us + held, 2, owner, wake, "0x1");
        let condition =
            "sys_futex(uaddr: 7f0000009000, op: 89, val: 0, utime: 0, uaddr2: 0, val3: ffffffff)";
        events.call(us, 190_000, ("idler", 33), condition, "0x0");
    }
    events.text()
}

/// A thread that waits 300 ms of each second for a disk; or 2 ms. The recorder's own waits are nobody's.
fn disk_wait(is_planted: bool) -> String {
    let mut events = Events::default();
    server(&mut events, 5);
    let wait = if is_planted { 300_000 } else { 2_000 };
    let (reader, recorder) = (("reader", 20), ("perfquet-record", 90));
    for second in 0..5u64 {
        let us = 50_000 + second * 1_000_000;
        let sector = 1000 + second * 8;
        events.switch(us, 0, IDLE[0], "R", reader);
        events.add(
            us + 5,
            reader,
            0,
            &format!("block_rq_issue: 8,16 R 4096 () {sector} + 8 [reader]"),
        );
        events.switch(us + 10, 0, reader, "D", IDLE[0]);
        events.add(
            us + wait,
            IDLE[0],
            0,
            &format!("block_rq_complete: 8,16 R () {sector} + 8 [0]"),
        );
        events.waking(us + wait + 2, 0, IDLE[0], reader);
        events.switch(us + wait + 10, 0, IDLE[0], "R", reader);
        events.switch(us + wait + 500, 0, reader, "S", IDLE[0]);
        events.switch(us + 400_000, 0, IDLE[0], "R", recorder);
        events.switch(us + 400_010, 0, recorder, "D", IDLE[0]);
        events.waking(us + 900_000, 0, IDLE[0], recorder);
        events.switch(us + 900_010, 0, IDLE[0], "R", recorder);
        events.switch(us + 900_020, 0, recorder, "S", IDLE[0]);
    }
    events.text()
}

/// A thread that waits for its CPU 80 ms out of 100, behind two that keep it; or 20 us.
fn starvation(is_planted: bool) -> String {
    let mut events = Events::default();
    server(&mut events, 5);
    let hogs = [("hog", 41), ("hog", 42)];
    let victim = ("victim", 40);
    for round in 0..50u64 {
        let us = 1_000 + round * 100_000;
        if !is_planted {
            events.waking(us, 0, IDLE[0], victim);
            events.switch(us + 20, 0, IDLE[0], "R", victim);
            events.switch(us + 5_000, 0, victim, "S", IDLE[0]);
            continue;
        }
        if round == 0 {
            events.switch(us - 500, 0, IDLE[0], "R", hogs[0]);
        }
        events.waking(us, 0, IDLE[0], victim);
        for slice in 1..20u64 {
            let (from, to) = (hogs[(slice as usize + 1) % 2], hogs[slice as usize % 2]);
            events.switch(us + slice * 4_000, 0, from, "R", to);
        }
        events.switch(us + 80_000, 0, hogs[1], "R", victim);
        events.switch(us + 85_000, 0, victim, "S", hogs[0]);
    }
    events.text()
}

/// A thread that opens a missing file 200 times a second; or a program that finds its libraries, and then reads.
fn failing_opens(is_planted: bool) -> String {
    let mut events = Events::default();
    let thread = ("daemon", 50);
    for round in 0..1_000u64 {
        let us = 100 + round * 5_000;
        if is_planted || round < 60 {
            let path = if is_planted {
                "/etc/missing.conf".to_owned()
            } else {
                format!("/lib/{round}.so")
            };
            let entry =
                format!("sys_openat(dfd: ffffff9c, filename: \"{path}\", flags: 80000, mode: 0)");
            events.call(us, 3, thread, &entry, "0xfffffffffffffffe");
        } else {
            events.call(
                us,
                3,
                thread,
                "sys_openat(dfd: ffffff9c, filename: \"/etc/passwd\", flags: 80000, mode: 0)",
                "0x3",
            );
        }
        // A socket without data is no failure.
        events.call(
            us + 10,
            2,
            thread,
            "sys_recvfrom(fd: 4, ubuf: 7f0012340000, size: 100, flags: 40, addr: 0, addr_len: 0)",
            "0xfffffffffffffff5",
        );
    }
    events.text()
}

/// 60,000 page faults a second; or the 500 of a program's start.
fn fault_storm(is_planted: bool) -> String {
    let mut events = Events::default();
    let count = if is_planted { 12_000 } else { 500 };
    for fault in 0..count {
        let address = 0x7f00_0000_0000u64 + fault * 4096;
        let event = format!("page_fault_user: address=0x{address:x} ip=0x401000 error_code=0x6");
        events.add(fault * 200_000 / count, ("mapper", 60), 0, &event);
    }
    events.add(
        200_000,
        ("mapper", 60),
        0,
        "page_fault_user: address=0x401000 ip=0x401000 error_code=0x14",
    );
    events.text()
}

/// Writes that take 9 ms in the seventh second, and 20 us otherwise; or always.
fn slow_second(is_planted: bool) -> String {
    let mut events = Events::default();
    for round in 0..1_000u64 {
        let us = 100 + round * 10_000;
        let lasts = if is_planted && (600..700).contains(&round) {
            9_000
        } else {
            10 + round % 30
        };
        events.call(
            us,
            lasts,
            ("writer", 80),
            "sys_pwrite64(fd: 3, buf: 7f0012340000, count: 1000, pos: 0)",
            "0x1000",
        );
    }
    events.text()
}

/// A buffer that overran; or not.
fn lost_events(is_planted: bool) -> String {
    let mut events = Events::default();
    server(&mut events, 5);
    if is_planted {
        for us in [1_000_500, 3_000_500] {
            events.0.push((us, "CPU:1 [LOST 5000 EVENTS]".to_owned()));
        }
    }
    events.text()
}

/// A thread of which the kernel records nothing, so that it never leaves its CPU; or it does.
fn unrecorded_switches(is_planted: bool) -> String {
    let mut events = Events::default();
    server(&mut events, 5);
    let (silent, other) = (("silent", 20), ("other", 21));
    for round in 0..50u64 {
        let us = 1_000 + round * 100_000;
        events.switch(us, 0, IDLE[0], "R", silent);
        if !is_planted {
            events.switch(us + 500, 0, silent, "S", other);
        }
        events.switch(us + 900, 0, other, "S", IDLE[0]);
    }
    events.text()
}

/// The findings of a trace, as severity and title.
fn findings(text: &str, options: &[&str]) -> Vec<(String, String)> {
    let rows = rows(text, options).into_iter();
    rows.map(|[severity, title, _]| (severity, title)).collect()
}

/// The findings of a trace: severity, title, and why it matters.
fn rows(text: &str, options: &[&str]) -> Vec<[String; 3]> {
    let directory = tempfile::tempdir().unwrap();
    let (input, trace) = (
        directory.path().join("a.trace"),
        directory.path().join("a.pqt"),
    );
    std::fs::write(&input, text).unwrap();
    super::import(&input, &trace).unwrap();
    let output = Command::new(bin("perfquet-query"))
        .arg("findings")
        .arg(&trace)
        .args(["--format", "ndjson"])
        .args(options)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let rows = String::from_utf8(output.stdout).unwrap();
    let rows = rows.lines().map(|row| {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        let text = |column: &str| row[column].as_str().unwrap().to_owned();
        // The query to go on with is one, and finds something.
        let sql = Command::new(bin("perfquet-query"))
            .arg("sql")
            .arg(&trace)
            .arg(text("sql"))
            .args(["--format", "csv"])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&sql.stderr);
        assert!(sql.status.success(), "{}: {errors}", text("sql"));
        assert!(
            sql.stdout.split(|&byte| byte == b'\n').count() > 2,
            "{}",
            text("sql")
        );
        ["severity", "title", "why"].map(text)
    });
    rows.collect()
}

/// A scenario: its name, its trace with and without the problem, and the finding that comes first.
type Scenario = (&'static str, fn(bool) -> String, &'static str, &'static str);

const SCENARIOS: [Scenario; 9] = [
    (
        "spinning",
        spinning,
        "info",
        "spin_loop takes 95.0% of the samples",
    ),
    (
        "held lock",
        held_lock,
        "warning",
        "A futex was held for 80.000 ms while others waited",
    ),
    (
        "disk wait",
        disk_wait,
        "warning",
        "reader (20) was blocked for 1.500 s, 30% of the time",
    ),
    (
        "starvation",
        starvation,
        "warning",
        "victim (40) waited 4.000 s for a CPU, 80% of the time",
    ),
    (
        "failing opens",
        failing_opens,
        "warning",
        "daemon (50) repeats openat, which fails with ENOENT",
    ),
    (
        "fault storm",
        fault_storm,
        "warning",
        "mapper (60) has 60005 page faults a second",
    ),
    (
        "slow second",
        slow_second,
        "warning",
        "1.000 s were slow: sys_pwrite64 took 367.3 times as long as usual",
    ),
    (
        "lost events",
        lost_events,
        "warning",
        "Events are missing: 10000",
    ),
    (
        "unrecorded switches",
        unrecorded_switches,
        "warning",
        "Switches are missing: 50",
    ),
];

#[test]
fn the_planted_problem_comes_first() {
    for (name, trace, severity, title) in SCENARIOS {
        let found = findings(&trace(true), &[]);
        let first = found
            .first()
            .map(|(severity, title)| (severity.as_str(), title.as_str()));
        assert_eq!(first, Some((severity, title)), "{name}: {found:?}");
    }
}

#[test]
fn docs_have_the_first_findings() {
    let docs = std::fs::read_to_string(perfquet_tests::root().join("docs/views.md")).unwrap();
    for (name, _, _, title) in SCENARIOS {
        assert!(docs.contains(&format!("| {title}")), "{name}: {title}");
    }
}

#[test]
fn a_healthy_trace_has_remarks_at_most() {
    for (name, trace, _, _) in SCENARIOS {
        let found = findings(&trace(false), &[]);
        let warnings = found
            .iter()
            .filter(|(severity, _)| severity != "info")
            .count();
        assert_eq!(warnings, 0, "{name}: {found:?}");
    }
}

#[test]
fn a_scope_selects_what_is_examined() {
    let trace = starvation(true);
    assert_eq!(findings(&trace, &["--comm", "server"]), []);
    let found = findings(&trace, &["--time", "1s..2s", "--tid", "40"]);
    let expected = "victim (40) waited 800.000 ms for a CPU, 80% of the time";
    assert_eq!(found, [("warning".to_owned(), expected.to_owned())]);
}

/// Without symbols, the hottest "function" is a module, or unknown: the advice does not call it a function.
#[test]
fn a_module_is_not_called_a_function() {
    let sample = |step: u64, place: &str| {
        format!(
            "work 77 [000] 50.{:06}: 10000000 cpu-clock: \n\t          401004 {place}\n\n",
            step * 10_000
        )
    };
    for (place, title, why) in [
        (
            "spin+0x4 (/usr/bin/work)",
            "spin takes 100.0% of the samples",
            "A change to this function",
        ),
        (
            "[unknown] (/usr/bin/work)",
            "[work] takes 100.0% of the samples",
            "This is a module",
        ),
        (
            "[unknown] ([unknown])",
            "[unknown] takes 100.0% of the samples",
            "Neither function nor module",
        ),
    ] {
        let text: String = (0..50).map(|step| sample(step, place)).collect();
        let found = rows(&text, &[]);
        let found = found.iter().find(|row| row[1] == title);
        let found = found.unwrap_or_else(|| panic!("{place}: no finding {title}"));
        assert!(found[2].starts_with(why), "{found:?}");
    }
}
