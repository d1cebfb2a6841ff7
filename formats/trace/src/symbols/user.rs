//! Names in programs and libraries: module and file offset → function.
//!
//! ```text
//! /usr/lib/x86_64-linux-gnu/libc.so.6 + 0x2724a  →  address 0x2724a  →  __libc_start_call_main+0x7a
//! /w/workload + 0x11a7                           →  address 0x4011a7 →  work_inner+0x21
//! ```
//! The symbol table is that of the file with debug info if there is one, otherwise the program's own, otherwise the
//! dynamic one; entries of the linkage table have names too, and functions of stripped Go programs.

use std::collections::HashMap;
use std::sync::Arc;

use super::Name;
use super::demangle::demangle;
use super::elf::Elf;
use super::files::Found;
use super::lines::{Lines, Location, NoLines};
use super::plt;
use super::table::{Symbol, Table};
use super::unwind::go_names;

/// The reason for a found file that gives no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum NoName {
    /// The file has no symbols.
    NoSymbols,
    /// No symbol contains the address.
    NoSymbolThere,
    /// The offset is in no segment.
    OutsideSegments,
}

/// One requested location.
pub(super) struct Place {
    /// Index of the request.
    pub(super) request: usize,
    /// Offset in the module's file.
    pub(super) offset: u64,
    /// Whether the address follows a call.
    pub(super) return_address: bool,
}

impl Place {
    /// The offset to look up: a call that never returns may be its function's last instruction.
    pub(super) fn offset_of_code(&self) -> u64 {
        self.offset - self.after()
    }

    /// Distance of the location past its code.
    fn after(&self) -> u64 {
        u64::from(self.return_address && self.offset > 0)
    }
}

/// The symbols of one module.
pub(super) struct Module {
    found: Found,
    symbols: Table,
    jumps: Table,
    /// Functions of a stripped Go program.
    of_go: Table,
}

impl Module {
    /// Reads the symbol tables.
    pub(super) fn new(found: Found) -> Module {
        let with_symbols = match &found.debug {
            Some(debug) => debug,
            None => &found.image,
        };
        let symbols = with_symbols
            .functions()
            .map_or_else(Table::empty, Table::of_functions);
        let jumps = plt::names(&found.image, &symbols);
        let of_go = match with_symbols.has_symbol_table() {
            true => None,
            false => go_names(&found.image),
        };
        // The symbol tables were read completely, and few of their pages are needed again.
        found.release();
        Module {
            found,
            symbols,
            jumps,
            of_go: of_go.unwrap_or_else(Table::empty),
        }
    }

    /// Memory of the tables and their files.
    pub(super) fn held_bytes(&self) -> usize {
        let files = std::iter::once(&self.found.image).chain(&self.found.debug);
        let mapped: usize = files.map(|file| file.content().len()).sum();
        mapped + (self.symbols.len() + self.jumps.len() + self.of_go.len()) * size_of::<Symbol>()
    }

    /// Names locations; `name` gets each request's index and the result.
    pub(super) fn names(
        &self,
        places: &[Place],
        lines: Option<&mut Lines>,
        mut name: impl FnMut(usize, Result<Vec<Name>, NoName>, Option<NoLines>),
    ) {
        let mut located = self.locations(places, lines);
        let mut demangled: HashMap<(bool, u64), String> = HashMap::new();
        for place in places {
            let image = &self.found.image;
            let Some(address) = image.address_of_offset(place.offset_of_code()) else {
                name(place.request, Err(NoName::OutsideSegments), None);
                continue;
            };
            // A signal handler's return address is not preceded by a call: it is the first byte of its function.
            let itself = address.saturating_add(place.after());
            let (table, symbol) = match self.at(address).or_else(|| self.at(itself)) {
                Some(found) => found,
                None => {
                    let tables = [&self.symbols, &self.jumps, &self.of_go];
                    let empty = tables.iter().all(|table| table.is_empty());
                    let reason = if empty {
                        NoName::NoSymbols
                    } else {
                        NoName::NoSymbolThere
                    };
                    name(place.request, Err(reason), None);
                    continue;
                }
            };
            let is_jump = std::ptr::eq(table, &self.jumps);
            let function = demangled
                .entry((is_jump, symbol.start))
                .or_insert_with(|| demangle(table.name(symbol)));
            let mut names = vec![Name::of(function.clone(), itself - symbol.start)];
            let mut no_lines = None;
            match located.remove(&place.request) {
                Some(Ok(location)) => location.add_to(&mut names),
                Some(Err(reason)) => no_lines = Some(reason),
                None => {}
            }
            name(place.request, Ok(names), no_lines);
        }
    }

    /// The symbol that contains an address, with its table.
    fn at(&self, address: u64) -> Option<(&Table, &Symbol)> {
        let tables = [&self.symbols, &self.jumps, &self.of_go];
        tables
            .into_iter()
            .find_map(|table| Some((table, table.at(address)?)))
    }

    /// Start, end and name of the function that contains an address.
    pub(super) fn function_at(&self, address: u64) -> Option<(u64, u64, &[u8])> {
        let (table, symbol) = self.at(address)?;
        Some((symbol.start, symbol.end, table.name(symbol)))
    }

    /// Addresses of the functions with a demangled name, in order.
    pub(super) fn starts_of(&self, name: &str) -> Vec<u64> {
        self.symbols.starts_of(name)
    }

    /// The file with the code.
    pub(super) fn image(&self) -> &Elf {
        &self.found.image
    }

    /// The file with the debug info, if any has it.
    pub(super) fn described(&self) -> &Arc<Elf> {
        self.found.debug.as_ref().unwrap_or(&self.found.image)
    }

    /// Whether its file is proven to be the recorded one.
    pub(super) fn is_verified(&self) -> bool {
        self.found.is_verified
    }

    fn locations(&self, places: &[Place], lines: Option<&mut Lines>) -> Located {
        let Some(lines) = lines else {
            return Located::new();
        };
        let described = self.described();
        let mut requests = Vec::new();
        let mut addresses = Vec::new();
        for place in places {
            if let Some(address) = self.found.image.address_of_offset(place.offset_of_code()) {
                requests.push(place.request);
                addresses.push(address);
            }
        }
        requests
            .into_iter()
            .zip(lines.locate(described, &addresses))
            .collect()
    }
}

/// Locations by request index, or the reasons for having none.
type Located = HashMap<usize, Result<Location, NoLines>>;
