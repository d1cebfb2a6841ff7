//! `pass_block_io()`: requests of block devices, from their issue to their completion.
//!
//! ```text
//! block_rq_insert     queued
//! block_rq_issue      given to the driver
//! block_rq_complete   done, as a whole or the first sectors of it
//! ```
//! The events have no request ID: device and first sector identify a request while it is in flight. A request that was
//! merged with its neighbors starts at another sector when it is issued; it includes all requests queued in its range.
//!
//! ```text
//! block_rq_issue      FF 0 + 0        a flush of the device's cache, for all who wait for one
//! block_rq_complete   FF -1 + 0       done (0 + 0 of some kernels)
//! block_rq_complete   WS 0 + 0        a write without data that has waited for it, and was never issued; one for each
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;

use super::Function;
use super::names::{Name, Names};
use super::pass::{Machine, Pass, PassPlan, Tables};
use super::rows::{Rows, emitted};
use super::selection::Selection;
use super::source::{Input, Row, Source};
use crate::linux::errno;

pub(super) const FUNCTION: Function = Function {
    name: "pass_block_io",
    create: |arguments| match arguments {
        [] => Some(Arc::new(BlockIo)),
        _ => None,
    },
};

#[derive(Debug)]
struct BlockIo;

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    QUEUED "queued" Int64,
    CPU "cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    DEVICE "device" Text,
    OP "op" Text,
    FLAGS "flags" Text,
    SECTOR "sector" Int64,
    BYTES "bytes" Int64,
    ERROR "error" Text,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
}

mod feed {
    pub(super) const LOSSES: usize = 0;
    pub(super) const INSERT: usize = 1;
    pub(super) const ISSUE: usize = 2;
    pub(super) const REQUEUE: usize = 3;
    pub(super) const COMPLETE: usize = 4;
}

impl Pass for BlockIo {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, _: &Selection, _: &Tables<'_>) -> PassPlan {
        let event = |name: &str| {
            let columns = vec![
                Input::integer(&["dev"]),
                Input::integer(&["sector"]),
                Input::integer(&["nr_sector"]),
                Input::text(&["rwbs"]),
                Input::integer(&["bytes"]),
                Input::code(&["error", "errors"]),
                Input::integer(&["cpu"]),
                Input::integer(&["pid"]),
                Input::integer(&["tid"]),
                Input::text(&["comm"]),
                Input::integer(&["kernel_stack"]),
                Input::integer(&["user_stack"]),
            ];
            Source::event(name, columns)
        };
        let sources = vec![
            Source::fixed("losses", "time", Vec::new()),
            event("block:block_rq_insert"),
            event("block:block_rq_issue"),
            event("block:block_rq_requeue"),
            event("block:block_rq_complete"),
        ];
        PassPlan::new(sources, Requests::default)
    }
}

/// Origin of a request.
#[derive(Debug, Clone, Copy, Default)]
struct Issuer {
    cpu: Option<i32>,
    pid: Option<i32>,
    tid: Option<i32>,
    comm: Name,
    kernel_stack: Option<i64>,
    user_stack: Option<i64>,
}

/// A request in flight.
#[derive(Debug, Clone)]
struct Request {
    issued: i64,
    queued: Option<i64>,
    issuer: Issuer,
    flags: Name,
    sector: i64,
    bytes: Option<i64>,
    /// Sectors that are not complete yet.
    remaining: i64,
    is_flush: bool,
    /// Whether one of the same sectors that was in flight at the same time is complete.
    is_superseded: bool,
    losses: u64,
}

/// Device and sector.
type Place = (i64, i64);

impl Request {
    /// When it was queued first; its issue if it was not.
    fn waiting_since(&self) -> i64 {
        self.issued - self.queued.unwrap_or_default()
    }
}

#[derive(Default)]
struct Requests {
    losses: u64,
    /// Requests in queues, with the time since when; several may be for one place.
    queued: BTreeMap<Place, Vec<(i64, Issuer)>>,
    /// Number of requests in queues.
    waiting: usize,
    /// Requests in flight; several without data may be in one place.
    issued: BTreeMap<Place, Vec<Request>>,
    has_requeues: bool,
    names: Names,
    comm: Name,
    flags: Name,
}

/// Size of a sector in bytes, whatever the device.
const SECTOR_BYTES: i64 = 512;

impl Requests {
    fn issuer(&mut self, row: Row<'_>) -> Issuer {
        self.comm = self.names.of(row.text(9), self.comm);
        Issuer {
            cpu: row.id(6),
            pid: row.id(7),
            tid: row.id(8),
            comm: self.comm,
            kernel_stack: row.integer(10),
            user_stack: row.integer(11),
        }
    }

