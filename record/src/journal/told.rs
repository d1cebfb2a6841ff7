//! What programs in the kernel summed up, as records: samples of a `perfquet:…` event, as if a program had written them.
//!
//! So the journal holds all of a recording, in the order of its time, and one reader reads it
//! (formats/readers/src/perf_data/own.rs has the layout).

use perfquet_ebpf::layout::{Action, RECORD_AGGREGATE, RECORD_LOSS};

use super::record::{Records, kind};

/// Bars in one record: of 64 KiB they leave some for keys.
const BARS_PER_RECORD: usize = 1024;
/// Bytes of a text in a key or a name: programs cut them far below.
const TEXT_BYTES: usize = 4096;

const HAS_VALUE: u32 = 1;
const CONTINUES: u32 = 2;

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
    pub(crate) bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bar {
    /// First value; `None`: open below.
    pub(crate) low: Option<i64>,
    /// First value above; `None`: open above.
    pub(crate) high: Option<i64>,
    /// How many.
    pub(crate) count: u64,
}

/// Builds such records.
pub(crate) struct Told {
    records: Records,
    /// Of the event that they are samples of.
    id: u64,
    time: u64,
}

impl Told {
    /// Samples of the event with this id, at this time.
    pub(crate) fn new(id: u64, time: u64) -> Told {
        Told {
            records: Records::new(),
            id,
            time,
        }
    }

    /// Adds one key of an aggregation.
    pub(crate) fn aggregate(&mut self, name: &str, action: Action, row: &Row) {
        let mut bars = row.bars.chunks(BARS_PER_RECORD).peekable();
        loop {
            let chunk = bars.next().unwrap_or_default();
            let has_more = bars.peek().is_some();
            self.sample(|body| {
                let mut flags = 0;
                if row.value.is_some() {
                    flags |= HAS_VALUE;
                }
                if has_more {
                    flags |= CONTINUES;
                }
                put(body, RECORD_AGGREGATE);
                put(body, 0);
                put(body, action as u32);
                put(body, flags);
                put(body, 0); // the only printing
                put(body, chunk.len() as u32);
                body.extend(row.value.unwrap_or_default().to_ne_bytes());
                body.extend(row.kernel_stack.to_ne_bytes());
                body.extend(row.user_stack.to_ne_bytes());
                put_text(body, name.as_bytes());
                put(body, row.keys.len() as u32);
                for key in &row.keys {
                    put_text(body, key);
                }
                for bar in chunk {
                    body.extend(bar.low.unwrap_or_default().to_ne_bytes());
                    body.extend(bar.high.unwrap_or_default().to_ne_bytes());
                    body.extend(bar.count.to_ne_bytes());
                    let open = u64::from(bar.low.is_none()) | u64::from(bar.high.is_none()) << 1;
                    body.extend(open.to_ne_bytes());
                }
            });
            if !has_more {
                return;
            }
        }
    }

    /// Adds a loss.
    pub(crate) fn loss(&mut self, count: u64, reason: &str) {
        self.sample(|body| {
            put(body, RECORD_LOSS);
            put(body, 0);
            body.extend(count.to_ne_bytes());
            put_text(body, reason.as_bytes());
        });
    }

    /// The records.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.records.into_bytes()
    }

    fn sample(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut raw = Vec::new();
        fill(&mut raw);
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

fn put(body: &mut Vec<u8>, number: u32) {
    body.extend(number.to_ne_bytes());
}

fn put_text(body: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(TEXT_BYTES)];
    put(body, text.len() as u32);
    body.extend(text);
}
