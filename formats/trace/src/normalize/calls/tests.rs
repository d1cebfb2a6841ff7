//! The rules, each with a few edges and the resulting rows.
//!
//! ```text
//! > 10 a tid=5        thread 5 enters a at 10          ! a loss
//! < 30 a tid=5        a returns                               f 5 TID 5 is a new thread
//! = 10 a dur=20       a complete call; `leaf`: without calls     s cpu=0 5 6  on CPU 0, 6 runs after 5
//! p 10 a dur=20       likewise, reported at its end: up= the entry of the enclosing call, in= time in others
//! & min_duration=5    the selection
//! ```
//! A row: function, caller, ID of the enclosing call, depth, time, duration, self time; `no entry`, `no exit`.

mod arguments;
mod buffers;
mod complete_calls;
mod late_exits;
mod recursive_probes;
mod system_calls;
mod threads;

use perfquet_events::event::*;

use super::super::tests::{Rows, Trace};

/// One line of a script.
struct Line<'a> {
    words: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn value<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let of_name = |word: &&'a str| word.strip_prefix(name)?.strip_prefix('=');
        let value = self.words.iter().find_map(of_name)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{value}")))
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    fn common(&self) -> Common<'a> {
        Common {
            time: self.words[1].parse().ok(),
            cpu: self.value("cpu"),
            tid: self.value("tid"),
            ..Common::default()
        }
    }

    fn function(&self, place: usize) -> Function<'a> {
        match self.words.get(place) {
            Some(&"?") | None => Function::Unknown,
            Some(name) => Function::named(name.as_bytes()),
        }
    }

    fn call(&self) -> Call<'a> {
        Call {
            common: self.common(),
            function: self.function(2),
            caller: self.caller(),
            depth: self.value("depth"),
            context: None,
            args: &[],
            duration: self.value("dur"),
            retval: self.value("ret"),
            may_nest: !self.has("leaf"),
        }
    }

    fn caller(&self) -> Function<'a> {
        let name = self.words.iter().find_map(|word| word.strip_prefix("by="));
        name.map_or(Function::Unknown, |name| Function::named(name.as_bytes()))
    }
}

pub(super) fn play(sink: &mut dyn Sink, script: &str) {
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let line = Line { words };
        match line.words[0] {
            ">" => sink.event(Event::Enter(&Enter {
                common: line.common(),
                function: line.function(2),
                caller: line.caller(),
                depth: line.value("depth"),
                ..Enter::default()
            })),
            "<" => sink.event(Event::Leave(&Leave {
                common: line.common(),
                function: line.function(2),
                depth: line.value("depth"),
                duration: line.value("dur"),
                retval: line.value("ret"),
                ..Leave::default()
            })),
            "=" => sink.event(Event::Call(&line.call())),
            "p" => sink.event(Event::PairedCall(&PairedCall {
                call: line.call(),
                parent_entry: line.value("up"),
                inside: line.value("in").unwrap_or(0),
            })),
            "&" => {
                let selection = Selection::parse(&line.words[1..].join(" ")).unwrap();
                sink.event(Event::Selection(&selection))
            }
            "!" => sink.event(Event::Loss(Loss {
                time: None,
                cpu: None,
                event: None,
                count: None,
                in_all: None,
                reason: "ring full",
            })),
            "f" => sink.event(Event::Fork(Fork {
                time: Some(1),
                pid: line.words[1].parse().unwrap(),
                tid: line.words[1].parse().unwrap(),
                parent_pid: 1,
                parent_tid: 1,
            })),
            "s" => sink.event(Event::Switch(Switch {
                time: None,
                cpu: line.value("cpu").unwrap(),
                previous_tid: line.words[2].parse().unwrap(),
                previous_comm: b"before",
                next_tid: line.words[3].parse().unwrap(),
                next_comm: b"after",
            })),
            other => panic!("{other}"),
        }
        .unwrap();
    }
}

fn rows_of(trace: &Rows, more: &[&str]) -> Vec<String> {
    let columns = [
        "function",
        "caller",
        "parent_id",
        "depth",
        "time",
        "duration",
        "self_time",
    ];
    let rows = trace.of("calls", &[&columns, more].concat());
    let seen = trace.of("calls", &["entry_seen", "exit_seen"]);
    rows.into_iter()
        .zip(seen)
        .map(|(row, seen)| {
            row + match seen.as_str() {
                "true true" => "",
                "false true" => " no entry",
                "true false" => " no exit",
                _ => " neither",
            }
        })
        .collect()
}

