//! Merges the events of all CPUs and buffers in time order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use perfquet_events::Error;

use crate::trace_dat::reporter::Reporter;
use crate::trace_dat::stream::{Ring, Stream};

/// Passes on the current event of the stream with the lowest time, until no event is left. At equal times, the earlier
/// stream goes first, as in `trace-cmd report`.
pub(super) fn merge<'m>(
    streams: &mut [Stream<'m>],
    ring: &Ring,
    reporter: &mut Reporter<'_>,
    mut hand_out: impl FnMut(&Stream<'m>, &mut Reporter<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut turns = BinaryHeap::with_capacity(streams.len());
    for (index, stream) in streams.iter_mut().enumerate() {
        stream.advance(ring, reporter)?;
        if let Some(event) = &stream.current {
            turns.push(Reverse((event.key, index)));
        }
    }
    while let Some(mut turn) = turns.peek_mut() {
        let Some(stream) = streams.get_mut(turn.0.1) else {
            PeekMut::pop(turn);
            continue;
        };
        hand_out(stream, reporter)?;
        stream.advance(ring, reporter)?;
        match &stream.current {
            // `turn` moves to its position when dropped. Most often it stays on top, since events come in bursts.
            Some(event) => turn.0.0 = event.key,
            None => {
                PeekMut::pop(turn);
            }
        }
    }
    Ok(())
}
