//! Stacks with weights: of events by time and thread, of calls, of aggregates, and of two traces.

use std::collections::HashMap;

use anyhow::{Result, bail};
use perfquet::Session;
use perfquet_trace::count::grouped;
use serde_json::{Value, json};

use super::cells::{Cell, Cells, NO_THREAD, Threads};
use super::since::Since;
use super::trees::{Names, packed};
use super::{EXACT, section, unless_failed};
use crate::filter::Filters;
use crate::render::Section;
use crate::render::columns::Columns;
use crate::render::flame::{Flame, FlameTree, Kind, Label, Node};
use crate::reports::boxes::{Groups, Incomplete, Merge, Naming, Shape, note_of_incomplete};
use crate::reports::event_weight::{EventChoice, WeightedEvent, with_any_row};
use crate::reports::flamegraph::Flamegraph;
use crate::reports::folding::Folded;

/// Events of a page, unless they are chosen.
const EVENTS: usize = 4;
/// Maximum number of frames of all events, and of other stacks, since more make a page slow; the lightest ones are merged.
pub(super) const MOST_NODES: usize = 400_000;

/// The stacks of one event.
pub(super) struct Profile {
    pub(super) event: WeightedEvent,
    pub(super) tree: FlameTree,
    pub(super) cells: Cells,
    pub(super) samples: u64,
    pub(super) notes: Vec<String>,
    /// The note on incomplete stacks of all samples, and the hint that it ends with: the page counts those of a selection.
    pub(super) incomplete: Option<[String; 2]>,
    pub(super) source: Source,
}

/// What a profile is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Event,
    /// Periods off the CPU. Their cells may be several slots long (`off_cpu.rs`).
    OffCpu,
}

/// The profiles of the events, and the one of the time off the CPU.
pub(super) fn of_events(
    session: &Session,
    filters: &Filters,
    wanted: &[String],
    since: Since,
    slot: i64,
    threads: &mut Threads,
    mut off_cpu: Option<Profile>,
) -> Result<Vec<Profile>> {
    let mut profiles = Vec::new();
    for event in events(session, wanted, off_cpu.is_some())? {
        // What was sampled comes first: where time goes.
        if event.table != "samples" {
            profiles.extend(off_cpu.take());
        }
        let profile = of_event(session, filters, event, since, slot, threads)?;
        if profile.samples > 0 || !wanted.is_empty() {
            profiles.push(profile);
        }
    }
    profiles.extend(off_cpu);
    Ok(profiles)
}

/// Events whose meaning is the time off the CPU, not their number.
fn is_of_scheduler(event: &WeightedEvent) -> bool {
    let name = event.name.strip_prefix("sched:sched_").unwrap_or_default();
    ["switch", "wak", "migrate_task", "stat_"]
        .iter()
        .any(|start| name.starts_with(start))
}

fn events(session: &Session, wanted: &[String], has_off_cpu: bool) -> Result<Vec<WeightedEvent>> {
    if wanted.is_empty() {
        let mut all = with_any_row(session)?;
        all.retain(|event| {
            let is_off_cpu = has_off_cpu && is_of_scheduler(event);
            !event.is_bookkeeping() && !is_off_cpu
        });
        let mut events = Vec::new();
        for event in &all {
            if events.len() < EVENTS && has_stacks(session, event)? {
                events.push(event.clone());
            }
        }
        // An event without stacks is drawn only if there is nothing else.
        if events.is_empty() && !has_off_cpu && !session.has_rows("calls") {
            events.extend(all.into_iter().take(1));
        }
        return Ok(events);
    }
    let choose = |event: &String| EventChoice::of(event).subject(session);
    wanted.iter().map(choose).collect()
}

fn has_stacks(session: &Session, event: &WeightedEvent) -> Result<bool> {
    let sql = event.fill(
        "SELECT 1 FROM {table} WHERE {where} LIMIT 1",
        "(user_stack IS NOT NULL OR kernel_stack IS NOT NULL)",
    );
    let batches = session.collect(&sql)?;
    Ok(batches.iter().any(|batch| batch.num_rows() > 0))
}

