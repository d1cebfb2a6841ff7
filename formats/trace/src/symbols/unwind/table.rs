//! The unwind rules of a file, evaluated one at a time, or all of them as a table that a BPF program searches.

use hashbrown::HashMap;

use super::super::elf::Elf;
use super::super::files::Found;
use super::chains::Chains;
use super::rule::{Row, Rule, WIDE_RULES_MAX, Wide};
use super::sources::{Item, Sources};

/// Maximum size of the padding between functions, which never runs and needs no row.
const PADDING_MAX: u64 = 16;
/// Rows of a table: 64 MiB. rustc's libLLVM has 1.3 million.
const ROWS_MAX: usize = 8 << 20;

/// Bytes of code after whose rules the file's pages are released.
const RELEASED_BYTES: u64 = 2 << 20;

/// The unwind rules of a file.
pub(super) struct CodeRules {
    sources: Sources,
    /// [`Chains::hold`], once needed.
    chains_hold: Option<bool>,
}

/// All rules of a file, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnwindTable {
    /// The address in the file, of a page, that the rows count from.
    pub base: u64,
    /// Sorted by address; each applies up to the next.
    pub rows: Vec<Row>,
    /// Rules that do not fit into rows.
    pub wide: Vec<Wide>,
    /// Effect of the code on frame pointers.
    pub chains: Chains,
}

impl CodeRules {
    /// Reads the file's lists of functions.
    pub(super) fn of(found: &Found) -> CodeRules {
        let sources = Sources::of(found);
        found.release();
        CodeRules {
            sources,
            chains_hold: None,
        }
    }

    /// Size of the call frame information that was read.
    pub(super) fn frame_bytes(&self) -> u64 {
        self.sources.frame_bytes()
    }

    /// The same, with the rules that replace it elsewhere.
    pub(super) fn bytes(&self) -> u64 {
        self.sources.bytes()
    }

    /// The rule at an address of the file.
    pub(super) fn rule_at(&mut self, address: u64) -> Rule {
        self.sources.rule_at(address)
    }

    /// Whether the file's code that has no rules can be left by its frame pointer.
    pub(super) fn chains_hold(&mut self, image: &Elf) -> bool {
        let sources = &mut self.sources;
        *self
            .chains_hold
            .get_or_insert_with(|| Chains::of(image, sources, &mut |_| {}).hold())
    }
}

impl UnwindTable {
    /// Builds the table of a file.
    pub(super) fn of(found: &Found) -> UnwindTable {
        let mut builder = Builder {
            base: base_of(&found.image),
            ..Builder::default()
        };
        let mut sources = Sources::of(found);
        found.release();
        let mut released_to = 0;
        let chains = Chains::of(&found.image, &mut sources, &mut |item| match *item {
            Item::Rule(address, rule) => builder.add(address, rule),
            Item::End { end, .. } => {
                builder.add(end, Rule::Gap);
                // Functions and their call frame information are mostly in the same order.
                if end.saturating_sub(released_to) > RELEASED_BYTES {
                    released_to = end;
                    found.release();
                }
            }
        });
        found.release();
        builder.finish(chains)
    }

    /// The rule at an address of the file.
    #[cfg(test)]
    pub(super) fn rule_at(&self, address: u64) -> Rule {
        let relative = address.wrapping_sub(self.base);
        let next = self
            .rows
            .partition_point(|row| u64::from(row.address) <= relative);
        let row = next.checked_sub(1).and_then(|last| self.rows.get(last));
        row.map_or(Rule::Gap, |row| Rule::of_row(*row, &self.wide))
    }
}

/// The page of the file's lowest address.
pub(super) fn base_of(image: &Elf) -> u64 {
    let lowest = image.loaded().map(|segment| segment.address).min();
    lowest.unwrap_or(0) & !0xfff
}

/// A table under construction, function by function in order.
#[derive(Default)]
struct Builder {
    base: u64,
    rows: Vec<Row>,
    wide: Vec<Wide>,
    indices: HashMap<Wide, u16>,
    /// Rows did not fit.
    is_full: bool,
}

impl Builder {
    fn add(&mut self, address: u64, rule: Rule) {
        let relative = address.checked_sub(self.base);
        let Some(relative) = relative.and_then(|address| u32::try_from(address).ok()) else {
            return;
        };
        let Builder { wide, indices, .. } = self;
        let row = rule.row(relative, |rule| {
            if let Some(index) = indices.get(&rule) {
                return Some(*index);
            }
            let index = u16::try_from(wide.len()).ok()?;
            if wide.len() >= WIDE_RULES_MAX {
                return None;
            }
            wide.push(rule);
            indices.insert(rule, index);
            Some(index)
        });
        // The previous function may end in padding; a later row of the same address replaces an earlier one.
        while let Some(last) = self.rows.last() {
            let is_padding =
                is_gap(last) && u64::from(relative.saturating_sub(last.address)) < PADDING_MAX;
            if last.address < relative && !is_padding {
                break;
            }
            self.rows.pop();
        }
        let is_same = |last: &Row| (last.cfa, last.rbp) == (row.cfa, row.rbp);
        if self.rows.last().is_some_and(is_same) {
            return;
        }
        if self.rows.len() >= ROWS_MAX {
            self.is_full = true;
        } else {
            self.rows.push(row);
        }
    }

    fn finish(mut self, chains: Chains) -> UnwindTable {
        if self.is_full {
            // Addresses after the last row are not covered.
            if let Some(last) = self.rows.last_mut() {
                *last = Rule::Gap.row(last.address, |_| None);
            }
        }
        UnwindTable {
            base: self.base,
            rows: self.rows,
            wide: self.wide,
            chains,
        }
    }
}

fn is_gap(row: &Row) -> bool {
    Rule::of_row(*row, &[]) == Rule::Gap
}