#[track_caller]
fn check(script: &str, expected: &[&str]) {
    let mut trace = Trace::new();
    trace.input("test", |sink| play(sink, script));
    assert_eq!(rows_of(&trace.finish(), &[]), expected);
}

#[test]
fn nesting() {
    check(
        "> 10 a tid=5
         > 20 b tid=5
         < 50 b tid=5
         > 60 c tid=5
         < 65 c tid=5
         < 90 a tid=5",
        &["a - - 0 10 80 45", "b a 1 1 20 30 30", "c a 1 1 60 5 5"],
    );
}

/// Many calls stay open so long that later ones are written before them, and end all at once.
#[test]
fn late_rows_are_in_the_order_of_their_entries() {
    let open: String = (1..=100)
        .map(|tid| format!("> {tid} a tid={tid}\n"))
        .collect();
    let later = "= 1000 b tid=200 dur=1 leaf\n".repeat((1 << 17) + 10);
    let mut trace = Trace::new();
    trace.input("test", |sink| play(sink, &(open + &later + "!\n")));
    let rows = trace.finish().of("calls", &["function", "call_id"]);
    let late = rows.iter().filter_map(|row| row.strip_prefix("a "));
    let late: Vec<u64> = late.map(|id| id.parse().unwrap()).collect();
    assert_eq!(late.len(), 100);
    assert!(late.is_sorted(), "{late:?}");
}

#[test]
fn calls_reported_at_their_end() {
    check(
        "p 20 b tid=5 dur=30 by=a depth=1 up=10
         p 60 c tid=5 dur=5 by=a depth=1 up=10
         p 10 a tid=6 dur=8
         p 10 a tid=5 dur=80 in=35",
        &[
            "a - - 0 10 80 45",
            "b a 1 1 20 30 30",
            "c a 1 1 60 5 5",
            "a - - 0 10 8 8",
        ],
    );
    // The enclosing call is not reported: it is still open, or too long.
    check(
        "p 30 c tid=5 dur=2 by=b depth=2 up=20
         p 20 b tid=5 dur=30 by=a depth=1 up=10 in=2",
        &["b a - 1 20 30 28", "c b 1 2 30 2 2"],
    );
}

#[test]
fn dropped_call_reported_later_has_no_children() {
    check(
        "& max_duration=30
         p 30 c tid=5 dur=2 by=b depth=2 up=20
         p 20 b tid=5 dur=20 by=a depth=1 up=10 in=2
         p 10 a tid=5 dur=80 in=20",
        &["b a - 1 20 20 18", "c b 1 2 30 2 2"],
    );
}

#[test]
fn calls_outside_the_selection_have_no_row() {
    let script = |selection: &str| {
        format!(
            "& {selection}
             > 10 a tid=5
             > 20 b tid=5
             > 30 c tid=5
             < 35 c tid=5
             < 50 b tid=5
             < 90 a tid=5
             > 95 d tid=5"
        )
    };
    check(
        &script("min_duration=30"),
        &["a - - 0 10 80 50", "b a 1 1 20 30 25"],
    );
    // Inside a call without a row: no parent.
    check(
        &script("max_duration=30"),
        &["b a - 1 20 30 25", "c b 2 2 30 5 5"],
    );
    check(
        &script("begin=25 stop_after=50"),
        &["c - - 0 30 5 5", "b - - 0 50 - - no entry"],
    );
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        play(sink, &script("min_duration=6 max_duration=30"))
    });
    let rows = trace.finish();
    assert_eq!((rows.counts.filtered, rows.counts.lost), (3, 0));
    let expected = [
        "1 filtered: calls shorter than 6ns",
        "1 filtered: calls longer than 30ns",
        "1 filtered: calls of unknown duration",
    ];
    assert_eq!(rows.of("losses", &["count", "reason"]), expected);
}

#[test]
fn recursion() {
    check(
        "> 10 a tid=5
         > 20 a tid=5
         < 50 a tid=5
         < 90 a tid=5",
        &["a - - 0 10 80 50", "a a 1 1 20 30 30"],
    );
}

