//! Types → nodes, which the decoder follows: byte orders, references and columns are resolved.
//!
//! Integers to which lengths and variants refer have a register, a place in which the decoder keeps their last value. A reference is looked up in the
//! structures around it, nearest first, then as a path from the top (`stream.event.header.id`). Only what precedes it can be referred to.

use std::sync::Arc;

use hashbrown::HashMap;
use perfquet_events::bytes::Endian;
use perfquet_events::event::FieldType;

use super::lexer::Flaw;
use super::schema::{EventClass, Integer, Labels, Metadata, Type};

/// No register, no column.
pub(super) const NONE: u32 = u32::MAX;
/// Nodes of all events of a trace.
const NODES_MAX: u64 = 500_000;

/// What an integer means beside its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Value,
    /// The ID of the event class.
    Id,
    /// The low bits of the clock.
    Clock,
}

#[derive(Debug)]
pub(super) struct IntegerNode {
    pub(super) size: u32,
    pub(super) align: u64,
    pub(super) is_signed: bool,
    pub(super) endian: Endian,
    pub(super) role: Role,
    pub(super) register: u32,
    pub(super) column: u32,
    /// The column of the label.
    pub(super) label: u32,
    pub(super) labels: Option<Arc<Labels>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Length {
    Fixed(u64),
    Register(u32),
}

/// Inclusive range of a selector, and the option that it selects.
pub(super) type Choice = (i128, i128, usize);

#[derive(Debug)]
pub(super) enum Node {
    Integer(IntegerNode),
    Float {
        size: u32,
        align: u64,
        endian: Endian,
        column: u32,
    },
    Text {
        column: u32,
    },
    Struct {
        align: u64,
        fields: Vec<(String, Node)>,
    },
    Variant {
        register: u32,
        choices: Vec<Choice>,
        options: Vec<(String, Node)>,
        /// The column of the option's name.
        column: u32,
    },
    /// An array of bytes: a text that ends at a NUL, or binary.
    Bytes {
        length: Length,
        align: u64,
        is_text: bool,
        column: u32,
    },
    /// An array of integers.
    List {
        element: IntegerNode,
        length: Length,
        column: u32,
    },
    /// Any other array, as JSON.
    Json {
        element: Box<Node>,
        align: u64,
        length: Length,
        column: u32,
    },
}

impl Node {
    /// Alignment in bits.
    fn align(&self) -> u64 {
        match self {
            Node::Integer(integer)
            | Node::List {
                element: integer, ..
            } => integer.align,
            Node::Float { align, .. }
            | Node::Struct { align, .. }
            | Node::Bytes { align, .. }
            | Node::Json { align, .. } => *align,
            Node::Text { .. } => 8,
            Node::Variant { .. } => 1,
        }
    }
}

/// A column of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: FieldType,
    pub(super) of: ScopeOf,
}

/// The structure that has a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScopeOf {
    Packet,
    Header,
    /// The contexts of all events of a stream, or of one event.
    Context,
    Fields,
}

/// Registers of what a packet says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketRoles {
    pub(super) instance: Option<u32>,
    pub(super) begin: Option<u32>,
    pub(super) end: Option<u32>,
    pub(super) content_size: Option<u32>,
    pub(super) packet_size: Option<u32>,
    pub(super) discarded: Option<u32>,
    /// Bits of the counter.
    pub(super) discarded_bits: u32,
    pub(super) sequence: Option<u32>,
    pub(super) cpu: Option<u32>,
}

/// All events of a trace.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) packet_header: Option<Node>,
    pub(super) magic: Option<u32>,
    pub(super) stream_id: Option<u32>,
    pub(super) streams: Vec<StreamLayout>,
    /// Registers of all streams and events.
    pub(super) registers: usize,
    /// Columns of the widest event.
    pub(super) columns: usize,
}

