//! Calls merged by path: `main;read;vfs_read` is one node, however often it ran.

use std::collections::HashMap;

use anyhow::{Context, Result};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;

use perfquet::Session;
use perfquet::stacks::strings;

use crate::call_values::CallValues;
use crate::filter::Filters;

/// All calls, below node 0.
#[derive(Debug, Default)]
pub(super) struct Paths {
    pub(super) nodes: Vec<Node>,
    pub(super) names: Vec<String>,
    /// Number of calls added.
    pub(super) calls: u64,
    pub(super) name_ids: HashMap<String, u32>,
    /// Sums of the durations of each node's calls by part, in calls by part.
    pub(super) parts: HashMap<(u32, Part), u128>,
    pub(super) children: hashbrown::HashMap<(u32, u32), u32>,
}

/// All calls with the same path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) name: u32,
    pub(super) count: u64,
    /// Number of calls of known duration, and of known self time.
    pub(super) known: u64,
    pub(super) known_own: u64,
    /// Sums of the known ones.
    pub(super) total: u128,
    pub(super) own: u128,
    /// The total; of a node with calls of unknown duration, and of a group, at least that of its callees.
    pub(super) weight: u128,
}

/// Numbers by which the calls of a name are divided.
pub(super) type Part = Vec<i64>;

/// Returns the name of a node by that of its calls.
type Rename<'a> = &'a dyn Fn(&str) -> String;

/// A call that waits for its enclosing call.
struct Waiting {
    trace: usize,
    id: i64,
    parent: i64,
    base: u32,
    /// `None` if the call is not selected: what it calls is then below its own caller.
    name: Option<u32>,
    duration: Option<i64>,
    own: Option<i64>,
    part: Option<Part>,
}

/// The calls to read, and what of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// SQL for selected calls.
    pub(super) condition: &'a str,
    /// Whether calls between selected ones may not be selected.
    pub(super) has_holes: bool,
    /// SQL for a string; calls are below a node with its value.
    pub(super) key: Option<&'a str>,
    /// SQL for the name of a call.
    pub(super) name: &'a str,
    /// Whether the calls of a path are divided by the index of the trace, before `parts`.
    pub(super) by_trace: bool,
    /// SQL for numbers by which the calls of a path are divided.
    pub(super) parts: &'a [String],
}

impl Paths {
    /// Reads the calls selected by `filters`; `key` (SQL) puts them below a node with its value. A call is below the innermost
    /// selected one around it.
    pub(super) fn query(session: &Session, filters: &Filters, key: Option<&str>) -> Result<Paths> {
        let wanted = Wanted {
            condition: &filters.condition(session)?,
            has_holes: filters.may_divide_calls(),
            key,
            name: "coalesce(function, '[unknown]')",
            by_trace: false,
            parts: &[],
        };
        let mut paths = Paths::of(session, wanted, &str::to_owned)?;
        paths.settle();
        Ok(paths)
    }

    /// Reads the calls; `rename` returns the name of a node by that of its calls.
    pub(super) fn of(session: &Session, wanted: Wanted<'_>, rename: Rename<'_>) -> Result<Paths> {
        let several = session.traces().len() > 1;
        let selected = match wanted.has_holes {
            true => Some(selected(session, wanted.condition, several)?),
            false => None,
        };
        let mut keys = String::new();
        if several {
            keys.push_str("trace, ");
        }
        if let Some(key) = wanted.key {
            keys.push_str(&format!("{key} AS key, "));
        }
        for (place, part) in wanted.parts.iter().enumerate() {
            keys.push_str(&format!("CAST({part} AS BIGINT) AS part{place}, "));
        }
        let condition = match wanted.has_holes {
            true => "TRUE",
            false => wanted.condition,
        };
        let sql = include_str!("paths.sql")
            .replace("{keys}", &keys)
            .replace("{name}", wanted.name)
            .replace("{where}", condition);
        let mut places = CallValues::for_calls(session);
        let mut paths = Paths {
            nodes: vec![Node::default()],
            ..Paths::default()
        };
        let mut waiting = Vec::new();
        let mut answer = session.query(&sql)?;
        while let Some(batch) = answer.next_batch()? {
            for call in paths.read(session, &batch, &wanted, (selected.as_deref(), rename))? {
                paths.place(call, &mut places, &mut waiting);
            }
        }
        paths.place_waiting(waiting, &mut places);
        Ok(paths)
    }

