//! Records of a pipe, or of a journal that still grows.
//!
//! The rest of a stream is unknown, so it is not mapped, but read into buffers, where records wait for their turn.
//! Events are emitted at each FINISHED_ROUND, while the recorder writes the next round.

use std::io::BufRead;

use perfquet_events::event::Place;
use perfquet_events::{Error, Input};

use crate::perf_data::buffers::Front;
use crate::perf_data::order::Queue;
use crate::perf_data::read::{EXTRA_BYTES_MAX, Reading};
use crate::perf_data::record::{HEADER_BYTES, kind};
use crate::perf_data::resync::{Found, Look};

/// Bytes of a stream that have been read but not used.
struct Window<'i> {
    input: &'i mut Input,
    front: Front,
    /// Input offset of the next unused byte.
    offset: u64,
    /// The error that ended reading before the end of the input.
    error: Option<std::io::Error>,
}

impl Window<'_> {
    #[inline]
    fn rest(&self) -> &[u8] {
        self.front.rest()
    }

    /// Reads until this many bytes are available; returns false if the input ends before.
    fn fill(&mut self, count: usize, queue: &mut Queue<'_>) -> Result<bool, Error> {
        while self.rest().len() < count {
            if !self.front.has_room(count) {
                queue.turn_over(&mut self.front, count)?;
            }
            match queue.buffers.read(&mut self.front, self.input) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn consume(&mut self, count: usize) {
        self.offset += self.front.consume(count) as u64;
    }

    /// Skips bytes, which need not fit into memory; returns their number.
    fn skip(&mut self, count: u64, queue: &mut Queue<'_>) -> Result<u64, Error> {
        let mut left = count;
        while left > 0 && self.fill(1, queue)? {
            let step = left.min(self.rest().len() as u64);
            self.consume(step as usize);
            left -= step;
        }
        Ok(count - left)
    }
}

impl Reading<'_, '_> {
    /// Reads the records of a stream after the file header.
    pub(super) fn walk_stream(&mut self, input: &mut Input, offset: u64) -> Result<(), Error> {
        let mut window = Window {
            input,
            front: Front::default(),
            offset,
            error: None,
        };
        // Number of bytes needed to classify the next ones.
        let mut wanted = HEADER_BYTES;
        while window.fill(1, &mut self.source.queue)? {
            self.stretch_of_stream(&mut window)?;
            let is_all = !window.fill(wanted, &mut self.source.queue)?;
            match self.look(window.rest(), window.offset, is_all) {
                Look::Record(found) => self.stream_record(&mut window, found)?,
                Look::Skip(damage) => {
                    let skipped = self.skip(damage, window.offset)?;
                    window.consume(skipped);
                }
                Look::More(more) if !is_all => {
                    wanted = more;
                    continue;
                }
                Look::More(_) => break,
            }
            wanted = HEADER_BYTES;
            self.progress(window.offset)?;
        }
        if let Some(error) = window.error.take() {
            let out = &mut self.emission.out;
            out.problem(Place::Offset(window.offset), "input", || {
                format!("expected more of the input: {error}")
            })?;
        }
        self.end_of_source(window.offset)
    }

    /// Queues the samples that were read, up to the first record that is not a plain sample.
    fn stretch_of_stream(&mut self, window: &mut Window<'_>) -> Result<(), Error> {
        let (buffer, bytes) = window.front.read_bytes();
        let used = window.front.used();
        let position = window.offset - used as u64;
        let end = self.stretch(buffer, bytes, position, used)?;
        window.consume(end - used);
        Ok(())
    }

    fn stream_record(&mut self, window: &mut Window<'_>, found: Found) -> Result<(), Error> {
        let (offset, wanted) = (window.offset, found.extra_bytes);
        let size = found.header.size;
        let location = Some(window.front.location());
        if wanted == 0 {
            let record = window.rest().get(..size).unwrap_or_default();
            self.record(found, record, offset, location, &[])?;
            window.consume(size);
            return Ok(());
        }
        let left = if found.header.kind == kind::TRACING_DATA && wanted <= EXTRA_BYTES_MAX {
            window.fill(size + wanted as usize, &mut self.source.queue)?;
            let location = Some(window.front.location());
            let (record, extra) = window.rest().split_at_checked(size).unwrap_or_default();
            let extra = extra.get(..wanted as usize).unwrap_or(extra);
            self.record(found, record, offset, location, extra)?;
            let length = extra.len();
            window.consume(size + length);
            length as u64
        } else {
            window.consume(size);
            let skipped = window.skip(wanted, &mut self.source.queue)?;
            self.emission.undecoded.add_aux_buffer(skipped);
            skipped
        };
        if left < wanted {
            self.emission.out.truncated_extra(wanted, left, offset)?;
        }
        Ok(())
    }
}

/// Skips the header of a pipe, whose 16 bytes have already been examined.
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
