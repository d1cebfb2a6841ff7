//! Declares event types when their first event comes, and finds out which need a treatment of their own.

use std::rc::Rc;

use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Field, FieldPlace, FieldType, Fields, Layout, Op,
    Payload, Place, Plan,
};
use perfquet_events::event_format::EventFormat;

use crate::trace_dat::formats::Formats;
use crate::trace_dat::read::Teller;

/// What becomes of the events of an id. Small, for it is looked up for every event.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Not looked up yet.
    New,
    /// A sample with its payload.
    Plain(EventId),
    /// More than that: its place among those.
    Special(u32),
}

/// Events that are more than a sample with a payload.
#[derive(Debug, Clone, Copy)]
pub(super) enum Special {
    /// It names threads.
    Sched(EventId, Names),
    /// It has columns beside its fields, and so comes as values.
    Decoded(EventId, Option<Names>),
    Function(Function),
    Enter(Entry),
    Leave(Exit),
    /// A stack that found no event before it.
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

/// `funcgraph_entry`, `fgraph_retaddr_entry`: func, depth; retaddr or, since 6.15, args of which it is the first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) func: Op,
    pub(super) depth: Option<Op>,
    pub(super) retaddr: Option<Op>,
    pub(super) args: Option<Op>,
    pub(super) first_arg_is_retaddr: bool,
}

/// `funcgraph_exit`: func, depth, calltime, rettime, overrun, where the kernel has it retval.
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
    /// Address of the format or of the text.
    pub(super) address: Option<Op>,
    /// Where the text, or the arguments, begin.
    pub(super) start: u32,
}

/// `sched_switch`, `sched_wakeup`: threads and their names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) first: (Op, Op),
    pub(super) second: Option<(Op, Op)>,
}

/// Where stacks have what: `size`, or `tgid`; `caller`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StackFields {
    pub(super) count: Option<Op>,
    pub(super) tgid: Option<Op>,
    pub(super) callers: Option<u32>,
}

/// Columns that events have beside their fields, in files where they tell something.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extras {
    /// `buffer`: which instance's they are.
    pub(super) buffer: bool,
    /// `clock_value`: what a clock without a unit said.
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

/// Ids that a `common_type` of two bytes can tell.
const IDS: usize = 1 << 16;

/// All event types of a file.
pub(super) struct Types<'s> {
    pub(super) formats: Formats<'s>,
    endian: Endian,
    kinds: Vec<Kind>,
    specials: Vec<Rc<Special>>,
    pub(super) extras: Extras,
    /// Decoders of the declared events, by their IDs.
    plans: Vec<Plan>,
}

impl<'s> Types<'s> {
    pub(super) fn new(formats: Formats<'s>, endian: Endian, extras: Extras) -> Types<'s> {
        Types {
            formats,
            endian,
            kinds: Vec::new(),
            specials: Vec::new(),
            extras,
            plans: Vec::new(),
        }
    }

    /// What becomes of the events of `id`; declares their type, if need be.
    #[inline]
    pub(super) fn kind(
        &mut self,
        id: u32,
        place: Place,
        tell: &mut Teller<'_>,
    ) -> Result<Kind, Error> {
        match self.kinds.get(id as usize) {
            None | Some(Kind::New) => self.look_up(id, place, tell),
            Some(kind) => Ok(*kind),
        }
    }

    #[cold]
    fn look_up(&mut self, id: u32, place: Place, tell: &mut Teller<'_>) -> Result<Kind, Error> {
        let kind = match self.formats.parse(id) {
            Some(Ok((system, format))) => self.declare(system, format, tell)?,
            missing => {
                let reason = match missing {
                    Some(Err(reason)) => format!("the format of event {id}: {reason}"),
                    _ => format!("expected a format for event {id}, found none"),
                };
                tell.problem(place, "format", || reason)?;
                let fields = vec![raw_field()];
                let name = format!("event-{id}");
                let event = self.tell_type(String::new(), name, fields, None, tell)?;
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
        tell: &mut Teller<'_>,
    ) -> Result<Kind, Error> {
        if system == "ftrace"
            && let Some(special) = self.own(&format, tell)?
        {
            return Ok(self.special_kind(special));
        }
        if system == "ftrace" && format.name == "raw_data" {
            // Whatever a program wrote into trace_marker_raw.
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
        let event = self.tell_declared(&event, tell)?;
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

    /// The decoders of an event's fields.
    pub(super) fn ops(&self, event: EventId) -> &[Op] {
        self.plans.get(event.0 as usize).map_or(&[], Plan::ops)
    }

    fn special_kind(&mut self, special: Special) -> Kind {
        self.specials.push(Rc::new(special));
        // As many as there are ids, at most.
        Kind::Special(self.specials.len() as u32 - 1)
    }

    /// One of those that are more than their fields.
    #[inline]
    pub(super) fn special(&self, index: u32) -> Option<Rc<Special>> {
        self.specials.get(index as usize).map(Rc::clone)
    }

    /// Events that name threads, which the saved command lines may lack.
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

    /// Those of ftrace's own events that are more than their fields.
    fn own(
        &mut self,
        format: &EventFormat,
        tell: &mut Teller<'_>,
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
                let event = self.tell_type(system, format.name.clone(), Vec::new(), None, tell)?;
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
                let event = self.tell_marker(format, tell)?;
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

    /// Texts: the fields come as values, with the address of a format replaced by its text.
    fn tell_marker(
        &mut self,
        format: &EventFormat,
        tell: &mut Teller<'_>,
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
        // Where it was written.
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
        self.tell_declared(&event, tell)
    }

    fn tell_type(
        &mut self,
        system: String,
        name: String,
        fields: Vec<Field>,
        print_format: Option<String>,
        tell: &mut Teller<'_>,
    ) -> Result<EventId, Error> {
        let event = EventType {
            system,
            name,
            fields,
            print_format,
            big_endian: self.endian == Endian::Big,
            ..EventType::default()
        };
        self.tell_declared(&event, tell)
    }

    fn tell_declared(
        &mut self,
        event: &EventType,
        tell: &mut Teller<'_>,
    ) -> Result<EventId, Error> {
        let id = EventId(self.plans.len() as u32);
        self.plans
            .push(Plan::new(&event.fields, self.endian == Endian::Big));
        if self.extras.any() {
            let mut event = event.clone();
            event.fields.extend(self.extras.fields());
            tell.sink.event(Event::Type(&event))?;
        } else {
            tell.sink.event(Event::Type(event))?;
        }
        Ok(id)
    }

    /// Where the stacks of this file have what.
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

/// Without its format the payload is kept as it is.
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
