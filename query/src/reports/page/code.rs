//! Instructions and source lines of the hottest functions: part of what `annotate` prints.

use anyhow::Result;
use perfquet::Session;
use perfquet::stacks::strings;
use serde_json::{Value, json};

use super::unless_failed;
use crate::filter::Filters;
use crate::reports::annotate::embedded::{Bounds, hottest};

/// Bytes of the lines of all functions. Packed, they take about a sixth of that.
const MOST_BYTES: usize = 400 << 10;
/// Sampled events whose functions have code.
const MOST_EVENTS: usize = 4;

/// The functions of the sampled events, at most as many of each; null where there are none.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    events: &[String],
    functions: usize,
    omitted: &mut Vec<String>,
) -> Result<Value> {
    if functions == 0 || !session.has_rows("samples") {
        return Ok(Value::Null);
    }
    let mut bounds = Bounds {
        functions,
        bytes: MOST_BYTES,
    };
    let mut all = Vec::new();
    let sampled = sampled_events(session)?.into_iter();
    let wanted = sampled.filter(|event| events.is_empty() || events.contains(event));
    for event in wanted.take(MOST_EVENTS) {
        let found = hottest(session, &event, &filters.arguments(), &mut bounds);
        let part = format!("code of {event}");
        all.extend(unless_failed(found, &part, omitted)?.unwrap_or_default());
    }
    Ok(match all.is_empty() {
        true => Value::Null,
        false => json!({ "most": functions, "functions": all }),
    })
}

/// The one with the most samples first.
fn sampled_events(session: &Session) -> Result<Vec<String>> {
    let sql = "SELECT event FROM samples WHERE event IS NOT NULL GROUP BY event ORDER BY count(*) DESC, event";
    let mut names = Vec::new();
    for batch in session.collect(sql)? {
        let events = strings(batch.column(0))?;
        names.extend(events.iter().flatten().map(str::to_owned));
    }
    Ok(names)
}
