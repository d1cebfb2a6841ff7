//! Records as they come out of a pipe, or out of a journal that still grows.
//!
//! Nothing is known of what follows, so nothing is mapped: a window moves over the stream, and records that have to
//! wait for their turn are copied into the queue's arena. Events go out at each FINISHED_ROUND, while the recorder still
//! writes the next.

use std::io::BufRead;

use crate::event::Place;
use crate::perf_data::read::{EXTRA_BYTES_MAX, Session};
use crate::perf_data::record::{HEADER_BYTES, RecordHeader, kind};
use crate::perf_data::resync::next_record;
use crate::{Error, Input};

/// Bytes looked through for the next record behind a damage before the older ones are given up.
const SEARCH_BYTES: usize = 1 << 20;

/// The bytes of a stream that have been read and not yet been used.
struct Window<'i> {
    input: &'i mut Input,
    bytes: Vec<u8>,
    /// Used up of `bytes`.
    start: usize,
    /// Offset in the input of `bytes[start]`.
    offset: u64,
    /// Why reading ended before the input did.
    error: Option<std::io::Error>,
}

impl Window<'_> {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Reads until so many bytes are there. `false`: the input ends before.
    fn fill(&mut self, count: usize) -> bool {
        while self.rest().len() < count {
            if self.start > 0 {
                self.bytes.drain(..self.start);
                self.start = 0;
            }
            match self.input.fill_buf() {
                Ok([]) => return false,
                Ok(read) => {
                    self.bytes.extend_from_slice(read);
                    let length = read.len();
                    self.input.consume(length);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    return false;
                }
            }
        }
        true
    }

    fn consume(&mut self, count: usize) {
        let count = count.min(self.rest().len());
        self.start += count;
        self.offset += count as u64;
    }

    /// Passes over bytes, which need not fit into memory, and says how many there were.
    fn skip(&mut self, count: u64) -> u64 {
        let mut left = count;
        while left > 0 && self.fill(1) {
            let step = left.min(self.rest().len() as u64);
            self.consume(step as usize);
            left -= step;
        }
        count - left
    }
}

impl Session<'_, '_> {
    /// Goes through a stream of records; the header of the file has been taken off.
    pub(super) fn walk_stream(&mut self, input: &mut Input, offset: u64) -> Result<(), Error> {
        let mut window = Window {
            input,
            bytes: Vec::new(),
            start: 0,
            offset,
            error: None,
        };
        while window.fill(1) {
            window.fill(HEADER_BYTES);
            let header = RecordHeader::parse(window.rest(), self.endian);
            match header {
                Some(header) if is_possible(header) && window.fill(header.size) => {
                    self.stream_record(&mut window, header)?;
                }
                header => self.skip_stream_damage(&mut window, header)?,
            }
            self.progress(window.offset)?;
        }
        if let Some(error) = window.error.take() {
            self.problem(Place::Offset(window.offset), "input", || {
                format!("expected more of the input: {error}")
            })?;
        }
        self.end_of_source(window.offset)
    }

    fn stream_record(
        &mut self,
        window: &mut Window<'_>,
        header: RecordHeader,
    ) -> Result<(), Error> {
        let offset = window.offset;
        let record = window.rest().get(..header.size).unwrap_or_default();
        let wanted = self.extra_bytes(header, record);
        if wanted == 0 {
            self.record(header, record, offset, None, &[])?;
            window.consume(header.size);
            return Ok(());
        }
        let left = if header.kind == kind::TRACING_DATA && wanted <= EXTRA_BYTES_MAX {
            window.fill(header.size + wanted as usize);
            let (record, extra) = window
                .rest()
                .split_at_checked(header.size)
                .unwrap_or_default();
            let extra = extra.get(..wanted as usize).unwrap_or(extra);
            self.record(header, record, offset, None, extra)?;
            let length = extra.len();
            window.consume(header.size + length);
            length as u64
        } else {
            window.consume(header.size);
            let skipped = window.skip(wanted);
            self.undecoded.aux_buffers += 1;
            self.undecoded.aux_bytes += skipped;
            skipped
        };
        if left < wanted {
            self.problem(
                Place::Offset(offset),
                "data behind a record cut short",
                || format!("expected {wanted} bytes behind the record, found {left}"),
            )?;
        }
        Ok(())
    }

    /// At bytes that are no record: goes to the next one, or to the end.
    fn skip_stream_damage(
        &mut self,
        window: &mut Window<'_>,
        header: Option<RecordHeader>,
    ) -> Result<(), Error> {
        let offset = window.offset;
        let mut skipped = 0;
        let next = loop {
            let is_more = window.fill(SEARCH_BYTES);
            match next_record(window.rest(), self.endian) {
                Some(next) => break Some(skipped + next),
                None if !is_more => break None,
                None => {
                    // A chain of records may begin in the last part: it is looked at again.
                    let step = SEARCH_BYTES / 2;
                    skipped += step;
                    window.consume(step);
                }
            }
        };
        let left = skipped + window.rest().len();
        self.report_damage(offset, header, left, next)?;
        match next {
            Some(next) => window.consume(next - skipped),
            None => window.consume(window.rest().len()),
        }
        Ok(())
    }
}

/// Whether a record with this header is worth waiting for: simpleperf's may be long, but not that long.
fn is_possible(header: RecordHeader) -> bool {
    header.size >= HEADER_BYTES && header.size as u64 <= EXTRA_BYTES_MAX
}

/// Takes the header of a pipe off the input; its 16 bytes have been looked at already.
pub(super) fn skip_header(input: &mut Input, count: u64) -> Result<(), Error> {
    let mut left = count as usize;
    while left > 0 {
        let step = match input.fill_buf() {
            Ok([]) => break,
            Ok(bytes) => bytes.len().min(left),
            Err(source) => {
                let path = input.name().into();
                return Err(Error::Io { path, source });
            }
        };
        input.consume(step);
        left -= step;
    }
    Ok(())
}
