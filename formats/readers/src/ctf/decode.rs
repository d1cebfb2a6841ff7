//! Bits → values, along the nodes of the layout.

use perfquet_events::bytes::Endian;
use perfquet_events::event::Value;

use super::bits;
use super::emit::Slots;
use super::layout::{Choice, IntegerNode, Length, NONE, Node, Role};

/// Longest JSON of an array; the rest is dropped.
const JSON_BYTES: usize = 1 << 16;

/// A decoded value. Ranges are those of the decoder's lists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Slot<'a> {
    Null,
    Int(i64),
    UInt(u64),
    Float(f64),
    Bytes(&'a [u8]),
    IntList(u32, u32),
    UIntList(u32, u32),
    Scratch(u32, u32),
}

/// Why an event cannot be decoded.
pub(super) type Broken = &'static str;

const SHORT: Broken = "a field reaches past the end of its packet";

/// The state of one stream.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    /// From the start of the packet.
    bytes: &'a [u8],
    /// Bits from the start of the packet.
    pub(super) at: u64,
    /// End of the content in bits.
    pub(super) end: u64,
    /// Byte order of the last integer.
    endian: Endian,
    pub(super) registers: Vec<i128>,
    pub(super) slots: Vec<Slot<'a>>,
    ints: Vec<i64>,
    uints: Vec<u64>,
    scratch: Vec<u8>,
    /// Lengths of the lists after the packet's context.
    kept: (usize, usize, usize),
    /// ID of the event class.
    pub(super) id: u64,
    /// Cycles.
    pub(super) clock: u64,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(registers: usize, columns: usize) -> Decoder<'a> {
        Decoder {
            bytes: &[],
            at: 0,
            end: 0,
            endian: Endian::Little,
            registers: vec![0; registers],
            slots: vec![Slot::Null; columns],
            ints: Vec::new(),
            uints: Vec::new(),
            scratch: Vec::new(),
            kept: (0, 0, 0),
            id: 0,
            clock: 0,
        }
    }

    /// Begins a packet.
    pub(super) fn packet(&mut self, bytes: &'a [u8]) {
        self.bytes = bytes;
        self.at = 0;
        self.end = bytes.len() as u64 * 8;
        self.kept = (0, 0, 0);
        self.slots.fill(Slot::Null);
        self.ints.clear();
        self.uints.clear();
        self.scratch.clear();
    }

    /// Ends the head of a packet: its values stay for all events.
    pub(super) fn keep(&mut self) {
        self.kept = (self.ints.len(), self.uints.len(), self.scratch.len());
    }

    /// Begins an event after the columns of its packet.
    #[inline]
    pub(super) fn event(&mut self, packet_columns: usize) {
        self.id = 0;
        let (ints, uints, scratch) = self.kept;
        self.ints.truncate(ints);
        self.uints.truncate(uints);
        self.scratch.truncate(scratch);
        if let Some(slots) = self.slots.get_mut(packet_columns..) {
            slots.fill(Slot::Null);
        }
    }

    /// The value of a register.
    #[inline]
    pub(super) fn register(&self, register: u32) -> i128 {
        let value = self.registers.get(register as usize);
        value.copied().unwrap_or(0)
    }

    #[inline]
    fn align(&mut self, align: u64) {
        self.at = (self.at + (align - 1)) & !(align - 1);
    }

    #[inline]
    fn put(&mut self, column: u32, value: Slot<'a>) {
        if let Some(slot) = self.slots.get_mut(column as usize) {
            *slot = value;
        }
    }

    /// Decodes a node into its columns.
    pub(super) fn decode(&mut self, node: &'a Node) -> Result<(), Broken> {
        match node {
            Node::Integer(integer) => {
                let value = self.integer(integer)?;
                self.put(integer.column, value);
                if integer.label != NONE
                    && let Some(labels) = &integer.labels
                    && let Some(label) = labels.of(number(value))
                {
                    self.put(integer.label, Slot::Bytes(label.as_bytes()));
                }
            }
            Node::Float {
                size,
                align,
                endian,
                column,
            } => {
                let value = self.float(*size, *align, *endian)?;
                self.put(*column, Slot::Float(value));
            }
            Node::Text { column } => {
                let text = self.text()?;
                self.put(*column, Slot::Bytes(text));
            }
            Node::Struct { align, fields } => {
                self.align(*align);
                for (_, node) in fields {
                    self.decode(node)?;
                }
            }
            Node::Variant {
                register,
                choices,
                options,
                column,
            } => {
                let (name, node) = self.selected(*register, choices, options)?;
                self.put(*column, Slot::Bytes(name.as_bytes()));
                self.decode(node)?;
            }
            Node::Bytes {
                length,
                align,
                is_text,
                column,
            } => {
                let value = self.bytes(*length, *align, *is_text)?;
                self.put(*column, value);
            }
            Node::List {
                element,
                length,
                column,
            } => {
                let value = self.list(element, *length)?;
                self.put(*column, value);
            }
            Node::Json { column, .. } => {
                let mut json = std::mem::take(&mut self.scratch);
                let start = json.len();
                let result = self.render(node, &mut json, start);
                let end = json.len();
                self.scratch = json;
                result?;
                self.put(*column, Slot::Scratch(start as u32, end as u32));
            }
        }
        Ok(())
    }

    #[inline]
    fn integer(&mut self, integer: &IntegerNode) -> Result<Slot<'a>, Broken> {
        self.align(integer.align);
        if integer.size == 0 {
            return self.variable(integer);
        }
        let next = self.at + u64::from(integer.size);
        if next > self.end {
            return Err(SHORT);
        }
        if !self.at.is_multiple_of(8) && self.endian != integer.endian {
            return Err("the byte order changes inside of a byte");
        }
        self.endian = integer.endian;
        let raw = bits::unsigned(self.bytes, self.at, integer.size, integer.endian).ok_or(SHORT)?;
        self.at = next;
        let value = match integer.is_signed {
            true => Slot::Int(bits::signed(raw, integer.size)),
            false => Slot::UInt(raw),
        };
        match integer.role {
            Role::Value => {}
            Role::Id => self.id = raw,
            Role::Clock => self.clock = bits::extended(self.clock, raw, integer.size),
        }
        if let Some(register) = self.registers.get_mut(integer.register as usize) {
            *register = number(value);
        }
        Ok(value)
    }

    /// An integer of variable length (LEB128): seven bits in each byte, low ones first.
    #[cold]
    fn variable(&mut self, integer: &IntegerNode) -> Result<Slot<'a>, Broken> {
        let (mut raw, mut bits) = (0_u64, 0);
        loop {
            if self.at + 8 > self.end {
                return Err(SHORT);
            }
            let byte = bits::unsigned(self.bytes, self.at, 8, Endian::Little).ok_or(SHORT)?;
            self.at += 8;
            if bits >= 70 {
                return Err("an integer of variable length has more than 64 bits");
            }
            raw |= (byte & 0x7f).checked_shl(bits).unwrap_or(0);
            bits += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let value = match integer.is_signed {
            true => Slot::Int(bits::signed(raw, bits.min(64))),
            false => Slot::UInt(raw),
        };
        match integer.role {
            Role::Value => {}
            Role::Id => self.id = raw,
            Role::Clock => self.clock = bits::extended(self.clock, raw, bits),
        }
        if let Some(register) = self.registers.get_mut(integer.register as usize) {
            *register = number(value);
        }
        Ok(value)
    }

    fn float(&mut self, size: u32, align: u64, endian: Endian) -> Result<f64, Broken> {
        self.align(align);
        let next = self.at + u64::from(size);
        if next > self.end {
            return Err(SHORT);
        }
        let raw = bits::unsigned(self.bytes, self.at, size, endian).ok_or(SHORT)?;
        self.at = next;
        Ok(match size {
            32 => f32::from_bits(raw as u32).into(),
            _ => f64::from_bits(raw),
        })
    }

    fn text(&mut self) -> Result<&'a [u8], Broken> {
        self.align(8);
        let start = usize::try_from(self.at / 8).map_err(|_| SHORT)?;
        let end = usize::try_from(self.end / 8).map_err(|_| SHORT)?;
        let rest = self.bytes.get(start..end).ok_or(SHORT)?;
        let length = memchr::memchr(0, rest).ok_or("a text without its NUL")?;
        self.at += (length as u64 + 1) * 8;
        Ok(rest.get(..length).unwrap_or_default())
    }

    /// The option of a variant that its selector chooses.
    fn selected<'n>(
        &self,
        register: u32,
        choices: &[Choice],
        options: &'n [(String, Node)],
    ) -> Result<&'n (String, Node), Broken> {
        let selected = self.register(register);
        let found = choices
            .iter()
            .find(|(low, high, _)| (*low..=*high).contains(&selected));
        let option = found.and_then(|(.., option)| options.get(*option));
        option.ok_or("no option of a variant has its selector")
    }

    fn length(&self, length: Length) -> Result<u64, Broken> {
        match length {
            Length::Fixed(length) => Ok(length),
            Length::Register(register) => {
                u64::try_from(self.register(register)).map_err(|_| "an array has a negative length")
            }
        }
    }

    /// The end of an array of integers; its elements follow each other.
    fn array_end(&self, count: u64, stride: u64) -> Result<u64, Broken> {
        let end = count
            .checked_mul(stride)
            .and_then(|bits| bits.checked_add(self.at));
        end.filter(|end| *end <= self.end).ok_or(SHORT)
    }

    fn bytes(&mut self, length: Length, align: u64, is_text: bool) -> Result<Slot<'a>, Broken> {
        self.align(align);
        let count = self.length(length)?;
        let next = self.array_end(count, 8)?;
        let at = std::mem::replace(&mut self.at, next);
        if !at.is_multiple_of(8) {
            let start = self.scratch.len();
            for number in 0..count {
                let byte = bits::unsigned(self.bytes, at + number * 8, 8, self.endian);
                self.scratch.push(byte.ok_or(SHORT)? as u8);
            }
            let scratch = self.scratch.get(start..).unwrap_or_default();
            let end = match memchr::memchr(0, scratch) {
                Some(length) if is_text => start + length,
                _ => self.scratch.len(),
            };
            return Ok(Slot::Scratch(start as u32, end as u32));
        }
        let start = usize::try_from(at / 8).map_err(|_| SHORT)?;
        let end = usize::try_from(next / 8).map_err(|_| SHORT)?;
        let bytes = self.bytes.get(start..end).ok_or(SHORT)?;
        Ok(Slot::Bytes(match memchr::memchr(0, bytes) {
            Some(length) if is_text => bytes.get(..length).unwrap_or_default(),
            _ => bytes,
        }))
    }

    fn list(&mut self, element: &IntegerNode, length: Length) -> Result<Slot<'a>, Broken> {
        self.align(element.align);
        let count = self.length(length)?;
        // Before anything is allocated.
        self.array_end(count, u64::from(element.size))?;
        let (ints, uints) = (self.ints.len(), self.uints.len());
        for _ in 0..count {
            match self.integer(element)? {
                Slot::Int(value) => self.ints.push(value),
                Slot::UInt(value) => self.uints.push(value),
                _ => {}
            }
        }
        Ok(match element.is_signed {
            true => Slot::IntList(ints as u32, self.ints.len() as u32),
            false => Slot::UIntList(uints as u32, self.uints.len() as u32),
        })
    }

    /// Decodes a node into JSON. One function, because each arm of it is a kind of node.
    fn render(&mut self, node: &'a Node, json: &mut Vec<u8>, start: usize) -> Result<(), Broken> {
        match node {
            Node::Integer(integer) => {
                let value = self.integer(integer)?;
                push_json(json, start, number(value).to_string().as_bytes());
            }
            Node::Float {
                size,
                align,
                endian,
                ..
            } => {
                let value = self.float(*size, *align, *endian)?;
                let text = match value.is_finite() {
                    true => value.to_string(),
                    false => "null".to_owned(),
                };
                push_json(json, start, text.as_bytes());
            }
            Node::Text { .. } => {
                let text = self.text()?;
                push_text(json, start, text);
            }
            Node::Bytes {
                length,
                align,
                is_text,
                ..
            } => {
                let kept = self.scratch.len();
                let value = self.bytes(*length, *align, *is_text)?;
                match value {
                    Slot::Bytes(bytes) => push_text(json, start, bytes),
                    _ => push_text(json, start, &self.scratch.split_off(kept)),
                }
            }
            Node::Struct { align, fields } => {
                self.align(*align);
                push_json(json, start, b"{");
                let mut is_first = true;
                for (name, node) in fields {
                    // A length has no name.
                    if name.is_empty() {
                        self.render(node, &mut Vec::new(), 0)?;
                        continue;
                    }
                    if !std::mem::take(&mut is_first) {
                        push_json(json, start, b",");
                    }
                    push_text(json, start, name.as_bytes());
                    push_json(json, start, b":");
                    self.render(node, json, start)?;
                }
                push_json(json, start, b"}");
            }
            Node::Variant {
                register,
                choices,
                options,
                ..
            } => {
                let (_, node) = self.selected(*register, choices, options)?;
                self.render(node, json, start)?;
            }
            Node::List {
                element, length, ..
            } => {
                self.align(element.align);
                let count = self.length(*length)?;
                self.array_end(count, u64::from(element.size))?;
                push_json(json, start, b"[");
                for place in 0..count {
                    if place > 0 {
                        push_json(json, start, b",");
                    }
                    let value = self.integer(element)?;
                    push_json(json, start, number(value).to_string().as_bytes());
                }
                push_json(json, start, b"]");
            }
            Node::Json {
                element,
                align,
                length,
                ..
            } => {
                self.align(*align);
                let count = self.length(*length)?;
                push_json(json, start, b"[");
                for place in 0..count {
                    if place > 0 {
                        push_json(json, start, b",");
                    }
                    let before = self.at;
                    self.render(element, json, start)?;
                    if self.at > self.end {
                        return Err(SHORT);
                    }
                    // Elements without bits may be as many as 2^64.
                    if self.at == before {
                        break;
                    }
                }
                push_json(json, start, b"]");
            }
        }
        Ok(())
    }
}

