//! Source lines and inlined functions, from DWARF, by blazesym.
//!
//! ```text
//! 0x11d4  →  work_inner, workload.c:16
//! 0x52e0  →  main, main.rs:9;  inlined: Vec::push, vec/mod.rs:2442;  ptr::write, ptr/mod.rs:1377
//! ```
//! Reading debug info is a hundred times slower than the symbol table, so it is done only if lines were requested. A
//! file may be hostile, and blazesym trusts it: a cycle, a million functions with the same million ranges, or endlessly
//! nested blocks take unlimited time and memory, and a failed allocation ends the process. So the programs read each
//! file in a separate process with limits ([`LineReader::Program`]); if that process dies, the file has no lines, and
//! the reason is reported.

mod limits;
mod message;
mod reader;
mod serve;
mod split;
mod worker;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Name;
use super::elf::Elf;
use message::Texts;
use reader::Reader;
use worker::Worker;

pub use serve::serve_lines;

/// Number of files whose debug info stays open: most names are requested file by file.
const KEPT_MAX: usize = 4;

/// The process that reads debug info.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineReader {
    /// This process, which a hostile file may end: for trusted files.
    InProcess,
    /// A separate process for each file, which a hostile file may end without harm: this program, whose `main` begins
    /// with [`serve_lines`].
    Program(PathBuf),
}

/// Reader of debug info.
pub(super) struct Lines {
    reader: LineReader,
    /// By the address of the file in memory, which the value keeps alive.
    files: HashMap<usize, File>,
    /// The open files, least recently used first.
    open: VecDeque<usize>,
    /// Total seconds for small files, so that a thousand hostile ones end too.
    patience_s: u64,
}

struct File {
    _elf: Arc<Elf>,
    state: State,
}

enum State {
    Here(Box<Reader>, Texts),
    Elsewhere(Worker),
    /// To be reopened.
    Closed,
    Without(NoLines),
}

/// The reason for a file without lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum NoLines {
    /// It has no debug info.
    NotDescribed,
    /// The debug info is in other files (-gsplit-dwarf).
    Split,
    /// The debug info is damaged.
    Damaged,
    /// Reading takes more time than a file of its size should.
    TooMuch,
    /// Reading takes more memory than a file of its size should.
    TooLarge,
    /// The debug info does not cover the address.
    NotThere,
    /// The file has the other byte order.
    Foreign,
    /// The reading process could not start.
    NoReader,
}

impl NoLines {
    /// A sentence about a file.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            NoLines::NotDescribed => "no debug info",
            NoLines::Split => "its debug info is in .dwo files, which are not read",
            NoLines::Damaged => "its debug info is damaged",
            NoLines::TooMuch => "its debug info takes too long to read",
            NoLines::TooLarge => "its debug info takes too much memory to read",
            NoLines::NotThere => "its debug info does not cover the address",
            NoLines::Foreign => "its debug info is in the byte order of another architecture",
            NoLines::NoReader => "the process that reads its debug info did not start",
        }
    }
}

/// Lines and inlined functions at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Location {
    /// In the function of the symbol: the line, or that of the inlined call.
    outer: Line,
    /// Functions inlined there, the outermost first.
    inlined: Vec<(Arc<str>, Line)>,
}

pub(super) type Line = (Option<Arc<str>>, Option<u32>);

impl Location {
    /// The line in the symbol's function, and the functions inlined there, the outermost first.
    pub(super) fn into_parts(self) -> (Line, Vec<(Arc<str>, Line)>) {
        (self.outer, self.inlined)
    }

    /// Adds lines and inlined functions to names that have only the symbol.
    pub(super) fn add_to(self, names: &mut Vec<Name>) {
        let text = |file: Option<Arc<str>>| file.map(|file| file.to_string());
        if let Some(outer) = names.first_mut() {
            (outer.file, outer.line) = (text(self.outer.0), self.outer.1);
        }
        for (function, (file, line)) in self.inlined {
            names.push(Name {
                function: function.to_string(),
                function_offset: None,
                file: text(file),
                line,
                is_unverified: false,
            });
        }
    }
}

/// A location, or the reason for having none.
type Located = Result<Location, NoLines>;

impl Lines {
    /// Opens files on request.
    pub(super) fn new(reader: LineReader) -> Lines {
        Lines {
            reader,
            files: HashMap::new(),
            open: VecDeque::new(),
            patience_s: limits::ALL_FILES_S,
        }
    }

    /// Locates addresses of a file, as counted by its own segments.
    pub(super) fn locate(&mut self, elf: &Arc<Elf>, addresses: &[u64]) -> Vec<Located> {
        let mut distinct = addresses.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let located = self.locate_distinct(elf, &distinct);
        let of = |address| {
            let index = distinct.binary_search(address).ok()?;
            located.get(index).cloned()
        };
        let places = addresses.iter();
        places
            .map(|address| of(address).unwrap_or(Err(NoLines::NotThere)))
            .collect()
    }

    fn locate_distinct(&mut self, elf: &Arc<Elf>, addresses: &[u64]) -> Vec<Located> {
        let key = Arc::as_ptr(elf).addr();
        self.make_room_for(key);
        let file = self.files.entry(key).or_insert_with(|| File {
            _elf: Arc::clone(elf),
            state: State::Closed,
        });
        if let State::Closed = file.state {
            file.state = opened(&self.reader, elf, self.patience_s);
        }
        let (located, failure) = match &mut file.state {
            State::Here(reader, texts) => {
                let mut located = Vec::new();
                for slice in addresses.chunks(reader::SLICE) {
                    let reply = reader.locate(slice);
                    located.extend(texts.places(reply));
                }
                (located, None)
            }
            State::Elsewhere(worker) => worker.locate(addresses),
            State::Without(reason) => (vec![Err(*reason); addresses.len()], None),
            State::Closed => (Vec::new(), None),
        };
        if let Some(reason) = failure {
            if reason == NoLines::TooMuch {
                let spent_s = limits::SMALL_FILE_S;
                self.patience_s = self.patience_s.saturating_sub(spent_s);
            }
            file.state = State::Without(reason);
        }
        located
    }

    /// Closes all files.
    pub(super) fn close(&mut self) {
        self.files.clear();
        self.open.clear();
    }

    /// Closes the least recently used file, if one more would be too many.
    fn make_room_for(&mut self, key: usize) {
        self.open.retain(|&open| open != key);
        self.open.push_back(key);
        if self.open.len() <= KEPT_MAX {
            return;
        }
        let oldest = self.open.pop_front();
        if let Some(file) = oldest.and_then(|oldest| self.files.get_mut(&oldest)) {
            match file.state {
                State::Here(..) | State::Elsewhere(_) => file.state = State::Closed,
                State::Closed | State::Without(_) => {}
            }
        }
    }
}

fn opened(reader: &LineReader, elf: &Elf, patience_s: u64) -> State {
    let (true, Some(file)) = (elf.section(b".debug_info").is_some(), elf.file()) else {
        return State::Without(NoLines::NotDescribed);
    };
    let Ok(file) = file.try_clone() else {
        return State::Without(NoLines::NoReader);
    };
    let state = match reader {
        LineReader::InProcess => {
            Reader::open(file).map(|reader| State::Here(Box::new(reader), Texts::default()))
        }
        LineReader::Program(program) => {
            Worker::start(program, file, patience_s).map(State::Elsewhere)
        }
    };
    state.unwrap_or_else(State::Without)
}
