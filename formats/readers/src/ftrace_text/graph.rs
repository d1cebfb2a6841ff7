//! Lines of the function_graph tracer, with all its options.
//!
//! ```text
//!    60.518789 |   0)     dd-358     |  ...1. | + 19.124 us   |      } /* rw_verify_area ret=0x0 */
//!    time          cpu    task          flags    duration        function, indented by two spaces per level
//!  0)   ==========> |                                            an interrupt begins on this CPU
//!  1)   script-142   =>    cat-359                               another thread runs on this CPU
//! ```
//! Each column is present only with its option. Times and flags apply to the line; the duration of a leaf and of a `}`
//! applies to the call. The marks before a duration only classify it, and are dropped.

use perfquet_events::event::time_of;
use perfquet_events::scan::{
    decimal, find, leading_decimal, prefixed_hex, rsplit_once, seconds, signed, split_once, trim,
    trim_start,
};

use super::head::{Head, known_comm};
use super::symbol::Symbol;

/// A line of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GraphLine<'a> {
    /// The entry or the exit of a function, or a comment.
    Function {
        head: Head<'a>,
        duration: Option<i64>,
        depth: u32,
        text: &'a [u8],
    },
    /// `==========>`, `<==========`
    Interrupt { cpu: Option<u32>, begins: bool },
    /// `comm-tid  =>  comm-tid`
    Switch {
        cpu: u32,
        previous: Task<'a>,
        next: Task<'a>,
    },
}

/// A TID and its comm, which the kernel cuts to seven bytes.
pub(super) type Task<'a> = (i32, Option<&'a [u8]>);

/// Parses a line. `is_sure`: the file is known to be a graph, so a line may lack all columns but the last.
#[inline]
pub(super) fn line(line: &[u8], is_sure: bool) -> Option<GraphLine<'_>> {
    let mut head = Head::default();
    let mut rest = line;
    let mut has_columns = is_sure;
    if let Some(after) = time_column(rest, &mut head) {
        rest = after;
        has_columns = true;
    }
    if let Some((cpu, after)) = cpu_column(rest) {
        head.cpu = Some(cpu);
        rest = after;
        has_columns = true;
        if find(rest, b'|').is_none()
            && let Some(switch) = switch(cpu, rest)
        {
            return Some(switch);
        }
    }
    let mut duration = None;
    // Blanks before the last column's text that are not part of its indentation.
    let mut margin = 0;
    while let Some((segment, after)) = column(rest) {
        let text = trim(segment);
        if text.is_empty() {
            (rest, margin) = (after, 2);
            has_columns = true;
            break;
        }
        if let Some(begins) = arrow(text) {
            let cpu = head.cpu;
            return Some(GraphLine::Interrupt { cpu, begins });
        }
        if let Some(time) = self::duration(text) {
            duration = Some(time);
            (rest, margin) = (after, 2);
            has_columns = true;
            break;
        }
        if is_flags(text) {
            head.flags = text;
        } else if let Some((tid, comm)) = task(text) {
            head.tid = Some(tid);
            head.comm = comm;
        } else {
            break;
        }
        (rest, margin) = (after, 1);
    }
    let text = trim_start(rest);
    if !has_columns || !is_content(text) {
        return None;
    }
    let indent = (rest.len() - text.len()).saturating_sub(margin);
    Some(GraphLine::Function {
        head,
        duration,
        depth: u32::try_from(indent / 2).unwrap_or(u32::MAX),
        text,
    })
}

/// `+ 80.258 us   |  }`, as printed by trace-cmd after an event's name: duration, depth and the rest.
pub(super) fn trace_cmd(text: &[u8]) -> Option<(Option<i64>, u32, &[u8])> {
    let (segment, rest) = column(text)?;
    let segment = trim(segment);
    let duration = match segment {
        b"" => None,
        text => Some(duration(text)?),
    };
    let content = trim_start(rest);
    if !is_content(content) {
        return None;
    }
    let indent = (rest.len() - content.len()).saturating_sub(2);
    Some((duration, u32::try_from(indent / 2).ok()?, content))
}

