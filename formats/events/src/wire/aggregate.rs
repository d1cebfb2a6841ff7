//! An aggregate: one key of an aggregation, with its value or the bars of its distribution.
//!
//! ```text
//! u32 action, u32 flags (bit 0: a value; bit 1: more bars follow in the next record; bit 2: since; bit 3: the value is an i64), u32 printing, u32 bars,
//! f64 value, u64 kernel stack, u64 user stack, u64 since (if flagged), text name, u32 keys, text key…, then the bars, each
//! i64 low, i64 high, i64 count, u64 open (bit 0: below, bit 1: above)
//! ```

use super::{Kind, begin, put, put_text, text};
use crate::bytes::{Cursor, Short};
use crate::event::{Action, AggregateValue, Bucket};

/// Bars per record; leaves room for the keys in its 64 KiB.
const BARS_PER_RECORD: usize = 1024;

const HAS_VALUE: u32 = 1;
const CONTINUES: u32 = 2;
const HAS_SINCE: u32 = 4;
/// Only of integers that an f64 would round, so that older readers read the others.
const IS_INT: u32 = 8;
/// Largest integer up to which an f64 has all of them.
const F64_INTS: u64 = 1 << 53;
const OPEN_BELOW: u64 = 1;
const OPEN_ABOVE: u64 = 2;

/// By number, in these records and in ebpf/src/aggregate.h.
const ACTIONS: [Action; 9] = [
    Action::Count,
    Action::Sum,
    Action::Avg,
    Action::Min,
    Action::Max,
    Action::Stddev,
    Action::Quantize,
    Action::Lquantize,
    Action::Llquantize,
];

impl Action {
    /// Returns the number of the action in records and BPF programs.
    pub fn number(self) -> u32 {
        let place = ACTIONS.iter().position(|action| *action == self);
        place.map_or(u32::MAX, |place| place as u32)
    }

    /// Returns the action with this number.
    pub fn of_number(number: u32) -> Option<Action> {
        ACTIONS.get(usize::try_from(number).ok()?).copied()
    }
}

/// One key of an aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateRecord<'a> {
    /// Function of the aggregation; `None` if it is from a later version.
    pub action: Option<Action>,
    /// More bars of this key follow in the next record.
    pub continues: bool,
    /// Number of the printout, from 0.
    pub printing: u32,
    /// Start of the period of the value; `None`: the whole recording until now.
    pub since: Option<u64>,
    /// The value; `None` for distributions.
    pub value: Option<AggregateValue>,
    /// ID of the kernel stack in the key; 0: none.
    pub kernel_stack: u64,
    /// ID of the user stack in the key; 0: none.
    pub user_stack: u64,
    /// Name of the aggregation.
    pub name: &'a [u8],
    /// Parts of the key, without stacks.
    pub keys: Vec<&'a [u8]>,
    /// The bars of a distribution, in order.
    pub bars: Vec<Bucket>,
}

impl<'a> AggregateRecord<'a> {
    /// Passes each payload to `each`: one, or several if there are many bars.
    pub fn encode(&self, mut each: impl FnMut(Vec<u8>)) {
        let mut bars = self.bars.chunks(BARS_PER_RECORD).peekable();
        loop {
            let chunk = bars.next().unwrap_or_default();
            let has_more = bars.peek().is_some();
            each(self.payload(chunk, has_more || self.continues));
            if !has_more {
                return;
            }
        }
    }

    fn payload(&self, bars: &[Bucket], continues: bool) -> Vec<u8> {
        let mut payload = begin(Kind::Aggregate);
        let has_value = if self.value.is_some() { HAS_VALUE } else { 0 };
        let continues = if continues { CONTINUES } else { 0 };
        put(&mut payload, self.action.map_or(u32::MAX, Action::number));
        let has_since = if self.since.is_some() { HAS_SINCE } else { 0 };
        let (bits, is_int) = match self.value {
            Some(AggregateValue::Int(value)) if value.unsigned_abs() > F64_INTS => {
                (value.cast_unsigned(), IS_INT)
            }
            value => (value.map_or(0.0, AggregateValue::as_f64).to_bits(), 0),
        };
        put(&mut payload, has_value | continues | has_since | is_int);
        put(&mut payload, self.printing);
        put(&mut payload, bars.len() as u32);
        payload.extend(bits.to_ne_bytes());
        payload.extend(self.kernel_stack.to_ne_bytes());
        payload.extend(self.user_stack.to_ne_bytes());
        payload.extend(self.since.iter().flat_map(|since| since.to_ne_bytes()));
        put_text(&mut payload, self.name);
        put(&mut payload, self.keys.len() as u32);
        self.keys.iter().for_each(|key| put_text(&mut payload, key));
        for bar in bars {
            let below = if bar.low.is_none() { OPEN_BELOW } else { 0 };
            let above = if bar.high.is_none() { OPEN_ABOVE } else { 0 };
            payload.extend(bar.low.unwrap_or_default().to_ne_bytes());
            payload.extend(bar.high.unwrap_or_default().to_ne_bytes());
            payload.extend(bar.count.to_ne_bytes());
            payload.extend((below | above).to_ne_bytes());
        }
        payload
    }

