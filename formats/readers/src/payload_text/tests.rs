//! Payloads as printed by the kernel and its tools, and their columns.

use super::*;

/// Collects types and values as text.
#[derive(Default)]
struct Rows {
    types: Vec<EventType>,
    lines: Vec<String>,
}

impl Sink for Rows {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(event) => self.types.push(event.clone()),
            Event::Sample(sample) => {
                let Fields::Values(values) = sample.fields else {
                    panic!("values");
                };
                let event = &self.types[sample.event.0 as usize];
                assert_eq!(event.fields.len(), values.len());
                let values = event.fields.iter().zip(values).map(|(field, value)| {
                    let value = match value {
                        Value::Bytes(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
                        other => format!("{other:?}"),
                    };
                    format!("{}={value}", field.name)
                });
                let values: Vec<String> = values.collect();
                self.lines.push(format!(
                    "{}:{} {}",
                    event.system,
                    event.name,
                    values.join(" ")
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

fn read(style: Style, name: &str, payloads: &[&str]) -> Rows {
    let mut rows = Rows::default();
    let mut read = Payloads::learn();
    for is_learning in [true, false] {
        if !is_learning {
            read.learned();
        }
        for payload in payloads {
            let slot = read.slot(style, b"", name.as_bytes(), EventKind::Tracepoint);
            read.emit(
                slot,
                payload.as_bytes(),
                &Added::default(),
                &Sample::of(EventId(0)),
                &mut rows,
            )
            .unwrap();
        }
    }
    rows
}

#[track_caller]
fn check(name: &str, payload: &str, expected: &str) {
    assert_eq!(read(Style::Event, name, &[payload]).lines, [expected]);
}

#[test]
fn events_of_the_scheduler() {
    check(
        "sched_switch",
        "prev_comm=opt cgu.00 prev_pid=12 prev_prio=120 prev_state=R+ ==> next_comm=a==> b next_pid=9 next_prio=0",
        "sched:sched_switch prev_comm=\"opt cgu.00\" prev_pid=Int(12) prev_prio=Int(120) prev_state=\"R+\" \
         next_comm=\"a==> b\" next_pid=Int(9) next_prio=Int(0)",
    );
    check(
        "sched_switch",
        "kworker/0:1:11 [120] D ==> swapper/0:0 [120]",
        "sched:sched_switch prev_comm=\"kworker/0:1\" prev_pid=Int(11) prev_prio=Int(120) prev_state=\"D\" \
         next_comm=\"swapper/0\" next_pid=Int(0) next_prio=Int(120)",
    );
    check(
        "sched_switch",
        "prev_comm=a prev_pid=0x22 (34) prev_prio=0x78 (120) prev_state=0x80 (128) next_comm=b next_pid=0x0 (0) next_prio=0x78 (120)",
        "sched:sched_switch prev_comm=\"a\" prev_pid=Int(34) prev_prio=Int(120) prev_state=Int(128) next_comm=\"b\" \
         next_pid=Int(0) next_prio=Int(120)",
    );
    check(
        "sched_wakeup",
        "comm=dd pid=12 prio=120 target_cpu=003",
        "sched:sched_wakeup comm=\"dd\" pid=Int(12) prio=Int(120) target_cpu=Int(3)",
    );
    check(
        "sched_stat_runtime",
        "comm=bash pid=16270 runtime=834492 [ns]",
        "sched:sched_stat_runtime comm=\"bash\" pid=Int(16270) runtime=Int(834492)",
    );
}

#[test]
fn system_calls() {
    let rows = read(
        Style::SyscallEnter,
        "sys_write",
        &["(fd: 1, buf: 0x55 (61:00) \"a.\", count: 0x2)"],
    );
    assert_eq!(
        rows.lines,
        ["syscalls:sys_enter_write fd=UInt(1) buf=UInt(85) __buf_val=\"a\\0\" count=UInt(2)"]
    );
    let rows = read(
        Style::SyscallEnter,
        "sys_dup2",
        &["(oldfd: a, newfd: 10)", "()"],
    );
    assert_eq!(
        rows.lines,
        [
            "syscalls:sys_enter_dup2 oldfd=UInt(10) newfd=UInt(16)",
            "syscalls:sys_enter_dup2 oldfd=Null newfd=Null",
        ]
    );
    let rows = read(Style::SyscallExit, "sys_read", &["0xfffffffffffffff2"]);
    assert_eq!(rows.lines, ["syscalls:sys_exit_read ret=Int(-14)"]);
    check(
        "sys_enter_write",
        "fd: 0x00000001, buf: 0x556c5293e000, count: 0x00001000",
        "syscalls:sys_enter_write fd=UInt(1) buf=UInt(93923730251776) count=UInt(4096)",
    );
    check(
        "sys_exit_write",
        "0x1000",
        "syscalls:sys_exit_write ret=Int(4096)",
    );
    check(
        "sys_enter",
        "NR 33 (b, 1, 55afe4d179bc, 0, 7, b)",
        "raw_syscalls:sys_enter id=Int(33) args=UIntList([11, 1, 94213946571196, 0, 7, 11])",
    );
    check(
        "sys_exit",
        "NR 1 = -2",
        "raw_syscalls:sys_exit id=Int(1) ret=Int(-2)",
    );
}

/// A line is first read with the arguments of the last one: nothing of such an attempt may stay.
#[test]
fn arguments_that_change() {
    let lines = [
        "(fd: 1, count: 0x2)",
        "(fd: 3, count: 0x4)",
        "(fd: 5, other)",
        "(fd: 6)",
        "(fd: 7, count: 0x8, pos: 9)",
        "(fd: , count: 0xa)",
        "(count: 0xb, fd: c)",
    ];
    let rows = read(Style::SyscallEnter, "sys_write", &lines);
    let own: Vec<String> = lines
        .iter()
        .map(|line| {
            let before = "(fd: 1, count: 0x2)";
            let prefix = [before, "(fd: 5, other)", "(pos: 9)"];
            let rows = read(
                Style::SyscallEnter,
                "sys_write",
                &[&prefix[..], &[line]].concat(),
            );
            rows.lines.last().cloned().unwrap()
        })
        .collect();
    let sorted = |line: &String| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        words.sort();
        words
    };
    let found: Vec<_> = rows.lines.iter().map(sorted).collect();
    let expected: Vec<_> = own.iter().map(sorted).collect();
    assert_eq!(found, expected);
}

#[test]
fn other_forms() {
    check(
        "block_rq_issue",
        "8,16 W 0 () 495704 + 24 be,0,4 [dd]",
        "block:block_rq_issue dev=Int(8388624) rwbs=\"W\" bytes=Int(0) cmd=Null sector=Int(495704) \
         nr_sector=Int(24) ioprio=\"be,0,4\" comm=\"dd\"",
    );
    check(
        "softirq_entry",
        "vec=9 [action=RCU]",
        "irq:softirq_entry vec=Int(9)",
    );
    check(
        "irq_handler_exit",
        "irq=1 ret=handled",
        "irq:irq_handler_exit irq=Int(1) ret=Int(1)",
    );
    check(
        "timer_start",
        "timer=000000000df08549 function=ri_timer expires=4295298415 [timeout=25] cpu=0 flags=",
        "timer:timer_start timer=UInt(233866569) function=\"ri_timer\" expires=Int(4295298415) timeout=Int(25) \
         cpu=Int(0) flags=Null",
    );
    check(
        "osnoise",
        "12380       9222  25.50888    4757      9      0      2      0      3",
        "ftrace:osnoise runtime=Int(12380) noise=Int(9222) available_percent=Float(25.50888) max_sample=Int(4757) \
         hw_count=Int(9) nmi_count=Int(0) irq_count=Int(2) softirq_count=Int(0) thread_count=Int(3)",
    );
    check(
        "mine",
        "anything at all",
        "ftrace:mine message=\"anything at all\"",
    );
}

#[test]
fn probes() {
    check(
        "arr",
        "(vfs_read+0x4/0x370) a={0x0,0x1} c=\"taskset\" st=0xffffc90000537dc0 n=-100",
        "ftrace:arr __probe_ip=\"vfs_read+0x4/0x370\" a=UIntList([0, 1]) c=\"taskset\" st=UInt(18446683600575495616) \
         n=Int(-100)",
    );
    check(
        "r",
        "(ksys_write+0x6b/0xe0 <- vfs_write) ret=2",
        "ftrace:r __probe_func=\"vfs_write\" __probe_ret_ip=\"ksys_write+0x6b/0xe0\" ret=Int(2)",
    );
    check(
        "r",
        "(401186 <- 401211) ret=4000",
        "ftrace:r __probe_func=UInt(4198790) __probe_ret_ip=UInt(4198929) ret=Int(4000)",
    );
    assert_eq!(
        read(Style::Event, "r", &["(401186 <- 401211) ret=1"]).types[0].kind,
        EventKind::Uretprobe
    );
    check(
        "open",
        "(syscalls.sys_enter_openat) flags=0x241",
        "ftrace:open flags=UInt(577)",
    );
}

#[test]
fn types_are_learned_from_all_lines() {
    let rows = read(Style::Event, "x", &["a=1 b=2", "a=y c=3", "a=1 b=0x10 c=4"]);
    assert_eq!(rows.types.len(), 1);
    assert_eq!(
        rows.lines,
        [
            "ftrace:x a=\"1\" b=UInt(2) c=Null",
            "ftrace:x a=\"y\" b=Null c=Int(3)",
            "ftrace:x a=\"1\" b=UInt(16) c=Int(4)",
        ]
    );
}

#[test]
fn a_value_that_does_not_fit_causes_another_declaration() {
    let mut rows = Rows::default();
    let mut read = Payloads::learn();
    read.learned();
    let payloads = ["a=1", "a=2", "a=x", "a=3", "a=3 b=4"];
    for payload in payloads {
        let slot = read.slot(Style::Event, b"", b"e", EventKind::Tracepoint);
        let sample = Sample::of(EventId(0));
        read.emit(
            slot,
            payload.as_bytes(),
            &Added::default(),
            &sample,
            &mut rows,
        )
        .unwrap();
    }
    assert_eq!(
        rows.lines,
        [
            "ftrace:e a=Int(1)",
            "ftrace:e a=Int(2)",
            "ftrace:e a=\"x\"",
            "ftrace:e a=\"3\"",
            "ftrace:e a=\"3\" b=Int(4)",
        ]
    );
    assert_eq!(rows.types.len(), 3);
}

#[test]
fn the_number_of_forms_is_bounded() {
    let payloads: Vec<String> = (0..1000).map(|key| format!("k{key}=1")).collect();
    let mut rows = Rows::default();
    let mut read = Payloads::learn();
    read.learned();
    for payload in &payloads {
        let slot = read.slot(Style::Event, b"", b"e", EventKind::Tracepoint);
        let sample = Sample::of(EventId(0));
        read.emit(
            slot,
            payload.as_bytes(),
            &Added::default(),
            &sample,
            &mut rows,
        )
        .unwrap();
    }
    assert!(rows.types.len() < 12, "{}", rows.types.len());
    assert_eq!(rows.lines.last().unwrap(), "ftrace:e message=\"k999=1\"");
    assert_eq!(rows.lines.len(), 1000);
}
