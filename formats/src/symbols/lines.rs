//! Source lines and inlined functions, from DWARF, by blazesym.
//!
//! ```text
//! 0x11d4  →  work_inner, workload.c:16
//! 0x52e0  →  main, main.rs:9;  inlined: Vec::push, vec/mod.rs:2442;  ptr::write, ptr/mod.rs:1377
//! ```
//! A hundred times dearer than the symbol table (research/kernel-recording.md), so only when asked for. All
//! addresses of a file go in one call, each once.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use super::Name;

/// Reader of debugging information.
pub(super) struct Lines {
    symbolizer: Symbolizer,
    /// Files that could not be read, and why.
    pub(super) unreadable: HashMap<PathBuf, String>,
}

/// What is known of an address beside its symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    /// In the function of the symbol: the line, or that of the call of what is inlined there.
    outer: Line,
    /// Functions inlined there, the outermost first.
    inlined: Vec<(String, Line)>,
}

type Line = (Option<String>, Option<u32>);

impl Location {
    /// Puts lines and inlined functions to a name that holds only the symbol.
    pub(super) fn add_to(self, names: &mut Vec<Name>) {
        if let Some(outer) = names.first_mut() {
            (outer.file, outer.line) = self.outer;
        }
        for (function, (file, line)) in self.inlined {
            names.push(Name {
                function,
                function_offset: None,
                file,
                line,
            });
        }
    }
}

impl Lines {
    pub(super) fn new() -> Lines {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(true)
            .enable_inlined_fns(true)
            .enable_demangling(true)
            .build();
        Lines {
            symbolizer,
            unreadable: HashMap::new(),
        }
    }

    /// Locates addresses of a file, as its own segments count them.
    pub(super) fn locate(&mut self, path: &Path, addresses: &[u64]) -> Vec<Option<Location>> {
        let mut distinct = addresses.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        match self.locate_distinct(path, &distinct) {
            Ok(locations) => addresses
                .iter()
                .map(|address| {
                    let index = distinct.binary_search(address).ok()?;
                    locations.get(index).cloned().flatten()
                })
                .collect(),
            Err(reason) => {
                self.unreadable.insert(path.to_owned(), reason);
                vec![None; addresses.len()]
            }
        }
    }

    fn locate_distinct(
        &mut self,
        path: &Path,
        addresses: &[u64],
    ) -> Result<Vec<Option<Location>>, String> {
        let source = Source::Elf(Elf::new(path));
        let symbolize = || {
            let found = self
                .symbolizer
                .symbolize(&source, Input::VirtOffset(addresses))
                .map_err(|error| error.to_string())?;
            Ok(found.iter().map(location).collect())
        };
        // Damaged debugging information must not end an import, whatever the library makes of it.
        let result = catch_unwind(AssertUnwindSafe(symbolize));
        result.unwrap_or_else(|_| {
            self.symbolizer = Lines::new().symbolizer;
            Err("damaged debugging information".into())
        })
    }
}

fn location(symbolized: &Symbolized<'_>) -> Option<Location> {
    let Symbolized::Sym(Sym {
        code_info, inlined, ..
    }) = symbolized
    else {
        return None;
    };
    let outer = code_info.as_deref().map(line)?;
    let inlined = inlined
        .iter()
        .map(|function| {
            let at = function.code_info.as_ref().map(line);
            (function.name.to_string(), at.unwrap_or((None, None)))
        })
        .collect();
    Some(Location { outer, inlined })
}

fn line(info: &CodeInfo<'_>) -> Line {
    let file = info.to_path().to_string_lossy().into_owned();
    (Some(file), info.line)
}
