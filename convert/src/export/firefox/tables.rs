//! The tables that all threads share: strings, functions, frames, stacks, libraries.
//!
//! ```text
//! stack 3 ─► prefix 2, frame 5 ─► function 4 (vfs_write), category Kernel, line 12
//! ```
//! Indices have no gaps, and the index of a prefix is smaller than that of its stack: the profiler checks neither.

use std::collections::HashMap;

use anyhow::Result;

use super::super::json::{Json, text};
use super::super::stacks::{FrameId, Stacks, TextId};
use super::KERNEL;
use super::USER;

/// Index of a stack.
pub(super) type StackIndex = u32;

pub(super) struct Tables<'t> {
    stacks: &'t Stacks,
    strings: HashMap<String, u32>,
    all_strings: Vec<String>,
    nodes: Vec<(Option<StackIndex>, u32)>,
    by_node: HashMap<(Option<StackIndex>, u32), StackIndex>,
    /// The stack for each pair of user and kernel stack of the trace.
    by_stacks: HashMap<(Option<i32>, Option<i32>), Option<StackIndex>>,
    frames: Vec<Frame>,
    by_frame: HashMap<FrameId, u32>,
    functions: Vec<Function>,
    by_function: HashMap<(u32, Option<u32>, Option<u32>), u32>,
    libraries: Vec<Library>,
    by_library: HashMap<TextId, u32>,
    sources: Vec<u32>,
    by_source: HashMap<TextId, u32>,
}

struct Frame {
    address: Option<u64>,
    inline_depth: usize,
    category: usize,
    function: u32,
    line: Option<i32>,
}

struct Function {
    name: u32,
    library: Option<u32>,
    source: Option<u32>,
}

struct Library {
    path: TextId,
    build_id: Option<TextId>,
    /// String index of the name.
    name: u32,
}

impl<'t> Tables<'t> {
    pub(super) fn new(stacks: &'t Stacks) -> Tables<'t> {
        Tables {
            stacks,
            strings: HashMap::new(),
            all_strings: Vec::new(),
            nodes: Vec::new(),
            by_node: HashMap::new(),
            by_stacks: HashMap::new(),
            frames: Vec::new(),
            by_frame: HashMap::new(),
            functions: Vec::new(),
            by_function: HashMap::new(),
            libraries: Vec::new(),
            by_library: HashMap::new(),
            sources: Vec::new(),
            by_source: HashMap::new(),
        }
    }

    /// Returns the index of a string.
    pub(super) fn string(&mut self, text: &str) -> u32 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.all_strings.len() as u32;
        self.strings.insert(text.to_owned(), index);
        self.all_strings.push(text.to_owned());
        index
    }

    /// Returns the index of a sample's stack: kernel frames are callees of the user frames.
    pub(super) fn stack(&mut self, user: Option<i32>, kernel: Option<i32>) -> Option<StackIndex> {
        if let Some(index) = self.by_stacks.get(&(user, kernel)) {
            return *index;
        }
        let mut frames = Vec::new();
        self.stacks.frames_of(kernel, &mut frames);
        self.stacks.frames_of(user, &mut frames);
        let mut prefix = None;
        let mut depth = 0;
        for id in frames.iter().rev() {
            let is_inlined = self
                .stacks
                .frame(*id)
                .is_some_and(|frame| frame.inlined_into.is_some());
            depth = if is_inlined { depth + 1 } else { 0 };
            let frame = self.frame(*id, depth);
            let next = self.nodes.len() as StackIndex;
            let node = *self.by_node.entry((prefix, frame)).or_insert(next);
            if node == next {
                self.nodes.push((prefix, frame));
            }
            prefix = Some(node);
        }
        self.by_stacks.insert((user, kernel), prefix);
        prefix
    }

    fn frame(&mut self, id: FrameId, inline_depth: usize) -> u32 {
        if let Some(index) = self.by_frame.get(&id) {
            return *index;
        }
        let found = self.stacks.frame(id).copied().unwrap_or_default();
        let library = found
            .module
            .map(|module| self.library(module, found.build_id));
        let source = found.file.map(|file| self.source(file));
        let stacks = self.stacks;
        let name = self.string(&stacks.label(&found));
        let next = self.functions.len() as u32;
        let function = *self
            .by_function
            .entry((name, library, source))
            .or_insert(next);
        if function == next {
            self.functions.push(Function {
                name,
                library,
                source,
            });
        }
        let index = self.frames.len() as u32;
        self.by_frame.insert(id, index);
        self.frames.push(Frame {
            // Relative to the library; the profiler's numbers cannot represent kernel addresses.
            address: found.offset,
            inline_depth,
            category: if found.is_kernel { KERNEL } else { USER },
            function,
            line: found.line,
        });
        index
    }

    fn library(&mut self, path: TextId, build_id: Option<TextId>) -> u32 {
        if let Some(index) = self.by_library.get(&path) {
            return *index;
        }
        let stacks = self.stacks;
        let name = self.string(base(stacks.text(Some(path)).unwrap_or_default()));
        let index = self.libraries.len() as u32;
        self.by_library.insert(path, index);
        self.libraries.push(Library {
            path,
            build_id,
            name,
        });
        index
    }

    fn source(&mut self, file: TextId) -> u32 {
        if let Some(index) = self.by_source.get(&file) {
            return *index;
        }
        let stacks = self.stacks;
        let name = self.string(stacks.text(Some(file)).unwrap_or_default());
        let index = self.sources.len() as u32;
        self.by_source.insert(file, index);
        self.sources.push(name);
        index
    }

