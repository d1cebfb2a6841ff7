//! Times between the sessions of an input, which none of them recorded.
//!
//! ```text
//! auto-1/kernel, auto-1/ust     packets of 10 s … 14 s      paused at 14 s, resumed at 60 s
//! auto-2/kernel                 packets of 60 s … 71 s
//! ```

use perfquet_events::wire::PauseRecord;

use super::packets::Packet;

/// First and last nanosecond.
type Span = (i64, i64);

/// The times between the packets of all groups, the last one first. `of` is the group of a packet and its span; `None` if that is unknown,
/// so that nothing can be said.
pub(super) fn gaps(
    packets: &[Vec<Packet>],
    groups: usize,
    of: impl Fn(&Packet) -> Option<(usize, Span)>,
) -> Vec<Span> {
    let mut spans: Vec<Option<Span>> = vec![None; groups];
    for packet in packets.iter().flatten() {
        let Some((group, (begin, end))) = of(packet) else {
            return Vec::new();
        };
        if let Some(span) = spans.get_mut(group) {
            let (first, last) = span.unwrap_or((begin, end));
            *span = Some((first.min(begin), last.max(end)));
        }
    }
    between(spans.into_iter().flatten().collect())
}

fn between(spans: Vec<Span>) -> Vec<Span> {
    let mut gaps = PauseRecord::between(spans);
    gaps.reverse();
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_with_time_between_them() {
        let spans = [(0, 10), (5, 14), (60, 71), (71, 80), (90, 91)];
        assert_eq!(between(spans.to_vec()), [(80, 90), (14, 60)]);
        assert!(between(vec![(0, 10), (10, 20)]).is_empty() && between(Vec::new()).is_empty());
    }
}
