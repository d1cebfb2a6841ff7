//! The events of all CPUs and buffers in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use perfquet_events::Error;

use crate::trace_dat::read::Teller;
use crate::trace_dat::stream::{Ring, Stream};

/// Hands out the current event of the stream whose turn it is, until none is left. Of equal times, the earlier
/// stream's goes first, as with `trace-cmd report`.
pub(super) fn merge<'m>(
    streams: &mut [Stream<'m>],
    ring: &Ring,
    tell: &mut Teller<'_>,
    mut hand_out: impl FnMut(&Stream<'m>, &mut Teller<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut turns = BinaryHeap::with_capacity(streams.len());
    for (index, stream) in streams.iter_mut().enumerate() {
        stream.advance(ring, tell)?;
        if let Some(event) = &stream.current {
            turns.push(Reverse((event.key, index)));
        }
    }
    while let Some(mut turn) = turns.peek_mut() {
        let Some(stream) = streams.get_mut(turn.0.1) else {
            PeekMut::pop(turn);
            continue;
        };
        hand_out(stream, tell)?;
        stream.advance(ring, tell)?;
        match &stream.current {
            // Put in its place when `turn` goes: mostly that is where it is, for events come in bursts.
            Some(event) => turn.0.0 = event.key,
            None => {
                PeekMut::pop(turn);
            }
        }
    }
    Ok(())
}
