//! Frames become rows, with their names.
//!
//! All distinct frames are symbolized at the end: then build IDs are known, and each location is looked up once,
//! however often it was sampled. Functions inlined at a frame follow all outer frames, as rows that reference the frame
//! they are inlined into:
//!
//! ```text
//! frame_id  module    offset  function  inlined_into
//!        1  /bin/a    0x1234  main
//!        2  /bin/a    0x1234  parse                1
//!        3  /bin/a    0x1234  next                 2
//! ```
//! Stacks reference frame 1 only.

use perfquet_events::Error;
use perfquet_events::event::{Space, Symbol};

use super::frames::{Frame, FrameId, FrameKey, Frames, GroupFrame};
use super::life::hexadecimal;
use super::modules::{ModuleId, Modules, Placing};
use super::output::Output;
use super::texts::{TextId, Texts};
use crate::symbols::{
    CodePlace, FRAMES_AT_ONCE, FileIdentity, FirstMapped, KernelFacts, Name, Options, Origin,
    Request, Symbolizer,
};
use crate::tables;

/// Symbols from the input itself.
#[derive(Default)]
pub(crate) struct InputSymbols {
    symbols: Vec<InputSymbol>,
    /// The dumps of generated code.
    dumps: Vec<(i32, String)>,
    texts: Texts,
}

struct InputSymbol {
    module: Option<TextId>,
    start: u64,
    length: u64,
    name: TextId,
    line: Option<(TextId, u32)>,
}

impl InputSymbols {
    pub(crate) fn add(&mut self, symbol: &Symbol<'_>) {
        let texts = &mut self.texts;
        self.symbols.push(InputSymbol {
            module: symbol.module.map(|module| texts.intern(module)),
            start: symbol.start,
            length: symbol.length,
            name: texts.intern(symbol.name),
            line: symbol.line.map(|(file, line)| (texts.intern(file), line)),
        });
    }

    /// Sets the processes and their jitdumps.
    pub(crate) fn set_dumps<'d>(&mut self, dumps: impl Iterator<Item = (i32, &'d str)>) {
        self.dumps = dumps.map(|(pid, path)| (pid, path.to_owned())).collect();
    }

    /// Passes all symbols to a symbolizer.
    pub(crate) fn pass_to(&self, symbolizer: &mut Symbolizer) {
        for (pid, path) in &self.dumps {
            symbolizer.add_dump(*pid, path);
        }
        for symbol in &self.symbols {
            let text = |id| String::from_utf8_lossy(self.texts.get(id));
            let module = symbol.module.map(text);
            let module = module.as_deref();
            let (start, name) = (symbol.start, self.texts.get(symbol.name));
            symbolizer.add_symbol(module, start, symbol.length, name);
            if let (Some(module), Some((file, line))) = (module, symbol.line) {
                symbolizer.add_line(module, start, &text(file), line);
            }
        }
    }
}

/// A module with the data needed by requests and rows.
pub(super) struct Module {
    path: String,
    build_id: Option<Vec<u8>>,
    build_id_text: Option<String>,
    file: Option<FileIdentity>,
    first_mapped: FirstMapped,
    placing: Placing,
}

impl Module {
    /// The place of code at an offset of its file, for a reader of code.
    pub(super) fn code_place(&self, offset: u64) -> CodePlace<'_> {
        CodePlace {
            module: &self.path,
            build_id: self.build_id.as_deref(),
            file: self.file,
            first_mapped: self.first_mapped,
            offset,
            function: ("", 0),
        }
    }

    /// Path, or a name in brackets.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Time of its first mapping.
    pub(super) fn first_mapped(&self) -> FirstMapped {
        self.first_mapped
    }

    /// Build ID.
    pub(super) fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }
}

/// A frame before symbolization.
#[derive(Default)]
pub(super) struct Place<'m> {
    pub(super) module: Option<&'m str>,
    build_id: Option<&'m [u8]>,
    build_id_text: Option<&'m str>,
    file: Option<FileIdentity>,
    first_mapped: FirstMapped,
    offset: Option<u64>,
    address: Option<u64>,
    /// Known without a lookup.
    pub(super) names: Vec<Name>,
}

impl<'m> Place<'m> {
    /// The request for its names.
    pub(super) fn request(&self, key: &FrameKey) -> Request<'m> {
        Request {
            module: self.module,
            build_id: self.build_id,
            file: self.file,
            first_mapped: self.first_mapped,
            offset: self.offset,
            address: self.address,
            space: key.space,
            return_address: key.return_address,
        }
    }
}

