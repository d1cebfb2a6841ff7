//! The sources of stacks of a flame graph: events, stored aggregates, or calls.

use anyhow::{Result, bail};
use perfquet::failure::Misuse;
use perfquet::stacks::StackColumns;
use perfquet::unit::in_fitting_unit;
use perfquet::unit::{DURATION, UNIT};
use perfquet::{Session, Trace};
use perfquet_trace::count::{counted, grouped};

use super::super::boxes::{
    self, By, Groups, Incomplete, Merge, Naming, QueryStacks, Shape, note_of_incomplete,
};
use super::super::folding::{Folded, Weighted};
use super::super::paths::Paths;
use super::super::stored_aggregates;
use super::{Flamegraph, Weight};
use crate::render::flame::{FlameTree, Kind, Label, Node};
use crate::text::harmless;

/// Source of the stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Events,
    /// Stacks that are already aggregated.
    Aggregates,
    Calls,
    /// Those of `--sql` or `--from`.
    Query,
}

/// Returns the requested source; else samples, stacks of stored aggregates, stacks of any event, or calls.
pub(super) fn source(graph: &Flamegraph, session: &Session) -> Result<Source> {
    if graph.sql.is_some() || graph.from.is_some() {
        return Ok(Source::Query);
    }
    if graph.weight == Some(Weight::Duration) {
        if graph.choice.event.is_some() {
            bail!(Misuse(
                "--weight duration: cannot be combined with --event".to_owned()
            ));
        }
        return Ok(Source::Calls);
    }
    if graph.choice.event.is_some() || session.has_rows("samples") {
        return Ok(Source::Events);
    }
    if stored_aggregates::are_what_there_is(session, &graph.choice) {
        return Ok(Source::Aggregates);
    }
    let has_stacks = session.has_rows("stacks");
    if !has_stacks && graph.weight.is_none() && session.has_rows("calls") {
        return Ok(Source::Calls);
    }
    Ok(Source::Events)
}

/// Merged stacks, with their description and notes.
pub(super) struct Boxes {
    pub(super) tree: FlameTree,
    pub(super) now: Amount,
    /// That of the trace before.
    pub(super) before: Amount,
    /// Event, aggregation or table.
    pub(super) name: String,
    pub(super) unit: String,
    /// Noun for the counted things, in the singular; `None` if the weight is their number.
    pub(super) counted: Option<&'static str>,
    pub(super) notes: Vec<String>,
    pub(super) is_off_cpu: bool,
}

/// The amount of the drawn stacks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Amount {
    pub(super) weight: u128,
    /// Samples, stacks or calls.
    pub(super) count: u64,
}

impl Amount {
    /// The amounts of the stacks of one trace, or of all.
    fn of(folded: &Folded, trace: Option<usize>) -> Amount {
        let is_its = |row: &&Weighted| trace.is_none_or(|trace| row.trace == trace);
        let rows = folded.rows.iter().filter(is_its);
        rows.fold(Amount::default(), |amount, row| Amount {
            weight: amount.weight + row.weight,
            count: amount.count + row.samples,
        })
    }
}

impl Boxes {
    /// All that is drawn: `1,417 samples, 1.421 s`.
    pub(super) fn amount(&self) -> String {
        self.amount_of(Amount {
            weight: self.now.weight + self.before.weight,
            count: self.now.count + self.before.count,
        })
    }

    pub(super) fn amount_of(&self, amount: Amount) -> String {
        let weight = match self.unit.as_str() {
            "ns" => in_fitting_unit(amount.weight as f64),
            "events" => counted(amount.weight, "event"),
            "samples" => counted(amount.weight, "sample"),
            unit => format!("{} {unit}", grouped(amount.weight)),
        };
        match self.counted {
            Some(noun) => format!("{}, {weight}", counted(amount.count, noun)),
            None => weight,
        }
    }
}

impl Source {
    pub(super) fn boxes(
        self,
        graph: &Flamegraph,
        session: &Session,
        groups: &Groups,
    ) -> Result<Boxes> {
        match self {
            Source::Events => from_events(graph, session, groups),
            Source::Aggregates => from_aggregates(graph, session),
            Source::Calls => from_calls(graph, session),
            Source::Query => from_query(graph, session),
        }
    }
}

