//! Lines of a script's text.

use perfquet_events::bytes::Endian;
use perfquet_trace::symbols::limits::SCRIPT_CHARACTERS_MAX;

use super::super::code::Memory;
use super::Text;

/// Characters between two places whose line is kept: so many are counted again for each function.
const CHUNK: u64 = 1 << 12;
/// Chunks that are read at once.
const CHUNKS_READ: u64 = 16;
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
            let from = (self.ends.len() as u64 - 1) * CHUNK;
            let whole = (self.text.length - from) / CHUNK;
            let chunks = whole.clamp(1, CHUNKS_READ);
            let bytes = self.read(memory, from, from + chunks * CHUNK)?;
            for chunk in 0..chunks {
                let ends = self.ends_in(&bytes, chunk * CHUNK, (chunk + 1) * CHUNK)?;
                self.ends.push(self.ends.last()?.checked_add(ends)?);
            }
        }
        let before = *self.ends.get(chunk)?;
        let from = chunk as u64 * CHUNK;
        let bytes = self.read(memory, from, position)?;
        let inside = self.ends_in(&bytes, 0, position - from)?;
        before.checked_add(inside)?.checked_add(1)
    }

    /// Reads the characters between two positions, and the next one: of a pair, the second one ends the line.
    fn read(&self, memory: &Memory, from: u64, to: u64) -> Option<Vec<u8>> {
        let next = (to + 1).min(self.text.length);
        let width = self.text.width;
        let start = self.text.address.checked_add(from * width)?;
        memory.read(start, next.saturating_sub(from) * width)
    }

    /// Number of lines that end between two positions in characters that were read.
    fn ends_in(&self, bytes: &[u8], from: u64, to: u64) -> Option<u32> {
        let place = |position: u64| usize::try_from(position * self.text.width).ok();
        let (from, to) = (place(from)?, place(to)?);
        let wanted = bytes.get(from..to.min(bytes.len()))?;
        let is_pair = |units: &[u16]| matches!(units, [CARRIAGE_RETURN, LINE_FEED]);
        let ends = match self.text.width {
            1 => {
                // Counted in one pass without branches: nearly all scripts have these.
                let count = |wanted: u16| move |byte: &&u8| u16::from(**byte) == wanted;
                let feeds = wanted.iter().filter(count(LINE_FEED)).count();
                let returns = wanted.iter().filter(count(CARRIAGE_RETURN)).count();
                let pairs = match returns {
                    0 => 0,
                    _ => {
                        let after = bytes.get(from..bytes.len().min(to + 1))?;
                        let pairs = after.windows(2);
                        let units = |pair: &[u8]| [pair[0].into(), pair[1].into()];
                        pairs.filter(|pair| is_pair(&units(pair))).count()
                    }
                };
                feeds + returns - pairs
            }
            _ => {
                let unit = |pair: &[u8]| Endian::Little.u16_at(pair, 0).unwrap_or(0);
                let is_end = |unit: &u16| {
                    let ends = [
                        LINE_FEED,
                        CARRIAGE_RETURN,
                        LINE_SEPARATOR,
                        PARAGRAPH_SEPARATOR,
                    ];
                    ends.contains(unit)
                };
                let ends = wanted.chunks_exact(2).map(unit).filter(is_end).count();
                let after = bytes.get(from..bytes.len().min(to + 2))?;
                let units: Vec<u16> = after.chunks_exact(2).map(unit).collect();
                ends - units.windows(2).filter(|pair| is_pair(pair)).count()
            }
        };
        u32::try_from(ends).ok()
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
