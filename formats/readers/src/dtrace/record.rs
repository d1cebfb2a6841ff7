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
}

impl Head {
    /// The layout for a file without column heads.
    pub(super) const USUAL: Head = Head {
        name_end: NAME_END,
        has_cpu: true,
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
        })
    }

    /// Parses a hit.
    pub(super) fn hit<'a>(&self, line: &'a [u8]) -> Option<Hit<'a>> {
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

impl Hit<'_> {
    /// Adds traced data: numbers, if the line has nothing else.
    pub(super) fn add(&mut self, data: &[u8]) {
        let data = data.trim_ascii();
        self.message.extend_from_slice(data);
        let values: Option<Vec<i64>> = words(data).map(signed).collect();
        self.values = values.unwrap_or_default();
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
    fn no_hits() {
        check(HEAD, "     1109  svc.startd            1", None);
        check(HEAD, "  0   8408  no colon", None);
        check(HEAD, "              genunix`open+0x25", None);
        check(HEAD, "", None);
        assert_eq!(Head::of(b"CPU FUNCTION"), None);
        assert_eq!(Head::of(b"FUNCTION:NAME"), None);
    }
}