    fn issue(&mut self, row: Row<'_>, (device, sector): Place) {
        let sectors = row.integer(2).unwrap_or_default().max(0);
        let own = self.issuer(row);
        self.flags = self.names.of(row.text(3), self.flags);
        // The requests that became this one; the first of them is its origin.
        let mut first: Option<(i64, Issuer)> = None;
        let end = sector.saturating_add(sectors.max(1));
        let inside = self.queued.range((device, sector)..(device, end));
        let inside: Vec<Place> = inside.map(|(place, _)| *place).collect();
        for place in inside {
            let waiting = self.queued.get_mut(&place);
            let Some((time, issuer)) =
                waiting.and_then(|waiting| (!waiting.is_empty()).then(|| waiting.remove(0)))
            else {
                continue;
            };
            self.waiting -= 1;
            if self.queued.get(&place).is_some_and(Vec::is_empty) {
                self.queued.remove(&place);
            }
            if first.is_none_or(|(before, _)| time < before) {
                first = Some((time, issuer));
            }
        }
        let data = sectors.saturating_mul(SECTOR_BYTES);
        let bytes = row.integer(4).filter(|&bytes| bytes > 0).or(Some(data));
        if first.is_none() && sectors > 0 {
            first = self.refused((device, sector), bytes);
        }
        let request = Request {
            issued: row.time,
            queued: first.map(|(time, _)| row.time - time),
            issuer: first.map_or(own, |(_, issuer)| issuer),
            flags: self.flags,
            sector,
            bytes,
            remaining: sectors,
            is_flush: is_flush(row),
            is_superseded: false,
            losses: self.losses,
        };
        self.issued
            .entry((device, sector))
            .or_default()
            .push(request);
    }

    /// Removes the request that is issued once more although it was never queued again: the driver had no room for it, and
    /// `block_rq_requeue` was not recorded. A request that only has the same sectors would have been queued as well.
    fn refused(&mut self, place: Place, bytes: Option<i64>) -> Option<(i64, Issuer)> {
        let requests = self.issued.get_mut(&place)?;
        let losses = self.losses;
        let is_same = |request: &Request| {
            request.queued.is_some() && request.bytes == bytes && request.losses == losses
        };
        let request = requests.remove(requests.iter().position(is_same)?);
        Some((request.waiting_since(), request.issuer))
    }

    /// Removes the request in flight at a device and sector that an event is about: the oldest; of flushes, writes and discards the
    /// last, because the kernel changes a sector once at a time, and a queue has one flush at a time, so the completion of an
    /// older one has not been recorded. An event without sectors is not about one with data.
    fn take(&mut self, row: Row<'_>, place: Place) -> Option<Request> {
        let requests = self.issued.get_mut(&place)?;
        let (is_flush, has_data) = (is_flush(row), row.integer(2).is_none_or(|done| done > 0));
        let has_error = row.integer(5).is_some_and(|error| error != 0);
        let is_meant = |request: &Request| {
            request.is_flush == is_flush && (has_data || has_error || request.remaining == 0)
        };
        let found = match is_flush || changes_sectors(row) {
            true => requests.iter().rposition(is_meant),
            false => requests.iter().position(is_meant),
        };
        let request = requests.remove(found?);
        for other in requests
            .iter_mut()
            .filter(|other| other.bytes == request.bytes && is_meant(other))
        {
            other.is_superseded = true;
        }
        if requests.is_empty() {
            self.issued.remove(&place);
        }
        Some(request)
    }

    fn complete(&mut self, row: Row<'_>, place: Place, rows: &mut Rows) {
        let done = row.integer(2).unwrap_or_default().max(0);
        let Some(mut request) = self.take(row, place) else {
            return;
        };
        let error = row.integer(5).filter(|&error| error != 0);
        if done < request.remaining && done > 0 && error.is_none() {
            request.remaining -= done;
            let rest = (place.0, place.1.saturating_add(done));
            self.issued.entry(rest).or_default().push(request);
            return;
        }
        let duration = (request.losses == self.losses).then_some(row.time - request.issued);
        // Negative errno; older kernels have positive codes as well.
        let name = error.and_then(|error| errno::name(error.saturating_abs().saturating_neg()));
        let unnamed = error.map(|error| error.to_string());
        self.emit(
            place.0,
            &request,
            duration,
            name.or(unnamed.as_deref()),
            rows,
        );
    }

