//! CTF 1.8, the Common Trace Format: for Trace Compass and babeltrace2.
//!
//! ```text
//! a.ctf/metadata   layout of all events     a.ctf/cpu_0, cpu_1, …   packets of events, in the order of time
//! ```
//! Events have LTTng's names if Trace Compass analyzes them (`sched_switch` with `prev_tid`), otherwise perf's. Losses
//! are the discarded events of packets. CTF 1.8 has no NULL: unknown numbers become 0 (-1 for PID and TID), unknown
//! text becomes empty, and both are counted.

mod metadata;
mod stream;

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use arrow_array::Array;
use perfquet_events::event::Value;
use perfquet_trace::count::{counted, grouped};

use super::batch::{BatchRow, COMMON, column, value_at};
use super::losses::{each_loss, problems};
use super::merged::MergedRows;
use super::source::{RowTable, Source};
use super::stacks::Stacks;
use super::values::Cell;
use super::{Exporter, Output, Tally};
use metadata::{CtfField, CtfKind};
use stream::{Losses, Streams};

/// `--to ctf`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "ctf",
    about: "a directory in the Common Trace Format, for Trace Compass and babeltrace2",
    output: Output::Directory {
        ending: ".ctf",
        next: "babeltrace2 FILE",
        write,
    },
};

/// An event type of the trace.
struct EventClass {
    id: u32,
    fields: Vec<CtfField>,
}

fn write(source: &Source<'_>, folder: &Path, tally: &mut Tally) -> Result<()> {
    let stacks = Stacks::read(source.trace)?;
    let tables: Vec<&RowTable<'_>> = source
        .samples()
        .chain(source.events())
        .chain(source.calls())
        .collect();
    let mut metadata = metadata::head(&source.trace.manifest().facts);
    let mut classes = Classes::default();
    let mut of_tables = Vec::new();
    for table in &tables {
        of_tables.push(match table.is_samples() {
            // Each sampled event is a separate event type.
            true => None,
            false => Some(classes.add(&name_of(source, table), table, &mut metadata)),
        });
    }
    let mut streams = Streams::new(folder, losses(source, tally)?);
    let mut counts = Counts::default();
    let mut event = Vec::new();
    let mut rows = MergedRows::open(source, &tables)?;
    while let Some(row) = rows.next()? {
        let table = tables[row.table];
        let class = match of_tables[row.table] {
            Some(class) => class,
            None => {
                let name = row.columns.text("event").unwrap_or("samples");
                match classes.by_name.get(name) {
                    Some(class) => *class,
                    None => classes.add(name, table, &mut metadata),
                }
            }
        };
        let Some(time) = row.columns.i64("time") else {
            counts.without_time += 1;
            continue;
        };
        let Ok(time) = u64::try_from(time) else {
            counts.before_zero += 1;
            continue;
        };
        event.clear();
        encode(
            &mut event,
            &classes.all[class],
            time,
            &row.columns,
            &stacks,
            &mut counts.nulls,
        );
        match streams.add(row.columns.i32("cpu"), time, &event)? {
            true if table.is_samples() => counts.samples += 1,
            true if table.is_calls() => counts.calls += 1,
            true => counts.events += 1,
            false => counts.late += 1,
        }
    }
    streams.finish()?;
    let path = folder.join("metadata");
    std::fs::write(&path, metadata).with_context(|| format!("cannot write {}", path.display()))?;
    problems(source, tally)?;
    counts.tell(source, tally);
    Ok(())
}

#[derive(Default)]
struct Counts {
    samples: u64,
    events: u64,
    calls: u64,
    without_time: u64,
    before_zero: u64,
    late: u64,
    nulls: u64,
}

impl Counts {
    fn tell(&self, source: &Source<'_>, tally: &mut Tally) {
        tally.wrote("sample", self.samples);
        tally.wrote("event", self.events);
        tally.wrote("call", self.calls);
        tally.omit("row", "without a timestamp", self.without_time);
        tally.omit("row", "before time 0 of the clock", self.before_zero);
        tally.omit("row", "too far out of order", self.late);
        tally.omit(
            "aggregate",
            "CTF has no aggregates",
            source.aggregate_rows(),
        );
        if self.nulls > 0 {
            tally.note(format!(
                "{} written as 0 or empty: CTF has no NULL",
                counted(self.nulls, "unknown value")
            ));
        }
    }
}

#[derive(Default)]
struct Classes {
    all: Vec<EventClass>,
    by_name: HashMap<String, usize>,
}

impl Classes {
    fn add(&mut self, name: &str, table: &RowTable<'_>, metadata: &mut String) -> usize {
        let index = self.all.len();
        let id = index as u32;
        let columns = table.columns.iter().skip(*COMMON);
        // The name of a sampled event is that of its event type.
        let columns: Vec<_> = columns
            .filter(|column| !table.is_samples() || column.name != "event")
            .cloned()
            .collect();
        let fields = metadata::fields(name, &columns);
        *metadata += &metadata::event(id, name, &fields);
        self.all.push(EventClass { id, fields });
        self.by_name.insert(name.to_owned(), index);
        index
    }
}

