//! Events of triggers and of programs: their names, columns and values.
//!
//! ```text
//! 100002 read:page_fault { major, minor }      100012 watch:var { address, value }      1000000 and on: events.txt
//! ```

use perfquet_events::bytes::Endian;
use perfquet_events::event::{Field, FieldType, Value};

/// IDs of events (`enum uftrace_event_id` in uftrace.h).
pub(super) const USER_EVENTS: u64 = 1_000_000;
const WATCHED_VARIABLE: u64 = 100_012;
/// System, name and columns of built-in events, from the first ID.
pub(super) const FIRST_EVENT: u64 = 100_001;
const STATM: &[&str] = &["vmsize_kib", "vmrss_kib", "shared_kib"];
const FAULTS: &[&str] = &["major", "minor"];
const CYCLES: &[&str] = &["cycles", "instructions"];
const CACHE: &[&str] = &["references", "misses"];
const BRANCHES: &[&str] = &["branches", "misses"];
const EVENTS: [(&str, &str, &[&str]); 13] = [
    ("read", "proc_statm", STATM),
    ("read", "page_fault", FAULTS),
    ("diff", "proc_statm", STATM),
    ("diff", "page_fault", FAULTS),
    ("read", "pmu_cycle", CYCLES),
    ("diff", "pmu_cycle", CYCLES),
    ("read", "pmu_cache", CACHE),
    ("diff", "pmu_cache", CACHE),
    ("read", "pmu_branch", BRANCHES),
    ("diff", "pmu_branch", BRANCHES),
    ("watch", "cpu", &["cpu"]),
    ("watch", "var", &["address", "value"]),
    ("uftrace", "callsite", &["address"]),
];

/// System, name and columns of a built-in event.
pub(super) fn builtin(
    id: u64,
) -> Option<&'static (&'static str, &'static str, &'static [&'static str])> {
    EVENTS.get(usize::try_from(id.checked_sub(FIRST_EVENT)?).ok()?)
}

/// The columns of a built-in event, by its name (`read:page_fault`).
pub(super) fn columns_of(name: &[u8]) -> Option<Vec<Field>> {
    let (system, _, columns) = EVENTS
        .iter()
        .find(|(system, short, _)| name == format!("{system}:{short}").as_bytes())?;
    let fields = columns
        .iter()
        .map(|column| field(column, column_type(system)));
    Some(fields.collect())
}

/// Differences may be negative.
pub(super) fn column_type(system: &str) -> FieldType {
    match system {
        "diff" => FieldType::Int(8),
        _ => FieldType::UInt(8),
    }
}

/// The values of an event.
pub(super) fn values(id: u64, bytes: &[u8], endian: Endian) -> Vec<Value<'_>> {
    let Some((system, _, columns)) = builtin(id) else {
        return vec![Value::Bytes(bytes)];
    };
    let value = |bits: u64| match column_type(system) {
        FieldType::Int(_) => Value::Int(bits.cast_signed()),
        _ => Value::UInt(bits),
    };
    let mut chunks = bytes.chunks(8);
    let values = columns.iter().map_while(|_| {
        let chunk = chunks.next()?;
        Some(value(endian.unsigned(chunk)))
    });
    let mut values: Vec<Value<'_>> = values.collect();
    // More than a number: a structure.
    if id == WATCHED_VARIABLE && bytes.len() > 16 {
        values.truncate(1);
    }
    values
}

pub(super) fn field(name: &str, kind: FieldType) -> Field {
    Field {
        name: name.to_owned(),
        kind,
        layout: None,
        declaration: String::new(),
    }
}
