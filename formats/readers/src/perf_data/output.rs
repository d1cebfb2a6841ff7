//! The output: events to the sink, problems by kind, and counts of data that is not decoded.

use perfquet_events::Error;
use perfquet_events::bytes::Short;
use perfquet_events::event::{Event, Fact, Loss, Place, Problem, Sink};

use crate::problems::Problems;

/// The sink, and the problems of one input.
pub(super) struct Output<'s> {
    pub(super) sink: &'s mut dyn Sink,
    problems: Problems,
}

impl<'s> Output<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink) -> Output<'s> {
        Output {
            sink,
            problems: Problems::default(),
        }
    }

    #[inline]
    pub(super) fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.sink.event(event)
    }

    pub(super) fn fact(&mut self, fact: Fact<'_>) -> Result<(), Error> {
        self.sink.event(Event::Fact(fact))
    }

    /// A fact under its name in `metadata`.
    pub(super) fn other_fact(&mut self, name: &str, value: &str) -> Result<(), Error> {
        self.fact(Fact::Other { name, value })
    }

    /// Reports a problem; the first of each kind with its message.
    pub(super) fn problem(
        &mut self,
        place: Place,
        kind: &'static str,
        message: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        self.problems.report(self.sink, place, kind, message)
    }

    /// Reports truncated data.
    pub(super) fn short(&mut self, what: &'static str, short: Short) -> Result<(), Error> {
        self.problem(Place::Offset(short.offset), what, || {
            format!("{what}: {short}")
        })
    }

    /// Reports that fewer bytes follow a record than it states.
    pub(super) fn truncated_extra(
        &mut self,
        wanted: u64,
        left: u64,
        offset: u64,
    ) -> Result<(), Error> {
        self.problem(
            Place::Offset(offset),
            "truncated data after a record",
            || format!("expected {wanted} bytes after the record, found {left}"),
        )
    }

    /// Reports a problem of the whole input, which occurred so often.
    pub(super) fn total(&mut self, count: u64, message: &str) -> Result<(), Error> {
        self.sink.event(Event::Problem(Problem {
            place: Place::Whole,
            count,
            message,
        }))
    }

    /// Reports a loss of which only the reason is known.
    pub(super) fn missing(&mut self, reason: &str) -> Result<(), Error> {
        self.event(Event::Loss(Loss {
            time: None,
            cpu: None,
            event: None,
            count: None,
            in_all: None,
            reason,
        }))
    }

    /// Reports the number of problems that were not reported individually.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.problems.finish(self.sink)
    }
}

/// Why a record was not handed over.
#[derive(Debug)]
pub(super) enum Fault {
    /// Truncated: a problem of this record.
    Short(Short),
    /// An error of the sink, which ends reading.
    Sink(Error),
}

impl From<Short> for Fault {
    fn from(short: Short) -> Fault {
        Fault::Short(short)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Sink(error)
    }
}

/// Returns the missing part of a truncated record; passes on errors of the sink.
pub(super) fn missing(result: Result<(), Fault>) -> Result<Option<Short>, Error> {
    match result {
        Ok(()) => Ok(None),
        Err(Fault::Short(short)) => Ok(Some(short)),
        Err(Fault::Sink(error)) => Err(error),
    }
}

/// Counts of known data that is not decoded.
#[derive(Debug, Default)]
pub(super) struct Undecoded {
    aux_buffers: u64,
    aux_bytes: u64,
    samples_with_aux: u64,
    pub(super) deferred_missing: u64,
    /// Records of unknown types, by type.
    records: Vec<(u32, u64)>,
    /// Records of further unknown types.
    other_records: u64,
}

impl Undecoded {
    /// Counts a buffer of hardware trace.
    pub(super) fn add_aux_buffer(&mut self, bytes: u64) {
        self.aux_buffers += 1;
        self.aux_bytes += bytes;
    }

    /// Counts a sample with hardware trace.
    pub(super) fn add_aux_sample(&mut self, bytes: u64) {
        self.samples_with_aux += 1;
        self.aux_bytes += bytes;
    }

    /// Counts a record of an unknown type.
    pub(super) fn add_record(&mut self, kind: u32) {
        // A damaged file may have any number of types.
        const TYPES_MAX: usize = 64;
        if let Some((_, count)) = self.records.iter_mut().find(|(known, _)| *known == kind) {
            *count += 1;
        } else if self.records.len() < TYPES_MAX {
            self.records.push((kind, 1));
        } else {
            self.other_records += 1;
        }
    }

    /// Reports all counts.
    pub(super) fn finish(self, out: &mut Output<'_>) -> Result<(), Error> {
        if self.aux_buffers > 0 || self.samples_with_aux > 0 {
            let count = self.aux_buffers + self.samples_with_aux;
            let bytes = self.aux_bytes;
            let message = format!("{bytes} bytes of hardware trace (AUX area) are not decoded");
            out.total(count, &message)?;
            out.missing("hardware trace (AUX area) not decoded")?;
        }
        if self.deferred_missing > 0 {
            out.total(self.deferred_missing, "deferred user stacks are missing")?;
        }
        for (kind, count) in self.records {
            out.total(count, &format!("unknown records of type {kind}"))?;
        }
        if self.other_records > 0 {
            out.total(self.other_records, "unknown records of many other types")?;
        }
        Ok(())
    }
}
