//! Lines that describe the recording: those that begin with `#`, and those that trace-cmd prints before the events.
//!
//! ```text
//! # tracer: wakeup
//! # entries-in-buffer/entries-written: 92/938   #P:2
//! # wakeup latency trace v1.1.5 on 6.12.117+deb12-rt-amd64
//! # latency: 6303 us, #6/6, CPU#1 | (M:preempt_rt VP:0, KP:0, SP:0 HP:0 #P:2)
//! #    | task: migration/1-31 (uid:0 nice:0 policy:1 rt_prio:99)
//! #  => started at: ata_scsi_queuecmd
//! cpus=2
//! ```
//! The drawings of the columns are ignored, except that they identify a graph.

use perfquet_events::scan::{
    decimal, find_text, leading_decimal, rsplit_once, split_once, trim, trim_start,
};

/// A parsed header line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderLine<'a> {
    /// `# tracer: nop`
    Tracer(&'a [u8]),
    /// Entries in the buffer, entries ever written to it, CPUs.
    Entries {
        in_buffer: u64,
        written: u64,
        cpus: Option<u32>,
    },
    /// `uname -r`
    Release(&'a [u8]),
    /// Latency in microseconds, number of entries printed, total number of entries.
    Latency {
        microseconds: u64,
        printed: u64,
        all: u64,
        cpus: Option<u32>,
    },
    /// Any other fact, by its name.
    Named(&'static str, &'a [u8]),
    /// `# event histogram`
    Histogram,
    /// `# trigger info: hist:keys=…`
    Trigger(&'a [u8]),
    /// The column heads of a graph.
    Graph,
    /// `cpus=2`
    Cpus(u32),
    /// A line without information.
    Other,
}

/// Parses a line that begins with `#`.
pub(super) fn line(line: &[u8]) -> HeaderLine<'_> {
    let text = trim(line.strip_prefix(b"#").unwrap_or(line));
    tracer(text)
        .or_else(|| entries(text))
        .or_else(|| latency(text))
        .or_else(|| named(text))
        .unwrap_or(HeaderLine::Other)
}

fn tracer(text: &[u8]) -> Option<HeaderLine<'_>> {
    if let Some(name) = text.strip_prefix(b"tracer: ") {
        return Some(HeaderLine::Tracer(trim(name)));
    }
    if text == b"event histogram" {
        return Some(HeaderLine::Histogram);
    }
    if let Some(trigger) = text.strip_prefix(b"trigger info: ") {
        return Some(HeaderLine::Trigger(trim(trigger)));
    }
    find_text(text, b"FUNCTION CALLS").map(|_| HeaderLine::Graph)
}

fn entries(text: &[u8]) -> Option<HeaderLine<'_>> {
    let rest = text.strip_prefix(b"entries-in-buffer/entries-written:")?;
    let (in_buffer, rest) = leading_decimal(trim_start(rest))?;
    let (written, rest) = leading_decimal(rest.strip_prefix(b"/")?)?;
    Some(HeaderLine::Entries {
        in_buffer,
        written,
        cpus: cpus(rest),
    })
}

fn cpus(text: &[u8]) -> Option<u32> {
    let (_, rest) = split_once(text, b"#P:")?;
    leading_decimal(rest)?.0.try_into().ok()
}

fn latency(text: &[u8]) -> Option<HeaderLine<'_>> {
    if let Some((_, release)) = split_once(text, b" latency trace v") {
        return Some(HeaderLine::Release(rsplit_once(release, b" on ")?.1));
    }
    let rest = text.strip_prefix(b"latency: ")?;
    let (microseconds, rest) = leading_decimal(rest)?;
    let (printed, rest) = leading_decimal(split_once(rest, b"#")?.1)?;
    let (all, rest) = leading_decimal(rest.strip_prefix(b"/")?)?;
    Some(HeaderLine::Latency {
        microseconds,
        printed,
        all,
        cpus: cpus(rest),
    })
}

fn named(text: &[u8]) -> Option<HeaderLine<'_>> {
    const NAMES: [(&[u8], &str); 4] = [
        (b"| task: ", "ftrace.latency_task"),
        (b"=> started at: ", "ftrace.started_at"),
        (b"=> ended at: ", "ftrace.ended_at"),
        (b"enabled events: ", "ftrace.enabled_events"),
    ];
    NAMES.iter().find_map(|(prefix, name)| {
        let value = text.strip_prefix(*prefix)?;
        Some(HeaderLine::Named(name, trim(value)))
    })
}