/// Whether a text may be in the last column.
fn is_content(text: &[u8]) -> bool {
    match text.first() {
        Some(b'}') => true,
        Some(b'/') => text.starts_with(b"/*"),
        // `f();`, `f() {`, `f(); /* … */`
        Some(_) => matches!(text.last(), Some(b';' | b'{' | b'/')) && find(text, b'(').is_some(),
        None => false,
    }
}

/// Splits at the next bar.
#[inline]
fn column(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let bar = find(text, b'|')?;
    Some((text.get(..bar)?, text.get(bar + 1..)?))
}

/// `   15.674328 |`, or `        7 us |` before a CPU.
#[inline]
fn time_column<'a>(text: &'a [u8], head: &mut Head<'a>) -> Option<&'a [u8]> {
    let (digits, after) = leading_decimal(trim_start(text))?;
    if !matches!(after.first(), Some(b'.' | b' ')) {
        return None;
    }
    let (segment, rest) = column(text)?;
    let segment = trim(segment);
    if let Some(time) = seconds(segment) {
        head.time = Some(time);
        return Some(rest);
    }
    let microseconds = segment.strip_suffix(b" us")?;
    cpu_column(rest)?;
    decimal(microseconds)?;
    head.time = Some(time_of(digits.saturating_mul(1000)));
    head.is_relative = true;
    Some(rest)
}

/// ` 0) `
#[inline]
fn cpu_column(text: &[u8]) -> Option<(u32, &[u8])> {
    let (cpu, rest) = leading_decimal(trim_start(text))?;
    let rest = rest.strip_prefix(b")")?;
    let rest = rest
        .strip_prefix(b" ")
        .or(rest.is_empty().then_some(rest))?;
    Some((cpu.try_into().ok()?, rest))
}

fn switch(cpu: u32, text: &[u8]) -> Option<GraphLine<'_>> {
    let (previous, next) = split_once(text, b"=>")?;
    Some(GraphLine::Switch {
        cpu,
        previous: task(trim(previous))?,
        next: task(trim(next))?,
    })
}

/// `comm-tid`
fn task(text: &[u8]) -> Option<Task<'_>> {
    // Part of a function's text, not a comm.
    if text.iter().any(|byte| matches!(byte, b'{' | b'}' | b';')) {
        return None;
    }
    // Only init has TID 1, so `--1` is -1: a CPU whose thread is unknown.
    if let Some(comm) = text.strip_suffix(b"--1") {
        return Some((-1, known_comm(comm)));
    }
    let (comm, tid) = rsplit_once(text, b"-")?;
    let tid = signed(tid).filter(|_| tid.len() <= 10)?.try_into().ok()?;
    Some((tid, known_comm(comm)))
}

fn arrow(text: &[u8]) -> Option<bool> {
    match text {
        b"==========>" => Some(true),
        b"<==========" => Some(false),
        _ => None,
    }
}

/// `...1.`, `dNh6.`
fn is_flags(text: &[u8]) -> bool {
    (3..=9).contains(&text.len())
        && text
            .iter()
            .all(|byte| b".dDbXNnpPlLBhHsSzZ0123456789acef#".contains(byte))
        && text.iter().any(|byte| !byte.is_ascii_digit())
}

/// `+ 19.124 us`, `119760.2 us`
#[inline]
fn duration(text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b" us")?;
    let digits = match digits {
        [b'+' | b'!' | b'#' | b'*' | b'@' | b'$', rest @ ..] => trim_start(rest),
        _ => digits,
    };
    let (whole, rest) = leading_decimal(digits)?;
    let fraction = match rest {
        [] => 0,
        [b'.', fraction @ ..] if (1..=3).contains(&fraction.len()) => {
            decimal(fraction)? * 10u64.pow(3 - fraction.len() as u32)
        }
        _ => return None,
    };
    i64::try_from(whole.checked_mul(1000)?.checked_add(fraction)?).ok()
}

/// The content of the last column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// `func(args) { /* <-caller */`, or `func(args); /* <-caller ret=0 */`
    Call {
        symbol: Symbol<'a>,
        /// Between the parentheses.
        args: &'a [u8],
        is_leaf: bool,
        tail: Tail<'a>,
    },
    /// `} /* func ret=0 */`
    End(Tail<'a>),
    /// `/* text */`
    Comment(&'a [u8]),
}

/// The comment after a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tail<'a> {
    pub(super) function: Option<Symbol<'a>>,
    pub(super) caller: Option<Symbol<'a>>,
    pub(super) retval: Option<i64>,
}

