//! All that is known of the events at a place of the timeline: their fields, their stacks, the calls around them.

use anyhow::{Result, bail};
use perfquet::failure::Misuse;
use serde_json::{Value, json};

use super::Served;
use super::engine::{Limit, rows};
use super::grid;
use super::http::{Peer, Request};
use super::tiles::{event_tables, integer, is_one_of, range};

/// Events of a place that are listed.
const MOST: usize = 20;

/// Answers `kind`, `id`, `from` and `to`: a table, and its rows in a range of time.
pub(super) fn answer(served: &Served, request: &Request, peer: &Peer<'_>) -> Result<Value> {
    let (from, to) = range(request)?;
    let (from, to) = (served.start + from, served.start + to);
    let id = integer(request, "id")?;
    let kind = request.parameter("kind").unwrap_or_default();
    let inside = format!("time >= {from} AND time < {to}");
    let tables = event_tables(served);
    let (table, condition) = match kind.as_str() {
        "events" => match usize::try_from(id).ok().and_then(|id| tables.get(id)) {
            Some((table, _)) => (table.as_str(), inside),
            None => bail!(Misuse(format!("id: no event {id}"))),
        },
        "samples" => (
            "samples",
            format!("{inside} AND {}", is_one_of("tid", &[id])),
        ),
        "cpusamples" => (
            "samples",
            format!("{inside} AND {}", is_one_of("cpu", &[id])),
        ),
        "states" => (
            "thread_states",
            format!("{inside} AND {}", is_one_of("tid", &[id])),
        ),
        "calls" => {
            let depth = integer(request, "depth")?;
            let condition = format!(
                "{inside} AND {} AND coalesce(depth, 0) = {depth}",
                is_one_of("tid", &[id])
            );
            ("calls", condition)
        }
        _ => bail!(Misuse(
            "kind: expected events, samples, cpusamples, states or calls".to_owned()
        )),
    };
    let sql = format!("SELECT * FROM {table} WHERE {condition} ORDER BY time LIMIT {MOST}");
    let limit = Limit {
        rows: MOST,
        ..Limit::OWN
    };
    let found = rows(&served.session, &sql, limit, peer)?;
    let events = grid::json(&found)?;
    // Only the first event has its stack and the calls around it: one is looked at.
    let has = |name: &str| found.columns.column_with_name(name).is_some();
    let first = format!("SELECT * FROM {table} WHERE {condition} ORDER BY time LIMIT 1");
    let mut stacks = Value::Null;
    if has("kernel_stack") && has("user_stack") {
        let sql = format!(
            "SELECT stack_text(kernel_stack) AS kernel, stack_text(user_stack) AS user FROM ({first}) AS first"
        );
        let found = rows(&served.session, &sql, limit, peer)?;
        stacks = grid::json(&found)?;
    }
    let around = match kind.as_str() {
        "calls" | "events" | "samples" | "cpusamples" if served.session.has_rows("calls") => {
            around(served, &events, peer)?
        }
        _ => Value::Null,
    };
    Ok(json!({ "kind": kind, "sql": sql, "events": events, "stacks": stacks, "around": around }))
}

/// The calls of the same thread in which the first event is, the outermost first.
fn around(served: &Served, events: &Value, peer: &Peer<'_>) -> Result<Value> {
    let cell = |name: &str| -> Option<i64> {
        let columns = events["columns"].as_array()?;
        let place = columns.iter().position(|column| column["name"] == name)?;
        let cell = &events["rows"][0][place];
        cell.as_i64().or_else(|| cell.as_str()?.parse().ok())
    };
    let (Some(time), Some(tid)) = (cell("time"), cell("tid")) else {
        return Ok(Value::Null);
    };
    let Some(before) = served.before(time, peer)? else {
        return Ok(Value::Null);
    };
    let depth = cell("depth").map_or(String::new(), |depth| format!(" AND depth < {depth}"));
    let sql = format!(
        "SELECT time, duration, function, module, depth, args, retval FROM calls WHERE {before} AND tid = {tid}{depth} ORDER BY depth, time LIMIT 200"
    );
    let found = rows(&served.session, &sql, Limit::OWN, peer)?;
    grid::json(&found)
}
