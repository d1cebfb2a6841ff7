//! The tables of a profile, as columns: stacks, frames, functions, resources, libraries, strings.

use std::borrow::Cow;

use perfquet_events::event::{NamedFrame, Space};

use super::symbols::Symbols;
use crate::json::{elements, integer, members, text};

/// Values of a column; a hostile profile has one for every two bytes.
const VALUES_MAX: usize = 1 << 26;
const STRINGS_MAX: usize = 1 << 23;
/// Far more frames than any stack has.
const STACK_MAX: usize = 1 << 16;
/// No value.
const NONE: i32 = -1;

/// A mapped file.
#[derive(Debug, Default)]
pub(super) struct Library<'a> {
    path: Cow<'a, [u8]>,
    build_id: Cow<'a, [u8]>,
    /// Number in the file with symbols beside the profile.
    symbols: Option<u32>,
}

/// Libraries and categories, which all threads share.
#[derive(Debug, Default)]
pub(super) struct Shared<'a> {
    pub(super) libraries: Vec<Library<'a>>,
    pub(super) categories: Vec<Cow<'a, [u8]>>,
    /// Frames without a name are named after their library: `[libc.so.6]`.
    pub(super) is_ours: bool,
    /// Names from the file beside the profile.
    pub(super) symbols: Symbols<'a>,
}

/// Columns of the tables; `-1` for null. One struct, because the columns of its tables refer to each other.
#[derive(Debug, Default)]
pub(super) struct Tables<'a> {
    pub(super) strings: Vec<Cow<'a, [u8]>>,
    stack_frame: Vec<i32>,
    stack_prefix: Vec<i32>,
    /// Prefixes are distances: 0 for a root.
    has_offsets: bool,
    frame_func: Vec<i32>,
    frame_line: Vec<i32>,
    frame_address: Vec<i64>,
    frame_depth: Vec<i32>,
    frame_category: Vec<i32>,
    frame_lib: Vec<i32>,
    func_name: Vec<i32>,
    func_resource: Vec<i32>,
    /// Index of the file's name.
    func_file: Vec<i32>,
    func_source: Vec<i32>,
    func_line: Vec<i32>,
    resource_lib: Vec<i32>,
    source_file: Vec<i32>,
}

/// The member of the first object that has it.
pub(super) fn member<'a>(objects: &[&'a [u8]], name: &[u8]) -> &'a [u8] {
    let mut found = objects
        .iter()
        .flat_map(|object| members(object))
        .filter(|(key, _)| *key == name);
    found.next().map_or(b"", |(_, value)| value)
}

/// The integers of a column; -1 for null and for values that are no integers.
fn integers(table: &[u8], name: &[u8]) -> Vec<i32> {
    let column = elements(member(&[table], name)).take(VALUES_MAX);
    column
        .map(|value| {
            integer(value)
                .and_then(|value| i32::try_from(value).ok())
                .unwrap_or(NONE)
        })
        .collect()
}

fn at(column: &[i32], index: i32) -> i32 {
    let index = usize::try_from(index).ok();
    index
        .and_then(|index| column.get(index).copied())
        .unwrap_or(NONE)
}

impl<'a> Shared<'a> {
    /// The categories of `meta` and a list of libraries.
    pub(super) fn of(
        meta: &'a [u8],
        libs: &'a [u8],
        is_ours: bool,
        symbols: Symbols<'a>,
    ) -> Shared<'a> {
        let library = |object| Library::of(object, &symbols);
        let libraries = elements(libs).take(VALUES_MAX).map(library).collect();
        let name = |object: &'a [u8]| text(member(&[object], b"name"));
        Shared {
            libraries,
            categories: elements(member(&[meta], b"categories"))
                .take(STRINGS_MAX)
                .map(name)
                .collect(),
            is_ours,
            symbols,
        }
    }
}

impl<'a> Library<'a> {
    fn of(object: &'a [u8], symbols: &Symbols<'_>) -> Library<'a> {
        let mut library = Library::default();
        let mut name = Cow::default();
        for (key, value) in members(object) {
            match key {
                b"path" => library.path = text(value),
                b"name" => name = text(value),
                b"breakpadId" => library.symbols = symbols.number(&text(value)),
                b"codeId" if value != b"null" => library.build_id = text(value),
                _ => {}
            }
        }
        if library.path.is_empty() {
            library.path = name;
        }
        library
    }
}