    fn emit(
        &self,
        device: i64,
        request: &Request,
        duration: Option<i64>,
        error: Option<&str>,
        rows: &mut Rows,
    ) {
        let flags = self.names.text(request.flags);
        let issuer = &request.issuer;
        rows.integer(TIME, Some(request.issued));
        rows.integer(DURATION, duration);
        rows.integer(QUEUED, request.queued);
        rows.id(CPU, issuer.cpu);
        rows.id(PID, issuer.pid);
        rows.id(TID, issuer.tid);
        rows.text(COMM, self.names.text(issuer.comm));
        if rows.wants(DEVICE) {
            // The kernel's dev_t: 12 bits and 20 bits.
            let name = format!("{}:{}", device >> 20, device & 0xf_ffff);
            rows.text(DEVICE, Some(&name));
        }
        rows.text(OP, flags.and_then(operation));
        rows.text(FLAGS, flags);
        rows.integer(SECTOR, Some(request.sector).filter(|&sector| sector >= 0));
        rows.integer(BYTES, request.bytes);
        rows.text(ERROR, error);
        rows.integer(KERNEL_STACK, issuer.kernel_stack);
        rows.integer(USER_STACK, issuer.user_stack);
        rows.end_row();
    }
}

/// Whether an event is about a flush.
fn is_flush(row: Row<'_>) -> bool {
    row.text(3).and_then(operation) == Some("flush")
}

/// Whether a request writes, discards or erases.
fn changes_sectors(row: Row<'_>) -> bool {
    !matches!(
        row.text(3).and_then(operation),
        None | Some("read" | "flush")
    )
}

/// The operation in `rwbs` (blk_fill_rwbs of kernel/trace/blktrace.c): `F` before it requests a flush of the cache first.
fn operation(flags: &str) -> Option<&'static str> {
    let letters = match flags.strip_prefix('F') {
        Some("" | "N" | "F") => return Some("flush"),
        Some(rest) if rest.starts_with('F') => return Some("flush"),
        Some(rest) => rest,
        None => flags,
    };
    match letters.bytes().next()? {
        b'R' => Some("read"),
        b'W' => Some("write"),
        b'D' if letters.starts_with("DE") => Some("erase"),
        b'D' => Some("discard"),
        b'Z' => Some("zone"),
        _ => None,
    }
}

impl Machine for Requests {
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        if source == feed::LOSSES {
            self.losses += 1;
            return Ok(());
        }
        let (Some(device), Some(sector)) = (row.integer(0), row.integer(1)) else {
            return Ok(());
        };
        // A flush has no sector: 0 when it is issued, -1 when it is complete.
        let place = match is_flush(row) {
            true => (device, 0),
            false => (device, sector),
        };
        match source {
            feed::INSERT => {
                let issuer = self.issuer(row);
                let waiting = self.queued.entry(place).or_default();
                waiting.push((row.time, issuer));
                self.waiting += 1;
            }
            feed::ISSUE => self.issue(row, place),
            feed::REQUEUE => {
                self.has_requeues = true;
                if let Some(request) = self.take(row, place) {
                    let waiting = self.queued.entry(place).or_default();
                    waiting.insert(0, (request.waiting_since(), request.issuer));
                    self.waiting += 1;
                }
            }
            feed::COMPLETE => self.complete(row, place, rows),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, rows: &mut Rows) -> Result<bool> {
        // Without `block_rq_insert` and `block_rq_requeue`, a request that the driver refused and one more of the same sectors begin alike. Only the
        // second one completes. The row of a refused one has the time since its first issue.
        let was_refused = |request: &Request| {
            request.is_superseded
                && request.queued.is_none()
                && !self.has_requeues
                && request.losses == self.losses
                && request.remaining > 0
        };
        let issued = std::mem::take(&mut self.issued);
        for ((device, _), requests) in issued {
            for request in requests.into_iter().filter(|request| !was_refused(request)) {
                self.emit(device, &request, None, None, rows);
            }
        }
        Ok(false)
    }

    fn bytes(&self) -> usize {
        self.waiting * 2 * size_of::<(Place, i64, Issuer)>()
            + self.issued.len() * 2 * size_of::<(Place, Request)>()
            + self.names.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::operation;

    #[test]
    fn operations() {
        let found = ["R", "RA", "WS", "FF", "FWFS", "D", "DE", "N", "", "FN"].map(operation);
        let expected = [
            Some("read"),
            Some("read"),
            Some("write"),
            Some("flush"),
            Some("write"),
            Some("discard"),
            Some("erase"),
            None,
            None,
            Some("flush"),
        ];
        assert_eq!(found, expected);
    }
}
