//! Parses the text of `trace-cmd report`, and prints its parts.
//!
//! ```text
//! sched:        trace-cmd-324   [000]    47.802541: sched_switch:         trace-cmd:324 [120] S ==> swapper/0:0 [120]
//!                      dd-213   [001]    13.822733: kernel_stack:         <stack trace >
//! => vfs_write (ffffffff81445d59)
//! CPU:1 [113 EVENTS DROPPED]
//! ```

use std::fmt::Write as _;

/// An event in trace-cmd's layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    /// As printed: "5.608275", "44120943660".
    pub(crate) time: String,
    pub(crate) cpu: Option<u32>,
    pub(crate) tid: i32,
    pub(crate) comm: String,
    pub(crate) event: String,
    pub(crate) payload: String,
    /// Addresses of the following stack.
    pub(crate) kernel_stack: Vec<u64>,
    pub(crate) user_stack: Vec<u64>,
    /// "[113 EVENTS DROPPED]" before it.
    pub(crate) dropped: Option<String>,
}

pub(crate) fn retval(value: Option<i64>) -> String {
    match value {
        None => String::new(),
        Some(value @ -4095..=-1) => format!(" (ret={value})"),
        Some(value) => format!(" (ret=0x{value:x})"),
    }
}

/// plugin_sched_switch.c of libtraceevent 1.7.1: letters of an older kernel.
pub(crate) fn state_letters(state: i64) -> String {
    let letters = "SDTtZXxW";
    let set = letters.chars().enumerate();
    let set = set.filter(|(bit, _)| state >> bit & 1 == 1);
    let text: Vec<String> = set.map(|(_, letter)| letter.to_string()).collect();
    match text.is_empty() {
        true => "R".into(),
        false => text.join("|"),
    }
}

/// trace-ftrace.c, print_graph_overhead and print_graph_duration.
pub(crate) fn duration(nanoseconds: i64) -> String {
    let overhead = match nanoseconds {
        1_000_000_001.. => "$ ",
        1_000_001.. => "# ",
        100_001.. => "! ",
        10_001.. => "+ ",
        _ => "  ",
    };
    let mut text = (nanoseconds / 1000).to_string();
    if text.len() < 7 {
        let digits = format!("{:03}", nanoseconds % 1000);
        let room = 7usize.saturating_sub(text.len()).min(3);
        let _ = write!(text, ".{}", &digits[..room.min(digits.len())]);
    }
    let blanks = " ".repeat(7usize.saturating_sub(text.len()));
    format!("{overhead}{text} us {blanks}")
}

pub(crate) fn seconds(nanoseconds: i64, all: bool) -> String {
    let (whole, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    if all {
        return format!("{whole}.{rest:09}");
    }
    match (rest + 500) / 1000 {
        1_000_000 => format!("{}.000000", whole + 1),
        micros => format!("{whole}.{micros:06}"),
    }
}

/// Parses a report; stacks go to the preceding event.
pub(crate) fn report(text: &str, instances: &[String]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut dropped = None;
    // The owner of the following frames: line and stack.
    let mut stack: Option<(usize, &str)> = None;
    for text in text.lines() {
        if text.starts_with("cpus=") {
            continue;
        }
        if text.ends_with("EVENTS DROPPED]") {
            let start = text.find("CPU:").unwrap_or(0);
            dropped = Some(text[start..].to_owned());
            continue;
        }
        if let Some(mut line) = event_line(text, instances) {
            let kind = match line.event.as_str() {
                "kernel_stack" => "kernel",
                "user_stack" => "user",
                _ => {
                    stack = None;
                    line.dropped = dropped.take();
                    lines.push(line);
                    continue;
                }
            };
            let before = lines.iter().rposition(|before| before.cpu == line.cpu);
            let before = before.expect("a stack belongs to an event before it on its CPU");
            assert_eq!(lines[before].tid, line.tid);
            stack = Some((before, kind));
            if let Some(address) = frame(&line.payload) {
                stack_of(&mut lines[before], kind).push(address);
            }
            continue;
        }
        match (stack, frame(text)) {
            (None, _) => {
                let last = lines.last_mut().expect("a line follows an event");
                last.payload.push('\n');
                last.payload.push_str(text);
            }
            (Some((line, kind)), Some(address)) => stack_of(&mut lines[line], kind).push(address),
            (_, None) => assert!(text.trim().is_empty(), "{text:?}"),
        }
    }
    for line in &mut lines {
        line.user_stack.retain(|&address| address != 0);
    }
    lines
}

fn stack_of<'l>(line: &'l mut Line, kind: &str) -> &'l mut Vec<u64> {
    match kind {
        "kernel" => &mut line.kernel_stack,
        _ => &mut line.user_stack,
    }
}

/// `=> vfs_write (ffffffff81445d59)`, `=> 7fffffff`, `=> 0x7fa0bc9e9350`
fn frame(text: &str) -> Option<u64> {
    let text = text.trim().strip_prefix("=> ")?;
    let digits = match text.rsplit_once('(') {
        Some((_, address)) => address.trim_end_matches(')'),
        None => text.trim_start_matches("0x"),
    };
    u64::from_str_radix(digits, 16).ok()
}

/// `[buffer:] comm-tid [cpu] time: event: payload`
fn event_line(text: &str, instances: &[String]) -> Option<Line> {
    let mut start = 0;
    let (open, close) = loop {
        let open = start + text[start..].find('[')?;
        let close = open + text[open..].find(']')?;
        let digits = &text[open + 1..close];
        if digits.len() >= 3 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            break (open, close);
        }
        start = open + 1;
    };
    let mut head = text[..open].trim();
    for instance in instances {
        if let Some(rest) = head.strip_prefix(&format!("{instance}:")) {
            head = rest.trim();
            break;
        }
    }
    let (comm, tid) = head.rsplit_once('-')?;
    let (time, rest) = text[close + 1..].trim_start().split_once(':')?;
    if !time
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        return None;
    }
    let (event, payload) = rest.trim_start().split_once(':')?;
    Some(Line {
        time: time.to_owned(),
        cpu: text[open + 1..close].parse().ok(),
        tid: tid.parse().ok()?,
        comm: comm.trim().to_owned(),
        event: event.to_owned(),
        payload: payload.trim().to_owned(),
        ..Line::default()
    })
}

#[test]
fn reports_are_split_into_parts() {
    let text = "cpus=2\n\
        \u{20} sched:  my-task x-18    [001]    47.804526: sched_switch:         a:18 [120] W ==> dd:325 [120]\n\
        CPU:1 [113 EVENTS DROPPED]\n\
        \u{20}             dd-213   [001]    13.822724: function:             vfs_write\n\
        \u{20}             dd-213   [001]    13.822733: kernel_stack:         <stack trace >\n\
        => 7fffffff\n\
        => vfs_write (ffffffff81445d59)\n";
    let lines = report(text, &["sched".to_owned()]);
    assert_eq!(lines.len(), 2);
    assert_eq!((lines[0].comm.as_str(), lines[0].tid), ("my-task x", 18));
    assert_eq!(lines[0].payload, "a:18 [120] W ==> dd:325 [120]");
    assert_eq!(
        lines[1].dropped.as_deref(),
        Some("CPU:1 [113 EVENTS DROPPED]")
    );
    assert_eq!(lines[1].kernel_stack, [0x7fff_ffff, 0xffff_ffff_8144_5d59]);
    assert_eq!(seconds(1_999_999_600, false), "2.000000");
    assert_eq!(duration(69_976), "+ 69.976 us  ");
    assert_eq!(duration(1_426), "  1.426 us   ");
}