fn from_events(graph: &Flamegraph, session: &Session, groups: &Groups) -> Result<Boxes> {
    let condition = graph.choice.filters.condition(session)?;
    let mut event = graph.choice.subject(session)?;
    if graph.weight == Some(Weight::Count) {
        event.weight = "1";
        event.unit = "events";
    }
    let folded = Folded::query(session, &event, &condition, groups.sql().as_deref())?;
    if folded.weight == 0 {
        graph.choice.fail_if_nothing_fits(session)?;
        bail!("no matching rows in {}", event.name);
    }
    if graph.choice.event.is_none() && event.is_bookkeeping() && has_no_stacks(&folded) {
        bail!(
            "no event with stacks occurred\nhint: list what was recorded with: perfquet-query info TRACE"
        );
    }
    fail_without_stacks(&folded, &event.name, "record with -g")?;
    let names = groups.names(session, &folded)?;
    let incomplete = Incomplete::of(session, &event.table);
    let merge = merged(
        graph,
        session,
        &folded,
        &names,
        (Naming::Functions, incomplete),
    )?;
    let mut notes = Vec::new();
    notes.extend(note_of_incomplete(
        merge.incomplete,
        folded.samples,
        incomplete.hint(&event.table),
    ));
    notes.extend(note_of_idle(&folded, groups));
    let is_count = event.weight == "1" || folded.weight == u128::from(folded.samples);
    Ok(Boxes {
        now: Amount::of(&folded, graph.diff.then_some(1)),
        before: before(graph, &folded),
        name: event.name,
        unit: event.unit.to_owned(),
        counted: (!is_count).then_some("sample"),
        notes,
        is_off_cpu: false,
        tree: merge.tree,
    })
}

fn from_aggregates(graph: &Flamegraph, session: &Session) -> Result<Boxes> {
    if graph.weight.is_some() || !graph.by.is_empty() {
        bail!(Misuse(
            "--weight, --by: not available for stacks that are already aggregated".to_owned()
        ));
    }
    let condition = graph.choice.filters.condition(session)?;
    let summed = stored_aggregates::stacks(session, &condition)?;
    let folded = &summed.folded;
    if folded.weight == 0 {
        bail!(
            "no matching aggregates with stacks\n{}",
            stored_aggregates::OF_INTERVALS
        );
    }
    let name = summed
        .name
        .as_deref()
        .map_or("aggregation".into(), harmless);
    // Stacks recorded by perfquet look like those of samples.
    let is_own = |trace: &Trace| trace.sources.iter().any(|source| source.format == OWN);
    let naming = match session.traces().iter().all(is_own) {
        true => Naming::Functions,
        false => Naming::WithModules,
    };
    let levels = folded.rows.iter().map(|row| summed.levels(row.key));
    let names: Vec<Vec<String>> = levels.collect();
    let merge = merged(
        graph,
        session,
        folded,
        &names,
        (naming, Incomplete::Gathered),
    )?;
    Ok(Boxes {
        now: Amount::of(folded, graph.diff.then_some(1)),
        before: before(graph, folded),
        name: name.into_owned(),
        unit: summed.unit(),
        counted: Some("stack"),
        notes: note_of_incomplete(
            merge.incomplete,
            folded.samples,
            "the kernel follows frame pointers: build programs with -fno-omit-frame-pointer",
        )
        .into_iter()
        .collect(),
        is_off_cpu: summed.is_off_cpu(),
        tree: merge.tree,
    })
}

/// Format of perfquet's own recordings.
const OWN: &str = "perf.data";

fn merged(
    graph: &Flamegraph,
    session: &Session,
    folded: &Folded,
    names: &[Vec<String>],
    (naming, incomplete): (Naming, Incomplete),
) -> Result<Merge> {
    let mut merge = Merge::new(Shape {
        naming,
        across_builds: graph.diff,
        is_reversed: graph.reverse,
        incomplete: match graph.keep_incomplete {
            true => Incomplete::Kept,
            false => incomplete,
        },
        before: graph.diff.then_some(0),
    });
    merge.add(session.forest(), folded, names)?;
    Ok(merge)
}

