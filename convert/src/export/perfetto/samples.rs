//! Samples with their stacks, interned. Each event has a sequence of packets, because its name is a default of the
//! sequence.
//!
//! ```text
//! stack 7 (user), 3 (kernel)   ─►   callstack 12: main, work, entry_SYSCALL_64, vfs_write      root first
//! ```

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use super::super::batch::Head;
use super::super::event_types::EventType;
use super::super::protobuf::Message;
use super::super::stacks::{FrameId, Stacks, TextId};
use super::fields::{callstack, defaults, frame, interned, mapping, packet, perf_sample};
use super::packets::{Packets, SequenceId};

/// Sequence of the first event; lower ones are those of tracks and of the kernel's events.
const FIRST_SEQUENCE: SequenceId = 16;
/// Maximum number of interned stacks of an event; after it, the sequence restarts.
const MOST_STACKS: usize = 1 << 20;

/// perf's counters that Perfetto knows by number.
const COUNTERS: [(&str, u64); 15] = [
    ("cpu-clock", 1),
    ("page-faults", 2),
    ("faults", 2),
    ("task-clock", 3),
    ("context-switches", 4),
    ("cpu-migrations", 5),
    ("cycles", 10),
    ("cpu-cycles", 10),
    ("instructions", 11),
    ("cache-references", 12),
    ("cache-misses", 13),
    ("branches", 14),
    ("branch-instructions", 14),
    ("branch-misses", 15),
    ("migrations", 5),
];

/// Names that are not strings of the trace, with numbers above those of strings.
const KERNEL_PATH: u64 = 1 << 32;
const UNKNOWN_PATH: u64 = 2 << 32;
/// `[libc.so.6]` for a function without a name, by module; `[unknown]` without a module.
const MODULE_NAME: u64 = 3 << 32;
const UNKNOWN_NAME: u64 = 4 << 32;

/// The sequences of all events.
pub(super) struct SampleSequences<'t> {
    stacks: &'t Stacks,
    sequences: Vec<Sequence>,
    by_event: HashMap<String, usize>,
}

type MappingKey = (Option<TextId>, Option<TextId>, bool);

#[derive(Default)]
struct Sequence {
    id: SequenceId,
    is_begun: bool,
    defaults: Message,
    /// Running total of each CPU.
    totals: HashMap<i32, u64>,
    callstacks: HashMap<(Option<i32>, Option<i32>), u64>,
    frames: HashSet<FrameId>,
    functions: HashSet<u64>,
    sources: HashSet<TextId>,
    build_ids: HashSet<TextId>,
    paths: HashSet<u64>,
    /// By path, build ID, and whether it is the kernel.
    mappings: HashMap<MappingKey, u64>,
    new: Message,
}

