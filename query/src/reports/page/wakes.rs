//! Wake-ups between threads, which tracks show as arrows from the waker to the woken thread.

use anyhow::Result;
use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type};
use perfquet::Session;
use perfquet_trace::count::grouped;
use serde_json::{Value, json};

use super::cells::Threads;
use super::since::Since;
use super::unless_failed;
use crate::filter::Filters;
use crate::render::columns::Columns;

/// Maximum number of wake-ups in a page.
const MOST: usize = 50_000;

/// Wake-ups, those with the longest waits first.
#[derive(Clone)]
pub(super) struct Wakes {
    /// Time, waker and woken thread.
    all: Vec<(i64, u32, u32)>,
    /// Number of them in the trace.
    count: usize,
}

/// The wake-ups of threads by threads; none if they were not recorded. Whoever an interrupt interrupted is no waker.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    since: Since,
    tids: &[i32],
    threads: &mut Threads,
    omitted: &mut Vec<String>,
) -> Result<Option<Wakes>> {
    if tids.is_empty() || !session.is_recorded("wakeups")? {
        return Ok(None);
    }
    let found = wakes(session, filters, since, tids, threads);
    // A condition may have columns that only samples or calls have.
    let found = unless_failed(found, "wake-ups", omitted)?;
    Ok(found.filter(|wakes| !wakes.all.is_empty()))
}

fn wakes(
    session: &Session,
    filters: &Filters,
    since: Since,
    tids: &[i32],
    threads: &mut Threads,
) -> Result<Wakes> {
    let list: Vec<String> = tids.iter().map(ToString::to_string).collect();
    let sql = format!(
        "SELECT {} AS time, CAST(waker_tid AS INT) AS waker, CAST(tid AS INT) AS tid FROM wakeups WHERE {} \
         AND tid IN ({}) AND waker_tid > 0 AND coalesce(waker_context, 'task') = 'task' ORDER BY latency DESC NULLS LAST, time",
        since.of("time"),
        filters.condition(session)?,
        list.join(", ")
    );
    let mut wakes = Wakes {
        all: Vec::new(),
        count: 0,
    };
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next_batch()? {
        let times = batch.column(0).as_primitive::<Int64Type>();
        let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
        let (wakers, woken) = (id(1), id(2));
        wakes.count += batch.num_rows();
        let room = MOST - wakes.all.len();
        for row in 0..batch.num_rows().min(room) {
            let (waker, woken) = (wakers.value(row), woken.value(row));
            let wake = (times.value(row), threads.of(waker), threads.of(woken));
            wakes.all.push(wake);
        }
    }
    Ok(wakes)
}

impl Wakes {
    /// Adds the wake-ups of another trace.
    pub(super) fn append(&mut self, mut other: Wakes) {
        // Those with the longest waits of each stay first.
        let (mut own, mut more) = (
            std::mem::take(&mut self.all).into_iter(),
            other.all.drain(..),
        );
        loop {
            let pair = [own.next(), more.next()];
            if pair == [None, None] {
                break;
            }
            self.all.extend(pair.into_iter().flatten());
        }
        drop(more);
        self.count += other.count;
    }

    /// Returns the wake-ups by column, in order of time, up to the limit divided by `part`, and a note on those left out.
    pub(super) fn json(&self, part: usize, columns: &mut Columns) -> (Value, Option<String>) {
        let mut wakes = self.all[..self.all.len().min(MOST / part)].to_vec();
        let note = (wakes.len() < self.count).then(|| {
            format!(
                "{} of {} wake-ups, those with the longest waits for a CPU",
                grouped(wakes.len() as u64),
                grouped(self.count as u64)
            )
        });
        wakes.sort_unstable();
        let json = json!({
            "time": columns.add(wakes.iter().map(|wake| wake.0)),
            "waker": columns.add(wakes.iter().map(|wake| wake.1)),
            "woken": columns.add(wakes.iter().map(|wake| wake.2)),
        });
        (json, note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waits_are_kept_in_the_order_of_time() {
        let wakes = Wakes {
            all: vec![(30, 0, 1), (10, 1, 0), (20, 2, 0)],
            count: 70_000,
        };
        let mut columns = Columns::default();
        let (json, note) = wakes.json(1, &mut columns);
        assert_eq!(json["time"][1], 3);
        assert_eq!(
            note.as_deref(),
            Some("3 of 70,000 wake-ups, those with the longest waits for a CPU")
        );
        let (json, _) = wakes.json(MOST, &mut columns);
        assert_eq!(json["time"][1], 1);
    }
}
