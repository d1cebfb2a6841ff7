//! Writes aggregates and losses as records: samples of a `perfquet:…` event, like those that BPF programs write.
//!
//! So the journal contains the whole recording, in order of time, and needs one reader. formats/events/src/wire/ has the
//! layout.

use perfquet_events::event::{
    Action, AggregateValue, Bucket, CounterValue, KeptCode, ProcessState,
};
use perfquet_events::wire::{
    AggregateRecord, CodeRecord, CountRecord, FilesRecord, LossRecord, PauseRecord, ProcessRecord,
    RateRecord,
};

use super::record::{Records, kind};

/// One key of an aggregation.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Row {
    /// The key, part by part, without stacks.
    pub(crate) keys: Vec<Vec<u8>>,
    /// ID of the kernel stack; 0: none.
    pub(crate) kernel_stack: u64,
    /// ID of the user stack; 0: none.
    pub(crate) user_stack: u64,
    /// `None` for distributions.
    pub(crate) value: Option<AggregateValue>,
    /// Bars of a distribution, in order.
    pub(crate) bars: Vec<Bucket>,
}

/// Builder of the records.
pub(crate) struct OwnRecords {
    records: Records,
    /// ID of the event.
    id: u64,
    time: u64,
    /// Number of the printout.
    printing: u32,
}

impl OwnRecords {
    /// Creates a builder for samples of the event `id` at `time`; `printing` numbers the printout of aggregates.
    pub(crate) fn new(id: u64, time: u64, printing: u32) -> OwnRecords {
        OwnRecords {
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
        let (count, reason) = (Some(count), reason.as_bytes());
        self.sample(LossRecord { count, reason }.encode());
    }

    /// Adds the loss of all events from now on, of unknown number.
    pub(crate) fn early_end(&mut self) {
        self.loss_of_some(LossRecord::ENDED_EARLY);
    }

    /// Adds a loss of unknown number.
    pub(crate) fn loss_of_some(&mut self, reason: &str) {
        let (count, reason) = (None, reason.as_bytes());
        self.sample(LossRecord { count, reason }.encode());
    }

    /// Adds the value of a counter, whose period ends now.
    pub(crate) fn count(&mut self, value: &CounterValue<'_>) {
        self.sample(CountRecord(*value).encode());
    }

    /// Adds the beginning or the end of a pause.
    pub(crate) fn pause(&mut self, is_resumed: bool) {
        self.sample(PauseRecord { is_resumed }.encode());
    }

    /// Adds the frequency at which an event is sampled from now on.
    pub(crate) fn rate(&mut self, event: &str, frequency_hz: u64) {
        let event = event.as_bytes();
        let record = RateRecord {
            frequency_hz,
            event,
        };
        self.sample(record.encode());
    }

    /// Adds the state of a process.
    pub(crate) fn process(&mut self, state: &ProcessState<'_>) {
        self.sample(ProcessRecord(*state).encode());
    }

    /// Adds open files of a process, at most 64 KiB of them.
    pub(crate) fn files(&mut self, pid: i32, files: &[(i32, Vec<u8>)]) {
        let files = files.iter().map(|(fd, path)| (*fd, path.as_slice()));
        let files = files.collect();
        self.sample(FilesRecord { pid, files }.encode());
    }

    /// Adds the code of a function, at most 48 KiB of it.
    pub(crate) fn code(&mut self, kept: &KeptCode<'_>) {
        self.sample(CodeRecord(*kept).encode());
    }

    /// Returns the records.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.records.into_bytes()
    }

    fn sample(&mut self, payload: Vec<u8>) {
        let mut raw = payload;
        // Padded like the kernel does: the u32 size and the payload together end at a multiple of 8.
        raw.resize((raw.len() + 4).next_multiple_of(8) - 4, 0);
        let (id, time) = (self.id, self.time);
        self.records.add(kind::SAMPLE, 0, |body| {
            body.u64(id);
            // No thread, no CPU: the record is the recorder's.
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
