//! The table of an event: its name and columns, from the trace's declarations.
//!
//! ```text
//! sched:sched_wakeup (comm, pid, prio)    events/sched/sched_wakeup:
//!     time cpu pid tid comm kernel_stack user_stack | arg_comm arg_pid prio
//! ```
//! The common columns come first, then the event's fields, then other recorded values (`sample_period`, `sample_addr`,
//! …). A field with the name of a common column is called `arg_NAME`: in every table, the columns `pid` and `comm` are
//! those of the thread that caused the event. A field whose name is in use (ignoring case, as in SQL) gets a number:
//! `flags`, `flags_2`. Characters other than letters, digits and `_` become `_`.

use perfquet_events::event::{EventType, Extras, Field, FieldType, Flags};
use perfquet_events::event_format::print::PrintFormat;

use crate::store::{ColumnSchema, ColumnType, Encoding, TableSchema};
use crate::tables;

/// Longer names are cut; the kernel's have at most 64 bytes.
const NAME_BYTES: usize = 128;

/// Path of an event's table: "events/sched/sched_switch".
pub(crate) fn table_name(event: &EventType) -> String {
    format!("events/{}/{}", plain(&event.system), plain(&event.name))
}

/// A table's name in SQL: "sched.sched_switch".
pub(crate) fn sql_name(table: &str) -> String {
    table
        .strip_prefix("events/")
        .map_or_else(|| table.to_owned(), |name| name.replace('/', "."))
}

/// The declaration of an event's table.
pub(crate) fn event_schema(table: &str, event: &EventType, extras: Extras) -> TableSchema {
    let mut columns = tables::common::columns();
    let addresses = printed_words(event, PrintFormat::addresses);
    for (index, field) in event.fields.iter().enumerate() {
        let name = field_name(&field.name, &columns);
        let is_printed = addresses.contains(&index);
        columns.push(field_column(name, field, is_printed));
    }
    for (extra, _) in extra_columns().filter(|(_, recorded)| recorded(extras)) {
        let name = free_name(extra.name.clone(), &columns);
        columns.push(ColumnSchema { name, ..extra });
    }
    let doc = match event.system.as_str() {
        "" => format!("Hits of {}.", event.name),
        system => format!("Hits of {system}:{}.", event.name),
    };
    TableSchema {
        name: table.to_owned(),
        doc,
        columns,
        sort: vec!["time".to_owned()],
    }
}

/// Whether an extra was recorded.
type Recorded = fn(Extras) -> bool;

/// Values that may be recorded with an event besides its fields, each with a test whether it was.
fn extra_columns() -> impl Iterator<Item = (ColumnSchema, Recorded)> {
    let extra = |name: &str, kind, unit: &str, doc: &str| ColumnSchema {
        name: format!("sample_{name}"),
        kind,
        nullable: true,
        unit: unit.to_owned(),
        doc: doc.to_owned(),
        encoding: Encoding::Dictionary,
    };
    let columns: [(ColumnSchema, Recorded); 6] = [
        (
            extra(
                "period",
                ColumnType::Int64,
                "",
                "Number of events that the row represents.",
            ),
            |extras| extras.period,
        ),
        (
            extra("addr", ColumnType::Bits, "address", "Address of the data."),
            |extras| extras.addr,
        ),
        (
            extra("weight", ColumnType::Bits, "", "Cost of the access."),
            |extras| extras.weight,
        ),
        (
            extra(
                "data_src",
                ColumnType::Bits,
                "mask",
                "Source of the data, as union perf_mem_data_src.",
            ),
            |extras| extras.data_src,
        ),
        (
            extra(
                "phys_addr",
                ColumnType::Bits,
                "address",
                "Physical address of the data.",
            ),
            |extras| extras.phys_addr,
        ),
        (
            extra("cgroup", ColumnType::Bits, "", "ID of the cgroup."),
            |extras| extras.cgroup,
        ),
    ];
    columns.into_iter()
}

