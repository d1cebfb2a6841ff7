//! The event type of signals. The view of system calls recognizes a strace trace by its table.

use perfquet_events::event::{EventKind, EventType, Field, FieldType};

pub(super) fn signal_type() -> EventType {
    let field = |name: &str, kind| Field {
        name: name.to_owned(),
        kind,
        layout: None,
        declaration: String::new(),
    };
    EventType {
        system: "strace".to_owned(),
        name: "signal".to_owned(),
        kind: EventKind::Tracepoint,
        fields: vec![
            field("signal", FieldType::Text),
            field("code", FieldType::Text),
            field("sender_pid", FieldType::Int(4)),
            field("sender_uid", FieldType::Int(8)),
            field("status", FieldType::Text),
        ],
        ..EventType::default()
    }
}
