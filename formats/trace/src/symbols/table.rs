//! A sorted symbol table, with perf's choice of names.
//!
//! ```text
//! ffffffff813c9d90  kmem_cache_alloc_noprof   up to the next symbol
//! 0000000000001189  work_inner                35 bytes
//! ```
//! If an address has several names, one is kept, by the rules of `choose_best_symbol` in perf's `util/symbol.c`, so
//! that both tools print the same: a length before none, strong before weak, global before local, fewer leading
//! underscores, the longer name (both demangled). A linker that folds equal functions gives one address thousands of
//! names, so the choice is made at lookup.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;

use perfquet_events::bytes::before_nul;

use super::demangle::demangle;
use super::elf::{Function, Functions, Part};

/// A name and its address range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Offset of the name in the table's text.
    pub(super) name: u32,
    /// Or [`UP_TO_NUL`].
    length: u32,
    weak: bool,
    global: bool,
}

impl Symbol {
    /// A symbol that ends at `end`, or at the next one if `end` is `start`.
    pub(super) fn new(start: u64, end: u64, name: u32, length: u32) -> Symbol {
        Symbol {
            start,
            end,
            name,
            length,
            weak: false,
            global: false,
        }
    }

    /// Applies the type letter of kallsyms: `W` weak, upper case global.
    pub(super) fn with_type_letter(mut self, letter: u8) -> Symbol {
        self.weak = letter == b'W';
        self.global = letter.is_ascii_uppercase() && !self.weak;
        self
    }
}

/// Symbols in address order.
pub(super) struct Table {
    symbols: Vec<Symbol>,
    text: Part,
    /// The best of several symbols with one address, by the index of the first; filled by lookups.
    chosen: RefCell<HashMap<usize, usize>>,
}

/// The name ends at a NUL. Most names of a file are never asked for, and looking for their ends would read all of them.
const UP_TO_NUL: u32 = u32::MAX;
/// One byte more than the longest name, so that a longer one is known to be.
const NAME_READ_MAX: usize = super::limits::NAME_BYTES_MAX as usize + 1;

/// Maximum distance to search back for a symbol that contains an address, past others that start later and end sooner.
const NESTING_MAX: usize = 32;

impl Table {
    /// A table without symbols.
    pub(super) fn empty() -> Table {
        Table::new(Vec::new(), Part::default(), |_, _, _| true)
    }

    /// A table of an ELF file's functions.
    pub(super) fn of_functions(functions: Functions) -> Table {
        let Functions { names, list } = functions;
        // Numbers of functions are sorted, not functions: there are 400,000 in a compiler. Equal addresses stay in their order.
        let numbers = 0..u32::try_from(list.len()).unwrap_or(u32::MAX);
        let mut order: Vec<(u64, u32)> = list
            .iter()
            .zip(numbers)
            .map(|(function, number)| (function.address, number))
            .collect();
        order.sort_unstable();
        let nexts = order.iter().map(|(address, _)| *address).skip(1);
        let nexts = nexts.chain([u64::MAX]);
        let functions = order
            .iter()
            .filter_map(|(_, number)| list.get(*number as usize));
        let symbol = |(function, next): (&Function, u64)| {
            // Written in assembly without a size: up to the next one, but not beyond its section.
            let end = match function.bytes {
                0 => next.min(function.section_end).max(function.address),
                bytes => function.address.saturating_add(bytes),
            };
            Symbol {
                start: function.address,
                end,
                name: function.name,
                length: UP_TO_NUL,
                weak: function.weak,
                global: function.global,
            }
        };
        let symbols = functions.zip(nexts).map(symbol).collect();
        Table::new(symbols, names, |_, _, _| true)
    }

    /// Sorts the symbols. One without a length ends at the next one if `joined` is true for both, otherwise after a
    /// page.
    pub(super) fn new(
        mut symbols: Vec<Symbol>,
        text: Part,
        joined: impl Fn(&[u8], &Symbol, &Symbol) -> bool,
    ) -> Table {
        symbols.sort_by_key(|symbol| symbol.start);
        let starts = symbols.iter().map(Some).skip(1).chain([None]);
        let ends: Vec<u64> = symbols
            .iter()
            .zip(starts)
            .map(|(symbol, next)| match next {
                _ if symbol.end > symbol.start => symbol.end,
                Some(next) if joined(&text, symbol, next) => next.start,
                _ => symbol
                    .start
                    .saturating_add(4096)
                    .next_multiple_of_or_max(4096),
            })
            .collect();
        for (symbol, end) in symbols.iter_mut().zip(ends) {
            symbol.end = end;
        }
        symbols.shrink_to_fit();
        Table {
            symbols,
            text,
            chosen: RefCell::default(),
        }
    }