/// Symbolizes and writes all frames; returns the next ID.
pub(crate) fn write(
    frames: &Frames,
    modules: &mut Modules,
    input_symbols: &InputSymbols,
    (kernel, origin): (&KernelFacts, Origin),
    options: &Options,
    output: &mut Output,
) -> Result<FrameId, Error> {
    let (first, keys) = frames.kept();
    let mut symbolizer = Symbolizer::new(options.clone(), kernel.clone(), origin)?;
    input_symbols.pass_to(&mut symbolizer);
    let modules = resolve(modules);
    let found = look_up(&mut symbolizer, keys, &modules);
    output.symbols.push(symbolizer.report().clone());
    // Free the symbol tables, which take more memory than the names.
    drop(symbolizer);
    let mut inlined = Vec::new();
    for (index, (id, key)) in (first..).zip(keys).enumerate() {
        let group = group_of(frames, key);
        let place = place(key, &group, &modules);
        let names = found.names(index, &place);
        write_frame(id, key, &place, names.first(), None, output)?;
        if names.len() > 1 {
            inlined.push((index, id));
        }
    }
    let mut id = first.wrapping_add(keys.len() as FrameId);
    for (index, mut into) in inlined {
        let Some(key) = keys.get(index) else { continue };
        let group = group_of(frames, key);
        let place = place(key, &group, &modules);
        for name in found.names(index, &place).iter().skip(1) {
            write_frame(id, key, &place, Some(name), Some(into), output)?;
            into = id;
            id += 1;
        }
    }
    Ok(id)
}

/// The names of all frames that come without one. They are looked up module by module, so that one symbol table is in
/// memory at a time; the kernel's, which is large, comes last.
fn look_up(symbolizer: &mut Symbolizer, keys: &[FrameKey], modules: &[Module]) -> FoundNames {
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    let key_at = |index: &u32| keys.get(*index as usize);
    order.sort_by_key(|index| key_at(index).map(|key| (key.space == Space::Kernel, key.frame())));
    let mut found = FoundNames::new(keys.len());
    for chunk in order.chunks(FRAMES_AT_ONCE) {
        let mut indices = Vec::new();
        let mut requests = Vec::new();
        for index in chunk {
            let Some(key) = key_at(index) else { continue };
            let place = place(key, &[], modules);
            if !place.names.is_empty() || matches!(key.frame(), Frame::Named(_)) {
                continue;
            }
            indices.push(*index);
            requests.push(place.request(key));
        }
        for (index, names) in indices.into_iter().zip(symbolizer.names(&requests)) {
            found.add(index, &names);
        }
    }
    found.inner.sort_by_key(|&(index, _)| index);
    found
}

/// The names found, stored compactly: there are as many as frames.
struct FoundNames {
    /// The function of each frame.
    outer: Vec<Option<FoundName>>,
    /// Functions inlined there, outermost first, with the frame's index.
    inner: Vec<(u32, FoundName)>,
    texts: Texts,
}

/// A [`Name`] in 32 bytes.
#[derive(Clone, Copy)]
struct FoundName {
    function_offset: Option<u64>,
    function: TextId,
    /// File index + 1 among the strings, and line + 1; 0 if unknown.
    file: u32,
    line: u32,
    is_unverified: bool,
}

impl FoundNames {
    fn new(frames: usize) -> FoundNames {
        FoundNames {
            outer: vec![None; frames],
            inner: Vec::new(),
            texts: Texts::default(),
        }
    }

    fn add(&mut self, index: u32, names: &[Name]) {
        let mut names = names.iter();
        let outer = names.next().map(|name| self.packed(name));
        if let Some(slot) = self.outer.get_mut(index as usize) {
            *slot = outer;
        }
        for name in names {
            let inner = self.packed(name);
            self.inner.push((index, inner));
        }
    }

    fn packed(&mut self, name: &Name) -> FoundName {
        let file = name.file.as_ref();
        FoundName {
            function_offset: name.function_offset,
            function: self.texts.intern(name.function.as_bytes()),
            file: file.map_or(0, |file| self.texts.intern(file.as_bytes()).0 + 1),
            line: name.line.map_or(0, |line| line.saturating_add(1)),
            is_unverified: name.is_unverified,
        }
    }

    fn unpacked(&self, name: FoundName) -> Name {
        let text = |id| String::from_utf8_lossy(self.texts.get(id)).into_owned();
        Name {
            function: text(name.function),
            function_offset: name.function_offset,
            file: name.file.checked_sub(1).map(|id| text(TextId(id))),
            line: name.line.checked_sub(1),
            is_unverified: name.is_unverified,
        }
    }

    /// The names of the frame at this index: from the input, or found.
    fn names(&self, index: usize, place: &Place<'_>) -> Vec<Name> {
        let Some(outer) = self.outer.get(index).copied().flatten() else {
            return place.names.clone();
        };
        let first = self
            .inner
            .partition_point(|&(other, _)| (other as usize) < index);
        let inner = self.inner.get(first..).unwrap_or_default().iter();
        let inner = inner.take_while(|&&(other, _)| other as usize == index);
        let all = std::iter::once(outer).chain(inner.map(|&(_, name)| name));
        all.map(|name| self.unpacked(name)).collect()
    }
}

