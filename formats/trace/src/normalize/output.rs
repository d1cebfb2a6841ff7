//! State that outlives one input: the writer, the IDs of stacks and frames, the tables of events.
//!
//! Several inputs may go into one trace directory. Each has its own threads, mappings and frames; rows and IDs
//! continue.

use std::sync::Arc;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{EventKind, EventType, Extras, Field, Place, Problem};

use super::event_tables::{EventTables, Target};
use super::fixed_tables::FixedTables;
use super::heads::Head;
use super::hits::{Decoder, Hits};
use super::life::Life;
use super::problems::Problems;
use super::sample_rows::{SampleRow, SampleRows};
use super::selected::Selected;
use super::spans::InputSummary;
use super::texts::SharedTexts;
use crate::Report;
use crate::count::{counted, grouped};
use crate::store::{Facts, Names, Source, TableId, Writer};
use crate::symbols;
use crate::tables;

/// The trace directory being written.
pub struct Output {
    pub(crate) writer: Writer,
    pub(crate) fixed: FixedTables,
    /// Hits that are not with the writer yet.
    pub(crate) hits: Hits,
    samples: SampleRows,
    /// Names of the events in `samples`.
    pub(crate) event_names: SharedTexts,
    pub(crate) next_ids: NextIds,
    /// Facts for the manifest.
    pub facts: Facts,
    pub(crate) problems: Problems,
    /// Symbolization results, input by input.
    pub(crate) symbols: Vec<symbols::Report>,
    /// Results of unwinding copied stacks, input by input.
    pub(crate) unwound: Vec<symbols::UnwindCounts>,
    events: EventTables,
    /// The current input.
    pub(crate) source: String,
    types: EventTypes,
    /// Rows of samples and event tables, of losses.
    pub(crate) counts: Counts,
    /// Whether the inputs are files of one recording: threads and mappings of one apply to the next.
    pub is_one_recording: bool,
    /// The threads and mappings, while they wait for the next input.
    pub(crate) life: Option<Life>,
    /// The selection, likewise.
    pub(crate) selected: Option<Selected>,
    /// What the last input said of its recording.
    pub(crate) summary: InputSummary,
}

/// IDs of the next rows of tables that others refer to.
pub(crate) struct NextIds {
    pub(crate) frame: u32,
    pub(crate) stack: u32,
    pub(crate) call: i64,
    pub(crate) aggregate: i64,
}

/// Counts for the closing line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows of `samples` and of the events' tables.
    pub events: u64,
    /// Of these, rows about the recording itself: namespaces, programs, switches.
    pub of_recorder: u64,
    /// Rows of `calls`.
    pub calls: u64,
    /// Rows of `aggregates`.
    pub aggregates: u64,
    /// Rows of `counts`.
    pub counter_values: u64,
    /// Events known to be missing.
    pub lost: u64,
    /// Events outside the requested time; they too have a row of `losses`.
    pub left_out: u64,
    /// Calls and hits excluded by the recorder's selection; they have rows of `losses`, one per reason.
    pub filtered: u64,
    /// Rows of `losses`.
    pub losses: u64,
    /// Of these, rows of events whose number is unknown.
    pub uncounted_losses: u64,
    /// Programs whose recording the kernel ended at their exec, by name.
    pub unrecorded_programs: u64,
    /// Number of read errors.
    pub problems: u64,
    /// Rows of `stacks`.
    pub stacks: u64,
    /// Rows of `frames`.
    pub frames: u64,
    /// Rows of `frames` with a function.
    pub named_frames: u64,
}

impl Counts {
    /// Rows of events, without those about the recording itself.
    pub fn recorded_events(&self) -> u64 {
        self.events.saturating_sub(self.of_recorder)
    }

    /// A message about programs that were not recorded, if there are any.
    pub fn unrecorded_sentence(&self) -> Option<String> {
        (self.unrecorded_programs > 0).then(|| {
            format!(
                "{} not recorded after exec: set-user-ID, with capabilities, or not readable; see table losses",
                counted(self.unrecorded_programs, "program")
            )
        })
    }

    /// How many events were lost: "575", "at least 575", "some".
    pub fn lost_text(&self) -> String {
        match (self.lost, self.uncounted_losses) {
            (lost, 0) => grouped(lost),
            (0, _) => "some".to_owned(),
            (lost, _) => format!("at least {}", grouped(lost)),
        }
    }
}

/// The rows of `event_types`.
#[derive(Default)]
struct EventTypes {
    rows: Vec<TypeRow>,
    /// The key of a row → its index in `rows`.
    places: HashMap<TypeKey, usize>,
}

