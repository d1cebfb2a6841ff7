//! Hits of probes, as printed without `-q`.
//!
//! ```text
//! CPU     ID                    FUNCTION:NAME
//!   0   8408                     malloc:entry                64
//!   0  64091                        :tick-60s
//! ```
//! `%3d %6d %32s`, then the traced data. Provider and module are never printed. DTrace's own tests strip CPU and ID.

use crate::lines::{signed, unsigned, words};

use super::emit::Hit;

/// Column where the name ends if CPU and ID precede it.
const NAME_END: usize = 43;
/// Width of the name's cell, in bytes.
const NAME_WIDTH: usize = 32;

/// The layout given by the line of column heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Column where names end.
    name_end: usize,
    has_cpu: bool,
    /// The text lost its columns: words are separated by tabs, or by single spaces.
    is_loose: bool,
}

impl Head {
    /// The layout for a file without column heads.
    pub(super) const USUAL: Head = Head {
        name_end: NAME_END,
        has_cpu: true,
        is_loose: false,
    };

    /// `CPU     ID                    FUNCTION:NAME`
    pub(super) fn of(line: &[u8]) -> Option<Head> {
        let line = line.trim_ascii_end();
        if !line.ends_with(b"FUNCTION:NAME") {
            return None;
        }
        let mut words = words(line);
        let has_cpu = match words.next()? {
            b"CPU" => words.next()? == b"ID" && words.next()? == b"FUNCTION:NAME",
            b"FUNCTION:NAME" => false,
            _ => return None,
        };
        if words.next().is_some() || (!has_cpu && line.len() != NAME_WIDTH) {
            return None;
        }
        Some(Head {
            name_end: line.len(),
            has_cpu,
            is_loose: has_cpu && (line.contains(&b'\t') || line.len() < NAME_WIDTH),
        })
    }

    /// Parses a hit.
    pub(super) fn hit<'a>(&self, line: &'a [u8]) -> Option<Hit<'a>> {
        if self.is_loose {
            return loose_hit(line);
        }
        let mut hit = Hit::default();
        let mut rest = line;
        let mut name_start = 0;
        if self.has_cpu {
            let (cpu, after) = number(rest, 3)?;
            let (id, after) = number(after.strip_prefix(b" ")?, 6)?;
            hit.cpu = u32::try_from(cpu).ok();
            hit.id = Some(id);
            rest = after.strip_prefix(b" ")?;
            name_start = line.len() - rest.len();
        }
        let width = self.name_end.saturating_sub(name_start).max(1);
        let (name, data) = name(rest, width)?;
        let colon = name.iter().rposition(|&byte| byte == b':')?;
        hit.function = name.get(..colon)?;
        hit.name = name.get(colon + 1..)?;
        hit.add(data);
        Some(hit)
    }
}

/// Parses a hit by its words.
fn loose_hit(line: &[u8]) -> Option<Hit<'_>> {
    let word = |text| perfquet_events::scan::word(text);
    let (cpu, rest) = word(line)?;
    let (id, rest) = word(rest)?;
    let (probe, data) = word(rest)?;
    let colon = probe.iter().rposition(|&byte| byte == b':')?;
    let mut hit = Hit {
        cpu: u32::try_from(unsigned(cpu)?).ok(),
        id: Some(unsigned(id)?),
        function: probe.get(..colon)?,
        name: probe.get(colon + 1..).filter(|name| !name.is_empty())?,
        ..Hit::default()
    };
    hit.add(data);
    Some(hit)
}

impl<'a> Hit<'a> {
    /// Adds traced data: numbers, if the line has nothing else, or the cells of numbers and strings.
    pub(super) fn add(&mut self, data: &'a [u8]) {
        let cells = data;
        let data = data.trim_ascii();
        self.message.extend_from_slice(data);
        let values: Option<Vec<i64>> = words(data).map(signed).collect();
        match values {
            Some(values) => self.values = values,
            None => self.cells(cells).unwrap_or_else(|| {
                self.values.clear();
                self.strings.clear();
            }),
        }
    }

    /// Cuts the cells of `trace()` (`dt_consume.c`): a string is `  %-33s`, a number right-aligned in the width of its
    /// type. `None` if the text is something else.
    fn cells(&mut self, data: &'a [u8]) -> Option<()> {
        const STRING: usize = 35;
        const NUMBERS: [usize; 7] = [4, 6, 9, 11, 17, 20, 21];
        // A blank follows the name.
        let mut rest = data.strip_prefix(b" ")?;
        while !rest.trim_ascii().is_empty() {
            let blanks = rest.iter().take_while(|&&byte| byte == b' ').count();
            let after = rest.get(blanks..)?;
            let length = after.iter().take_while(|&&byte| byte != b' ').count();
            let width = blanks + length;
            // No number has as many blanks before it as follow a short string.
            let padding = rest.get(width..STRING.max(width));
            let is_padded = blanks == 2
                && length < STRING / 2
                && padding.is_some_and(|padding| padding.iter().all(|&byte| byte == b' '));
            if is_padded {
                self.strings.push(after.get(..length)?);
                rest = rest.get(STRING..)?;
            } else if let Some(value) = signed(after.get(..length)?)
                && NUMBERS.contains(&width)
            {
                self.values.push(value);
                rest = rest.get(width..)?;
            } else if blanks == 2 {
                let text = rest.get(..STRING).unwrap_or(rest);
                // A longer string leaves no blank before the next cell.
                let is_whole = rest.len() <= STRING || text.ends_with(b" ");
                self.strings.push(is_whole.then(|| text.trim_ascii())?);
                rest = rest.get(STRING..).unwrap_or_default();
            } else {
                return None;
            }
        }
        Some(())
    }
}

