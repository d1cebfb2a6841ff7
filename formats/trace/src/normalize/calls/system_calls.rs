//! Edges of system calls that do not pair by their numbers.
//!
//! ```text
//! sys_enter id=15          rt_sigreturn restores the registers, with the number, to those before the signal,
//! sys_exit id=-1 ret=0     so its exit has none: it is that of the open call
//! sys_exit id=56 ret=0     the child's first return from clone: no call of the child
//! ```
//! Threads make one system call at a time, so an entry ends those of the same kind that are open.

use hashbrown::HashMap;
use perfquet_events::event::Value;

use super::super::texts::SharedTexts;
use super::lanes::Lanes;
use super::{Entry, Exit, Open, SystemCall};
use crate::system_call;

/// The number at the exit of a call whose registers were replaced.
const REPLACED: u64 = u64::MAX;
/// Calls that return twice: in the child with 0.
const RETURN_TWICE: [&[u8]; 4] = [b"sys_clone", b"sys_clone3", b"sys_fork", b"sys_vfork"];

/// Returns from calls by number, where the architecture and so their names are unknown: texts rarely have it.
#[derive(Debug, Default)]
pub(super) struct Children {
    /// Returns of parents less those of children.
    pending: HashMap<u64, i64>,
}

impl Children {
    /// Notes the return of a parent.
    #[inline]
    pub(super) fn parent(&mut self, exit: &Exit) {
        if exit.retval > Some(0)
            && let Some(number) = number_of_fork(exit)
        {
            *self.pending.entry(number).or_default() += 1;
        }
    }

    /// Whether an exit without an entry is the child's return: for each, a parent is in the call or has returned from it.
    pub(super) fn is_child(&mut self, exit: &Exit, function: &[u8], lanes: &Lanes) -> bool {
        let Some(number) = number_of_fork(exit).filter(|_| exit.retval == Some(0)) else {
            return false;
        };
        if function != name(number.cast_signed(), None).as_bytes() {
            return false;
        }
        let is_parent = |open: &&Open| {
            open.system_call == Some(SystemCall::Numbered) && open.number == Some(number)
        };
        let parents = lanes.opens().filter(is_parent).count();
        let pending = self.pending.entry(number).or_default();
        let is_child = i64::try_from(parents)
            .unwrap_or(i64::MAX)
            .saturating_add(*pending)
            > 0;
        *pending -= i64::from(is_child);
        is_child
    }

    /// Events were lost: some of the returns.
    pub(super) fn loss(&mut self) {
        self.pending.clear();
    }
}

/// The number of an exit, if an architecture numbers one of [`RETURN_TWICE`] so.
#[inline]
fn number_of_fork(exit: &Exit) -> Option<u64> {
    let number = exit.number?;
    // i386, Arm, PowerPC, s390: 2, 120, 189, 190. x86-64: 56 to 58. Newer ones: 220. All: 435.
    let is_fork = matches!(number, 2 | 56..=58 | 120 | 189 | 190 | 220 | 435);
    (is_fork && exit.system_call == Some(SystemCall::Numbered)).then_some(number)
}

/// Whether an exit has no number of a call.
pub(super) fn lacks_number(exit: &Exit) -> bool {
    exit.system_call == Some(SystemCall::Numbered) && exit.number == Some(REPLACED)
}

/// The index of the open call that an exit without a number ends.
pub(super) fn innermost(opens: &[Open]) -> Option<usize> {
    let is_numbered = |open: &Open| open.system_call == Some(SystemCall::Numbered);
    opens.iter().rposition(is_numbered)
}

/// Whether the calls inside one that returns are the system call by which the kernel reports returns of functions on x86-64. It begins as the
/// function returns, ends after it, or is never seen to end, and has no part in it.
pub(super) fn is_trampoline(inside: Option<&[Open]>, texts: &SharedTexts) -> bool {
    let is_uretprobe = |open: &Open| {
        let name = open.system_call.and(open.function);
        name.is_some_and(|name| texts.get(name) == b"sys_uretprobe")
    };
    inside.is_some_and(|inside| !inside.is_empty() && inside.iter().all(is_uretprobe))
}

/// The index of an open call whose exit was missed, since another one of its kind begins.
pub(super) fn missed(opens: &[Open], entry: &Entry) -> Option<usize> {
    // Without threads, a lane has the calls of several.
    let begins = entry.system_call.filter(|_| entry.head.tid().is_some())?;
    opens
        .iter()
        .position(|open| open.system_call == Some(begins))
}

/// Whether an exit without an entry is no call: the child's return from a call of its parent, or without a name.
pub(super) fn is_no_call(exit: &Exit, function: &[u8]) -> bool {
    exit.system_call.is_some()
        && (lacks_number(exit) || exit.retval == Some(0) && RETURN_TWICE.contains(&function))
}

/// The name of a numbered call: that of its event where the architecture is known.
pub(super) fn name(number: i64, architecture: Option<&str>) -> String {
    match architecture.and_then(|architecture| system_call::name(number, architecture)) {
        Some(name) => format!("sys_{name}"),
        None => format!("syscall:{number}"),
    }
}

/// The number in a field of the event.
pub(super) fn number(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int(number) => Some(number),
        Value::UInt(number) => Some(number as i64),
        Value::Bytes(text) => str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}
