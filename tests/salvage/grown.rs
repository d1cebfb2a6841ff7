//! Larger recordings, built from golden files: the records of a perf.data many times, each time later; the same records
//! in a pipe, compressed, with hardware trace between them; a trace.dat with any number of pages.
//!
//! Damage loses part of a page or a packet, whatever the file's size: in files of a few pages, that would be most of
//! the file.

use perfquet_events::bytes::Endian;

use crate::test_file::{ENTRY, EXIT, PRINT, TestFile, WAKEUP};

const IDENTIFIER: u64 = 1 << 16;

/// A perf.data in file mode, little-endian.
pub(crate) struct File<'b> {
    bytes: &'b [u8],
    data: usize,
    data_end: usize,
    sample_type: u64,
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

pub(crate) fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(0u16.to_le_bytes());
    bytes.extend((body.len() as u16 + 8).to_le_bytes());
    bytes.extend(body);
    bytes
}

impl<'b> File<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> File<'b> {
        let data = word(bytes, 40) as usize;
        File {
            bytes,
            data,
            data_end: data + word(bytes, 48) as usize,
            sample_type: word(bytes, word(bytes, 24) as usize + 24),
        }
    }

    fn records(&self) -> Vec<&'b [u8]> {
        let mut records = Vec::new();
        let mut offset = self.data;
        while offset < self.data_end {
            let size = u16::from_le_bytes([self.bytes[offset + 6], self.bytes[offset + 7]]);
            records.push(&self.bytes[offset..offset + usize::from(size)]);
            offset += usize::from(size);
        }
        records
    }

    /// Offset of the time in a record; `None` if it has none, or was synthesized at the start.
    fn time_at(&self, record: &[u8]) -> Option<usize> {
        let members = |bits: u64| 8 * (self.sample_type & bits).count_ones() as usize;
        let place = match record[0] {
            9 => 8 + members(IDENTIFIER | 1 | 2),
            1..=22 => record.len() - members(IDENTIFIER | 4 | 1 << 6 | 1 << 9 | 1 << 7),
            _ => return None,
        };
        (word(record, place) != 0).then_some(place)
    }

    /// The records `copies` times, each copy a second later; those synthesized at the start only once. Each copy is a
    /// round.
    fn repeated(&self, copies: u64) -> Vec<Vec<u8>> {
        let records = self.records();
        let mut repeated = Vec::new();
        for copy in 0..copies {
            for &record in &records {
                let Some(place) = self.time_at(record) else {
                    if copy == 0 || record[0] == 68 {
                        repeated.push(record.to_vec());
                    }
                    continue;
                };
                let mut later = record.to_vec();
                let time = word(record, place) + copy * 1_000_000_000;
                later[place..place + 8].copy_from_slice(&time.to_le_bytes());
                // The last copy ends the tasks.
                if record[0] != 4 || copy + 1 == copies {
                    repeated.push(later);
                }
            }
            repeated.push(record_of_round());
        }
        repeated
    }

    /// A file with these records in place of its own.
    fn with(&self, records: &[u8]) -> Vec<u8> {
        let mut made = self.bytes[..self.data].to_vec();
        made[48..56].copy_from_slice(&(records.len() as u64).to_le_bytes());
        made.extend(records);
        // The index after the records has absolute offsets.
        let mut after = self.bytes[self.data_end..].to_vec();
        let features: u32 = self.bytes[72..104]
            .iter()
            .map(|byte| byte.count_ones())
            .sum();
        for index in 0..features as usize {
            let section = word(&after, index * 16) - self.data_end as u64 + made.len() as u64;
            after[index * 16..index * 16 + 8].copy_from_slice(&section.to_le_bytes());
        }
        made.extend(after);
        made
    }

    /// A larger file of the same kind.
    pub(crate) fn grown(&self, copies: u64) -> Vec<u8> {
        self.with(&self.repeated(copies).concat())
    }

    /// The output of `perf record -o -`: the attrs as records, then the same records.
    pub(crate) fn as_pipe(&self, copies: u64) -> Vec<u8> {
        let file = self.bytes;
        let (entry, attrs) = (word(file, 16) as usize, word(file, 24) as usize);
        let mut pipe = file[..8].to_vec();
        pipe.extend(16u64.to_le_bytes());
        for place in (attrs..attrs + word(file, 32) as usize).step_by(entry) {
            let section = place + entry - 16;
            let ids = word(file, section) as usize;
            let ids = &file[ids..ids + word(file, section + 8) as usize];
            pipe.extend(record(64, &[&file[place..section], ids].concat()));
        }
        pipe.extend(self.repeated(copies).concat());
        pipe
    }

    /// The records compressed: one stream, cut into records at flushes.
    pub(crate) fn packed(&self, copies: u64) -> Vec<u8> {
        use zstd::stream::raw::{Encoder, InBuffer, Operation as _, OutBuffer};
        let mut encoder = Encoder::new(1).unwrap();
        let mut records = Vec::new();
        for round in self.repeated(copies).chunks(500) {
            let plain = round.concat();
            let mut input = InBuffer::around(&plain);
            let mut room = vec![0; plain.len() + (64 << 10)];
            let mut output = OutBuffer::around(&mut room[..]);
            while input.pos() < plain.len() {
                encoder.run(&mut input, &mut output).unwrap();
            }
            while encoder.flush(&mut output).unwrap() > 0 {}
            let length = output.pos();
            for piece in room[..length].chunks(60_000) {
                let padded = piece.len().next_multiple_of(8);
                let mut body = (piece.len() as u64).to_le_bytes().to_vec();
                body.extend(piece);
                body.resize(8 + padded, 0);
                records.extend(record(83, &body));
            }
        }
        self.with(&records)
    }

    /// The records with hardware trace between them: buffers of bytes that look like anything.
    pub(crate) fn with_aux(&self, copies: u64) -> Vec<u8> {
        let info = [&1u64.to_le_bytes()[..], &[0; 16]].concat();
        let mut records = record(70, &info);
        for (number, bytes) in self.repeated(copies).iter().enumerate() {
            records.extend(bytes);
            if number % 200 == 199 {
                let noise = (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8);
                let buffer: Vec<u8> = noise.collect();
                // u64 size, offset, reference; u32 idx, tid, cpu, reserved
                let words = [buffer.len() as u64, 0, 0, 0, 0].map(u64::to_le_bytes);
                records.extend(record(71, &words.concat()));
                records.extend(buffer);
            }
        }
        self.with(&records)
    }
}