#[test]
fn threads_do_not_mix_and_may_migrate() {
    check(
        "> 10 a tid=5 cpu=0
         > 11 b tid=6 cpu=0
         < 12 a tid=5 cpu=1
         < 13 b tid=6 cpu=0",
        &["a - - 0 10 2 2", "b - - 0 11 2 2"],
    );
}

#[test]
fn each_cpu_has_an_idle_task() {
    check(
        "> 10 a tid=0 cpu=0
         > 11 a tid=0 cpu=1
         < 12 a tid=0 cpu=0
         < 15 a tid=0 cpu=1",
        &["a - - 0 10 2 2", "a - - 0 11 4 4"],
    );
}

#[test]
fn calls_open_at_the_start_and_at_the_end() {
    check(
        "< 10 x tid=5 dur=7
         < 20 y tid=5
         > 30 a tid=5
         > 40 b tid=5",
        &[
            "x - - 0 3 7 - no entry",
            "y - - 0 20 - - no entry",
            "a - - 0 30 - - no exit",
            "b a 3 1 40 - - no exit",
        ],
    );
}

#[test]
fn a_missed_exit_ends_with_the_enclosing_call() {
    check(
        "> 10 a tid=5
         > 20 b tid=5
         < 90 a tid=5",
        &["a - - 0 10 80 -", "b a 1 1 20 - - no exit"],
    );
}

#[test]
fn recorded_depths_decide() {
    check(
        "> 10 a tid=5 depth=0
         > 20 b tid=5 depth=1
         < 40 ? tid=5 depth=1 dur=19
         > 50 c tid=5 depth=1
         > 60 d tid=5 depth=1
         < 70 d tid=5 depth=1
         < 90 ? tid=5 depth=0",
        &[
            "a - - 0 10 80 -",
            "b a 1 1 20 19 19",
            "c a 1 1 50 - - no exit",
            "d a 1 1 60 10 10",
        ],
    );
    // The entry of this call was not seen: another one is open at its depth.
    check(
        "> 10 a tid=5 depth=0
         < 90 b tid=5 depth=0 dur=5",
        &["a - - 0 10 - - no exit", "b - - 0 85 5 - no entry"],
    );
}

#[test]
fn nothing_is_paired_across_a_loss() {
    check(
        "> 10 a tid=5
         !
         < 90 a tid=5",
        &["a - - 0 10 - - no exit", "a - - 0 90 - - no entry"],
    );
    // Except for a leave whose duration leads back to the entry; its self time is unknown.
    check(
        "> 10 a tid=5 depth=0
         !
         > 20 b tid=5 depth=1
         < 30 b tid=5 depth=1
         < 90 a tid=5 depth=0 dur=80",
        &["a - - 0 10 80 -", "b - - 1 20 10 10"],
    );
    check(
        "> 10 a tid=5 depth=0
         !
         < 99000 a tid=5 depth=0 dur=80",
        &["a - - 0 10 - - no exit", "a - - 0 98920 80 - no entry"],
    );
}

#[test]
fn a_number_taken_over() {
    check(
        "> 10 a tid=5
         f 5
         < 90 a tid=5",
        &["a - - 0 10 - - no exit", "a - - 0 90 - - no entry"],
    );
}

#[test]
fn complete_calls_nest_by_their_times() {
    check(
        "= 10 a tid=5 dur=80
         = 20 b tid=5 dur=30
         = 25 c tid=5 dur=5
         = 60 d tid=5 dur=10
         = 95 e tid=5 dur=1",
        &[
            "a - - 0 10 80 40",
            "b a 1 1 20 30 25",
            "c b 2 2 25 5 5",
            "d a 1 1 60 10 10",
            "e - - 0 95 1 1",
        ],
    );
    // With times this coarse, the caller's name decides; and for a call without its end too.
    check(
        "= 10 a tid=5 dur=10
         = 20 b tid=5 dur=0 by=a
         = 20 c tid=5 dur=3 by=main",
        &["a - - 0 10 10 10", "b a 1 1 20 0 0", "c main - 0 20 3 3"],
    );
    check(
        "= 10 a tid=5
         = 20 b tid=5 by=a
         = 30 c tid=5 by=a dur=4",
        &[
            "a - - 0 10 - - no exit",
            "b a 1 1 20 - - no exit",
            "c a 1 1 30 4 4",
        ],
    );
}

