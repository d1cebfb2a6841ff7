//! Hits on their way to columns: the reading thread copies heads and payloads, the encoder's thread decodes them.
//!
//! ```text
//! heads      time cpu pid tid comm stacks │ time cpu …              one for each hit
//! payloads   common_type … id args        │ common_type … id args   as the kernel wrote them
//!            ─► column id: one loop       ─► column args: one loop
//! ```
//! A batch belongs to a table: hits of several event types may go to one. It is passed on when it is full, when a payload
//! needs another decoder, or before anything else is added to the table.

use std::sync::Arc;

use perfquet_events::Error;
use perfquet_events::bytes::{Endian, array_at};
use perfquet_events::event::{Extras, Field, FieldType, Integer, Op};

use super::fields::{Lists, push_field};
use super::heads::{Head, push_heads};
use super::kernel_texts::KernelTexts;
use super::spare::Spare;
use crate::store::{Column, Fill, Names, Rows, TableId, Writer};
use crate::tables;

/// Hits in a batch: their payloads stay in a core's cache. Divides the rows of a page.
const ROWS: usize = 1024;
/// Hits after which a batch is expected to become full.
const FEW: usize = 64;
/// Bytes of payloads in a batch, where these are long.
const PAYLOAD_BYTES: usize = 256 << 10;
/// Bytes in the batches of all tables.
const PENDING_BYTES: usize = 8 << 20;
/// How the payloads of an event type become the columns of a table.
#[derive(Debug)]
pub(crate) struct Decoder {
    ops: Vec<Op>,
    fields: Vec<Field>,
    texts: Option<KernelTexts>,
    extras: Extras,
}

impl Decoder {
    /// Decodes fields in a table with these extras. A field of the type text that is decoded as a number is the address
    /// of one of `texts`.
    pub(crate) fn new(
        ops: &[Op],
        fields: &[Field],
        texts: Option<&KernelTexts>,
        extras: Extras,
    ) -> Decoder {
        Decoder {
            ops: ops.to_vec(),
            fields: fields.to_vec(),
            texts: texts.cloned(),
            extras,
        }
    }

    /// Whether it decodes as another does.
    fn is_same(&self, other: &Decoder) -> bool {
        let none = self.texts.is_none() && other.texts.is_none();
        none && self.ops == other.ops && self.extras == other.extras
    }
}

/// Hits of one table.
#[derive(Debug)]
struct Batch {
    heads: Vec<Head>,
    /// Number of events that each hit represents, if the table has it.
    periods: Vec<Option<i64>>,
    payloads: Vec<u8>,
    /// Where each ends; empty while all have the same length.
    ends: Vec<u32>,
    /// Length of the first one, and of the shortest.
    length: usize,
    shortest: usize,
    decoder: Arc<Decoder>,
    comms: Names,
    home: Arc<Spare<Batch>>,
}

impl Batch {
    fn clear(&mut self) {
        self.heads.clear();
        self.periods.clear();
        self.payloads.clear();
        self.ends.clear();
    }

    #[inline]
    fn push(&mut self, head: Head, payload: &[u8], period: Option<i64>) {
        if self.heads.is_empty() {
            self.length = payload.len();
            self.shortest = payload.len();
        } else if payload.len() != self.length || !self.ends.is_empty() {
            self.push_end(payload.len());
        }
        if self.heads.len() == FEW {
            self.make_room();
        }
        self.heads.push(head);
        self.payloads.extend_from_slice(payload);
        if self.decoder.extras.period {
            self.periods.push(period);
        }
    }

    /// Makes room for a full batch. Most tables of a recording have few rows: they take no more memory than these.
    #[cold]
    fn make_room(&mut self) {
        self.heads.reserve_exact(ROWS - FEW);
        let payloads = (ROWS - FEW) * self.length;
        self.payloads.reserve_exact(payloads.min(PAYLOAD_BYTES));
    }

