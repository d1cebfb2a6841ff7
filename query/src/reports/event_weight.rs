//! The event of a report, and the weight of its rows.

use anyhow::{Result, bail};
use clap::Args;
use perfquet::Session;
use perfquet::sql::names::{literal, quoted};
use perfquet::stacks::strings;
use perfquet_cli::{nearest, suggestion};
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::unit_fact;

use crate::filter::Filters;
use crate::totals;

/// Row selection of every report.
#[derive(Debug, Clone, Args)]
pub(super) struct EventChoice {
    /// Event to analyze [default: the sampled event with the most rows]
    ///
    /// A counter, a clock or any other event, such as sched:sched_switch.
    #[arg(short = 'e', long, value_name = "EVENT")]
    pub(super) event: Option<String>,
    #[command(flatten)]
    pub(super) filters: Filters,
}

/// An event and its SQL.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WeightedEvent {
    /// Name on the command line.
    pub(super) name: String,
    /// Table in SQL.
    pub(super) table: String,
    /// Condition that selects its rows.
    pub(super) condition: String,
    /// Weight of a row, in SQL.
    pub(super) weight: &'static str,
    /// Unit of the weights.
    pub(super) unit: &'static str,
    pub(super) rows: u128,
    /// Samples without a period. If there are any, samples are counted.
    pub(super) without_period: u128,
}

impl WeightedEvent {
    /// Whether its total is an estimate: events were sampled by frequency, and the kernel guessed how many occur between two samples.
    pub(super) fn is_estimated(&self, session: &Session) -> Result<bool> {
        if self.table != "samples" || self.unit != "events" {
            return Ok(false);
        }
        let sql = format!(
            "SELECT 1 FROM event_types WHERE event = {} AND frequency IS NOT NULL LIMIT 1",
            literal(&self.name)
        );
        let found = session.collect(&sql)?;
        Ok(found.iter().any(|batch| batch.num_rows() > 0))
    }

    /// Whether `name` on the command line means this event.
    fn is_called(&self, name: &str) -> bool {
        let short = self.name.rsplit(':').next().unwrap_or_default();
        // A counter has its modifiers after a colon: `cycles:u` is not an event of a system `cycles`.
        self.name == name
            || self.name == name.replace('.', ":")
            || self.table != "samples" && short == name
    }

    /// SQL with the placeholders `{table}`, `{weight}` and `{where}` filled in.
    pub(super) fn fill(&self, sql: &str, condition: &str) -> String {
        sql.replace("{table}", &self.table)
            .replace("{weight}", self.weight)
            .replace("{where}", &format!("{} AND {condition}", self.condition))
    }
}

/// Every row of every event, as one event of the view `events`.
pub(super) fn every_event() -> WeightedEvent {
    WeightedEvent {
        name: "events".to_owned(),
        table: "events".to_owned(),
        condition: "TRUE".to_owned(),
        weight: "1",
        unit: "events",
        rows: 0,
        without_period: 0,
    }
}

impl EventChoice {
    /// Whether any option selects rows.
    pub(super) fn is_given(&self) -> bool {
        self.event.is_some() || self.filters.are_given()
    }

    /// The choice of one event, without filters.
    pub(super) fn of(event: &str) -> EventChoice {
        EventChoice {
            event: Some(event.to_owned()),
            filters: Filters::default(),
        }
    }

    /// If no row matches, fails for a name or ID that no row has.
    pub(super) fn fail_if_nothing_fits(&self, session: &Session) -> Result<()> {
        let mut subjects = with_rows(every(session)?).into_iter();
        let subject = match &self.event {
            Some(wanted) => subjects.find(|subject| subject.is_called(wanted)),
            None => subjects.next(),
        };
        let Some(WeightedEvent {
            table, condition, ..
        }) = subject
        else {
            return Ok(());
        };
        match self.filters.why_nothing_fits(session, &table, &condition)? {
            Some(text) => bail!(text),
            None => Ok(()),
        }
    }

    /// Returns the rows of the view `events` of the selected event, or of every event.
    pub(super) fn event_or_every(&self, session: &Session) -> Result<WeightedEvent> {
        if self.event.is_none() {
            return Ok(every_event());
        }
        let subject = self.subject(session)?;
        // The view has an event without its system, unless several systems have one of that name.
        let names = match subject.table.as_str() {
            "samples" => vec![literal(&subject.name)],
            table => {
                let full = table.replace('"', "");
                let short = full.rsplit('.').next().unwrap_or_default();
                vec![literal(short), literal(&full)]
            }
        };
        Ok(WeightedEvent {
            condition: format!("event IN ({})", names.join(", ")),
            name: subject.name,
            ..every_event()
        })
    }

