//! Lines of the mmiotrace tracer, which have no head: drivers' accesses to device memory.
//!
//! ```text
//! VERSION 20070824
//! PCIDEV 0100 10de0402 10 fa000000 …
//! R 4 44.250212 1 0xfa000000 0x84b300a2 0x0 0            width, time, mapping, address, value, code, process
//! W 4 44.250315 1 0xfa000140 0x0 0x0 0
//! MAP 44.250193 1 0xfa000000 0xffffc90012000000 0x1000000 0xffffffffa0b46ce1 0
//! UNMAP 44.250331 1 0x0 0                                -1: mapped before the tracer started
//! MARK 44.250400 a marker's text
//! MARK 0.000000 Lost 12 events.
//! ```
//! Format: `kernel/trace/trace_mmiotrace.c` and `Documentation/trace/mmiotrace.rst`. Tables and columns match the
//! kernel's own entries `mmiotrace_rw` and `mmiotrace_map`, as a trace.dat has them.

use perfquet_events::scan::{
    bare_hex, decimal, leading_decimal, seconds, signed, trim, trim_start, word,
};

use super::head::Head;
use crate::payload_text::FieldKind;

/// Columns of accesses.
const RW: Columns = (
    b"mmiotrace_rw",
    &[
        (b"phys", FieldKind::Hex),
        (b"value", FieldKind::Hex),
        (b"pc", FieldKind::Hex),
        (b"map_id", FieldKind::Int),
        (b"opcode", FieldKind::Int),
        (b"width", FieldKind::Int),
    ],
);
/// Columns of mappings and unmappings.
const MAP: Columns = (
    b"mmiotrace_map",
    &[
        (b"phys", FieldKind::Hex),
        (b"virt", FieldKind::Hex),
        (b"len", FieldKind::Hex),
        (b"map_id", FieldKind::Int),
        (b"opcode", FieldKind::Int),
    ],
);

/// A table name with its columns.
type Columns = (&'static [u8], &'static [(&'static [u8], FieldKind)]);

/// A parsed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MmioLine<'a> {
    Access(Access<'a>),
    /// A string written to `trace_marker`.
    Mark(&'a [u8]),
    /// Number of events dropped by a full buffer.
    Lost(u64),
}

/// One access, mapping or unmapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access<'a> {
    columns: Columns,
    /// One value per column; empty if not given.
    values: [&'a [u8]; RW.1.len()],
}

/// Name, kind and text of a column.
type Field<'a> = (&'static [u8], FieldKind, &'a [u8]);

impl<'a> Access<'a> {
    /// The name of the table, and its fields.
    pub(super) fn table(&self) -> (&'static [u8], Vec<Field<'a>>) {
        let (table, columns) = self.columns;
        let fields = columns.iter().zip(self.values);
        let fields = fields.map(|(&(name, kind), value)| (name, kind, value));
        (table, fields.collect())
    }
}

/// Parses a line; `None` if it is not mmiotrace's.
pub(super) fn line(text: &[u8]) -> Option<(Head<'_>, MmioLine<'_>)> {
    let (keyword, rest) = word(text)?;
    let found = match keyword {
        // The opcodes are those of `enum mm_io_opcode`.
        b"R" => rw(b"1", true, rest),
        b"W" => rw(b"2", true, rest),
        b"MAP" => map(rest),
        b"UNMAP" => unmap(rest),
        b"UNKNOWN" => rw(b"5", false, rest),
        b"MARK" => mark(rest),
        _ => None,
    };
    let (time, line) = found?;
    let head = Head {
        time: Some(seconds(time)?),
        ..Head::default()
    };
    Some((head, line))
}

/// A line about the format or the host, as a fact: name and value.
pub(super) fn fact(text: &[u8]) -> Option<(String, &[u8])> {
    if let Some(version) = text.strip_prefix(b"VERSION ") {
        decimal(version)?;
        return Some(("mmiotrace.version".into(), version));
    }
    let (kind, rest) = if let Some(rest) = text.strip_prefix(b"PCIDEV ") {
        ("pcidev", rest)
    } else {
        ("lspci", text.strip_prefix(b"LSPCI ")?)
    };
    // The device's bus address, then its IDs.
    let (place, rest) = word(rest)?;
    let place = String::from_utf8_lossy(place);
    Some((format!("mmiotrace.{kind}.{place}"), trim(rest)))
}

/// A time, and the line that it belongs to.
type Timed<'a> = (&'a [u8], MmioLine<'a>);

fn rw<'a>(opcode: &'static [u8], has_width: bool, text: &'a [u8]) -> Option<Timed<'a>> {
    let (width, text) = match has_width {
        true => number(text)?,
        false => (&[][..], text),
    };
    let (time, text) = word(text)?;
    let (id, text) = number(text)?;
    let (phys, text) = address(text)?;
    let (value, text) = address(text)?;
    let (pc, text) = address(text)?;
    process(text)?;
    let access = Access {
        columns: RW,
        values: [phys, value, pc, id, opcode, width],
    };
    Some((time, MmioLine::Access(access)))
}

fn map(text: &[u8]) -> Option<Timed<'_>> {
    let (time, text) = word(text)?;
    let (id, text) = number(text)?;
    let (phys, text) = address(text)?;
    let (virt, text) = address(text)?;
    let (len, text) = address(text)?;
    let (_, text) = address(text)?;
    process(text)?;
    Some((time, mapping([phys, virt, len, id, b"3"])))
}

fn unmap(text: &[u8]) -> Option<Timed<'_>> {
    let (time, text) = word(text)?;
    let (id, text) = number(text)?;
    let (_, text) = address(text)?;
    process(text)?;
    Some((time, mapping([b"", b"", b"", id, b"4"])))
}

fn mapping<'a>([phys, virt, len, id, opcode]: [&'a [u8]; MAP.1.len()]) -> MmioLine<'a> {
    MmioLine::Access(Access {
        columns: MAP,
        values: [phys, virt, len, id, opcode, b""],
    })
}