#[derive(Debug)]
pub(super) struct StreamLayout {
    pub(super) id: u64,
    pub(super) packet_context: Option<Node>,
    pub(super) event_header: Option<Node>,
    pub(super) event_context: Option<Node>,
    pub(super) roles: PacketRoles,
    /// Columns of the packet, at the start of those of every event.
    pub(super) packet_columns: usize,
    pub(super) has_clock: bool,
    pub(super) classes: Vec<ClassLayout>,
    pub(super) by_id: HashMap<u64, usize>,
}

#[derive(Debug)]
pub(super) struct ClassLayout {
    pub(super) name: String,
    pub(super) context: Option<Node>,
    pub(super) fields: Option<Node>,
    pub(super) columns: Vec<Column>,
}

/// A decoded integer to which others may refer.
#[derive(Debug, Clone)]
struct Target {
    register: u32,
    bits: u32,
    labels: Option<Arc<Labels>>,
}

/// What refers to a register.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    any: bool,
    length: bool,
}

struct Builder {
    endian: Endian,
    known: HashMap<String, Target>,
    next: u32,
    most: u32,
    uses: Vec<Uses>,
    nodes: u64,
    /// A field has the clock.
    has_clock: bool,
    is_header: bool,
}

/// Lays out all events of a trace. Events with labels have columns of them.
pub(super) fn layout(metadata: &Metadata, has_labels: bool) -> Result<Layout, Flaw> {
    let mut builder = Builder {
        endian: metadata.endian.unwrap_or_default(),
        known: HashMap::new(),
        next: 0,
        most: 0,
        uses: Vec::new(),
        nodes: 0,
        has_clock: false,
        is_header: false,
    };
    let mut packet_header =
        builder.scope(metadata.packet_header.as_ref(), "trace.packet.header")?;
    let magic = builder.role("trace.packet.header.magic");
    let stream_id = builder.role("trace.packet.header.stream_id");
    let header_registers = builder.next;
    let header_known = builder.known.clone();
    let mut streams = Vec::new();
    let implied = super::schema::Stream::default();
    let declared: Vec<_> = match metadata.streams.as_slice() {
        [] => vec![&implied],
        streams => streams.iter().collect(),
    };
    for event in &metadata.events {
        if !declared.iter().any(|stream| stream.id == event.stream) {
            return flaw(format!(
                "event {}: there is no stream {}",
                event.name, event.stream
            ));
        }
    }
    for stream in declared {
        builder.known = header_known.clone();
        builder.next = header_registers;
        let events = metadata.events.iter();
        let events: Vec<&EventClass> = events.filter(|event| event.stream == stream.id).collect();
        streams.push(builder.stream(stream, &events)?);
    }
    if let Some(header) = &mut packet_header {
        builder.prune(header);
    }
    let mut layout = Layout {
        packet_header,
        magic,
        stream_id,
        streams,
        registers: builder.most as usize,
        columns: 0,
    };
    for stream in &mut layout.streams {
        let most = columns(stream, has_labels);
        layout.columns = layout.columns.max(most);
    }
    Ok(layout)
}

fn flaw<T>(message: String) -> Result<T, Flaw> {
    Err(Flaw { line: 0, message })
}

