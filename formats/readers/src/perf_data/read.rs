//! Reading of records: found, sorted, emitted as events.
//!
//! ```text
//! Source (bytes, framing, packed records, order)  ─►  Reading  ─►  Emission (events, losses, problems)
//!                                                       └─ Catalog (events, ids, names, formats)
//! ```
//! [`Reading::walk`] iterates over a mapped file (streams are in `pipe.rs`), and passes each record to
//! [`Reading::record`], which queues it if it has a time, or handles it immediately. Records leaving the queue become
//! events in `emit.rs`; perf's own records go to the part that stores their contents.

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::event::{Place, Sink};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::emit::Emission;
use crate::perf_data::entry::{Location, Step};
use crate::perf_data::features::header_feature;
use crate::perf_data::output::{Fault, missing};
use crate::perf_data::record::{self, HEADER_BYTES, RecordHeader, kind};
use crate::perf_data::resync::{Damage, Found, Look, plausible};
use crate::perf_data::simpleperf::{self, Simpleperf};
use crate::perf_data::source::Source;
use crate::perf_data::tool;
use crate::perf_data::update::event_update;

/// Maximum size of data that follows a record (tracing data); more is damage.
pub(super) const EXTRA_BYTES_MAX: u64 = 256 << 20;

/// Number of damages in a file after which it is searched for repeated records.
const COMPARED_MAX: usize = 256;

/// The reading of one input.
pub(super) struct Reading<'m, 's> {
    pub(super) source: Source<'m>,
    pub(super) catalog: Catalog,
    pub(super) emission: Emission<'s>,
    simpleperf: Simpleperf,
}

impl<'m, 's> Reading<'m, 's> {
    pub(super) fn new(
        source: Source<'m>,
        endian: Endian,
        sink: &'s mut dyn Sink,
    ) -> Reading<'m, 's> {
        Reading {
            source,
            catalog: Catalog::new(endian),
            emission: Emission::new(sink),
            simpleperf: Simpleperf::default(),
        }
    }

