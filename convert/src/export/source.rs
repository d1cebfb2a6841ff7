//! The trace of an export, and the selection of its rows: `--time`, `--event`, `--where`.
//!
//! ```text
//! samples               rows of cycles in --time for which --where is true  ─►  batches
//! sched.sched_switch    not in --event: no rows
//! ```
//! Exporters see only selected rows. Excluded rows are counted here, once for all exporters.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow_array::{BooleanArray, Int64Array, RecordBatch};
use arrow_select::filter::filter_record_batch;
use perfquet_cli::{glob_matches, nearest, suggestion};
use perfquet_events::Error;
use perfquet_trace::align::Placement;
use perfquet_trace::normalize::TimeRange;
use perfquet_trace::recorded::Recorded;
use perfquet_trace::store::{ColumnSchema, Directory, Form};
use perfquet_trace::{symbols, tables};

use super::batch::{column, i64_at, i64_column, text_at};
use super::condition::Condition;
use super::event_types::{self, EventType};

/// The value of `--event` that selects the table of calls.
const CALLS: &str = "calls";

/// The rows to export.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// Relative to the first event of the trace.
    pub(crate) time: Option<TimeRange>,
    /// Names or patterns; empty for all events.
    pub(crate) events: Vec<String>,
    pub(crate) condition: Option<Condition>,
}

/// A trace to export.
pub(crate) struct Source<'t> {
    pub(crate) trace: &'t Directory,
    /// Its name, without an ending.
    pub(crate) name: String,
    /// Sources of names for addresses inside events.
    pub(super) symbols: symbols::Options,
    /// Called with the number of rows read since the last call.
    progress: &'t dyn Fn(u64),
    event_types: Vec<EventType>,
    tables: Vec<RowTable<'t>>,
    /// First nanosecond, and first one past the end.
    window: Option<(i64, i64)>,
    condition: Option<Condition>,
    /// The selected sampled events; `None` for all.
    sampled: Option<BTreeSet<String>>,
    /// Its place on the timeline of several traces, and its number among them; `None` for one trace.
    placed: Option<(Placement, usize)>,
    /// By table and form: a table that is read twice is counted once.
    excluded: RefCell<BTreeMap<usize, Excluded>>,
    not_in_events: u64,
}

/// A table whose rows have timestamps: `samples`, `calls`, or an event's table. If an event changed its fields, there
/// is one for each form.
pub(super) struct RowTable<'t> {
    /// The name in the manifest.
    pub(super) name: String,
    pub(super) columns: Vec<ColumnSchema>,
    form: Form<'t>,
    number: usize,
}

impl RowTable<'_> {
    pub(super) fn is_samples(&self) -> bool {
        self.name == tables::samples::NAME
    }

    pub(super) fn is_calls(&self) -> bool {
        self.name == tables::calls::NAME
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|known| known.name == column)
    }
}

/// Numbers of excluded rows, by the first reason that applies: a table that is not selected, no time, time, event, condition.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Excluded {
    pub(crate) events: u64,
    /// Rows without a time, if there is a time range.
    pub(crate) untimed: u64,
    pub(crate) time: u64,
    pub(crate) condition: u64,
}