/// A row of `event_types`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TypeRow {
    pub(crate) event: EventType,
    pub(crate) target: Option<Target>,
    pub(crate) rows: u64,
    pub(crate) lost: Option<u64>,
}

/// Table, event, kind, period, frequency, filter.
type TypeKey = (
    Option<TableId>,
    String,
    EventKind,
    Option<u64>,
    Option<u64>,
    Option<String>,
);

impl Output {
    /// Creates the tables that every trace has.
    pub fn new(mut writer: Writer) -> Result<Output, Error> {
        let fixed = FixedTables {
            samples: writer.add_table(tables::samples::schema())?,
            stacks: writer.add_table(tables::stacks::schema())?,
            frames: writer.add_table(tables::frames::schema())?,
            threads: writer.add_table(tables::threads::schema())?,
            mappings: writer.add_table(tables::mappings::schema())?,
            calls: writer.add_table(tables::calls::schema())?,
            aggregates: writer.add_table(tables::aggregates::schema())?,
            buckets: writer.add_table(tables::buckets::schema())?,
            losses: writer.add_table(tables::losses::schema())?,
            problems: writer.add_table(tables::problems::schema())?,
            event_types: writer.add_table(tables::event_types::schema())?,
            counts: None,
            open_files: None,
            code: None,
        };
        Ok(Output {
            writer,
            fixed,
            hits: Hits::default(),
            samples: SampleRows::default(),
            event_names: SharedTexts::default(),
            next_ids: NextIds {
                frame: 1,
                stack: 1,
                call: 1,
                aggregate: 1,
            },
            facts: Facts::default(),
            problems: Problems::default(),
            symbols: Vec::new(),
            unwound: Vec::new(),
            events: EventTables::default(),
            source: String::new(),
            types: EventTypes::default(),
            counts: Counts::default(),
            is_one_recording: false,
            life: None,
            selected: None,
            summary: InputSummary::default(),
        })
    }

    /// The destination of an event's rows: the form with its fields, in its table; created if necessary. Several
    /// declarations of one event with the same fields, also from several inputs, share a form. `None` if the event has
    /// too many forms.
    pub(crate) fn target(
        &mut self,
        event: &EventType,
        extras: Extras,
    ) -> Result<Option<Target>, Error> {
        if event.kind.is_sampled() {
            return Ok(Some(Target {
                id: self.fixed.samples,
                name: tables::samples::NAME.to_owned(),
                extras,
            }));
        }
        let (target, changes) = self.events.target(event, extras, &mut self.writer)?;
        for change in changes {
            let message = format!("{}:{}: {change}", event.system, event.name);
            self.problems.add(
                &self.source,
                &Problem {
                    place: Place::Whole,
                    message: &message,
                    count: 1,
                },
            );
        }
        Ok(target)
    }

    /// Adds a hit to a table.
    #[inline]
    pub(crate) fn push_hit(
        &mut self,
        target: (TableId, &Arc<Decoder>),
        comms: &Names,
        head: Head,
        payload: &[u8],
        period: Option<i64>,
    ) -> Result<(), Error> {
        let Output { hits, writer, .. } = self;
        hits.push(writer, target, comms, head, payload, period)
    }

    /// Adds a row to `samples`.
    #[inline]
    pub(crate) fn push_sample_row(&mut self, row: SampleRow, comms: &Names) -> Result<(), Error> {
        let to = (&mut self.writer, self.fixed.samples);
        self.samples
            .push(row, (comms, self.event_names.names()), to)
    }

    /// Passes the hits of a table on; needed before anything else is added to it.
    #[inline]
    pub(crate) fn hand_over_hits(&mut self, table: TableId) -> Result<(), Error> {
        if table == self.fixed.samples {
            return self.samples.hand_over((&mut self.writer, table));
        }
        self.hits.hand_over(&mut self.writer, table)
    }

    /// Passes the hits of all tables on.
    pub(crate) fn hand_over_all_hits(&mut self) -> Result<(), Error> {
        self.hand_over_hits(self.fixed.samples)?;
        self.hits.hand_over_all(&mut self.writer)
    }

    /// Counts an event type; equal declarations become one row.
    pub(crate) fn add_type(&mut self, row: TypeRow) {
        self.types.add(row);
    }

    /// Whether no event, call, aggregate or count was written.
    pub fn is_empty(&self) -> bool {
        let counts = &self.counts;
        counts.events + counts.calls + counts.aggregates + counts.counter_values == 0
    }

