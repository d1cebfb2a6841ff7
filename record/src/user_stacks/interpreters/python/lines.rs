//! Line tables of code objects (3.11 and later).
//!
//! ```text
//! entry   1 kind:4 instructions-1:3, then bytes whose highest bit is 0
//! kind    0–9 same line, 10–12 that many minus 10 lines on, 13 and 14 a signed number of lines on, 15 no line
//! ```
//! (python/cpython: "locations", beside the code objects)

/// Bytes of an instruction.
const UNIT: i64 = 2;

/// Returns the line of the instruction at an offset in the code; `None` if it has none.
pub(in super::super) fn line_at(table: &[u8], first_line: u32, offset: i64) -> Option<u32> {
    let mut line = i64::from(first_line);
    // Before the first instruction, the function is being entered.
    if offset < 0 {
        return Some(first_line);
    }
    let mut end = 0;
    let mut rest = table;
    while let [head, after @ ..] = rest {
        let kind = head >> 3 & 15;
        let bytes = after.iter().position(|byte| byte & 0x80 != 0);
        let (body, next) = after.split_at(bytes.unwrap_or(after.len()));
        line += match kind {
            13 | 14 => signed(body),
            10..=12 => i64::from(kind) - 10,
            _ => 0,
        };
        end += (i64::from(head & 7) + 1) * UNIT;
        if offset < end {
            return (kind != 15).then(|| u32::try_from(line).ok()).flatten();
        }
        rest = next;
    }
    None
}

/// A signed number in groups of 6 bits, lowest first, its sign in the lowest bit.
fn signed(bytes: &[u8]) -> i64 {
    let mut value = 0u64;
    for (group, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x3f) << (6 * group);
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1) as i64;
    match value & 1 {
        1 => -magnitude,
        _ => magnitude,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        // def of line 7: entry without columns (1 unit, +0), one line on (2 units), 100 lines back (1 unit), no line (1 unit).
        let table = [0xe8, 0x00, 0xd9, 0x04, 0x0a, 0xe8, 0x49, 0x03, 0xf8];
        let lines: Vec<Option<u32>> = (-2..12)
            .step_by(2)
            .map(|offset| line_at(&table, 107, offset))
            .collect();
        let expected = [
            Some(107),
            Some(107),
            Some(108),
            Some(108),
            Some(8),
            None,
            None,
        ];
        assert_eq!(lines, expected);
        for end in 0..table.len() {
            line_at(&table[..end], 1, 100);
        }
        assert_eq!(line_at(&[0xe8, 0xff, 0xff], 0, 0), Some(0));
    }
}