fn mark(text: &[u8]) -> Option<Timed<'_>> {
    let (time, text) = word(text)?;
    let text = trim_start(text);
    let lost = text
        .strip_prefix(b"Lost ")
        .and_then(leading_decimal)
        .filter(|(_, rest)| *rest == b" events.");
    Some((
        time,
        match lost {
            Some((count, _)) => MmioLine::Lost(count),
            None => MmioLine::Mark(text),
        },
    ))
}

/// A decimal word, and the rest after it.
fn number(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (number, rest) = word(text)?;
    signed(number)?;
    Some((number, rest))
}

/// An address as `0x1f`, and the rest after it.
fn address(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (address, rest) = word(text)?;
    bare_hex(address.strip_prefix(b"0x")?)?;
    Some((address, rest))
}

/// Checks that the line ends with the PID, which is always 0.
fn process(text: &[u8]) -> Option<()> {
    let (_, rest) = number(text)?;
    rest.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match line(text.as_bytes()) {
            Some((head, MmioLine::Access(access))) => {
                let (table, fields) = access.table();
                let values: Vec<_> = fields.iter().map(|field| text_of(field.2)).collect();
                format!(
                    "{} {} {}",
                    head.time.unwrap(),
                    text_of(table),
                    values.join(",")
                )
            }
            Some((head, MmioLine::Mark(text))) => {
                format!("{} mark {}", head.time.unwrap(), text_of(text))
            }
            Some((_, MmioLine::Lost(count))) => format!("lost {count}"),
            None => "none".into(),
        }
    }

    #[test]
    fn lines() {
        let check = |text: &str, expected: &str| assert_eq!(show(text), expected);
        check(
            "R 4 44.250212 1 0xfa000000 0x84b300a2 0x0 0",
            "44250212000 mmiotrace_rw 0xfa000000,0x84b300a2,0x0,1,1,4",
        );
        check(
            "W 1 44.250212 2 0xfa000000 0xa2 0xffffffffa0b46ce1 0",
            "44250212000 mmiotrace_rw 0xfa000000,0xa2,0xffffffffa0b46ce1,2,2,1",
        );
        check(
            "MAP 44.250193 1 0xfa000000 0xffffc90012000000 0x1000000 0xffffffffa0b46ce1 0",
            "44250193000 mmiotrace_map 0xfa000000,0xffffc90012000000,0x1000000,1,3",
        );
        check(
            "UNMAP 44.250331 1 0x0 0",
            "44250331000 mmiotrace_map ,,,1,4",
        );
        check(
            "UNMAP 3.313464 -1 0x0 0",
            "3313464000 mmiotrace_map ,,,-1,4",
        );
        check("MARK 44.250331 a text", "44250331000 mark a text");
        check("MARK 0.000000 Lost 12 events.", "lost 12");
        check("R 4 44.250212 1 0xfa000000 0x84b300a2 0x0", "none");
        check("R 4 44.250212 1 0xfa000000 0x84b300a2 0x0 0 0", "none");
        check("W 4 x 1 0xfa000000 0x84b300a2 0x0 0", "none");
        check("R Q 8,0", "none");
        check("MARK", "none");
        check("R 4 44.250212 1 0xfa000000 0xg 0x0 0", "none");
        check("", "none");
    }

    #[test]
    fn facts() {
        let check = |text: &'static str, name: &str, value: &str| {
            let expected = Some((name.to_owned(), value.as_bytes()));
            assert_eq!(fact(text.as_bytes()), expected);
        };
        check("VERSION 20070824", "mmiotrace.version", "20070824");
        check(
            "PCIDEV 0100 10de0402 10 fa000000",
            "mmiotrace.pcidev.0100",
            "10de0402 10 fa000000",
        );
        check(
            "LSPCI 01:00.0 VGA compatible controller",
            "mmiotrace.lspci.01:00.0",
            "VGA compatible controller",
        );
        assert_eq!(fact(b"VERSION 2.0 of something"), None);
        assert_eq!(fact(b"R 4 1.0 1 0x0 0x0 0x0 0"), None);
    }
}
