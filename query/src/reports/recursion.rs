//! Time of calls inside other calls of the same function, which totals count once.
//!
//! ```text
//! f ├──────────────────┤      total of f: 20 us, the wall time of the outermost call
//!   g ├────────────┤
//!     f ├──────┤              8 us of it are in a nested call; the distribution has both calls
//! ```
//! uftrace and perf trace count so, too. A call of unknown duration is around none: what it calls then counts.

use std::collections::HashMap;

use anyhow::Result;
use perfquet::Session;

use super::paths::{Part, Paths, Wanted};

/// Time of nested calls by name and part.
pub(super) type Nested = HashMap<(String, Part), u128>;

/// Which calls of which name count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recursion<'a> {
    /// SQL for the calls.
    pub(super) condition: &'a str,
    /// Whether calls between selected ones may not be selected.
    pub(super) has_holes: bool,
    /// SQL for the name of a call: calls of the same name count once.
    pub(super) name: &'a str,
    /// Whether the times of a name are divided by the index of the trace, before `parts`.
    pub(super) by_trace: bool,
    /// SQL for numbers by which the times of a name are divided.
    pub(super) parts: &'a [String],
}

/// Returns the time of selected calls inside other selected calls of the same name; `rename` changes names before they are
/// compared. Names without such calls are missing.
pub(super) fn nested(
    session: &Session,
    wanted: Recursion<'_>,
    rename: &dyn Fn(&str) -> String,
) -> Result<Nested> {
    let condition = format!("({}) AND duration IS NOT NULL", wanted.condition);
    if !has_nested_calls(session, &condition)? {
        return Ok(Nested::new());
    }
    let paths = Paths::of(
        session,
        Wanted {
            condition: &condition,
            // A call without an end may be between others.
            has_holes: wanted.has_holes || has_unfinished_callers(session)?,
            key: None,
            name: wanted.name,
            by_trace: wanted.by_trace,
            parts: wanted.parts,
        },
        rename,
    )?;
    let is_nested = nested_nodes(&paths);
    let mut found = Nested::new();
    let mut add = |node: usize, part: &[i64], time: u128| {
        if is_nested[node] && time > 0 {
            let name = paths.names[paths.nodes[node].name as usize].clone();
            *found.entry((name, part.to_vec())).or_default() += time;
        }
    };
    match wanted.parts.is_empty() && !wanted.by_trace {
        true => {
            for (node, of_node) in paths.nodes.iter().enumerate() {
                add(node, &[], of_node.total);
            }
        }
        false => {
            for ((node, part), &time) in &paths.parts {
                add(*node as usize, part, time);
            }
        }
    }
    Ok(found)
}

/// Whether each node is below another one of its name.
fn nested_nodes(paths: &Paths) -> Vec<bool> {
    let nodes = &paths.nodes;
    let is_nested = |node: usize| {
        let name = nodes[node].name;
        let mut above = nodes[node].parent as usize;
        while above != 0 && nodes[above].name != name {
            above = nodes[above].parent as usize;
        }
        above != 0
    };
    (0..nodes.len())
        .map(|node| node > 0 && is_nested(node))
        .collect()
}

/// Separates the values of a name.
const SEPARATOR: char = '\u{1f}';
const NO_VALUE: &str = "\u{1}";

/// SQL for the name of a call that consists of values, as [`name`] has it.
pub(super) fn name_of(values: &[&str]) -> String {
    let texts = values
        .iter()
        .map(|value| format!("coalesce(CAST({value} AS TEXT), '{NO_VALUE}')"));
    let texts: Vec<String> = texts.collect();
    format!(
        "arrow_cast(concat_ws('{SEPARATOR}', {}), 'Utf8View')",
        texts.join(", ")
    )
}

/// The name that consists of values.
pub(super) fn name(values: &[Option<&str>]) -> String {
    let texts = values.iter().map(|value| value.unwrap_or(NO_VALUE));
    texts.collect::<Vec<_>>().join(&SEPARATOR.to_string())
}

/// The values of a name.
pub(super) fn values(name: &str) -> impl Iterator<Item = Option<&str>> {
    let values = name.split(SEPARATOR);
    values.map(|value| (value != NO_VALUE).then_some(value))
}

fn has_nested_calls(session: &Session, condition: &str) -> Result<bool> {
    has_rows(session, &format!("{condition} AND parent_id IS NOT NULL"))
}

fn has_unfinished_callers(session: &Session) -> Result<bool> {
    has_rows(session, "duration IS NULL")
}

fn has_rows(session: &Session, condition: &str) -> Result<bool> {
    let sql = format!("SELECT 1 FROM calls WHERE {condition} LIMIT 1");
    let batches = session.collect(&sql)?;
    Ok(batches.iter().any(|batch| batch.num_rows() > 0))
}