/// Returns LTTng's name for scheduler and interrupt events, perf's for all others.
fn name_of(source: &Source<'_>, table: &RowTable<'_>) -> String {
    if table.is_calls() {
        return "call".to_owned();
    }
    let name = source.event_name(table);
    // Names that begin otherwise keep their system, without which nobody could tell it.
    let is_known =
        |event: &str, starts: &[&str]| starts.iter().any(|start| event.starts_with(start));
    match name.split_once(':') {
        Some(("sched", event)) if is_known(event, &["sched_"]) => event.to_owned(),
        Some(("irq", event)) if is_known(event, &["irq_handler_", "softirq_", "tasklet_"]) => {
            event.to_owned()
        }
        _ => name,
    }
}

/// Reads the losses of each CPU by time, each with the total number of events lost until then.
fn losses(source: &Source<'_>, tally: &mut Tally) -> Result<Losses> {
    let mut losses = Losses::new();
    let mut unknown = 0;
    each_loss(source, tally, |loss| {
        if loss.is_lost() {
            let time = u64::try_from(loss.time.unwrap_or(0)).unwrap_or(0);
            unknown += u64::from(loss.count.is_none());
            let count = loss.count.unwrap_or(1).unsigned_abs();
            losses.entry(loss.cpu).or_default().push((time, count));
        }
        Ok(())
    })?;
    if unknown > 0 {
        tally.note(format!(
            "{} of unknown size written as 1 discarded event each",
            match unknown {
                1 => "1 loss".to_owned(),
                unknown => format!("{} losses", grouped(unknown)),
            }
        ));
    }
    for losses in losses.values_mut() {
        losses.sort_unstable();
        let mut sum = 0_u64;
        for (_, count) in losses {
            sum = sum.saturating_add(*count);
            *count = sum;
        }
    }
    Ok(losses)
}

fn encode(
    out: &mut Vec<u8>,
    class: &EventClass,
    time: u64,
    row: &BatchRow<'_>,
    stacks: &Stacks,
    nulls: &mut u64,
) {
    out.extend_from_slice(&class.id.to_le_bytes());
    out.extend_from_slice(&time.to_le_bytes());
    let head = row.head();
    out.extend_from_slice(&head.pid.unwrap_or(-1).to_le_bytes());
    out.extend_from_slice(&head.tid.unwrap_or(-1).to_le_bytes());
    write_text(out, head.comm.unwrap_or_default());
    let mut places = Vec::new();
    let mut is_first = true;
    for stack in [head.user_stack, head.kernel_stack] {
        stacks.places(stack, &mut places);
        for place in places.iter().rev() {
            if !std::mem::take(&mut is_first) {
                out.push(b';');
            }
            // Brackets tell a module from a function.
            let (open, name, close) = match (place.function, place.module) {
                (Some(function), _) => ("", function, ""),
                (None, Some(module)) => ("[", module, "]"),
                (None, None) => ("", "[unknown]", ""),
            };
            let name = [open, name, close].into_iter().flat_map(str::bytes);
            out.extend(name.filter(|byte| *byte != 0));
        }
    }
    out.push(0);
    for field in &class.fields {
        let column = column(row.batch, &field.column);
        let value = column.map_or(Value::Null, |column| value_at(column, row.row));
        *nulls += u64::from(column.is_none_or(|column| column.is_null(row.row)));
        encode_value(out, field.kind, column, row.row, &value);
    }
}

fn encode_value(
    out: &mut Vec<u8>,
    kind: CtfKind,
    column: Option<&dyn Array>,
    row: usize,
    value: &Value<'_>,
) {
    let kind = match kind {
        CtfKind::Plain(kind) => kind,
        CtfKind::List(_) => {
            let length = |length: usize| (length as u32).to_le_bytes();
            match value {
                Value::Bytes(bytes) => {
                    out.extend_from_slice(&length(bytes.len()));
                    out.extend_from_slice(bytes);
                }
                Value::IntList(numbers) => {
                    out.extend_from_slice(&length(numbers.len()));
                    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
                }
                Value::UIntList(numbers) => {
                    out.extend_from_slice(&length(numbers.len()));
                    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
                }
                _ => out.extend_from_slice(&length(0)),
            }
            return;
        }
    };
    let bits = match value {
        Value::Bool(truth) => u64::from(*truth),
        Value::Int(number) => number.cast_unsigned(),
        Value::UInt(number) => *number,
        Value::Float(number) => number.to_bits(),
        _ => 0,
    };
    let bytes = bits.to_le_bytes();
    match kind {
        "u8" | "s8" => out.extend_from_slice(&bytes[..1]),
        "u16" | "s16" => out.extend_from_slice(&bytes[..2]),
        "u32" | "s32" => out.extend_from_slice(&bytes[..4]),
        "string" => {
            let text = column.map_or(Cell::Null, |column| Cell::at(column, row));
            write_text(out, &text.text());
        }
        _ => out.extend_from_slice(&bytes),
    }
}

/// Strings end at a NUL, so NULs are replaced.
fn write_text(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.push(0);
}
