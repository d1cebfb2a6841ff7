//! Interned data of a sequence, and its defaults.

use hashbrown::HashMap;

use crate::protobuf::{Message, Value};

/// Kinds of texts: the numbers of their fields in `InternedData`.
pub(super) mod text {
    pub(in crate::perfetto) const CATEGORY: u64 = 1;
    pub(in crate::perfetto) const EVENT: u64 = 2;
    pub(in crate::perfetto) const ANNOTATION: u64 = 3;
    pub(in crate::perfetto) const FUNCTION: u64 = 5;
    pub(in crate::perfetto) const BUILD_ID: u64 = 16;
    pub(in crate::perfetto) const PATH: u64 = 17;
    pub(in crate::perfetto) const SOURCE: u64 = 18;
    pub(in crate::perfetto) const VALUE: u64 = 29;
}

/// What a sequence has interned since its state was cleared.
#[derive(Debug, Default)]
pub(super) struct Interned<'a> {
    texts: HashMap<(u64, u64), &'a [u8]>,
    pub(super) mappings: HashMap<u64, Mapping>,
    pub(super) frames: HashMap<u64, Frame>,
    /// Frames from the root.
    pub(super) callstacks: HashMap<u64, Vec<u64>>,
}

#[derive(Debug, Default)]
pub(super) struct Mapping {
    pub(super) build_id: u64,
    /// Components.
    pub(super) path: Vec<u64>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Frame {
    pub(super) function: u64,
    pub(super) mapping: u64,
    pub(super) offset: Option<u64>,
    pub(super) source: u64,
    pub(super) line: Option<u32>,
    pub(super) is_kernel: bool,
}

impl<'a> Interned<'a> {
    pub(super) fn text(&self, kind: u64, id: u64) -> Option<&'a [u8]> {
        self.texts.get(&(kind, id)).copied()
    }

    pub(super) fn add(&mut self, body: &'a [u8]) {
        for field in Message::new(body, 0).map_while(Result::ok) {
            let Value::Bytes(entry) = field.value else {
                continue;
            };
            match field.number {
                text::CATEGORY
                | text::EVENT
                | text::ANNOTATION
                | text::FUNCTION
                | text::BUILD_ID
                | text::PATH
                | text::SOURCE
                | text::VALUE => self.text_entry(field.number, entry),
                19 => self.mapping(entry),
                6 => self.frame(entry),
                7 => self.callstack(entry),
                _ => {}
            }
        }
    }

    fn text_entry(&mut self, kind: u64, entry: &'a [u8]) {
        let (mut id, mut text) = (0, &b""[..]);
        for field in Message::new(entry, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(value)) => id = value,
                (2, Value::Bytes(value)) => text = value,
                _ => {}
            }
        }
        self.texts.insert((kind, id), text);
    }

    fn mapping(&mut self, entry: &[u8]) {
        let (mut id, mut mapping) = (0, Mapping::default());
        for field in Message::new(entry, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(value)) => id = value,
                (2, Value::Number(value)) => mapping.build_id = value,
                (7, value) => mapping.path.extend(value.numbers()),
                _ => {}
            }
        }
        self.mappings.insert(id, mapping);
    }

    fn frame(&mut self, entry: &[u8]) {
        let (mut id, mut frame) = (0, Frame::default());
        for field in Message::new(entry, 0).map_while(Result::ok) {
            let Value::Number(value) = field.value else {
                continue;
            };
            match field.number {
                1 => id = value,
                2 => frame.function = value,
                3 => frame.mapping = value,
                4 => frame.offset = Some(value),
                5 => frame.source = value,
                6 => frame.line = u32::try_from(value).ok().filter(|line| *line > 0),
                7 => frame.is_kernel = value == 2,
                _ => {}
            }
        }
        self.frames.insert(id, frame);
    }

    fn callstack(&mut self, entry: &[u8]) {
        let (mut id, mut frames) = (0, Vec::new());
        for field in Message::new(entry, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(value)) => id = value,
                (2, value) => frames.extend(value.numbers()),
                _ => {}
            }
        }
        self.callstacks.insert(id, frames);
    }
}

/// Defaults of the packets of a sequence.
#[derive(Debug, Default, Clone)]
pub(super) struct Defaults<'a> {
    pub(super) clock: Option<u64>,
    pub(super) track: Option<u64>,
    pub(super) extra_tracks: Vec<u64>,
    pub(super) extra_double_tracks: Vec<u64>,
    /// `PerfSampleDefaults.timebase`
    pub(super) timebase: &'a [u8],
}

impl<'a> Defaults<'a> {
    pub(super) fn of(body: &'a [u8]) -> Defaults<'a> {
        let mut defaults = Defaults::default();
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (58, Value::Number(clock)) => defaults.clock = Some(clock),
                (11, Value::Bytes(inner)) => {
                    for field in Message::new(inner, 0).map_while(Result::ok) {
                        match (field.number, field.value) {
                            (11, Value::Number(track)) => defaults.track = Some(track),
                            (31, value) => defaults.extra_tracks.extend(value.numbers()),
                            (45, value) => defaults.extra_double_tracks.extend(value.numbers()),
                            _ => {}
                        }
                    }
                }
                (12, Value::Bytes(inner)) => {
                    let mut fields = Message::new(inner, 0).map_while(Result::ok);
                    let timebase = fields.find(|field| field.number == 1);
                    defaults.timebase = timebase.and_then(|f| f.value.bytes()).unwrap_or_default();
                }
                _ => {}
            }
        }
        defaults
    }
}