/// Returns all modules, with their build IDs and files as known so far.
pub(super) fn resolve(modules: &mut Modules) -> Vec<Module> {
    modules
        .all()
        .map(|module| {
            let build_id = modules.build_id_of(module).map(<[u8]>::to_vec);
            Module {
                path: String::from_utf8_lossy(modules.path(module)).into_owned(),
                build_id_text: build_id.as_deref().map(hexadecimal),
                build_id,
                file: modules.file_of(module),
                first_mapped: modules.first_mapped(module),
                placing: modules.placing(module),
            }
        })
        .collect()
}

fn group_of(frames: &Frames, key: &FrameKey) -> Vec<GroupFrame> {
    match key.frame() {
        Frame::Named(id) => frames.group(id),
        Frame::Offset(..) | Frame::Address(..) | Frame::Unmapped(_) => Vec::new(),
    }
}

pub(super) fn place<'m>(
    key: &FrameKey,
    group: &'m [GroupFrame],
    modules: &'m [Module],
) -> Place<'m> {
    let of = |module: ModuleId| match modules.get(module.0 as usize) {
        Some(module) => Place {
            module: Some(&module.path),
            build_id: module.build_id.as_deref(),
            build_id_text: module.build_id_text.as_deref(),
            file: module.file,
            first_mapped: module.first_mapped,
            ..Place::default()
        },
        None => Place::default(),
    };
    match key.frame() {
        Frame::Offset(module, offset) => Place {
            offset: Some(offset),
            ..of(module)
        },
        Frame::Address(module, address) => Place {
            address: Some(address),
            names: symbol_name(modules.get(module.0 as usize), address),
            ..of(module)
        },
        Frame::Unmapped(address) => Place {
            address: Some(address),
            ..Place::default()
        },
        Frame::Named(_) => group_place(group),
    }
}

/// The module of a single symbol names its frames itself.
fn symbol_name(module: Option<&Module>, address: u64) -> Vec<Name> {
    match module {
        Some(Module {
            path,
            placing: Placing::Symbol { start },
            ..
        }) => vec![Name {
            function: path.clone(),
            function_offset: Some(address.wrapping_sub(*start)),
            file: None,
            line: None,
            is_unverified: false,
        }],
        _ => Vec::new(),
    }
}

/// The outermost of a group has the location; the others are inlined there.
fn group_place(group: &[GroupFrame]) -> Place<'_> {
    let Some(outer) = group.last() else {
        return Place::default();
    };
    let is_named = group.iter().any(|frame| !frame.function.is_empty());
    let name = |frame: &GroupFrame| Name {
        function: String::from_utf8_lossy(&frame.function).into_owned(),
        function_offset: frame.function_offset,
        file: match frame.file.as_slice() {
            [] => None,
            file => Some(String::from_utf8_lossy(file).into_owned()),
        },
        line: frame.line.and_then(|line| u32::try_from(line).ok()),
        is_unverified: false,
    };
    Place {
        module: known(&outer.module),
        build_id_text: known(&outer.build_id),
        offset: outer.module_offset,
        address: outer.address,
        names: match is_named {
            true => group.iter().rev().map(name).collect(),
            false => Vec::new(),
        },
        ..Place::default()
    }
}

/// A text that is not empty.
fn known(text: &[u8]) -> Option<&str> {
    str::from_utf8(text).ok().filter(|text| !text.is_empty())
}

fn write_frame(
    id: FrameId,
    key: &FrameKey,
    place: &Place<'_>,
    name: Option<&Name>,
    inlined_into: Option<FrameId>,
    output: &mut Output,
) -> Result<(), Error> {
    let function = name
        .map(|name| name.function.as_bytes())
        .filter(|function| !function.is_empty());
    let table = output.fixed.frames;
    output.counts.frames += 1;
    output.counts.named_frames += u64::from(function.is_some());
    tables::frames::Row {
        frame_id: id as i32,
        module: place.module.map(str::as_bytes),
        build_id: place.build_id_text.map(str::as_bytes),
        module_offset: place.offset,
        address: place.address,
        function,
        function_offset: name
            .and_then(|name| name.function_offset)
            .and_then(|offset| offset.try_into().ok()),
        file: name
            .and_then(|name| name.file.as_deref())
            .map(str::as_bytes),
        line: name
            .and_then(|name| name.line)
            .and_then(|line| line.try_into().ok()),
        inlined_into: inlined_into.map(|into| into as i32),
        space: key.space.as_str().map(str::as_bytes),
        return_address: key.return_address,
        unverified: name.map(|name| name.is_unverified),
    }
    .push(output.writer.rows(table));
    output.writer.end_row(table)
}
