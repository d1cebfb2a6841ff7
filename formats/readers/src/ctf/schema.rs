//! What the metadata declares: types, packets, events, clocks.

use std::sync::Arc;

use perfquet_events::bytes::Endian;

/// A type of fields.
#[derive(Debug)]
pub(super) enum Type {
    Integer(Integer),
    Float {
        size: u32,
        align: u64,
        endian: Option<Endian>,
    },
    Enum {
        integer: Integer,
        labels: Arc<Labels>,
    },
    /// Bytes up to a NUL.
    Text,
    Struct {
        fields: Vec<(String, Arc<Type>)>,
        align: u64,
    },
    Variant {
        /// Path of the enumeration that selects the option.
        selector: Option<String>,
        options: Vec<(String, Arc<Type>)>,
        /// Inclusive ranges of the selector and their options; `None`: labels of the enumeration are names of options.
        choices: Option<Vec<(i128, i128, usize)>>,
    },
    Array {
        element: Arc<Type>,
        length: u64,
    },
    Sequence {
        element: Arc<Type>,
        /// Path of the integer that has the number of elements.
        length: String,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Integer {
    /// Bits, 1 to 64; 0: of variable length (LEB128).
    pub(super) size: u32,
    /// Bits, a power of two.
    pub(super) align: u64,
    pub(super) is_signed: bool,
    /// `None`: that of the trace.
    pub(super) endian: Option<Endian>,
    /// Arrays of it are texts.
    pub(super) is_text: bool,
    /// Shown in hexadecimal.
    pub(super) is_hexadecimal: bool,
    /// Name of the clock whose low bits it has.
    pub(super) clock: Option<String>,
}

/// Labels of an enumeration, with inclusive ranges.
#[derive(Debug, Default)]
pub(super) struct Labels(pub(super) Vec<(String, i128, i128)>);

impl Labels {
    /// The first label of a value.
    pub(super) fn of(&self, value: i128) -> Option<&str> {
        let mut labels = self.0.iter();
        let found = labels.find(|(_, low, high)| (*low..=*high).contains(&value));
        found.map(|(label, ..)| label.as_str())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Clock {
    pub(super) name: String,
    pub(super) uuid: Option<String>,
    /// Cycles per second.
    pub(super) frequency: u64,
    pub(super) offset_seconds: i64,
    pub(super) offset_cycles: i64,
    pub(super) is_absolute: bool,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            name: String::new(),
            uuid: None,
            frequency: 1_000_000_000,
            offset_seconds: 0,
            offset_cycles: 0,
            is_absolute: false,
        }
    }
}

impl Clock {
    /// Whether both give the same cycles the same time.
    pub(super) fn runs_like(&self, other: &Clock) -> bool {
        let of = |clock: &Clock| (clock.frequency, clock.offset_seconds, clock.offset_cycles);
        of(self) == of(other)
    }

    /// Nanoseconds of a number of cycles.
    pub(super) fn nanoseconds(&self, cycles: u64) -> u64 {
        if self.frequency == 1_000_000_000 {
            return cycles;
        }
        let exact = u128::from(cycles) * 1_000_000_000 / u128::from(self.frequency.max(1));
        u64::try_from(exact).unwrap_or(u64::MAX)
    }

    /// Nanoseconds from 1970 to the zero of the clock, if it is known.
    pub(super) fn wall_offset(&self) -> Option<i64> {
        if self.offset_seconds == 0 && self.offset_cycles == 0 && !self.is_absolute {
            return None;
        }
        let cycles =
            i128::from(self.offset_cycles) * 1_000_000_000 / i128::from(self.frequency.max(1));
        i64::try_from(i128::from(self.offset_seconds) * 1_000_000_000 + cycles).ok()
    }
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) id: u64,
    pub(super) packet_context: Option<Arc<Type>>,
    pub(super) event_header: Option<Arc<Type>>,
    pub(super) event_context: Option<Arc<Type>>,
}

#[derive(Debug, Default)]
pub(super) struct EventClass {
    pub(super) id: u64,
    pub(super) stream: u64,
    pub(super) name: String,
    pub(super) context: Option<Arc<Type>>,
    pub(super) fields: Option<Arc<Type>>,
}

/// The metadata of a trace.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    /// That of the trace, if it is declared.
    pub(super) endian: Option<Endian>,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) packet_header: Option<Arc<Type>>,
    pub(super) env: Vec<(String, String)>,
    pub(super) clocks: Vec<Clock>,
    pub(super) streams: Vec<Stream>,
    pub(super) events: Vec<EventClass>,
    /// What was skipped, with its line.
    pub(super) skipped: Vec<(u64, String)>,
}

impl Metadata {
    /// A value of the environment.
    pub(super) fn env(&self, name: &str) -> Option<&str> {
        let found = self.env.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}
