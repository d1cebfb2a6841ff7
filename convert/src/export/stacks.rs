//! The prefix tree of stacks with its frames, in memory: 8 bytes per node.
//!
//! ```text
//! node 3 ─► frame 7 (vfs_read), parent 2 ─► frame 4 (main), parent 1 ─► …
//!                └─ inlined into it: frame 9 (check)
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use anyhow::Result;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::batch;

/// Maximum depth of inlining; compilers stay below it.
const MAX_INLINED: usize = 256;

/// All stacks of a trace.
#[derive(Default)]
pub(super) struct Stacks {
    /// Parent and frame of each node, by ID.
    nodes: Vec<(u32, u32)>,
    /// By ID.
    frames: HashMap<FrameId, Frame>,
    texts: Vec<String>,
}

/// ID of a frame, as in `frames`.
pub(super) type FrameId = u32;

/// Number of a string, see [`Stacks::text`].
pub(super) type TextId = u32;

/// A location in code. Strings by number.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) module: Option<TextId>,
    pub(super) build_id: Option<TextId>,
    pub(super) function: Option<TextId>,
    /// From the start of the function.
    pub(super) function_offset: Option<u64>,
    pub(super) file: Option<TextId>,
    pub(super) line: Option<i32>,
    /// In the module's file.
    pub(super) offset: Option<u64>,
    /// Absolute, for the kernel and if the module is unknown.
    pub(super) address: Option<u64>,
    pub(super) is_kernel: bool,
    pub(super) inlined_into: Option<FrameId>,
    /// The frame inlined into this one.
    inlined: Option<FrameId>,
}

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) module: Option<&'a str>,
    pub(super) function: Option<&'a str>,
    /// From the start of the function.
    pub(super) function_offset: Option<u64>,
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
        let function_offsets = lengths(batch, "function_offset");
        let (build_ids, files) = (texts(batch, "build_id"), texts(batch, "file"));
        let (spaces, lines) = (texts(batch, "space"), ints(batch, "line"));
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
                function_offset: function_offsets(row),
                build_id: number(build_ids(row)),
                file: number(files(row)),
                line: lines(row).and_then(|line| i32::try_from(line).ok()),
                is_kernel: matches!(spaces(row), Some("kernel" | "guest kernel")),
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
            // A parent with a larger or equal ID would form a cycle.
            if let Some(node) = self.nodes.get_mut(place)
                && parent < id
            {
                *node = (parent, frame);
            }
        }
    }

    /// Returns the frames of a stack, leaf first; inlined frames precede the frame into which they are inlined.
    pub(super) fn places<'a>(&'a self, stack: Option<i32>, places: &mut Vec<Place<'a>>) {
        places.clear();
        let mut frames = Vec::new();
        self.frames_of(stack, &mut frames);
        let frames = frames.iter().filter_map(|id| self.frames.get(id));
        places.extend(frames.map(|frame| self.place(frame)));
    }

    /// Appends the IDs of a stack's frames, in the order of [`Stacks::places`].
    pub(super) fn frames_of(&self, stack: Option<i32>, frames: &mut Vec<FrameId>) {
        let mut node = stack
            .and_then(|stack| u32::try_from(stack).ok())
            .unwrap_or(0);
        while node > 0 {
            let Some(&(parent, outer)) = self.nodes.get(node as usize) else {
                break;
            };
            self.inlined_chain(outer, frames);
            node = parent;
        }
    }

    /// Appends a frame and those inlined into it, innermost first.
    pub(super) fn inlined_chain(&self, outer: FrameId, frames: &mut Vec<FrameId>) {
        let start = frames.len();
        let mut next = Some(outer);
        // Chains of inlined frames are short; a longer one is a cycle.
        for _ in 0..MAX_INLINED {
            let Some((id, frame)) = next.and_then(|id| Some((id, self.frames.get(&id)?))) else {
                break;
            };
            frames.push(id);
            next = frame.inlined;
        }
        frames[start..].reverse();
    }

    /// Returns a frame by its ID.
    pub(super) fn frame(&self, id: FrameId) -> Option<&Frame> {
        self.frames.get(&id)
    }

    /// Returns the name of a frame to print: its function, otherwise its module in brackets.
    pub(super) fn label(&self, frame: &Frame) -> Cow<'_, str> {
        match (self.text(frame.function), self.text(frame.module)) {
            (Some(function), _) => Cow::Borrowed(function),
            (None, Some(module)) => {
                let base = module.rsplit('/').next().unwrap_or(module);
                match base.starts_with('[') {
                    true => Cow::Borrowed(base),
                    false => Cow::Owned(format!("[{base}]")),
                }
            }
            (None, None) => Cow::Borrowed("[unknown]"),
        }
    }

    /// Returns whether the innermost frame of a stack is a kernel frame.
    pub(super) fn is_kernel(&self, stack: Option<i32>) -> bool {
        let node = stack.and_then(|stack| self.nodes.get(usize::try_from(stack).ok()?));
        let frame = node.and_then(|(_, frame)| self.frames.get(frame));
        frame.is_some_and(|frame| frame.is_kernel)
    }

    /// Returns whether any stack has more than one frame, that is, whether chains were recorded.
    pub(super) fn has_chains(&self) -> bool {
        self.nodes.iter().any(|(parent, _)| *parent > 0)
    }

    fn place(&self, frame: &Frame) -> Place<'_> {
        Place {
            module: self.text(frame.module),
            function: self.text(frame.function),
            function_offset: frame.function_offset,
            offset: frame.offset,
            address: frame.address,
            is_kernel: frame.is_kernel,
            is_inlined: frame.inlined_into.is_some(),
        }
    }

    /// Returns a string by its number.
    pub(super) fn text(&self, number: Option<TextId>) -> Option<&str> {
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

fn lengths(batch: &RecordBatch, name: &str) -> impl Fn(usize) -> Option<u64> {
    let column = batch.column_by_name(name).cloned();
    move |row| {
        let column = column.as_ref()?.as_primitive_opt::<Int64Type>()?;
        column
            .is_valid(row)
            .then(|| u64::try_from(column.value(row)).ok())?
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
        batch::text_at(column.as_ref(), row)
    }
}
