//! Event IDs: the format files in the trace, each parsed at the first event of its kind.
//!
//! A file of `trace-cmd record -e all` has 2,300 of them, and its events usually use a few dozen.

use hashbrown::HashMap;
use perfquet_events::bytes::Endian;
use perfquet_events::event::{Context, Field, FieldType, Flags, Layout};
use perfquet_events::event::{Op, Value};
use perfquet_events::event_format::EventFormat;

use crate::tracing_data::TracingData;

/// The common fields of every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Common {
    /// The ID of its format.
    pub(super) id: u32,
    pub(super) tid: i32,
    /// The PID, if the kernel reports it (`common_tgid` of old Android kernels).
    pub(super) pid: Option<i32>,
    pub(super) flags: Flags,
}

impl Common {
    /// The context of the event.
    pub(super) fn context(&self) -> Context {
        self.flags.context()
    }

    /// Whether a stack with these fields can be that of an event with `other`.
    #[inline]
    pub(super) fn is_of(&self, other: &Common) -> bool {
        self.tid == other.tid && self.context() == other.context()
    }
}

/// Kinds of stacks, which belong to the preceding event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StackKind {
    Kernel,
    User,
}

/// Offsets of the common fields of all payloads, and the IDs of stacks.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommonFields {
    id: Op,
    flags: Op,
    preempt_count: Option<Op>,
    tid: Op,
    tgid: Option<Op>,
    kernel_stack: Option<u32>,
    user_stack: Option<u32>,
}

impl CommonFields {
    #[inline]
    pub(super) fn read(&self, payload: &[u8]) -> Option<Common> {
        let id = number(&self.id, payload)?;
        let tid = number(&self.tid, payload)?;
        Some(Common {
            // IDs have two bytes in every kernel.
            id: u32::from(id as u16),
            tid: tid as i32,
            pid: match &self.tgid {
                None => None,
                Some(tgid) => number(tgid, payload).map(|tgid| tgid as i32),
            },
            flags: Flags {
                bits: number(&self.flags, payload).unwrap_or(0) as u8,
                preempt_count: match &self.preempt_count {
                    None => 0,
                    Some(count) => number(count, payload).unwrap_or(0) as u8,
                },
            },
        })
    }

    pub(super) fn kernel_stack_id(&self) -> Option<u32> {
        self.kernel_stack
    }

    pub(super) fn user_stack_id(&self) -> Option<u32> {
        self.user_stack
    }

    #[inline]
    pub(super) fn stack_kind(&self, id: u32) -> Option<StackKind> {
        if Some(id) == self.kernel_stack {
            Some(StackKind::Kernel)
        } else if Some(id) == self.user_stack {
            Some(StackKind::User)
        } else {
            None
        }
    }
}

/// The value of a numeric field; its bits, if it is signed.
#[inline]
pub(super) fn number(op: &Op, payload: &[u8]) -> Option<u64> {
    match op.decode(payload) {
        Value::UInt(value) => Some(value),
        Value::Int(value) => Some(value as u64),
        _ => None,
    }
}

/// Number of formats whose common fields are compared.
const WITNESSES: usize = 5;

struct Text<'s> {
    system: &'s [u8],
    text: &'s [u8],
}

/// IDs of known events, which have 16 bits.
pub(super) struct KnownIds(Vec<u64>);

impl KnownIds {
    #[inline]
    pub(super) fn has(&self, id: u32) -> bool {
        let word = self.0.get(id as usize / 64).copied().unwrap_or(0);
        word >> (id % 64) & 1 == 1
    }
}

/// The format files of a file.
pub(super) struct Formats<'s> {
    texts: Vec<Text<'s>>,
    by_id: HashMap<u32, usize>,
    endian: Endian,
    long_size: u8,
    /// Whether further formats were lost.
    is_incomplete: bool,
}

impl<'s> Formats<'s> {
    /// Finds the IDs of all formats; also returns the number of formats without one.
    pub(super) fn new(data: &TracingData<'s>, long_size: u8) -> (Formats<'s>, u64) {
        let ftrace = data.ftrace.iter().map(|text| (&b"ftrace"[..], *text));
        let mut formats = Formats {
            texts: Vec::new(),
            by_id: HashMap::new(),
            endian: data.endian,
            long_size,
            is_incomplete: data.lacks_formats,
        };
        let mut damaged = 0;
        for (system, text) in ftrace.chain(data.events.iter().copied()) {
            match id_in(text) {
                Some(id) => {
                    let index = formats.texts.len();
                    formats.by_id.entry(id).or_insert(index);
                    formats.texts.push(Text { system, text });
                }
                None => damaged += 1,
            }
        }
        formats.is_incomplete |= damaged > 0;
        (formats, damaged)
    }

    /// Parses the format of an ID: its system and fields.
    pub(super) fn parse(&self, id: u32) -> Option<Result<(String, EventFormat), String>> {
        let text = self.texts.get(*self.by_id.get(&id)?)?;
        let system = String::from_utf8_lossy(text.system).into_owned();
        Some(EventFormat::parse(text.text, self.long_size).map(|format| (system, format)))
    }