fn of_event(
    session: &Session,
    filters: &Filters,
    event: WeightedEvent,
    since: Since,
    slot: i64,
    threads: &mut Threads,
) -> Result<Profile> {
    let condition = filters.condition(session)?;
    let groups = Groups::new(&[])?;
    let key = groups.sql_with(&[]);
    let numbers = [
        format!(
            "coalesce(CAST({} / {slot} AS BIGINT), -1)",
            since.of("time")
        ),
        format!("coalesce(CAST(tid AS BIGINT), {NO_THREAD})"),
    ];
    let mut cells = Vec::new();
    let folded = Folded::query_parts(session, &event, &condition, &key, &numbers, |part| {
        let [slot, tid] = part.numbers;
        cells.push(Cell {
            slot,
            thread: threads.of(i32::try_from(tid).unwrap_or(NO_THREAD)),
            node: part.row,
            bar: 0,
            weight: part.weight,
            count: part.samples,
        });
    })?;
    let names = groups.names(session, &folded)?;
    let incomplete = Incomplete::of(session, &event.table);
    let mut merge = Merge::new(Shape {
        naming: Naming::Functions,
        across_builds: false,
        is_reversed: false,
        incomplete,
        before: None,
    });
    merge.add(session.forest(), &folded, &names)?;
    let cells = Cells::of_rows(cells, &merge.leaves);
    let hint = incomplete.hint(&event.table);
    let note = note_of_incomplete(merge.incomplete, folded.samples, hint);
    Ok(Profile {
        notes: Vec::new(),
        incomplete: note.map(|note| [note, hint.to_owned()]),
        event,
        tree: merge.tree,
        cells,
        samples: folded.samples,
        source: Source::Event,
    })
}

impl Profile {
    /// Joins `steps` slots to one.
    pub(super) fn coarsen(&mut self, steps: i64, slot: i64) {
        match self.source {
            Source::Event => self.cells.coarsen(steps),
            Source::OffCpu => self.cells.coarsen_spans(steps, slot),
        }
    }

    /// The profile with its lightest frames merged if there are more than `most`.
    pub(super) fn pruned(&self, most: usize, omitted: &mut Vec<String>) -> Profile {
        let (tree, nodes) = pruned(&self.tree, most, &self.event.name, omitted);
        let mut cells = self.cells.clone();
        for cell in &mut cells.0 {
            cell.node = nodes[cell.node as usize];
        }
        cells.coarsen(1);
        Profile {
            event: self.event.clone(),
            tree,
            cells,
            samples: self.samples,
            notes: self.notes.clone(),
            incomplete: self.incomplete.clone(),
            source: self.source,
        }
    }

    pub(super) fn json(mut self, names: &mut Names, columns: &mut Columns) -> Value {
        let all: u128 = self.cells.0.iter().map(|cell| cell.weight).sum();
        let scale = scale(all);
        let (tree, places) = packed(&self.tree, names, columns);
        for cell in &mut self.cells.0 {
            cell.node = places[cell.node as usize];
        }
        let commands = self.commands();
        let mut json = json!({
            "kind": "event",
            "name": self.event.name,
            "unit": unit(self.event.unit, scale),
            "is_count": all == u128::from(self.samples),
            "is_off_cpu": self.source == Source::OffCpu,
            "notes": self.notes,
            "incomplete": self.incomplete,
            "cells": self.cells.json(scale, columns),
        });
        extend(&mut json, commands);
        extend(&mut json, tree);
        json
    }

    /// The commands with the same output on the command line.
    fn commands(&self) -> Value {
        let name = &self.event.name;
        match self.source {
            Source::Event => json!({
                "flamegraph": ["flamegraph", "--event", name],
                "top": ["top", "--event", name],
                "heatmap": ["heatmap", "--event", name],
            }),
            Source::OffCpu => json!({
                "flamegraph": ["flamegraph", "--sql", OFF_CPU],
                "top": ["waits"],
                "heatmap": ["heatmap", "--event", "sched:sched_switch"],
            }),
        }
    }
}

/// The stacks of the periods off the CPU.
const OFF_CPU: &str = "SELECT comm, state, user_stack, kernel_stack, duration FROM off_cpu WHERE duration IS NOT NULL";

/// Stacks whose weights have no time: of calls, of aggregates, or of the difference between two traces.
pub(super) struct Untimed {
    kind: &'static str,
    flame: Flame,
    command: Vec<String>,
}