    /// Payloads have several lengths: notes where this one ends.
    fn push_end(&mut self, length: usize) {
        self.shortest = self.shortest.min(length);
        if self.ends.is_empty() {
            let before = (1..=self.heads.len()).map(|count| (count * self.length) as u32);
            self.ends.extend(before);
        }
        self.ends.push((self.payloads.len() + length) as u32);
    }

    fn is_full(&self) -> bool {
        self.heads.len() >= ROWS || self.payloads.len() >= PAYLOAD_BYTES
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.heads[..]) + self.payloads.len() + size_of_val(&self.ends[..])
    }

    /// Pushes the fields of payloads.
    fn push_fields<'p>(
        &self,
        columns: &mut [Column],
        payloads: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
    ) {
        let Decoder {
            ops, fields, texts, ..
        } = &*self.decoder;
        let mut lists = Lists::default();
        for ((op, field), column) in ops.iter().zip(fields).zip(columns) {
            let is_text = texts.is_some() && field.kind == FieldType::Text;
            match (op.integer(), op.words()) {
                (Some(integer), _)
                    if !is_text && integer.offset + integer.width <= self.shortest =>
                {
                    push_integers(column, integer, payloads.clone());
                }
                (_, Some((offset, length))) if offset + 8 * length <= self.shortest => {
                    let lists = payloads.clone().map(|payload| {
                        let (words, _) = payload
                            .get(offset..offset + 8 * length)
                            .unwrap_or_default()
                            .as_chunks::<8>();
                        words.iter().map(|word| Endian::Little.u64(*word))
                    });
                    column.extend_lists(length, lists, op.is_signed());
                }
                _ => {
                    for payload in payloads.clone() {
                        let value = op.decode(payload);
                        push_field(value, field, texts.as_ref(), &mut lists, column);
                    }
                }
            }
        }
    }
}

/// Pushes an integer of each payload; all payloads are long enough.
fn push_integers<'p>(
    column: &mut Column,
    integer: Integer,
    payloads: impl ExactSizeIterator<Item = &'p [u8]>,
) {
    let Integer {
        offset,
        width,
        is_signed,
    } = integer;
    macro_rules! push {
        ($type:ident, $extend:ident, $wide:ident) => {
            column.$extend(
                $type::BITS,
                payloads.map(|payload| {
                    let bytes = array_at(payload, offset).unwrap_or_default();
                    $wide::from(Endian::Little.$type(bytes))
                }),
            )
        };
    }
    match (width, is_signed) {
        (1, false) => push!(u8, extend_u64, u64),
        (2, false) => push!(u16, extend_u64, u64),
        (4, false) => push!(u32, extend_u64, u64),
        (_, false) => push!(u64, extend_u64, u64),
        (1, true) => push!(i8, extend_i64, i64),
        (2, true) => push!(i16, extend_i64, i64),
        (4, true) => push!(i32, extend_i64, i64),
        (_, true) => push!(i64, extend_i64, i64),
    }
}

impl Fill for Batch {
    fn fill(mut self: Box<Self>, rows: &mut Rows) -> usize {
        let count = self.heads.len();
        let columns = rows.columns_mut();
        let common = tables::common::NAMES.len().min(columns.len());
        let (common, columns) = columns.split_at_mut(common);
        push_heads(common, self.heads.iter(), &self.comms);
        let (fields, extras) = columns.split_at_mut(self.decoder.ops.len().min(columns.len()));
        if !self.ends.is_empty() {
            let starts = std::iter::once(&0).chain(&self.ends);
            let payloads: Vec<&[u8]> = starts
                .zip(&self.ends)
                .map(|(&start, &end)| self.payloads.get(start as usize..end as usize))
                .map(Option::unwrap_or_default)
                .collect();
            self.push_fields(fields, payloads.iter().copied());
        } else if self.length > 0 {
            self.push_fields(fields, self.payloads.chunks_exact(self.length));
        } else {
            self.push_fields(fields, std::iter::repeat_n(&[][..], count));
        }
        let mut extras = extras.iter_mut();
        if self.decoder.extras.period
            && let Some(column) = extras.next()
        {
            column.extend_some(64, self.periods.iter().copied());
        }
        extras.for_each(|column| column.push_nulls(count));
        self.clear();
        let home = Arc::clone(&self.home);
        home.put(*self);
        count
    }
}