    /// The IDs of all formats, one bit each.
    pub(super) fn ids(&self) -> KnownIds {
        let mut known = KnownIds(vec![0; 1 << 10]);
        for id in self.by_id.keys() {
            if let Some(word) = known.0.get_mut(*id as usize / 64) {
                *word |= 1 << (id % 64);
            }
        }
        // An event without a format keeps its bytes.
        if self.by_id.is_empty() || self.is_incomplete {
            known.0.fill(u64::MAX);
        }
        known
    }

    /// The common fields, which are the same in all formats.
    pub(super) fn common(&self) -> CommonFields {
        let fields = self.common_fields();
        let op = |name: &str| {
            let field = fields.iter().find(|field| field.name == name)?;
            Some(Op::new(field, self.endian))
        };
        let usual = |name: &str, offset: u32, kind: FieldType, size: u32| {
            op(name).unwrap_or_else(|| {
                let field = Field {
                    name: name.to_owned(),
                    kind,
                    layout: Some(Layout {
                        offset,
                        size,
                        place: perfquet_events::event::FieldPlace::Inline,
                    }),
                    declaration: String::new(),
                };
                Op::new(&field, self.endian)
            })
        };
        CommonFields {
            id: usual("common_type", 0, FieldType::UInt(2), 2),
            flags: usual(Flags::BITS, 2, FieldType::UInt(1), 1),
            preempt_count: op(Flags::PREEMPT_COUNT),
            tid: usual("common_pid", 4, FieldType::Int(4), 4),
            tgid: op("common_tgid"),
            kernel_stack: self.id_of_own(b"kernel_stack"),
            user_stack: self.id_of_own(b"user_stack"),
        }
    }

    /// The common fields with interrupt context and scheduling state; none if the formats lack one of them.
    pub(super) fn flags(&self) -> Vec<Field> {
        let mut fields = self.common_fields();
        fields.retain(|field| Flags::has_field(&field.name));
        if fields.len() != 2 {
            fields.clear();
        }
        fields
    }

    /// The common fields shared by most of the first formats: any single one may be damaged.
    fn common_fields(&self) -> Vec<Field> {
        let parsed = self.texts.iter().filter_map(|text| {
            let format = EventFormat::parse(text.text, self.long_size).ok()?;
            Some(format.common)
        });
        let parsed: Vec<Vec<Field>> = parsed.take(WITNESSES).collect();
        let votes = |fields: &Vec<Field>| parsed.iter().filter(|other| *other == fields).count();
        // Of several, the first.
        let best = parsed.iter().rev().max_by_key(|fields| votes(fields));
        best.cloned().unwrap_or_default()
    }

    /// ID of one of ftrace's own events.
    fn id_of_own(&self, name: &[u8]) -> Option<u32> {
        let is_it = |text: &&Text<'_>| {
            let first = text.text.split(|&byte| byte == b'\n').next();
            let named = first.and_then(|line| line.strip_prefix(b"name:"));
            text.system == b"ftrace" && named.map(<[u8]>::trim_ascii) == Some(name)
        };
        id_in(self.texts.iter().find(is_it)?.text)
    }
}

/// The number after `ID:`.
fn id_in(text: &[u8]) -> Option<u32> {
    let line = text
        .split(|&byte| byte == b'\n')
        .take(4)
        .find_map(|line| line.strip_prefix(b"ID:"))?;
    str::from_utf8(line).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINT: &[u8] = b"name: print\nID: 5\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int common_tgid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long ip;\toffset:16;\tsize:8;\tsigned:0;\n";

    #[test]
    fn common_fields_are_where_the_format_says() {
        let stack = PRINT.strip_prefix(b"name: print\nID: 5").unwrap();
        let stack = [b"name: kernel_stack\nID: 4", stack].concat();
        let data = TracingData {
            ftrace: vec![PRINT, &stack, b"name: x\n"],
            events: vec![(b"sched", b"name: sched_switch\nID: 5\n")],
            ..TracingData::default()
        };
        let (formats, damaged) = Formats::new(&data, 8);
        assert_eq!(damaged, 1);
        let (system, format) = formats.parse(5).unwrap().unwrap();
        assert_eq!((system.as_str(), format.name.as_str()), ("ftrace", "print"));
        assert!(formats.parse(6).is_none());
        let common = formats.common();
        assert_eq!(common.stack_kind(4), Some(StackKind::Kernel));
        assert_eq!(common.stack_kind(5), None);
        let payload = [5, 0, 0x48, 0, 7, 0, 0, 0, 9, 0, 0, 0];
        let read = common.read(&payload).unwrap();
        assert_eq!((read.id, read.tid, read.pid), (5, 9, Some(7)));
        assert_eq!(read.context(), Context::Nmi);
        assert_eq!(common.read(&payload[..10]), None);
    }
}
