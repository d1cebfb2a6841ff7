//! Line tables of instruction sequences (3.1 and later).
//!
//! ```text
//! entries   12 bytes each: i32 line, i32 node, u32 events
//! index     in which entry a position is, for positions 0 to 53: 6 u64, each with 9 counts of 7 bits
//!           then for 512 positions each: u32 entries before, u64 with 7 counts of 9 bits (entries before the bits below, but the
//!           first), 8 u64 with a bit per position that starts an entry
//! ```
//! (ruby/ruby: `iseq.c`, `struct succ_index_table`)

use perfquet_events::bytes::Endian;

pub(super) const ENTRY_BYTES: u64 = 12;
/// Positions in the first part of the index.
const FIRST: u64 = 54;
const FIRST_BYTES: u64 = FIRST / 9 * 8;
/// Positions of a block, and its size.
const BLOCK: u64 = 512;
const BLOCK_BYTES: u64 = 80;
/// Size of an instruction or operand.
const WORD: i64 = 8;

/// The line table of an instruction sequence.
pub(in super::super) struct Table {
    pub(super) entries: Vec<u8>,
    /// Empty with a single entry.
    pub(super) index: Vec<u8>,
    /// Number of instructions and operands.
    pub(super) words: u32,
}

/// Returns the size of the index for so many instructions and operands.
pub(super) fn index_bytes(words: u32) -> u64 {
    let rest = u64::from(words).saturating_sub(FIRST);
    FIRST_BYTES + rest.div_ceil(BLOCK) * BLOCK_BYTES
}

impl Table {
    pub(in super::super) fn bytes(&self) -> usize {
        self.entries.len() + self.index.len()
    }

    /// Returns the line at an offset of the program counter, which points past the instruction that runs, or to it if it is
    /// simple: like Ruby's own backtraces, this takes the word before. `None` if the function is being entered.
    pub(in super::super) fn line_at(&self, offset: i64) -> Option<u32> {
        let position = u64::try_from(offset / WORD).ok().filter(|_| offset >= 0)?;
        if position > self.words.into() {
            return None;
        }
        let entry = match self.index.is_empty() {
            true => 0,
            false => self
                .entries_up_to(position.saturating_sub(1))?
                .checked_sub(1)?,
        };
        let at = usize::try_from(entry.checked_mul(ENTRY_BYTES)?).ok()?;
        let line = Endian::Little.u32_at(&self.entries, at)?;
        (line > 0 && line <= i32::MAX as u32).then_some(line)
    }

    /// Returns the number of entries that start at a position or before.
    fn entries_up_to(&self, position: u64) -> Option<u64> {
        let word = |at: u64| Endian::Little.u64_at(&self.index, usize::try_from(at).ok()?);
        let Some(rest) = position.checked_sub(FIRST) else {
            return Some(word(position / 9 * 8)? >> (position % 9 * 7) & 0x7f);
        };
        let block = FIRST_BYTES + rest / BLOCK * BLOCK_BYTES;
        let (group, bit) = (rest % BLOCK / 64, rest % 64);
        let before = word(block)? & 0xffff_ffff;
        let in_block = match group.checked_sub(1) {
            Some(index) => word(block + 8)? >> (index * 9) & 0x1ff,
            None => 0,
        };
        let bits = word(block + 16 + group * 8)? << (63 - bit);
        Some(before + in_block + u64::from(bits.count_ones()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the index for positions that start entries.
    fn index(starts: &[u64], words: u32) -> Vec<u8> {
        let up_to =
            |position: u64| starts.iter().filter(|start| **start <= position).count() as u64;
        let mut out: Vec<u64> = (0..6)
            .map(|part| (0..9).fold(0, |word, at| word | up_to(part * 9 + at) << (at * 7)))
            .collect();
        let blocks = (index_bytes(words) - FIRST_BYTES) / BLOCK_BYTES;
        for block in 0..blocks {
            let first = FIRST + block * BLOCK;
            let before = up_to(first - 1);
            out.push(before | 0xdead << 32);
            out.push((1..8).fold(0, |word, group| {
                word | (up_to(first + group * 64 - 1) - before) << ((group - 1) * 9)
            }));
            out.extend((0..8).map(|group| {
                let is_start = |bit: &u64| starts.contains(&(first + group * 64 + bit));
                (0..64)
                    .filter(is_start)
                    .fold(0, |word, bit| word | 1 << bit)
            }));
        }
        out.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn tables() {
        let starts = [0, 3, 53, 54, 60, 118, 565, 566, 900];
        let words = 1000;
        let entries = (0..starts.len() as u32).flat_map(|entry| {
            [10 + entry, 7, 9]
                .into_iter()
                .flat_map(u32::to_le_bytes)
                .collect::<Vec<u8>>()
        });
        let table = Table {
            entries: entries.collect(),
            index: index(&starts, words),
            words,
        };
        for position in 0..1000u64 {
            let expected = starts.iter().filter(|start| **start <= position).count() as u32 + 9;
            // The counter is one word further.
            let found = table.line_at((position as i64 + 1) * WORD);
            assert_eq!(found, Some(expected), "position {position}");
        }
        assert_eq!(table.line_at(0), Some(10));
        assert_eq!(table.line_at(-8), None);
        assert_eq!(table.line_at(1001 * WORD), None);
        let single = Table {
            entries: [5, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect(),
            index: Vec::new(),
            words: 4,
        };
        assert_eq!(single.line_at(32), Some(5));
        // Damaged ones have no lines.
        for end in 0..table.index.len() {
            let cut = Table {
                entries: table.entries.clone(),
                index: table.index[..end].to_vec(),
                words,
            };
            cut.line_at(990 * WORD);
        }
        let wild = Table {
            entries: table.entries.clone(),
            index: vec![0xff; table.index.len()],
            words,
        };
        assert_eq!(wild.line_at(900 * WORD), None);
    }
}