impl Builder {
    fn stream(
        &mut self,
        stream: &super::schema::Stream,
        events: &[&EventClass],
    ) -> Result<StreamLayout, Flaw> {
        let mut packet_context =
            self.scope(stream.packet_context.as_ref(), "stream.packet.context")?;
        let context = |name: &str| format!("stream.packet.context.{name}");
        let discarded = self.known.get(&context("events_discarded"));
        let roles = PacketRoles {
            discarded_bits: discarded.map_or(64, |target| target.bits),
            instance: self.role("trace.packet.header.stream_instance_id"),
            begin: self.role(&context("timestamp_begin")),
            end: self.role(&context("timestamp_end")),
            content_size: self.role(&context("content_size")),
            packet_size: self.role(&context("packet_size")),
            discarded: self.role(&context("events_discarded")),
            sequence: self.role(&context("packet_seq_num")),
            cpu: self.role(&context("cpu_id")),
        };
        self.has_clock = false;
        self.is_header = true;
        let mut event_header = self.scope(stream.event_header.as_ref(), "stream.event.header")?;
        self.is_header = false;
        let has_clock = self.has_clock;
        let mut event_context =
            self.scope(stream.event_context.as_ref(), "stream.event.context")?;
        let (registers, known) = (self.next, self.known.clone());
        let (mut classes, mut by_id) = (Vec::new(), HashMap::new());
        for event in events {
            if by_id.insert(event.id, classes.len()).is_some() {
                return flaw(format!(
                    "event {}: a second event of stream {} has the ID {}",
                    event.name, stream.id, event.id
                ));
            }
            let in_event = |mut flaw: Flaw| {
                flaw.message = format!("event {}: {}", event.name, flaw.message);
                flaw
            };
            let mut context =
                (self.scope(event.context.as_ref(), "event.context")).map_err(in_event)?;
            let mut fields =
                (self.scope(event.fields.as_ref(), "event.fields")).map_err(in_event)?;
            for node in context.iter_mut().chain(&mut fields) {
                self.prune(node);
            }
            self.forget(registers);
            self.known.clone_from(&known);
            classes.push(ClassLayout {
                name: match event.name.as_str() {
                    "" => format!("event_{}", event.id),
                    name => name.to_owned(),
                },
                context,
                fields,
                columns: Vec::new(),
            });
        }
        let nodes = [&mut packet_context, &mut event_header, &mut event_context];
        for node in nodes.into_iter().flatten() {
            self.prune(node);
        }
        Ok(StreamLayout {
            id: stream.id,
            packet_context,
            event_header,
            event_context,
            roles,
            packet_columns: 0,
            has_clock,
            classes,
            by_id,
        })
    }

    /// Forgets the uses of registers that other events have, too.
    fn forget(&mut self, registers: u32) {
        self.next = registers;
        self.uses.truncate(registers as usize);
    }

    fn role(&mut self, path: &str) -> Option<u32> {
        let register = self.known.get(path)?.register;
        self.mark(register, false);
        Some(register)
    }

    fn mark(&mut self, register: u32, is_length: bool) {
        let register = register as usize;
        if self.uses.len() <= register {
            self.uses.resize(register + 1, Uses::default());
        }
        if let Some(uses) = self.uses.get_mut(register) {
            uses.any = true;
            uses.length |= is_length;
        }
    }

    fn scope(&mut self, of: Option<&Arc<Type>>, path: &str) -> Result<Option<Node>, Flaw> {
        let Some(of) = of else {
            return Ok(None);
        };
        match &**of {
            Type::Struct { .. } => self.node(of, path).map(Some),
            _ => flaw(format!("{path}: expected a structure")),
        }
    }