/// The fields of 64 bits among those that `shown` finds in the print format: addresses are declared as `unsigned long`.
pub(crate) fn printed_words(
    event: &EventType,
    shown: impl FnOnce(&PrintFormat) -> Vec<usize>,
) -> Vec<usize> {
    let is_word = |field: &Field| field.kind == FieldType::UInt(8);
    match &event.print_format {
        Some(format) if format.contains("%p") && event.fields.iter().any(is_word) => {
            let mut shown = shown(&PrintFormat::new(format, &event.fields));
            shown.retain(|&index| event.fields.get(index).is_some_and(is_word));
            shown
        }
        _ => Vec::new(),
    }
}

const FLAGS: &str = "State at the event: bits 0 interrupts off, 1 need-resched lazily, 2 need-resched, 3 in a hard interrupt, 4 in a softirq, \
    5 preemption pending, 6 in an NMI, 7 softirqs off; irq_context() decodes it.";
const PREEMPT_COUNT: &str =
    "Depth of disabled preemption (lower 4 bits) and disabled migration (upper 4 bits).";

fn field_column(name: String, field: &Field, is_printed_address: bool) -> ColumnSchema {
    let declaration = field.declaration.trim();
    let mut doc = match declaration {
        _ if name == Flags::BITS => FLAGS.to_owned(),
        _ if name == Flags::PREEMPT_COUNT => PREEMPT_COUNT.to_owned(),
        "" => format!("Field {} of the event.", field.name),
        declaration => format!("{declaration}, as declared by the kernel."),
    };
    if name != field.name {
        doc = format!("Field {} of the event: {doc}", field.name);
    }
    let is_pointer = is_pointer(field) || is_printed_address;
    ColumnSchema {
        name,
        kind: match (column_type(field.kind), is_pointer) {
            (ColumnType::UInt64, true) => ColumnType::Bits,
            (ColumnType::UInt64List, true) => ColumnType::BitsList,
            (kind, _) => kind,
        },
        nullable: true,
        unit: if is_pointer { "address" } else { "" }.to_owned(),
        doc,
        encoding: Encoding::Dictionary,
    }
}

/// Pointers, and arrays of them, are printed in hexadecimal.
fn is_pointer(field: &Field) -> bool {
    matches!(field.kind, FieldType::UInt(8) | FieldType::UIntList(8))
        && field.declaration.contains('*')
}

fn column_type(kind: FieldType) -> ColumnType {
    match kind {
        FieldType::Bool => ColumnType::Bool,
        FieldType::Int(1) => ColumnType::Int8,
        FieldType::Int(2) => ColumnType::Int16,
        FieldType::Int(3 | 4) => ColumnType::Int32,
        FieldType::Int(_) => ColumnType::Int64,
        FieldType::UInt(1) => ColumnType::UInt8,
        FieldType::UInt(2) => ColumnType::UInt16,
        FieldType::UInt(3 | 4) => ColumnType::UInt32,
        FieldType::UInt(_) => ColumnType::UInt64,
        FieldType::Float => ColumnType::Float64,
        FieldType::Text => ColumnType::Text,
        FieldType::Binary => ColumnType::Binary,
        FieldType::IntList(_) => ColumnType::Int64List,
        FieldType::UIntList(_) => ColumnType::UInt64List,
        FieldType::TextList => ColumnType::TextList,
    }
}

fn field_name(name: &str, taken: &[ColumnSchema]) -> String {
    let name = plain(name);
    let is_common = tables::common::columns()
        .iter()
        .any(|column| column.name.eq_ignore_ascii_case(&name));
    let name = if is_common {
        format!("arg_{name}")
    } else {
        name
    };
    free_name(name, taken)
}

