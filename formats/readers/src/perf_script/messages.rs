//! Messages of perf in the same file as its output (`perf script > out.txt 2>&1`).
//!
//! ```text
//! Failed to open /tmp/perf-21607.map, continuing without symbols
//! Processed 793565 events and lost 6526 chunks!
//! ```

use perfquet_events::scan::find_text;

/// The meaning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Samples are missing; their number is unknown.
    Loss,
    /// Everything else.
    Note,
}

/// A message known from perf's source; `None` for other text.
pub(super) fn message(text: &[u8]) -> Option<Message> {
    const LOSSES: [&[u8]; 2] = [b" and lost ", b" lost events"];
    const NOTES: [&[u8]; 20] = [
        b"[ perf record:",
        b"Warning:",
        b"WARNING:",
        b"Failed to open ",
        b"Cannot open ",
        b"Cannot read ",
        b"Cannot find ",
        b"Couldn't ",
        b"no symbols found in ",
        b"addr2line",
        b"cmd__addr2line",
        b"BFD: ",
        b"Was the 'perf record' command",
        b"Check IO/CPU overload!",
        b"Processed ",
        b"Error:",
        b"Missing event data",
        b"Use --itrace",
        b"corrupted callchain",
        b"failed to process sample",
    ];
    if text.starts_with(b"Processed ")
        && LOSSES.iter().any(|words| find_text(text, words).is_some())
    {
        return Some(Message::Loss);
    }
    let is_note = NOTES.iter().any(|start| text.starts_with(start))
        || text.ends_with(b"continuing without symbols");
    is_note.then_some(Message::Note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        let check = |text: &str, expected| assert_eq!(message(text.as_bytes()), expected, "{text}");
        check(
            "Processed 793565 events and lost 6526 chunks!",
            Some(Message::Loss),
        );
        check("Processed 10 samples and lost 3.20%!", Some(Message::Loss));
        check(
            "Failed to open /x, continuing without symbols",
            Some(Message::Note),
        );
        check(
            "[kernel.kallsyms] with build id 9d not found, continuing without symbols",
            Some(Message::Note),
        );
        check("Processed goods", Some(Message::Note));
        check("java 21607 [001] 100.000100:   10101010 cpu-clock: ", None);
    }
}
