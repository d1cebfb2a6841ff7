//! The kinds of payload after a head: an event, a system call, a function, a marker.
//!
//! ```text
//! sched_switch: prev_comm=…       sys_write(fd: 1, …)      sys_write -> 0x2        vfs_read <-ksys_read
//! tracing_mark_write: hello       0: hello                 # 4030201 buf: 72 61    205:120:R + [001] 31:  0:R x
//! ```

use perfquet_events::scan::{find_text, leading_decimal, rfind_text, split_once, trim};

use super::symbol::Symbol;
use crate::payload_text::Style;

/// A payload, by its form.
pub(super) enum Shape<'a> {
    /// `name: payload`
    Event(&'a [u8], &'a [u8]),
    /// `sys_write(…)`, `sys_write -> 0x1`
    Syscall(Style, &'a [u8], &'a [u8]),
    /// `callee <-caller`
    Function {
        callee: &'a [u8],
        args: Option<&'a [u8]>,
        caller: &'a [u8],
    },
    /// A marker: the function that wrote it, and the text.
    Print(&'a [u8], &'a [u8]),
    /// One of ftrace's own entries, which has no name in the text.
    Entry(&'static str),
    /// Anything else.
    Text,
}

/// Functions of the kernel that write markers, over its versions. A compiler may append to their names:
/// `tracing_mark_write.10e87ffbd993ed97`, `.cfi_jt`, `.llvm.16287`.
const MARKER_WRITERS: [&[u8]; 4] = [
    b"tracing_mark_write",
    b"__trace_marker_write",
    b"trace_marker_write",
    b"write_marker_to_buffer",
];

/// Whether a function writes markers.
#[inline]
fn writes_markers(name: &[u8]) -> bool {
    MARKER_WRITERS.iter().any(|writer| {
        name.strip_prefix(*writer)
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'.')))
    })
}

/// Whether a line without a head may be an event.
pub(super) fn is_payload(text: &[u8]) -> bool {
    !matches!(shape(trim(text)), Shape::Text)
}

/// Whether a line without a head is almost certainly not a continuation: it names an event, or a function and its
/// caller.
pub(super) fn is_sure_payload(text: &[u8]) -> bool {
    match shape(trim(text)) {
        Shape::Event(_, payload) => !payload.is_empty(),
        Shape::Function { caller, .. } => !caller.is_empty(),
        Shape::Syscall(..) | Shape::Print(..) | Shape::Entry(_) => true,
        Shape::Text => false,
    }
}

/// Whether a text may continue on the next line, as markers do.
pub(super) fn is_marker(payload: &[u8]) -> bool {
    MARKER_WRITERS
        .iter()
        .chain(&[&b"print:"[..], b"bprint:", b"bputs:", b"0:"])
        .any(|name| payload.starts_with(name))
        // User strings of system calls (`__filename_val=`), in events that trace-cmd cannot decode.
        || (find_text(payload, b"[FAILED TO PARSE]").is_some()
            && find_text(payload, b"_val=").is_some())
}

/// The bytes of names, as a table: each event's name is scanned.
static IS_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let (mut rest, mut byte) = (table.as_mut_slice(), 0u8);
    while let [is_name, others @ ..] = rest {
        *is_name = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
        (rest, byte) = (others, byte.wrapping_add(1));
    }
    table
};

/// Determines the kind of a payload.
#[inline]
pub(super) fn shape(text: &[u8]) -> Shape<'_> {
    let length = text
        .iter()
        .take_while(|&&byte| IS_NAME.get(usize::from(byte)) == Some(&true))
        .count();
    let Some((name, rest)) = text.split_at_checked(length) else {
        return Shape::Text;
    };
    let is_number = name.iter().all(u8::is_ascii_digit);
    match rest.first() {
        Some(b':') if !is_number => {
            let payload = rest.get(1..).unwrap_or_default();
            match payload.first() {
                Some(b' ' | b'\t') | None => event(name, trim(payload)),
                Some(_) => Shape::Text,
            }
        }
        Some(b'(') if !is_number => with_arguments(name, rest, text),
        _ if name.is_empty() || is_number => numbers(text),
        Some(b' ') if rest.starts_with(b" -> ") => Shape::Syscall(
            Style::SyscallExit,
            name,
            trim(rest.get(4..).unwrap_or_default()),
        ),
        None => Shape::Function {
            callee: name,
            args: None,
            caller: b"",
        },
        _ => place(text),
    }
}