fn range<T>(list: &[T], start: u32, end: u32) -> &[T] {
    list.get(start as usize..end as usize).unwrap_or_default()
}

#[inline]
fn number(slot: Slot<'_>) -> i128 {
    match slot {
        Slot::Int(value) => value.into(),
        Slot::UInt(value) => value.into(),
        _ => 0,
    }
}

fn push_json(json: &mut Vec<u8>, start: usize, text: &[u8]) {
    if json.len() - start < JSON_BYTES {
        json.extend_from_slice(text);
    }
}

fn push_text(json: &mut Vec<u8>, start: usize, text: &[u8]) {
    if json.len() - start >= JSON_BYTES {
        return;
    }
    json.push(b'"');
    for &byte in text.iter().take(JSON_BYTES) {
        match byte {
            b'"' | b'\\' => json.extend_from_slice(&[b'\\', byte]),
            0..=0x1f => json.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => json.push(byte),
        }
    }
    json.push(b'"');
}

impl Slots for Decoder<'_> {
    #[inline]
    fn value(&self, slot: usize) -> Value<'_> {
        match self.slots.get(slot).copied().unwrap_or(Slot::Null) {
            Slot::Null => Value::Null,
            Slot::Int(value) => Value::Int(value),
            Slot::UInt(value) => Value::UInt(value),
            Slot::Float(value) => Value::Float(value),
            Slot::Bytes(bytes) => Value::Bytes(bytes),
            Slot::IntList(start, end) => Value::IntList(range(&self.ints, start, end)),
            Slot::UIntList(start, end) => Value::UIntList(range(&self.uints, start, end)),
            Slot::Scratch(start, end) => Value::Bytes(range(&self.scratch, start, end)),
        }
    }
}