/// Parses the last column.
#[inline]
pub(super) fn content(text: &[u8]) -> Option<Content<'_>> {
    if let Some(comment) = text.strip_prefix(b"/*") {
        return Some(Content::Comment(uncommented(comment)));
    }
    if let Some(rest) = text.strip_prefix(b"}") {
        return Some(Content::End(tail(rest)?));
    }
    let open = find(text, b'(')?;
    let symbol = Symbol::new(text.get(..open)?);
    let inner = text.get(open + 1..)?;
    let close = closing(inner)?;
    let args = inner.get(..close)?;
    let rest = inner.get(close + 1..)?;
    let (is_leaf, rest) = match rest {
        [b';', rest @ ..] => (true, rest),
        _ => (false, trim_start(rest).strip_prefix(b"{")?),
    };
    Some(Content::Call {
        symbol,
        args,
        is_leaf,
        tail: tail(rest)?,
    })
}

fn uncommented(text: &[u8]) -> &[u8] {
    let text = trim(text);
    trim(text.strip_suffix(b"*/").unwrap_or(text))
}

/// Position of the parenthesis that closes the one opened before `text`.
fn closing(text: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    for (place, byte) in text.iter().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => return Some(place),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// ` /* <-caller+0x24/0x120 ret=0x0 */`, ` /* func */`, ` /* func() ret=-22 */`, ` (ret=0x0)`
fn tail(text: &[u8]) -> Option<Tail<'_>> {
    let text = trim(text);
    let mut tail = Tail::default();
    if text.is_empty() {
        return Some(tail);
    }
    for word in uncommented(text.strip_prefix(b"/*")?).split(|&byte| byte == b' ') {
        let word = word.strip_prefix(b"(").unwrap_or(word);
        let value = word
            .strip_prefix(b"ret=")
            .or_else(|| word.strip_prefix(b"="));
        if let Some(caller) = word.strip_prefix(b"<-") {
            tail.caller = Some(Symbol::new(caller));
        } else if let Some(value) = value {
            tail.retval = tail.retval.or(retval(value));
        } else if tail.function.is_none() && !word.is_empty() {
            // `= 0x0` of the first kernels with return values: the number is a separate word.
            match retval(word) {
                Some(value) => tail.retval = Some(value),
                None => {
                    let name = word.strip_suffix(b"()").unwrap_or(word);
                    tail.function = Some(Symbol::new(name));
                }
            }
        }
    }
    Some(tail)
}

fn retval(text: &[u8]) -> Option<i64> {
    let text = text.strip_suffix(b")").unwrap_or(text);
    prefixed_hex(text)
        .map(u64::cast_signed)
        .or_else(|| signed(text))
}

