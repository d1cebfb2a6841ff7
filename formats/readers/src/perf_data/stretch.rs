//! Stretches of samples in a mapped file or a buffer: the checks of each record, in one tight loop.
//!
//! ```text
//! sample sample sample … sample │ round      up to here in one loop; the round is read like any other record
//! ```
//! The loop accepts a record if it is a sample of a known event, another record follows, and its timestamp is near the
//! previous one. Nearly all records qualify; at any other the loop ends, and `read.rs` or `pipe.rs` handles that record.

use perfquet_events::Error;
use perfquet_events::bytes::Endian;

use crate::perf_data::entry::Location;
use crate::perf_data::read::Reading;
use crate::perf_data::record::kind;
use crate::perf_data::resync::plausible;

impl Reading<'_, '_> {
    /// Queues the samples from `offset` up to the first record that is not a plain sample. Returns the offset after
    /// them. `position` is where `file` begins in the input.
    pub(super) fn stretch(
        &mut self,
        source: u16,
        file: &[u8],
        position: u64,
        mut offset: usize,
    ) -> Result<usize, Error> {
        let Some(places) = self.catalog.places() else {
            return Ok(offset);
        };
        let word = |at: usize| Endian::Little.u64_at(file, at);
        let until = self.source.meter.next_report().saturating_sub(position);
        let mut header = word(offset).unwrap_or(0);
        while let Some(size) = size_of_sample(header)
            && (offset as u64) < until
        {
            let end = offset + size;
            let Some(next) = word(end) else {
                break;
            };
            let is_followed = size_of_sample(next).is_some()
                || plausible(file.get(end..).unwrap_or_default(), Endian::Little).is_some();
            let is_known = match places.id {
                None => true,
                Some(at) => {
                    size >= at + 8 && word(offset + at).is_some_and(|id| self.catalog.has_id(id))
                }
            };
            let time = match size >= places.time + 8 {
                true => word(offset + places.time).unwrap_or(0),
                false => 0,
            };
            if !is_followed || !is_known || !self.source.framing.continues(time) {
                break;
            }
            let location = Location::mapped(source, offset as u64);
            self.source.queue.push(time, location, size)?;
            offset = end;
            header = next;
        }
        Ok(offset)
    }
}

/// Returns the size of a sample with this header.
#[inline]
fn size_of_sample(header: u64) -> Option<usize> {
    let (misc, size) = ((header >> 32) as u16, (header >> 48) as usize);
    let is_sample = header as u32 == kind::SAMPLE && misc & 0x0ff8 == 0;
    (is_sample && size >= 16 && size.is_multiple_of(8)).then_some(size)
}
