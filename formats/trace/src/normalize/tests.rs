//! End to end: events in, the rows of a trace directory out.

mod code_fields;
mod recorded_time;
mod stacks_by_id;
mod user_functions;

use std::path::Path;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use perfquet_events::event::*;

use super::{Counts, Limits, Normalizer, Output, TimeRange};
use crate::store::{Directory, Part, Writer, WriterOptions};
use crate::symbols;

/// A trace of several inputs, in a temporary directory.
pub(super) struct Trace {
    folder: tempfile::TempDir,
    output: Output,
    time: Option<TimeRange>,
    pub(super) limits: Limits,
}

impl Trace {
    pub(super) fn new() -> Trace {
        let folder = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            sync: false,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&folder.path().join("t.pqt"), options).unwrap();
        Trace {
            folder,
            output: Output::new(writer).unwrap(),
            time: None,
            limits: Limits::IMPORT,
        }
    }

    pub(super) fn input(&mut self, name: &str, feed: impl FnOnce(&mut dyn Sink)) {
        let symbols = symbols::Options {
            kernel: symbols::KernelSource::None,
            user: false,
            system: false,
            ..symbols::Options::default()
        };
        let mut progress = |_| ();
        let mut normalizer = Normalizer::new(
            &mut self.output,
            name,
            (symbols, self.limits),
            self.time,
            None,
            &mut progress,
        );
        feed(&mut normalizer);
        normalizer.finish().unwrap();
        self.output.add_source(crate::store::Source {
            name: name.to_owned(),
            ..Default::default()
        });
    }

    pub(super) fn finish(self) -> Rows {
        let counts = self.output.finish().unwrap().counts;
        let directory = Directory::open(&self.folder.path().join("t.pqt")).unwrap();
        Rows {
            _folder: self.folder,
            directory,
            counts,
        }
    }
}

/// The result of the write.
pub(super) struct Rows {
    _folder: tempfile::TempDir,
    directory: Directory,
    pub(super) counts: Counts,
}

impl Rows {
    /// Some columns of a table's rows, "-" for NULL and in parts without the column.
    pub(super) fn of(&self, table: &str, columns: &[&str]) -> Vec<String> {
        let mut rows = Vec::new();
        let options = FormatOptions::default().with_null("-");
        for batch in self.directory.read(table).unwrap() {
            let batch = batch.unwrap();
            let formatters: Vec<Option<ArrayFormatter<'_>>> = columns
                .iter()
                .map(|name| ArrayFormatter::try_new(batch.column_by_name(name)?, &options).ok())
                .collect();
            for row in 0..batch.num_rows() {
                let cells: Vec<String> = formatters
                    .iter()
                    .map(|column| {
                        (column.as_ref()).map_or("-".into(), |it| it.value(row).to_string())
                    })
                    .collect();
                rows.push(cells.join(" "));
            }
        }
        rows
    }

    /// The parts of a table, as the manifest lists them.
    pub(super) fn parts(&self, table: &str) -> Vec<Part> {
        self.directory.manifest().tables[table].parts.clone()
    }

    /// Functions or locations of a stack, leaf first.
    pub(super) fn stack(&self, id: &str) -> String {
        let nodes = self.of("stacks", &["stack_id", "parent_id", "frame_id"]);
        let frames = self.of(
            "frames",
            &["frame_id", "function", "module", "module_offset", "address"],
        );
        let cell = |row: &str, index: usize| row.split(' ').nth(index).unwrap().to_owned();
        let mut id = id.to_owned();
        let mut names = Vec::new();
        while id != "0" {
            let node = nodes.iter().find(|row| cell(row, 0) == id).unwrap();
            let frame = frames
                .iter()
                .find(|row| cell(row, 0) == cell(node, 2))
                .unwrap();
            let function = cell(frame, 1);
            names.push(match function.as_str() {
                "-" => format!("{}+{}/{}", cell(frame, 2), cell(frame, 3), cell(frame, 4)),
                _ => function,
            });
            id = cell(node, 1);
        }
        names.join(" ")
    }
}