impl<'t> Source<'t> {
    /// Opens a trace. Fails if a name or a column of the selection is unknown.
    pub(crate) fn open(
        trace: &'t Directory,
        selection: &Selection,
        symbols: symbols::Options,
        progress: &'t dyn Fn(u64),
    ) -> Result<Source<'t>> {
        let event_types = event_types::read(trace)?;
        let chosen = ChosenEvents::of(&event_types, trace, &selection.events)?;
        let name = trace.path().file_stem().unwrap_or_default();
        let mut source = Source {
            trace,
            name: name.to_string_lossy().into_owned(),
            symbols,
            progress,
            event_types,
            tables: Vec::new(),
            window: selection.time.map(|time| window(trace, time)),
            condition: selection
                .condition
                .clone()
                .map(|condition| condition.of_trace(first_time(trace).unwrap_or(0))),
            sampled: chosen.sampled.clone(),
            placed: None,
            excluded: RefCell::default(),
            not_in_events: 0,
        };
        for (name, table) in trace.tables().filter(|(name, _)| has_times(name)) {
            if !chosen.has_table(name) {
                source.not_in_events = source.not_in_events.saturating_add(table.rows());
                continue;
            }
            for form in trace.forms(name) {
                source.tables.push(RowTable {
                    name: name.to_owned(),
                    columns: form.columns.clone(),
                    form,
                    number: source.tables.len(),
                });
            }
        }
        source.check_columns()?;
        Ok(source)
    }

    /// Places the trace on the timeline of several, of which `begin` is the first time, and selects a time range of that timeline.
    pub(crate) fn place(
        &mut self,
        placement: Placement,
        number: usize,
        time: Option<TimeRange>,
        begin: i64,
    ) -> Result<()> {
        let own = |offset: Option<i64>, missing: i64| match offset {
            Some(offset) => placement
                .first_at(begin.saturating_add(offset))
                .unwrap_or(i64::MAX),
            None => missing,
        };
        self.window = time.map(|time| (own(time.start, i64::MIN), own(time.end, i64::MAX)));
        self.placed = Some((placement, number));
        let ends = [self.first_time_of_own(), self.last_time_of_own()];
        match ends.iter().all(|&time| placement.place(time).is_some()) {
            true => Ok(()),
            false => bail!("{}: its times are too far away", self.name),
        }
    }

    /// Whether the trace is one of several on a timeline.
    pub(super) fn is_placed(&self) -> bool {
        self.placed.is_some()
    }

    /// The number of the trace among several; 0 for the first, and for one trace.
    pub(super) fn number(&self) -> usize {
        self.placed.map_or(0, |(_, number)| number)
    }

    /// The time of the timeline at which something was; that of the trace if it is alone.
    pub(super) fn at(&self, time: i64) -> i64 {
        match self.placed {
            // Times outside of the trace, such as the start of a process, may be beyond 64 bits.
            Some((placement, _)) => placement.place(time).unwrap_or(time),
            None => time,
        }
    }

    /// Moves the times of a batch to the timeline.
    fn on_timeline(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let Some((place, times)) = self
            .placed
            .and(batch.schema_ref().column_with_name("time"))
            .and_then(|(place, _)| Some((place, i64_column(&batch, "time")?)))
        else {
            return Ok(batch);
        };
        let times: Int64Array = times.iter().map(|time| Some(self.at(time?))).collect();
        let mut columns = batch.columns().to_vec();
        columns[place] = Arc::new(times);
        Ok(RecordBatch::try_new(batch.schema(), columns)?)
    }

    /// Rejects a condition on a column that no selected table has.
    fn check_columns(&self) -> Result<()> {
        let Some(condition) = &self.condition else {
            return Ok(());
        };
        for wanted in condition.columns() {
            if self.tables.iter().any(|table| table.has(wanted)) {
                continue;
            }
            let known = self.tables.iter().flat_map(|table| &table.columns);
            let known: BTreeSet<&str> = known.map(|column| column.name.as_str()).collect();
            let near = nearest(wanted, known);
            let hint = match near.is_empty() {
                true => "list columns with: perfquet-query tables TRACE".to_owned(),
                false => suggestion(&near),
            };
            bail!("--where: no exported table has a column {wanted}\nhint: {hint}");
        }
        Ok(())
    }

    /// Returns the declared event types that are selected.
    pub(super) fn event_types(&self) -> impl Iterator<Item = &EventType> {
        self.event_types
            .iter()
            .filter(|event| match event.is_sampled() {
                true => self.holds_sampled(&event.name),
                false => self.tables.iter().any(|table| table.name == event.table),
            })
    }

    fn holds_sampled(&self, event: &str) -> bool {
        let sampled = self.sampled.as_ref();
        sampled.is_none_or(|sampled| sampled.contains(event))
    }

    /// Returns `sched:sched_switch` for the table of that event.
    pub(super) fn event_name(&self, table: &RowTable<'_>) -> String {
        let mut declared = self.event_types.iter();
        match declared.find(|event| event.table == table.name && !event.is_sampled()) {
            Some(event) => event.full_name(),
            None => table.name.trim_start_matches("events/").replace('/', ":"),
        }
    }

    /// Returns the kind of an event's table, as in `event_types`.
    pub(super) fn event_kind(&self, table: &RowTable<'_>) -> &str {
        let mut declared = self.event_types.iter();
        let declared = declared.find(|event| event.table == table.name);
        declared.map_or("", |event| event.kind.as_str())
    }

    /// Returns `samples`, if selected.
    pub(super) fn samples(&self) -> impl Iterator<Item = &RowTable<'t>> {
        self.tables.iter().filter(|table| table.is_samples())
    }

    /// Returns `calls`, if selected.
    pub(super) fn calls(&self) -> impl Iterator<Item = &RowTable<'t>> {
        self.tables.iter().filter(|table| table.is_calls())
    }

    /// Returns the selected tables of tracepoints, probes and other events.
    pub(super) fn events(&self) -> impl Iterator<Item = &RowTable<'t>> {
        let is_event = |table: &&RowTable<'_>| !table.is_samples() && !table.is_calls();
        self.tables.iter().filter(is_event)
    }

    /// Returns the number of rows of a table before `--time` and `--where`, for exporters that omit it.
    pub(super) fn table_rows(&self, table: &RowTable<'_>) -> u64 {
        table.form.rows()
    }

    /// Returns the number of aggregates, which have no rows in time.
    pub(super) fn aggregate_rows(&self) -> u64 {
        let table = self.trace.table(tables::aggregates::NAME);
        table.map_or(0, |table| table.rows())
    }

    /// Returns the number of rows of `calls` before `--time` and `--where`.
    pub(super) fn call_rows(&self) -> u64 {
        let rows = self.calls().map(|table| table.form.rows());
        rows.fold(0, u64::saturating_add)
    }

    /// Returns the selected rows of a table, in order. With `wanted`, only those of these columns that the table has
    /// are read. Parts and row groups outside of `--time` are not read.
    pub(super) fn rows<'s>(
        &'s self,
        table: &'s RowTable<'_>,
        wanted: Option<&[&str]>,
    ) -> Result<TableRows<'s>> {
        let wanted: Option<Vec<&str>> = wanted.map(|wanted| {
            let mut columns: BTreeSet<&str> = wanted.iter().copied().collect();
            let condition = self.condition.iter().flat_map(Condition::columns);
            columns.extend(condition.map(String::as_str));
            columns.extend(self.window.map(|_| "time"));
            if table.is_samples() && self.sampled.is_some() {
                columns.insert("event");
            }
            columns.into_iter().filter(|name| table.has(name)).collect()
        });
        let mut excluded = Excluded::default();
        let batches: Batches = match (self.window, &wanted) {
            (Some(window), wanted) => {
                let wanted = wanted.as_deref();
                let (rows, skipped) = self.trace.read_form_between(&table.form, wanted, window)?;
                (self.progress)(skipped);
                excluded.time = skipped;
                Box::new(rows)
            }
            (None, Some(wanted)) => Box::new(self.trace.read_form_columns(&table.form, wanted)?),
            (None, None) => Box::new(self.trace.read_form(&table.form)?),
        };
        Ok(TableRows {
            source: self,
            table,
            batches,
            excluded,
        })
    }

    /// Returns every table with its columns and rows: selected rows of samples, calls and events, and all rows of other
    /// tables.
    pub(super) fn all_tables(&self) -> Result<Vec<TableContents<'_>>> {
        let mut tables: Vec<TableContents<'_>> = Vec::new();
        for table in &self.tables {
            let rows = Box::new(self.rows(table, None)?);
            tables.push((table.name.clone(), table.columns.clone(), rows));
        }
        for (name, _) in self.trace.tables().filter(|(name, _)| !has_times(name)) {
            for form in self.trace.forms(name) {
                let rows = self.trace.read_form(&form)?;
                let rows = Box::new(rows.map(|batch| Ok(batch?)));
                tables.push((name.to_owned(), form.columns, rows));
            }
        }
        Ok(tables)
    }

    /// Returns whether a row without other columns, such as a loss, is in `--time`.
    pub(super) fn is_in_time(&self, time: Option<i64>) -> bool {
        self.window
            .is_none_or(|(start, end)| time.is_some_and(|time| (start..end).contains(&time)))
    }

    /// Returns whether `--time` or `--where` limits the rows.
    pub(super) fn is_limited(&self) -> bool {
        self.window.is_some() || self.condition.is_some()
    }

    /// Returns the time of the first event in the selection, or the beginning of `--time`.
    pub(super) fn first_time(&self) -> i64 {
        self.at(self.first_time_of_own())
    }

    fn first_time_of_own(&self) -> i64 {
        let first = first_time(self.trace).unwrap_or(0);
        self.window.map_or(first, |(start, _)| first.max(start))
    }

    /// Returns how long the selection was recorded.
    pub(super) fn length(&self) -> i64 {
        let (first, last) = (self.first_time_of_own(), self.last_time_of_own());
        let facts = &self.trace.manifest().facts.other;
        let fact = |name: &str| facts.get(name).map(String::as_str);
        let recorded = Recorded::of(fact, Some((first, last.max(first))));
        let (from, to) = self.window.unwrap_or((i64::MIN, i64::MAX));
        recorded.map_or(0, |recorded| {
            recorded.length_within(from, to.saturating_sub(1))
        })
    }

    /// The time of the last event in the selection.
    fn last_time_of_own(&self) -> i64 {
        let tables = self.trace.tables().filter(|(name, _)| has_times(name));
        let last = tables.filter_map(|(_, table)| table.time_range());
        let last = last.map(|(_, last)| last).max().unwrap_or(0);
        self.window
            .map_or(last, |(_, end)| last.min(end.saturating_sub(1)))
    }

    /// Returns the counts of excluded rows so far.
    pub(crate) fn excluded(&self) -> Excluded {
        let mut sum = Excluded {
            events: self.not_in_events,
            ..Excluded::default()
        };
        for excluded in self.excluded.borrow().values() {
            sum.events += excluded.events;
            sum.untimed += excluded.untimed;
            sum.time += excluded.time;
            sum.condition += excluded.condition;
        }
        sum
    }
}

