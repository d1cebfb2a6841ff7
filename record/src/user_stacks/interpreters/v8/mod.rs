//! A process that runs V8, as Node.js does: its JavaScript functions, read from its memory.
//!
//! ```text
//! shared function info   name or scope info, script
//!   scope info           flags, parameters, local variables, name, name by inference, where it starts and ends
//!   script               source text, name
//! ```
//! Pointers have their lowest bit set; numbers have 32 bits, in the upper half of a word. Where the members are is in the program
//! itself, in variables for debuggers ([`Layout`]).

mod layout;
mod source;

use std::collections::HashMap;

use perfquet_ebpf::walk_tables::V8Entry;
use perfquet_events::bytes::Endian;
use perfquet_trace::symbols::limits::INTERPRETED_TEXT_MAX;

use super::code::{Code, LineTable, Memory, printable};
use super::process::{Mapped, Role};
use layout::Layout;
use source::Source;

/// Prefix of the builtins' symbols: functions written in V8's own languages, and the instructions of its interpreter.
const BUILTIN: &[u8] = b"Builtins_";
/// Those that run a function of JavaScript in that function's own frame.
const INTERPRETS: [&[u8]; 4] = [
    b"Handler",
    b"InterpreterEntryTrampoline",
    b"InterpreterEntryTrampolineForProfiling",
    b"BaselineOutOfLinePrologue",
];
/// Flags of a scope info.
const HAS_SAVED_CLASS_VARIABLE: u32 = 1 << 10;
const FUNCTION_VARIABLE: u32 = 3 << 12;
const HAS_INFERRED_NAME: u32 = 1 << 14;
/// With more local variables, a scope info has a table of their names elsewhere.
const INLINE_LOCALS: u64 = 75;
/// Type of a string: how it is represented, and whether a character has one byte.
const NOT_A_STRING: u16 = 0x80;
const REPRESENTATION: u16 = 7;
const SEQUENTIAL: u16 = 0;
const CONCATENATED: u16 = 1;
const EXTERNAL: u16 = 2;
const SLICED: u16 = 3;
const THIN: u16 = 5;
const ONE_BYTE: u16 = 8;
const UNCACHED: u16 = 0x10;
/// Strings that stand for others: one is enough for names of files.
const INDIRECTIONS_MAX: usize = 3;
/// Scripts whose lines are known.
const SOURCES_MAX: usize = 512;
const WORD: u64 = 8;

/// A process that runs V8.
pub(super) struct Process {
    memory: Memory,
    layout: Layout,
    entry: V8Entry,
    /// Builtins with a name of their own: start and end, sorted.
    builtins: Vec<(u64, u64)>,
    /// By script and its text.
    sources: HashMap<(u64, u64), Option<Source>>,
}

/// Characters of a string.
#[derive(Clone, Copy)]
struct Text {
    address: u64,
    length: u64,
    /// 1 or 2 bytes.
    width: u64,
}

impl Process {
    pub(super) fn in_file(file: &Mapped<'_>) -> Result<Option<Process>, String> {
        let variables = file.object.symbols_with_prefix(layout::PREFIX);
        if variables.is_empty() {
            return Ok(None);
        }
        let memory = Memory::of(file.pid)?;
        let value = |name: &str| {
            // Types are a part of the names, and they have changed.
            let is_it = |symbol: &&(String, u64)| match name.strip_suffix('*') {
                Some(start) => symbol.0.starts_with(start),
                None => symbol.0 == name,
            };
            let address = variables.iter().find(is_it)?.1;
            let bytes = memory.read(file.relocated(address)?, 4)?;
            Endian::Little.u32_at(&bytes, 0)
        };
        let layout = Layout::of(value)?;
        let mut builtins = file.code_of("builtins", |name| {
            let rest = name.strip_prefix(BUILTIN);
            rest.is_some_and(|rest| !INTERPRETS.iter().any(|end| rest.ends_with(end)))
        });
        builtins.sort_unstable();
        let entry = V8Entry {
            shared: layout.shared,
            name: layout.name,
        };
        log::debug!("process {} runs V8", file.pid);
        Ok(Some(Process {
            memory,
            layout,
            entry,
            builtins,
            sources: HashMap::new(),
        }))
    }

    /// Returns what the program in the kernel needs.
    pub(super) fn entry(&self) -> &V8Entry {
        &self.entry
    }

    /// Code without a name of its own evaluates the function whose frame it uses.
    pub(super) fn role(&self, address: u64) -> Role {
        let after = self
            .builtins
            .partition_point(|(start, _)| *start <= address);
        let before = after.checked_sub(1).and_then(|at| self.builtins.get(at));
        match before {
            Some((_, end)) if address < *end => Role::Other,
            _ => Role::Evaluates,
        }
    }

    pub(super) fn read_code(&mut self, shared: u64, name: u64) -> Option<Code> {
        let at = shared.checked_sub(1)?;
        if self.kind(shared)? != self.layout.shared_type || self.word(at, self.layout.name)? != name
        {
            return None;
        }
        let script = self.word(at, self.layout.script)?;
        let is_builtin = self.kind(script)? != self.layout.script_type;
        let (function, start) = match self.kind(name) {
            Some(kind) if kind == self.layout.scope_type => self.scope(name)?,
            Some(kind) if kind & !0x7f == 0 => (self.string(name)?, None),
            _ => (String::new(), None),
        };
        let mut file = String::new();
        let mut line = None;
        if !is_builtin {
            let script = script.checked_sub(1)?;
            let path = self.word(script, self.layout.script_name)?;
            file = self.string(path).unwrap_or_default();
            line = start.and_then(|start| self.line_of(script, start));
        }
        Some(Code {
            file: file.into(),
            function: match function.is_empty() {
                true => "(anonymous)".into(),
                false => function.into(),
            },
            first_line: line.unwrap_or(0),
            lines: LineTable::None,
            start: 0,
            is_builtin,
        })
    }