/// The batches of all tables that are not full yet.
#[derive(Default)]
pub(crate) struct Hits {
    batches: Vec<Option<Batch>>,
    /// Memory of all of them.
    bytes: usize,
    /// The decoders of each table.
    decoders: Vec<(TableId, Arc<Decoder>)>,
    spare: Arc<Spare<Batch>>,
}

impl Hits {
    /// Returns a decoder for a table: an equal one of the same table, if there is one.
    pub(crate) fn decoder(&mut self, table: TableId, decoder: Decoder) -> Arc<Decoder> {
        let known = &mut self.decoders;
        let is_it =
            |known: &&(TableId, Arc<Decoder>)| known.0 == table && known.1.is_same(&decoder);
        match known.iter().find(is_it) {
            Some((_, same)) => Arc::clone(same),
            None => {
                let decoder = Arc::new(decoder);
                known.push((table, Arc::clone(&decoder)));
                decoder
            }
        }
    }

    /// Adds a hit to a table.
    #[inline]
    pub(crate) fn push(
        &mut self,
        writer: &mut Writer,
        (table, decoder): (TableId, &Arc<Decoder>),
        comms: &Names,
        head: Head,
        payload: &[u8],
        period: Option<i64>,
    ) -> Result<(), Error> {
        let place = table.index();
        let is_open = matches!(
            self.batches.get(place),
            Some(Some(batch)) if Arc::ptr_eq(&batch.decoder, decoder)
        );
        if !is_open {
            self.begin(writer, table, decoder, comms)?;
        }
        let Some(Some(batch)) = self.batches.get_mut(place) else {
            return Ok(());
        };
        batch.push(head, payload, period);
        self.bytes += size_of::<Head>() + payload.len();
        if batch.is_full() {
            return self.hand_over(writer, table);
        }
        if self.bytes > PENDING_BYTES {
            return self.hand_over_all(writer);
        }
        Ok(())
    }

    #[cold]
    fn begin(
        &mut self,
        writer: &mut Writer,
        table: TableId,
        decoder: &Arc<Decoder>,
        comms: &Names,
    ) -> Result<(), Error> {
        self.hand_over(writer, table)?;
        let (place, hits) = (table.index(), self);
        if hits.batches.len() <= place {
            hits.batches.resize_with(place + 1, || None);
        }
        let batch = match hits.spare.take() {
            Some(mut batch) => {
                batch.decoder = Arc::clone(decoder);
                batch.comms = comms.clone();
                batch
            }
            None => Batch {
                heads: Vec::new(),
                periods: Vec::new(),
                payloads: Vec::new(),
                ends: Vec::new(),
                length: 0,
                shortest: 0,
                decoder: Arc::clone(decoder),
                comms: comms.clone(),
                home: Arc::clone(&hits.spare),
            },
        };
        if let Some(slot) = hits.batches.get_mut(place) {
            *slot = Some(batch);
        }
        Ok(())
    }

    /// Passes the hits of a table on; needed before anything else is added to it.
    pub(crate) fn hand_over(&mut self, writer: &mut Writer, table: TableId) -> Result<(), Error> {
        let batch = self.batches.get_mut(table.index());
        let Some(batch) = batch.and_then(Option::take) else {
            return Ok(());
        };
        let payloads = batch.payloads.len();
        self.bytes -= size_of_val(&batch.heads[..]) + payloads;
        let bytes = batch.bytes();
        writer.fill(table, Box::new(batch), bytes)
    }

