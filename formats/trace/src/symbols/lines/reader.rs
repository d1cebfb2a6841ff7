//! The debug info of one file, open in blazesym.
//!
//! blazesym gets only the file, without a directory or name from which it could search for others. Compressed sections
//! are decompressed before ([`Elf::unpacked_copy`]), with a limit, so that both compressions can be read.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};
use perfquet_events::bytes::Endian;
use perfquet_events::input::Map;

use super::NoLines;
use super::message::{Level, Numbers, Reply};
use super::split::Split;
use crate::symbols::demangle::demangle;
use crate::symbols::elf::{Content, Elf};
use crate::symbols::variables::Sections;

/// Number of addresses looked up at once.
pub(super) const SLICE: usize = 256;
/// Paths and names longer than this are cut.
const TEXT_MAX_BYTES: usize = 4096;
/// Deeper than the nesting of any compiler.
const DEPTH_MAX: usize = 64;

/// A file and its debug info.
pub(super) struct Reader {
    /// Keeps the file descriptor open, by whose number blazesym opens the file.
    elf: Elf,
    source: Source<'static>,
    symbolizer: Symbolizer,
    split: Split,
    numbers: Numbers,
}

impl Reader {
    /// Reads enough to determine the reason, if there are no lines.
    pub(super) fn open(file: File) -> Result<Reader, NoLines> {
        let elf = parse(file)?;
        if elf.endian() != Endian::of(cfg!(target_endian = "big")) {
            return Err(NoLines::Foreign);
        }
        let elf = match elf.is_plain() {
            true => elf,
            false => parse(elf.unpacked_copy().map_err(no_copy)?)?,
        };
        let sections = Sections::of(&elf);
        let split = unless_it_panics(|| Split::of(&sections)).unwrap_or(Err(NoLines::Damaged))?;
        let file = elf.file().ok_or(NoLines::NotDescribed)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let nowhere: [&Path; 0] = [];
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(true)
            .enable_inlined_fns(true)
            .enable_demangling(false)
            .set_debug_dirs(Some(nowhere))
            .build();
        Ok(Reader {
            source: Source::Elf(source::Elf::new(path)),
            elf,
            symbolizer,
            split,
            numbers: Numbers::default(),
        })
    }

    /// Size of the data that blazesym reads.
    pub(super) fn bytes(&self) -> u64 {
        self.elf.content().len() as u64
    }

    /// Locates at most [`SLICE`] addresses.
    pub(super) fn locate(&mut self, addresses: &[u64]) -> Reply {
        let mut reply = Reply::default();
        let whole = self.look_up(addresses, &mut reply);
        if whole.is_none() {
            // One address makes blazesym panic: look up the others individually.
            reply.places.clear();
            for address in addresses {
                if self.look_up(&[*address], &mut reply).is_none() {
                    reply.places.push(Err(NoLines::Damaged));
                }
            }
        }
        reply
    }

    /// Adds the locations of some addresses to a reply; `None` if blazesym panicked.
    fn look_up(&mut self, addresses: &[u64], reply: &mut Reply) -> Option<()> {
        let symbolize = || {
            let input = Input::VirtOffset(addresses);
            self.symbolizer.symbolize(&self.source, input)
        };
        // Its caches are filled completely or not at all, so it remains usable.
        let found = unless_it_panics(symbolize)?;
        let Ok(found) = found else {
            let damaged = addresses.iter().map(|_| Err(NoLines::Damaged));
            reply.places.extend(damaged);
            return Some(());
        };
        for (address, symbolized) in addresses.iter().zip(&found) {
            let place = match self.split.holds(*address) {
                true => Err(NoLines::Split),
                false => levels(symbolized, &mut self.numbers, reply),
            };
            reply.places.push(place);
        }
        Some(())
    }
}

fn parse(file: File) -> Result<Elf, NoLines> {
    let map = Map::of(file).map_err(|_| NoLines::NoReader)?;
    Elf::parse(Content::Mapped(map)).map_err(|_| NoLines::Damaged)
}

fn no_copy(error: io::Error) -> NoLines {
    match error.kind() {
        io::ErrorKind::InvalidData => NoLines::Damaged,
        _ => NoLines::NoReader,
    }
}

/// Damaged debug info must not end an import, even if the library panics.
pub(super) fn unless_it_panics<T>(read: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()
}

/// The symbol's function at an address, and those inlined there, outermost first.
fn levels(
    symbolized: &Symbolized<'_>,
    numbers: &mut Numbers,
    reply: &mut Reply,
) -> Result<Vec<Level>, NoLines> {
    let (code, inlined) = match symbolized {
        Symbolized::Sym(Sym {
            code_info: Some(code),
            inlined,
            ..
        }) => (code, inlined),
        Symbolized::Unknown(Reason::IgnoredError) => return Err(NoLines::Damaged),
        Symbolized::Sym(_) | Symbolized::Unknown(_) => return Err(NoLines::NotThere),
    };
    let mut levels = vec![level(None, Some(code), numbers, reply)?];
    for function in inlined.iter().take(DEPTH_MAX) {
        let name = match function.name.as_ref() {
            "" => "[inlined]".to_owned(),
            name => demangle(cut(name).as_bytes()),
        };
        let name = Some(numbers.number(cut(&name), reply)?);
        levels.push(level(name, function.code_info.as_ref(), numbers, reply)?);
    }
    Ok(levels)
}

fn level(
    function: Option<u32>,
    code: Option<&CodeInfo<'_>>,
    numbers: &mut Numbers,
    reply: &mut Reply,
) -> Result<Level, NoLines> {
    let Some(code) = code else {
        return Ok(Level(function, None, None));
    };
    let path = code.to_path();
    let path = path.to_string_lossy();
    let file = numbers.number(cut(&path), reply)?;
    Ok(Level(function, Some(file), code.line))
}

fn cut(text: &str) -> &str {
    let end = text.floor_char_boundary(TEXT_MAX_BYTES);
    text.get(..end).unwrap_or(text)
}
