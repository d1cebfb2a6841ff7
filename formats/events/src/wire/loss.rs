//! A loss: `u64 count, text reason`.

use super::{Kind, begin, put_text, text};
use crate::bytes::{Cursor, Short};

/// A loss counted by a BPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossRecord<'a> {
    /// Number of lost items, if known.
    pub count: Option<u64>,
    /// Value of `losses.reason`.
    pub reason: &'a [u8],
}

/// In place of a number that is unknown.
const UNKNOWN: u64 = u64::MAX;

impl<'a> LossRecord<'a> {
    /// Value of `losses.reason` where the journal could not be written to its end.
    pub const ENDED_EARLY: &'static str = "the recording ended early";

    /// Returns the payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = begin(Kind::Loss);
        payload.extend(self.count.unwrap_or(UNKNOWN).to_ne_bytes());
        put_text(&mut payload, self.reason);
        payload
    }

    /// Decodes the part after the head.
    pub fn decode(mut body: Cursor<'a>) -> Result<LossRecord<'a>, Short> {
        Ok(LossRecord {
            count: Some(body.u64()?).filter(|&count| count != UNKNOWN),
            reason: text(&mut body)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NATIVE, open};

    #[test]
    fn encoding_round_trips() {
        let unknown = LossRecord {
            count: None,
            reason: LossRecord::ENDED_EARLY.as_bytes(),
        };
        let payload = unknown.encode();
        let (_, body) = open(&payload, NATIVE).unwrap();
        assert_eq!(LossRecord::decode(body), Ok(unknown));
        let loss = LossRecord {
            count: Some(u64::MAX - 1),
            reason: b"no room in the map",
        };
        let payload = loss.encode();
        let (kind, body) = open(&payload, NATIVE).unwrap();
        assert_eq!(Kind::of_number(kind), Some(Kind::Loss));
        assert_eq!(LossRecord::decode(body), Ok(loss));
        for length in 8..payload.len() {
            let (_, body) = open(&payload[..length], NATIVE).unwrap();
            assert!(LossRecord::decode(body).is_err(), "{length}");
        }
    }
}
