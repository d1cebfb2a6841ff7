//! Declares each event type at its first event, and finds the types that need special treatment.

use std::rc::Rc;

use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Field, FieldPlace, FieldType, Fields, Layout, Op,
    Payload, Place, Plan,
};
use perfquet_events::event_format::EventFormat;

use crate::trace_dat::formats::Formats;
use crate::trace_dat::reporter::Reporter;

/// How events of an ID are handled. Small, because it is looked up for every event.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Not looked up yet.
    New,
    /// A sample with its payload.
    Plain(EventId),
    /// A special event: its index among those.
    Special(u32),
}

/// Events that are more than a sample with a payload.
#[derive(Debug, Clone, Copy)]
pub(super) enum Special {
    /// Names threads.
    Sched(EventId, Names),
    /// Has columns besides its fields, so it is emitted as values.
    Decoded(EventId, Option<Names>),
    Function(Function),
    Enter(Entry),
    Leave(Exit),
    /// A stack without a preceding event.
    KernelStack(EventId),
    UserStack(EventId),
    Print(EventId, Print),
    BinaryPrint(EventId, Print),
    PutString(EventId, Print),
}

/// `function`: ip, parent_ip, since 6.15 args.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    pub(super) ip: Op,
    pub(super) parent: Option<Op>,
    pub(super) args: Option<Op>,
}

/// `funcgraph_entry`, `fgraph_retaddr_entry`: func, depth; then retaddr or, since 6.15, args, whose first element it
/// is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) func: Op,
    pub(super) depth: Option<Op>,
    pub(super) retaddr: Option<Op>,
    pub(super) args: Option<Op>,
    pub(super) first_arg_is_retaddr: bool,
}

/// `funcgraph_exit`: func, depth, calltime, rettime, overrun, and retval if the kernel has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exit {
    pub(super) func: Op,
    pub(super) depth: Option<Op>,
    pub(super) calltime: Option<Op>,
    pub(super) rettime: Option<Op>,
    pub(super) overrun: Option<Op>,
    pub(super) retval: Option<Op>,
}

/// `print`: ip, buf; `bprint`: ip, fmt, buf; `bputs`: ip, str.
#[derive(Debug, Clone, Copy)]
pub(super) struct Print {
    pub(super) ip: Op,
    /// Address of the format or of the string.
    pub(super) address: Option<Op>,
    /// Offset of the string or of the arguments.
    pub(super) start: u32,
}

/// `sched_switch`, `sched_wakeup`: TIDs and comms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) first: (Op, Op),
    pub(super) second: Option<(Op, Op)>,
}

/// Field offsets in stacks: `size` or `tgid`; `caller`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StackFields {
    pub(super) count: Option<Op>,
    pub(super) tgid: Option<Op>,
    pub(super) callers: Option<u32>,
}

/// Columns of events besides their fields, in files where they have information.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extras {
    /// `buffer`: the name of the instance.
    pub(super) buffer: bool,
    /// `clock_value`: the count of a clock without a unit.
    pub(super) clock_value: bool,
}

impl Extras {
    pub(super) fn any(self) -> bool {
        self.buffer || self.clock_value
    }

    fn fields(self) -> impl Iterator<Item = Field> {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
            layout: None,
            declaration: String::new(),
        };
        let buffer = self.buffer.then(|| field("buffer", FieldType::Text));
        let clock = self
            .clock_value
            .then(|| field("clock_value", FieldType::UInt(8)));
        buffer.into_iter().chain(clock)
    }
}

/// Number of IDs that a `common_type` of two bytes can hold.
const IDS: usize = 1 << 16;

/// All event types of a file.
pub(super) struct Types<'s> {
    pub(super) formats: Formats<'s>,
    endian: Endian,
    kinds: Vec<Kind>,
    specials: Vec<Rc<Special>>,
    pub(super) extras: Extras,
    /// Interrupt context and scheduling state, after the fields of each event.
    flags: Vec<Field>,
    /// Decoders of the declared events, by their IDs.
    plans: Vec<Plan>,
}