#[test]
fn leaves_of_a_graph_and_functions_without_end() {
    check(
        "> - a cpu=0 depth=0
         = - b cpu=0 depth=1 dur=300 leaf
         < - ? cpu=0 depth=0 dur=1000",
        &["a - - 0 - 1000 700", "b a 1 1 - 300 300"],
    );
    check(
        "> 10 a tid=5
         = 20 vfs_read tid=5 by=ksys_read leaf
         < 90 a tid=5",
        &["a - - 0 10 80 80", "vfs_read ksys_read 1 1 20 - - no exit"],
    );
}

#[test]
fn a_switch_names_the_thread_of_the_calls() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        play(
            sink,
            "> - a cpu=0 depth=0
             > - c cpu=0 depth=1
             < - ? cpu=0 depth=1 dur=20
             > - d cpu=1 depth=0
             s cpu=0 5 6
             > - b cpu=0 depth=0
             < - ? cpu=0 depth=0 dur=10
             s cpu=0 6 5
             < - ? cpu=0 depth=0 dur=90
             < - ? cpu=1 depth=0 dur=5",
        );
    });
    assert_eq!(
        rows_of(&trace.finish(), &["tid", "comm"]),
        [
            "a - - 0 - 90 70 5 before",
            "c a 1 1 - 20 20 5 before",
            "d - - 0 - 5 5 - -",
            "b - - 0 - 10 10 6 after"
        ]
    );
}

#[test]
fn merged_lanes_stay_within_the_limit() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        let switches = EventType {
            has_switches: true,
            ..event_type("sched", "sched_switch", &[])
        };
        sink.event(Event::Type(&switches)).unwrap();
        for _ in 0..3 {
            play(sink, &"> - a cpu=0\n".repeat(8000));
            play(sink, "s cpu=0 5 5");
        }
    });
    let rows = trace.finish();
    assert_eq!(rows.counts.calls, 24_000);
    let given_up = 3 * 8000 - 8192;
    assert_eq!(
        rows.of("problems", &["count", "message"]),
        [format!(
            "{given_up} more open calls than can be kept: these have no exit"
        )]
    );
}

/// A type of events with 64-bit fields.
fn event_type(system: &str, name: &str, fields: &[&str]) -> EventType {
    EventType {
        system: system.to_owned(),
        name: name.to_owned(),
        fields: fields
            .iter()
            .map(|name| Field {
                name: (*name).to_owned(),
                kind: FieldType::Int(8),
                layout: None,
                declaration: String::new(),
            })
            .collect(),
        ..EventType::default()
    }
}

/// Hits of the declared types: index of the type, time, thread, values.
#[track_caller]
fn check_pairs(types: &[EventType], hits: &[(u32, i64, i32, &[i64])], expected: &[&str]) {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        for declared in types {
            sink.event(Event::Type(declared)).unwrap();
        }
        for &found in hits {
            hit(sink, found);
        }
    });
    let rows = rows_of(&trace.finish(), &["context", "retval"]);
    assert_eq!(rows, expected);
}

fn hit(sink: &mut dyn Sink, (event, time, tid, values): (u32, i64, i32, &[i64])) {
    let values: Vec<Value<'_>> = values.iter().map(|&value| Value::Int(value)).collect();
    sink.event(Event::Sample(&Sample {
        time: Some(time),
        tid: Some(tid),
        cpu: Some(0),
        fields: Fields::Values(&values),
        ..Sample::of(EventId(event))
    }))
    .unwrap();
}

#[test]
fn system_calls_and_interrupts_in_them() {
    let types = [
        event_type("syscalls", "sys_enter_read", &["fd"]),
        event_type("syscalls", "sys_exit_read", &["ret"]),
        event_type("irq", "softirq_entry", &["vec"]),
        event_type("irq", "softirq_exit", &["vec"]),
    ];
    check_pairs(
        &types,
        &[
            (0, 10, 5, &[3]),
            (2, 20, 5, &[1]),
            (2, 25, 5, &[9]),
            (3, 30, 5, &[9]),
            (3, 40, 5, &[1]),
            (1, 90, 5, &[-11]),
            // The exit of the first was missed; that of the second came.
            (0, 100, 5, &[3]),
            (0, 200, 5, &[3]),
            (1, 300, 5, &[7]),
        ],
        &[
            "sys_read - - 0 10 80 60 task -11",
            "softirq:TIMER sys_read 1 1 20 20 15 softirq -",
            "softirq:RCU softirq:TIMER 2 2 25 5 5 softirq -",
            "sys_read - - 0 100 - - task - no exit",
            "sys_read - - 0 200 100 100 task 7",
        ],
    );
    // Without exits there are no calls.
    check_pairs(&types[..1], &[(0, 10, 5, &[3]), (0, 20, 5, &[3])], &[]);
}

