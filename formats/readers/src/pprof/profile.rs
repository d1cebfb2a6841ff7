//! The tables of a profile: strings, mappings, locations, functions, as messages that are decoded when a sample needs them.

use hashbrown::HashMap;
use perfquet_events::event::{NamedFrame, Space};

use crate::placeholder::without_placeholder;
use crate::protobuf::{Damage, Message, Value};

/// Entries of a table; a hostile profile has one for every two bytes.
const ENTRIES_MAX: usize = 1 << 22;
/// Frames kept decoded.
const FRAMES_KEPT: usize = 1 << 20;

/// Field numbers of a profile.
pub(super) mod field {
    pub(crate) const SAMPLE_TYPE: u64 = 1;
    pub(crate) const SAMPLE: u64 = 2;
    pub(crate) const MAPPING: u64 = 3;
    pub(crate) const LOCATION: u64 = 4;
    pub(crate) const FUNCTION: u64 = 5;
    pub(crate) const STRING: u64 = 6;
    pub(crate) const DROP_FRAMES: u64 = 7;
    pub(crate) const KEEP_FRAMES: u64 = 8;
    pub(crate) const TIME: u64 = 9;
    pub(crate) const DURATION: u64 = 10;
    pub(crate) const PERIOD_TYPE: u64 = 11;
    pub(crate) const PERIOD: u64 = 12;
    pub(crate) const COMMENT: u64 = 13;
    pub(crate) const DEFAULT_TYPE: u64 = 14;
    pub(crate) const DOC_URL: u64 = 15;
}

/// A mapped file.
#[derive(Debug, Clone, Copy, Default)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    file_offset: u64,
    path: &'a [u8],
    build_id: &'a [u8],
}

/// A type and its unit, as indices of strings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ValueType {
    pub(super) kind: u64,
    pub(super) unit: u64,
}

/// All of a profile but its samples.
#[derive(Debug, Default)]
pub(super) struct Profile<'a> {
    strings: Vec<&'a [u8]>,
    mappings: HashMap<u64, &'a [u8]>,
    locations: HashMap<u64, &'a [u8]>,
    functions: HashMap<u64, &'a [u8]>,
    pub(super) types: Vec<ValueType>,
    pub(super) period_type: ValueType,
    /// Numbers by field: time, duration, period.
    pub(super) numbers: HashMap<u64, u64>,
    pub(super) comments: Vec<u64>,
    pub(super) samples: u64,
    /// Entries beyond the limit.
    pub(super) dropped: u64,
    pub(super) damage: Option<Damage>,
    /// Frames of locations, leaf first.
    frames: Vec<NamedFrame<'a>>,
    places: HashMap<u64, (usize, usize)>,
}

impl<'a> Profile<'a> {
    /// Reads all fields but the samples, which are counted.
    pub(super) fn of(bytes: &'a [u8]) -> Profile<'a> {
        let mut profile = Profile::default();
        for found in Message::new(bytes, 0) {
            match found {
                Ok(found) => profile.field(found.number, found.value),
                Err(damage) => profile.damage = Some(damage),
            }
        }
        profile
    }

    fn field(&mut self, number: u64, value: Value<'a>) {
        match (number, value) {
            (field::SAMPLE, Value::Bytes(_)) => self.samples += 1,
            (field::STRING, Value::Bytes(text)) => match self.strings.len() < ENTRIES_MAX {
                true => self.strings.push(text),
                false => self.dropped += 1,
            },
            (field::MAPPING, Value::Bytes(body)) => {
                add(&mut self.mappings, body, &mut self.dropped);
            }
            (field::LOCATION, Value::Bytes(body)) => {
                add(&mut self.locations, body, &mut self.dropped);
            }
            (field::FUNCTION, Value::Bytes(body)) => {
                add(&mut self.functions, body, &mut self.dropped);
            }
            (field::SAMPLE_TYPE, Value::Bytes(body)) => match self.types.len() < TYPES_MAX {
                true => self.types.push(value_type(body)),
                false => self.dropped += 1,
            },
            (field::PERIOD_TYPE, Value::Bytes(body)) => self.period_type = value_type(body),
            (field::COMMENT, value) => {
                let left = COMMENTS_MAX.saturating_sub(self.comments.len());
                self.comments.extend(value.numbers().take(left));
            }
            (number, Value::Number(value)) if number <= field::DOC_URL => {
                self.numbers.insert(number, value);
            }
            _ => {}
        }
    }

    /// The string with this index; empty if there is none.
    pub(super) fn string(&self, index: u64) -> &'a [u8] {
        let index = usize::try_from(index).ok();
        index
            .and_then(|index| self.strings.get(index).copied())
            .unwrap_or_default()
    }

    /// The frames of a location, the innermost inlined function first; `None` if there is no such location.
    pub(super) fn frames(&mut self, id: u64) -> Option<&[NamedFrame<'a>]> {
        if let Some(&(start, end)) = self.places.get(&id) {
            return self.frames.get(start..end);
        }
        let body = *self.locations.get(&id)?;
        if self.frames.len() >= FRAMES_KEPT {
            self.frames.clear();
            self.places.clear();
        }
        let start = self.frames.len();
        self.resolve(body);
        let place = (start, self.frames.len());
        self.places.insert(id, place);
        self.frames.get(place.0..place.1)
    }