    /// Writes the remaining rows, and completes the trace. The report lacks the facts known only to the inputs.
    pub fn finish(mut self) -> Result<Report, Error> {
        self.hand_over_all_hits()?;
        if let Some(mut life) = self.life.take() {
            life.write_all(&mut self.writer, &self.fixed)?;
        }
        for row in std::mem::take(&mut self.types.rows) {
            if !is_carrier(&row) {
                self.write_type(&row)?;
            }
        }
        self.counts.problems = self.problems.write(&mut self.writer, self.fixed.problems)?;
        let summary = self.writer.finish(self.facts)?;
        Ok(Report {
            rows: summary.rows,
            counts: self.counts,
            output_bytes: summary.bytes,
            symbols: self.symbols,
            unwound: self.unwound,
            ..Report::default()
        })
    }

    /// Passes the facts that an input has declared so far to the store.
    pub(crate) fn know(&mut self, input: &Facts) -> Result<(), Error> {
        let known = &self.facts;
        self.writer.know(Facts {
            clock: known.clock.clone().or_else(|| input.clock.clone()),
            wall_offset: known.wall_offset.or(input.wall_offset),
            host: known.host.clone().or_else(|| input.host.clone()),
            ..Facts::default()
        })
    }

    /// Adds an input to the manifest.
    pub fn add_source(&mut self, source: Source) {
        self.facts.sources.push(source);
    }

    fn write_type(&mut self, row: &TypeRow) -> Result<(), Error> {
        let event = &row.event;
        let fields: Vec<&[u8]> = event.fields.iter().map(declaration).collect();
        tables::event_types::Row {
            system: event.system.as_bytes(),
            event: event.name.as_bytes(),
            table_name: row
                .target
                .as_ref()
                .map_or(&[], |target| target.name.as_bytes()),
            kind: event.kind.as_str().as_bytes(),
            period: event.period.and_then(|period| period.try_into().ok()),
            frequency: event.frequency.and_then(|rate| rate.try_into().ok()),
            filter: event.filter.as_deref().map(str::as_bytes),
            print_format: event.print_format.as_deref().map(str::as_bytes),
            fields: (!fields.is_empty()).then_some(&fields),
            rows: row.rows.try_into().unwrap_or(i64::MAX),
            lost: row.lost.map(|lost| lost.try_into().unwrap_or(i64::MAX)),
        }
        .push(self.writer.rows(self.fixed.event_types));
        self.writer.end_row(self.fixed.event_types)
    }
}

impl EventTypes {
    /// Adds a row; equal declarations become one.
    fn add(&mut self, row: TypeRow) {
        let key = (
            row.target.as_ref().map(|target| target.id),
            format!("{}:{}", row.event.system, row.event.name),
            row.event.kind,
            row.event.period,
            row.event.frequency,
            row.event.filter.clone(),
        );
        let place = *self.places.entry(key).or_insert(self.rows.len());
        match self.rows.get_mut(place) {
            Some(known) => {
                known.rows += row.rows;
                known.lost = match (known.lost, row.lost) {
                    (None, lost) | (lost, None) => lost,
                    (Some(a), Some(b)) => Some(a.saturating_add(b)),
                };
            }
            None => self.rows.push(row),
        }
    }
}

/// Whether the event is the kernel's `dummy`, which has no hits: it carries the mappings and comms. Their losses are
/// part of the total.
fn is_carrier(row: &TypeRow) -> bool {
    let name = row.event.name.split(':').next();
    let is_empty = row.rows == 0 && row.lost.unwrap_or(0) == 0;
    row.event.kind == EventKind::Software && name == Some("dummy") && is_empty
}

fn declaration(field: &Field) -> &[u8] {
    if field.declaration.is_empty() {
        field.name.as_bytes()
    } else {
        field.declaration.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use perfquet_events::event::{Event, Loss};

    use super::super::tests::{Trace, send};

    #[test]
    fn throttled_events_are_not_lost() {
        let lost = |losses: &[(Option<u64>, &str)]| {
            let mut trace = Trace::new();
            trace.input("a", |sink| {
                for &(count, reason) in losses {
                    let loss = Loss {
                        time: Some(1),
                        cpu: None,
                        event: None,
                        count,
                        in_all: None,
                        reason,
                    };
                    send(sink, Event::Loss(loss));
                }
            });
            trace.finish().counts.lost_text()
        };
        assert_eq!(lost(&[(None, Loss::THROTTLED)]), "0");
        assert_eq!(lost(&[(None, "the recording ended early")]), "some");
        let both = [(Some(5000), "ring full"), (None, "buffer overrun")];
        assert_eq!(lost(&both), "at least 5,000");
    }
}