    /// The symbol that contains an address; of several, the one that starts last.
    pub(super) fn at(&self, address: u64) -> Option<&Symbol> {
        let mut count = self
            .symbols
            .partition_point(|symbol| symbol.start <= address);
        for _ in 0..NESTING_MAX {
            let start = self.symbols.get(count.checked_sub(1)?)?.start;
            let first = self.first_at(start, count);
            let best = self.best(first, count)?;
            if address < best.end {
                return Some(best);
            }
            count = first;
        }
        None
    }

    /// The first of the symbols before `count` that start at `start`, as the last of them does.
    fn first_at(&self, start: u64, count: usize) -> usize {
        let before = count
            .checked_sub(2)
            .and_then(|place| self.symbols.get(place));
        match before.is_some_and(|before| before.start == start) {
            true => self.symbols.partition_point(|symbol| symbol.start < start),
            false => count - 1,
        }
    }

    /// The best of the symbols from `first` to `end`, which start at one address.
    fn best(&self, first: usize, end: usize) -> Option<&Symbol> {
        let symbols = self.symbols.get(first..end)?;
        if symbols.len() < 2 {
            return symbols.first();
        }
        let mut chosen = self.chosen.borrow_mut();
        let index = *chosen
            .entry(first)
            .or_insert_with(|| best_of(symbols, &self.text));
        symbols.get(index)
    }

    /// The name as found, possibly mangled.
    pub(super) fn name(&self, symbol: &Symbol) -> &[u8] {
        name_in(&self.text, symbol)
    }

    /// The first symbol at or after an address.
    pub(super) fn next_at(&self, address: u64) -> Option<&Symbol> {
        let count = self
            .symbols
            .partition_point(|symbol| symbol.start < address);
        self.symbols.get(count)
    }

    /// The address of the first symbol with that name.
    pub(super) fn address_of(&self, name: &[u8]) -> Option<u64> {
        self.symbols
            .iter()
            .find(|symbol| self.name(symbol) == name)
            .map(|symbol| symbol.start)
    }

    /// The addresses of all symbols with a demangled name, in order.
    pub(super) fn starts_of(&self, name: &str) -> Vec<u64> {
        let symbols = self.symbols.iter();
        symbols
            .filter(|symbol| demangle(self.name(symbol)) == name)
            .map(|symbol| symbol.start)
            .collect()
    }

    /// Number of symbols.
    pub(super) fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether the table is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }
}

/// The bytes of a symbol's name.
pub(super) fn name_in<'t>(text: &'t [u8], symbol: &Symbol) -> &'t [u8] {
    let start = symbol.name as usize;
    if symbol.length == UP_TO_NUL {
        let rest = text.get(start..).unwrap_or_default();
        return before_nul(rest.get(..NAME_READ_MAX).unwrap_or(rest));
    }
    text.get(start..start.saturating_add(symbol.length as usize))
        .unwrap_or_default()
}

/// Returns the index of the best symbol of one address; the first among equals.
fn best_of(symbols: &[Symbol], text: &[u8]) -> usize {
    let kind = |symbol: &Symbol| (symbol.end > symbol.start, !symbol.weak, symbol.global);
    let best_kind = symbols.iter().map(kind).max();
    let candidates = symbols
        .iter()
        .enumerate()
        .filter(|(_, symbol)| Some(kind(symbol)) == best_kind);
    let rank = |(index, symbol): (usize, &Symbol)| {
        let name = demangle(name_in(text, symbol));
        let underscores = name.bytes().take_while(|&byte| byte == b'_').count();
        (Reverse(underscores), name.len(), Reverse(index))
    };
    let best = candidates.map(rank).max();
    best.map_or(0, |(_, _, Reverse(index))| index)
}

/// `next_multiple_of`, or the largest address on overflow.
trait NextMultiple {
    fn next_multiple_of_or_max(self, step: u64) -> u64;
}

impl NextMultiple for u64 {
    fn next_multiple_of_or_max(self, step: u64) -> u64 {
        self.checked_next_multiple_of(step).unwrap_or(u64::MAX)
    }
}
