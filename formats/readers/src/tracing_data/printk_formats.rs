//! Strings of the kernel that are recorded as addresses (tracefs `printk_formats`).
//!
//! ```text
//! 0xffffffff8246d2dd : "CPU_ON"              escaped as in C
//! ```
//! They are the formats of `trace_printk`, and the strings of fields such as `const char * s` of `rcu:rcu_utilization`.

use perfquet_events::Error;
use perfquet_events::bytes::before_nul;
use perfquet_events::event::{Event, KernelText, Sink};

/// The addresses and escaped strings of all lines that are not empty; `None` for an invalid line.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = Option<(u64, &str)>> {
    let lines = text.split(|&byte| byte == b'\n');
    let lines = lines.filter(|line| !before_nul(line).trim_ascii().is_empty());
    lines.map(line)
}

fn line(line: &[u8]) -> Option<(u64, &str)> {
    let line = str::from_utf8(line).ok()?;
    let (address, text) = line.split_once(" : ")?;
    let address = u64::from_str_radix(address.trim().strip_prefix("0x")?, 16).ok()?;
    let text = text.trim_end().strip_prefix('"')?;
    Some((address, text.strip_suffix('"').unwrap_or(text)))
}

/// Emits the strings that payloads reference by address.
pub(crate) fn emit(text: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    for (address, text) in lines(text).flatten() {
        let text = &unescaped(text);
        sink.event(Event::KernelText(KernelText { address, text }))?;
    }
    Ok(())
}

/// Resolves escapes. The kernel escapes only newlines, tabs, quotes and backslashes.
pub(crate) fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let text = b"0xffffffff8281a569 : \"rcu\\tGPS\"\n\nnone\n0xff : \"cut";
        let found: Vec<_> = lines(text).collect();
        assert_eq!(
            found,
            [
                Some((0xffff_ffff_8281_a569, "rcu\\tGPS")),
                None,
                Some((0xff, "cut"))
            ]
        );
        assert_eq!(unescaped("rcu\\tGPS"), b"rcu\tGPS");
    }
}
