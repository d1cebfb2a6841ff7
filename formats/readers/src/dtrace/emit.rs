//! Parsed output → events. Declares types when they are first needed, and counts printings.

use perfquet_events::Error;
use perfquet_events::event::{
    Action, Aggregate, AggregateValue, Bucket, Event, EventId, EventType, Fact, FieldType, Fields,
    Loss, NamedFrame, Place, Sample, Sink, Space, Stack, Value,
};

use crate::columns::event_type;
use crate::lines::{Line, LineProblems};

/// Maximum number of notices kept as facts.
const NOTES_MAX: u32 = 50;

/// A key of an aggregation.
#[derive(Debug, Clone, Default)]
pub(super) struct Key<'a> {
    pub(super) name: &'a [u8],
    pub(super) action: Option<Action>,
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) stacks: Vec<Vec<NamedFrame<'a>>>,
    /// The printing that the key belongs to, if the script determines it.
    pub(super) snapshot: Option<u32>,
}

/// A hit of a probe.
#[derive(Debug, Clone, Default)]
pub(super) struct Hit<'a> {
    pub(super) cpu: Option<u32>,
    pub(super) id: Option<u64>,
    /// Empty if not given, as in all text output.
    pub(super) provider: &'a [u8],
    pub(super) module: &'a [u8],
    pub(super) function: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) message: Vec<u8>,
    /// Numbers traced, if the line has nothing else but strings.
    pub(super) values: Vec<i64>,
    /// Strings traced, if the line consists of whole cells.
    pub(super) strings: Vec<&'a [u8]>,
    /// When it was printed, in nanoseconds.
    pub(super) output_time: Option<i64>,
    pub(super) stacks: Vec<Vec<NamedFrame<'a>>>,
}

/// Turns parsed output into events.
pub(super) struct Output<'s> {
    sink: &'s mut dyn Sink,
    pub(super) problems: LineProblems,
    types: u32,
    probe: Option<EventId>,
    message: Option<EventId>,
    /// The current printing of aggregations.
    printing: u32,
    /// Whether anything else was printed since the last aggregation.
    is_interrupted: bool,
    has_aggregates: bool,
    notes: u32,
    /// The space of stacks whose modules do not determine it.
    pub(super) space: Space,
}

impl<'s> Output<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink, space: Space) -> Output<'s> {
        Output {
            sink,
            problems: LineProblems::default(),
            types: 0,
            probe: None,
            message: None,
            printing: 0,
            is_interrupted: false,
            has_aggregates: false,
            notes: 0,
            space,
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.sink.event(event)
    }

    pub(super) fn sink(&mut self) -> &mut dyn Sink {
        self.sink
    }

    pub(super) fn declare(&mut self, event_type: &EventType) -> Result<EventId, Error> {
        self.event(Event::Type(event_type))?;
        let id = EventId(self.types);
        self.types += 1;
        Ok(id)
    }

    pub(super) fn aggregate(
        &mut self,
        key: &mut Key<'_>,
        value: Option<AggregateValue>,
        buckets: &[Bucket],
    ) -> Result<(), Error> {
        if self.is_interrupted && self.has_aggregates {
            self.printing += 1;
        }
        self.is_interrupted = false;
        self.has_aggregates = true;
        let (kernel_stack, user_stack) = sides(&mut key.stacks, self.space);
        self.sink.event(Event::Aggregate(&Aggregate {
            name: key.name,
            action: key.action,
            keys: &key.keys,
            value,
            kernel_stack,
            user_stack,
            snapshot: key.snapshot.unwrap_or(self.printing),
            since: None,
            time: None,
            buckets,
        }))
    }

