//! What programs in the kernel summed up, as records: samples of a `perfquet:…` event, as if a program had written them.
//!
//! So the journal holds all of a recording, in the order of its time, and one reader reads it
//! (formats/events/src/wire/ has the layout).

use perfquet_events::event::{Action, Bucket};
use perfquet_events::wire::{AggregateRecord, LossRecord};

use super::record::{Records, kind};

/// One key of an aggregation.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Row {
    /// The key, part by part, without stacks.
    pub(crate) keys: Vec<Vec<u8>>,
    /// Number of the kernel's stack; 0: none.
    pub(crate) kernel_stack: u64,
    /// Number of the user's stack; 0: none.
    pub(crate) user_stack: u64,
    /// `None` for distributions.
    pub(crate) value: Option<f64>,
    /// Of a distribution, in order.
    pub(crate) bars: Vec<Bucket>,
}

/// Builds such records.
pub(crate) struct Told {
    records: Records,
    /// Of the event that they are samples of.
    id: u64,
    time: u64,
    /// Number of the printout.
    printing: u32,
}

impl Told {
    /// Samples of the event with this id, at this time; the aggregates are the printout of this number.
    pub(crate) fn new(id: u64, time: u64, printing: u32) -> Told {
        Told {
            records: Records::new(),
            id,
            time,
            printing,
        }
    }

    /// Adds one key of an aggregation; `since` is the start of its period, `None` for the whole recording.
    pub(crate) fn aggregate(&mut self, name: &str, action: Action, row: &Row, since: Option<u64>) {
        let record = AggregateRecord {
            action: Some(action),
            continues: false,
            printing: self.printing,
            since,
            value: row.value,
            kernel_stack: row.kernel_stack,
            user_stack: row.user_stack,
            name: name.as_bytes(),
            keys: row.keys.iter().map(Vec::as_slice).collect(),
            bars: row.bars.clone(),
        };
        record.encode(|payload| self.sample(payload));
    }

    /// Adds a loss.
    pub(crate) fn loss(&mut self, count: u64, reason: &str) {
        let reason = reason.as_bytes();
        self.sample(LossRecord { count, reason }.encode());
    }

    /// The records.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.records.into_bytes()
    }

    fn sample(&mut self, payload: Vec<u8>) {
        let mut raw = payload;
        // As the kernel pads it: with the number of its bytes in front it ends at a multiple of 8.
        raw.resize((raw.len() + 4).next_multiple_of(8) - 4, 0);
        let (id, time) = (self.id, self.time);
        self.records.add(kind::SAMPLE, 0, |body| {
            body.u64(id);
            // Reported by the recorder, for no thread and no CPU.
            body.i32(-1);
            body.i32(-1);
            body.u64(time);
            body.i32(-1);
            body.u32(0);
            body.u32(raw.len() as u32);
            body.raw(&raw);
        });
    }
}
