//! Names by address: a sorted symbol table, put in order as perf does it.
//!
//! ```text
//! ffffffff813c9d90  kmem_cache_alloc_noprof   up to the next symbol
//! 0000000000001189  work_inner                35 bytes
//! ```
//! Of several names of one address, one is kept, by the rules of `choose_best_symbol` in perf's
//! `util/symbol.c`, so that the same trace has the same names here and there: a length before none, strong before
//! weak, global before local, fewer leading underscores, the longer name.

use super::elf::{Function, Functions, Part};

/// A name and the addresses that bear it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Offset of the name in the table's text.
    pub(super) name: u32,
    length: u32,
    weak: bool,
    global: bool,
}

impl Symbol {
    /// A symbol that ends at `end`, or where the next one starts if `end` is `start`.
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

    /// As told by the type letter of kallsyms: `W` weak, upper case global.
    pub(super) fn with_type_letter(mut self, letter: u8) -> Symbol {
        self.weak = letter == b'W';
        self.global = letter.is_ascii_uppercase() && !self.weak;
        self
    }
}

/// Symbols in the order of their addresses.
pub(super) struct Table {
    symbols: Vec<Symbol>,
    text: Part,
}

/// How far back a symbol that holds an address may lie behind others that start later and end sooner.
const NESTING_MAX: usize = 32;

impl Table {
    /// A table without symbols.
    pub(super) fn empty() -> Table {
        Table {
            symbols: Vec::new(),
            text: Part::owned(Vec::new()),
        }
    }

    /// A table of what an ELF file holds.
    pub(super) fn of_functions(functions: Functions) -> Table {
        let Functions { names, list } = functions;
        let symbol = |function: &Function| {
            let rest = names.get(function.name as usize..).unwrap_or_default();
            let length = crate::bytes::before_nul(rest).len();
            Symbol {
                start: function.address,
                end: function.address.saturating_add(function.bytes),
                name: function.name,
                length: u32::try_from(length).unwrap_or(0),
                weak: function.weak,
                global: function.global,
            }
        };
        let symbols = list.iter().map(symbol).collect();
        Table::new(symbols, names, |_, _, _| true)
    }

    /// Sorts; lets a symbol without length end where the next one starts if `joined` says that nothing lies
    /// between the two, else a page later; keeps the best name of each address.
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
        symbols.dedup_by(|later, kept| {
            if later.start != kept.start {
                return false;
            }
            if is_better(later, kept, &text) {
                *kept = *later;
            }
            true
        });
        symbols.shrink_to_fit();
        Table { symbols, text }
    }

    /// The symbol that holds an address; of several the one that starts last.
    pub(super) fn at(&self, address: u64) -> Option<&Symbol> {
        let count = self
            .symbols
            .partition_point(|symbol| symbol.start <= address);
        let before = self.symbols.get(..count)?;
        before
            .iter()
            .rev()
            .take(NESTING_MAX)
            .find(|symbol| address < symbol.end)
    }

    /// Its name as found, maybe mangled.
    pub(super) fn name(&self, symbol: &Symbol) -> &[u8] {
        name_in(&self.text, symbol)
    }

    /// The address of the first symbol of that name.
    pub(super) fn address_of(&self, name: &[u8]) -> Option<u64> {
        self.symbols
            .iter()
            .find(|symbol| self.name(symbol) == name)
            .map(|symbol| symbol.start)
    }

    /// How many addresses have a name.
    pub(super) fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }
}

/// The bytes of a symbol's name.
pub(super) fn name_in<'t>(text: &'t [u8], symbol: &Symbol) -> &'t [u8] {
    let start = symbol.name as usize;
    text.get(start..start.saturating_add(symbol.length as usize))
        .unwrap_or_default()
}

/// Whether `later` is the better name for the address of both; of equals the earlier one stays.
fn is_better(later: &Symbol, kept: &Symbol, text: &[u8]) -> bool {
    let rank = |symbol: &Symbol| {
        let name = name_in(text, symbol);
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        (
            symbol.end > symbol.start,
            !symbol.weak,
            symbol.global,
            std::cmp::Reverse(underscores),
            name.len(),
        )
    };
    rank(later) > rank(kept)
}

/// `next_multiple_of`, or the largest address where there is none.
trait NextMultiple {
    fn next_multiple_of_or_max(self, step: u64) -> u64;
}

impl NextMultiple for u64 {
    fn next_multiple_of_or_max(self, step: u64) -> u64 {
        self.checked_next_multiple_of(step).unwrap_or(u64::MAX)
    }
}
