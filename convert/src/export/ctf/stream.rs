//! Stream files: packets of the events of one CPU, in time order.
//!
//! ```text
//! magic, stream ID | begin, end, sizes in bits, discarded events, CPU | event, event, …
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Size of a packet's events.
const PACKET_BYTES: usize = 256 << 10;
/// Maximum number of streams of a CPU. Each must be in time order, so rows that arrive late go to another one.
const MOST_STREAMS: usize = 256;

const MAGIC: u32 = 0xC1FC_1FC1;
/// Bytes before the events of a packet.
const HEAD_BYTES: usize = 8 + 44;

/// All streams.
pub(super) struct Streams {
    folder: PathBuf,
    streams: HashMap<(Option<i32>, usize), Stream>,
    losses: Losses,
}

/// Losses of each CPU: time, and total number of events lost until then.
pub(super) type Losses = HashMap<Option<i32>, Vec<(u64, u64)>>;

#[derive(Default)]
struct Stream {
    events: Vec<u8>,
    begin: u64,
    end: u64,
}

impl Streams {
    pub(super) fn new(folder: &Path, losses: Losses) -> Streams {
        Streams {
            folder: folder.to_owned(),
            streams: HashMap::new(),
            losses,
        }
    }

    /// Adds an event. Returns false if it is too late for all streams of its CPU.
    pub(super) fn add(&mut self, cpu: Option<i32>, time: u64, event: &[u8]) -> Result<bool> {
        for number in 0..MOST_STREAMS {
            let stream = self.streams.entry((cpu, number)).or_default();
            if stream.end > time {
                continue;
            }
            if stream.events.is_empty() {
                stream.begin = time;
            }
            stream.end = time;
            stream.events.extend_from_slice(event);
            if stream.events.len() >= PACKET_BYTES {
                self.write_packet(cpu, number)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes the last packets. A CPU that has only losses gets an empty packet, so that readers report the loss.
    pub(super) fn finish(mut self) -> Result<()> {
        for cpu in self.losses.keys().copied().collect::<Vec<_>>() {
            self.streams.entry((cpu, 0)).or_default();
        }
        let mut keys: Vec<(Option<i32>, usize)> = self.streams.keys().copied().collect();
        keys.sort_unstable();
        for (cpu, number) in keys {
            self.finish_losses(cpu, number);
            self.write_packet(cpu, number)?;
        }
        Ok(())
    }

    /// Adds losses after the last event to the last packet.
    fn finish_losses(&mut self, cpu: Option<i32>, number: usize) {
        let last = self.losses.get(&cpu).and_then(|losses| losses.last());
        if let (Some((time, _)), Some(stream), 0) =
            (last, self.streams.get_mut(&(cpu, number)), number)
        {
            if stream.events.is_empty() {
                stream.begin = stream.end.max(stream.begin);
            }
            stream.end = stream.end.max(*time);
        }
    }

    fn write_packet(&mut self, cpu: Option<i32>, number: usize) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&(cpu, number)) else {
            return Ok(());
        };
        let losses = self.losses.get(&cpu).filter(|_| number == 0);
        let lost = losses.map_or(0, |losses| {
            let until = losses.partition_point(|(time, _)| *time <= stream.end);
            until.checked_sub(1).map_or(0, |last| losses[last].1)
        });
        if stream.events.is_empty() && lost == 0 {
            return Ok(());
        }
        let bits = (HEAD_BYTES + stream.events.len()) as u64 * 8;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&0_u32.to_le_bytes());
        for number in [stream.begin, stream.end, bits, bits, lost] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(&cpu.map_or(u32::MAX, i32::cast_unsigned).to_le_bytes());
        let name = match (cpu, number) {
            (Some(cpu), 0) => format!("cpu_{cpu}"),
            (Some(cpu), number) => format!("cpu_{cpu}_late_{number}"),
            (None, 0) => "no_cpu".to_owned(),
            (None, number) => format!("no_cpu_late_{number}"),
        };
        let path = self.folder.join(name);
        // Opened for each packet, because there may be more CPUs than a process may have open files.
        let write = || -> std::io::Result<()> {
            let mut file = File::options().create(true).append(true).open(&path)?;
            file.write_all(&head)?;
            file.write_all(&stream.events)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        stream.events.clear();
        Ok(())
    }
}