pub(super) fn send(sink: &mut dyn Sink, event: Event<'_>) {
    sink.event(event).unwrap();
}

pub(super) fn mapping(pid: i32, start: u64, path: &[u8]) -> Event<'_> {
    Event::Mapping(Mapping {
        time: None,
        pid,
        tid: pid,
        space: if pid < 0 { Space::Kernel } else { Space::User },
        start,
        length: 0x1000,
        file_offset: 0x200,
        path,
        build_id: None,
        device: None,
        inode: None,
        protection: Some(5),
        flags: None,
    })
}

pub(super) fn comm(tid: i32, comm: &[u8]) -> Event<'_> {
    Event::Comm(Comm {
        time: None,
        pid: Some(tid),
        tid,
        comm,
        exec: false,
    })
}

pub(super) fn clock() -> EventType {
    EventType {
        system: "software".into(),
        name: "cpu-clock".into(),
        kind: EventKind::Software,
        ..EventType::default()
    }
}

/// `pid` at 0, a string at 4, an array by its offset at 12.
pub(super) fn tracepoint() -> EventType {
    let field = |name: &str, kind, offset, size, place| Field {
        name: name.to_owned(),
        kind,
        layout: Some(Layout {
            offset,
            size,
            place,
        }),
        declaration: format!("x {name}"),
    };
    EventType {
        system: "sched".into(),
        name: "sched_wakeup".into(),
        fields: vec![
            field("pid", FieldType::Int(4), 0, 4, FieldPlace::Inline),
            field("comm", FieldType::Text, 4, 8, FieldPlace::Inline),
            field("mask", FieldType::UIntList(8), 12, 4, FieldPlace::DataLoc),
        ],
        ..EventType::default()
    }
}

pub(super) fn at(event: u32, time: i64, tid: i32) -> Sample<'static> {
    Sample {
        time: Some(time),
        cpu: Some(1),
        pid: Some(tid),
        tid: Some(tid),
        ..Sample::of(EventId(event))
    }
}

pub(super) fn stack(space: Space, addresses: &[u64]) -> Stack<'_> {
    Stack::of(space, addresses)
}

#[test]
fn samples_have_thread_and_cpu() {
    let mut trace = Trace::new();
    trace.input("a", |sink| {
        send(sink, Event::Type(&clock()));
        send(sink, comm(40, b"sh"));
        send(sink, comm(41, b"sh"));
        send(
            sink,
            mapping(-1, 0xffff_ffff_8100_0000, b"[kernel.kallsyms]_text"),
        );
        send(sink, mapping(40, 0x1000, b"/bin/sh"));
        send(sink, mapping(41, 0x5000, b"/bin/sh"));
        let both = Sample {
            kernel_stack: stack(Space::Kernel, &[0xffff_ffff_8100_0010]),
            user_stack: stack(Space::User, &[0x1010, 0x1020]),
            ip: Some(0xffff_ffff_8100_0010),
            period: Some(250),
            ..at(0, 100, 40)
        };
        send(sink, Event::Sample(&both));
        // The same locations in another process of that program.
        let other = Sample {
            user_stack: stack(Space::User, &[0x5010, 0x5020]),
            ..at(0, 110, 41)
        };
        send(sink, Event::Sample(&other));
        // Only an IP, and nothing mapped there.
        let ip = Sample {
            ip: Some(0x9999),
            space: Space::User,
            ..at(0, 120, 0)
        };
        send(sink, Event::Sample(&ip));
        let build_id = BuildId {
            pid: -1,
            space: Space::User,
            path: b"/bin/sh",
            build_id: &[0xab, 0xcd],
        };
        send(sink, Event::BuildId(build_id));
    });
    let rows = trace.finish();
    let columns = [
        "time",
        "pid",
        "comm",
        "event",
        "period",
        "kernel_stack",
        "user_stack",
    ];
    assert_eq!(
        rows.of("samples", &columns),
        [
            "100 40 sh cpu-clock 250 1 3",
            "110 41 sh cpu-clock - - 3",
            "120 0 swapper cpu-clock - - 4"
        ]
    );
    assert_eq!(rows.stack("1"), "[kernel.kallsyms]+-/18446744071578845200");
    assert_eq!(rows.stack("3"), "/bin/sh+528/- /bin/sh+544/-");
    assert_eq!(rows.stack("4"), "-+-/39321");
    assert_eq!(
        rows.of(
            "frames",
            &["frame_id", "build_id", "space", "return_address"]
        ),
        [
            "1 - kernel false",
            "2 abcd user true",
            "3 abcd user false",
            "4 - user false"
        ]
    );
    assert_eq!(
        rows.of(
            "mappings",
            &[
                "pid",
                "start_address",
                "end_address",
                "build_id",
                "protection"
            ]
        )[1],
        "40 4096 8192 abcd 5"
    );
    assert_eq!(
        rows.of("threads", &["tid", "comm"]),
        ["0 swapper", "40 sh", "41 sh"]
    );
    assert_eq!(rows.counts.events, 3);
}

