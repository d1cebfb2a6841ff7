//! A changed sampling rate: `u64 frequency, text event`.

use super::{Kind, begin, put_text, text};
use crate::bytes::{Cursor, Short};

/// The recorder samples an event at another frequency, from the time of the record on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateRecord<'a> {
    /// Samples per second.
    pub frequency_hz: u64,
    /// Name of the event.
    pub event: &'a [u8],
}

impl<'a> RateRecord<'a> {
    /// Returns the payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = begin(Kind::Rate);
        payload.extend(self.frequency_hz.to_ne_bytes());
        put_text(&mut payload, self.event);
        payload
    }

    /// Decodes the part after the head.
    pub fn decode(mut body: Cursor<'a>) -> Result<RateRecord<'a>, Short> {
        Ok(RateRecord {
            frequency_hz: body.u64()?,
            event: text(&mut body)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NATIVE, open};

    #[test]
    fn encoding_round_trips() {
        let rate = RateRecord {
            frequency_hz: 250,
            event: b"cpu-clock",
        };
        let payload = rate.encode();
        let (kind, body) = open(&payload, NATIVE).unwrap();
        assert_eq!(Kind::of_number(kind), Some(Kind::Rate));
        assert_eq!(RateRecord::decode(body), Ok(rate));
        for length in 8..payload.len() {
            let (_, body) = open(&payload[..length], NATIVE).unwrap();
            assert!(RateRecord::decode(body).is_err(), "{length}");
        }
    }
}
