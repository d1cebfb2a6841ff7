//! Counters as lines of the timeline, in the steps that the page asks for.

use anyhow::{Result, bail};
use perfquet::failure::Misuse;
use serde_json::{Value, json};

use super::Served;
use super::engine::{Limit, rows};
use super::http::{Peer, Request};
use super::tiles::{Window, ids};
use crate::counters::{self, Span};

/// Answers the lines of a trace; with `from`, `to`, `step` and `ids`, the points of those.
pub(super) fn answer(served: &Served, request: &Request, peer: &Peer<'_>) -> Result<Value> {
    let ask = |sql: &str| Ok(rows(&served.session, sql, Limit::OWN, peer)?.batches);
    let counters = counters::of(&served.session, served.trace(), &ask)?;
    if request.parameter("step").is_none() {
        let all = counters.iter().map(|counter| {
            json!({ "name": counter.name, "unit": counter.unit, "is_period": counter.is_period, "sql": counter.sql.replace("{window}", "time IS NOT NULL") })
        });
        return Ok(json!({ "counters": all.collect::<Vec<_>>() }));
    }
    let window = Window::of(request)?;
    let span = Span {
        start: served.start,
        from: window.from,
        to: window.to,
        step: window.step,
    };
    let mut all = Vec::new();
    for id in ids(request)? {
        let Some(counter) = usize::try_from(id).ok().and_then(|id| counters.get(id)) else {
            bail!(Misuse(format!("ids: no counter {id}")));
        };
        let points = counters::points(counter, &span, &ask)?;
        all.push(json!({ "id": id, "points": points }));
    }
    Ok(json!({ "rows": all }))
}
