//! Forms of events that the kernel or a tool prints other than as `key=value`: a line with placeholders for the fields.
//!
//! ```text
//! "{dev:D} {rwbs:w} {bytes:d} ({cmd:s}) {sector:d} + {nr_sector:d} [{comm:s}]"
//!   8,16    W       0         ()        495704    +  24            [dd]
//! ```
//! A space matches any number of spaces. A placeholder is `{name:kind}`; without a name, its text is dropped:
//!
//! | kind | what | kind | what |
//! |---|---|---|---|
//! | `d` | decimal number | `x` | hexadecimal number, with or without `0x` |
//! | `f` | number with a point | `s` | text up to the next literal, may be empty |
//! | `w` | word | `D` | device: `8,16` or `8:16` |
//! | `h` | `handled` or `unhandled` | `L` | hexadecimal numbers separated by commas |
//! | `t` | `{comm/pid:t}`: text and decimal number, separated by the last colon | `i` | hexadecimal of a signed number |

use perfquet_events::scan::{after, find_text, rfind_text, trim, trim_start};

use super::class::{Class, Notation};

/// Number of places tried as the end of a text.
const MAX_TRIES: usize = 8;

/// A printed line with placeholders for fields.
#[derive(Debug, Clone, Default)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    /// Text after the last placeholder.
    tail: &'static [u8],
}

/// A placeholder and the text before it.
#[derive(Debug, Clone)]
struct Piece {
    before: &'static [u8],
    kind: u8,
    /// Empty if the text is dropped.
    name: &'static [u8],
    /// Of `t`: the name of the part after the colon.
    second: &'static [u8],
}

/// A field of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TemplateField {
    pub(super) name: &'static [u8],
    pub(super) class: Class,
    pub(super) notation: Notation,
}

impl Template {
    /// Parses a template.
    pub(super) fn new(text: &'static str) -> Template {
        let mut template = Template::default();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((place, following)) = after.split_once('}') else {
                break;
            };
            let (names, kind) = place.split_once(':').unwrap_or((place, "s"));
            let (name, second) = names.split_once('/').unwrap_or((names, ""));
            template.pieces.push(Piece {
                before: before.as_bytes(),
                kind: kind.bytes().next().unwrap_or(b's'),
                name: name.as_bytes(),
                second: second.as_bytes(),
            });
            rest = following;
        }
        template.tail = rest.as_bytes();
        template
    }

    /// The fields, in the order of the texts from [`Template::read`].
    pub(super) fn fields(&self) -> impl Iterator<Item = TemplateField> {
        self.pieces.iter().flat_map(|piece| {
            let (class, notation) = match piece.kind {
                b'd' => (Class::Int, Notation::Plain),
                b'x' => (Class::UInt, Notation::Hex),
                b'i' => (Class::Int, Notation::HexSigned),
                b'f' => (Class::Float, Notation::Plain),
                b'D' => (Class::Int, Notation::Device),
                b'h' => (Class::Int, Notation::Handled),
                b'L' => (Class::UIntList, Notation::HexList),
                _ => (Class::Text, Notation::Plain),
            };
            let first = TemplateField {
                name: piece.name,
                class,
                notation,
            };
            let second = TemplateField {
                name: piece.second,
                class: Class::Int,
                notation: Notation::Plain,
            };
            [first, second]
                .into_iter()
                .filter(|field| !field.name.is_empty())
        })
    }

    /// Puts the texts of the fields into `texts`. Returns false if `line` does not match.
    #[inline]
    pub(super) fn read<'a>(&self, line: &'a [u8], texts: &mut Vec<&'a [u8]>) -> bool {
        texts.clear();
        self.read_from(0, line, texts).is_some()
    }

    /// Reads the pieces from `index` on. A name may contain what follows it (`comm=a pid=1 pid=77`): text ends where the
    /// rest of the line matches.
    fn read_from<'a>(&self, index: usize, line: &'a [u8], texts: &mut Vec<&'a [u8]>) -> Option<()> {
        let mut rest = line;
        for (index, piece) in self.pieces.iter().enumerate().skip(index) {
            rest = skip(rest, piece.before)?;
            if piece.kind != b's' {
                rest = trim_start(rest);
            }
            let next = self
                .pieces
                .get(index + 1)
                .map_or(self.tail, |piece| piece.before);
            let mut length = piece.length(rest, next)?;
            if piece.is_text() && !next.is_empty() {
                let read = texts.len();
                for _ in 0..MAX_TRIES {
                    let (text, after) = rest.split_at_checked(length)?;
                    if piece.put(text, texts).is_some()
                        && self.read_from(index + 1, after, texts).is_some()
                    {
                        return Some(());
                    }
                    texts.truncate(read);
                    length += 1 + find_text(rest.get(length + 1..)?, next)?;
                }
                return None;
            }
            let (text, after) = rest.split_at_checked(length)?;
            rest = after;
            piece.put(text, texts)?;
        }
        trim(skip(rest, self.tail)?).is_empty().then_some(())
    }
}

