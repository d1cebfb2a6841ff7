//! Rows of aggregations as DTrace prints them by default: cells of fixed widths, from which the key types follow.
//!
//! ```text
//!      1109  svc.startd                                                        1
//! └ int32 ┘└ string ──────────────────────────────────────────┘└──── value ────┘
//! ```
//! `dt_consume.c`: a string, a symbol, a module `  %-50s`; an int64 ` %16d`, int32 ` %8d`, int16 ` %5d`, int8 ` %3d`; a
//! value ` %16d`. A string may contain spaces and digits, so spaces alone do not separate the cells.

use crate::lines::signed;

const STRING: usize = 52;
const VALUE: usize = 17;
/// Cell widths of numeric keys.
const NUMBERS: [usize; 4] = [17, 9, 6, 4];
/// Longer lines are not rows of an aggregation.
const LINE_MAX: usize = 4096;

/// A row: its keys, then its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row<'a> {
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) value: i64,
}

/// The keys and the value, if the line consists of whole cells.
pub(super) fn row(line: &[u8]) -> Option<Row<'_>> {
    let (value, start) = value(line)?;
    let keys = keys(line.get(..start)?)?;
    Some(Row { keys, value })
}

/// The value that ends a line, and the offset of its cell.
fn value(line: &[u8]) -> Option<(i64, usize)> {
    let blank = line.iter().rposition(|&byte| byte == b' ')?;
    let word = line.get(blank + 1..)?;
    let value = signed(word)?;
    let width = VALUE.max(word.len() + 1);
    let start = line.len().checked_sub(width)?;
    let is_padded = line.get(start..=blank)?.iter().all(|&byte| byte == b' ');
    is_padded.then_some((value, start))
}

/// Keys without a value, as printed above a distribution or a stack.
pub(super) fn keys(line: &[u8]) -> Option<Vec<&[u8]>> {
    if line.len() > LINE_MAX {
        return None;
    }
    let mut cutter = Cutter {
        line,
        keys: Vec::new(),
        hopeless: vec![false; line.len() + 1],
    };
    cutter.cut(0).then_some(cutter.keys)
}

struct Cutter<'a> {
    line: &'a [u8],
    keys: Vec<&'a [u8]>,
    /// Offsets from which the rest of the line cannot be cut into cells.
    hopeless: Vec<bool>,
}

impl<'a> Cutter<'a> {
    /// Cuts the line from `place` on; tries numbers before strings.
    fn cut(&mut self, place: usize) -> bool {
        if place == self.line.len() {
            return true;
        }
        if self.hopeless.get(place).copied().unwrap_or(true) {
            return false;
        }
        let cells = [self.number(place), self.text(place), self.long_text(place)];
        for cell in cells.into_iter().flatten() {
            let (key, end) = cell;
            self.keys.push(key);
            if self.cut(end) {
                return true;
            }
            self.keys.pop();
        }
        if let Some(hopeless) = self.hopeless.get_mut(place) {
            *hopeless = true;
        }
        false
    }

    fn number(&self, place: usize) -> Option<(&'a [u8], usize)> {
        let rest = self.line.get(place..)?;
        let blanks = rest.iter().take_while(|&&byte| byte == b' ').count();
        let word = rest.get(blanks..)?;
        let length = word.iter().take_while(|&&byte| byte != b' ').count();
        let word = word.get(..length)?;
        signed(word)?;
        let width = blanks + length;
        let is_cell = NUMBERS.contains(&width) && blanks > 0;
        // A 64-bit number may have more digits than its cell.
        let is_wide = blanks == 1 && width > VALUE;
        (is_cell || is_wide).then_some((word, place + width))
    }

    fn text(&self, place: usize) -> Option<(&'a [u8], usize)> {
        let text = self.line.get(place..)?.strip_prefix(b"  ")?;
        let key = text.get(..STRING - 2)?.trim_ascii_end();
        let is_text = key.first().is_none_or(|&byte| byte != b' ');
        is_text.then_some((key, place + STRING))
    }

    /// A string longer than its cell: it ends where the next cell begins, with spaces.
    fn long_text(&self, place: usize) -> Option<(&'a [u8], usize)> {
        let text = self.line.get(place..)?.strip_prefix(b"  ")?;
        let after = text.get(STRING - 2..)?;
        let length = after.windows(2).position(|two| two == b"  ");
        let end = STRING - 2 + length.unwrap_or(after.len());
        let key = text.get(..end)?;
        let is_long = end > STRING - 2 && key.first() != Some(&b' ') && !key.ends_with(b" ");
        is_long.then_some((key, place + 2 + end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::parts;

    #[track_caller]
    fn check(line: &str, keys: &[&str], value: i64) {
        let row = row(line.as_bytes()).unwrap_or_else(|| panic!("no row: {line:?}"));
        let found: Vec<_> = row
            .keys
            .iter()
            .map(|key| String::from_utf8_lossy(key))
            .collect();
        assert_eq!(
            (found, row.value),
            (keys.iter().map(|key| (*key).into()).collect(), value)
        );
    }

    #[test]
    fn rows() {
        check(&format!(" {:>16}", 450), &[], 450);
        check(&format!("  {:<50} {:>16}", "snmpd", 1), &["snmpd"], 1);
        check(&format!("  {:<50} {:>16}", "a b  7", -7), &["a b  7"], -7);
        check(&format!("  {:<50} {:>16}", "", 7), &[""], 7);
        check(
            &format!(" {:>8}  {:<50} {:>16}", 1109, "nscd", 2),
            &["1109", "nscd"],
            2,
        );
        check(
            &format!("  {:<50} {:>8} {:>16}", "nscd", 1109, 2),
            &["nscd", "1109"],
            2,
        );
        check(
            &format!("  {:<50} {:>5} {:>16}", "dog", 65535, -11),
            &["dog", "65535"],
            -11,
        );
        check(
            &format!("  {:<50} {:>3} {:>16}", "dog", 255, -11),
            &["dog", "255"],
            -11,
        );
        check(&format!(" {:>16} {:>16}", -1, 1), &["-1"], 1);
        check(&format!(" {:>8} {:>3} {:>16}", 5, 6, 7), &["5", "6"], 7);
        check(
            &format!(" {} {:>16}", i64::MIN, 7),
            &["-9223372036854775808"],
            7,
        );
        check(&format!("  {:<50} {:>16}", "x", i64::MIN), &["x"], i64::MIN);
        let long = "a path of more than fifty characters/which has a blank";
        check(&format!("  {long:<50} {:>16}", 7), &[long], 7);
        check(
            &format!("  {:<50}  {:<50} {:>16}", "a", "b", 7),
            &["a", "b"],
            7,
        );
    }

    #[test]
    fn no_rows() {
        for line in [
            "",
            "12",
            "  a  12",
            "       100         50         75",
            "x 12",
            "      246",
        ] {
            assert_eq!(row(line.as_bytes()), None, "{line:?}");
        }
        // Each offset fails only once.
        assert_eq!(
            row(format!("{}x{:>17}", "   1".repeat(900), 1).as_bytes()),
            None
        );
    }

    #[test]
    fn lines_of_keys() {
        assert_eq!(
            keys(format!("  {:<50}", "Xorg").as_bytes()),
            Some(vec![&b"Xorg"[..]])
        );
        assert_eq!(keys(b"       95"), Some(vec![&b"95"[..]]));
        assert_eq!(keys(b"  Xorg"), None);
        assert_eq!(parts(b"  456     0   a b "), [&b"456"[..], b"0", b"a b"]);
    }
}
