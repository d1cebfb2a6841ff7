//! The frames of a trace's stacks, in memory.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, StringViewArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int32Type, Schema, UInt64Type};
use perfquet_trace::function_name::in_brackets;

use super::read;
use crate::stacks::key::FrameIdentity;
use crate::stacks::strings;
use crate::trace::Trace;

/// The table `frames`; frame 1 is row 0.
#[derive(Debug)]
pub struct Frames {
    /// All columns but the IDs, named as in [`Frames::columns`].
    pub batch: RecordBatch,
    function: StringViewArray,
    module: StringViewArray,
    build_id: StringViewArray,
    function_offset: Int64Array,
    kernel: BooleanArray,
    /// The frame inlined into this one, and the call site that this one is inlined into; 0 if none.
    inner: Vec<u32>,
    outer: Vec<u32>,
    /// For each frame, the first one of the same function; built on first use.
    same_function: OnceLock<Vec<u32>>,
    /// A frame at each address of the kernel; built on first use.
    of_kernel: OnceLock<HashMap<u64, u32>>,
}

impl Frames {
    /// Columns of `stack_frames`.
    pub fn columns() -> Vec<Field> {
        let text = |name| Field::new(name, DataType::Utf8View, true);
        vec![
            text("function"),
            text("module"),
            Field::new("module_offset", DataType::UInt64, true),
            Field::new("address", DataType::UInt64, true),
            text("file"),
            Field::new("line", DataType::Int32, true),
            text("space"),
        ]
    }

    pub(super) fn read(trace: &Trace) -> Result<Frames> {
        let fields = Frames::columns();
        let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let own_count = names.len();
        names.extend(["frame_id", "inlined_into", "build_id", "function_offset"]);
        let batches = read(trace, "frames", &names)?;
        let schema = Arc::new(Schema::new(fields.clone()));
        let mut own = Vec::new();
        let (mut build_ids, mut function_offsets) = (Vec::new(), Vec::new());
        let (mut inner, mut outer) = (vec![0u32], vec![0u32]);
        for batch in &batches {
            let ids = batch.column(own_count).as_primitive::<Int32Type>();
            let into: &Int32Array = batch.column(own_count + 1).as_primitive();
            for row in 0..batch.num_rows() {
                if usize::try_from(ids.value(row)) != Ok(outer.len()) {
                    bail!(
                        "{}: table frames: row {}: expected frame_id {0}, found {1}",
                        trace.path.display(),
                        outer.len(),
                    );
                }
                let into = if into.is_valid(row) {
                    into.value(row)
                } else {
                    0
                };
                outer.push(u32::try_from(into).unwrap_or(0));
            }
            let columns: Result<Vec<ArrayRef>, _> = schema
                .fields()
                .iter()
                .zip(batch.columns())
                .map(|(field, column)| arrow::compute::cast(column, field.data_type()))
                .collect();
            own.push(RecordBatch::try_new(Arc::clone(&schema), columns?)?);
            build_ids.push(strings(batch.column(own_count + 2))?);
            function_offsets.push(super::ids(batch.column(own_count + 3))?);
        }
        inner.resize(outer.len(), 0);
        for frame in 1..outer.len() {
            let into = outer[frame] as usize;
            if into >= outer.len() || into == frame {
                outer[frame] = 0;
            } else if into != 0 {
                inner[into] = frame as u32;
            }
        }
        let batch = concat_batches(&schema, &own)?;
        let text = |index: usize| batch.column(index).as_string_view().clone();
        let space = text(6);
        let kernel = space
            .iter()
            .map(|space| Some(space.is_some_and(|space| space.contains("kernel"))));
        Ok(Frames {
            function: text(0),
            module: text(1),
            build_id: build_ids.iter().flatten().collect(),
            function_offset: function_offsets.iter().flatten().collect(),
            kernel: kernel.collect(),
            inner,
            outer,
            same_function: OnceLock::new(),
            of_kernel: OnceLock::new(),
            batch,
        })
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.function.len()
    }

    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of the function, if known.
    pub fn function(&self, frame: u32) -> Option<&str> {
        let row = frame as usize - 1;
        self.function
            .is_valid(row)
            .then(|| self.function.value(row))
    }