#[test]
fn addresses_of_kernel_strings_become_the_strings() {
    let field = |name: &str, declaration: &str, offset| Field {
        name: name.to_owned(),
        kind: FieldType::UInt(8),
        layout: Some(Layout {
            offset,
            size: 8,
            place: FieldPlace::Inline,
        }),
        declaration: declaration.to_owned(),
    };
    let utilization = EventType {
        system: "rcu".into(),
        name: "rcu_utilization".into(),
        fields: vec![field("s", "const char * s", 0), field("p", "void * p", 8)],
        print_format: Some(r#""%s %p", REC->s, REC->p"#.to_owned()),
        ..EventType::default()
    };
    let mut trace = Trace::new();
    trace.input("a", |sink| {
        let text = b"End RCU core";
        let address = 0xffff_ffff_8281_a88f;
        send(sink, Event::KernelText(KernelText { address, text }));
        send(sink, Event::Type(&utilization));
        let plan = &Plan::new(&utilization.fields, false);
        for (time, value) in [(10, address), (20, 0xab)] {
            let bytes = &[value.to_le_bytes(), 7u64.to_le_bytes()].concat();
            let sample = Sample {
                fields: Fields::Raw(Payload { bytes, plan }),
                ..at(0, time, 3)
            };
            send(sink, Event::Sample(&sample));
        }
        let sample = Sample {
            fields: Fields::Values(&[Value::UInt(address), Value::UInt(7)]),
            ..at(0, 25, 3)
        };
        send(sink, Event::Sample(&sample));
        // Truncated.
        let sample = Sample {
            fields: Fields::Raw(Payload {
                bytes: &[0; 4],
                plan,
            }),
            ..at(0, 30, 3)
        };
        send(sink, Event::Sample(&sample));
    });
    assert_eq!(
        trace
            .finish()
            .of("events/rcu/rcu_utilization", &["time", "s", "p"]),
        [
            "10 End RCU core 7",
            "20 ab 7",
            "25 End RCU core 7",
            "30 - -"
        ]
    );
}

#[test]
fn raw_payloads_become_columns() {
    let mut payload = [0u8; 32];
    payload[0..4].copy_from_slice(&7i32.to_le_bytes());
    payload[4..6].copy_from_slice(b"ls");
    payload[12..16].copy_from_slice(&(16u32 | 16 << 16).to_le_bytes());
    payload[16] = 5;
    payload[31] = 0x80;
    let mut trace = Trace::new();
    trace.input("a", |sink| {
        // Declared twice, as perf does for several processes: one table.
        send(sink, Event::Type(&tracepoint()));
        send(sink, Event::Type(&tracepoint()));
        let plan = &Plan::new(&tracepoint().fields, false);
        let raw = |bytes| Fields::Raw(Payload { bytes, plan });
        for (event, time) in [(0, 10), (1, 20)] {
            let sample = Sample {
                fields: raw(&payload),
                ..at(event, time, 3)
            };
            send(sink, Event::Sample(&sample));
        }
        // Too short for the last field.
        let cut = Sample {
            fields: raw(&payload[..12]),
            ..at(0, 30, 3)
        };
        send(sink, Event::Sample(&cut));
        let loss = Loss {
            time: Some(40),
            cpu: Some(0),
            event: Some(EventId(0)),
            count: Some(5),
            in_all: None,
            reason: "ring full",
        };
        send(sink, Event::Loss(loss));
    });
    let rows = trace.finish();
    let table = "events/sched/sched_wakeup";
    assert_eq!(
        rows.of(
            table,
            &["time", "tid", "comm", "arg_pid", "arg_comm", "mask"]
        ),
        [
            "10 3 - 7 ls [5, 9223372036854775808]",
            "20 3 - 7 ls [5, 9223372036854775808]",
            "30 3 - 7 ls -"
        ]
    );
    assert_eq!(
        rows.of(
            "event_types",
            &["system", "event", "table_name", "rows", "lost"]
        ),
        ["sched sched_wakeup sched.sched_wakeup 3 5"]
    );
    assert_eq!(
        rows.of("losses", &["event", "count", "reason"]),
        ["sched:sched_wakeup 5 ring full"]
    );
    assert_eq!((rows.counts.lost, rows.counts.losses), (5, 1));
}

#[test]
fn times_that_do_not_fit_are_null_and_a_problem() {
    use perfquet_events::event::{Call, Common, Enter, Function, TIME_BEYOND};
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        send(sink, Event::Type(&clock()));
        let beyond = Some(TIME_BEYOND);
        let common = Common {
            time: beyond,
            tid: Some(3),
            ..Common::default()
        };
        let call = Call {
            common,
            function: Function::named(b"f"),
            caller: Function::Unknown,
            depth: None,
            context: None,
            args: &[],
            duration: Some(5),
            retval: None,
            may_nest: false,
        };
        let sample = Sample {
            time: beyond,
            ..at(0, 20, 3)
        };
        send(sink, Event::Sample(&at(0, 10, 3)));
        send(sink, Event::Sample(&sample));
        send(sink, Event::Call(&call));
        send(
            sink,
            Event::Enter(&Enter {
                common,
                function: Function::named(b"g"),
                ..Enter::default()
            }),
        );
        let loss = Loss {
            time: beyond,
            cpu: None,
            event: None,
            count: Some(5),
            in_all: None,
            reason: "ring full",
        };
        send(sink, Event::Loss(loss));
    });
    let rows = trace.finish();
    assert_eq!(rows.of("samples", &["time"]), ["10", "-"]);
    assert_eq!(rows.of("calls", &["time", "function"]), ["- f", "- g"]);
    assert_eq!(rows.of("losses", &["time", "count"]), ["- 5"]);
    assert_eq!(
        rows.of("problems", &["count", "message"]),
        ["4 expected times below 2^63 ns, found later ones: these are NULL"]
    );
}

