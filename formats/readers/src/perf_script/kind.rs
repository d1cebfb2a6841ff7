//! Kinds of events by their names.

use perfquet_events::counters;
use perfquet_events::event::{EventKind, EventType};
use perfquet_events::scan::{find_text, rsplit_once, split_once};

/// The type of a counter or clock; an empty name is that of samples without one.
pub(super) fn counter(text: String) -> EventType {
    let base = text.split(':').next().unwrap_or_default();
    let kind = match counters::number(&counters::SOFTWARE, base).is_some() {
        true => EventKind::Software,
        false => EventKind::Counter,
    };
    EventType {
        system: match kind {
            EventKind::Software => "software".into(),
            _ if counters::number(&counters::HARDWARE, base).is_some() => "hardware".into(),
            _ => String::new(),
        },
        kind,
        name: if text.is_empty() {
            "samples".into()
        } else {
            text
        },
        ..EventType::default()
    }
}

/// System and name of a tracepoint or probe. `None` for a counter, where letters after a colon are modifiers.
#[inline]
pub(super) fn tracepoint(event: &[u8]) -> Option<(&[u8], &[u8])> {
    let (system, name) = split_once(event, b":")?;
    let is_modifier = |byte: &u8| b"ukhHGpPSDIWeb".contains(byte);
    let is_probe = system.starts_with(b"probe") || system.starts_with(b"sdt_");
    let is_name = !name.is_empty() && (is_probe || !name.iter().all(is_modifier));
    let is_word = |text: &[u8]| {
        text.iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.@".contains(byte))
    };
    // Modifiers of a tracepoint: `sched:sched_switch:u`.
    let name = match rsplit_once(name, b":") {
        Some((name, modifiers)) if modifiers.iter().all(is_modifier) => name,
        _ => name,
    };
    (is_name && !system.is_empty() && is_word(system)).then_some((system, name))
}

pub(super) fn kind_of(system: &[u8], name: &[u8]) -> EventKind {
    let at_return = find_text(name, b"__return").is_some();
    match (system, at_return) {
        (b"probe", false) => EventKind::Kprobe,
        (b"probe", true) => EventKind::Kretprobe,
        _ if system.starts_with(b"sdt_") => EventKind::Usdt,
        (_, false) if system.starts_with(b"probe_") => EventKind::Uprobe,
        (_, true) if system.starts_with(b"probe_") => EventKind::Uretprobe,
        _ => EventKind::Tracepoint,
    }
}