fn record_of_round() -> Vec<u8> {
    record(68, &[])
}

/// A trace.dat of two CPUs with this many pages each: wake-ups, calls, strings.
pub(crate) fn trace_dat(endian: Endian, pages: usize) -> TestFile {
    let mut made = TestFile::new(endian, 8);
    let mut cpus = Vec::new();
    for cpu in 0..2u32 {
        let mut filled = Vec::new();
        for page in 0..pages as u64 {
            let mut events = Vec::new();
            let mut bytes = 0;
            for number in 0.. {
                // A thread runs on one CPU at a time.
                let tid = 7 + 3 * cpu as i32 + number % 3;
                let payload = match number % 4 {
                    0 => {
                        let mut comm = b"worker".to_vec();
                        comm.resize(16, 0);
                        made.payload(WAKEUP, 0, tid, &[&comm, &made.u32(page as u32)])
                    }
                    1 => made.payload(ENTRY, 0, tid, &[&made.long(0x8000_1000), &made.u32(0)]),
                    2 => {
                        let words = [0x8000_1000, 0].map(|word| made.long(word)).concat();
                        let times =
                            [made.u32(0), made.u32(0), made.u64(100), made.u64(350)].concat();
                        made.payload(EXIT, 0, tid, &[&words, &times])
                    }
                    _ => {
                        let text = format!("page {page} event {number}\n\0");
                        made.payload(PRINT, 0, tid, &[&made.long(0x8000_1000), text.as_bytes()])
                    }
                };
                let event = made.event(100, &payload);
                if bytes + event.len() > 4000 {
                    break;
                }
                bytes += event.len();
                events.push(event);
            }
            let time = 1_000_000_000 + page * 1_000_000 + u64::from(cpu) * 37;
            filled.push(made.page(time, 0, &events));
        }
        cpus.push((cpu, filled));
    }
    made.buffers = vec![("", "local", cpus)];
    made
}