impl<'a> Tables<'a> {
    /// The tables of a thread, or of all; each in the first of the objects that has it.
    pub(super) fn of(objects: &[&'a [u8]]) -> Tables<'a> {
        let table = |name: &[u8]| member(objects, name);
        let (stacks, frames, funcs) = (
            table(b"stackTable"),
            table(b"frameTable"),
            table(b"funcTable"),
        );
        let mut strings = table(b"stringArray");
        if strings.is_empty() {
            strings = match table(b"stringTable") {
                list @ [b'[', ..] => list,
                object => member(&[object], b"_array"),
            };
        }
        let offsets = integers(stacks, b"prefixOffset");
        let addresses = elements(member(&[frames], b"address")).take(VALUES_MAX);
        Tables {
            strings: elements(strings).take(STRINGS_MAX).map(text).collect(),
            stack_frame: integers(stacks, b"frame"),
            has_offsets: !offsets.is_empty(),
            stack_prefix: match offsets.is_empty() {
                true => integers(stacks, b"prefix"),
                false => offsets,
            },
            frame_func: integers(frames, b"func"),
            frame_line: integers(frames, b"line"),
            frame_address: addresses
                .map(|value| integer(value).unwrap_or(-1))
                .collect(),
            frame_depth: integers(frames, b"inlineDepth"),
            frame_category: integers(frames, b"category"),
            frame_lib: integers(frames, b"lib"),
            func_name: integers(funcs, b"name"),
            func_resource: integers(funcs, b"resource"),
            func_file: integers(funcs, b"fileName"),
            func_source: integers(funcs, b"source"),
            func_line: integers(funcs, b"lineNumber"),
            resource_lib: integers(table(b"resourceTable"), b"lib"),
            source_file: integers(table(b"sources"), b"filename"),
        }
    }

    /// Number of stacks.
    pub(super) fn stacks_count(&self) -> usize {
        self.stack_frame.len()
    }

    /// Fills the frames of a stack, leaf first. Returns false if an index is not in its table.
    pub(super) fn frames<'t>(
        &'t self,
        stack: i32,
        shared: &'t Shared<'a>,
        frames: &mut Vec<NamedFrame<'t>>,
    ) -> bool {
        let mut stack = stack;
        while stack != NONE {
            let frame = at(&self.stack_frame, stack);
            let is_known = usize::try_from(frame).is_ok_and(|frame| frame < self.frame_func.len());
            if !is_known || frames.len() >= STACK_MAX {
                return false;
            }
            frames.push(self.frame(frame, shared));
            let prefix = at(&self.stack_prefix, stack);
            let next = match (self.has_offsets, prefix) {
                (true, 0) => NONE,
                (true, offset) => stack.saturating_sub(offset),
                (false, prefix) => prefix,
            };
            // A prefix comes first, so there is no cycle.
            if next >= stack || next < NONE {
                return false;
            }
            stack = next;
        }
        true
    }

    fn string(&self, index: i32) -> &[u8] {
        let index = usize::try_from(index).ok();
        index
            .and_then(|index| self.strings.get(index))
            .map_or(b"", |text| text)
    }

    fn frame<'t>(&'t self, frame: i32, shared: &'t Shared<'a>) -> NamedFrame<'t> {
        let func = at(&self.frame_func, frame);
        let library = match at(&self.frame_lib, frame) {
            NONE => at(&self.resource_lib, at(&self.func_resource, func)),
            library => library,
        };
        let library = usize::try_from(library)
            .ok()
            .and_then(|index| shared.libraries.get(index));
        let (module, build_id) = library.map_or((&b""[..], &b""[..]), |library| {
            (&library.path, &library.build_id)
        });
        let address = usize::try_from(frame)
            .ok()
            .and_then(|frame| self.frame_address.get(frame).copied());
        let address = address.and_then(|address| u64::try_from(address).ok());
        let file = match at(&self.func_source, func) {
            NONE => self.string(at(&self.func_file, func)),
            source => self.string(at(&self.source_file, source)),
        };
        let line = match at(&self.frame_line, frame) {
            NONE => at(&self.func_line, func),
            line => line,
        };
        let name = self.string(at(&self.func_name, func));
        let symbol = || {
            let library = library.and_then(|library| library.symbols)?;
            let address = i64::try_from(address?).ok()?;
            shared.symbols.name(library, address)
        };
        NamedFrame {
            function: match is_unnamed(name, shared.is_ours) {
                true => symbol().unwrap_or_default(),
                false => name,
            },
            module,
            build_id,
            module_offset: address.filter(|_| library.is_some()),
            address: address.filter(|_| library.is_none()),
            file,
            line: u32::try_from(line).ok().filter(|line| *line > 0),
            space: self.space(frame, module, shared),
            inlined: at(&self.frame_depth, frame) > 0,
            ..NamedFrame::default()
        }
    }

    fn space(&self, frame: i32, module: &[u8], shared: &Shared<'_>) -> Space {
        let category = usize::try_from(at(&self.frame_category, frame)).ok();
        let category = category.and_then(|index| shared.categories.get(index));
        match category.map(|name| &**name) {
            Some(b"Kernel") => Space::Kernel,
            _ if module.starts_with(b"[kernel") => Space::Kernel,
            Some(b"User") => Space::User,
            _ => Space::Unknown,
        }
    }
}

/// Whether a name says only where the code is: `0x12f4`, and in our exports `[libc.so.6]`.
fn is_unnamed(name: &[u8], is_ours: bool) -> bool {
    let is_address = name
        .strip_prefix(b"0x")
        .is_some_and(|digits| crate::lines::hexadecimal(digits).is_some());
    let is_module = is_ours && name.starts_with(b"[") && name.ends_with(b"]");
    is_address || is_module
}
