//! What the first passes over a file find: torn lines, the lines that resume calls, and the kind of times.
//!
//! ```text
//! 14960 read(3,  <unfinished ...>                 line 7 ──► line 12
//! 14959 close(4) = 0
//! 14960 <... read resumed>"x"..., 64) = 1         line 12
//! ```

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::call::Outcome;
use super::line::{self, Body, Time, cut};
use crate::lines::Lines;

const HALF_A_DAY: i64 = 43_200_000_000_000;

/// Calls that ltrace may show inside of each other.
const NESTED_MAX: usize = 1 << 10;

/// Open calls by thread: number of the line, and name.
type Open<'a> = HashMap<Option<i32>, Vec<(u64, &'a [u8])>>;

/// Results of the first pass.
#[derive(Debug, Default)]
pub(super) struct Ahead<'a> {
    /// By the number of the unfinished line.
    pub(super) resumptions: HashMap<u64, Resumption<'a>>,
    /// Numbers of the lines that resume a call.
    joined: HashSet<u64>,
    /// A time of the kind that most lines have.
    pub(super) time: Time,
    /// Whether lines begin with their threads.
    pub(super) has_threads: bool,
    /// The first thread, if it is named anywhere.
    pub(super) first: Option<i32>,
    pub(super) is_ltrace: bool,
    /// Whether lines may be torn: some are none of strace's.
    pub(super) has_torn: bool,
}

/// The second line of a call.
#[derive(Debug, Clone)]
pub(super) struct Resumption<'a> {
    pub(super) body: Body<'a>,
    pub(super) time: Option<i64>,
    /// The lines that follow, which may be frames.
    pub(super) after: Lines<'a>,
}

impl<'a> Ahead<'a> {
    pub(super) fn of(text: &'a [u8]) -> Ahead<'a> {
        let mut ahead = Ahead::default();
        let mut clock = Clock::default();
        let mut open = Open::new();
        let mut kinds = [(Time::None, 0u64); 3];
        let mut last = None;
        let (mut named, mut seen) = (Vec::new(), HashSet::new());
        let mut created = HashSet::new();
        let mut lines = Lines::of(text);
        while let Some(line) = lines.next() {
            let parsed = line::parse(line.text);
            ahead.has_torn |= parsed.is_none();
            let Some((prefix, body)) = parsed.or_else(|| line::parse_inside(line.text)) else {
                continue;
            };
            let kind = match prefix.time {
                Time::None => None,
                Time::Wall(_) => Some(0),
                Time::OfDay(_) => Some(1),
                Time::Delta(_) => Some(2),
            };
            if let Some((time, count)) = kind.and_then(|kind| kinds.get_mut(kind)) {
                (*time, *count) = (prefix.time, *count + 1);
            }
            ahead.has_threads |= prefix.tid.is_some();
            if let Some(tid) = prefix.tid
                && last != Some(tid)
            {
                last = Some(tid);
                if seen.insert(tid) {
                    named.push(tid);
                }
            }
            if let Body::Call { name, result, .. } | Body::Resumed { name, result, .. } = body
                && is_fork(name)
            {
                let child = Outcome::parse(result).value;
                created.extend(child.and_then(|child| i32::try_from(child).ok()));
            }
            let time = match body {
                Body::Frame(_) | Body::Dump => continue,
                Body::Message(tid) => {
                    created.extend(tid);
                    continue;
                }
                _ => clock.at(prefix.time),
            };
            match body {
                Body::Unfinished { name, .. } => {
                    let open = open.entry(prefix.tid).or_default();
                    if open.len() < NESTED_MAX {
                        // ltrace names the calling module in the first line only.
                        let name = cut(name, b"->").map_or(name, |(_, name)| name);
                        open.push((line.number, name));
                    }
                }
                Body::Resumed { name, .. } | Body::Abandoned { name } => {
                    if let Some(number) = resumed(&mut open, prefix.tid, name) {
                        ahead.joined.insert(line.number);
                        let after = lines.clone();
                        let resumption = Resumption { body, time, after };
                        ahead.resumptions.insert(number, resumption);
                    }
                }
                Body::Exited(_) => {
                    open.remove(&prefix.tid);
                    ahead.is_ltrace |= line.text.ends_with(b") +++");
                }
                Body::Call { name, .. } => {
                    ahead.is_ltrace |= name.starts_with(b"SYS_") || name.contains(&b'>');
                }
                _ => {}
            }
        }
        ahead.first = named.into_iter().find(|tid| !created.contains(tid));
        // Another kind than that of most lines is a damaged line.
        let most = kinds.into_iter().max_by_key(|(_, count)| *count);
        ahead.time = most.map_or(Time::None, |(time, _)| time);
        ahead
    }

    /// Whether the line is the second one of a call.
    pub(super) fn is_joined(&self, number: u64) -> bool {
        self.joined.contains(&number)
    }
}

/// Whether a system call creates a thread or process.
pub(super) fn is_fork(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone2" | b"clone3" | b"fork" | b"vfork")
}

/// Takes the innermost open call of the name that a line resumes, with those inside it. On the standard error, lines have no thread
/// while only one is left.
fn resumed(open: &mut Open<'_>, tid: Option<i32>, name: &[u8]) -> Option<u64> {
    let is_there = |calls: &Vec<(u64, &[u8])>| calls.iter().rposition(|(_, open)| *open == name);
    let mut key = tid;
    if open.get(&tid).and_then(is_there).is_none() {
        let mut candidates = open.iter().filter(|(other, calls)| {
            (tid.is_none() || other.is_none()) && is_there(calls).is_some()
        });
        key = *candidates.next()?.0;
        if candidates.next().is_some() {
            return None;
        }
    }
    let calls = open.get_mut(&key)?;
    let place = is_there(calls)?;
    calls.drain(place..).next().map(|(number, _)| number)
}

/// Lines that follow a torn one, at most.
const PIECES_MAX: usize = 8;

/// Joins lines that messages of strace or output of the program have torn, as on the standard error. Lines keep their numbers:
/// empty ones follow.
///
/// ```text
/// wait4(-1, strace: Process 7378 attached
///  <unfinished ...>
/// ```
pub(super) fn mended(text: &[u8]) -> Cow<'_, [u8]> {
    let mut lines = Lines::of(text);
    let mut joined: Vec<u8> = Vec::new();
    let mut copied = 0;
    while let Some(line) = lines.next() {
        if !line::is_open(line.text) {
            continue;
        }
        let Some((whole, pieces)) = whole(line.text, lines.clone()) else {
            continue;
        };
        let start = text.len() - lines.rest().len();
        let start = start.saturating_sub(line.text.len() + 1);
        joined.extend_from_slice(text.get(copied..start).unwrap_or_default());
        joined.extend_from_slice(&whole);
        joined.extend(std::iter::repeat_n(b'\n', pieces + 1));
        lines.by_ref().take(pieces).for_each(drop);
        copied = text.len() - lines.rest().len();
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => {
            joined.extend_from_slice(text.get(copied..).unwrap_or_default());
            Cow::Owned(joined)
        }
    }
}

