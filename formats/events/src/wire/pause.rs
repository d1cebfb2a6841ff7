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
    pub fn between(mut spans: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
        spans.sort_unstable();
        let mut pauses = Vec::new();
        let mut recorded = None;
        for (first, last) in spans {
            if let Some(until) = recorded.filter(|until| *until < first) {
                pauses.push((until, first));
            }
            recorded = recorded.max(Some(last));
        }
        pauses
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
