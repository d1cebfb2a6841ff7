//! Choice of the rows that exporters of weighted stacks count: the samples of one event, its hits, or the two sides of
//! a comparison.
//!
//! Counts of different events cannot be added, so one event is chosen; [`Counted::warn`] logs the choice.

use std::collections::HashSet;

use perfquet_trace::tables;

use super::batch::BatchRow;
use super::source::{RowTable, Source};

/// The events that an exporter of weighted stacks counts.
pub(super) struct Counted {
    /// Events by name, one for each count of a stack.
    pub(super) events: Vec<String>,
    /// Counts are in units of 10^-`decimals`.
    pub(super) decimals: u32,
    /// Whether they are samples, not hits of a tracepoint.
    pub(super) is_sampled: bool,
    /// The warning about events that are not counted.
    warning: Option<String>,
}

impl Counted {
    /// Returns the two events of a comparison, else the first with samples, else the first with hits; `None` without either.
    pub(super) fn choose(source: &Source<'_>) -> Option<Counted> {
        let mut sampled = Vec::new();
        let mut hits = Vec::new();
        let mut recorders = Vec::new();
        for event in source.event_types().filter(|event| event.rows != 0) {
            match (event.is_sampled(), event.kind.as_str()) {
                (true, _) => sampled.push(event.name.clone()),
                // Nobody selected the records that the recorder needs itself.
                (false, "recorder") => recorders.push(event.table.clone()),
                (false, _) => hits.push(event.table.clone()),
            }
        }
        if hits.is_empty() {
            hits = recorders;
        }
        // An event with several periods or forms has several declarations.
        for names in [&mut sampled, &mut hits] {
            let mut known = HashSet::new();
            names.retain(|name: &String| known.insert(name.clone()));
        }
        let is_pair = |before: &str, after: &str| {
            before.starts_with("before")
                && after.strip_prefix("after") == before.strip_prefix("before")
        };
        let is_sampled = !sampled.is_empty();
        let mut warning = None;
        let events = match sampled.as_slice() {
            [before, after] if is_pair(before, after) => sampled.clone(),
            [first, others @ ..] => {
                if !others.is_empty() || !hits.is_empty() {
                    warning = Some(format!(
                        "exporting only the event {first}: counts of different events do not add up"
                    ));
                }
                vec![first.clone()]
            }
            [] => {
                if hits.len() > 1 {
                    let name = hits[0].trim_start_matches("events/").replace('/', ":");
                    warning = Some(format!("exporting only the event {name}"));
                }
                hits.into_iter().take(1).collect()
            }
        };
        let decimals = decimals(events.first()?);
        Some(Counted {
            events,
            decimals,
            is_sampled,
            warning,
        })
    }

    /// Warns of events that are not counted.
    pub(super) fn warn(&self) {
        if let Some(warning) = &self.warning {
            log::warn!("{warning}");
        }
    }

    /// Returns whether rows of this table are counted.
    pub(super) fn is_of(&self, table: &RowTable<'_>) -> bool {
        match self.is_sampled {
            true => table.is_samples(),
            false => self.events.contains(&table.name),
        }
    }

    /// Returns the index of the event that a row counts for; `None` if the row is not counted.
    pub(super) fn column(&self, table: &str, row: &BatchRow<'_>) -> Option<usize> {
        let event = match table {
            tables::samples::NAME => row.text("event")?,
            table => table,
        };
        self.events.iter().position(|counted| counted == event)
    }
}

/// Returns the number of decimals in "count/1000", an event name given by the reader of folded stacks.
fn decimals(event: &str) -> u32 {
    let unit = ["count/", "before/", "after/"]
        .iter()
        .find_map(|name| event.strip_prefix(name)?.parse::<u64>().ok());
    unit.and_then(u64::checked_ilog10)
        .filter(|decimals| unit == 10u64.checked_pow(*decimals))
        .unwrap_or(0)
}
