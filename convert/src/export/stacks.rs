//! The prefix tree of stacks with its frames, in memory: 8 bytes per node.
//!
//! ```text
//! node 3 ─► frame 7 (vfs_read), parent 2 ─► frame 4 (main), parent 1 ─► …
//!                └─ inlined into it: frame 9 (check)
//! ```

use std::collections::HashMap;

use anyhow::Result;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::merged;

/// Maximum depth of inlining; compilers stay below it.
const MAX_INLINED: usize = 256;

/// All stacks of a trace.
#[derive(Default)]
pub(super) struct Stacks {
    /// Parent and frame of each node, by ID.
    nodes: Vec<(u32, u32)>,
    /// By ID.
    frames: HashMap<u32, Frame>,
    texts: Vec<String>,
}

/// A location in code. Strings by index.
#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    module: Option<u32>,
    function: Option<u32>,
    offset: Option<u64>,
    address: Option<u64>,
    space: Option<u32>,
    inlined_into: Option<u32>,
    /// The frame inlined into this one.
    inlined: Option<u32>,
}

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) module: Option<&'a str>,
    pub(super) function: Option<&'a str>,
    /// In the module's file.
    pub(super) offset: Option<u64>,
    /// Absolute, for the kernel and if the module is unknown.
    pub(super) address: Option<u64>,
    pub(super) is_kernel: bool,
    /// Whether it is inlined into the following frame.
    pub(super) is_inlined: bool,
}

impl Stacks {
    /// Reads `stacks` and `frames`.
    pub(super) fn read(trace: &Directory) -> Result<Stacks> {
        let mut stacks = Stacks::default();
        let mut numbers = HashMap::new();
        for batch in trace.read(tables::frames::NAME)? {
            stacks.add_frames(&batch?, &mut numbers);
        }
        let inlined: Vec<(u32, u32)> = stacks
            .frames
            .iter()
            .filter_map(|(id, frame)| Some((frame.inlined_into?, *id)))
            .collect();
        for (outer, inner) in inlined {
            if let Some(outer) = stacks.frames.get_mut(&outer) {
                outer.inlined = Some(inner);
            }
        }
        for batch in trace.read(tables::stacks::NAME)? {
            stacks.add_nodes(&batch?);
        }
        Ok(stacks)
    }

    fn add_frames(&mut self, batch: &RecordBatch, numbers: &mut HashMap<String, u32>) {
        let (ids, inlined_into) = (ints(batch, "frame_id"), ints(batch, "inlined_into"));
        let (offsets, addresses) = (
            addresses(batch, "module_offset"),
            addresses(batch, "address"),
        );
        let (modules, functions) = (texts(batch, "module"), texts(batch, "function"));
        let spaces = texts(batch, "space");
        for row in 0..batch.num_rows() {
            let Some(id) = ids(row) else {
                continue;
            };
            let mut number = |text: Option<&str>| {
                let text = text?;
                if let Some(number) = numbers.get(text) {
                    return Some(*number);
                }
                let number = u32::try_from(self.texts.len()).ok()?;
                self.texts.push(text.to_owned());
                numbers.insert(text.to_owned(), number);
                Some(number)
            };
            let frame = Frame {
                module: number(modules(row)),
                function: number(functions(row)),
                space: number(spaces(row)),
                offset: offsets(row),
                address: addresses(row),
                inlined_into: inlined_into(row),
                inlined: None,
            };
            self.frames.insert(id, frame);
        }
    }

    fn add_nodes(&mut self, batch: &RecordBatch) {
        let (ids, parents) = (ints(batch, "stack_id"), ints(batch, "parent_id"));
        let frames = ints(batch, "frame_id");
        for row in 0..batch.num_rows() {
            let (Some(id), Some(parent), Some(frame)) = (ids(row), parents(row), frames(row))
            else {
                continue;
            };
            // IDs have no gaps; the table is sorted by them.
            let place = id as usize;
            if place >= self.nodes.len() && place <= self.nodes.len() + batch.num_rows() {
                self.nodes.resize(place + 1, (0, 0));
            }
            // A parent that is not smaller would form a cycle.
            if let Some(node) = self.nodes.get_mut(place)
                && parent < id
            {
                *node = (parent, frame);
            }
        }
    }

    /// Frames of a stack, leaf first; inlined frames precede the frame that they are inlined into.
    pub(super) fn places<'a>(&'a self, stack: Option<i32>, places: &mut Vec<Place<'a>>) {
        places.clear();
        let mut node = stack
            .and_then(|stack| u32::try_from(stack).ok())
            .unwrap_or(0);
        while node > 0 {
            let Some(&(parent, outer)) = self.nodes.get(node as usize) else {
                break;
            };
            let start = places.len();
            let mut next = Some(outer);
            // Chains of inlined frames are short; a longer one is a cycle.
            for _ in 0..MAX_INLINED {
                let Some(frame) = next.and_then(|id| self.frames.get(&id)) else {
                    break;
                };
                places.push(self.place(frame));
                next = frame.inlined;
            }
            places[start..].reverse();
            node = parent;
        }
    }

    /// Whether any stack has more than one frame, that is, whether chains were recorded.
    pub(super) fn has_chains(&self) -> bool {
        self.nodes.iter().any(|(parent, _)| *parent > 0)
    }

    fn place(&self, frame: &Frame) -> Place<'_> {
        Place {
            module: self.text(frame.module),
            function: self.text(frame.function),
            offset: frame.offset,
            address: frame.address,
            is_kernel: matches!(self.text(frame.space), Some("kernel" | "guest kernel")),
            is_inlined: frame.inlined_into.is_some(),
        }
    }

    fn text(&self, number: Option<u32>) -> Option<&str> {
        self.texts.get(number? as usize).map(String::as_str)
    }
}

fn ints(batch: &RecordBatch, name: &str) -> impl Fn(usize) -> Option<u32> {
    let column = batch.column_by_name(name).cloned();
    move |row| {
        let column = column.as_ref()?.as_primitive_opt::<Int32Type>()?;
        column
            .is_valid(row)
            .then(|| u32::try_from(column.value(row)).ok())?
    }
}

fn addresses(batch: &RecordBatch, name: &str) -> impl Fn(usize) -> Option<u64> {
    let column = batch.column_by_name(name).cloned();
    move |row| {
        let column = column.as_ref()?.as_primitive_opt::<UInt64Type>()?;
        column.is_valid(row).then(|| column.value(row))
    }
}

fn texts<'b>(batch: &'b RecordBatch, name: &str) -> impl Fn(usize) -> Option<&'b str> {
    let column = batch.column_by_name(name);
    move |row| {
        let column = column.filter(|column| column.is_valid(row))?;
        merged::text_at(column.as_ref(), row)
    }
}