impl<'t> SampleSequences<'t> {
    pub(super) fn new(stacks: &'t Stacks) -> SampleSequences<'t> {
        SampleSequences {
            stacks,
            sequences: Vec::new(),
            by_event: HashMap::new(),
        }
    }

    /// Writes a sample of an event. `event` is its declaration, if there is one.
    pub(super) fn sample(
        &mut self,
        packets: &mut Packets<'_>,
        name: &str,
        event: Option<&EventType>,
        time: i64,
        head: &Head<'_>,
        period: u64,
    ) -> Result<()> {
        let stacks = self.stacks;
        let sequence = self.sequence(name, event);
        if sequence.callstacks.len() >= MOST_STACKS {
            sequence.start_anew();
        }
        let callstack = sequence.callstack(stacks, head.user_stack, head.kernel_stack);
        let cpu = head.cpu.unwrap_or(0);
        let total = sequence.totals.entry(cpu).or_default();
        *total = total.saturating_add(period);
        let total = *total;
        let is_kernel = match head.kernel_stack {
            Some(_) => true,
            None => stacks.is_kernel(head.user_stack),
        };
        sequence.packet(packets, time, |message| {
            message.message(packet::PERF_SAMPLE, |message| {
                if let Some(cpu) = head.cpu {
                    message.int(perf_sample::CPU, i64::from(cpu));
                }
                if let Some(pid) = head.pid {
                    message.int(perf_sample::PID, i64::from(pid));
                }
                if let Some(tid) = head.tid {
                    message.int(perf_sample::TID, i64::from(tid));
                }
                if let Some(callstack) = callstack {
                    message.uint(perf_sample::CALLSTACK, callstack);
                }
                message.uint(perf_sample::MODE, if is_kernel { 1 } else { 2 });
                message.uint(perf_sample::TOTAL, total);
            });
        })
    }

    /// Marks lost samples of a CPU. Returns false if the event has no samples.
    pub(super) fn lost(
        &mut self,
        packets: &mut Packets<'_>,
        name: &str,
        time: i64,
        cpu: i32,
        count: u64,
    ) -> Result<bool> {
        let Some(index) = self.by_event.get(name) else {
            return Ok(false);
        };
        let sequence = &mut self.sequences[*index];
        sequence.packet(packets, time, |message| {
            message.message(packet::PERF_SAMPLE, |message| {
                message.int(perf_sample::CPU, i64::from(cpu));
                message.uint(perf_sample::LOST, count);
            });
        })?;
        Ok(true)
    }

    fn sequence(&mut self, name: &str, event: Option<&EventType>) -> &mut Sequence {
        let index = match self.by_event.get(name) {
            Some(index) => *index,
            None => {
                let index = self.sequences.len();
                self.sequences.push(Sequence {
                    id: FIRST_SEQUENCE + index as SequenceId,
                    defaults: defaults_of(name, event),
                    ..Sequence::default()
                });
                self.by_event.insert(name.to_owned(), index);
                index
            }
        };
        &mut self.sequences[index]
    }
}

/// Returns the timebase of an event: its name and the requested period or frequency.
fn defaults_of(name: &str, event: Option<&EventType>) -> Message {
    let mut message = Message::default();
    let is_sampled = event.is_none_or(EventType::is_sampled);
    message.message(defaults::PERF_SAMPLE, |message| {
        message.message(defaults::TIMEBASE, |message| {
            let event = event.cloned().unwrap_or_default();
            match (event.frequency, event.period) {
                (Some(frequency), _) => message.int(defaults::FREQUENCY, frequency),
                (None, period) => message.int(defaults::PERIOD, period.unwrap_or(1)),
            }
            let base = name.split(':').next().unwrap_or_default();
            let known = COUNTERS.iter().find(|(known, _)| *known == base);
            match known.filter(|_| is_sampled) {
                Some((_, counter)) => message.uint(defaults::COUNTER, *counter),
                None => message.message(defaults::TRACEPOINT, |message| {
                    message.text(defaults::TRACEPOINT_NAME, name);
                }),
            }
            message.text(defaults::NAME, name);
        });
    });
    message
}

impl Sequence {
    fn start_anew(&mut self) {
        *self = Sequence {
            id: self.id,
            defaults: std::mem::take(&mut self.defaults),
            totals: std::mem::take(&mut self.totals),
            ..Sequence::default()
        };
    }

    fn packet(
        &mut self,
        packets: &mut Packets<'_>,
        time: i64,
        write: impl FnOnce(&mut Message),
    ) -> Result<()> {
        let begins = !std::mem::replace(&mut self.is_begun, true);
        let defaults = &self.defaults;
        packets.add_to(self.id, time, begins, &mut self.new, |message| {
            if begins {
                message.bytes(packet::DEFAULTS, defaults.as_bytes());
            }
            write(message);
        })
    }

    /// Returns the number of a stack; `None` for the empty stack.
    fn callstack(
        &mut self,
        stacks: &Stacks,
        user: Option<i32>,
        kernel: Option<i32>,
    ) -> Option<u64> {
        if user.is_none() && kernel.is_none() {
            return None;
        }
        if let Some(number) = self.callstacks.get(&(user, kernel)) {
            return Some(*number);
        }
        // Leaf first, with the kernel's frames before the user's.
        let mut frames = Vec::new();
        stacks.frames_of(kernel, &mut frames);
        stacks.frames_of(user, &mut frames);
        for frame in &frames {
            self.define_frame(stacks, *frame);
        }
        let number = self.callstacks.len() as u64 + 1;
        self.callstacks.insert((user, kernel), number);
        self.new.message(interned::CALLSTACKS, |message| {
            message.uint(interned::IID, number);
            for frame in frames.iter().rev() {
                message.uint(callstack::FRAMES, u64::from(*frame) + 1);
            }
        });
        Some(number)
    }