    pub(super) fn hit(&mut self, hit: &mut Hit<'_>) -> Result<(), Error> {
        self.is_interrupted = true;
        let event = match self.probe {
            Some(event) => event,
            None => {
                let fields = [
                    ("id", FieldType::UInt(4)),
                    ("provider", FieldType::Text),
                    ("module", FieldType::Text),
                    ("function", FieldType::Text),
                    ("name", FieldType::Text),
                    ("message", FieldType::Text),
                    ("values", FieldType::IntList(8)),
                    ("strings", FieldType::TextList),
                    ("output_time", FieldType::Int(8)),
                ];
                let event = self.declare(&event_type("dtrace", "probe", &fields))?;
                self.probe = Some(event);
                event
            }
        };
        let values = [
            hit.id.map_or(Value::Null, Value::UInt),
            text_value(hit.provider),
            text_value(hit.module),
            text_value(hit.function),
            text_value(hit.name),
            text_value(&hit.message),
            match hit.values.as_slice() {
                [] => Value::Null,
                values => Value::IntList(values),
            },
            match hit.strings.as_slice() {
                [] => Value::Null,
                strings => Value::TextList(strings),
            },
            hit.output_time.map_or(Value::Null, Value::Int),
        ];
        let (kernel_stack, user_stack) = sides(&mut hit.stacks, self.space);
        self.sink.event(Event::Sample(&Sample {
            cpu: hit.cpu,
            kernel_stack,
            user_stack,
            fields: Fields::Values(&values),
            ..Sample::of(event)
        }))
    }

    pub(super) fn message(
        &mut self,
        line: Line<'_>,
        stacks: &mut [Vec<NamedFrame<'_>>],
    ) -> Result<(), Error> {
        self.is_interrupted = true;
        let event = match self.message {
            Some(event) => event,
            None => {
                let fields = [("line", FieldType::UInt(8)), ("message", FieldType::Text)];
                let event = self.declare(&event_type("dtrace", "message", &fields))?;
                self.message = Some(event);
                event
            }
        };
        let (kernel_stack, user_stack) = sides(stacks, self.space);
        let text = text_value(line.text);
        self.sink.event(Event::Sample(&Sample {
            kernel_stack,
            user_stack,
            fields: Fields::Values(&[Value::UInt(line.number), text]),
            ..Sample::of(event)
        }))
    }

    pub(super) fn loss(
        &mut self,
        count: Option<u64>,
        cpu: Option<u32>,
        reason: &str,
    ) -> Result<(), Error> {
        self.event(Event::Loss(Loss {
            time: None,
            cpu,
            event: None,
            count,
            in_all: None,
            reason,
        }))
    }

    /// Records a notice of `dtrace` itself.
    pub(super) fn note(&mut self, text: &str) -> Result<(), Error> {
        self.notes += 1;
        if self.notes > NOTES_MAX {
            return Ok(());
        }
        let name = format!("dtrace.note.{}", self.notes);
        let value = text;
        self.event(Event::Fact(Fact::Other { name: &name, value }))
    }

    pub(super) fn problem(&mut self, line: Line<'_>, expected: &str) -> Result<(), Error> {
        self.problems.line(line, expected, self.sink)
    }

    pub(super) fn problem_at(&mut self, place: Place, message: &str) -> Result<(), Error> {
        self.problems.report(place, message, self.sink)
    }

    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.problems.finish(self.sink)
    }
}

/// NULL if empty.
fn text_value(text: &[u8]) -> Value<'_> {
    match text {
        [] => Value::Null,
        text => Value::Bytes(text),
    }
}

/// The kernel stack and the user stack, given one or two stacks in the order of the output.
fn sides<'f, 'a>(
    stacks: &'f mut [Vec<NamedFrame<'a>>],
    otherwise: Space,
) -> (Stack<'f>, Stack<'f>) {
    let count = stacks.len();
    for (place, frames) in stacks.iter_mut().enumerate() {
        let space_of_modules = frames
            .iter()
            .map(|frame| match frame.space {
                Space::Unknown => super::stack::space_of(frame.module),
                space => space,
            })
            .find(|space| *space != Space::Unknown);
        let space = match (space_of_modules, count) {
            (Some(space), _) => space,
            // `@[stack(), ustack()]`: by convention, the kernel stack comes first.
            (None, 2) if place == 0 => Space::Kernel,
            (None, 2) => Space::User,
            (None, _) => otherwise,
        };
        for frame in frames {
            frame.space = space;
        }
    }
    let is_kernel = |frames: &Vec<NamedFrame<'_>>| {
        frames
            .first()
            .is_some_and(|frame| frame.space == Space::Kernel)
    };
    let of = |wanted: bool| {
        let of_side =
            |frames: &&Vec<NamedFrame<'_>>| !frames.is_empty() && is_kernel(frames) == wanted;
        let found = stacks.iter().find(of_side);
        found.map_or(Stack::None, |frames| Stack::Named(frames))
    };
    (of(true), of(false))
}