/// Both kinds of events fire at the same locations, at entry and exit in the same order.
#[test]
fn a_system_call_reported_twice_is_one_call() {
    let types = [
        event_type("raw_syscalls", "sys_enter", &["id"]),
        event_type("raw_syscalls", "sys_exit", &["id", "ret"]),
        event_type("syscalls", "sys_enter_read", &["__syscall_nr", "fd"]),
        event_type("syscalls", "sys_exit_read", &["ret"]),
        event_type("irq", "softirq_entry", &["vec"]),
        event_type("irq", "softirq_exit", &["vec"]),
    ];
    check_pairs(
        &types,
        &[
            // The number first; an interrupt between the two and one inside.
            (0, 10, 5, &[0]),
            (4, 11, 5, &[1]),
            (5, 12, 5, &[1]),
            (2, 13, 5, &[0, 3]),
            (4, 20, 5, &[9]),
            (5, 30, 5, &[9]),
            (1, 90, 5, &[0, 7]),
            (3, 91, 5, &[7]),
            // The name first.
            (2, 100, 5, &[0, 3]),
            (0, 101, 5, &[0]),
            (4, 120, 5, &[9]),
            (5, 130, 5, &[9]),
            (3, 190, 5, &[8]),
            (1, 191, 5, &[0, 8]),
            // By number alone.
            (0, 200, 5, &[39]),
            (1, 210, 5, &[39, 5]),
            // The exit by name was missed.
            (0, 300, 5, &[0]),
            (2, 301, 5, &[0, 3]),
            (1, 390, 5, &[0, 7]),
            (0, 400, 5, &[39]),
            (1, 410, 5, &[39, 5]),
            // Left by a signal's return, whose exit has no number; then another one.
            (0, 500, 6, &[15]),
            (1, 510, 6, &[-1, 0]),
            (2, 520, 6, &[0, 3]),
            (0, 521, 6, &[0]),
            (3, 530, 6, &[8]),
            (1, 531, 6, &[0, 8]),
        ],
        &[
            "softirq:TIMER syscall:0 - 1 11 1 1 softirq -",
            "sys_read - - 0 13 78 68 task 7",
            "softirq:RCU sys_read 3 1 20 10 10 softirq -",
            "sys_read - - 0 100 90 80 task 8",
            "softirq:RCU sys_read 5 1 120 10 10 softirq -",
            "syscall:39 - - 0 200 10 10 task 5",
            "sys_read - - 0 301 - - task - no exit",
            "syscall:39 - - 0 400 10 10 task 5",
            "syscall:15 - - 0 500 10 10 task -",
            "sys_read - - 0 520 10 10 task 8",
        ],
    );
}

/// While the exits of a name are unknown, its number reports the call.
#[test]
fn a_name_without_known_exits_reports_no_call() {
    let types = [
        event_type("raw_syscalls", "sys_enter", &["id"]),
        event_type("raw_syscalls", "sys_exit", &["id", "ret"]),
        event_type("syscalls", "sys_enter_read", &["__syscall_nr", "fd"]),
    ];
    let hits: [(u32, i64, i32, &[i64]); 6] = [
        (0, 10, 5, &[0]),
        (2, 11, 5, &[0, 3]),
        (1, 90, 5, &[0, 7]),
        (2, 100, 5, &[0, 3]),
        (0, 101, 5, &[0]),
        (1, 190, 5, &[0, 8]),
    ];
    check_pairs(
        &types,
        &hits,
        &[
            "syscall:0 - - 0 10 80 80 task 7",
            "syscall:0 - - 0 101 89 89 task 8",
        ],
    );
}