    /// Writes `"libs":[…],"shared":{…}`.
    pub(super) fn write(&self, json: &mut Json<'_>, architecture: &str) -> Result<()> {
        json.raw("\"libs\":[")?;
        json.list(&self.libraries, |json, library| {
            let path = self.stacks.text(Some(library.path)).unwrap_or_default();
            let build_id = self.stacks.text(library.build_id).unwrap_or_default();
            let (path, name) = (text(path), text(base(path)));
            json.raw(format!(
                "{{\"arch\":{},\"name\":{name},\"path\":{path},\"debugName\":{name},\"debugPath\":{path},\"breakpadId\":\"{}\",\"codeId\":{}}}",
                text(architecture),
                breakpad_id(build_id),
                text(build_id),
            ))
        })?;
        json.raw("],\"shared\":{\"stringArray\":[")?;
        json.list(&self.all_strings, |json, string| json.text(string))?;
        json.raw(format!(
            "],\"sources\":{{\"length\":{},",
            self.sources.len()
        ))?;
        column(json, "uuid", &self.sources, |_| "null".to_owned())?;
        json.raw(",")?;
        column(json, "filename", &self.sources, u32::to_string)?;
        json.raw(format!(
            "}},\"stackTable\":{{\"length\":{},",
            self.nodes.len()
        ))?;
        column(json, "frame", &self.nodes, |(_, frame)| frame.to_string())?;
        json.raw(",")?;
        column(json, "prefix", &self.nodes, |(prefix, _)| or_null(*prefix))?;
        json.raw("},")?;
        self.write_frames(json)?;
        self.write_functions(json)?;
        let libraries = &self.libraries;
        json.raw(format!(
            "\"resourceTable\":{{\"length\":{},",
            libraries.len()
        ))?;
        let indices: Vec<usize> = (0..libraries.len()).collect();
        column(json, "lib", &indices, usize::to_string)?;
        json.raw(",")?;
        column(json, "name", libraries, |library| library.name.to_string())?;
        json.raw(",")?;
        column(json, "host", libraries, |_| "null".to_owned())?;
        json.raw(",")?;
        // 1: a library.
        column(json, "type", libraries, |_| "1".to_owned())?;
        json.raw("},\"nativeSymbols\":{\"length\":0,\"libIndex\":[],\"address\":[],\"name\":[],\"functionSize\":[]}}")
    }

    fn write_frames(&self, json: &mut Json<'_>) -> Result<()> {
        let frames = &self.frames;
        json.raw(format!("\"frameTable\":{{\"length\":{},", frames.len()))?;
        column(json, "address", frames, |frame| {
            frame
                .address
                .map_or("-1".to_owned(), |address| address.to_string())
        })?;
        json.raw(",")?;
        column(json, "inlineDepth", frames, |frame| {
            frame.inline_depth.to_string()
        })?;
        json.raw(",")?;
        column(json, "category", frames, |frame| frame.category.to_string())?;
        json.raw(",")?;
        column(json, "subcategory", frames, |_| "0".to_owned())?;
        json.raw(",")?;
        column(json, "func", frames, |frame| frame.function.to_string())?;
        for name in ["nativeSymbol", "innerWindowID"] {
            json.raw(",")?;
            column(json, name, frames, |_| "null".to_owned())?;
        }
        json.raw(",")?;
        column(json, "line", frames, |frame| or_null(frame.line))?;
        json.raw(",")?;
        column(json, "column", frames, |_| "null".to_owned())?;
        json.raw("},")
    }

    fn write_functions(&self, json: &mut Json<'_>) -> Result<()> {
        let functions = &self.functions;
        json.raw(format!("\"funcTable\":{{\"length\":{},", functions.len()))?;
        column(json, "name", functions, |function| {
            function.name.to_string()
        })?;
        for name in ["isJS", "relevantForJS"] {
            json.raw(",")?;
            column(json, name, functions, |_| "false".to_owned())?;
        }
        json.raw(",")?;
        column(json, "resource", functions, |function| {
            function
                .library
                .map_or("-1".to_owned(), |library| library.to_string())
        })?;
        json.raw(",")?;
        column(json, "source", functions, |function| {
            or_null(function.source)
        })?;
        for name in ["lineNumber", "columnNumber"] {
            json.raw(",")?;
            column(json, name, functions, |_| "null".to_owned())?;
        }
        json.raw("},")
    }
}

/// Writes `"name":[…]`.
pub(super) fn column<T>(
    json: &mut Json<'_>,
    name: &str,
    rows: &[T],
    cell: impl Fn(&T) -> String,
) -> Result<()> {
    json.raw(format!("\"{name}\":["))?;
    json.list(rows, |json, row| json.raw(cell(row)))?;
    json.raw("]")
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Formats the first 16 bytes of a build ID as a GUID of little-endian numbers with an age of 0.
fn breakpad_id(build_id: &str) -> String {
    let digits = format!("{build_id:0<32}");
    let Some(digits) = digits.get(..32).filter(|digits| digits.is_ascii()) else {
        return "0".repeat(33);
    };
    let swapped = |range: std::ops::Range<usize>| -> String {
        let pairs = digits.as_bytes()[range].chunks(2).rev();
        pairs
            .map(|pair| String::from_utf8_lossy(pair).into_owned())
            .collect()
    };
    let guid = swapped(0..8) + &swapped(8..12) + &swapped(12..16) + &digits[16..];
    guid.to_ascii_uppercase() + "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_become_guids() {
        assert_eq!(
            breakpad_id("00112233445566778899aabbccddeeff00112233"),
            "33221100554477668899AABBCCDDEEFF0"
        );
        assert_eq!(breakpad_id(""), "0".repeat(33));
    }
}