/// A table's name in the manifest, its columns and its rows.
pub(super) type TableContents<'s> = (
    String,
    Vec<ColumnSchema>,
    Box<dyn Iterator<Item = Result<RecordBatch>> + 's>,
);

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, Error>>>;

/// The selected rows of a table.
pub(super) struct TableRows<'s> {
    source: &'s Source<'s>,
    table: &'s RowTable<'s>,
    batches: Batches,
    excluded: Excluded,
}

impl TableRows<'_> {
    /// Removes the rows that are not selected.
    fn select(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let source = self.source;
        let sampled = source.sampled.as_ref().filter(|_| self.table.is_samples());
        if source.window.is_none() && source.condition.is_none() && sampled.is_none() {
            return Ok(batch);
        }
        let mut kept = vec![true; batch.num_rows()];
        // First, since rows that are not read are counted as outside of it.
        if source.window.is_some() {
            let times = i64_column(&batch, "time");
            self.excluded.untimed += drop_rows(&mut kept, |row| i64_at(times, row).is_some());
            let is_kept = |row| source.is_in_time(i64_at(times, row));
            self.excluded.time += drop_rows(&mut kept, is_kept);
        }
        if let Some(sampled) = sampled {
            let events = column(&batch, "event");
            let is_kept = |row| {
                let event = events.and_then(|events| text_at(events, row));
                event.is_some_and(|event| sampled.contains(event))
            };
            self.excluded.events += drop_rows(&mut kept, is_kept);
        }
        if let Some(condition) = &source.condition {
            let is_true = condition.evaluate(&batch);
            let is_true = is_true.map_err(|error| {
                anyhow::anyhow!("--where: {error} ({})", sql_name(&self.table.name))
            })?;
            self.excluded.condition += drop_rows(&mut kept, |row| is_true[row]);
        }
        match kept.iter().all(|kept| *kept) {
            true => Ok(batch),
            false => Ok(filter_record_batch(&batch, &BooleanArray::from(kept))?),
        }
    }
}