/// A number right-aligned in `width`, or wider, and the rest after it.
fn number(line: &[u8], width: usize) -> Option<(u64, &[u8])> {
    let blanks = line.iter().take_while(|&&byte| byte == b' ').count();
    let after = line.get(blanks..)?;
    let digits = after
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let number = unsigned(after.get(..digits)?)?;
    let fits = blanks + digits == width || (blanks == 0 && digits > width);
    fits.then_some((number, after.get(digits..)?))
}

/// `func:name` in its cell, or wider, and the rest after it.
fn name(text: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let is_end = |end: usize| {
        text.get(end - 1).is_some_and(|&byte| byte != b' ')
            && text.get(end).is_none_or(|&byte| byte == b' ')
    };
    let end = match is_end(width) {
        true => width,
        // The name ends at the first space after its colon.
        false => {
            let start = text.iter().position(|&byte| byte != b' ')?;
            let colon = start + text.get(start..)?.iter().position(|&byte| byte == b':')?;
            let length = text.get(colon..)?.iter().position(|&byte| byte == b' ');
            length.map_or(text.len(), |length| colon + length)
        }
    };
    let (cell, data) = text.split_at_checked(end)?;
    let name = cell.trim_ascii_start();
    let colon = name.iter().rposition(|&byte| byte == b':')?;
    // The probe's name is one word.
    let is_name = name
        .get(colon + 1..)
        .is_some_and(|name| !name.is_empty() && !name.contains(&b' '));
    is_name.then_some((name, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, line: &str, expected: Option<(Option<u32>, &str, &str, &str)>) {
        let head = Head::of(head.as_bytes()).unwrap_or(Head::USUAL);
        let hit = head.hit(line.as_bytes());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found = hit.map(|hit| {
            (
                hit.cpu,
                text(hit.function),
                text(hit.name),
                text(&hit.message),
            )
        });
        let found = found.as_ref().map(|(cpu, function, name, message)| {
            (*cpu, function.as_str(), name.as_str(), message.as_str())
        });
        assert_eq!(found, expected, "{line}");
    }

    const HEAD: &str = "CPU     ID                    FUNCTION:NAME";

    #[test]
    fn hits() {
        check(
            HEAD,
            "  0   8408                     malloc:entry                64 ",
            Some((Some(0), "malloc", "entry", "64")),
        );
        check(
            HEAD,
            " 12  64091                        :tick-60s ",
            Some((Some(12), "", "tick-60s", "")),
        );
        check(
            HEAD,
            "  0   3297         exec_common:exec-success   sh -c cd /usr: x",
            Some((Some(0), "exec_common", "exec-success", "sh -c cd /usr: x")),
        );
        check(
            HEAD,
            "  1      5         -[NSObject init:]:entry",
            Some((Some(1), "-[NSObject init:]", "entry", "")),
        );
        check(
            HEAD,
            "  1      5 a_function_of_more_than_thirty_characters:entry 7 8",
            Some((
                Some(1),
                "a_function_of_more_than_thirty_characters",
                "entry",
                "7 8",
            )),
        );
        check(
            "                   FUNCTION:NAME",
            "                          :BEGIN   00      01   ",
            Some((None, "", "BEGIN", "00      01")),
        );
        check(
            "",
            "  0   8408                     malloc:entry",
            Some((Some(0), "malloc", "entry", "")),
        );
    }

    #[test]
    fn columns_may_be_lost() {
        check(
            "CPU\tID\tFUNCTION:NAME\t",
            "0\t8408\tmalloc:entry\t64",
            Some((Some(0), "malloc", "entry", "64")),
        );
        check(
            "CPU ID FUNCTION:NAME",
            "0 8408 malloc:entry csh 64",
            Some((Some(0), "malloc", "entry", "csh 64")),
        );
        check("CPU ID FUNCTION:NAME", "0 8408 malloc 64", None);
    }

    #[test]
    fn traced_cells() {
        let check = |data: &str, values: &[i64], strings: &[&str]| {
            let mut hit = Hit::default();
            hit.add(data.as_bytes());
            let found: Vec<_> = hit
                .strings
                .iter()
                .map(|text| String::from_utf8_lossy(text))
                .collect();
            assert_eq!(
                (hit.values.as_slice(), found),
                (values, strings.iter().map(|text| (*text).into()).collect())
            );
        };
        check(&format!("   {:<33} {:16}", "csh", 64), &[64], &["csh"]);
        check(
            &format!("   {:<33}  {:<33}", "a b", "12"),
            &[],
            &["a b", "12"],
        );
        check(&format!("  {:16}  {:<33}", -5, "x"), &[-5], &["x"]);
        check(&format!("   {:<33} {:3} {:8}", "x", 7, 8), &[7, 8], &["x"]);
        check("   csh", &[], &["csh"]);
        // The text of a printf.
        check(" 16459 tar 1024", &[], &[]);
        check(
            &format!(
                "   {:<33} {:16}",
                "a string of more than its 33 columns", 64
            ),
            &[],
            &[],
        );
        check("                64 ", &[64], &[]);
    }

    #[test]
    fn no_hits() {
        check(HEAD, "     1109  svc.startd            1", None);
        check(HEAD, "  0   8408  no colon", None);
        check(HEAD, "              genunix`open+0x25", None);
        check(HEAD, "", None);
        assert_eq!(Head::of(b"CPU FUNCTION"), None);
        assert_eq!(Head::of(b"FUNCTION:NAME"), None);
    }
}