    /// Returns the selected event. The default is the sampled event with the most rows, or if there is none, the event
    /// with the most rows.
    pub(super) fn subject(&self, session: &Session) -> Result<WeightedEvent> {
        let every = every(session)?;
        let subjects = with_rows(every.clone());
        let has_none = match &self.event {
            Some(_) => every.is_empty(),
            None => subjects.is_empty(),
        };
        if has_none && session.has_rows("calls") {
            bail!(
                "the trace has calls, and no events\nhint: use perfquet-query durations TRACE, or perfquet-query flamegraph TRACE"
            );
        }
        if has_none {
            bail!(
                "the trace has no events\nhint: list its contents with: perfquet-query info TRACE"
            );
        }
        let Some(wanted) = &self.event else {
            let first = &subjects[0];
            if first.is_bookkeeping() && session.has_rows("aggregates") {
                bail!(
                    "the trace has aggregations, and no events but the recorder's own\nhint: use perfquet-query agg TRACE, or --event {}",
                    first.name
                );
            }
            if first.is_bookkeeping() && session.has_rows("counts") {
                bail!(
                    "the trace has counts, and no events but the recorder's own\nhint: use perfquet-query sql TRACE \"SELECT event, sum(count) FROM counts GROUP BY event\", or --event {}",
                    first.name
                );
            }
            let others: Vec<&str> = subjects[1..]
                .iter()
                .take(5)
                .map(|other| other.name.as_str())
                .collect();
            if !others.is_empty() {
                say!(
                    "{}; other events: {} (--event)",
                    first.name,
                    others.join(", ")
                );
            }
            first.note_missing_periods();
            return Ok(first.clone());
        };
        if let Some(found) = subjects.iter().find(|subject| subject.is_called(wanted)) {
            found.note_missing_periods();
            return Ok(found.clone());
        }
        if let Some(silent) = every.iter().find(|event| event.is_called(wanted)) {
            bail!("{} was recorded, but never occurred", silent.name);
        }
        let near = nearest(wanted, every.iter().map(|event| event.name.as_str()));
        let names: Vec<&str> = match near.is_empty() {
            true => subjects
                .iter()
                .take(10)
                .map(|subject| subject.name.as_str())
                .collect(),
            false => near,
        };
        bail!(
            "no event {wanted} in this trace\nhint: {}",
            suggestion(&names)
        )
    }
}

impl WeightedEvent {
    /// Says that samples are counted if only some of them have periods: those of one of several traces, for instance.
    fn note_missing_periods(&self) {
        if self.without_period > 0 && self.without_period < self.rows {
            say!(
                "{}: {} of {} have no period: samples are counted",
                self.name,
                grouped(self.without_period),
                counted(self.rows, "sample")
            );
        }
    }

    /// Whether the recorder notes it for itself: no profile of it is of any use to readers.
    pub(super) fn is_bookkeeping(&self) -> bool {
        let (system, name) = self.name.split_once(':').unwrap_or(("", &self.name));
        matches!(system, "perf" | "perfquet" | "dummy" | "bpf-output")
            || matches!(name, "dummy" | "bpf-output")
            || system == "sched" && name.starts_with("sched_process_")
            || system == "task"
    }
}

/// Returns the events with rows: sampled ones first, then by rows.
pub(super) fn with_any_row(session: &Session) -> Result<Vec<WeightedEvent>> {
    Ok(with_rows(every(session)?))
}

/// Returns all recorded events: sampled ones first, then by rows, and what the recorder notes for itself last.
fn every(session: &Session) -> Result<Vec<WeightedEvent>> {
    let mut subjects = Vec::new();
    // Sampled events first: they were recorded to show where time goes. Hits of --call have no table: they are rows of calls.
    let sql = "SELECT system, event, table_name, rows FROM recorded_events WHERE table_name <> '' ORDER BY table_name = 'samples' DESC, rows DESC, event";
    for batch in session.collect(sql)? {
        let texts = [
            strings(batch.column(0))?,
            strings(batch.column(1))?,
            strings(batch.column(2))?,
        ];
        let rows = totals::read(batch.column(3))?;
        for row in 0..batch.num_rows() {
            let [system, event, table] = texts.each_ref().map(|texts| texts.value(row));
            let rows = totals::weight(&rows, row);
            subjects.push(subject(system, event, table, rows));
        }
    }
    count_samples_without_period(session, &mut subjects)?;
    declare_units(session, &mut subjects)?;
    subjects.sort_by_key(WeightedEvent::is_bookkeeping);
    Ok(subjects)
}