/// The text of a torn line without messages, and the number of lines that it took.
fn whole(first: &[u8], next: Lines<'_>) -> Option<(Vec<u8>, usize)> {
    let mut text = without_message(first).to_vec();
    for (number, line) in next.take(PIECES_MAX).enumerate() {
        if line::parse_anywhere(line.text)
            .is_some_and(|(_, body)| !matches!(body, Body::Message(_)))
        {
            return None;
        }
        text.extend_from_slice(without_message(line.text));
        if line::parse(&text).is_some() {
            return Some((text, number + 1));
        }
    }
    None
}

fn without_message(text: &[u8]) -> &[u8] {
    match memchr::memmem::find(text, b"strace: ") {
        Some(start) if text.ends_with(b" attached") => text.get(..start).unwrap_or(text),
        _ => text,
    }
}

/// Turns the times of lines, in their order, into nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The only kind that counts, if it is known.
    kind: Time,
    sum: i64,
    /// Of the preceding line.
    last: i64,
    days: i64,
}

impl Clock {
    /// Times of other kinds than that of `kind` are unknown.
    pub(super) fn of(kind: Time) -> Clock {
        Clock {
            kind,
            ..Clock::default()
        }
    }

    pub(super) fn at(&mut self, time: Time) -> Option<i64> {
        let kind = std::mem::discriminant(&self.kind);
        let is_other = self.kind != Time::None && kind != std::mem::discriminant(&time);
        let time = match time {
            _ if is_other => return None,
            Time::None => return None,
            Time::Wall(time) => time,
            Time::OfDay(time) => {
                if time.saturating_add(HALF_A_DAY) < self.last {
                    self.days = self.days.saturating_add(2 * HALF_A_DAY);
                }
                self.last = time;
                return time.checked_add(self.days);
            }
            Time::Delta(delta) => {
                self.sum = self.sum.saturating_add(delta);
                self.sum
            }
        };
        Some(time)
    }
}
