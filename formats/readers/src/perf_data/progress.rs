//! Progress of reading, and release of mapped pages.

use std::sync::Arc;

use perfquet_events::Error;
use perfquet_events::event::{Event, Progress};
use perfquet_events::input::Map;

use crate::perf_data::output::Output;

/// Number of bytes between two progress reports.
const PROGRESS_BYTES: u64 = 4 << 20;
/// Number of bytes of mapped files kept in memory.
const RESIDENT_BYTES_MAX: u64 = 64 << 20;

/// Number of bytes read from the current source.
pub(super) struct Meter {
    total_bytes: Option<u64>,
    next_report: u64,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter {
            total_bytes: None,
            next_report: PROGRESS_BYTES,
        }
    }
}

impl Meter {
    /// Starts a source of this size, at this offset.
    pub(super) fn begin(&mut self, offset: u64, total_bytes: u64) {
        self.total_bytes = Some(total_bytes);
        self.next_report = offset.saturating_add(PROGRESS_BYTES);
    }

    /// Offset of the next progress report.
    #[inline]
    pub(super) fn next_report(&self) -> u64 {
        self.next_report
    }

    /// Reports progress every few MiB.
    #[inline]
    pub(super) fn report(
        &mut self,
        done: u64,
        pages: &mut Pages,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        if done < self.next_report {
            return Ok(());
        }
        self.next_report = done + PROGRESS_BYTES;
        pages.touch(PROGRESS_BYTES);
        let total = self.total_bytes;
        out.event(Event::Progress(Progress { done, total }))
    }
}

/// The mapped files. Their pages count as memory of this program until they are released; released pages are still in
/// the page cache.
#[derive(Default)]
pub(super) struct Pages {
    maps: Vec<Arc<Map>>,
    /// Number of bytes that may be in memory.
    resident_bytes: u64,
}

impl Pages {
    pub(super) fn new(maps: Vec<Arc<Map>>) -> Pages {
        Pages {
            maps,
            resident_bytes: 0,
        }
    }

    /// Counts accessed bytes.
    #[inline]
    pub(super) fn touch(&mut self, bytes: u64) {
        self.resident_bytes += bytes;
        if self.resident_bytes > RESIDENT_BYTES_MAX {
            self.resident_bytes = 0;
            self.maps.iter().for_each(|map| map.release());
        }
    }
}