/// Returns `name`, with the first suffix number that makes it unique if necessary.
fn free_name(name: String, taken: &[ColumnSchema]) -> String {
    let is_free = |name: &str| {
        !taken
            .iter()
            .any(|column| column.name.eq_ignore_ascii_case(name))
    };
    if is_free(&name) {
        return name;
    }
    (2..)
        .map(|number| format!("{name}_{number}"))
        .find(|name| is_free(name))
        .unwrap_or(name)
}

/// Replaces characters other than letters and digits by `_`, for paths and for SQL without quotes.
fn plain(name: &str) -> String {
    let plain: String = name
        .chars()
        .take(NAME_BYTES)
        .map(|letter| match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' => letter,
            _ => '_',
        })
        .collect();
    if plain.is_empty() {
        "unnamed".to_owned()
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(system: &str, name: &str, fields: &[&str]) -> EventType {
        EventType {
            system: system.to_owned(),
            name: name.to_owned(),
            fields: fields
                .iter()
                .map(|name| Field {
                    name: (*name).to_owned(),
                    kind: FieldType::Int(4),
                    layout: None,
                    declaration: format!("int {name}"),
                })
                .collect(),
            ..EventType::default()
        }
    }

    fn names(fields: &[&str], extras: Extras) -> Vec<String> {
        let schema = event_schema("events/a/b", &event("a", "b", fields), extras);
        let mut names: Vec<String> = schema.columns.into_iter().map(|c| c.name).collect();
        names.drain(..tables::common::columns().len());
        names
    }

    #[test]
    fn fields_never_hide_the_common_columns() {
        assert_eq!(
            names(&["comm", "pid", "prio", "Time"], Extras::default()),
            ["arg_comm", "arg_pid", "prio", "arg_Time"]
        );
        assert_eq!(
            names(&["a", "A", "a", "a_2", "arg_pid", "pid"], Extras::default()),
            ["a", "A_2", "a_3", "a_2_2", "arg_pid", "arg_pid_2"]
        );
    }

    #[test]
    fn extras_follow_the_fields() {
        let extras = Extras {
            addr: true,
            period: true,
            ..Extras::default()
        };
        assert_eq!(
            names(&["addr", "sample_addr"], extras),
            ["addr", "sample_addr", "sample_period", "sample_addr_2"]
        );
    }

    #[test]
    fn fields_printed_as_code_are_addresses() {
        let mut event = event("kmem", "kfree", &["call_site", "ptr", "size"]);
        for (field, declaration) in event.fields.iter_mut().zip([
            "unsigned long call_site",
            "const void * ptr",
            "unsigned long size",
        ]) {
            field.kind = FieldType::UInt(8);
            field.declaration = declaration.to_owned();
        }
        let format =
            r#""call_site=%pS ptr=%p size=%lu", (void *)REC->call_site, REC->ptr, REC->size"#;
        event.print_format = Some(format.to_owned());
        let schema = event_schema("events/a/b", &event, Extras::default());
        let columns = schema.columns.iter().skip(tables::common::columns().len());
        let kinds: Vec<_> = columns.map(|column| (column.kind, &*column.unit)).collect();
        assert_eq!(
            kinds,
            [
                (ColumnType::Bits, "address"),
                (ColumnType::Bits, "address"),
                (ColumnType::UInt64, "")
            ]
        );
    }

    #[test]
    fn names_are_valid_in_paths() {
        let check = |system: &str, name: &str, expected: &str| {
            assert_eq!(table_name(&event(system, name, &[])), expected);
        };
        check("sched", "sched_switch", "events/sched/sched_switch");
        check("..", "../../etc/passwd", "events/__/______etc_passwd");
        check("", "a b\u{1b}[0m", "events/unnamed/a_b__0m");
        let long = table_name(&event("a", &"x".repeat(1000), &[]));
        assert!(long.len() < 150);
        assert_eq!(sql_name("events/sched/sched_switch"), "sched.sched_switch");
        assert_eq!(sql_name("samples"), "samples");
    }
}