#[test]
fn losses_of_a_damaged_input_are_bounded() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        for reason in [
            "ring full",
            "ring full",
            "filtered: calls x",
            "filtered: calls y",
        ] {
            send(
                sink,
                Event::Loss(Loss {
                    time: None,
                    cpu: None,
                    event: None,
                    count: Some(u64::MAX),
                    in_all: None,
                    reason,
                }),
            );
        }
    });
    let counts = trace.finish().counts;
    assert_eq!((counts.lost, counts.filtered), (u64::MAX, u64::MAX));
}

#[test]
fn groups_become_a_row_for_each_member_that_grew() {
    let mut trace = Trace::new();
    trace.input("a", |sink| {
        send(sink, Event::Type(&clock()));
        let faults = EventType {
            name: "page-faults".into(),
            ..clock()
        };
        send(sink, Event::Type(&faults));
        for (time, clocks, faults) in [(10, 100, 3), (20, 150, 3), (30, 150, 4)] {
            let read = [(0, clocks), (1, faults), (9, 1)].map(|(event, value)| ReadValue {
                event: (event < 2).then_some(EventId(event)),
                id: Some(u64::from(event)),
                value,
                lost: None,
            });
            let sample = Sample {
                read: &read,
                period: Some(1),
                ..at(0, time, 3)
            };
            send(sink, Event::Sample(&sample));
        }
    });
    let rows = trace.finish();
    assert_eq!(
        rows.of("samples", &["time", "event", "period"]),
        [
            "10 cpu-clock 100",
            "10 page-faults 3",
            "20 cpu-clock 50",
            "30 page-faults 1"
        ]
    );
}

