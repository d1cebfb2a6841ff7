//! Allocations of threads, by time.
//!
//! ```text
//! "nativeAllocations":{"time":[11,13],"stack":[1,1],"weight":[64,-64],"weightType":"bytes","memoryAddress":[4096,4096],"threadId":[8,8]}
//! "jsAllocations":{"time":[11],"stack":[1],"weight":[64],"className":["Array"],"typeName":[""],"coarseType":["Object"],"inNursery":[true]}
//! ```
//! A negative weight is that of memory that is freed, so they are no samples: periods are at least 0.

use std::borrow::Cow;

use perfquet_events::event::{FieldType, Value};

use super::tables::member;
use super::threads::{Row, Samples, Thread};
use crate::json::{Elements, elements, integer, text};

/// Where allocations come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Native,
    Js,
}

impl Kind {
    pub(super) const ALL: [Kind; 2] = [Kind::Native, Kind::Js];

    fn member(self) -> &'static [u8] {
        match self {
            Kind::Native => b"nativeAllocations",
            Kind::Js => b"jsAllocations",
        }
    }

    /// Name of the event.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Native => "native_allocation",
            Kind::Js => "js_allocation",
        }
    }

    pub(super) fn fields(self) -> &'static [(&'static str, FieldType)] {
        match self {
            Kind::Native => &[("bytes", FieldType::Int(8)), ("address", FieldType::Int(8))],
            Kind::Js => &[
                ("bytes", FieldType::Int(8)),
                ("class_name", FieldType::Text),
                ("type_name", FieldType::Text),
                ("coarse_type", FieldType::Text),
                ("in_nursery", FieldType::Bool),
            ],
        }
    }

    /// The columns besides those of all samples.
    fn columns(self) -> [&'static [u8]; 4] {
        match self {
            Kind::Native => [b"memoryAddress", b"threadId", b"", b""],
            Kind::Js => [b"className", b"typeName", b"coarseType", b"inNursery"],
        }
    }
}

/// An allocation.
#[derive(Debug)]
pub(super) struct Allocation<'a> {
    pub(super) row: Row<'a>,
    /// Index of the thread.
    pub(super) thread: usize,
    kind: Kind,
    /// JSON of the columns.
    values: [&'a [u8]; 4],
}

/// The allocations of all threads, in the order of time.
pub(super) fn allocations<'a>(kind: Kind, threads: &[Thread<'a>]) -> Vec<Allocation<'a>> {
    let mut all = Vec::new();
    for (place, thread) in threads.iter().enumerate() {
        let table = member(&[thread.object], kind.member());
        if !table.starts_with(b"{") {
            continue;
        }
        let mut columns: [Elements<'a>; 4] = kind.columns().map(|name| match name {
            b"" => elements(b""),
            name => elements(member(&[table], name)),
        });
        all.extend(Samples::of(table).map(|row| {
            Allocation {
                row,
                thread: place,
                kind,
                values: columns
                    .each_mut()
                    .map(|column| column.next().unwrap_or_default()),
            }
        }));
    }
    all.sort_by_key(|allocation| allocation.row.time);
    all
}

impl<'a> Allocation<'a> {
    /// The thread that allocates: native allocations of a process are in the table of its first thread.
    pub(super) fn tid(&self) -> Option<i32> {
        match self.kind {
            Kind::Native => integer(self.values[1]).and_then(|tid| i32::try_from(tid).ok()),
            Kind::Js => None,
        }
    }

    fn bytes(&self) -> Option<i64> {
        integer(self.row.weight?)
    }

    /// Why it has no size, if it has none.
    pub(super) fn problem(&self) -> Option<&'a [u8]> {
        match self.bytes() {
            Some(_) => None,
            None => Some(self.row.weight.unwrap_or_default()),
        }
    }

    /// Calls a function with the values of the fields.
    pub(super) fn with_values<T>(&self, emit: impl FnOnce(&[Value<'_>]) -> T) -> T {
        let bytes = self.bytes().map_or(Value::Null, Value::Int);
        match self.kind {
            Kind::Native => {
                let address = integer(self.values[0]).map_or(Value::Null, Value::Int);
                emit(&[bytes, address])
            }
            Kind::Js => {
                let texts: [Option<Cow<'_, [u8]>>; 3] = [0, 1, 2].map(|place| {
                    let value = self.values.get(place).copied().unwrap_or_default();
                    value.starts_with(b"\"").then(|| text(value))
                });
                let texts = texts.each_ref().map(|text| match text {
                    Some(text) => Value::Bytes(text),
                    None => Value::Null,
                });
                let in_nursery = match self.values[3] {
                    b"true" => Value::Bool(true),
                    b"false" => Value::Bool(false),
                    _ => Value::Null,
                };
                emit(&[bytes, texts[0], texts[1], texts[2], in_nursery])
            }
        }
    }
}