    /// Passes the hits of all tables on.
    pub(crate) fn hand_over_all(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let tables: Vec<TableId> = self
            .batches
            .iter()
            .enumerate()
            .filter(|(_, batch)| batch.is_some())
            .map(|(index, _)| TableId::at(index))
            .collect();
        tables
            .into_iter()
            .try_for_each(|table| self.hand_over(writer, table))
    }
}

#[cfg(test)]
mod tests {
    use perfquet_events::event::{
        Event, EventId, EventType, FieldPlace, Hit, Id, KernelText, Layout, Payload, Plan, Space,
    };
    use proptest::prelude::*;

    use super::super::tests::{Rows as Found, Trace, clock, comm, mapping, send};
    use super::*;

    /// Fields of all kinds, some of which reach past short payloads.
    fn fields(shift: u32) -> Vec<Field> {
        use FieldPlace::{DataLoc, Inline, Rest};
        let field = |name: &str, kind, offset, size, place, declaration: &str| Field {
            name: name.to_owned(),
            kind,
            layout: Some(Layout {
                offset: offset + shift,
                size,
                place,
            }),
            declaration: declaration.to_owned(),
        };
        vec![
            field("byte", FieldType::UInt(1), 0, 1, Inline, ""),
            field("small", FieldType::Int(2), 2, 2, Inline, ""),
            field("number", FieldType::Int(4), 4, 4, Inline, ""),
            field("address", FieldType::UInt(8), 8, 8, Inline, "void *address"),
            field(
                "string",
                FieldType::UInt(8),
                8,
                8,
                Inline,
                "const char *string",
            ),
            field("text", FieldType::Text, 16, 4, Inline, ""),
            field("where", FieldType::Text, 20, 4, DataLoc, ""),
            field("words", FieldType::UIntList(8), 24, 16, Inline, ""),
            field("pairs", FieldType::IntList(4), 24, 16, Inline, ""),
            field("far", FieldType::Int(8), 40, 8, Inline, ""),
            field("rest", FieldType::Binary, 44, 0, Rest, ""),
        ]
    }

    fn event(name: &str, shift: u32, extras: Extras) -> EventType {
        EventType {
            system: "test".to_owned(),
            name: name.to_owned(),
            fields: fields(shift),
            print_format: Some("\"%s\", REC->string".to_owned()),
            extras,
            ..EventType::default()
        }
    }

    fn system_call(name: &str) -> EventType {
        let numbers = fields(0).into_iter().filter(|field| field.name == "byte");
        let rename = |field: Field| Field {
            name: "id".to_owned(),
            ..field
        };
        EventType {
            system: "raw_syscalls".to_owned(),
            name: name.to_owned(),
            fields: numbers.map(rename).collect(),
            ..EventType::default()
        }
    }

    #[derive(Debug, Clone)]
    struct Random {
        event: u32,
        length: usize,
        seed: u8,
        tid: i32,
        has_ip: bool,
        period: Option<u64>,
        /// As a sample with an unusual member.
        is_unusual: bool,
    }

    fn random() -> impl Strategy<Value = Random> {
        let period = prop::option::of(1..4u64);
        let rest = (
            0..60u8,
            -1..4i32,
            any::<bool>(),
            period,
            prop::bool::weighted(0.1),
        );
        let length = prop_oneof![4 => Just(56usize), 1 => 0..70usize];
        (0..7u32, length, rest).prop_map(|(event, length, rest)| Random {
            event,
            length,
            seed: rest.0,
            tid: rest.1,
            has_ip: rest.2,
            period: rest.3,
            is_unusual: rest.4,
        })
    }

