//! The event types of a trace, as declared in `event_types`.

use anyhow::Result;
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::batch::BatchRow;

/// A row of `event_types`. An event with several periods, or several forms of its fields, has several.
#[derive(Debug, Clone, Default)]
pub(super) struct EventType {
    pub(super) system: String,
    pub(super) name: String,
    /// The event's table, by its name in the manifest: "samples", "events/sched/sched_switch".
    pub(super) table: String,
    pub(super) kind: String,
    pub(super) period: Option<i64>,
    pub(super) frequency: Option<i64>,
    pub(super) fields: Vec<String>,
    pub(super) print_format: Option<String>,
    pub(super) rows: i64,
}

impl EventType {
    pub(super) fn is_sampled(&self) -> bool {
        self.table == tables::samples::NAME
    }

    /// Returns `cycles` or `sched:sched_switch`.
    pub(super) fn full_name(&self) -> String {
        match self.is_sampled() || self.system.is_empty() {
            true => self.name.clone(),
            false => format!("{}:{}", self.system, self.name),
        }
    }

    /// Returns whether `period` counts nanoseconds.
    pub(super) fn is_clock(&self) -> bool {
        is_clock(&self.name)
    }
}

/// Returns whether the periods of a sampled event count nanoseconds: cpu-clock, task-clock:u.
pub(super) fn is_clock(event: &str) -> bool {
    matches!(event.split(':').next(), Some("cpu-clock" | "task-clock"))
}

/// Reads `event_types`.
pub(super) fn read(trace: &Directory) -> Result<Vec<EventType>> {
    let mut types = Vec::new();
    for batch in trace.read(tables::event_types::NAME)? {
        let batch = batch?;
        for row in BatchRow::all(&batch) {
            let (Some(name), Some(table)) = (row.text("event"), row.text("table_name")) else {
                continue;
            };
            let table = match table {
                tables::samples::NAME => table.to_owned(),
                table => format!("events/{}", table.replacen('.', "/", 1)),
            };
            types.push(EventType {
                system: row.text("system").unwrap_or_default().to_owned(),
                name: name.to_owned(),
                table,
                kind: row.text("kind").unwrap_or_default().to_owned(),
                period: row.i64("period"),
                frequency: row.i64("frequency"),
                fields: row.texts("fields"),
                print_format: row.text("print_format").map(str::to_owned),
                rows: row.i64("rows").unwrap_or(0),
            });
        }
    }
    Ok(types)
}