impl Iterator for TableRows<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            let Some(batch) = self.batches.next() else {
                let mut excluded = self.source.excluded.borrow_mut();
                excluded.insert(self.table.number, self.excluded);
                return None;
            };
            let batch = batch.map_err(anyhow::Error::from).and_then(|batch| {
                (self.source.progress)(batch.num_rows() as u64);
                let selected = self.select(batch)?;
                self.source.on_timeline(selected)
            });
            // An error ends the export.
            if batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0) {
                continue;
            }
            return Some(batch);
        }
    }
}

/// Clears the rows that are not kept; returns how many of them were set.
fn drop_rows(kept: &mut [bool], is_kept: impl Fn(usize) -> bool) -> u64 {
    let mut dropped = 0;
    for (row, kept) in kept.iter_mut().enumerate() {
        if *kept && !is_kept(row) {
            *kept = false;
            dropped += 1;
        }
    }
    dropped
}

/// The events selected by `--event`.
struct ChosenEvents {
    sampled: Option<BTreeSet<String>>,
    /// Names in the manifest; `None` for all.
    tables: Option<BTreeSet<String>>,
}

impl ChosenEvents {
    fn of(types: &[EventType], trace: &Directory, patterns: &[String]) -> Result<ChosenEvents> {
        if patterns.is_empty() {
            return Ok(ChosenEvents {
                sampled: None,
                tables: None,
            });
        }
        let (mut sampled, mut tables) = (BTreeSet::new(), BTreeSet::new());
        for pattern in patterns {
            let fits = |name: &str| glob_matches(pattern, name);
            let mut is_known = false;
            for event in types {
                let sql = sql_name(&event.table);
                if !fits(&event.name) && !fits(&event.full_name()) && !fits(&sql) {
                    continue;
                }
                is_known = true;
                if event.is_sampled() {
                    sampled.insert(event.name.clone());
                }
                tables.insert(event.table.clone());
            }
            if fits(CALLS) && trace.table(tables::calls::NAME).is_some() {
                is_known = true;
                tables.insert(tables::calls::NAME.to_owned());
            }
            if !is_known {
                let names = types.iter().map(EventType::full_name);
                let names: BTreeSet<String> = names.chain([CALLS.to_owned()]).collect();
                let near = nearest(pattern, names.iter().map(String::as_str));
                let hint = match near.is_empty() {
                    true => "list events with: perfquet-query tables TRACE".to_owned(),
                    false => suggestion(&near),
                };
                bail!("--event {pattern}: no such event in this trace\nhint: {hint}");
            }
        }
        Ok(ChosenEvents {
            sampled: Some(sampled),
            tables: Some(tables),
        })
    }

    fn has_table(&self, name: &str) -> bool {
        let tables = self.tables.as_ref();
        tables.is_none_or(|tables| tables.contains(name))
    }
}

/// Returns `sched.sched_switch` for the table of that event.
pub(super) fn sql_name(table: &str) -> String {
    let name = table.strip_prefix("events/").unwrap_or(table);
    name.replacen('/', ".", 1)
}

fn has_times(table: &str) -> bool {
    table == tables::samples::NAME || table == tables::calls::NAME || table.starts_with("events/")
}

pub(crate) fn first_time(trace: &Directory) -> Option<i64> {
    let tables = trace.tables().filter(|(name, _)| has_times(name));
    let ranges = tables.filter_map(|(_, table)| table.time_range());
    ranges.map(|(first, _)| first).min()
}

/// Converts the range to `time` on the trace's clock: the first nanosecond and the first one past the end.
fn window(trace: &Directory, time: TimeRange) -> (i64, i64) {
    let first = first_time(trace).unwrap_or(0);
    let at = |offset: i64| first.saturating_add(offset);
    (
        time.start.map_or(i64::MIN, at),
        time.end.map_or(i64::MAX, at),
    )
}
