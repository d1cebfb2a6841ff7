//! Lines of a script's text.

use perfquet_events::bytes::Endian;
use perfquet_trace::symbols::limits::SCRIPT_CHARACTERS_MAX;

use super::super::code::Memory;
use super::Text;

/// Characters between two places whose line is kept.
const CHUNK: u64 = 1 << 16;
const LINE_FEED: u16 = 10;
const CARRIAGE_RETURN: u16 = 13;
const LINE_SEPARATOR: u16 = 0x2028;
const PARAGRAPH_SEPARATOR: u16 = 0x2029;

/// A script's text.
pub(super) struct Source {
    text: Text,
    /// Ends of lines before each chunk, as far as it was read.
    ends: Vec<u32>,
}

impl Source {
    pub(super) fn of(text: Text) -> Option<Source> {
        (text.length <= SCRIPT_CHARACTERS_MAX).then(|| Source {
            text,
            ends: vec![0],
        })
    }

    /// Returns the line of a character, from 1.
    pub(super) fn line_at(&mut self, memory: &Memory, position: u64) -> Option<u32> {
        if position > self.text.length {
            return None;
        }
        let chunk = usize::try_from(position / CHUNK).ok()?;
        while self.ends.len() <= chunk {
            let read = self.ends.len() as u64 - 1;
            let ends = self.ends_in(memory, read * CHUNK, (read + 1) * CHUNK)?;
            self.ends.push(self.ends.last()?.checked_add(ends)?);
        }
        let before = *self.ends.get(chunk)?;
        let inside = self.ends_in(memory, chunk as u64 * CHUNK, position)?;
        before.checked_add(inside)?.checked_add(1)
    }

    /// Number of lines that end between two positions.
    fn ends_in(&self, memory: &Memory, from: u64, to: u64) -> Option<u32> {
        // Of a pair of characters, the second one ends the line.
        let next = (to + 1).min(self.text.length);
        let width = self.text.width;
        let start = self.text.address.checked_add(from * width)?;
        let bytes = memory.read(start, next.saturating_sub(from) * width)?;
        let characters: Vec<u16> = match width {
            1 => bytes.iter().map(|byte| u16::from(*byte)).collect(),
            _ => {
                let pairs = bytes.chunks_exact(2);
                pairs
                    .filter_map(|pair| Endian::Little.u16_at(pair, 0))
                    .collect()
            }
        };
        let wanted = usize::try_from(to.saturating_sub(from)).ok()?;
        let follows = characters.iter().skip(1).copied().map(Some);
        let pairs = characters.iter().zip(follows.chain([None])).take(wanted);
        let ends = pairs.filter(|(character, next)| match **character {
            LINE_FEED | LINE_SEPARATOR | PARAGRAPH_SEPARATOR => true,
            CARRIAGE_RETURN => *next != Some(LINE_FEED),
            _ => false,
        });
        u32::try_from(ends.count()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of all characters by another count, and those that are found.
    fn check(units: &[u16], width: u64) {
        let bytes: Vec<u8> = match width {
            1 => units.iter().map(|unit| *unit as u8).collect(),
            _ => units.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        };
        let memory = Memory::of(std::process::id() as i32).expect("our own");
        let mut source = Source::of(Text {
            address: bytes.as_ptr() as u64,
            length: units.len() as u64,
            width,
        })
        .expect("short enough");
        let mut line = 1;
        let mut lines = vec![1];
        for (at, unit) in units.iter().enumerate() {
            let is_pair = *unit == CARRIAGE_RETURN && units.get(at + 1) == Some(&LINE_FEED);
            let ends = [
                LINE_FEED,
                CARRIAGE_RETURN,
                LINE_SEPARATOR,
                PARAGRAPH_SEPARATOR,
            ];
            line += u32::from(ends.contains(unit) && !is_pair);
            lines.push(line);
        }
        let near = CHUNK - 3..CHUNK + 3;
        let last = units.len() as u64;
        for position in near.chain([2 * CHUNK, last, 0, 1, last - 1]) {
            let expected = lines.get(position as usize).copied();
            assert_eq!(source.line_at(&memory, position), expected, "{position}");
        }
        assert_eq!(source.line_at(&memory, last + 1), None);
    }

    #[test]
    fn lines_of_positions() {
        let end = CHUNK as usize;
        let mut units = vec![u16::from(b'x'); 2 * end + 10];
        for at in [0, 7, 100, end - 2, 2 * end + 5] {
            units[at] = LINE_FEED;
        }
        // A pair at the end of a chunk is one end of a line.
        units[end - 1] = CARRIAGE_RETURN;
        units[end] = LINE_FEED;
        units[end + 1] = CARRIAGE_RETURN;
        check(&units, 1);
        units[50] = LINE_SEPARATOR;
        units[51] = PARAGRAPH_SEPARATOR;
        check(&units, 2);
    }

    #[test]
    fn memory_that_is_gone_has_no_lines() {
        let memory = Memory::of(std::process::id() as i32).expect("our own");
        let text = |address, length| Text {
            address,
            length,
            width: 2,
        };
        let line = |text| Source::of(text).and_then(|mut source| source.line_at(&memory, 5));
        assert_eq!(line(text(8, 10)), None);
        assert_eq!(line(text(u64::MAX - 4, 10)), None);
        assert_eq!(line(text(8, SCRIPT_CHARACTERS_MAX + 1)), None);
    }
}