/// Calls and aggregates.
pub(super) fn without_time(
    session: &Session,
    filters: &Filters,
    wanted: &[String],
    omitted: &mut Vec<String>,
) -> Result<Vec<Untimed>> {
    let mut found = Vec::new();
    if !wanted.is_empty() {
        return Ok(found);
    }
    let mut add = |kind: &'static str, words: &[&str]| -> Result<()> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let mut command = vec!["flamegraph".to_owned()];
        command.extend(words.iter().cloned());
        let options = [words, filters.arguments()].concat();
        let answer = section::<Flamegraph>(session, &options);
        if let Some(Section::Flame(flame)) = unless_failed(answer, kind, omitted)? {
            found.push(Untimed {
                kind,
                flame,
                command,
            });
        }
        Ok(())
    };
    if session.has_rows("calls") {
        add("calls", &["--weight", "duration"])?;
    }
    // Those without stacks are a table.
    if session.has_rows("aggregates") && session.has_rows("stacks") && !session.has_rows("samples")
    {
        add("aggregates", &[])?;
    }
    Ok(found)
}

/// The stacks of two traces, if events have any.
pub(super) fn difference(
    session: &Session,
    filters: &Filters,
    wanted: &[String],
    omitted: &mut Vec<String>,
) -> Result<Vec<Untimed>> {
    if wanted.is_empty() && !session.has_rows("stacks") && !session.has_rows("samples") {
        return Ok(Vec::new());
    }
    let events = match wanted {
        [] => vec![None],
        wanted => wanted.iter().map(Some).collect(),
    };
    let mut found = Vec::new();
    for event in events {
        let mut words = vec!["--diff".to_owned()];
        words.extend(
            event
                .iter()
                .flat_map(|&event| ["--event".to_owned(), event.clone()]),
        );
        let mut command = vec!["flamegraph".to_owned()];
        command.extend(words.iter().cloned());
        words.extend(filters.arguments());
        let answer = section::<Flamegraph>(session, &words);
        // Functions may be compared even if no stacks can be.
        match unless_failed(answer, "stacks", omitted)? {
            Some(Section::Flame(flame)) => found.push(Untimed {
                kind: "difference",
                flame,
                command,
            }),
            Some(_) => bail!("flamegraph: expected stacks"),
            None => {}
        }
    }
    Ok(found)
}

impl Untimed {
    pub(super) fn json(
        &self,
        most: usize,
        names: &mut Names,
        columns: &mut Columns,
        omitted: &mut Vec<String>,
    ) -> Value {
        let flame = &self.flame;
        let (tree, _) = pruned(&flame.tree, most, self.kind, omitted);
        let (now, before) = tree.totals()[0];
        let scale = scale(now.max(before));
        let (boxes, places) = packed(&tree, names, columns);
        let mut weights = |of: fn(&Node) -> u128| -> Value {
            let mut weights = vec![0; tree.nodes.len()];
            for (node, &place) in tree.nodes.iter().zip(&places) {
                weights[place as usize] = (of(node) / scale) as u64;
            }
            columns.add(weights)
        };
        let mut json = json!({
            "kind": self.kind,
            "name": flame.source,
            "subtitle": flame.subtitle,
            "unit": unit(&flame.unit, scale),
            "is_count": false,
            "is_off_cpu": flame.look.is_off_cpu,
            "notes": flame.notes,
            "own": weights(|node| node.own),
            "before": flame.compared.as_ref().map(|_| weights(|node| node.before)),
            "samples": flame.compared.as_ref().and_then(|compared| compared.samples),
            "flamegraph": self.command,
        });
        extend(&mut json, boxes);
        json
    }
}