/// Some names are those of ftrace's own entries, as trace-cmd prints them.
#[inline]
fn event<'a>(name: &'a [u8], payload: &'a [u8]) -> Shape<'a> {
    match name {
        _ if writes_markers(name) => Shape::Print(name, payload),
        b"print" | b"bprint" | b"bputs" => {
            let (writer, text) = split_once(payload, b": ").unwrap_or((&[], payload));
            Shape::Print(writer, text)
        }
        b"function" if find_text(payload, b"ip=").is_none() => {
            let (callee, caller) = split_once(payload, b" <-- ").unwrap_or((payload, &[]));
            Shape::Function {
                callee,
                args: None,
                caller,
            }
        }
        _ => Shape::Event(name, payload),
    }
}

/// `name(…)`: a system call, or a function with its arguments.
fn with_arguments<'a>(name: &'a [u8], rest: &'a [u8], text: &'a [u8]) -> Shape<'a> {
    if let Some(close) = rfind_text(text, b") <-") {
        return Shape::Function {
            callee: name,
            args: text.get(name.len() + 1..close),
            caller: text.get(close + 4..).unwrap_or_default(),
        };
    }
    if name.starts_with(b"sys_") || name.starts_with(b"compat_sys_") {
        return Shape::Syscall(Style::SyscallEnter, name, trim(rest));
    }
    match rest
        .strip_prefix(b"(")
        .and_then(|rest| rest.strip_suffix(b")"))
    {
        Some(args) => Shape::Function {
            callee: name,
            args: Some(args),
            caller: b"",
        },
        None => Shape::Text,
    }
}

/// `f <-g`, `f+0x4/0x370 <-g+…`, `f <ffffffff81442060> <-g <…>`, `f [module] <-g`; `tracing_mark_write+… <…>: text`
fn place(text: &[u8]) -> Shape<'_> {
    if let Some((callee, caller)) = split_once(text, b" <-") {
        return Shape::Function {
            callee,
            args: None,
            caller,
        };
    }
    if let Some((writer, payload)) = split_once(text, b": ")
        && let name = Symbol::new(writer).name
        && writes_markers(name)
    {
        return Shape::Print(name, payload);
    }
    if is_place(text) {
        return Shape::Function {
            callee: text,
            args: None,
            caller: b"",
        };
    }
    Shape::Text
}

/// Whether the text is a name with an offset, an address or a module, and nothing else.
fn is_place(text: &[u8]) -> bool {
    let symbol = Symbol::new(text);
    !symbol.name.contains(&b' ')
        && (symbol.offset.is_some() || symbol.address.is_some() || !symbol.module.is_empty())
}

/// Parses a payload that begins with a number, `#` or another character that cannot begin a name.
fn numbers(text: &[u8]) -> Shape<'_> {
    let has = |mark: &[u8]| find_text(text, mark).is_some();
    match text.first() {
        Some(b'#') if has(b"inner/outer(us):") => Shape::Entry("hwlat"),
        Some(b'#') if has(b" timer_latency ") => Shape::Entry("timerlat"),
        Some(b'#') if has(b" buf: ") => Shape::Entry("raw_data"),
        Some(b'0'..=b'9') => {
            let Some((_, rest)) = leading_decimal(text) else {
                return Shape::Text;
            };
            match rest.first() {
                None => Shape::Function {
                    callee: text,
                    args: None,
                    caller: b"",
                },
                Some(b':') if rest.starts_with(b": ") => {
                    Shape::Print(b"", trim(rest.get(2..).unwrap_or_default()))
                }
                Some(b':') if has(b" ==> [") => Shape::Entry("context_switch"),
                Some(b':') if has(b" + [") => Shape::Entry("wakeup"),
                Some(b',') => Shape::Entry("blk"),
                Some(b' ') if is_osnoise(text) => Shape::Entry("osnoise"),
                _ => Shape::Text,
            }
        }
        Some(b'[') if find_text(text, b" <-").is_some() => place(text),
        _ => Shape::Text,
    }
}