    /// Decodes the part after the head.
    pub fn decode(mut body: Cursor<'a>) -> Result<AggregateRecord<'a>, Short> {
        let (action, flags, printing) = (body.u32()?, body.u32()?, body.u32()?);
        let bar_count = body.u32()?;
        let value = value_of(body.u64()?, flags);
        let (kernel_stack, user_stack) = (body.u64()?, body.u64()?);
        let has_since = flags & HAS_SINCE != 0;
        let since = has_since.then(|| body.u64()).transpose()?;
        let name = text(&mut body)?;
        let key_count = body.u32()?;
        // Each key has at least four bytes, so a damaged count ends at the end of the record.
        let mut keys = Vec::new();
        for _ in 0..key_count {
            keys.push(text(&mut body)?);
        }
        let mut bars = Vec::new();
        for _ in 0..bar_count {
            let (low, high, count, open) = (body.i64()?, body.i64()?, body.i64()?, body.u64()?);
            bars.push(Bucket {
                low: (open & OPEN_BELOW == 0).then_some(low),
                high: (open & OPEN_ABOVE == 0).then_some(high),
                count,
            });
        }
        Ok(AggregateRecord {
            action: Action::of_number(action),
            continues: flags & CONTINUES != 0,
            printing,
            since,
            value: (flags & HAS_VALUE != 0).then_some(value),
            kernel_stack,
            user_stack,
            name,
            keys,
            bars,
        })
    }
}

fn value_of(bits: u64, flags: u32) -> AggregateValue {
    if flags & IS_INT != 0 {
        return AggregateValue::Int(bits.cast_signed());
    }
    let value = f64::from_bits(bits);
    match value.fract() == 0.0 && value.abs() <= F64_INTS as f64 {
        true => AggregateValue::Int(value as i64),
        false => AggregateValue::Float(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Endian;
    use crate::wire::{NATIVE, bpf_source, open};

    #[test]
    fn action_numbers_match_the_bpf_program() {
        let Some(source) = bpf_source("aggregate.h") else {
            return;
        };
        for action in ACTIONS {
            let name = action.as_str().to_uppercase();
            let line = format!("#define ACTION_{name} {}\n", action.number());
            assert!(source.contains(&line), "{line}");
            assert_eq!(Action::of_number(action.number()), Some(action));
        }
        assert_eq!(source.matches("#define ACTION_").count(), ACTIONS.len());
        assert_eq!(Action::of_number(ACTIONS.len() as u32), None);
    }

    fn payloads(record: &AggregateRecord<'_>) -> Vec<Vec<u8>> {
        let mut payloads = Vec::new();
        record.encode(|payload| payloads.push(payload));
        payloads
    }

    fn decode(payload: &[u8]) -> Result<AggregateRecord<'_>, Short> {
        let (kind, body) = open(payload, NATIVE)?;
        assert_eq!(Kind::of_number(kind), Some(Kind::Aggregate));
        AggregateRecord::decode(body)
    }

    fn counted() -> AggregateRecord<'static> {
        AggregateRecord {
            action: Some(Action::Stddev),
            continues: false,
            printing: 2,
            since: None,
            value: Some(AggregateValue::Float(-0.5)),
            kernel_stack: 7,
            user_stack: 1 << 40,
            name: b"read",
            keys: vec![b"dd", b"", b"17"],
            bars: Vec::new(),
        }
    }

    #[test]
    fn encoding_round_trips() {
        let distribution = AggregateRecord {
            action: Some(Action::Lquantize),
            value: None,
            keys: Vec::new(),
            bars: vec![
                Bucket {
                    low: None,
                    high: Some(-10),
                    count: 1,
                },
                Bucket {
                    low: Some(10),
                    high: None,
                    count: i64::MAX,
                },
            ],
            ..counted()
        };
        let unknown = AggregateRecord {
            action: None,
            continues: true,
            ..counted()
        };
        let with = |value| AggregateRecord {
            value: Some(AggregateValue::Int(value)),
            ..counted()
        };
        let large = with((1 << 53) + 1);
        for record in [
            counted(),
            distribution,
            unknown,
            with(-7),
            large,
            with(i64::MIN),
        ] {
            let payloads = payloads(&record);
            assert_eq!(payloads.len(), 1);
            assert_eq!(decode(&payloads[0]), Ok(record));
            for length in 0..payloads[0].len() {
                assert!(decode(&payloads[0][..length]).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn journals_of_older_recorders_are_read() {
        let payload = b"\x02\0\0\0\0\0\0\0 \x06\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0 \
            \0\0\0\0\0\0\0\0 \x07\0\0\0\0\0\0\0 \0\0\0\0\0\0\0\0 \
            \x04\0\0\0read \x01\0\0\0\x02\0\0\0dd \
            \x08\0\0\0\0\0\0\0 \0\0\0\0\0\0\0\0 \x2a\0\0\0\0\0\0\0 \x02\0\0\0\0\0\0\0";
        let payload: Vec<u8> = payload
            .iter()
            .copied()
            .filter(|byte| *byte != b' ')
            .collect();
        let (_, body) = open(&payload, Endian::Little).unwrap();
        let expected = AggregateRecord {
            action: Some(Action::Quantize),
            continues: true,
            printing: 0,
            since: None,
            value: None,
            kernel_stack: 7,
            user_stack: 0,
            name: b"read",
            keys: vec![b"dd"],
            bars: vec![Bucket {
                low: Some(8),
                high: None,
                count: 42,
            }],
        };
        assert_eq!(AggregateRecord::decode(body), Ok(expected));
    }

    #[test]
    fn bars_continue_in_the_next_record() {
        let bar = |low| Bucket {
            low: Some(low),
            high: Some(low + 1),
            count: low,
        };
        let record = AggregateRecord {
            bars: (0..2 * BARS_PER_RECORD as i64 + 1).map(bar).collect(),
            ..counted()
        };
        let payloads = payloads(&record);
        let records: Vec<_> = payloads
            .iter()
            .map(|payload| decode(payload).unwrap())
            .collect();
        let continues: Vec<bool> = records.iter().map(|record| record.continues).collect();
        assert_eq!(continues, [true, true, false]);
        let bars = records.iter().flat_map(|record| &record.bars);
        assert!(bars.eq(&record.bars));
    }
}
