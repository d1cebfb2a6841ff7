//! The profile of time off the CPU: why threads did not run, by time.
//!
//! ```text
//! slots        │ 0     │ 1     │ 2     │ 3     │
//! off the CPU      ├──────────────────────┤        a part of slot 0, the whole slots 1 and 2, a part of slot 3
//! ```
//! A period is at most three cells, whatever its length: those of its ends, and one for all whole slots between them, so sums of
//! any selected slots stay exact. Programs are the first boxes, then the state, then the waker, then the stack.

use anyhow::Result;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use perfquet::Session;
use perfquet_trace::count::counted;

use super::cells::{Cell, Cells, NO_THREAD, Threads};
use super::profiles::{Profile, Source};
use super::since::Since;
use super::unless_failed;
use crate::filter::Filters;
use crate::reports::boxes::{Groups, Incomplete, Merge, Naming, Shape};
use crate::reports::event_weight::WeightedEvent;
use crate::reports::folding::Folded;
use crate::reports::stored_aggregates::PARTS;

const NAME: &str = "off-CPU time";

/// The profile; none without scheduler events, or if no period matches.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    since: Since,
    slot: i64,
    threads: &mut Threads,
    omitted: &mut Vec<String>,
) -> Result<Option<Profile>> {
    if !session.is_recorded("off_cpu")? {
        return Ok(None);
    }
    let found = profile(session, filters, since, slot, threads);
    // A condition may have columns that only samples or calls have.
    let profile = unless_failed(found, NAME, omitted)?;
    Ok(profile.filter(|profile| profile.samples > 0))
}

fn profile(
    session: &Session,
    filters: &Filters,
    since: Since,
    slot: i64,
    threads: &mut Threads,
) -> Result<Profile> {
    let condition = filters.condition(session)?;
    let event = event(since, slot);
    let groups = Groups::new(&[])?;
    let key = groups.sql_with(&[STATE.to_owned(), waker()]);
    let numbers = [
        "CAST(part AS BIGINT)".to_owned(),
        "CAST(cell_slots AS BIGINT)".to_owned(),
        "CAST(cell AS BIGINT)".to_owned(),
        format!("coalesce(CAST(tid AS BIGINT), {NO_THREAD})"),
    ];
    let mut cells = Vec::new();
    let folded = Folded::query_parts(session, &event, &condition, &key, &numbers, |part| {
        let [number, slots, cell, tid] = part.numbers;
        cells.push(Cell {
            slot: cell,
            thread: threads.of(i32::try_from(tid).unwrap_or(NO_THREAD)),
            node: part.row,
            bar: u32::try_from(slots).unwrap_or_default(),
            weight: part.weight,
            // Every period has a first part.
            count: if number == 0 { part.samples } else { 0 },
        });
    })?;
    let mut names = groups.names(session, &folded)?;
    for (names, row) in names.iter_mut().zip(&folded.rows) {
        let key = folded.keys.get(row.key as usize).map_or("", String::as_str);
        // The names before them, which may have any letters, are those of the groups.
        let mut parts = key.rsplit(PARTS);
        let (waker, state) = (parts.next(), parts.next());
        let levels = [state, waker].into_iter().flatten();
        names.extend(levels.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    let mut merge = Merge::new(Shape {
        naming: Naming::Functions,
        across_builds: false,
        is_reversed: false,
        // Where a thread waits matters, not whether its stack is whole.
        incomplete: Incomplete::Kept,
        before: None,
    });
    merge.add(session.forest(), &folded, &names)?;
    let cells = Cells::of_rows(cells, &merge.leaves);
    let endless = format!("SELECT count(*) FROM off_cpu WHERE {condition} AND duration IS NULL");
    let endless = session.collect(&endless)?.iter().fold(0, |sum, batch| {
        let counts = batch.column(0).as_primitive::<Int64Type>().values();
        sum + counts.iter().map(|count| count.unsigned_abs()).sum::<u64>()
    });
    let note = (endless > 0).then(|| {
        let periods = counted(endless, "period");
        format!("without {periods} whose end was not recorded")
    });
    Ok(Profile {
        notes: note.into_iter().collect(),
        incomplete: None,
        event,
        tree: merge.tree,
        samples: cells.0.iter().map(|cell| cell.count).sum(),
        cells,
        source: Source::OffCpu,
    })
}

/// Parts of the periods, a row each: those of `part` 0 and 2 are in one slot, that of 1 is all `cell_slots` slots between them.
fn event(since: Since, slot: i64) -> WeightedEvent {
    let begin = since.of("time");
    let first = format!("({begin} / {slot})");
    let last = format!("(({begin} + duration) / {slot})");
    let table = format!(
        "(SELECT *, CASE part WHEN 0 THEN {first} WHEN 1 THEN {first} + 1 ELSE {last} END AS cell, \
         CASE part WHEN 1 THEN {last} - {first} - 1 ELSE 0 END AS cell_slots, \
         CASE part WHEN 0 THEN least(duration, ({first} + 1) * {slot} - {begin}) WHEN 1 THEN ({last} - {first} - 1) * {slot} \
         ELSE {begin} + duration - {last} * {slot} END AS cell_time \
         FROM (SELECT * FROM off_cpu WHERE duration > 0) CROSS JOIN (VALUES (0), (1), (2)) AS parts(part) \
         WHERE part = 0 OR part = 1 AND {last} - {first} > 1 OR part = 2 AND {last} > {first} AND {begin} + duration > {last} * {slot}) AS off"
    );
    WeightedEvent {
        name: NAME.to_owned(),
        table,
        condition: "TRUE".to_owned(),
        weight: "cell_time",
        unit: "ns",
        rows: 0,
        without_period: 0,
    }
}

/// The state in words, as SQL.
const STATE: &str = "CASE state WHEN 'interruptible' THEN 'sleeping' WHEN 'uninterruptible' THEN 'blocked' \
                     ELSE coalesce(state, '[unknown state]') END";

/// The waker in words, as SQL; empty if it is not known, and for threads that nobody woke.
fn waker() -> String {
    format!(
        "CASE WHEN state IN ('preempted', 'idle') THEN '' WHEN waker_context IN ('irq', 'softirq', 'nmi', 'idle') THEN 'woken by an interrupt' \
         WHEN waker_comm IS NULL THEN '' ELSE concat('woken by ', replace(waker_comm, chr({}), '?')) END",
        PARTS as u32
    )
}
