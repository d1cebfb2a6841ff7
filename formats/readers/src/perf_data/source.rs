//! Sources of records: mapped files or a stream, with framing, decompression and sorting.

use std::sync::Arc;

use perfquet_events::bytes::Endian;
use perfquet_events::input::Map;

use crate::perf_data::compressed::Packed;
use crate::perf_data::order::Queue;
use crate::perf_data::progress::{Meter, Pages};
use crate::perf_data::resync::Framing;

/// The bytes of one input, and the progress of reading.
pub(super) struct Source<'m> {
    pub(super) queue: Queue<'m>,
    /// In a directory, the rounds of one file do not apply to the others.
    pub(super) has_rounds: bool,
    pub(super) framing: Framing,
    pub(super) packed: Packed,
    pub(super) meter: Meter,
    pub(super) pages: Pages,
}

impl<'m> Source<'m> {
    /// A stream, which is not mapped.
    pub(super) fn stream(endian: Endian, temporary_bytes_max: u64) -> Source<'m> {
        Source::mapped(Vec::new(), Vec::new(), endian, temporary_bytes_max)
    }

    /// Mapped files; the first one has the header.
    pub(super) fn mapped(
        files: Vec<&'m [u8]>,
        maps: Vec<Arc<Map>>,
        endian: Endian,
        temporary_bytes_max: u64,
    ) -> Source<'m> {
        let has_rounds = files.len() <= 1;
        let mut queue = Queue::new(files, endian);
        queue.set_temporary_bytes_max(temporary_bytes_max);
        Source {
            queue,
            has_rounds,
            framing: Framing::default(),
            packed: Packed::default(),
            meter: Meter::default(),
            pages: Pages::new(maps),
        }
    }
}
