//! The common columns of a row, in 32 bytes.

use perfquet_events::event::Id;

use super::stacks::StackId;
use super::texts::TextId;
use crate::store::{Column, Names};

/// No value.
const NONE: u32 = u32::MAX;
/// No time: before any that an input can have.
const NO_TIME: i64 = i64::MIN;

/// Members of every hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    time: i64,
    cpu: Id,
    pid: Id,
    tid: Id,
    comm: u32,
    kernel_stack: u32,
    user_stack: u32,
}

impl Default for Head {
    fn default() -> Head {
        Head::new(None, Id::NONE, Id::NONE, Id::NONE)
    }
}

impl Head {
    #[inline]
    pub(crate) fn new(time: Option<i64>, cpu: Id, pid: Id, tid: Id) -> Head {
        Head {
            time: time.unwrap_or(NO_TIME),
            cpu,
            pid,
            tid,
            comm: NONE,
            kernel_stack: NONE,
            user_stack: NONE,
        }
    }

    /// With a thread's name, by its ID.
    #[inline]
    pub(crate) fn named(self, comm: Option<TextId>) -> Head {
        Head {
            comm: comm.map_or(NONE, |comm| comm.0),
            ..self
        }
    }

    /// With stacks.
    #[inline]
    pub(crate) fn on(self, kernel: Option<StackId>, user: Option<StackId>) -> Head {
        Head {
            kernel_stack: kernel.unwrap_or(NONE),
            user_stack: user.unwrap_or(NONE),
            ..self
        }
    }

    /// At another time.
    #[inline]
    pub(crate) fn at(self, time: Option<i64>) -> Head {
        Head {
            time: time.unwrap_or(NO_TIME),
            ..self
        }
    }

    /// Of a thread with this name.
    pub(crate) fn of(self, tid: i32, comm: Option<TextId>) -> Head {
        let tid = Id::of(tid);
        Head { tid, ..self }.named(comm)
    }

    #[inline]
    pub(crate) fn time(&self) -> Option<i64> {
        (self.time != NO_TIME).then_some(self.time)
    }

    #[inline]
    pub(crate) fn cpu(&self) -> Option<u32> {
        self.cpu.known().map(|cpu| cpu as u32)
    }

    #[inline]
    pub(crate) fn tid(&self) -> Option<i32> {
        self.tid.known()
    }
}

#[inline]
fn known(value: u32) -> Option<u32> {
    (value != NONE).then_some(value)
}

/// Pushes the common columns.
pub(crate) fn push_heads<'h>(
    columns: &mut [Column],
    heads: impl ExactSizeIterator<Item = &'h Head> + Clone,
    comms: &Names,
) {
    let [time, cpu, pid, tid, comm, kernel_stack, user_stack] = columns else {
        debug_assert!(false, "common columns other than those of a head");
        return;
    };
    let stack = |value: u32| known(value).map(|stack| i64::from(stack as i32));
    let id = |id: Id| id.known().map(i64::from);
    time.extend_some(64, heads.clone().map(Head::time));
    cpu.extend_some(32, heads.clone().map(|head| id(head.cpu)));
    pid.extend_some(32, heads.clone().map(|head| id(head.pid)));
    tid.extend_some(32, heads.clone().map(|head| id(head.tid)));
    comm.extend_named(comms, heads.clone().map(|head| known(head.comm)));
    kernel_stack.extend_some(32, heads.clone().map(|head| stack(head.kernel_stack)));
    user_stack.extend_some(32, heads.map(|head| stack(head.user_stack)));
}
