//! A moment at which the recorder stopped or resumed recording: `u32 is_resumed`.

use super::{Kind, begin, put};
use crate::bytes::{Cursor, Short};

/// The user paused or resumed the recording, at the time of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PauseRecord {
    /// Whether events are recorded from now on.
    pub is_resumed: bool,
}

impl PauseRecord {
    /// Value of `losses.reason` when the recording pauses.
    pub const PAUSED: &str = "paused";
    /// Value of `losses.reason` when the recording resumes.
    pub const RESUMED: &str = "resumed";

    /// Returns the value of `losses.reason`.
    pub fn reason(self) -> &'static str {
        match self.is_resumed {
            true => PauseRecord::RESUMED,
            false => PauseRecord::PAUSED,
        }
    }

    /// The times between these spans of recorded time, first and last nanosecond each, in which nothing was recorded; in order.
    pub fn between(spans: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
        let recorded = PauseRecord::joined(spans);
        let pairs = recorded.iter().zip(recorded.iter().skip(1));
        pairs.map(|(one, next)| (one.1, next.0)).collect()
    }

    /// Joins ranges that overlap or touch, in the order of time.
    pub fn joined(mut ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
        ranges.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
        for (begin, end) in ranges {
            match joined.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((begin, end)),
            }
        }
        joined
    }

    /// Returns the payload.
    pub fn encode(self) -> Vec<u8> {
        let mut payload = begin(Kind::Pause);
        put(&mut payload, self.is_resumed.into());
        payload
    }

    /// Decodes the part after the head.
    pub fn decode(mut body: Cursor<'_>) -> Result<PauseRecord, Short> {
        Ok(PauseRecord {
            is_resumed: body.u32()? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NATIVE, open};

    #[test]
    fn spans_that_overlap_or_touch_are_one() {
        let spans = vec![(50, 60), (0, 10), (5, 20), (20, 30)];
        assert_eq!(PauseRecord::joined(spans.clone()), [(0, 30), (50, 60)]);
        assert_eq!(PauseRecord::between(spans), [(30, 50)]);
    }

    #[test]
    fn encoding_round_trips() {
        for is_resumed in [false, true] {
            let record = PauseRecord { is_resumed };
            let payload = record.encode();
            let (kind, body) = open(&payload, NATIVE).unwrap();
            assert_eq!(Kind::of_number(kind), Some(Kind::Pause));
            assert_eq!(PauseRecord::decode(body), Ok(record));
            let (_, body) = open(&payload[..11], NATIVE).unwrap();
            assert!(PauseRecord::decode(body).is_err());
        }
    }
}