/// `B|PID|NAME` and `E` of Android: sections nest in one another, and in the kernel's work around them.
#[test]
fn sections_that_programs_mark() {
    let mut print = event_type("ftrace", "print", &["ip", "buf"]);
    print.fields[1].kind = FieldType::Text;
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        sink.event(Event::Type(&print)).unwrap();
        let markers = [
            (10, 5, "B|7|draw"),
            (20, 5, "B|7|draw"),
            (25, 6, "B|7|other | name\n"),
            (30, 5, "hello"),
            (35, 5, "C|7|frames|3"),
            (40, 5, "E|7"),
            (70, 5, "E"),
            (75, 6, "E|7"),
            (80, 5, "B|x|no section"),
        ];
        for (time, tid, text) in markers {
            let values = [Value::Int(0), Value::Bytes(text.as_bytes())];
            sink.event(Event::Sample(&Sample {
                time: Some(time),
                tid: Some(tid),
                fields: Fields::Values(&values),
                ..Sample::of(EventId(0))
            }))
            .unwrap();
        }
    });
    assert_eq!(
        rows_of(&trace.finish(), &["tid"]),
        [
            "draw - - 0 10 60 40 5",
            "draw draw 1 1 20 20 20 5",
            "other | name - - 0 25 50 50 6",
        ]
    );
}

#[test]
fn probes_by_the_address_of_their_function() {
    let types = [
        event_type("probe", "vfs_read", &["__probe_ip"]),
        event_type("probe", "vfs_read_L12", &["__probe_ip"]),
        event_type(
            "probe",
            "vfs_read__return",
            &["__probe_func", "__probe_ret_ip", "arg1"],
        ),
    ];
    check_pairs(
        &types,
        &[
            // Its end is not known yet; then it is.
            (0, 10, 5, &[0x1004]),
            (1, 12, 5, &[0x1040]),
            (2, 20, 5, &[0x1000, 0x2000, 64]),
            (0, 30, 5, &[0x1004]),
            (0, 32, 5, &[0x1004]),
            (2, 34, 5, &[0x1000, 0x2000, 1]),
            (2, 40, 5, &[0x1000, 0x2000, 2]),
            (0, 50, 5, &[0x1004]),
        ],
        &[
            "vfs_read - - 0 10 10 10 task 64",
            "vfs_read - - 0 30 10 8 task 2",
            "vfs_read vfs_read 3 1 32 2 2 task 1",
            "vfs_read - - 0 50 - - task - no exit",
        ],
    );
}

#[test]
fn a_provisional_call_adds_no_depth() {
    let types = [
        event_type("probe", "vfs_read", &["__probe_ip"]),
        event_type(
            "probe",
            "vfs_read__return",
            &["__probe_func", "__probe_ret_ip"],
        ),
        event_type("syscalls", "sys_enter_read", &["fd"]),
        event_type("syscalls", "sys_exit_read", &["ret"]),
    ];
    check_pairs(
        &types,
        &[(0, 10, 5, &[0x1004]), (3, 20, 5, &[7])],
        &["sys_read - - 0 20 - - task 7 no entry"],
    );
}

#[test]
fn rows_stay_in_entry_order_despite_long_calls() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        play(sink, "> 1 main tid=1\n > 2 poll tid=2");
        for time in 0..300_000i64 {
            let common = Common {
                time: Some(10 + time),
                tid: Some(1),
                ..Common::default()
            };
            let function = Function::named(b"work");
            sink.event(Event::Enter(&Enter {
                common,
                function,
                ..Enter::default()
            }))
            .unwrap();
            sink.event(Event::Leave(&Leave {
                common,
                function,
                ..Leave::default()
            }))
            .unwrap();
        }
        play(sink, "< 400000 main tid=1");
    });
    let trace = trace.finish();
    assert_eq!(trace.counts.calls, 300_002);
    let rows = rows_of(&trace, &["call_id"]);
    assert_eq!(rows.len(), 300_002);
    let late: Vec<&String> = rows.iter().filter(|row| !row.starts_with("work")).collect();
    assert_eq!(
        late,
        ["main - - 0 1 399999 399999 1", "poll - - 0 2 - - 2 no exit"]
    );
    assert!(
        rows.iter()
            .filter(|row| row.starts_with("work main 1 1 "))
            .count()
            == 300_000
    );
}
