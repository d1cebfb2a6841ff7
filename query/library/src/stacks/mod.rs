//! The prefix tree of a trace's stacks, in memory.
//!
//! ```text
//! stacks: stack_id 3, parent_id 1, frame_id 7      frames: frame_id 7, function "main", module "/bin/dd"
//! ```
//! Flame graphs, `top` and `stack_frames` walk it in Rust: a recursive query takes 20 to 50 times as long on
//! deep stacks. Nodes follow their parents, so one backward pass sums all subtrees.

mod frames;
mod key;
mod rows;
mod walk;

pub use frames::Frames;
pub use rows::{Boxes, RowStacks, StackColumns};
pub use walk::Walk;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};

use perfquet_trace::store::{self, ColumnSchema};

use crate::trace::{ID_STRIDE, Trace};

/// A string column, whichever of Arrow's string types it has.
pub fn strings(column: &ArrayRef) -> Result<StringViewArray> {
    Ok(cast(column, &DataType::Utf8View)?.as_string_view().clone())
}

/// Maximum number of traces whose trees are all kept.
const KEPT_TREES: usize = 64;

/// The trees of all traces, each read on first use.
#[derive(Debug)]
pub struct Forest {
    traces: Arc<Vec<Trace>>,
    trees: Vec<OnceLock<Result<Arc<Tree>, String>>>,
    by_name: HashMap<String, usize>,
}

impl Forest {
    pub fn new(traces: Arc<Vec<Trace>>) -> Forest {
        let trees = traces.iter().map(|_| OnceLock::new()).collect();
        // Of equal names, the first counts.
        let names = traces.iter().enumerate().rev();
        let by_name = names
            .map(|(index, trace)| (trace.name.clone(), index))
            .collect();
        Forest {
            traces,
            trees,
            by_name,
        }
    }

    /// The traces.
    pub fn traces(&self) -> &[Trace] {
        &self.traces
    }

    /// Number of traces.
    pub fn len(&self) -> usize {
        self.trees.len()
    }

    /// Whether there is no trace.
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// Name of a trace.
    pub fn name(&self, trace: usize) -> &str {
        &self.traces[trace].name
    }

    /// Index of the trace with that name.
    pub fn trace(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The trace of a stack ID.
    pub fn trace_of(&self, stack: i64) -> Option<usize> {
        let trace = usize::try_from(stack / ID_STRIDE).ok()?;
        match self.len() {
            1 => Some(0),
            count => Some(trace).filter(|&trace| trace < count),
        }
    }

    /// The tree of a trace for a reader that goes from trace to trace: not kept if there are many, whose trees do not fit into memory together.
    pub fn passing_tree(&self, trace: usize) -> Result<Arc<Tree>> {
        let is_kept = self.trees[trace].get().is_some() || self.len() <= KEPT_TREES;
        match is_kept {
            true => self.tree(trace),
            false => Ok(Arc::new(Tree::read(&self.traces[trace])?)),
        }
    }

    /// The tree of a trace.
    pub fn tree(&self, trace: usize) -> Result<Arc<Tree>> {
        let tree = self.trees[trace].get_or_init(|| {
            let tree = Tree::read(&self.traces[trace]);
            tree.map(Arc::new).map_err(|error| format!("{error:#}"))
        });
        tree.clone().map_err(anyhow::Error::msg)
    }
}

/// IDs of stacks and the like, as returned by any query: with several traces, they have 64 bits.
pub fn ids(column: &ArrayRef) -> Result<Int64Array> {
    let wide = cast(column, &DataType::Int64)?;
    Ok(wide.as_primitive::<Int64Type>().clone())
}

/// The stacks of one trace. Node 0 is the empty stack.
#[derive(Debug)]
pub struct Tree {
    /// Offset of this trace's IDs among those of all traces.
    pub id_offset: i64,
    parent: Vec<u32>,
    frame: Vec<u32>,
    pub frames: Frames,
    /// Outermost nodes whose callers are known to be missing; `None` if the trace does not record that.
    cut: Option<HashSet<u32>>,
    /// Keys of the stacks; built on first use.
    keys: OnceLock<Vec<u64>>,
}

impl Tree {
    fn read(trace: &Trace) -> Result<Tree> {
        let frames = Frames::read(trace)?;
        let (mut parent, mut frame) = (vec![0], vec![0]);
        let mut columns = vec!["stack_id", "parent_id", "frame_id"];
        let mut cut = None;
        if has_column(trace, "stacks", "cut") {
            columns.push("cut");
            cut = Some(HashSet::new());
        }
        for batch in &read(trace, "stacks", &columns)? {
            if let Some(cut) = &mut cut {
                let rows = batch
                    .column(3)
                    .as_boolean()
                    .iter()
                    .zip(parent.len() as u32..);
                cut.extend(rows.filter(|row| row.0 == Some(true)).map(|row| row.1));
            }
            let column = |index: usize| batch.column(index).as_primitive::<Int32Type>().values();
            for ((&id, &up), &at) in column(0).iter().zip(column(1)).zip(column(2)) {
                let expected = parent.len();
                // Walks rely on this: IDs without gaps, every parent before its children, existing frames.
                let in_order = usize::try_from(id) == Ok(expected);
                let rooted = usize::try_from(up).is_ok_and(|up| up < expected);
                let known = usize::try_from(at).is_ok_and(|at| at >= 1 && at <= frames.len());
                if !(in_order && rooted && known) {
                    bail!(
                        "{}: table stacks: row {expected}: expected stack_id {expected}, a parent_id below it and a known frame_id, found {id}, {up}, {at}",
                        trace.path.display()
                    );
                }
                parent.push(up as u32);
                frame.push(at as u32);
            }
        }
        // Rows are matched with nodes before the tree is read.
        let rows = trace.table("stacks").map_or(0, |table| table.rows());
        if parent.len() as u64 - 1 != rows {
            bail!(
                "{}: table stacks: expected {rows} rows, as in the manifest, found {}",
                trace.path.display(),
                parent.len() - 1
            );
        }
        Ok(Tree {
            id_offset: trace.id_offset,
            parent,
            frame,
            frames,
            cut,
            keys: OnceLock::new(),
        })
    }