/// Parses a line that is not an event, printed by trace-cmd or by a script that copied the kernel's file.
pub(super) fn of_tool(line: &[u8]) -> Option<HeaderLine<'_>> {
    let text = trim(line);
    if let Some(count) = text.strip_prefix(b"cpus=") {
        return Some(HeaderLine::Cpus(decimal(count)?.try_into().ok()?));
    }
    if let Some(version) = text.strip_prefix(b"version = ") {
        return Some(HeaderLine::Named("trace_cmd.version", version));
    }
    let is_empty_cpu = text.starts_with(b"CPU ") && text.ends_with(b" is empty");
    let is_notice = [
        &b"trace-cmd: "[..],
        b"[vmlinux]",
        b"TRACE:",
        b"capturing trace...",
        b"Tracing ",
        b"Ending tracing",
        b"buffer=",
        // trace-cmd report -w, after the events.
        b"Average wakeup latency: ",
        b"Maximum Latency: ",
        b"Minimum Latency: ",
        b"RT task timings:",
    ]
    .iter()
    .any(|notice| text.starts_with(notice));
    let is_ruler = text.len() >= 20 && text.iter().all(|&byte| byte == b'-');
    let is_other = matches!(text, b"[...]" | b"..." | b"^C");
    (is_empty_cpu || is_notice || is_ruler || is_other).then_some(HeaderLine::Other)
}

/// `CPU:1 [LOST 592 EVENTS]`, `CPU:1 [LOST EVENTS]`, `CPU:1 [113 EVENTS DROPPED]`: the CPU and the number of events.
pub(super) fn loss(line: &[u8]) -> Option<(Option<u32>, Option<u64>)> {
    let rest = trim(line).strip_prefix(b"CPU")?;
    let rest = trim_start(rest.strip_prefix(b":").unwrap_or(rest));
    let (cpu, rest) = leading_decimal(rest)?;
    let inner = trim(rest).strip_prefix(b"[")?.strip_suffix(b"]")?;
    let count = match inner {
        b"LOST EVENTS" | b"EVENTS DROPPED" => None,
        _ => {
            let count = inner
                .strip_prefix(b"LOST ")
                .and_then(|rest| rest.strip_suffix(b" EVENTS"))
                .or_else(|| inner.strip_suffix(b" EVENTS DROPPED"))?;
            Some(decimal(count)?)
        }
    };
    Some((cpu.try_into().ok(), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(line(b"# tracer: nop"), HeaderLine::Tracer(b"nop"));
        assert_eq!(
            line(b"# entries-in-buffer/entries-written: 92/938   #P:2"),
            HeaderLine::Entries {
                in_buffer: 92,
                written: 938,
                cpus: Some(2)
            }
        );
        assert_eq!(
            line(b"# latency: 6303 us, #6/7, CPU#1 | (M:preempt_rt VP:0, KP:0, SP:0 HP:0 #P:2)"),
            HeaderLine::Latency {
                microseconds: 6303,
                printed: 6,
                all: 7,
                cpus: Some(2)
            }
        );
        assert_eq!(
            line(b"# wakeup latency trace v1.1.5 on 3.8.0-test+"),
            HeaderLine::Release(b"3.8.0-test+")
        );
        assert_eq!(
            line(b"#    | task: a b-31 (uid:0 nice:0)"),
            HeaderLine::Named("ftrace.latency_task", b"a b-31 (uid:0 nice:0)")
        );
        assert_eq!(
            line(b"# CPU  DURATION                  FUNCTION CALLS"),
            HeaderLine::Graph
        );
        assert_eq!(line(b"#"), HeaderLine::Other);
        assert_eq!(of_tool(b"cpus=2"), Some(HeaderLine::Cpus(2)));
        assert_eq!(of_tool(b"CPU 3 is empty"), Some(HeaderLine::Other));
        assert_eq!(
            of_tool(b" ------------------------------------------"),
            Some(HeaderLine::Other)
        );
        assert_eq!(of_tool(b"dd-1"), None);
    }

    #[test]
    fn losses() {
        assert_eq!(loss(b"CPU:1 [LOST 592 EVENTS]"), Some((Some(1), Some(592))));
        assert_eq!(loss(b"CPU:1 [LOST EVENTS]"), Some((Some(1), None)));
        assert_eq!(
            loss(b"CPU:1 [113 EVENTS DROPPED]"),
            Some((Some(1), Some(113)))
        );
        assert_eq!(loss(b"CPU 1 [EVENTS DROPPED]"), Some((Some(1), None)));
        assert_eq!(loss(b"CPU 3 is empty"), None);
        assert_eq!(loss(b"CPU:1 [SOME EVENTS]"), None);
    }
}
