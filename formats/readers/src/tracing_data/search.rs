//! Finds `format` files in a bundle whose lengths are damaged.
//!
//! ```text
//! "sched\0"  u32 n  u64 size  "name: sched_switch\nID: 316\nformat:\n … print fmt: …\n"  u64 size  "name: …
//! ```
//! Each text begins with `name:` and ends with the line `print fmt:`, so the texts around a lost byte are complete. The
//! system's name precedes its first text; a text after another belongs to the same system.

use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::scan::find_text;

const BEGIN: &[u8] = b"name: ";
const ID: &[u8] = b"\nID: ";
const FORMAT: &[u8] = b"\nformat:\n";
const PRINT: &[u8] = b"\nprint fmt: ";
/// Maximum length of a name, and maximum offset of the line `ID:`.
const NAME_BYTES_MAX: usize = 256;
/// Bytes between a system's name and its first text: their number, and the size of the first.
const BETWEEN: usize = 12;
/// Longer than any format file.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// The texts found.
#[derive(Debug, Default)]
pub(super) struct FoundTexts<'a> {
    /// Texts before the first system: ftrace's own.
    pub(super) ftrace: Vec<&'a [u8]>,
    pub(super) events: Vec<(&'a [u8], &'a [u8])>,
    /// The end of the last text.
    pub(super) end: usize,
}

/// Finds all texts.
pub(super) fn find_texts(bytes: &[u8], endian: Endian) -> FoundTexts<'_> {
    let mut found = FoundTexts::default();
    let mut system = None;
    let mut from = 0;
    while let Some(rest) = bytes.get(from..)
        && let Some(skipped) = find_text(rest, BEGIN)
    {
        let start = from + skipped;
        let rest = bytes.get(start..).unwrap_or_default();
        let Some(length) = length_of(rest) else {
            from = start + BEGIN.len();
            continue;
        };
        let text = rest.get(..length).unwrap_or_default();
        let before = bytes.get(..start).unwrap_or_default();
        system = system_before(before, endian).or(system);
        match system {
            None => found.ftrace.push(text),
            Some(system) => found.events.push((system, text)),
        }
        from = start + length;
        found.end = from;
    }
    found
}

/// Length of the text at the front, if a complete one begins here.
pub(super) fn length_of(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..NAME_BYTES_MAX.min(bytes.len()))?;
    find_text(head, ID)?;
    let body = bytes.get(..TEXT_BYTES_MAX.min(bytes.len()))?;
    let print = find_text(body, PRINT)? + PRINT.len();
    // Two heads before one end: the end of this text is damaged.
    let before = body.get(..print)?;
    let format = find_text(before, FORMAT)? + FORMAT.len();
    if find_text(before.get(format..)?, FORMAT).is_some() {
        return None;
    }
    let line = body.get(print..)?;
    let end = line.iter().position(|&byte| byte == b'\n')?;
    Some(print + end + 1)
}

/// The system whose first text follows `before`.
fn system_before(before: &[u8], endian: Endian) -> Option<&[u8]> {
    let name_end = before.len().checked_sub(BETWEEN + 1)?;
    let mut after = Cursor::new(before.get(name_end..)?, 0, endian);
    let (nul, count) = (after.u8().ok()?, after.u32().ok()?);
    if nul != 0 || !(1..1 << 16).contains(&count) {
        return None;
    }
    let names = before.get(..name_end)?;
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let length = names
        .iter()
        .rev()
        .take_while(|byte| is_letter(byte))
        .count();
    (1..NAME_BYTES_MAX).contains(&length).then_some(())?;
    names.get(name_end - length..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle() -> Vec<u8> {
        let text = |name: &str, id: u32| {
            let text = format!(
                "name: {name}\nID: {id}\nformat:\n\tfield:int name;\n\nprint fmt: \"name: %d\", REC->name\n"
            );
            [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
        };
        let mut bytes = 1u32.to_le_bytes().to_vec();
        bytes.extend(text("print", 5));
        bytes.extend(2u32.to_le_bytes());
        bytes.extend(b"sched\0\x02\0\0\0");
        bytes.extend(text("sched_switch", 316));
        bytes.extend(text("sched_waking", 317));
        bytes.extend(b"irq\0\x01\0\0\0");
        bytes.extend(text("softirq_entry", 99));
        bytes
    }

    #[track_caller]
    fn names(bytes: &[u8]) -> Vec<String> {
        let found = find_texts(bytes, Endian::Little);
        let name = |text: &[u8]| {
            let line = text.split(|&byte| byte == b'\n').next().unwrap();
            String::from_utf8_lossy(&line[6..]).into_owned()
        };
        let ftrace = found.ftrace.iter().map(|text| name(text));
        let events = found
            .events
            .iter()
            .map(|(system, text)| format!("{}:{}", String::from_utf8_lossy(system), name(text)));
        ftrace.chain(events).collect()
    }

    #[test]
    fn a_lost_byte_costs_one_text() {
        let whole = [
            "print",
            "sched:sched_switch",
            "sched:sched_waking",
            "irq:softirq_entry",
        ];
        let bytes = bundle();
        assert_eq!(names(&bytes), whole);
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged.remove(place);
            let found = names(&damaged);
            assert!(found.len() >= 3, "{place}: {found:?}");
        }
    }
}