/// Nine numbers, the third with a point.
fn is_osnoise(text: &[u8]) -> bool {
    let mut words = text
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty());
    let are_numbers = words
        .by_ref()
        .take(9)
        .filter(|word| {
            word.iter()
                .all(|byte| byte.is_ascii_digit() || *byte == b'.')
        })
        .count();
    are_numbers == 9 && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match shape(text.as_bytes()) {
            Shape::Event(name, payload) => format!("event {}|{}", show(name), show(payload)),
            Shape::Syscall(style, name, payload) => {
                format!("{style:?} {}|{}", show(name), show(payload))
            }
            Shape::Function {
                callee,
                args,
                caller,
            } => {
                format!(
                    "call {}|{:?}|{}",
                    show(callee),
                    args.map(show),
                    show(caller)
                )
            }
            Shape::Print(writer, text) => format!("print {}|{}", show(writer), show(text)),
            Shape::Entry(name) => format!("entry {name}"),
            Shape::Text => "text".into(),
        }
    }

    #[test]
    fn shapes() {
        let check = |text: &str, expected: &str| assert_eq!(name(text), expected);
        check("sched_switch: a=1", "event sched_switch|a=1");
        check("sched_switch:          a=1", "event sched_switch|a=1");
        check("empty:", "event empty|");
        check("sys_write(fd: 1)", "SyscallEnter sys_write|(fd: 1)");
        check("sys_write -> 0x2", "SyscallExit sys_write|0x2");
        check("vfs_read <-ksys_read", "call vfs_read|None|ksys_read");
        check("f(a=1, b=(2)) <-g", "call f|Some(\"a=1, b=(2)\")|g");
        check("schedule", "call schedule|None|");
        check("schedule()", "call schedule|Some(\"\")|");
        check(
            "f+0x4/0x9 <ffff> <-g+0x1/0x2 <eeee>",
            "call f+0x4/0x9 <ffff>|None|g+0x1/0x2 <eeee>",
        );
        check("f [ext4] <-g", "call f [ext4]|None|g");
        check(
            "function:             vfs_read <-- ksys_read",
            "call vfs_read|None|ksys_read",
        );
        check("tracing_mark_write: a: b", "print tracing_mark_write|a: b");
        check(
            "tracing_mark_write.10e87ffb: B|1|x",
            "print tracing_mark_write.10e87ffb|B|1|x",
        );
        check(
            "tracing_mark_write.llvm.16287: E|1",
            "print tracing_mark_write.llvm.16287|E|1",
        );
        check(
            "__trace_marker_write: B|1|x",
            "print __trace_marker_write|B|1|x",
        );
        check(
            "tracing_mark_written: a=1",
            "event tracing_mark_written|a=1",
        );
        check(
            "tracing_mark_write+0x8a/0x170 <ffffffff8149ab1a>: a: b",
            "print tracing_mark_write|a: b",
        );
        check("print:                f: a: b", "print f|a: b");
        check("0: hello", "print |hello");
        check("0", "call 0|None|");
        check(
            "#1     inner/outer(us):  210/4149  ts:1.5 count:24",
            "entry hwlat",
        );
        check(
            "#1     context    irq timer_latency    351613 ns",
            "entry timerlat",
        );
        check("# 4030201 buf: 72 61", "entry raw_data");
        check(
            "   205:120:R   + [001]      31:  0:R a".trim(),
            "entry wakeup",
        );
        check(
            "205:120:R ==> [001]      31:  0:R a",
            "entry context_switch",
        );
        check("254,0    Q  WS 0 + 8 [dd]", "entry blk");
        check(
            "12380       9222  25.50888    4757      9      0      2      0      3",
            "entry osnoise",
        );
        check("some words", "text");
        check("", "text");
    }
}