/// Finds the events of which samples have no period, as in the output of `perf script -F` without it: their number is no time.
fn count_samples_without_period(session: &Session, subjects: &mut [WeightedEvent]) -> Result<()> {
    let is_sampled = |subject: &WeightedEvent| subject.table == "samples" && subject.rows > 0;
    if !subjects.iter().any(is_sampled) {
        return Ok(());
    }
    // The statistics of the files answer for most traces.
    let any = session.collect("SELECT 1 FROM samples WHERE period IS NULL LIMIT 1")?;
    if any.iter().all(|batch| batch.num_rows() == 0) {
        return Ok(());
    }
    let sql = "SELECT event, count(*) FROM samples WHERE period IS NULL GROUP BY event";
    for batch in session.collect(sql)? {
        let events = strings(batch.column(0))?;
        let counts = totals::read(batch.column(1))?;
        for row in 0..batch.num_rows() {
            let event = events.value(row);
            let of_event =
                |subject: &&mut WeightedEvent| subject.table == "samples" && subject.name == event;
            if let Some(subject) = subjects.iter_mut().find(of_event) {
                subject.weight = "1";
                subject.unit = "samples";
                subject.without_period = totals::weight(&counts, row);
            }
        }
    }
    Ok(())
}

/// Takes the units that profiles of pprof and speedscope declare for their values. Times of other units become nanoseconds.
fn declare_units(session: &Session, subjects: &mut [WeightedEvent]) -> Result<()> {
    let has_samples = subjects.iter().any(|subject| subject.table == "samples");
    if !has_samples {
        return Ok(());
    }
    // Of several traces that differ, no unit is right.
    let sql = "SELECT name, min(value) FROM trace_info WHERE name LIKE '%.unit.%' GROUP BY name HAVING min(value) = max(value)";
    for batch in session.collect(sql)? {
        let (names, values) = (strings(batch.column(0))?, strings(batch.column(1))?);
        for row in 0..batch.num_rows() {
            let name = names.value(row);
            let event = unit_fact::event(name);
            let (weight, unit) = match values.value(row) {
                "nanoseconds" => ("coalesce(period, 1)", "ns"),
                "microseconds" => ("coalesce(period, 1) * 1000", "ns"),
                "milliseconds" => ("coalesce(period, 1) * 1000000", "ns"),
                "seconds" => ("coalesce(period, 1) * 1000000000", "ns"),
                "bytes" => ("coalesce(period, 1)", "bytes"),
                _ => continue,
            };
            let of_event = |subject: &&mut WeightedEvent| {
                subject.table == "samples"
                    && subject.without_period == 0
                    && Some(subject.name.as_str()) == event
            };
            if let Some(subject) = subjects.iter_mut().find(of_event) {
                (subject.weight, subject.unit) = (weight, unit);
            }
        }
    }
    Ok(())
}

/// Returns those with rows.
fn with_rows(mut subjects: Vec<WeightedEvent>) -> Vec<WeightedEvent> {
    subjects.retain(|subject| subject.rows > 0);
    // The only sampled event needs no condition: comparing its name in every row takes time and changes nothing.
    let sampled = |subject: &&mut WeightedEvent| subject.table == "samples";
    if subjects.iter_mut().filter(sampled).count() == 1 {
        subjects
            .iter_mut()
            .filter(sampled)
            .for_each(|only| only.condition = "TRUE".to_owned());
    }
    subjects
}

fn subject(system: &str, event: &str, table: &str, rows: u128) -> WeightedEvent {
    if table == "samples" {
        return WeightedEvent {
            name: event.to_owned(),
            table: table.to_owned(),
            condition: format!("event = {}", literal(event)),
            weight: "coalesce(period, 1)",
            unit: if event.contains("clock") {
                "ns"
            } else {
                "events"
            },
            rows,
            without_period: 0,
        };
    }
    WeightedEvent {
        name: if system.is_empty() {
            event.to_owned()
        } else {
            format!("{system}:{event}")
        },
        // The table's name may differ from the event's: characters other than letters, digits and `_` become `_`.
        table: match table.split_once('.') {
            Some((folder, name)) => format!("{}.{}", quoted(folder), quoted(name)),
            None => quoted(table),
        },
        condition: "TRUE".to_owned(),
        weight: "1",
        unit: "events",
        rows,
        without_period: 0,
    }
}
