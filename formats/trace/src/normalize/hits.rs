//! Hits on their way to columns: the reading thread copies heads and payloads, the encoder's thread decodes them.
//!
//! ```text
//! heads      time cpu pid tid comm stacks │ time cpu …              one for each hit
//! payloads   common_type … id args        │ common_type … id args   as the kernel wrote them
//!            ─► column id: one loop       ─► column args: one loop
//! ```
//! A batch belongs to a table: hits of several event types may go to one. It is passed on when it is full, when a payload
//! needs another decoder, or before anything else is added to the table.

use std::sync::{Arc, Mutex, PoisonError};

use perfquet_events::Error;
use perfquet_events::bytes::{Endian, array_at};
use perfquet_events::event::{Extras, Field, FieldType, Integer, Op};

use super::fields::{Lists, push_field};
use super::kernel_texts::KernelTexts;
use crate::store::{Column, Fill, Names, Rows, TableId, Writer};
use crate::tables;

/// Hits in a batch: their payloads stay in a core's cache. Divides the rows of a page.
const ROWS: usize = 1024;
/// Bytes of payloads in a batch, where these are long.
const PAYLOAD_BYTES: usize = 256 << 10;
/// Bytes in the batches of all tables.
const PENDING_BYTES: usize = 8 << 20;
/// Batches kept to be used again.
const SPARE: usize = 32;

/// No value, in a [`Head`].
const NONE: u32 = u32::MAX;

/// What every hit has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) time: i64,
    cpu: u32,
    pid: i32,
    tid: i32,
    comm: u32,
    kernel_stack: u32,
    user_stack: u32,
}

impl Head {
    /// `pid` and `tid` are not negative.
    #[inline]
    pub(crate) fn new(time: i64, cpu: Option<u32>, pid: Option<i32>, tid: Option<i32>) -> Head {
        Head {
            time,
            cpu: cpu.unwrap_or(NONE),
            pid: pid.unwrap_or(-1),
            tid: tid.unwrap_or(-1),
            comm: NONE,
            kernel_stack: NONE,
            user_stack: NONE,
        }
    }

    /// With a thread's name, by its ID.
    #[inline]
    pub(crate) fn named(self, comm: Option<u32>) -> Head {
        Head {
            comm: comm.unwrap_or(NONE),
            ..self
        }
    }

    /// With stacks.
    #[inline]
    pub(crate) fn on(self, kernel: Option<u32>, user: Option<u32>) -> Head {
        Head {
            kernel_stack: kernel.unwrap_or(NONE),
            user_stack: user.unwrap_or(NONE),
            ..self
        }
    }
}

#[inline]
fn known(value: u32) -> Option<u32> {
    (value != NONE).then_some(value)
}

/// Pushes the common columns.
pub(crate) fn push_heads<'h>(
    columns: &mut [Column],
    heads: impl ExactSizeIterator<Item = &'h Head> + Clone,
    comms: &Names,
) {
    let [time, cpu, pid, tid, comm, kernel_stack, user_stack] = columns else {
        debug_assert!(false, "common columns other than those of a head");
        return;
    };
    let stack = |value: u32| known(value).map(|stack| i64::from(stack as i32));
    let id = |value: i32| (value >= 0).then_some(i64::from(value));
    time.extend_i64(64, heads.clone().map(|head| head.time));
    let cpus = heads.clone().map(|head| known(head.cpu));
    cpu.extend_some(32, cpus.map(|cpu| cpu.map(|cpu| i64::from(cpu as i32))));
    pid.extend_some(32, heads.clone().map(|head| id(head.pid)));
    tid.extend_some(32, heads.clone().map(|head| id(head.tid)));
    comm.extend_named(comms, heads.clone().map(|head| known(head.comm)));
    kernel_stack.extend_some(32, heads.clone().map(|head| stack(head.kernel_stack)));
    user_stack.extend_some(32, heads.map(|head| stack(head.user_stack)));
}

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
    /// Number of events that each stands for, if the table has it.
    periods: Vec<Option<i64>>,
    payloads: Vec<u8>,
    /// Where each ends; empty while all have the same length.
    ends: Vec<u32>,
    /// Length of the first one, and of the shortest.
    length: usize,
    shortest: usize,
    decoder: Arc<Decoder>,
    comms: Names,
    home: Arc<Spare>,
}

/// Batches that were written.
#[derive(Debug, Default)]
struct Spare(Mutex<Vec<Batch>>);

impl Spare {
    fn take(&self) -> Option<Batch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn put(&self, batch: Batch) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.push(batch);
        }
    }
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
        self.heads.push(head);
        self.payloads.extend_from_slice(payload);
        if self.decoder.extras.period {
            self.periods.push(period);
        }
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
    spare: Arc<Spare>,
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
        Event, EventId, EventType, FieldPlace, Hit, KernelText, Layout, Payload, Plan, Space, Stack,
    };
    use proptest::prelude::*;

    use super::super::tests::{Rows as Found, Trace, comm, mapping, send};
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
        (0..4u32, length, rest).prop_map(|(event, length, rest)| Random {
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
                    cpu: (random.seed > 3).then_some(1),
                    pid: Some(random.tid),
                    tid: Some(random.tid),
                    kernel_stack: Stack::None,
                    user_stack: Stack::None,
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
                prop_assert_eq!(batched.of(&table, &columns), single.of(&table, &columns));
                columns.retain(|name| *name != "sample_period");
            }
            prop_assert_eq!(batched.counts, single.counts);
        }
    }

    #[test]
    fn many_hits_fill_many_batches() {
        let hit = |number: usize| Random {
            event: number as u32 % 3,
            length: 56,
            seed: number as u8 % 50,
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