/// Splits `fd=0x1, buf=0x7f, flags=1 [A, B]` at the commas outside brackets.
pub(super) fn arguments<'a>(text: &'a [u8], found: &mut Vec<&'a [u8]>) {
    found.clear();
    let (mut start, mut depth, mut in_quotes) = (0, 0i32, false);
    for (place, byte) in text.iter().enumerate() {
        match byte {
            b'"' => in_quotes = !in_quotes,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth <= 0 && !in_quotes => {
                found.push(trim(text.get(start..place).unwrap_or_default()));
                start = place + 1;
            }
            _ => {}
        }
    }
    let last = trim(text.get(start..).unwrap_or_default());
    if !last.is_empty() {
        found.push(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[track_caller]
    fn check(text: &'static str, is_sure: bool, expected: Option<&str>) {
        let found = line(text.as_bytes(), is_sure).map(|line| match line {
            GraphLine::Function {
                head,
                duration,
                depth,
                text,
            } => format!(
                "{:?} {:?} {:?} {:?} {} {:?} {depth} {}",
                head.time,
                head.cpu,
                head.tid,
                head.comm.map(show),
                show(head.flags),
                duration,
                show(text)
            ),
            GraphLine::Interrupt { cpu, begins } => format!("{cpu:?} interrupt {begins}"),
            GraphLine::Switch {
                cpu,
                previous,
                next,
            } => {
                format!("{cpu} {} => {}", previous.0, next.0)
            }
        });
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn columns() {
        check(
            " 0)   1.510 us    |    f();",
            false,
            Some("None Some(0) None None  Some(1510) 1 f();"),
        );
        check(
            " 0)               |  f() {",
            false,
            Some("None Some(0) None None  None 0 f() {"),
        );
        check(
            "   60.518789 |   0)     dd-358     | + 19.124 us   |      } /* f */",
            false,
            Some("Some(60518789000) Some(0) Some(358) Some(\"dd\")  Some(19124) 2 } /* f */"),
        );
        check(
            " 1)   script-142   |  ...1. |   1.510 us    |  f();",
            false,
            Some("None Some(1) Some(142) Some(\"script\") ...1. Some(1510) 0 f();"),
        );
        check(
            "        7 us |   0)    chrt-202    |  dNh6. |               |  /* x */",
            false,
            Some("Some(7000) Some(0) Some(202) Some(\"chrt\") dNh6. None 0 /* x */"),
        );
        check(
            "  1.510 us    |  f();",
            false,
            Some("None None None None  Some(1510) 0 f();"),
        );
        check(
            "              |    f() {",
            false,
            Some("None None None None  None 1 f() {"),
        );
        check(
            " 0)     f(a=A|B) {",
            false,
            Some("None Some(0) None None  None 2 f(a=A|B) {"),
        );
        check("  f() {", true, Some("None None None None  None 1 f() {"));
        check("  f() {", false, None);
        check(
            "0)    sh-4802     |               |    d_free() {",
            false,
            Some("None Some(0) Some(4802) Some(\"sh\")  None 1 d_free() {"),
        );
        check(
            " 0) # 3997.538 us |      } /* schedule */",
            false,
            Some("None Some(0) None None  Some(3997538) 2 } /* schedule */"),
        );
        check(
            " 0) $ 19354026 us |  }",
            false,
            Some("None Some(0) None None  Some(19354026000) 0 }"),
        );
        check(" 1)   ==========> |", false, Some("Some(1) interrupt true"));
        check(
            " 1)   <========== |",
            false,
            Some("Some(1) interrupt false"),
        );
        check(
            " 1)   script-142   =>     dd-365    ",
            false,
            Some("1 142 => 365"),
        );
        check(
            " 0)    <idle>-0    =>   rcu_pre-16  ",
            false,
            Some("0 0 => 16"),
        );
        check(
            " 1)  migration/0--1  =>  sshd-1755",
            false,
            Some("1 -1 => 1755"),
        );
        check("hello | world", false, None);
        check("", true, None);
    }

    #[test]
    fn contents() {
        let Some(Content::Call {
            symbol,
            args,
            is_leaf,
            tail,
        }) = content(b"f(lock=0xff, n=1 [A(B)]); /* <-c+0x24/0x120 ret=0xffff8f30837d0000 */")
        else {
            panic!("a call");
        };
        assert_eq!((symbol.name, is_leaf), (&b"f"[..], true));
        assert_eq!(tail.caller.unwrap().name, b"c");
        assert_eq!(tail.retval, Some(0xffff_8f30_837d_0000u64.cast_signed()));
        let mut found = Vec::new();
        arguments(args, &mut found);
        assert_eq!(found, [&b"lock=0xff"[..], b"n=1 [A(B)]"]);
        let end = |text: &'static str| match content(text.as_bytes()) {
            Some(Content::End(tail)) => {
                (tail.function.map(|symbol| show(symbol.name)), tail.retval)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(end("}"), (None, None));
        assert_eq!(end("} /* f */"), (Some("f".into()), None));
        assert_eq!(end("} /* f() */"), (Some("f".into()), None));
        assert_eq!(end("} /* f ret=-22 */"), (Some("f".into()), Some(-22)));
        assert_eq!(end("} /* f (ret=0x1) */"), (Some("f".into()), Some(1)));
        assert_eq!(end("} /* = 0x5 */"), (None, Some(5)));
        assert_eq!(content(b"/* a: b */"), Some(Content::Comment(b"a: b")));
        assert_eq!(content(b"f() x"), None);
        assert_eq!(content(b"f("), None);
    }
}
