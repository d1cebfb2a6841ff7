//! What outlives one input: the writer, the numbering of stacks and frames, the tables of events.
//!
//! Several inputs may go into one trace directory. Each has threads, mappings and frames of its own; the rows
//! and their numbers continue.

use hashbrown::HashMap;

use super::columns::{event_schema, sql_name, table_name};
use super::life::Life;
use super::problems::Problems;
use super::selected::Selected;
use crate::Error;
use crate::event::{EventKind, EventType, Extras, Field};
use crate::store::{Facts, Source, Summary, TableId, Writer};
use crate::symbols;
use crate::tables;

/// Tables that one name of an event may lead to: another kernel's fields are another table.
const FORMS: u32 = 100;

/// The trace directory that is being filled.
pub(crate) struct Output {
    pub(crate) writer: Writer,
    pub(crate) fixed: FixedTables,
    /// Id of the next frame and of the next stack.
    pub(crate) next_frame: u32,
    pub(crate) next_stack: u32,
    /// Number of the next row of `calls` and of `aggregates`.
    pub(crate) next_call: i64,
    pub(crate) next_aggregate: i64,
    pub(crate) facts: Facts,
    pub(crate) problems: Problems,
    /// What could not be named, input by input.
    pub(crate) symbols: Vec<symbols::Report>,
    /// How the walks through copied stacks ended, input by input.
    pub(crate) unwound: Vec<symbols::UnwindCounts>,
    events: Vec<EventTable>,
    /// Name of a table → its place in `events`.
    names: HashMap<String, usize>,
    types: Vec<TypeRow>,
    /// What makes a row of `event_types` another one → its place in `types`.
    type_places: HashMap<TypeKey, usize>,
    /// Rows of samples and event tables, of losses.
    pub(crate) counts: Counts,
    /// The inputs are files of one recording: what one tells of threads and mappings holds for the next.
    pub(crate) is_one_recording: bool,
    /// That, while it waits for the next.
    pub(crate) life: Option<Life>,
    /// Likewise: from when to when.
    pub(crate) selected: Option<Selected>,
}

/// What the closing line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows of `samples` and of the events' tables.
    pub events: u64,
    /// Of these, rows of what a recorder or the kernel reports of the recording itself: namespaces, programs, switches.
    pub of_recorder: u64,
    /// Rows of `calls`.
    pub calls: u64,
    /// Rows of `aggregates`.
    pub aggregates: u64,
    /// Events known to be missing.
    pub lost: u64,
    /// Events outside the time asked for; they too have a row of `losses`.
    pub left_out: u64,
    /// Calls and hits that the recorder was asked to leave out; they have rows of `losses`, one for each reason.
    pub filtered: u64,
    /// Rows of `losses`.
    pub losses: u64,
    /// Places that could not be read.
    pub problems: u64,
    /// Rows of `stacks`.
    pub stacks: u64,
    /// Rows of `frames`.
    pub frames: u64,
    /// Rows of `frames` that have a function.
    pub named_frames: u64,
}

/// The tables that every trace has and that are filled here.
#[derive(Clone, Copy)]
pub(crate) struct FixedTables {
    pub(crate) samples: TableId,
    pub(crate) stacks: TableId,
    pub(crate) frames: TableId,
    pub(crate) threads: TableId,
    pub(crate) mappings: TableId,
    pub(crate) calls: TableId,
    pub(crate) aggregates: TableId,
    pub(crate) buckets: TableId,
    pub(crate) losses: TableId,
    pub(crate) problems: TableId,
    pub(crate) event_types: TableId,
}

/// A table that events go to, with what tells whether another event fits into it.
struct EventTable {
    id: TableId,
    name: String,
    event: (String, String),
    fields: Vec<Field>,
    extras: Extras,
}

/// A row of `event_types`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TypeRow {
    pub(crate) event: EventType,
    pub(crate) table: String,
    pub(crate) rows: u64,
    pub(crate) lost: Option<u64>,
}

/// Table, event, kind, period, frequency, filter.
type TypeKey = (
    String,
    String,
    EventKind,
    Option<u64>,
    Option<u64>,
    Option<String>,
);

/// Where the rows of an event go.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) id: TableId,
    /// As SQL names it.
    pub(crate) name: String,
    /// The extras that the table has columns for.
    pub(crate) extras: Extras,
}