    /// The outermost frame at an address of the kernel.
    pub fn kernel_frame(&self, address: u64) -> Option<u32> {
        let frames = self.of_kernel.get_or_init(|| {
            let addresses = self.batch.column(3).as_primitive::<UInt64Type>();
            let rows = 0..self.len();
            let rows = rows.filter(|&row| {
                let is_inlined = self.outer.get(row + 1).is_some_and(|&outer| outer != 0);
                self.kernel.value(row) && addresses.is_valid(row) && !is_inlined
            });
            // The first of an address.
            let frames = rows.rev().map(|row| (addresses.value(row), row as u32 + 1));
            frames.collect()
        });
        frames.get(&address).copied()
    }

    /// File with the code, if known.
    pub fn module(&self, frame: u32) -> Option<&str> {
        let row = frame as usize - 1;
        self.module.is_valid(row).then(|| self.module.value(row))
    }

    /// Build ID of the module in hexadecimal, if known.
    pub fn build_id(&self, frame: u32) -> Option<&str> {
        let row = frame as usize - 1;
        self.build_id
            .is_valid(row)
            .then(|| self.build_id.value(row))
    }

    /// Distance from the start of the function in bytes, if known; that of inlined code is not.
    pub fn function_offset(&self, frame: u32) -> Option<i64> {
        let row = frame as usize - 1;
        let known = self.function_offset.is_valid(row);
        known.then(|| self.function_offset.value(row))
    }

    /// Returns the source file and line, if known.
    pub fn source(&self, frame: u32) -> (Option<&str>, Option<i32>) {
        let row = frame as usize - 1;
        let files = self.batch.column(4).as_string_view();
        let lines = self.batch.column(5).as_primitive::<Int32Type>();
        (
            files.is_valid(row).then(|| files.value(row)),
            lines.is_valid(row).then(|| lines.value(row)),
        )
    }

    /// Returns the identity of a frame, equal on every host.
    pub(super) fn identity(&self, frame: u32) -> FrameIdentity<'_> {
        let row = frame as usize - 1;
        let place = |column: usize| {
            let places = self.batch.column(column).as_primitive::<UInt64Type>();
            places.is_valid(row).then(|| places.value(row))
        };
        FrameIdentity {
            module: self.module(frame).unwrap_or_default(),
            build_id: self.build_id(frame),
            offset: place(2),
            address: place(3),
            function: self.function(frame),
            function_offset: self.function_offset(frame),
        }
    }

    /// Whether the frame is inlined into another.
    pub fn is_inlined(&self, frame: u32) -> bool {
        self.outer[frame as usize] != 0
    }

    /// The address, or the offset in the module, if known.
    pub fn place(&self, frame: u32) -> Option<u64> {
        let row = frame as usize - 1;
        [3, 2].into_iter().find_map(|column| {
            let places = self.batch.column(column).as_primitive::<UInt64Type>();
            places.is_valid(row).then(|| places.value(row))
        })
    }

    /// Whether the code is the kernel's.
    pub fn is_kernel(&self, frame: u32) -> bool {
        self.kernel.value(frame as usize - 1)
    }

    /// The first frame of the same function; the frame itself if the function is unknown.
    pub fn same_function(&self, frame: u32) -> u32 {
        let first = self.same_function.get_or_init(|| {
            let mut first: HashMap<(&str, Option<&str>), u32> = HashMap::new();
            let frames = 1..=self.len() as u32;
            let of = |frame: u32| match self.function(frame) {
                Some(function) => *first.entry((function, self.module(frame))).or_insert(frame),
                None => frame,
            };
            std::iter::once(0).chain(frames.map(of)).collect()
        });
        first[frame as usize]
    }

    /// Returns the label of a frame: its function, otherwise its module in brackets.
    pub fn name(&self, frame: u32) -> std::borrow::Cow<'_, str> {
        match (self.function(frame), self.module(frame)) {
            (Some(function), _) => function.into(),
            (None, Some(module)) => in_brackets(module).into(),
            (None, None) => "[unknown]".into(),
        }
    }

    /// Returns `frame` with all its inlined and outer frames, innermost first.
    pub(super) fn with_inlined(&self, frame: u32) -> impl Iterator<Item = u32> + '_ {
        // Deeper inlining results only from a damaged file that refers to itself.
        const DEEPEST: usize = 1000;
        let follow = |links: &[u32], from: u32| match links[from as usize] {
            0 => None,
            next => Some(next),
        };
        let innermost = std::iter::successors(Some(frame), |&frame| follow(&self.inner, frame))
            .take(DEEPEST)
            .last()
            .unwrap_or(frame);
        std::iter::successors(Some(innermost), move |&frame| follow(&self.outer, frame))
            .take(DEEPEST)
    }
}
