//! The same events in the main buffer and in instances.

use super::*;

/// Type, time, thread, ID, buffer; the main one is empty.
type Hit = (u32, i64, i32, i64, &'static str);

#[track_caller]
fn check(hits: &[Hit], expected: &[&str]) {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        for (name, fields) in [("sys_enter", &["id"][..]), ("sys_exit", &["id", "ret"])] {
            let mut declared = event_type("raw_syscalls", name, fields);
            declared.fields.push(Field {
                name: "buffer".to_owned(),
                kind: FieldType::Text,
                layout: None,
                declaration: String::new(),
            });
            sink.event(Event::Type(&declared)).unwrap();
        }
        for &(event, time, tid, id, buffer) in hits {
            let mut values = vec![Value::Int(id)];
            values.extend((event == 1).then_some(Value::Int(7)));
            values.push(match buffer {
                "" => Value::Null,
                name => Value::Bytes(name.as_bytes()),
            });
            sink.event(Event::Sample(&Sample {
                time: Some(time),
                tid: Some(tid),
                cpu: Some(0),
                fields: Fields::Values(&values),
                ..Sample::of(EventId(event))
            }))
            .unwrap();
        }
    });
    assert_eq!(rows_of(&trace.finish(), &[]), expected);
}

#[test]
fn events_of_two_buffers_are_calls_once() {
    // Either buffer may come first; the main one wins.
    check(
        &[
            (0, 10, 5, 0, "foo"),
            (0, 11, 5, 0, ""),
            (1, 20, 5, 0, "foo"),
            (1, 21, 5, 0, ""),
            (0, 30, 5, 0, ""),
            (0, 31, 5, 0, "foo"),
            (1, 40, 5, 0, ""),
            (1, 41, 5, 0, "foo"),
        ],
        &["syscall:0 - - 0 10 11 11", "syscall:0 - - 0 30 10 10"],
    );
}

#[test]
fn what_only_one_buffer_has_is_kept() {
    // The main buffer lacks a thread and the beginning.
    check(
        &[
            (0, 10, 5, 0, "foo"),
            (1, 20, 5, 0, "foo"),
            (0, 22, 6, 1, "foo"),
            (0, 22, 6, 1, "bar"),
            (1, 25, 6, 1, "foo"),
            (1, 25, 6, 1, "bar"),
            (0, 30, 5, 0, ""),
            (0, 31, 5, 0, "foo"),
            (1, 40, 5, 0, "foo"),
            (1, 41, 5, 0, ""),
        ],
        &[
            "syscall:0 - - 0 10 10 10",
            "syscall:1 - - 0 22 3 3",
            "syscall:0 - - 0 30 11 11",
        ],
    );
}