    fn resolve(&mut self, location: &'a [u8]) {
        let (mut mapping, mut address, mut lines) = (0, 0, Vec::new());
        for found in Message::new(location, 0).map_while(Result::ok) {
            match (found.number, found.value) {
                (2, Value::Number(id)) => mapping = id,
                (3, Value::Number(value)) => address = value,
                (4, Value::Bytes(line)) if lines.len() < LINES_MAX => lines.push(line),
                _ => {}
            }
        }
        let mapping = self.mapping(mapping);
        let frame = place(address, mapping);
        let count = lines.len();
        if lines.is_empty() {
            self.frames.push(frame);
        }
        for (index, line) in lines.into_iter().enumerate() {
            let is_inlined = index + 1 < count;
            let (function, file, line) = self.line(line);
            // Our exports have it where a sample has no stack: pprof drops samples without frames.
            if function == b"[no stack]" && frame.module.is_empty() {
                continue;
            }
            let named = NamedFrame {
                function: without_placeholder(function, frame.module),
                file,
                line,
                inlined: is_inlined,
                ..frame
            };
            self.frames.push(named);
        }
    }

    /// Function, file and line.
    fn line(&self, line: &[u8]) -> (&'a [u8], &'a [u8], Option<u32>) {
        let (mut id, mut number) = (0, 0);
        for found in Message::new(line, 0).map_while(Result::ok) {
            match (found.number, found.value) {
                (1, Value::Number(value)) => id = value,
                (2, Value::Number(value)) => number = value,
                _ => {}
            }
        }
        let body = self.functions.get(&id).copied().unwrap_or_default();
        let (mut name, mut system_name, mut file): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        for found in Message::new(body, 0).map_while(Result::ok) {
            match (found.number, found.value) {
                (2, Value::Number(value)) => name = self.string(value),
                (3, Value::Number(value)) => system_name = self.string(value),
                (4, Value::Number(value)) => file = self.string(value),
                _ => {}
            }
        }
        let name = if name.is_empty() { system_name } else { name };
        let line = u32::try_from(number).ok().filter(|line| *line > 0);
        (name, file, line)
    }

    fn mapping(&self, id: u64) -> Option<Mapping<'a>> {
        let body = self.mappings.get(&id)?;
        let mut mapping = Mapping::default();
        for found in Message::new(body, 0).map_while(Result::ok) {
            match (found.number, found.value) {
                (2, Value::Number(value)) => mapping.start = value,
                (3, Value::Number(value)) => mapping.end = value,
                (4, Value::Number(value)) => mapping.file_offset = value,
                (5, Value::Number(value)) => mapping.path = self.string(value),
                (6, Value::Number(value)) => mapping.build_id = self.string(value),
                _ => {}
            }
        }
        Some(mapping)
    }
}

const TYPES_MAX: usize = 1 << 10;
const COMMENTS_MAX: usize = 100;
/// Functions inlined at one address.
const LINES_MAX: usize = 1 << 12;

/// Adds a message by its ID, field 1.
fn add<'a>(table: &mut HashMap<u64, &'a [u8]>, body: &'a [u8], dropped: &mut u64) {
    let id = Message::new(body, 0)
        .map_while(Result::ok)
        .find(|found| found.number == 1);
    let id = id.and_then(|found| found.value.number()).unwrap_or(0);
    match table.len() < ENTRIES_MAX {
        true => {
            table.insert(id, body);
        }
        false => *dropped += 1,
    }
}

fn value_type(body: &[u8]) -> ValueType {
    let mut found = ValueType::default();
    for part in Message::new(body, 0).map_while(Result::ok) {
        match (part.number, part.value) {
            (1, Value::Number(value)) => found.kind = value,
            (2, Value::Number(value)) => found.unit = value,
            _ => {}
        }
    }
    found
}

/// Where a location is: offset in its module, or address.
fn place(address: u64, mapping: Option<Mapping<'_>>) -> NamedFrame<'_> {
    let known = (address != 0).then_some(address);
    let Some(mapping) = mapping else {
        return NamedFrame {
            address: known,
            space: known.map_or(Space::Unknown, space_of),
            ..NamedFrame::default()
        };
    };
    let is_kernel =
        mapping.path.starts_with(b"[kernel") || mapping.path.starts_with(b"[guest.kernel");
    // Modules of the kernel: [ext4], /lib/modules/…/ext4.ko.
    let is_high = known.is_some_and(|address| address >> 63 == 1);
    let is_inside = (mapping.start..mapping.end).contains(&address);
    let offset = known
        .filter(|_| is_inside && !is_kernel)
        .map(|address| (address - mapping.start).wrapping_add(mapping.file_offset));
    NamedFrame {
        module: match mapping.path {
            b"[unknown]" => b"",
            path => path,
        },
        build_id: mapping.build_id,
        module_offset: offset,
        address: known.filter(|_| offset.is_none()),
        space: match is_kernel || is_high {
            true => Space::Kernel,
            false => Space::User,
        },
        ..NamedFrame::default()
    }
}

fn space_of(address: u64) -> Space {
    match address >> 63 {
        1 => Space::Kernel,
        _ => Space::User,
    }
}