fn fail_without_stacks(folded: &Folded, name: &str, hint: &str) -> Result<()> {
    if has_no_stacks(folded) {
        bail!("{name}: recorded without stacks\nhint: {hint}");
    }
    Ok(())
}

fn has_no_stacks(folded: &Folded) -> bool {
    let has_none = |row: &Weighted| row.kernel == 0 && row.user == 0;
    folded.rows.iter().all(has_none)
}

fn before(graph: &Flamegraph, folded: &Folded) -> Amount {
    match graph.diff {
        true => Amount::of(folded, Some(0)),
        false => Amount::default(),
    }
}

/// The note for pictures that are mostly idle.
fn note_of_idle(folded: &Folded, groups: &Groups) -> Option<String> {
    if groups.keys.first() != Some(&By::Process) {
        return None;
    }
    let is_idle = |key: u32| {
        let key = folded.keys.get(key as usize);
        key.and_then(|key| boxes::pid(key)) == Some(0)
    };
    let rows = folded.rows.iter().filter(|row| is_idle(row.key));
    let idle: u128 = rows.map(|row| row.weight).sum();
    let share = idle as f64 / folded.weight.max(1) as f64;
    // The user selected a single program.
    (share > 0.3 && share < 1.0).then(|| {
        format!(
            "{:.0}% is idle; to leave it out: --where 'pid <> 0'",
            share * 100.0
        )
    })
}

fn from_calls(graph: &Flamegraph, session: &Session) -> Result<Boxes> {
    if graph.diff || graph.reverse {
        bail!(Misuse(
            "--diff, --reverse: not available for calls".to_owned()
        ));
    }
    let condition = graph.choice.filters.condition(session)?;
    let key = match graph.by.as_slice() {
        [] if has_several_threads(session, &condition)? => Some("comm"),
        [] | [By::None] => None,
        [By::Trace] => Some("trace"),
        [By::Comm] => Some("comm"),
        [By::Pid] => Some("arrow_cast(pid, 'Utf8View')"),
        [By::Tid] => Some("arrow_cast(tid, 'Utf8View')"),
        [By::Cpu] => Some("arrow_cast('CPU ' || cpu, 'Utf8View')"),
        _ => bail!(Misuse(
            "--by: calls can be grouped by one of comm, pid, tid, cpu and trace".to_owned()
        )),
    };
    let paths = Paths::query(session, &graph.choice.filters, key)?;
    let weight: u128 = paths.nodes.iter().map(|node| node.own).sum();
    if weight == 0 {
        bail!("no matching calls with a known duration");
    }
    // A function may have the name of a program.
    let names = || paths.names.iter().map(|name| boxes::clean(name));
    let functions = names().map(|name| Label::new(name, Kind::Function));
    let groups = names().map(|name| Label::new(name, Kind::Group));
    let count = paths.names.len() as u32;
    let nodes = paths.nodes.iter().map(|node| Node {
        parent: node.parent,
        label: match key.is_some() && node.parent == 0 {
            true => count + node.name,
            false => node.name,
        },
        own: node.own,
        before: 0,
    });
    Ok(Boxes {
        tree: FlameTree {
            nodes: nodes.collect(),
            labels: functions.chain(groups).collect(),
        },
        now: Amount {
            weight,
            count: paths.calls,
        },
        before: Amount::default(),
        name: "calls".to_owned(),
        unit: "ns".to_owned(),
        counted: Some("call"),
        notes: Vec::new(),
        is_off_cpu: false,
    })
}