impl Output {
    pub(crate) fn new(mut writer: Writer) -> Result<Output, Error> {
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
        };
        Ok(Output {
            writer,
            fixed,
            next_frame: 1,
            next_stack: 1,
            next_call: 1,
            next_aggregate: 1,
            facts: Facts::default(),
            problems: Problems::default(),
            symbols: Vec::new(),
            unwound: Vec::new(),
            events: Vec::new(),
            names: HashMap::new(),
            types: Vec::new(),
            type_places: HashMap::new(),
            counts: Counts::default(),
            is_one_recording: false,
            life: None,
            selected: None,
        })
    }

    /// The table of an event, made if there is none that it fits into: the same event with the same fields may be
    /// declared several times, and come from several inputs. `None`: it came in more forms than anybody has.
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
        let plain = table_name(event);
        for number in 1..=FORMS {
            let name = match number {
                1 => plain.clone(),
                _ => format!("{plain}_{number}"),
            };
            // Columns differ, or another event has a name that looks the same in a path.
            match self
                .names
                .get(&name)
                .and_then(|&place| self.events.get(place))
            {
                Some(table) if table.holds(event, extras) => return Ok(Some(table.target())),
                Some(_) => {}
                None => return self.add_event_table(name, event, extras).map(Some),
            }
        }
        Ok(None)
    }

    fn add_event_table(
        &mut self,
        name: String,
        event: &EventType,
        extras: Extras,
    ) -> Result<Target, Error> {
        let id = self.writer.add_table(event_schema(&name, event, extras))?;
        let table = EventTable {
            id,
            name: sql_name(&name),
            event: (event.system.clone(), event.name.clone()),
            fields: event.fields.clone(),
            extras,
        };
        let target = table.target();
        self.names.insert(name, self.events.len());
        self.events.push(table);
        Ok(target)
    }

    /// Counts what was recorded; one declared alike in several places is one row.
    pub(crate) fn add_type(&mut self, row: TypeRow) {
        let key = (
            row.table.clone(),
            format!("{}:{}", row.event.system, row.event.name),
            row.event.kind,
            row.event.period,
            row.event.frequency,
            row.event.filter.clone(),
        );
        let place = *self.type_places.entry(key).or_insert(self.types.len());
        match self.types.get_mut(place) {
            Some(known) => {
                known.rows += row.rows;
                known.lost = match (known.lost, row.lost) {
                    (None, lost) | (lost, None) => lost,
                    (Some(a), Some(b)) => Some(a.saturating_add(b)),
                };
            }
            None => self.types.push(row),
        }
    }

    /// Writes what is left, and makes the trace whole.
    pub(crate) fn finish(mut self) -> Result<(Summary, Counts), Error> {
        if let Some(mut life) = self.life.take() {
            life.write_all(&mut self)?;
        }
        for row in std::mem::take(&mut self.types) {
            if !is_carrier(&row) {
                self.write_type(&row)?;
            }
        }
        self.counts.problems = self.problems.write(&mut self.writer, self.fixed.problems)?;
        let counts = self.counts;
        Ok((self.writer.finish(self.facts)?, counts))
    }

    /// An input that went into it.
    pub(crate) fn add_source(&mut self, source: Source) {
        self.facts.sources.push(source);
    }

    fn write_type(&mut self, row: &TypeRow) -> Result<(), Error> {
        let event = &row.event;
        let fields: Vec<&[u8]> = event.fields.iter().map(declaration).collect();
        tables::event_types::Row {
            system: event.system.as_bytes(),
            event: event.name.as_bytes(),
            table: row.table.as_bytes(),
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

impl EventTable {
    fn holds(&self, event: &EventType, extras: Extras) -> bool {
        let missing = Extras {
            period: extras.period && !self.extras.period,
            addr: extras.addr && !self.extras.addr,
            weight: extras.weight && !self.extras.weight,
            data_src: extras.data_src && !self.extras.data_src,
            phys_addr: extras.phys_addr && !self.extras.phys_addr,
            cgroup: extras.cgroup && !self.extras.cgroup,
        };
        self.event.0 == event.system
            && self.event.1 == event.name
            && missing == Extras::default()
            && same_columns(&self.fields, &event.fields)
    }

    fn target(&self) -> Target {
        Target {
            id: self.id,
            name: self.name.clone(),
            extras: self.extras,
        }
    }
}

/// The kernel's `dummy` event has no hits of its own: it is there for the mappings and names that come with it. Where it
/// lost some of these, that is part of the sum.
fn is_carrier(row: &TypeRow) -> bool {
    let name = row.event.name.split(':').next();
    let is_empty = row.rows == 0 && row.lost.unwrap_or(0) == 0;
    row.event.kind == EventKind::Software && name == Some("dummy") && is_empty
}

/// Where a payload holds them may differ (another machine's), names and types not.
fn same_columns(a: &[Field], b: &[Field]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.name == b.name && a.kind == b.kind)
}

fn declaration(field: &Field) -> &[u8] {
    if field.declaration.is_empty() {
        field.name.as_bytes()
    } else {
        field.declaration.as_bytes()
    }
}