    /// Number of nodes, including the empty stack.
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// Whether there is no node but that of the empty stack.
    pub fn is_empty(&self) -> bool {
        self.len() < 2
    }

    /// Whether callers of this outermost node are missing; `None` if the trace does not record that.
    pub fn is_cut(&self, root: u32) -> Option<bool> {
        self.cut.as_ref().map(|cut| cut.contains(&root))
    }

    /// The caller's node; 0 above the root.
    pub fn parent(&self, node: u32) -> u32 {
        self.parent[node as usize]
    }

    /// Returns the frames of one node, innermost first: several if code was inlined, none for the empty stack.
    pub fn frames_of_node(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let frame = self.frame[node as usize];
        self.frames
            .with_inlined(frame)
            .take_while(|&frame| frame != 0)
    }

    /// The distinct frames of a whole stack, leaf first: recursion does not repeat them.
    pub fn frames_of_stack(&self, stack: u32, seen: &mut Seen, into: &mut Vec<u32>) {
        into.clear();
        seen.forget();
        let mut node = stack;
        while node != 0 {
            into.extend(
                self.frames_of_node(node)
                    .filter(|&frame| seen.is_new(frame)),
            );
            node = self.parent(node);
        }
    }

    /// The stack as a string, root first: `main;read;vfs_read`.
    pub fn folded(&self, stack: u32) -> String {
        let mut names = Vec::new();
        let mut node = stack;
        while node != 0 {
            names.extend(
                self.frames_of_node(node)
                    .map(|frame| self.frames.name(frame)),
            );
            node = self.parent(node);
        }
        names.reverse();
        names.join(";")
    }

    /// The key of a stack, which is the same in every trace.
    pub fn key(&self, stack: u32) -> u64 {
        let keys = self.keys.get_or_init(|| {
            let mut keys = vec![0];
            for (&parent, &frame) in self.parent.iter().zip(&self.frame).skip(1) {
                let caller = keys[parent as usize];
                keys.push(key::below(caller, self.frames.identity(frame).key()));
            }
            keys
        });
        keys[stack as usize]
    }

    /// The node of a stack ID in this tree, or the empty stack.
    pub fn node(&self, stack: i64) -> Option<u32> {
        node_of(stack, self.id_offset, self.len() as u64)
    }
}

/// The node of a stack ID in a tree of `nodes` nodes, or the empty stack; `None` for an ID that is none of a stack.
pub fn node_of(stack: i64, id_offset: i64, nodes: u64) -> Option<u32> {
    let node = match stack {
        0 => 0,
        id => id.checked_sub(id_offset)?,
    };
    u32::try_from(node)
        .ok()
        .filter(|&node| u64::from(node) < nodes)
}

/// A set of numbers that can be cleared at once.
#[derive(Debug)]
pub struct Seen {
    round: u32,
    rounds: Vec<u32>,
}

impl Seen {
    /// For numbers below `count`.
    pub fn new(count: usize) -> Seen {
        Seen {
            round: 1,
            rounds: vec![0; count],
        }
    }

    pub fn forget(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.rounds.fill(0);
            self.round = 1;
        }
    }

    /// Whether `number` has not been added since the last `forget`.
    pub fn is_new(&mut self, number: u32) -> bool {
        std::mem::replace(&mut self.rounds[number as usize], self.round) != self.round
    }
}

/// Whether all parts of a table have a column.
fn has_column(trace: &Trace, table: &str, column: &str) -> bool {
    let has = |form: &Arc<Vec<ColumnSchema>>| form.iter().any(|own| own.name == column);
    trace
        .table(table)
        .is_some_and(|table| table.forms.iter().all(has))
}

/// Reads columns of a table, in the order of `columns`.
fn read(trace: &Trace, table: &str, columns: &[&str]) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    let Some(table) = trace.table(table) else {
        return Ok(batches);
    };
    for part in table.parts.iter().filter(|part| part.entry.rows > 0) {
        let own = table.forms[part.form].to_vec();
        let name = &table.schema.name;
        let rows = store::read_part(&trace.root, name, &part.entry, own, Some(columns))?;
        for batch in rows {
            batches.push(batch?);
        }
    }
    Ok(batches)
}
