//! A streaming JSON writer: strings are escaped, numbers are exact.

use std::io::{self, Write};

use anyhow::Result;

/// A JSON writer. The caller writes brackets and commas.
pub(super) struct Json<'o> {
    out: &'o mut dyn Write,
    buffer: Vec<u8>,
    /// Bytes written.
    size: u64,
}

/// Size at which bytes are written.
const BUFFER_BYTES: usize = 64 * 1024;

impl<'o> Json<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Json<'o> {
        Json {
            out,
            buffer: Vec::with_capacity(BUFFER_BYTES + 4096),
            size: 0,
        }
    }

    /// Adds JSON unchanged.
    pub(super) fn raw(&mut self, json: impl AsRef<[u8]>) -> Result<()> {
        self.buffer.extend_from_slice(json.as_ref());
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds a string.
    pub(super) fn text(&mut self, text: &str) -> Result<()> {
        write_text(&mut self.buffer, text);
        self.raw("")
    }

    /// Adds the items of a list or an object, separated by commas.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Json<'o>, T) -> Result<()>,
    ) -> Result<()> {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.raw(",")?;
            }
            write(self, item)?;
        }
        Ok(())
    }

    /// Returns the number of bytes so far.
    pub(super) fn size(&self) -> u64 {
        self.size + self.buffer.len() as u64
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.out.write_all(&self.buffer)?;
        self.size += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Write for Json<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Adds a string in quotes.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// Returns a string in quotes.
pub(super) fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Formats nanoseconds in units of 10^`digits` ns, without rounding: `1500.001` microseconds for 1500001 and 3 digits.
pub(super) fn decimal(nanoseconds: i64, digits: usize) -> String {
    let unit = 10_u64.pow(digits as u32);
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let value = nanoseconds.unsigned_abs();
    let (whole, fraction) = (value / unit, value % unit);
    match fraction {
        0 => format!("{sign}{whole}"),
        _ => {
            let fraction = format!("{fraction:0digits$}");
            format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let check = |nanoseconds, digits, expected: &str| {
            assert_eq!(decimal(nanoseconds, digits), expected);
        };
        check(1_500_001, 3, "1500.001");
        check(1_500_000, 3, "1500");
        check(1, 6, "0.000001");
        check(-1_200_000, 6, "-1.2");
        check(i64::MAX, 3, "9223372036854775.807");
        check(i64::MIN, 6, "-9223372036854.775808");
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(text("a\"b\\c\u{1b}\n"), r#""a\"b\\c\u001b\n""#);
    }
}
