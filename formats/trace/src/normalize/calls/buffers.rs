//! The same events in several buffers of one trace: instances of ftrace beside the main one (`trace-cmd record -B`).
//!
//! ```text
//! sys_enter  buffer=foo    the entry of a call
//! sys_enter                the same, from the main buffer, which is used from here on
//! sys_exit   buffer=foo    not used
//! sys_exit                 the exit
//! ```
//! Each pair of events of a thread is taken from one buffer: the main one from its first hit on, otherwise the first that
//! has it. So nothing counts twice, and a thread or an event that only another buffer has is not missing.

use hashbrown::HashMap;

use super::lanes::Lane;
use super::{Calls, Pair};

/// Pairs whose buffer is remembered; all are forgotten then, and found again.
const PAIRS_MAX: usize = 1 << 16;

/// The buffer of each pair of events, by thread; `None` is the main one.
#[derive(Debug, Default)]
pub(super) struct Buffers(HashMap<(Lane, Pair), Option<Box<[u8]>>>);

impl Calls {
    /// Whether an edge of a buffer is used.
    pub(super) fn is_used(
        &mut self,
        lane: Lane,
        pair: Pair,
        buffer: Option<&[u8]>,
        is_entry: bool,
    ) -> bool {
        let known = &mut self.buffers.0;
        if known.len() >= PAIRS_MAX {
            known.clear();
        }
        let Some(used) = known.get_mut(&(lane, pair)) else {
            known.insert((lane, pair), buffer.map(Box::from));
            return true;
        };
        if used.as_deref() == buffer {
            return true;
        }
        if buffer.is_some() {
            return false;
        }
        // The other buffer may have had this very edge.
        *used = None;
        let opens = self.lanes.of(lane);
        let is_open = opens
            .iter()
            .any(|open| open.pair.is_some_and(|other| other.is_of(pair)));
        is_entry != is_open
    }
}
