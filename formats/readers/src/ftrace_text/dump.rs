//! Dumps of the trace buffer in the kernel log: after an oops or a panic (`ftrace_dump_on_oops`), or requested by
//! SysRq-z. Finds the dump in the log, and the trace in each of its lines.
//!
//! ```text
//! [    4.448775] Dumping ftrace buffer:
//! [    4.449175] ---------------------------------
//! [    4.450645]   <idle>-0         1d..2. 4717288us : sched_switch: prev_comm=swapper/1 …
//! [    4.486832] ---------------------------------
//! ```
//! Format: `ftrace_dump` in `kernel/trace/trace.c`; events use latency-format.

use perfquet_events::scan::{find_text, trim};

use crate::console::without_prefix;
use crate::lines::Lines;

const BEGIN: &[u8] = b"Dumping ftrace buffer:";
const EMPTY: &[u8] = b"(ftrace buffer empty)";
/// Log lines required to recognize a log whose dump comes later.
const LOG_LINES: usize = 5;

/// The reader's position in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dump {
    /// The input is not a log: all lines belong to the trace.
    None,
    /// Other kernel messages.
    Outside,
    /// A dump was announced.
    Begun,
    /// Between the rulers.
    Inside,
}

impl Dump {
    /// Consumes the next line. Returns the part that belongs to the trace, or `None`.
    #[inline]
    pub(super) fn line<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Dump::None => Some(line),
            _ => self.line_of_log(line),
        }
    }

    fn line_of_log<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let text = without_prefix(line);
        let is_ruler = is_ruler(text);
        match self {
            Dump::None => return Some(line),
            // Several CPUs may dump one after another.
            _ if trim(text) == BEGIN => *self = Dump::Begun,
            Dump::Begun if is_ruler => *self = Dump::Inside,
            Dump::Inside if is_ruler || trim(text) == EMPTY => *self = Dump::Outside,
            Dump::Inside => return Some(text),
            Dump::Outside | Dump::Begun => {}
        }
        None
    }
}

/// Offset of the line that announces a dump, if the text is a log.
pub(super) fn announced(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(rest) = text.get(from..)
        && let Some(at) = find_text(rest, BEGIN)
    {
        let (before, after) = rest.split_at_checked(at)?;
        let start = before.iter().rposition(|&byte| byte == b'\n');
        let start = start.map_or(0, |end_of_former| end_of_former + 1);
        let prefix = before.get(start..).unwrap_or_default();
        if trim(without_prefix(prefix)).is_empty() {
            return Some(from + start);
        }
        // The announcement must begin the message: skip the rest of this line.
        from += at + after.iter().position(|&byte| byte == b'\n')? + 1;
    }
    None
}

/// Whether the text looks like a kernel log; a dump may come later.
pub(super) fn is_log(head: &[u8]) -> bool {
    let mut lines = Lines::of(head).filter(|line| !line.text.is_empty());
    let stamped = |text: &[u8]| {
        let rest = text.strip_prefix(b"<").and_then(|text| {
            let close = text.iter().position(|&byte| byte == b'>')?;
            text.get(close + 1..)
        });
        rest.unwrap_or(text).starts_with(b"[") && without_prefix(text).len() < text.len()
    };
    let first: Vec<_> = lines.by_ref().take(LOG_LINES).collect();
    first.len() == LOG_LINES && first.iter().all(|line| stamped(line.text))
}

fn is_ruler(text: &[u8]) -> bool {
    let text = trim(text);
    text.len() >= 20 && text.iter().all(|&byte| byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
[    4.447508] sysrq: Dump ftrace buffer
[    4.448775] Dumping ftrace buffer:
[    4.449175] ---------------------------------
[    4.450645]   <idle>-0         1d..2. 4717288us : x: y=1
[    4.450645]  => f
[    4.486832] ---------------------------------
[    4.5] more";

    #[test]
    fn the_trace_is_between_the_rulers() {
        let mut dump = Dump::Outside;
        let lines: Vec<_> = LOG
            .lines()
            .filter_map(|line| dump.line(line.as_bytes()))
            .map(String::from_utf8_lossy)
            .collect();
        assert_eq!(
            lines,
            ["  <idle>-0         1d..2. 4717288us : x: y=1", " => f"]
        );
    }

    #[test]
    fn logs() {
        assert!(is_log(LOG.as_bytes()));
        assert_eq!(announced(LOG.as_bytes()), LOG.find("[    4.448775]"));
        assert_eq!(announced(b"<0>Dumping ftrace buffer:\n"), Some(0));
        let marker =
            " dd-1 [000] 1.5: tracing_mark_write: Dumping ftrace buffer: Dumping ftrace buffer:\n";
        assert_eq!(announced(marker.as_bytes()), None);
        let both = marker.to_owned() + LOG;
        let expected = both.find("[    4.448775]");
        assert_eq!(announced(both.as_bytes()), expected);
        assert!(!is_log(b"# tracer: nop\n"));
        assert!(!is_log(b"dd-1 [000] 1.5: x\n".repeat(6).as_slice()));
    }
}