impl<'s> Types<'s> {
    pub(super) fn new(formats: Formats<'s>, endian: Endian, extras: Extras) -> Types<'s> {
        Types {
            endian,
            kinds: Vec::new(),
            specials: Vec::new(),
            extras,
            flags: formats.flags(),
            formats,
            plans: Vec::new(),
        }
    }

    /// How events of `id` are handled; declares their type if necessary.
    #[inline]
    pub(super) fn kind(
        &mut self,
        id: u32,
        place: Place,
        reporter: &mut Reporter<'_>,
    ) -> Result<Kind, Error> {
        match self.kinds.get(id as usize) {
            None | Some(Kind::New) => self.look_up(id, place, reporter),
            Some(kind) => Ok(*kind),
        }
    }

    #[cold]
    fn look_up(
        &mut self,
        id: u32,
        place: Place,
        reporter: &mut Reporter<'_>,
    ) -> Result<Kind, Error> {
        let kind = match self.formats.parse(id) {
            Some(Ok((system, format))) => self.declare(system, format, reporter)?,
            missing => {
                let reason = match missing {
                    Some(Err(reason)) => format!("the format of event {id}: {reason}"),
                    _ => format!("expected a format for event {id}, found none"),
                };
                reporter.problem(place, "format", || reason)?;
                let fields = vec![raw_field()];
                let name = format!("event-{id}");
                let event = self.declare_type(String::new(), name, fields, None, reporter)?;
                match self.extras.any() {
                    true => self.special_kind(Special::Decoded(event, None)),
                    false => Kind::Plain(event),
                }
            }
        };
        let index = (id as usize).min(IDS);
        if self.kinds.len() <= index {
            self.kinds.resize(index + 1, Kind::New);
        }
        if let Some(slot) = self.kinds.get_mut(id as usize) {
            *slot = kind;
        }
        Ok(kind)
    }

    fn declare(
        &mut self,
        system: String,
        mut format: EventFormat,
        reporter: &mut Reporter<'_>,
    ) -> Result<Kind, Error> {
        if system == "ftrace"
            && let Some(special) = self.own(&format, reporter)?
        {
            return Ok(self.special_kind(special));
        }
        if system == "ftrace" && format.name == "raw_data" {
            // Any bytes that a program wrote into trace_marker_raw.
            for field in format.fields.iter_mut().filter(|field| field.name == "buf") {
                field.kind = FieldType::Binary;
            }
        }
        let kind = match (system.as_str(), format.name.as_str()) {
            ("ftrace", "raw_data") => EventKind::Marker,
            _ => format.kind(&system),
        };
        let names = self.names(&system, &format);
        let event = EventType {
            system,
            name: format.name,
            kind,
            fields: format.fields,
            big_endian: self.endian == Endian::Big,
            print_format: format.print_format,
            ..EventType::default()
        };
        let event = self.emit_declared(&event, reporter)?;
        if self.extras.any() {
            return Ok(self.special_kind(Special::Decoded(event, names)));
        }
        Ok(match names {
            Some(names) => self.special_kind(Special::Sched(event, names)),
            None => Kind::Plain(event),
        })
    }

    /// The values of an event's fields in its payload.
    #[inline]
    pub(super) fn fields<'p>(&'p self, event: EventId, bytes: &'p [u8]) -> Fields<'p> {
        match self.plans.get(event.0 as usize) {
            Some(plan) => Fields::Raw(Payload { bytes, plan }),
            None => Fields::None,
        }
    }

    /// Whether events have columns with their flags.
    pub(super) fn has_flags(&self) -> bool {
        !self.flags.is_empty()
    }

    /// The decoders of an event's fields, without its flags.
    pub(super) fn own_ops(&self, event: EventId) -> &[Op] {
        let ops = self.plans.get(event.0 as usize).map_or(&[][..], Plan::ops);
        let own = ops.len().saturating_sub(self.flags.len());
        ops.get(..own).unwrap_or_default()
    }

    fn special_kind(&mut self, special: Special) -> Kind {
        self.specials.push(Rc::new(special));
        // At most as many as there are IDs.
        Kind::Special(self.specials.len() as u32 - 1)
    }

    /// One of the special events.
    #[inline]
    pub(super) fn special(&self, index: u32) -> Option<Rc<Special>> {
        self.specials.get(index as usize).map(Rc::clone)
    }

    /// The fields with TIDs and comms, which the saved command lines may lack.
    fn names(&self, system: &str, format: &EventFormat) -> Option<Names> {
        let op = |name: &str| {
            let field = format.fields.iter().find(|field| field.name == name)?;
            Some(Op::new(field, self.endian))
        };
        match (system, format.name.as_str()) {
            ("sched", "sched_switch") => Some(Names {
                first: (op("prev_pid")?, op("prev_comm")?),
                second: Some((op("next_pid")?, op("next_comm")?)),
            }),
            ("sched", "sched_wakeup" | "sched_wakeup_new" | "sched_waking") => Some(Names {
                first: (op("pid")?, op("comm")?),
                second: None,
            }),
            _ => None,
        }
    }

    /// Whether the event is one of ftrace's own that need special treatment.
    fn own(
        &mut self,
        format: &EventFormat,
        reporter: &mut Reporter<'_>,
    ) -> Result<Option<Special>, Error> {
        let endian = self.endian;
        let field = |name: &str| format.fields.iter().find(|field| field.name == name);
        let op = |name: &str| field(name).map(|field| Op::new(field, endian));
        let start = |name: &str| Some(field(name)?.layout?.offset);
        let kind = match format.name.as_str() {
            "function" => op("ip").map(|ip| {
                Special::Function(Function {
                    ip,
                    parent: op("parent_ip"),
                    args: op("args"),
                })
            }),
            "funcgraph_entry" | "fgraph_retaddr_entry" => op("func").map(|func| {
                Special::Enter(Entry {
                    func,
                    depth: op("depth"),
                    retaddr: op("retaddr"),
                    args: op("args"),
                    first_arg_is_retaddr: format.name == "fgraph_retaddr_entry"
                        && op("retaddr").is_none(),
                })
            }),
            "funcgraph_exit" => op("func").map(|func| {
                Special::Leave(Exit {
                    func,
                    depth: op("depth"),
                    calltime: op("calltime"),
                    rettime: op("rettime"),
                    overrun: op("overrun"),
                    retval: op("retval"),
                })
            }),
            "kernel_stack" | "user_stack" => {
                let system = "ftrace".to_owned();
                let event =
                    self.declare_type(system, format.name.clone(), Vec::new(), None, reporter)?;
                Some(match format.name.as_str() {
                    "kernel_stack" => Special::KernelStack(event),
                    _ => Special::UserStack(event),
                })
            }
            "print" | "bprint" | "bputs" => {
                let (address, text) = match format.name.as_str() {
                    "print" => (None, "buf"),
                    "bprint" => (op("fmt"), "buf"),
                    _ => (op("str"), "str"),
                };
                let (Some(ip), Some(start)) = (op("ip"), start(text)) else {
                    return Ok(None);
                };
                let print = Print { ip, address, start };
                let event = self.declare_marker(format, reporter)?;
                Some(match format.name.as_str() {
                    "print" => Special::Print(event, print),
                    "bprint" => Special::BinaryPrint(event, print),
                    _ => Special::PutString(event, print),
                })
            }
            _ => None,
        };
        Ok(kind)
    }

    /// Declares a marker: the fields are emitted as values, with the address of a format replaced by its string.
    fn declare_marker(
        &mut self,
        format: &EventFormat,
        reporter: &mut Reporter<'_>,
    ) -> Result<EventId, Error> {
        let fields = format.fields.iter().map(|field| Field {
            name: field.name.clone(),
            kind: match field.name.as_str() {
                "ip" => FieldType::UInt(8),
                _ => FieldType::Text,
            },
            layout: None,
            declaration: field.declaration.clone(),
        });
        // The address of the writer.
        let function = Field {
            name: "function".into(),
            kind: FieldType::Text,
            layout: None,
            declaration: String::new(),
        };
        let print_format = match format.name.as_str() {
            "bprint" => Some("\"%ps: %s\", (void *)REC->ip, REC->buf".to_owned()),
            _ => format.print_format.clone(),
        };
        let event = EventType {
            system: "ftrace".into(),
            name: format.name.clone(),
            kind: EventKind::Marker,
            fields: fields.chain([function]).collect(),
            print_format,
            ..EventType::default()
        };
        self.emit_declared(&event, reporter)
    }

    fn declare_type(
        &mut self,
        system: String,
        name: String,
        fields: Vec<Field>,
        print_format: Option<String>,
        reporter: &mut Reporter<'_>,
    ) -> Result<EventId, Error> {
        let event = EventType {
            system,
            name,
            fields,
            print_format,
            big_endian: self.endian == Endian::Big,
            ..EventType::default()
        };
        self.emit_declared(&event, reporter)
    }

    fn emit_declared(
        &mut self,
        event: &EventType,
        reporter: &mut Reporter<'_>,
    ) -> Result<EventId, Error> {
        let id = EventId(self.plans.len() as u32);
        let mut event = event.clone();
        event.fields.extend_from_slice(&self.flags);
        self.plans
            .push(Plan::new(&event.fields, self.endian == Endian::Big));
        event.fields.extend(self.extras.fields());
        reporter.sink.event(Event::Type(&event))?;
        Ok(id)
    }

    /// The field offsets of this file's stacks.
    pub(super) fn stack_fields(&self, id: u32) -> StackFields {
        let Some(Ok((_, format))) = self.formats.parse(id) else {
            return StackFields::default();
        };
        let field = |name: &str| format.fields.iter().find(|field| field.name == name);
        let op = |name: &str| field(name).map(|field| Op::new(field, self.endian));
        StackFields {
            count: op("size"),
            tgid: op("tgid"),
            callers: field("caller").and_then(|field| Some(field.layout?.offset)),
        }
    }
}

/// Without its format, the payload is kept as bytes.
fn raw_field() -> Field {
    Field {
        name: "raw".into(),
        kind: FieldType::Binary,
        layout: Some(Layout {
            offset: 0,
            size: 0,
            place: FieldPlace::Rest,
        }),
        declaration: "payload without a known format".into(),
    }
}