/// Draws the stacks that a query returns.
/// The query for the stacks of a table: thread names, stacks, and the durations.
fn rows_of(graph: &Flamegraph, session: &Session, table: &str) -> Result<String> {
    let schema = session.table(table)?.schema();
    let has = |name: &str| schema.field_with_name(name).is_ok();
    let stacks = ["user_stack", "kernel_stack"]
        .into_iter()
        .filter(|name| has(name));
    let stacks: Vec<&str> = stacks.collect();
    if stacks.is_empty() {
        bail!(Misuse(format!(
            "--from {table}: no stacks\nhint: use a view with user_stack or kernel_stack, such as off_cpu or syscalls"
        )));
    }
    let condition = graph.choice.filters.condition(session)?;
    let name = if has("comm") {
        "coalesce(comm, '[unknown]'), "
    } else {
        ""
    };
    let weight = if has("duration") {
        "duration"
    } else {
        "1 AS rows"
    };
    let known = if has("duration") {
        " AND duration IS NOT NULL"
    } else {
        ""
    };
    Ok(format!(
        "SELECT {name}{}, {weight} FROM {table} WHERE {condition}{known}",
        stacks.join(", ")
    ))
}

fn from_query(graph: &Flamegraph, session: &Session) -> Result<Boxes> {
    if graph.sql.is_some() && graph.choice.is_given() {
        bail!(Misuse(
            "--sql: cannot be combined with options that select rows\nhint: write the condition into the query"
                .to_owned()
        ));
    }
    let sql = match (&graph.from, &graph.sql) {
        (Some(table), _) => rows_of(graph, session, table)?,
        (None, sql) => sql.clone().unwrap_or_default(),
    };
    let mut answer = match &graph.sql {
        Some(sql) => session.query(session.whole_query(sql)?)?,
        None => session.query(&sql)?,
    };
    let schema = answer.schema();
    StackColumns::check(&schema).map_err(|error| {
        Misuse(format!(
            "--sql: {error}, such as SELECT user_stack, kernel_stack, sum(duration)"
        ))
    })?;
    let unit = schema.fields().last().map_or("units", |weight| {
        let is_duration = weight
            .metadata()
            .get(UNIT)
            .is_some_and(|unit| unit == DURATION);
        match weight.name().as_str() {
            _ if is_duration => "ns",
            name if name
                .chars()
                .all(|letter| letter.is_alphanumeric() || letter == '_') =>
            {
                name
            }
            _ => "units",
        }
    });
    let unit = unit.to_owned();
    let mut stacks = QueryStacks::new(session.forest());
    while let Some(batch) = answer.next_batch()? {
        stacks.add(&batch)?;
    }
    let (count, weight, omitted) = (stacks.rows, stacks.weight, stacks.without_weight);
    if weight == 0 {
        bail!("the query returns no row with a weight above 0");
    }
    let notes = (omitted > 0).then(|| {
        let rows = counted(omitted, "row");
        format!("{rows} without a weight of 0 or more omitted")
    });
    let name = name_of_query(&sql, &unit).to_owned();
    Ok(Boxes {
        tree: stacks.merged(),
        now: Amount { weight, count },
        before: Amount::default(),
        is_off_cpu: is_of_off_cpu(&sql),
        name,
        unit,
        counted: Some("row"),
        notes: notes.into_iter().collect(),
    })
}

/// Whether a query reads the view of periods off the CPU.
fn is_of_off_cpu(sql: &str) -> bool {
    sql.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        .any(|word| word.eq_ignore_ascii_case("off_cpu"))
}

/// What a query's weights are, by their source and unit.
fn name_of_query<'u>(sql: &str, unit: &'u str) -> &'u str {
    match unit {
        "ns" if is_of_off_cpu(sql) => "off-CPU time",
        "ns" => "time",
        unit => unit,
    }
}

/// Whether calls are those of threads with different names.
fn has_several_threads(session: &Session, condition: &str) -> Result<bool> {
    let sql = format!("SELECT DISTINCT comm FROM calls WHERE {condition} LIMIT 2");
    let batches = session.collect(&sql)?;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum::<usize>() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_named_by_their_weight() {
        let off = "SELECT comm, kernel_stack, duration FROM off_cpu";
        assert_eq!(name_of_query(off, "ns"), "off-CPU time");
        assert!(is_of_off_cpu(off) && is_of_off_cpu("FROM s.OFF_CPU o"));
        assert!(!is_of_off_cpu("SELECT stack, off_cpu_time FROM x"));
        assert_eq!(name_of_query("SELECT s, duration FROM x", "ns"), "time");
        assert_eq!(name_of_query("SELECT s, bytes FROM x", "bytes"), "bytes");
    }
}
