//! The value of a counter.
//!
//! ```text
//! u32 flags (bit 0: values; bit 1: CPU; bit 2: thread), i32 cpu, i32 tid, u32 0, u64 since, u64 value, u64 enabled, u64 running,
//! text event, text unit, text comm, text cgroup, text error
//! ```

use super::{Kind, begin, put, put_text, text};
use crate::bytes::{Cursor, Short};
use crate::event::{Counted, CounterValue, time_of};

const HAS_VALUES: u32 = 1;
const HAS_CPU: u32 = 2;
const HAS_TID: u32 = 4;

/// The value of a counter; the record has the time of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountRecord<'a>(pub CounterValue<'a>);

impl<'a> CountRecord<'a> {
    /// Returns the payload.
    pub fn encode(&self) -> Vec<u8> {
        let value = &self.0;
        let mut payload = begin(Kind::Count);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(value.counted.is_some(), HAS_VALUES)
            | flag(value.cpu.is_some(), HAS_CPU)
            | flag(value.tid.is_some(), HAS_TID);
        put(&mut payload, flags);
        put(&mut payload, value.cpu.unwrap_or_default());
        payload.extend(value.tid.unwrap_or_default().to_ne_bytes());
        put(&mut payload, 0);
        let counted = value.counted.unwrap_or_default();
        let since = value.since.and_then(|since| u64::try_from(since).ok());
        for number in [
            since.unwrap_or_default(),
            counted.value,
            counted.enabled,
            counted.running,
        ] {
            payload.extend(number.to_ne_bytes());
        }
        for words in [
            value.event,
            value.unit,
            value.comm,
            value.cgroup,
            value.error,
        ] {
            put_text(&mut payload, words);
        }
        payload
    }

    /// Decodes the part after the head. The result has no end of the period.
    pub fn decode(mut body: Cursor<'a>) -> Result<CountRecord<'a>, Short> {
        let flags = body.u32()?;
        let (cpu, tid) = (body.u32()?, body.u32()?);
        body.u32()?;
        let since = body.u64()?;
        let counted = Counted {
            value: body.u64()?,
            enabled: body.u64()?,
            running: body.u64()?,
        };
        Ok(CountRecord(CounterValue {
            since: Some(time_of(since)),
            time: None,
            event: text(&mut body)?,
            unit: text(&mut body)?,
            counted: (flags & HAS_VALUES != 0).then_some(counted),
            cpu: (flags & HAS_CPU != 0).then_some(cpu),
            tid: (flags & HAS_TID != 0).then_some(tid.cast_signed()),
            comm: text(&mut body)?,
            cgroup: text(&mut body)?,
            error: text(&mut body)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NATIVE, open};

    #[test]
    fn encoding_round_trips() {
        let value = CounterValue {
            since: Some(7),
            event: b"cycles:u",
            unit: b"",
            counted: Some(Counted {
                value: 1 << 40,
                enabled: 9,
                running: 3,
            }),
            cpu: Some(3),
            tid: Some(-1),
            comm: b"sh",
            ..CounterValue::default()
        };
        let unsupported = CounterValue {
            since: Some(0),
            event: b"cycles",
            error: b"not supported",
            ..CounterValue::default()
        };
        for value in [value, unsupported] {
            let record = CountRecord(value);
            let payload = record.encode();
            let (kind, body) = open(&payload, NATIVE).unwrap();
            assert_eq!(Kind::of_number(kind), Some(Kind::Count));
            assert_eq!(CountRecord::decode(body), Ok(record));
            for length in 8..payload.len() {
                let (_, body) = open(&payload[..length], NATIVE).unwrap();
                assert!(CountRecord::decode(body).is_err(), "{length}");
            }
        }
    }
}