/// Returns the tree reduced to its heaviest nodes, and the new node of each old one. Lighter nodes are merged into one frame.
fn pruned(
    tree: &FlameTree,
    most: usize,
    name: &str,
    omitted: &mut Vec<String>,
) -> (FlameTree, Vec<u32>) {
    let count = tree.nodes.len();
    if count <= most {
        return (tree.clone(), (0..count as u32).collect());
    }
    let totals = tree.totals();
    let weight = |node: u32| totals[node as usize].0 + totals[node as usize].1;
    let mut ranking: Vec<u32> = (1..count as u32).collect();
    ranking.select_nth_unstable_by_key(most, |&node| (std::cmp::Reverse(weight(node)), node));
    let mut is_kept = vec![false; count];
    is_kept[0] = true;
    ranking[..most]
        .iter()
        .for_each(|&node| is_kept[node as usize] = true);
    let mut short = FlameTree::new();
    short.labels = tree.labels.clone();
    let gathered = short.labels.len() as u32;
    short
        .labels
        .push(Label::new("[light frames]".to_owned(), Kind::Unknown));
    let mut places = vec![0u32; count];
    let mut gathers = HashMap::new();
    let mut light = 0u128;
    for (node, of) in tree.nodes.iter().enumerate() {
        let parent = places[of.parent as usize];
        let was_kept = is_kept[of.parent as usize];
        let place = match node {
            0 => 0,
            // A caller is as heavy as its callees, and comes first; among equals it may have been dropped.
            _ if is_kept[node] && was_kept => {
                short.nodes.push(Node {
                    parent,
                    own: 0,
                    before: 0,
                    ..of.clone()
                });
                short.nodes.len() as u32 - 1
            }
            _ if was_kept => *gathers.entry(parent).or_insert_with(|| {
                short.nodes.push(Node {
                    parent,
                    label: gathered,
                    own: 0,
                    before: 0,
                });
                short.nodes.len() as u32 - 1
            }),
            _ => parent,
        };
        is_kept[node] &= was_kept;
        places[node] = place;
        if !is_kept[node] {
            light += of.own + of.before;
        }
        short.nodes[place as usize].own += of.own;
        short.nodes[place as usize].before += of.before;
    }
    let all = totals[0].0 + totals[0].1;
    omitted.push(format!(
        "{name}: {} of {} frames, with {:.2}% of the weight, are gathered in [light frames]; sums of functions miss at most that",
        grouped((count - most) as u64),
        grouped(count as u64),
        light as f64 / all.max(1) as f64 * 100.0
    ));
    (short, places)
}

/// The power of ten by which weights are divided, so that a script's numbers are exact.
fn scale(all: u128) -> u128 {
    let mut scale = 1;
    while all / scale > EXACT {
        scale *= 10;
    }
    scale
}

fn unit(unit: &str, scale: u128) -> String {
    match scale {
        1 => unit.to_owned(),
        scale => format!("{scale} {unit}"),
    }
}

fn extend(value: &mut Value, more: Value) {
    if let (Value::Object(value), Value::Object(more)) = (value, more) {
        value.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookkeeping_is_no_profile() {
        let event = |name: &str| WeightedEvent {
            name: name.to_owned(),
            ..crate::reports::event_weight::every_event()
        };
        for name in [
            "perf:namespaces",
            "perf:bpf_event",
            "perfquet:walk",
            "dummy",
            "dummy:HG",
            "sched:sched_process_exec",
            "task:task_newtask",
        ] {
            assert!(event(name).is_bookkeeping(), "{name}");
        }
        for name in [
            "cycles:u",
            "cpu-clock",
            "page-faults",
            "sched:sched_switch",
            "syscalls:sys_enter_read",
        ] {
            assert!(!event(name).is_bookkeeping(), "{name}");
        }
        for name in [
            "sched:sched_switch",
            "sched:sched_waking",
            "sched:sched_wakeup_new",
            "sched:sched_migrate_task",
        ] {
            assert!(is_of_scheduler(&event(name)), "{name}");
        }
        assert!(!is_of_scheduler(&event("block:block_rq_issue")));
    }

    #[test]
    fn light_frames_are_gathered_with_their_weight() {
        let mut tree = FlameTree::new();
        tree.labels.push(Label::new("f".to_owned(), Kind::Function));
        for node in 0..MOST_NODES as u32 + 500 {
            tree.nodes.push(Node {
                // A caller with one callee each.
                parent: if node % 2 == 0 { 0 } else { node },
                label: 0,
                own: u128::from(node % 7),
                before: 0,
            });
        }
        let mut omitted = Vec::new();
        let (short, places) = pruned(&tree, MOST_NODES, "e", &mut omitted);
        assert!(short.nodes.len() <= MOST_NODES + 501);
        assert_eq!(short.totals()[0], tree.totals()[0]);
        assert_eq!(places.len(), tree.nodes.len());
        let parents = short.nodes.iter().enumerate().skip(1);
        assert!(
            parents
                .clone()
                .all(|(node, of)| (of.parent as usize) < node)
        );
        assert_eq!(omitted.len(), 1);
    }
}