impl Piece {
    /// Whether the text ends at the next literal.
    fn is_text(&self) -> bool {
        matches!(self.kind, b's' | b't')
    }

    /// Adds the fields in the placeholder's text.
    #[inline]
    fn put<'a>(&self, text: &'a [u8], texts: &mut Vec<&'a [u8]>) -> Option<()> {
        if self.kind == b't' {
            let colon = rfind_text(text, b":")?;
            texts.push(text.get(..colon)?);
            texts.push(text.get(colon + 1..)?);
        } else if !self.name.is_empty() {
            texts.push(text);
        }
        Some(())
    }

    /// Length of the placeholder's text, given the following piece `next`.
    #[inline]
    fn length(&self, rest: &[u8], next: &[u8]) -> Option<usize> {
        let run = |is_part: fn(u8) -> bool| {
            let length = rest.iter().take_while(|&&byte| is_part(byte)).count();
            (length > 0).then_some(length)
        };
        match self.kind {
            b'd' => number(rest),
            b'x' | b'i' => run(|byte| byte.is_ascii_hexdigit() || byte == b'x'),
            b'f' => run(|byte| byte.is_ascii_digit() || byte == b'.'),
            b'D' => {
                let major = number(rest)?;
                let after = rest.get(major + 1..)?;
                matches!(rest.get(major), Some(b',' | b':')).then_some(major + 1 + number(after)?)
            }
            b'w' | b'h' => {
                let stop = next.first().copied().unwrap_or(b' ');
                let is_end = |byte: &u8| *byte == b' ' || *byte == stop;
                let length = rest.iter().position(is_end).unwrap_or(rest.len());
                (length > 0).then_some(length)
            }
            _ if next.is_empty() => Some(rest.len()),
            _ => find_text(rest, next),
        }
    }
}

/// Length of an optionally signed decimal number.
#[inline]
fn number(text: &[u8]) -> Option<usize> {
    let sign = usize::from(text.first() == Some(&b'-'));
    let digits = text.get(sign..)?;
    let digits = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    (digits > 0).then_some(sign + digits)
}

/// The text after `literal`, each space of which matches any number of spaces.
#[inline]
fn skip<'a>(text: &'a [u8], literal: &[u8]) -> Option<&'a [u8]> {
    if let Some(rest) = after(text, literal) {
        return Some(rest);
    }
    let mut rest = text;
    for &byte in literal {
        rest = match rest.split_first() {
            Some((first, after)) if *first == byte && byte == b' ' => trim_start(after),
            Some((first, after)) if *first == byte => after,
            _ if byte == b' ' => rest,
            _ => return None,
        };
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &'static str, line: &str, expected: Option<&[&str]>) {
        let template = Template::new(template);
        let mut texts = Vec::new();
        let found = template.read(line.as_bytes(), &mut texts).then(|| {
            assert_eq!(template.fields().count(), texts.len(), "{line}");
            texts
                .iter()
                .map(|text| String::from_utf8_lossy(text).into_owned())
                .collect::<Vec<_>>()
        });
        let expected = expected.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn places() {
        let block = "{dev:D} {rwbs:w} {bytes:d} ({cmd:s}) {sector:d} + {nr_sector:d} [{comm:s}]";
        check(
            block,
            "8,16 W 0 () 495704 + 24 [a b]",
            Some(&["8,16", "W", "0", "", "495704", "24", "a b"]),
        );
        check(block, "8,16 W () 495704 + 24 [dd]", None);
        check(block, "8,16 W 0 () 495704 + 24 [dd] x", None);
        check(
            "{comm/pid:t} [{prio:d}] CPU:{target_cpu:d}",
            "kworker/0:1:11 [120] CPU:000",
            Some(&["kworker/0:1", "11", "120", "000"]),
        );
        check(
            "comm={comm:s} pid={pid:d} prio={prio:d}",
            "comm=pid=1 pid=2 pid=77 prio=120",
            Some(&["pid=1 pid=2", "77", "120"]),
        );
        check(
            "{comm/pid:t} [{prio:d}] CPU:{target_cpu:d}",
            "a [1] b:11 [120] CPU:000",
            Some(&["a [1] b", "11", "120", "000"]),
        );
        check(
            "vec={vec:d} [action={:s}]",
            "vec=7 [action=RCU]",
            Some(&["7"]),
        );
        check(
            "#{n:d} a: {b:d}/{c:d}",
            "#1     a:  210/4149",
            Some(&["1", "210", "4149"]),
        );
        check(
            "{s:s}",
            "Start context switch",
            Some(&["Start context switch"]),
        );
    }
}
