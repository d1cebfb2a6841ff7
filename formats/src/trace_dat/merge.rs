//! The events of all CPUs and buffers in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Error;
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
    while let Some(Reverse((_, index))) = turns.pop() {
        let Some(stream) = streams.get_mut(index) else {
            continue;
        };
        let next = turns.peek().map(|Reverse(turn)| *turn);
        // Events come in bursts: the heap is asked only when another stream's turn comes.
        loop {
            hand_out(stream, tell)?;
            stream.advance(ring, tell)?;
            let Some(event) = &stream.current else {
                break;
            };
            let turn = (event.key, index);
            if next.is_some_and(|next| next < turn) {
                turns.push(Reverse(turn));
                break;
            }
        }
    }
    Ok(())
}
