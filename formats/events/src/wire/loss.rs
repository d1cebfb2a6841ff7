//! A loss: `u64 count, text reason`.

use super::{Kind, begin, put_text, text};
use crate::bytes::{Cursor, Short};

/// A loss counted by a BPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossRecord<'a> {
    /// Number of lost items.
    pub count: u64,
    /// Value of `losses.reason`.
    pub reason: &'a [u8],
}

impl<'a> LossRecord<'a> {
    /// Returns the payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = begin(Kind::Loss);
        payload.extend(self.count.to_ne_bytes());
        put_text(&mut payload, self.reason);
        payload
    }

    /// Decodes the part after the head.
    pub fn decode(mut body: Cursor<'a>) -> Result<LossRecord<'a>, Short> {
        Ok(LossRecord {
            count: body.u64()?,
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
        let loss = LossRecord {
            count: u64::MAX,
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
