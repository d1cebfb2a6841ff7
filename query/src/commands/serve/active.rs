//! Which threads have anything in a range of time: the others need no row on the screen.
//!
//! ```text
//! in view   |           |
//! thread 7  ═══running═══      begins before, and is drawn
//! thread 8  ───sleeping──      no event in view
//! thread 9  ──────|──────      a sample
//! ```

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};

use super::Served;
use super::engine::{Limit, at, integers, rows};
use super::http::{Peer, Request};
use super::states::{DRAWN, STATE_BITS};
use super::store::Store;
use super::tiles::range;

/// Answers `from` and `to`: the tids of threads with events there; of what has no thread, -1. `null` as long as the states of threads are
/// not known.
pub(super) fn answer(served: &Served, request: &Request, peer: &Peer<'_>) -> Result<Value> {
    let (from, to) = range(request)?;
    let mut tids = BTreeSet::new();
    if served.has_states()? {
        if served.is_sampled(peer)? {
            return Ok(json!({ "tids": null }));
        }
        let of_states = served.with_index(peer, |index| {
            Ok(serde_json::to_vec(&threads(index, from, to)?)?)
        })?;
        tids.extend(serde_json::from_slice::<Vec<i64>>(&of_states)?);
    }
    let (begin, end) = (served.start + from, served.start + to);
    let inside = format!("time >= {begin} AND time < {end}");
    let mut sql = Vec::new();
    for table in ["samples", "calls"] {
        if served.session.has_rows(table) {
            sql.push(format!("SELECT DISTINCT tid FROM {table} WHERE {inside}"));
        }
    }
    if served.session.has_rows("calls")
        && let Some(before) = served.before(begin, peer)?
    {
        sql.push(format!("SELECT DISTINCT tid FROM calls WHERE {before}"));
    }
    if !sql.is_empty() {
        let sql = sql.join(" UNION ALL ");
        for batch in rows(&served.session, &sql, Limit::OWN, peer)?.batches {
            let found = integers(&batch, 0)?;
            tids.extend((0..batch.num_rows()).map(|row| at(&found, row).unwrap_or(-1)));
        }
    }
    Ok(json!({ "tids": tids }))
}

/// Threads whose state changes in a range, or that do more than sleep in it.
fn threads(store: &Store, from: i64, to: i64) -> Result<Vec<i64>> {
    let mut active = Vec::new();
    for tid in store.tids_of_tracks() {
        let is_drawn = |value: u32| DRAWN.contains(&((value & ((1 << STATE_BITS) - 1)) as usize));
        if store.is_active(tid, (from, to), is_drawn)? {
            active.push(tid);
        }
    }
    Ok(active)
}

#[cfg(test)]
mod tests {
    use super::super::store::Track;
    use super::super::store::blocks::Period;
    use super::super::store::writer::{Sink, Writer};
    use super::*;

    #[test]
    fn sleepers_are_not_active() {
        let mut writer = Writer::new(Sink::Memory, "").unwrap();
        for (tid, begin, length, state) in [
            (7, 0, 1000, 0),
            (8, 0, 1000, 4),
            (9, 0, 100, 0),
            (9, 100, 300, 4),
            (9, 400, 600, 4),
            (10, 0, 900, 3),
        ] {
            writer.thread(tid);
            let period = Period {
                begin,
                length,
                value: 1 << STATE_BITS | state,
            };
            writer.add(Track::Thread(tid), period).unwrap();
        }
        let store = writer.finish(0, |_, _, _| Ok(Vec::new())).unwrap();
        let active = |from, to| {
            let mut found = threads(&store, from, to).unwrap();
            found.sort_unstable();
            found
        };
        assert_eq!(active(0, 1000), [7, 8, 9, 10]);
        assert_eq!(active(100, 200), [7, 9, 10]);
        assert_eq!(active(101, 400), [7, 10]);
        assert_eq!(active(400, 401), [7, 9, 10]);
        assert_eq!(active(950, 1000), [7]);
        assert_eq!(active(1000, 2000), [0; 0]);
    }
}