    fn trace(hits: &[Random], as_hits: bool) -> Found {
        let mut trace = Trace::new();
        trace.input("a", |sink| {
            let text = b"in the kernel";
            for address in [0, 0x0807_0605_0403_0201] {
                send(sink, Event::KernelText(KernelText { address, text }));
            }
            let varies = Extras {
                period: true,
                ..Extras::default()
            };
            // The first two go to one table.
            let types = [
                event("one", 0, Extras::default()),
                event("one", 1, Extras::default()),
                event("other", 0, varies),
                EventType {
                    big_endian: true,
                    ..event("third", 0, varies)
                },
                clock(),
                system_call("sys_enter"),
                system_call("sys_exit"),
            ];
            types
                .iter()
                .for_each(|event| send(sink, Event::Type(event)));
            send(sink, comm(1, b"sh"));
            send(sink, comm(2, b"dd"));
            send(
                sink,
                mapping(-1, 0xffff_ffff_8000_0000, b"[kernel.kallsyms]"),
            );
            let plans = types
                .each_ref()
                .map(|event| Plan::new(&event.fields, event.big_endian));
            for (time, random) in (0..).zip(hits) {
                let bytes: Vec<u8> = (0..random.length)
                    .map(|at| random.seed.wrapping_mul(at as u8).wrapping_add(at as u8))
                    .collect();
                let hit = Hit {
                    event: EventId(random.event),
                    time,
                    cpu: Id::from((random.seed > 3).then_some(1)),
                    pid: Id::of(random.tid),
                    tid: Id::of(random.tid),
                    stacks: None,
                    space: Space::Kernel,
                    ip: random.has_ip.then_some(0xffff_ffff_8000_0010),
                    period: random.period,
                    payload: Some(Payload {
                        bytes: &bytes,
                        plan: &plans[random.event as usize],
                    }),
                };
                match as_hits && !random.is_unusual {
                    true => sink.hit(&hit).unwrap(),
                    false => send(sink, Event::Sample(&hit.sample())),
                }
            }
        });
        trace.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn hits_become_the_rows_of_samples(hits in prop::collection::vec(random(), 0..300)) {
            let (batched, single) = (trace(&hits, true), trace(&hits, false));
            let names: Vec<String> = fields(0).into_iter().map(|field| field.name).collect();
            let mut columns: Vec<&str> = tables::common::NAMES.to_vec();
            columns.extend(names.iter().map(String::as_str));
            for table in ["one", "other", "third"] {
                if table != "one" {
                    columns.push("sample_period");
                }
                let table = format!("events/test/{table}");
                // Rows with more columns than the others are parts of their own, in no order.
                let rows = |found: &Found| {
                    let mut rows = found.of(&table, &columns);
                    rows.sort_by_key(|row| row.split(' ').next().and_then(|time| time.parse::<i64>().ok()));
                    rows
                };
                prop_assert_eq!(rows(&batched), rows(&single));
                columns.retain(|name| *name != "sample_period");
            }
            let calls = ["time", "tid", "comm", "duration", "self_time", "function", "call_id", "parent_id"];
            prop_assert_eq!(batched.of("calls", &calls), single.of("calls", &calls));
            let samples = ["time", "cpu", "tid", "comm", "kernel_stack", "event", "period", "ip"];
            prop_assert_eq!(batched.of("samples", &samples), single.of("samples", &samples));
            prop_assert_eq!(batched.counts, single.counts);
        }
    }

    #[test]
    fn many_hits_fill_many_batches() {
        let hit = |number: usize| Random {
            event: number as u32 % 3,
            length: 56,
            seed: (number % 50) as u8,
            tid: number as i32 % 3,
            has_ip: true,
            period: None,
            is_unusual: number % 2000 == 1999,
        };
        let hits: Vec<Random> = (0..10_000).map(hit).collect();
        let (batched, single) = (trace(&hits, true), trace(&hits, false));
        for table in ["events/test/one", "events/test/other"] {
            let rows =
                |trace: &Found| trace.of(table, &["time", "comm", "number", "text", "string"]);
            assert_eq!(rows(&batched), rows(&single));
            assert!(rows(&batched).len() > 3000);
        }
    }
}