    fn define_frame(&mut self, stacks: &Stacks, id: FrameId) {
        if !self.frames.insert(id) {
            return;
        }
        let found = stacks.frame(id).copied().unwrap_or_default();
        let mapping = self.mapping(stacks, found.module, found.build_id, found.is_kernel);
        let function = match (found.function, found.module) {
            (Some(function), _) => number_of(function),
            (None, Some(module)) => MODULE_NAME + u64::from(module),
            (None, None) => UNKNOWN_NAME,
        };
        if self.functions.insert(function) {
            let label = stacks.label(&found);
            define_text(
                &mut self.new,
                interned::FUNCTION_NAMES,
                function,
                Some(&label),
            );
        }
        if let Some(file) = found.file
            && self.sources.insert(file)
        {
            let text = stacks.text(Some(file));
            define_text(&mut self.new, interned::SOURCE_PATHS, number_of(file), text);
        }
        self.new.message(interned::FRAMES, |message| {
            message.uint(interned::IID, u64::from(id) + 1);
            message.uint(frame::FUNCTION, function);
            message.uint(frame::MAPPING, mapping);
            message.uint(frame::OFFSET, found.offset.or(found.address).unwrap_or(0));
            if let Some(file) = found.file {
                message.uint(frame::SOURCE, number_of(file));
            }
            if let Some(line) = found.line {
                message.int(frame::LINE, i64::from(line));
            }
        });
    }

    /// Every frame needs a mapping: version 52 of the importer drops whole stacks otherwise.
    fn mapping(
        &mut self,
        stacks: &Stacks,
        module: Option<TextId>,
        build_id: Option<TextId>,
        is_kernel: bool,
    ) -> u64 {
        // A path of this single component, without a build ID, is recognized as the kernel.
        let is_kernel = is_kernel
            && stacks
                .text(module)
                .is_none_or(|name| name == "[kernel.kallsyms]");
        let build_id = build_id.filter(|_| !is_kernel);
        // A file that was replaced while recording has several build IDs.
        let key = (module, build_id, is_kernel);
        if let Some(number) = self.mappings.get(&key) {
            return *number;
        }
        let number = self.mappings.len() as u64 + 1;
        self.mappings.insert(key, number);
        let (path, text) = match module {
            _ if is_kernel => (KERNEL_PATH, Some("kernel")),
            Some(module) => (number_of(module), stacks.text(Some(module))),
            None => (UNKNOWN_PATH, Some("[unknown]")),
        };
        // The importer prepends a slash to each component.
        let text = text.map(|text| text.strip_prefix('/').unwrap_or(text));
        if self.paths.insert(path) {
            define_text(&mut self.new, interned::MAPPING_PATHS, path, text);
        }
        if let Some(build_id) = build_id
            && self.build_ids.insert(build_id)
        {
            let bytes = bytes_of(stacks.text(Some(build_id)).unwrap_or_default());
            self.new.message(interned::BUILD_IDS, |message| {
                message.uint(interned::IID, number_of(build_id));
                message.bytes(interned::TEXT, &bytes);
            });
        }
        self.new.message(interned::MAPPINGS, |message| {
            message.uint(interned::IID, number);
            if let Some(build_id) = build_id {
                message.uint(mapping::BUILD_ID, number_of(build_id));
            }
            message.uint(mapping::PATH, path);
        });
        number
    }
}

fn number_of(text: TextId) -> u64 {
    u64::from(text) + 1
}

fn define_text(new: &mut Message, kind: u32, number: u64, text: Option<&str>) {
    new.message(kind, |message| {
        message.uint(interned::IID, number);
        message.text(interned::TEXT, text.unwrap_or_default());
    });
}

/// Decodes a hexadecimal build ID.
fn bytes_of(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    let bytes =
        digits.map_while(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect()
}