    fn node(&mut self, of: &Type, path: &str) -> Result<Node, Flaw> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return flaw(format!("more than {NODES_MAX} fields"));
        }
        Ok(match of {
            Type::Integer(integer) => Node::Integer(self.integer(integer, None, path)),
            Type::Enum { integer, labels } => {
                Node::Integer(self.integer(integer, Some(labels), path))
            }
            Type::Float {
                size,
                align,
                endian,
            } => Node::Float {
                size: *size,
                align: *align,
                endian: endian.unwrap_or(self.endian),
                column: NONE,
            },
            Type::Text => Node::Text { column: NONE },
            Type::Struct { fields, align } => {
                let fields = self.members(fields, path)?;
                let aligns = fields.iter().map(|(_, node)| node.align());
                let align = aligns.fold(*align, u64::max);
                Node::Struct { align, fields }
            }
            Type::Variant {
                selector,
                options,
                choices: given,
            } => {
                let Some(selector) = selector else {
                    return flaw(format!("{path}: a variant without a selector"));
                };
                let target = self.find(selector, path)?;
                let choices = match (given, target.labels) {
                    (Some(choices), _) => choices.clone(),
                    (None, Some(labels)) => choices(&labels, options),
                    (None, None) => {
                        return flaw(format!("{path}: {selector} is not an enumeration"));
                    }
                };
                self.mark(target.register, false);
                Node::Variant {
                    register: target.register,
                    choices,
                    options: self.members(options, path)?,
                    column: NONE,
                }
            }
            Type::Array { element, length } => self.array(element, Length::Fixed(*length), path)?,
            Type::Sequence { element, length } => {
                let target = self.find(length, path)?;
                self.mark(target.register, true);
                self.array(element, Length::Register(target.register), path)?
            }
        })
    }

    fn members(
        &mut self,
        members: &[(String, Arc<Type>)],
        path: &str,
    ) -> Result<Vec<(String, Node)>, Flaw> {
        let members = members.iter().map(|(name, of)| {
            let node = self.node(of, &format!("{path}.{name}"))?;
            Ok((name.strip_prefix('_').unwrap_or(name).to_owned(), node))
        });
        members.collect()
    }

    fn array(&mut self, of: &Type, length: Length, path: &str) -> Result<Node, Flaw> {
        let element = self.node(of, path)?;
        let align = element.align();
        Ok(match (element, of) {
            (Node::Integer(_), Type::Integer(integer))
                if integer.size == 8
                    && align <= 8
                    && (integer.is_text || integer.is_hexadecimal) =>
            {
                Node::Bytes {
                    length,
                    align,
                    is_text: integer.is_text,
                    column: NONE,
                }
            }
            (Node::Integer(element), _) => Node::List {
                element,
                length,
                column: NONE,
            },
            (element, _) => Node::Json {
                element: Box::new(element),
                align,
                length,
                column: NONE,
            },
        })
    }

    fn integer(
        &mut self,
        integer: &Integer,
        labels: Option<&Arc<Labels>>,
        path: &str,
    ) -> IntegerNode {
        let register = self.next;
        self.next += 1;
        self.most = self.most.max(self.next);
        self.known.insert(
            path.to_owned(),
            Target {
                register,
                bits: integer.size,
                labels: labels.cloned(),
            },
        );
        let role = match self.is_header {
            true if integer.clock.is_some() => Role::Clock,
            true if path.ends_with(".id") => Role::Id,
            _ => Role::Value,
        };
        self.has_clock |= role == Role::Clock;
        IntegerNode {
            size: integer.size,
            align: integer.align,
            is_signed: integer.is_signed,
            endian: integer.endian.unwrap_or(self.endian),
            role,
            register,
            column: NONE,
            label: NONE,
            labels: labels.cloned(),
        }
    }

    /// Looks a reference up: in the structures around `path`, then as a path from the top.
    fn find(&self, reference: &str, path: &str) -> Result<Target, Flaw> {
        let mut around = path;
        while let Some((outer, _)) = around.rsplit_once('.') {
            if let Some(target) = self.known.get(&format!("{outer}.{reference}")) {
                return Ok(target.clone());
            }
            around = outer;
        }
        match self.known.get(reference) {
            Some(target) => Ok(target.clone()),
            None => flaw(format!(
                "{path}: there is no integer {reference} before this field"
            )),
        }
    }

    /// Removes registers that nothing uses, and marks lengths.
    fn prune(&self, node: &mut Node) {
        match node {
            Node::Integer(integer) => self.prune_integer(integer),
            Node::List { element, .. } => self.prune_integer(element),
            Node::Struct { fields: nodes, .. } | Node::Variant { options: nodes, .. } => {
                for (name, node) in nodes {
                    // A length that exists only for the sequence after it: `__payload_length`.
                    if let Node::Integer(integer) = node
                        && self.uses_of(integer.register).length
                        && name.ends_with("_length")
                    {
                        name.clear();
                    }
                    self.prune(node);
                }
            }
            Node::Json { element, .. } => self.prune(element),
            Node::Float { .. } | Node::Text { .. } | Node::Bytes { .. } => {}
        }
    }

    fn uses_of(&self, register: u32) -> Uses {
        let uses = self.uses.get(register as usize);
        uses.copied().unwrap_or_default()
    }

    fn prune_integer(&self, integer: &mut IntegerNode) {
        if !self.uses_of(integer.register).any {
            integer.register = NONE;
        }
    }
}

