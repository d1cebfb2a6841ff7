//! Stacks of samples: the first sample of a stack defines it, the others refer to it.
//!
//! ```text
//! stack 7: fetch, main      Stack { id: 15, user: [fetch, main] }, Sample { user_stack: Id(15) }, Sample { user_stack: Id(15) }, …
//! ```

use perfquet_events::Error;
use perfquet_events::event::{Event, NamedFrame, Sink, Stack, StackDefinition};

use super::tables::{Shared, Tables};
use crate::printout::Stacks;

/// Stacks that are defined; the samples of further ones have all frames.
const DEFINED_MAX: usize = 1 << 19;

/// What is known of a stack.
const SEEN: u8 = 1;
const HAS_KERNEL: u8 = 2;
const HAS_USER: u8 = 4;

/// The defined stacks of all tables.
#[derive(Debug, Default)]
pub(super) struct Defined<'f> {
    /// For each table, the number of stacks in those before it.
    before: Vec<usize>,
    known: Vec<u8>,
    count: usize,
    frames: Vec<NamedFrame<'f>>,
}

impl<'f> Defined<'f> {
    pub(super) fn of(tables: &[Tables<'_>]) -> Defined<'f> {
        let mut total = 0usize;
        let before = tables.iter().map(|tables| {
            let before = total;
            total = total.saturating_add(tables.stacks_count());
            before
        });
        let before = before.collect();
        Defined {
            before,
            known: vec![0; total],
            count: 0,
            frames: Vec::new(),
        }
    }

    /// The kernel's and the user's stack of a sample. The second value is false if an index is not in its table.
    pub(super) fn stacks<'a>(
        &mut self,
        (number, tables): (usize, &'f Tables<'a>),
        stack: i32,
        shared: &'f Shared<'a>,
        sink: &mut dyn Sink,
    ) -> Result<((Stack<'_>, Stack<'_>), bool), Error> {
        let place = usize::try_from(stack).ok();
        let place = place.filter(|&place| place < tables.stacks_count());
        let place = place.and_then(|place| self.before.get(number)?.checked_add(place));
        let known = place.and_then(|place| self.known.get(place).copied());
        if let (Some(place), Some(known)) = (place, known.filter(|known| known & SEEN != 0)) {
            return Ok((by_id(place, known), true));
        }
        self.frames.clear();
        let is_whole = stack >= 0 && tables.frames(stack, shared, &mut self.frames);
        let found = match self.frames.is_empty() {
            true => Stacks::default(),
            false => Stacks::of(&self.frames),
        };
        let Some(place) = place.filter(|_| is_whole && self.count < DEFINED_MAX) else {
            return Ok(((found.kernel(), found.user()), is_whole));
        };
        let mut known = SEEN;
        let ids = ids(place);
        for (stack, id, flag) in [
            (found.kernel(), ids.0, HAS_KERNEL),
            (found.user(), ids.1, HAS_USER),
        ] {
            if !matches!(stack, Stack::None) {
                known |= flag;
                sink.event(Event::Stack(StackDefinition {
                    id,
                    time: None,
                    pid: None,
                    stack,
                }))?;
            }
        }
        self.count += 1;
        if let Some(slot) = self.known.get_mut(place) {
            *slot = known;
        }
        Ok((by_id(place, known), true))
    }
}

/// IDs of the kernel's and the user's stack at a place.
fn ids(place: usize) -> (u64, u64) {
    let id = 2 * place as u64;
    (id, id + 1)
}

fn by_id(place: usize, known: u8) -> (Stack<'static>, Stack<'static>) {
    let ids = ids(place);
    let stack = |flag, id| match known & flag {
        0 => Stack::None,
        _ => Stack::Id(id),
    };
    (stack(HAS_KERNEL, ids.0), stack(HAS_USER, ids.1))
}