    /// Returns the name of a function, and where it starts in the text of its script.
    fn scope(&self, scope: u64) -> Option<(String, Option<u64>)> {
        let at = scope.checked_sub(1)?;
        let slot = |index: u64| {
            let offset = index.checked_add(1)?.checked_mul(WORD)?;
            self.memory.u64_at(at.checked_add(offset)?)
        };
        let value = |index: u64| slot(index).and_then(number);
        let has_position_first = self.layout.first_local >= layout::FIRST_LOCAL_AFTER_POSITION;
        let flags = match has_position_first {
            true => slot(0)? as u32,
            false => u32::try_from(value(0)?).ok()?,
        };
        let locals = value(self.layout.locals)?;
        let mut next = self.layout.first_local
            + match locals {
                0..INLINE_LOCALS => locals * 2,
                _ => locals + 1,
            };
        next += u64::from(flags & HAS_SAVED_CLASS_VARIABLE != 0);
        let mut name = String::new();
        if flags & FUNCTION_VARIABLE != 0 {
            name = self.string(slot(next)?).unwrap_or_default();
            next += 2;
        }
        if flags & HAS_INFERRED_NAME != 0 {
            if name.is_empty() {
                name = self.string(slot(next)?).unwrap_or_default();
            }
            next += 1;
        }
        let start = value(match has_position_first {
            true => layout::POSITION,
            false => next,
        });
        Some((name, start))
    }

    /// Returns the line of a position in a script.
    fn line_of(&mut self, script: u64, position: u64) -> Option<u32> {
        let text = self.word(script, self.layout.script_source)?;
        let before = number(self.word(script, self.layout.script_name + layout::LINE_AFTER_NAME)?);
        if self.sources.len() >= SOURCES_MAX {
            self.sources.clear();
        }
        if !self.sources.contains_key(&(script, text)) {
            let found = self.text(text, 0).and_then(Source::of);
            self.sources.insert((script, text), found);
        }
        let source = self.sources.get_mut(&(script, text))?.as_mut()?;
        let line = source.line_at(&self.memory, position)?;
        line.checked_add(u32::try_from(before.unwrap_or(0)).ok()?)
    }

    /// The word at an offset.
    fn word(&self, at: u64, offset: u32) -> Option<u64> {
        self.memory.u64_at(at.checked_add(offset.into())?)
    }

    /// The type of an object; `None` if it is a number.
    fn kind(&self, object: u64) -> Option<u16> {
        let at = object.checked_sub(1).filter(|_| object & 1 == 1)?;
        let map = self.memory.u64_at(at)?.checked_sub(1)?;
        let word = self
            .memory
            .read(map.checked_add(self.layout.map_type.into())?, 2)?;
        Endian::Little.u16_at(&word, 0)
    }

    /// Reads a string.
    fn string(&self, object: u64) -> Option<String> {
        let text = self.text(object, 0)?;
        if text.length > INTERPRETED_TEXT_MAX {
            return None;
        }
        let bytes = self.memory.read(text.address, text.length * text.width)?;
        let text = match text.width {
            1 => bytes.into_iter().map(char::from).collect(),
            _ => {
                let units = bytes
                    .chunks_exact(2)
                    .filter_map(|pair| Endian::Little.u16_at(pair, 0));
                String::from_utf16_lossy(&units.collect::<Vec<u16>>())
            }
        };
        Some(text.chars().map(printable).collect())
    }

    /// Where the characters of a string are; `None` if they are in two places.
    fn text(&self, object: u64, depth: usize) -> Option<Text> {
        let strings = &self.layout.strings;
        let kind = self.kind(object)?;
        if kind & !(NOT_A_STRING - 1) != 0 || depth > INDIRECTIONS_MAX {
            return None;
        }
        let at = object.checked_sub(1)?;
        let head = self
            .memory
            .read(at.checked_add(strings.length.into())?, 4)?;
        let length = u64::from(Endian::Little.u32_at(&head, 0)?);
        let width = if kind & ONE_BYTE != 0 { 1 } else { 2 };
        let address = match kind & REPRESENTATION {
            SEQUENTIAL => at.checked_add(strings.characters.into())?,
            EXTERNAL if kind & UNCACHED == 0 => self.word(at, strings.external + WORD as u32)?,
            THIN => return self.text(self.word(at, strings.thin)?, depth + 1),
            CONCATENATED => {
                let first = self.text(self.word(at, strings.first)?, depth + 1)?;
                return (first.length == length).then_some(first);
            }
            SLICED => {
                let parent = self.text(self.word(at, strings.parent)?, depth + 1)?;
                let skipped = number(self.word(at, strings.skipped)?)?;
                let end = skipped.checked_add(length)?;
                let address = parent.address.checked_add(skipped * parent.width)?;
                return (end <= parent.length).then_some(Text {
                    address,
                    length,
                    ..parent
                });
            }
            _ => return None,
        };
        Some(Text {
            address,
            length,
            width,
        })
    }
}

/// A number that is not negative.
fn number(word: u64) -> Option<u64> {
    let is_number = word & 0xffff_ffff == 0;
    (is_number && word >> 63 == 0).then_some(word >> 32)
}