    fn read(
        &mut self,
        session: &Session,
        batch: &RecordBatch,
        wanted: &Wanted<'_>,
        (selected, rename): (Option<&[CallValues]>, Rename<'_>),
    ) -> Result<Vec<Waiting>> {
        let (several, keyed) = (session.traces().len() > 1, wanted.key.is_some());
        let number = |name: &str| {
            let column = batch.column_by_name(name);
            let column =
                column.with_context(|| format!("paths.sql: expected the column {name}"))?;
            Ok::<_, anyhow::Error>(column.as_primitive::<Int64Type>())
        };
        let (ids, parents) = (number("call_id")?, number("parent_id")?);
        let (durations, owns) = (number("duration")?, number("self_time")?);
        let traces = several.then(|| strings(batch.column(0))).transpose()?;
        let keys = keyed
            .then(|| strings(batch.column(usize::from(several))))
            .transpose()?;
        let functions = strings(batch.column(batch.num_columns() - 3))?;
        let names = (0..wanted.parts.len()).map(|place| number(&format!("part{place}")));
        let parts: Vec<_> = names.collect::<Result<_>>()?;
        let mut calls = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let value =
                |column: &arrow::array::Int64Array| column.is_valid(row).then(|| column.value(row));
            let trace = traces
                .as_ref()
                .and_then(|names| session.forest().trace(names.value(row)));
            let (trace, id) = (trace.unwrap_or(0), ids.value(row));
            let is_selected = selected.is_none_or(|of| of[trace].get(id).is_some());
            let base = match &keys {
                _ if !is_selected => 0,
                Some(keys) if keys.is_valid(row) => self.base(keys.value(row)),
                Some(_) => self.base("[unknown]"),
                None => 0,
            };
            let part = || {
                let of_trace = wanted.by_trace.then_some(trace as i64);
                let numbers = parts.iter().map(|part| value(part).unwrap_or(i64::MIN));
                of_trace.into_iter().chain(numbers).collect()
            };
            calls.push(Waiting {
                trace,
                id,
                parent: value(parents).unwrap_or(0),
                base,
                name: is_selected.then(|| self.name_of(functions.value(row), rename)),
                duration: value(durations),
                own: value(owns),
                part: (is_selected && (wanted.by_trace || !parts.is_empty())).then(part),
            });
        }
        Ok(calls)
    }

    fn base(&mut self, key: &str) -> u32 {
        let name = self.name(key);
        self.child(0, name)
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.name_ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.name_ids.insert(name.to_owned(), id);
        id
    }

    /// The name of a call's node. Renamed ones are known by both names.
    fn name_of(&mut self, name: &str, rename: &dyn Fn(&str) -> String) -> u32 {
        if let Some(&id) = self.name_ids.get(name) {
            return id;
        }
        let id = self.name(&rename(name));
        self.name_ids.insert(name.to_owned(), id);
        id
    }

    fn child(&mut self, parent: u32, name: u32) -> u32 {
        let nodes = &mut self.nodes;
        *self.children.entry((parent, name)).or_insert_with(|| {
            nodes.push(Node {
                parent,
                name,
                ..Node::default()
            });
            nodes.len() as u32 - 1
        })
    }

    /// Places a call below its enclosing call, which may come later if times are equal or rows were late.
    fn place(&mut self, call: Waiting, places: &mut [CallValues], waiting: &mut Vec<Waiting>) {
        let around = match call.parent {
            0 => Some(0),
            parent => places[call.trace].get(parent),
        };
        match around {
            Some(around) => self.place_below(around, &call, places),
            None => waiting.push(call),
        }
    }

    /// Places a call below a node, or below its base if no selected call is around it.
    fn place_below(&mut self, around: u32, call: &Waiting, places: &mut [CallValues]) {
        let node = match (call.name, around) {
            (Some(name), 0) => self.child(call.base, name),
            (Some(name), around) => self.child(around, name),
            (None, around) => around,
        };
        places[call.trace].set(call.id, node);
        if call.name.is_some() {
            self.add(node, call);
        }
    }

    /// Places calls that preceded their parents, outermost first. A call without any parent among the rows (excluded by
    /// a condition, or lost by damage) is a root.
    fn place_waiting(&mut self, waiting: Vec<Waiting>, places: &mut [CallValues]) {
        let mut inside: HashMap<(usize, i64), Vec<usize>> = HashMap::new();
        let mut known: HashMap<(usize, i64), usize> = HashMap::new();
        for (index, call) in waiting.iter().enumerate() {
            inside
                .entry((call.trace, call.parent))
                .or_default()
                .push(index);
            known.insert((call.trace, call.id), index);
        }
        let is_root = |call: &Waiting| !known.contains_key(&(call.trace, call.parent));
        let mut is_placed = vec![false; waiting.len()];
        let mut pending: Vec<usize> = (0..waiting.len())
            .filter(|&index| is_root(&waiting[index]))
            .collect();
        // In a damaged file, calls may enclose each other: these are added one by one after the others.
        let mut rest = 0..waiting.len();
        while let Some(index) = pending.pop().or_else(|| rest.next()) {
            if std::mem::replace(&mut is_placed[index], true) {
                continue;
            }
            let call = &waiting[index];
            let around = places[call.trace].get(call.parent).unwrap_or(0);
            self.place_below(around, call, places);
            pending.extend(inside.get(&(call.trace, call.id)).into_iter().flatten());
        }
    }