/// The ranges of labels that have an option. Names of options and labels may differ by an underscore.
fn choices(labels: &Labels, options: &[(String, Arc<Type>)]) -> Vec<Choice> {
    let plain = |name: &str| name.strip_prefix('_').unwrap_or(name).to_owned();
    let find = |label: &str| {
        let exact = options.iter().position(|(name, _)| name == label);
        exact.or_else(|| {
            let label = plain(label);
            options.iter().position(|(name, _)| plain(name) == label)
        })
    };
    let labels = labels.0.iter();
    labels
        .filter_map(|(label, low, high)| Some((*low, *high, find(label)?)))
        .collect()
}

/// Gives columns to all events of a stream; returns the most that one has.
fn columns(stream: &mut StreamLayout, has_labels: bool) -> usize {
    let mut all = Columns {
        columns: Vec::new(),
        of: ScopeOf::Packet,
        has_labels,
    };
    if let Some(node) = &mut stream.packet_context {
        all.add(node, "");
    }
    stream.packet_columns = all.columns.len();
    all.of = ScopeOf::Header;
    if let Some(node) = &mut stream.event_header {
        all.add(node, "");
    }
    all.of = ScopeOf::Context;
    if let Some(node) = &mut stream.event_context {
        all.add(node, "");
    }
    let of_stream = all.columns.clone();
    let mut most = of_stream.len();
    for class in &mut stream.classes {
        all.columns.clone_from(&of_stream);
        all.of = ScopeOf::Context;
        if let Some(node) = &mut class.context {
            all.add(node, "");
        }
        all.of = ScopeOf::Fields;
        if let Some(node) = &mut class.fields {
            all.add(node, "");
        }
        most = most.max(all.columns.len());
        class.columns.clone_from(&all.columns);
    }
    most
}

struct Columns {
    columns: Vec<Column>,
    of: ScopeOf,
    has_labels: bool,
}

impl Columns {
    fn push(&mut self, name: &str, kind: FieldType) -> u32 {
        self.columns.push(Column {
            name: name.to_owned(),
            kind,
            of: self.of,
        });
        self.columns.len() as u32 - 1
    }

    /// Members without a name have no column.
    fn add(&mut self, node: &mut Node, name: &str) {
        match node {
            // The ID and the time of the event.
            Node::Integer(integer) if integer.role != Role::Value => {}
            Node::Integer(integer) => {
                integer.column = self.push(name, number(integer));
                if integer.labels.is_some() && self.has_labels {
                    integer.label = self.push(&format!("{name}_label"), FieldType::Text);
                }
            }
            Node::Float { column, .. } => *column = self.push(name, FieldType::Float),
            Node::Text { column } | Node::Json { column, .. } => {
                *column = self.push(name, FieldType::Text);
            }
            Node::Bytes {
                is_text, column, ..
            } => {
                *column = match is_text {
                    true => self.push(name, FieldType::Text),
                    false => self.push(name, FieldType::Binary),
                }
            }
            Node::List {
                element, column, ..
            } => {
                *column = self.push(
                    name,
                    match (element.is_signed, width(element.size)) {
                        (true, width) => FieldType::IntList(width),
                        (false, width) => FieldType::UIntList(width),
                    },
                );
            }
            Node::Struct { fields, .. } => self.members(fields, name),
            Node::Variant {
                options, column, ..
            } => {
                // An optional field.
                if let Some((option, node)) = options.first_mut()
                    && option.is_empty()
                {
                    return self.add(node, name);
                }
                *column = self.push(name, FieldType::Text);
                self.members(options, name);
            }
        }
    }

    fn members(&mut self, members: &mut [(String, Node)], outer: &str) {
        for (name, node) in members {
            if name.is_empty() {
                continue;
            }
            match outer {
                "" => self.add(node, name),
                outer => self.add(node, &format!("{outer}.{name}")),
            }
        }
    }
}

/// Bytes of a column for this many bits.
fn width(bits: u32) -> u8 {
    match bits {
        1..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => 8,
    }
}

fn number(integer: &IntegerNode) -> FieldType {
    match integer.is_signed {
        true => FieldType::Int(width(integer.size)),
        false => FieldType::UInt(width(integer.size)),
    }
}
