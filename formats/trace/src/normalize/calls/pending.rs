//! A row of `calls` before it is written.

use perfquet_events::event::Context;

use super::super::heads::Head;
use super::super::texts::TextId;
use super::pairs::DECLARED;
use super::{Entry, Exit};

/// ID of a call in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct CallId(pub(super) i64);

/// Members that few calls have.
#[derive(Debug, Clone, Default)]
pub(super) struct Extra {
    pub(super) args: Box<[TextId]>,
    /// Arguments recorded by probes: rarely repeated, so not interned.
    pub(super) fetched: Vec<Box<[u8]>>,
}

impl Extra {
    /// `None` if there are no arguments.
    pub(super) fn of(args: Box<[TextId]>, fetched: Vec<Box<[u8]>>) -> Option<Box<Extra>> {
        let is_empty = args.is_empty() && fetched.is_empty();
        (!is_empty).then(|| Box::new(Extra { args, fetched }))
    }
}

/// A waiting row.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) head: Head,
    pub(super) function: Option<TextId>,
    pub(super) module: Option<TextId>,
    pub(super) caller: Option<TextId>,
    pub(super) depth: u32,
    pub(super) parent_id: Option<CallId>,
    pub(super) context: Option<Context>,
    pub(super) extra: Option<Box<Extra>>,
    pub(super) duration: Option<i64>,
    /// Time in nested calls; `None` if one of them has an unknown duration.
    pub(super) in_others: Option<i64>,
    pub(super) retval: Option<i64>,
    pub(super) entry_seen: bool,
    pub(super) exit_seen: bool,
    /// Not known to be a call: it is written only if its exit comes.
    pub(super) is_provisional: bool,
    /// The function was requested, so the call counts for the limit.
    pub(super) is_wanted: bool,
    /// The call is final.
    pub(super) is_closed: bool,
}

impl Pending {
    pub(super) fn fetched_bytes(&self) -> usize {
        let extra = self.extra.as_ref();
        extra.map_or(0, |extra| bytes_of(&extra.fetched))
    }

    /// A call that begins inside this many open calls.
    pub(super) fn of(entry: Entry, parent_id: Option<CallId>, around: usize) -> Pending {
        Pending {
            head: entry.head,
            function: entry.function,
            module: entry.module,
            caller: entry.caller,
            depth: entry.depth.unwrap_or(around as u32),
            parent_id,
            context: entry.context,
            is_wanted: entry.pair.is_some_and(|pair| pair.class == DECLARED),
            extra: entry.extra,
            duration: None,
            in_others: Some(0),
            retval: None,
            entry_seen: true,
            exit_seen: false,
            is_provisional: entry.is_provisional,
            is_closed: false,
        }
    }

    /// A call whose entry was not recorded.
    pub(super) fn without_entry(exit: Exit, parent_id: Option<CallId>, around: usize) -> Pending {
        let time = match (exit.head.time(), exit.duration) {
            (Some(time), Some(duration)) => Some(time.saturating_sub(duration)),
            (time, _) => time,
        };
        Pending {
            // The stacks, if any, are those at the exit.
            head: exit.head.at(time).on(None, None),
            function: exit.function,
            module: exit.module,
            caller: None,
            depth: exit.depth.unwrap_or(around as u32),
            parent_id,
            context: exit.context,
            is_wanted: exit.pair.is_some_and(|pair| pair.class == DECLARED),
            extra: Extra::of(Box::default(), exit.fetched),
            duration: exit.duration,
            in_others: None,
            retval: exit.retval,
            entry_seen: false,
            exit_seen: true,
            is_provisional: false,
            is_closed: true,
        }
    }
}

pub(super) fn bytes_of(fetched: &[Box<[u8]>]) -> usize {
    const BESIDE: usize = 16;
    fetched.iter().map(|arg| arg.len() + BESIDE).sum()
}
