//! Emission of samples of `perfquet:…` events (`wire.rs`).

use perfquet_events::Error;
use perfquet_events::event::{EventId, Place, Sample};
use perfquet_events::wire::{self, Kind};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::emit::Emission;
use crate::perf_data::record::{self, RecordHeader};
use crate::perf_data::sample;
use crate::perf_data::values::signed;
use crate::perf_data::wire::Wrong;

impl Emission<'_> {
    /// Emits the record in a sample of such an event.
    pub(super) fn emit_wire(
        &mut self,
        catalog: &mut Catalog,
        index: usize,
        header: RecordHeader,
        record: &[u8],
        place: Place,
    ) -> Result<(), Error> {
        let mut body = record::body(record, 0, catalog.endian);
        let Some(attr) = catalog.get(index).map(|event| &event.attr) else {
            return Ok(());
        };
        let result = match sample::parse(&mut body, header.misc, attr, &mut self.lists) {
            Ok(members) => {
                let payload = wire::open(members.raw.unwrap_or_default(), catalog.endian);
                let kind = payload.as_ref().ok().map(|(kind, _)| *kind);
                let of_recorder = kind
                    .and_then(Kind::of_number)
                    .is_some_and(Kind::is_of_recorder);
                let event = match of_recorder {
                    // Not an event of the kernel, and nothing refers to it.
                    true => EventId(0),
                    false => catalog.event_of(index, &mut self.out)?,
                };
                let sample = Sample {
                    time: members.time.and_then(signed),
                    cpu: members.cpu,
                    pid: members.pid,
                    tid: members.tid,
                    ..Sample::of(event)
                };
                let (functions, declared) = (&catalog.functions, &mut catalog.declared);
                let (wire, out) = (&mut self.wire, &mut self.out);
                match payload {
                    Ok((kind, body)) => wire.emit(&sample, kind, body, functions, declared, out),
                    Err(short) => Err(short.into()),
                }
            }
            Err(short) => Err(short.into()),
        };
        let out = &mut self.out;
        match result {
            Ok(()) => Ok(()),
            Err(Wrong::Sink(error)) => Err(error),
            Err(Wrong::Short(short)) => out.problem(place, "short BPF record", || {
                format!("BPF record: byte {}: {short}", short.offset)
            }),
            Err(Wrong::Function(number)) => out.problem(place, "function of a BPF record", || {
                format!("BPF record: expected a declared function, found number {number}")
            }),
            Err(Wrong::Kind(kind)) => out.problem(place, "BPF record", || {
                format!("BPF record: expected one of the known kinds, found {kind}")
            }),
        }
    }
}
