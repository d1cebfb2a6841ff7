//! Which fields the heads of a text have: all have the same.
//!
//! ```text
//! ls 28244   875.313724: page-faults:      heads with times: other lines without a tab are messages
//! 16258                                    heads without times: only they begin a sample
//!         11ab child_work                  no heads (`-F ip,sym`): a stack after an empty line, or one frame per line
//! ```

use super::head::{self, Fields, Head};
use super::location::location;
use super::messages::message;
use crate::lines::Lines;

/// Heads from which the form of all follows.
const MOST_HEADS: usize = 1000;

/// The form of all heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Heads with times: whether they contain thread IDs, and which fields precede the time.
    Times { has_tid: bool, fields: Fields },
    /// Heads without times. `has_event` is known from the first sample on.
    NoTimes { has_event: Option<bool> },
    /// Frames alone.
    NoHeads { is_one_line: bool },
}

impl Layout {
    /// The layout of the text that begins with `text`.
    pub(super) fn of(text: &[u8]) -> Layout {
        let lines = || Lines::of(text).map(|line| line.text);
        if let Some(head) = lines().find_map(head::with_time) {
            let fields = fields(text);
            return Layout::Times {
                has_tid: head.tid.is_some() && fields == Fields::Any,
                fields,
            };
        }
        let is_content = |line: &&[u8]| {
            !line.starts_with(b"#")
                && !line.iter().all(u8::is_ascii_whitespace)
                && message(line).is_none()
        };
        let first = lines().find(is_content).unwrap_or_default();
        if is_frame_alone(first) {
            let mut after = lines().skip_while(|line| *line != first);
            let is_parted = after.any(<[u8]>::is_empty);
            return Layout::NoHeads {
                is_one_line: !first.starts_with(b"\t") && !is_parted,
            };
        }
        Layout::NoTimes { has_event: None }
    }

    /// A head with a time and the fields of the others.
    #[inline]
    pub(super) fn head_of(self, line: &[u8]) -> Option<Head<'_>> {
        let Layout::Times { fields, .. } = self else {
            return None;
        };
        head::with_time_after(line, fields).filter(|head| self.accepts(head))
    }

    /// Whether a head with a time has the fields of the others.
    #[inline]
    fn accepts(self, head: &Head<'_>) -> bool {
        match self {
            Layout::Times { has_tid, .. } => !has_tid || head.tid.is_some(),
            Layout::NoTimes { .. } | Layout::NoHeads { .. } => false,
        }
    }

    /// Whether a line begins a sample without a time. perf ends a stack with an empty line.
    pub(super) fn is_head_without_time(self, text: &[u8], is_in_stack: bool) -> bool {
        let Layout::NoTimes { has_event } = self else {
            return false;
        };
        let is_text = text.iter().all(|byte| *byte >= b' ' && *byte != 0x7f);
        let Some(head) = head::without_time(text).filter(|_| is_text && !text.starts_with(b"\t"))
        else {
            return false;
        };
        let is_indented = text.starts_with(b" ");
        let has_location = !head.rest.is_empty() && head.event.is_empty();
        let has_number = head.tid.is_some() || head.period.is_some();
        match has_event {
            _ if is_indented && !has_location && head.event.is_empty() => {
                has_number && head.comm.is_none() && !is_in_stack
            }
            Some(true) => !head.event.is_empty() && has_number,
            Some(false) if is_in_stack => has_location,
            Some(false) | None => message(text).is_none(),
        }
    }

    pub(super) fn is_headless(self) -> bool {
        matches!(self, Layout::NoHeads { .. })
    }

    /// Whether each frame without a head is a sample.
    pub(super) fn is_one_line(self) -> bool {
        matches!(self, Layout::NoHeads { is_one_line: true })
    }

    /// Learns from a sample.
    #[inline]
    pub(super) fn confirm(&mut self, head: &Head<'_>) {
        if let Layout::NoTimes {
            has_event: found @ None,
        } = self
        {
            *found = Some(!head.event.is_empty());
        }
    }
}

/// The fields that precede the time. A comm alone may look like one with IDs, so the majority of heads decides.
fn fields(text: &[u8]) -> Fields {
    let heads = Lines::of(text).filter_map(|line| head::with_time(line.text));
    let (mut all, mut with_tid, mut with_cpu) = (0, 0, 0);
    for head in heads.take(MOST_HEADS) {
        all += 1;
        with_tid += usize::from(head.tid.is_some());
        with_cpu += usize::from(head.cpu.is_some());
    }
    match with_tid * 2 < all {
        true => Fields::Comm {
            has_cpu: with_cpu * 2 > all,
        },
        false => Fields::Any,
    }
}

/// Whether a line is an indented frame: with a symbol, or an address of sixteen columns.
pub(super) fn is_frame_alone(line: &[u8]) -> bool {
    let is_indented = matches!(line.first(), Some(b' ' | b'\t'));
    let is_wide = line.len() > 16;
    is_indented && is_wide && location(line, false).has_frame_alone()
}
