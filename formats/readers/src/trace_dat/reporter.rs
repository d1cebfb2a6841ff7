//! The sink of a file's events, with progress, problems, and the memory of its mapped pages.

use std::sync::Arc;

use perfquet_events::Error;
use perfquet_events::event::{Event, Place, Progress, Sink};
use perfquet_events::input::Map;

use crate::problems::Problems;

/// Reason for losses reported by the ring buffer.
pub(super) const OVERRUN: &str = "buffer overrun";
/// Bytes of pages between two progress reports.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Mapped bytes that may be resident before they are released.
const RESIDENT_BYTES_MAX: u64 = 64 << 20;
/// The sink, with progress and problems of this file.
pub(super) struct Reporter<'k> {
    pub(super) sink: &'k mut dyn Sink,
    problems: Problems,
    maps: Vec<Arc<Map>>,
    done: u64,
    next_progress: u64,
    resident: u64,
    total: u64,
}

impl<'k> Reporter<'k> {
    /// A reporter for the file `map`.
    pub(super) fn new(sink: &'k mut dyn Sink, map: &Arc<Map>) -> Reporter<'k> {
        Reporter {
            sink,
            problems: Problems::default(),
            maps: vec![Arc::clone(map)],
            done: 0,
            next_progress: PROGRESS_BYTES,
            resident: 0,
            total: map.len() as u64,
        }
    }

    /// A reporter for pages of another format, which reports progress itself.
    pub(super) fn of_pages(sink: &'k mut dyn Sink, problems: Problems) -> Reporter<'k> {
        Reporter {
            sink,
            problems,
            maps: Vec::new(),
            done: 0,
            next_progress: u64::MAX,
            resident: 0,
            total: 0,
        }
    }

    /// The problems so far.
    pub(super) fn into_problems(self) -> Problems {
        self.problems
    }

    /// Adds a file with unpacked pages.
    pub(super) fn add_map(&mut self, map: &Arc<Map>) {
        self.total += map.len() as u64;
        self.maps.push(Arc::clone(map));
    }

    /// The files with unpacked pages.
    pub(super) fn further_maps(&self) -> impl Iterator<Item = &Arc<Map>> {
        self.maps.iter().skip(1)
    }

    /// Reports the problems that were only counted.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.problems.finish(self.sink)
    }

    pub(super) fn problem(
        &mut self,
        place: Place,
        kind: &'static str,
        message: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        self.problems.report(self.sink, place, kind, message)
    }

    /// Counts bytes of pages.
    #[inline]
    pub(super) fn progress(&mut self, bytes: u64) -> Result<(), Error> {
        self.done += bytes;
        if self.done < self.next_progress {
            return Ok(());
        }
        self.next_progress = self.done + PROGRESS_BYTES;
        self.resident += PROGRESS_BYTES;
        if self.resident > RESIDENT_BYTES_MAX {
            self.resident = 0;
            self.maps.iter().for_each(|map| map.release());
        }
        // Packed pages are larger than their bytes in the file.
        let done = self.done.min(self.total);
        let total = Some(self.total);
        self.sink.event(Event::Progress(Progress { done, total }))
    }
}
