//! JSON: one array of objects, or one object per line. NULL is `null`, so that every object has every key.
//!
//! JSON requires escapes only below U+0020. C1 controls and bidirectional marks are escaped too:
//! the same string for a parser, but harmless on a terminal.

use std::io::{self, Write};

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::json::writer::{JsonArray, JsonFormat, LineDelimited, Writer, WriterBuilder};

use super::Rows;

pub(super) struct Json<'w, F: JsonFormat> {
    writer: Writer<Escaped<'w>, F>,
}

impl<'w> Json<'w, JsonArray> {
    pub(super) fn array(out: &'w mut (dyn Write + Send)) -> Json<'w, JsonArray> {
        let writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .build(Escaped::new(out));
        Json { writer }
    }
}

impl<'w> Json<'w, LineDelimited> {
    pub(super) fn lines(out: &'w mut (dyn Write + Send)) -> Json<'w, LineDelimited> {
        let writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .build(Escaped::new(out));
        Json { writer }
    }
}

impl<F: JsonFormat> Rows for Json<'_, F> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.writer.finish()?;
        Ok(self.writer.into_inner().flush()?)
    }
}

/// Escapes characters that a terminal would interpret. In JSON, they can only be part of a string.
struct Escaped<'w> {
    out: &'w mut (dyn Write + Send),
    /// An incomplete character at the end of a write.
    begun: Vec<u8>,
    text: Vec<u8>,
}

impl<'w> Escaped<'w> {
    fn new(out: &'w mut (dyn Write + Send)) -> Escaped<'w> {
        Escaped {
            out,
            begun: Vec::new(),
            text: Vec::new(),
        }
    }
}

/// The character that `bytes` begin with, if it must be escaped, and its length.
fn harmful(bytes: &[u8]) -> Option<(u16, usize)> {
    match *bytes {
        [0x7f, ..] => Some((0x7f, 1)),
        [0xc2, low @ 0x80..=0x9f, ..] => Some((low.into(), 2)),
        [0xe2, 0x80, low @ 0xaa..=0xae, ..] => Some((0x2000 | u16::from(low & 0x3f), 3)),
        [0xe2, 0x81, low @ 0xa6..=0xa9, ..] => Some((0x2040 | u16::from(low & 0x3f), 3)),
        _ => None,
    }
}

impl Write for Escaped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let joined;
        let mut rest = bytes;
        if !self.begun.is_empty() {
            joined = [self.begun.as_slice(), bytes].concat();
            rest = &joined;
            self.begun = Vec::new();
        }
        self.text.clear();
        while let Some(&first) = rest.first() {
            if let Some((letter, length)) = harmful(rest) {
                self.text
                    .extend_from_slice(format!("\\u{letter:04x}").as_bytes());
                rest = &rest[length..];
            } else if matches!(rest, [0xc2] | [0xe2] | [0xe2, 0x80 | 0x81]) {
                self.begun = rest.to_vec();
                break;
            } else {
                self.text.push(first);
                rest = &rest[1..];
            }
        }
        self.out.write_all(&self.text)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_across_buffer_limits() {
        let text = "\"é 漢 \u{9b}31m\u{7f}\u{202e}x\u{2066}\u{2028}\"";
        let expected = "\"é 漢 \\u009b31m\\u007f\\u202ex\\u2066\u{2028}\"";
        for size in 1..text.len() {
            let mut out = Vec::new();
            let mut escaped = Escaped::new(&mut out);
            for piece in text.as_bytes().chunks(size) {
                escaped.write_all(piece).unwrap();
            }
            escaped.flush().unwrap();
            assert_eq!(out, expected.as_bytes());
        }
    }
}