#[test]
fn counters_that_threads_inherit_grow_for_each() {
    let periods = |is_inherited| {
        let mut trace = Trace::new();
        trace.input("a", |sink| {
            let event = EventType {
                is_inherited,
                ..clock()
            };
            send(sink, Event::Type(&event));
            for (time, tid, value) in [(10, 3, 100), (20, 4, 30), (30, 3, 150)] {
                let read = [ReadValue {
                    event: Some(EventId(0)),
                    id: Some(7),
                    value,
                    lost: None,
                }];
                let sample = Sample {
                    read: &read,
                    ..at(0, time, tid)
                };
                send(sink, Event::Sample(&sample));
            }
        });
        trace.finish().of("samples", &["period"]).join(" ")
    };
    assert_eq!(periods(true), "100 30 50");
    assert_eq!(periods(false), "100 -70 120");
}

#[test]
fn a_second_input_continues_the_numbers() {
    let mut trace = Trace::new();
    for (input, address) in [("a", 0x1010), ("b", 0x1020)] {
        trace.input(input, |sink| {
            send(sink, Event::Fact(Fact::Host(input)));
            send(sink, Event::Type(&clock()));
            send(sink, mapping(40, 0x1000, b"/bin/sh"));
            let addresses = [address, 0x1030];
            let sample = Sample {
                user_stack: stack(Space::User, &addresses),
                ..at(0, 5, 40)
            };
            send(sink, Event::Sample(&sample));
            send(
                sink,
                Event::Problem(Problem {
                    place: Place::Offset(16),
                    count: 1,
                    message: "expected more",
                }),
            );
        });
    }
    let rows = trace.finish();
    assert_eq!(rows.of("samples", &["user_stack"]), ["2", "4"]);
    assert_eq!(rows.stack("2"), "/bin/sh+528/- /bin/sh+560/-");
    assert_eq!(rows.stack("4"), "/bin/sh+544/- /bin/sh+560/-");
    assert_eq!(
        rows.of("problems", &["source", "input_offset", "count", "message"]),
        ["a 16 1 expected more", "b 16 1 expected more"]
    );
    let facts = &rows.directory.manifest().facts;
    assert_eq!(facts.host.as_deref(), Some("a"));
    assert_eq!(facts.other["input2.host"], "b");
    assert_eq!(rows.of("event_types", &["event", "rows"]), ["cpu-clock 2"]);
}

/// perf's side-band records of threads also name the calls of the adjacent file, and are written once.
#[test]
fn files_of_one_recording_share_threads() {
    let call = |tid: i32| Enter {
        common: Common {
            time: Some(5),
            tid: Some(tid),
            ..Common::default()
        },
        function: Function::Named {
            name: b"ksys_write",
            module: b"",
        },
        ..Enter::default()
    };
    let feed = |trace: &mut Trace| {
        trace.input("perf.data", |sink| {
            send(sink, comm(7, b"dd"));
            send(
                sink,
                Event::Exit(Exit {
                    time: Some(9),
                    pid: Some(7),
                    tid: 7,
                    code: None,
                }),
            );
        });
        trace.input("trace.dat", |sink| {
            // Buffered events of earlier threads with these IDs.
            send(sink, comm(7, b"perfquet-record"));
            send(sink, comm(88, b"stranger"));
            send(sink, Event::Enter(&call(7)));
        });
    };
    let mut trace = Trace::new();
    trace.output.is_one_recording = true;
    feed(&mut trace);
    let rows = trace.finish();
    assert_eq!(
        rows.of("calls", &["tid", "comm", "function"]),
        ["7 dd ksys_write"]
    );
    assert_eq!(rows.of("threads", &["tid", "comm", "end_time"]), ["7 dd 9"]);
    // Otherwise each input has its own threads.
    let mut trace = Trace::new();
    feed(&mut trace);
    let rows = trace.finish();
    assert_eq!(rows.of("calls", &["comm"]), ["perfquet-record"]);
    assert_eq!(rows.of("threads", &["tid"]).len(), 3);
}