    /// Reads the records of a mapped file between two offsets.
    pub(super) fn walk(&mut self, source: u16, start: u64, end: u64) -> Result<(), Error> {
        let Some(file) = self.source.queue.sources.get(usize::from(source)).copied() else {
            return Ok(());
        };
        self.source.meter.begin(start, file.len() as u64);
        self.source.framing.begin();
        let end = end.min(file.len() as u64) as usize;
        let mut offset = start.min(end as u64) as usize;
        let whole = file.get(..end).unwrap_or_default();
        let mut compared = 0;
        loop {
            offset = self.stretch(source, whole, 0, offset)?;
            let Some(rest) = whole.get(offset..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let found = match self.look(rest, offset as u64, true) {
                Look::Record(found) => found,
                Look::Skip(mut damage) => {
                    compared += 1;
                    if compared <= COMPARED_MAX {
                        let data = whole.get(start as usize..).unwrap_or_default();
                        damage.skip_repeated(data, offset.saturating_sub(start as usize));
                    }
                    offset += self.skip(damage, offset as u64)?;
                    continue;
                }
                Look::More(_) => break,
            };
            let size = found.header.size;
            let (record, after) = rest.split_at_checked(size).unwrap_or_default();
            let extra = match found.extra_bytes {
                0 => &[][..],
                wanted => self.extra(after, wanted, offset as u64)?,
            };
            let location = Location::mapped(source, offset as u64);
            self.record(found, record, offset as u64, Some(location), extra)?;
            offset += size + extra.len();
            self.progress(offset as u64)?;
        }
        self.end_of_source(end as u64)
    }

    #[inline]
    pub(super) fn look(&mut self, bytes: &[u8], position: u64, is_all: bool) -> Look {
        let framing = &mut self.source.framing;
        framing.look(&self.catalog, bytes, position, is_all)
    }

    #[inline]
    pub(super) fn progress(&mut self, done: u64) -> Result<(), Error> {
        let Source { meter, pages, .. } = &mut self.source;
        meter.report(done, pages, &mut self.emission.out)
    }

    /// Reports bytes that are not a record; returns their number.
    pub(super) fn skip(&mut self, damage: Damage, offset: u64) -> Result<usize, Error> {
        self.source.packed.interrupt();
        // In a pipe, the lost bytes may have been those of an event: its samples are no other event's.
        let is_start = !self.source.queue.has_begun();
        self.catalog.is_damaged |= is_start && (self.catalog.is_listed || self.catalog.is_empty());
        let out = &mut self.emission.out;
        out.problem(Place::Offset(offset), "no record", || damage.message)?;
        Ok(damage.bytes)
    }

    /// Returns the data that follows a record without being part of it, as far as it exists.
    fn extra<'b>(&mut self, after: &'b [u8], wanted: u64, offset: u64) -> Result<&'b [u8], Error> {
        let left = after.len() as u64;
        if wanted > left {
            self.emission.out.truncated_extra(wanted, left, offset)?;
        }
        Ok(after.get(..wanted.min(left) as usize).unwrap_or_default())
    }

    /// Handles one record. `location` is where its bytes stay, if they do.
    #[inline]
    pub(super) fn record(
        &mut self,
        found: Found,
        record: &[u8],
        offset: u64,
        location: Option<Location>,
        extra: &[u8],
    ) -> Result<(), Error> {
        let header = found.header;
        if header.kind > 63 {
            return self.tool_record(header, record, offset, extra);
        }
        if header.kind == kind::CALLCHAIN_DEFERRED {
            self.emission
                .keep_deferred(&self.catalog, header, record, offset)?;
        }
        match found.time {
            // Records synthesized by perf have no time: they describe the state at the start.
            None | Some(0 | u64::MAX) => {
                let place = Place::Offset(offset);
                // A user stack is emitted after the samples that wait for it.
                let step = match header.kind {
                    kind::CALLCHAIN_DEFERRED => Step::Hold,
                    _ => self
                        .emission
                        .emit(&mut self.catalog, header, record, place)?,
                };
                match step {
                    Step::Done => Ok(()),
                    Step::Hold => self.source.queue.hold(location, record),
                }
            }
            Some(time) => match location {
                Some(location) => self.source.queue.push(time, location, record.len()),
                None => self.source.queue.push_copy(time, record),
            },
        }
    }

    /// Handles a record of a tool. `extra` follows it in the file.
    fn tool_record(
        &mut self,
        header: RecordHeader,
        record: &[u8],
        offset: u64,
        extra: &[u8],
    ) -> Result<(), Error> {
        let body = record::body(record, offset, self.catalog.endian);
        let catalog = &mut self.catalog;
        let Emission { out, stat, .. } = &mut self.emission;
        let result = match header.kind {
            kind::FINISHED_ROUND => return self.finish_round(),
            kind::COMPRESSED => return self.unpack(body.rest(), offset),
            kind::COMPRESSED2 => {
                // `u64 size, bytes`, padded to 8.
                let mut body = body;
                return match body.u64().and_then(|size| body.bytes(size)) {
                    Ok(packed) => self.unpack(packed, offset),
                    Err(short) => out.short("compressed record", short),
                };
            }
            kind::SPLIT_END => return self.split_record(body.offset()),
            kind::SIMPLEPERF_FIRST.. => return self.simpleperf_record(header, body),
            kind::HEADER_ATTR => tool::header_attr(body, catalog, out),
            kind::HEADER_EVENT_TYPE => tool::header_event_type(body, catalog).map_err(Fault::from),
            kind::TRACING_DATA => tool::tracing_data(body, extra, &mut catalog.formats, out),
            kind::BUILD_ID => tool::build_id(header, body, true, out),
            kind::AUXTRACE_INFO => tool::auxtrace_info(body, out),
            kind::AUXTRACE => {
                let undecoded = &mut self.emission.undecoded;
                undecoded.add_aux_buffer(extra.len() as u64);
                Ok(())
            }
            kind::AUXTRACE_ERROR => tool::auxtrace_error(body, &mut catalog.declared, out),
            kind::THREAD_MAP => tool::thread_map(body, out),
            kind::STAT_CONFIG => tool::stat_config(body, stat, out),
            kind::STAT => stat.add(body, catalog, out),
            kind::STAT_ROUND => stat.end_round(body, catalog, out),
            kind::EVENT_UPDATE => event_update(body, catalog, &mut self.source.queue, out),
            kind::TIME_CONV => tool::time_conv(body, out),
            kind::HEADER_FEATURE => header_feature(body, catalog, out),
            // IDs come with the attrs, CPUs with the samples; the other records have nothing for the tables.
            kind::ID_INDEX | kind::CPU_MAP | kind::FINISHED_INIT | kind::BPF_METADATA => Ok(()),
            unknown => {
                self.emission.undecoded.add_record(unknown);
                Ok(())
            }
        };
        let Some(short) = missing(result)? else {
            return Ok(());
        };
        let out = &mut self.emission.out;
        out.problem(Place::Offset(offset), "short record", || {
            let place = short.offset;
            format!("record of type {}: {place:#x}: {short}", header.kind)
        })
    }

    /// Handles one of simpleperf's records.
    fn simpleperf_record(&mut self, header: RecordHeader, body: Cursor<'_>) -> Result<(), Error> {
        let (catalog, simpleperf) = (&mut self.catalog, &mut self.simpleperf);
        let out = &mut self.emission.out;
        let result = match header.kind {
            kind::KERNEL_SYMBOL => simpleperf::kernel_symbols(body, out),
            kind::DSO => simpleperf.add_file(body).map_err(Fault::from),
            kind::SYMBOL => simpleperf.symbol(body, out),
            kind::SPLIT => return simpleperf.add_piece(body, out),
            kind::EVENT_ID => simpleperf::event_ids(body, catalog).map_err(Fault::from),
            kind::SIMPLEPERF_TRACING_DATA => {
                simpleperf::tracing_data(body, &mut catalog.formats, out)
            }
            // Results of simpleperf's own unwinding; the stacks are in the samples.
            kind::SIMPLEPERF_CALLCHAIN | kind::UNWINDING_RESULT | kind::DEBUG => Ok(()),
            unknown => {
                self.emission.undecoded.add_record(unknown);
                return Ok(());
            }
        };
        match missing(result)? {
            None => Ok(()),
            Some(short) => out.short("record of simpleperf", short),
        }
    }

    /// Handles the record that was assembled from pieces before this offset.
    fn split_record(&mut self, offset: u64) -> Result<(), Error> {
        let (endian, out) = (self.catalog.endian, &mut self.emission.out);
        let Some((header, bytes)) = self.simpleperf.take_record(offset, endian, out)? else {
            return Ok(());
        };
        let found = Found {
            header,
            time: self.catalog.time_of(header, &bytes),
            extra_bytes: 0,
        };
        self.record(found, &bytes, offset, None, &[])
    }

    /// Handles the records inside a compressed record.
    fn unpack(&mut self, packed: &[u8], offset: u64) -> Result<(), Error> {
        let Some(mut unpacker) = self.source.packed.begin(packed)? else {
            let out = &mut self.emission.out;
            return out.problem(Place::Offset(offset), "compressed record", || {
                "the stream of compressed records is damaged before this one".into()
            });
        };
        let result = unpacker.unpack(packed, |bytes| {
            self.unpacked_records(bytes, offset, false)
                .map_err(Stop::Sink)
        });
        self.source.packed.end(unpacker);
        match result {
            Ok(()) => Ok(()),
            Err(Stop::Sink(error)) => Err(error),
            Err(Stop::Packed(error)) => {
                let out = &mut self.emission.out;
                out.problem(Place::Offset(offset), "compressed record", || {
                    format!("expected a zstd stream: {error}; this and all later compressed records are not read")
                })
            }
        }
    }

    /// Handles all whole records at the start of decompressed bytes; returns their size. `is_all`: no more can be
    /// decompressed.
    fn unpacked_records(
        &mut self,
        bytes: &[u8],
        offset: u64,
        is_all: bool,
    ) -> Result<usize, Error> {
        let mut used = 0;
        while let Some(rest) = bytes.get(used..)
            && rest.len() >= HEADER_BYTES
        {
            let position = self.source.packed.position + used as u64;
            let found = match self.look(rest, position, is_all) {
                Look::Record(found) => Some(found),
                Look::Skip(damage) => {
                    used += self.skip(damage, offset)?;
                    continue;
                }
                // A compressed piece usually ends with a whole record, which is not held back for the next piece,
                // because that belongs to another round.
                Look::More(_) => self.last_of_piece(rest),
            };
            let Some(found) = found else {
                break;
            };
            let header = found.header;
            let Some(record) = rest.get(..header.size) else {
                break;
            };
            used += header.size;
            if matches!(
                header.kind,
                kind::COMPRESSED | kind::COMPRESSED2 | kind::AUXTRACE
            ) {
                let out = &mut self.emission.out;
                out.problem(Place::Offset(offset), "nested", || {
                    format!(
                        "expected uncompressed records inside a compressed one, found type {}",
                        header.kind
                    )
                })?;
                continue;
            }
            self.record(found, record, offset, None, &[])?;
        }
        self.source.packed.position += used as u64;
        Ok(used)
    }

    /// Returns the record that these bytes form, if fewer bytes than a header follow.
    fn last_of_piece(&self, bytes: &[u8]) -> Option<Found> {
        let header = plausible(bytes, self.catalog.endian)?;
        let (record, after) = bytes.split_at_checked(header.size)?;
        (after.len() < HEADER_BYTES).then(|| Found {
            header,
            time: self.catalog.time_of(header, record),
            extra_bytes: 0,
        })
    }

    /// Ends a data file.
    pub(super) fn end_of_source(&mut self, offset: u64) -> Result<(), Error> {
        let Some(pending) = self.source.packed.finish_file() else {
            return Ok(());
        };
        let used = self.unpacked_records(&pending, offset, true)?;
        let left = pending.len().saturating_sub(used);
        if left > 0 {
            let out = &mut self.emission.out;
            out.problem(Place::Offset(offset), "truncated compressed record", || {
                format!(
                    "expected the rest of a compressed record, found the end; {left} bytes not read"
                )
            })?;
        }
        Ok(())
    }

    /// Ends a round.
    fn finish_round(&mut self) -> Result<(), Error> {
        if !self.source.has_rounds {
            return Ok(());
        }
        let Source { queue, pages, .. } = &mut self.source;
        let (catalog, emission) = (&mut self.catalog, &mut self.emission);
        emission.begin_flush(queue.len(), false);
        queue.finish_round(&mut |header, record, location| {
            pages.touch(record.len() as u64);
            emission.emit(catalog, header, record, Place::Offset(location.offset()))
        })
    }

    /// Ends the input: emits all waiting records, and reports counts.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        let Source { queue, pages, .. } = &mut self.source;
        let (catalog, emission) = (&mut self.catalog, &mut self.emission);
        emission.begin_flush(queue.len(), true);
        queue.flush(u64::MAX, &mut |header, record, location| {
            pages.touch(record.len() as u64);
            emission.emit(catalog, header, record, Place::Offset(location.offset()))
        })?;
        self.simpleperf.finish(&mut emission.out)?;
        emission.finish(catalog, queue.late())
    }
}

/// The reason why decompression stopped.
enum Stop {
    Sink(Error),
    Packed(std::io::Error),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::Packed(error)
    }
}