    fn add(&mut self, node: u32, call: &Waiting) {
        let positive = |value: Option<i64>| value.unwrap_or(0).max(0) as u128;
        if let Some(part) = &call.part {
            *self.parts.entry((node, part.clone())).or_default() += positive(call.duration);
        }
        let node = &mut self.nodes[node as usize];
        node.count += 1;
        node.known += u64::from(call.duration.is_some());
        node.known_own += u64::from(call.own.is_some());
        node.total += positive(call.duration);
        node.own += positive(call.own);
        self.calls += 1;
    }

    /// Weighs each node. A call whose duration is known may end before its callees: these do not make it longer.
    fn settle(&mut self) {
        let mut inside = vec![0u128; self.nodes.len()];
        // Children follow their parents.
        for index in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[index];
            let is_exact = node.count > 0 && node.known == node.count;
            node.weight = match is_exact {
                true => node.total,
                false => node.total.max(node.own + inside[index]),
            };
            if index > 0 {
                inside[node.parent as usize] += node.weight;
            }
        }
    }
}

/// The selected calls of each trace, each with some value.
fn selected(session: &Session, condition: &str, several: bool) -> Result<Vec<CallValues>> {
    let mut selected = CallValues::for_calls(session);
    let trace = if several { "trace, " } else { "" };
    let sql = format!("SELECT {trace}call_id FROM calls WHERE {condition}");
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next_batch()? {
        let traces = several.then(|| strings(batch.column(0))).transpose()?;
        let ids = batch.column(batch.num_columns() - 1);
        let ids = ids.as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let trace = traces
                .as_ref()
                .and_then(|names| session.forest().trace(names.value(row)));
            selected[trace.unwrap_or(0)].set(ids.value(row), 0);
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: i64, parent: i64, name: u32, duration: Option<i64>) -> Waiting {
        Waiting {
            trace: 0,
            id,
            parent,
            base: 0,
            name: Some(name),
            duration,
            own: duration,
            part: None,
        }
    }

    fn merged(calls: Vec<Waiting>) -> Vec<(u32, u32, u64, u128)> {
        let mut paths = Paths {
            nodes: vec![Node::default()],
            ..Paths::default()
        };
        let (mut places, mut waiting) = ([CallValues::below(16)], Vec::new());
        for call in calls {
            paths.place(call, &mut places, &mut waiting);
        }
        paths.place_waiting(waiting, &mut places);
        paths.settle();
        let shown = paths.nodes[1..].iter();
        let mut shown: Vec<_> = shown
            .map(|node| (node.parent, node.name, node.count, node.weight))
            .collect();
        shown.sort_unstable();
        shown
    }

    #[test]
    fn order_does_not_matter() {
        let calls = || {
            vec![
                call(1, 0, 7, Some(5)),
                call(2, 1, 8, Some(3)),
                call(3, 2, 9, Some(1)),
                call(4, 1, 8, None),
            ]
        };
        let in_order = merged(calls());
        assert_eq!(in_order.len(), 3);
        let mut backwards = calls();
        backwards.reverse();
        assert_eq!(merged(backwards), in_order);
    }

    #[test]
    fn calls_around_which_none_is_selected_are_below_the_next_one() {
        let hidden = |id, parent| Waiting {
            name: None,
            ..call(id, parent, 0, Some(7))
        };
        let calls = vec![
            hidden(1, 0),
            Waiting {
                own: Some(1),
                ..call(2, 1, 7, Some(6))
            },
            hidden(3, 2),
            call(4, 3, 7, Some(5)),
        ];
        // Node 2 is below node 1, which is a root.
        assert_eq!(merged(calls), [(0, 7, 1, 6), (1, 7, 1, 5)]);
    }

    #[test]
    fn callees_make_no_call_longer_whose_end_is_known() {
        let calls = vec![
            // The callee ends later; a call without an end lasts at least as long as its callees.
            call(1, 0, 7, Some(5)),
            call(2, 1, 8, Some(9)),
            call(3, 0, 9, None),
            call(4, 3, 8, Some(9)),
        ];
        let weights = merged(calls).into_iter().map(|node| (node.1, node.3));
        assert_eq!(
            weights.collect::<Vec<_>>(),
            [(7, 5), (9, 9), (8, 9), (8, 9)]
        );
    }

    #[test]
    fn damaged_ids_lose_no_call() {
        let calls = vec![
            call(1, 2, 7, Some(1)),
            call(2, 1, 8, Some(1)),
            call(i64::MAX, 99, 9, Some(1)),
            call(-3, i64::MAX, 9, Some(1)),
        ];
        let count: u64 = merged(calls).iter().map(|node| node.2).sum();
        assert_eq!(count, 4);
    }
}