#[test]
fn names_that_come_with_the_input_are_used() {
    let named = |function: &'static str, inlined| NamedFrame {
        function: function.as_bytes(),
        module: b"/bin/a",
        inlined,
        ..NamedFrame::default()
    };
    let mut trace = Trace::new();
    trace.input("a", |sink| {
        send(sink, Event::Type(&clock()));
        let chain = [
            named("next", true),
            named("parse", false),
            named("main", false),
        ];
        let sample = Sample {
            user_stack: Stack::Named(&chain),
            ..Sample::of(EventId(0))
        };
        send(sink, Event::Sample(&sample));
        let symbol = KernelSymbol {
            time: None,
            start: 0xffff_0000,
            length: 0x100,
            name: b"bpf_prog_1",
            gone: false,
        };
        send(sink, Event::KernelSymbol(symbol));
        let kernel = Sample {
            ip: Some(0xffff_0010),
            space: Space::Kernel,
            ..Sample::of(EventId(0))
        };
        send(sink, Event::Sample(&kernel));
        let named = Symbol {
            module: Some(b"/bin/sh"),
            start: 0x200,
            length: 0x100,
            name: b"named",
            line: None,
        };
        send(sink, Event::Symbol(named));
        send(sink, mapping(4, 0x1000, b"/bin/sh"));
        let user = Sample {
            pid: Some(4),
            ip: Some(0x1008),
            space: Space::User,
            ..Sample::of(EventId(0))
        };
        send(sink, Event::Sample(&user));
    });
    let rows = trace.finish();
    assert_eq!(rows.stack("2"), "parse main");
    assert_eq!(
        rows.of(
            "frames",
            &["frame_id", "function", "function_offset", "inlined_into"]
        ),
        [
            "1 main - -",
            "2 parse - -",
            "3 bpf_prog_1 16 -",
            "4 named 8 -",
            "5 next - 2"
        ]
    );
}

#[test]
fn event_without_hits_has_an_empty_table() {
    let mut trace = Trace::new();
    trace.time = Some(TimeRange {
        start: None,
        end: Some(5),
    });
    trace.input("a", |sink| {
        send(sink, Event::Type(&tracepoint()));
        send(sink, Event::Type(&clock()));
        send(sink, Event::Sample(&at(1, 100, 1)));
        send(sink, Event::Sample(&at(1, 105, 1)));
        // Never declared: counted, not lost silently.
        send(sink, Event::Sample(&at(9, 101, 1)));
    });
    let rows = trace.finish();
    let table = rows.directory.table("events/sched/sched_wakeup").unwrap();
    assert_eq!((table.rows(), table.columns.len()), (0, 10));
    assert_eq!(rows.of("samples", &["time"]), ["100"]);
    assert_eq!(rows.of("losses", &["count"]), ["1"]);
    assert_eq!((rows.counts.left_out, rows.counts.lost), (1, 0));
    assert_eq!(rows.of("problems", &["count"]), ["1"]);
    assert_eq!(
        rows.of("event_types", &["table_name", "rows"]),
        ["sched.sched_wakeup 0", "samples 1"]
    );
}

#[test]
fn another_kernels_fields_are_another_form_of_one_table() {
    let mut other = tracepoint();
    other.fields.pop();
    let mut trace = Trace::new();
    for event in [tracepoint(), other, tracepoint()] {
        trace.input("a", |sink| {
            send(sink, Event::Type(&event));
            send(sink, Event::Sample(&at(0, 1, 1)));
        });
    }
    let rows = trace.finish();
    let count = |table: &str| rows.directory.table(table).unwrap().rows();
    assert_eq!(count("events/sched/sched_wakeup"), 3);
    assert_eq!(rows.directory.forms("events/sched/sched_wakeup").len(), 2);
    assert!(
        rows.directory
            .table("events/sched/sched_wakeup_2")
            .is_none()
    );
    assert!(Path::new(rows.directory.path()).exists());
}
