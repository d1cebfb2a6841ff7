//! Samples of perf, with the names of their frames.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Loss, NamedFrame, Place, Sample, Sink, Space,
};

use super::interned::{Defaults, Interned, text};
use super::types::Declared;
use crate::placeholder::{is_kernel_module, without_placeholder};
use crate::printout::Stacks;
use crate::problems::Problems;
use crate::protobuf::{Message, Value};

/// Names of `PerfEvents.Counter`; those up to 9 and 20 are of software.
const COUNTERS: [&str; 21] = [
    "unknown",
    "cpu-clock",
    "page-faults",
    "task-clock",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
    "dummy",
];
/// Far more frames than any stack has.
const FRAMES_MAX: usize = 1 << 16;
const TOTALS_MAX: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Samples {
    /// Events by the defaults that declare them.
    events: HashMap<u32, Timebase>,
    ids: HashMap<(String, Option<u64>, Option<u64>), EventId>,
    /// Running totals by sequence and CPU.
    totals: HashMap<(u32, u32), u64>,
    /// Whether our exporter has written the trace: its totals begin at 0, and the timebase has no period if none is known.
    pub(super) is_ours: bool,
}

#[derive(Debug, Clone, Copy)]
struct Timebase {
    id: EventId,
    period: Option<u64>,
}

impl Samples {
    /// Emits a sample, or the losses that a packet counts.
    pub(super) fn emit<'a>(
        &mut self,
        (time, body): (i64, &'a [u8]),
        (state, defaults): (&Interned<'a>, &Defaults<'a>),
        (number, sequence): (u32, u32),
        types: &mut Declared,
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let base = self.timebase(number, defaults, types, sink)?;
        let mut sample = Sample {
            time: Some(time),
            ..Sample::of(base.id)
        };
        let (mut callstack, mut total, mut lost, mut skipped) = (None, None, None, None);
        for field in Message::new(body, 0).map_while(Result::ok) {
            let Value::Number(value) = field.value else {
                continue;
            };
            match field.number {
                1 => sample.cpu = u32::try_from(value).ok(),
                2 => sample.pid = Some(value as i32),
                3 => sample.tid = Some(value as i32),
                4 => callstack = Some(value),
                6 => total = Some(value),
                17 => lost = Some(value),
                18 => skipped = Some(value),
                _ => {}
            }
        }
        if lost.is_some() && self.is_ours {
            // An instant of the track of losses has all that is known of it.
            return Ok(());
        }
        if lost.is_some() {
            return sink.event(Event::Loss(Loss {
                time: Some(time),
                cpu: sample.cpu,
                event: Some(base.id),
                count: lost,
                in_all: None,
                reason: "the kernel lost samples",
            }));
        }
        if skipped.is_some_and(|reason| reason != 0) {
            let message = || "samples without the rest, which the profiler skipped".to_owned();
            problems.report(sink, Place::Whole, "skipped", message)?;
        }
        let before = self.total((sequence, sample.cpu.unwrap_or(0)), total);
        let before = before.or(self.is_ours.then_some(0));
        let difference = || total?.checked_sub(before?);
        sample.period = match self.is_ours {
            true => difference().or(base.period),
            false => base.period.or_else(difference),
        };
        let mut paths = Vec::new();
        let found = callstack.map(|id| state.callstacks.get(&id));
        if found == Some(None) {
            let message = || "samples whose stack was not interned".to_owned();
            problems.report(sink, Place::Whole, "callstack", message)?;
        }
        let frames: &[u64] = found.flatten().map_or(&[], Vec::as_slice);
        let frames = frames
            .get(..frames.len().min(FRAMES_MAX))
            .unwrap_or_default();
        for frame in frames.iter().rev() {
            paths.push(Path::of(state, *frame));
        }
        let named: Vec<NamedFrame<'_>> = frames
            .iter()
            .rev()
            .zip(&paths)
            .map(|(id, path)| path.frame(state, *id))
            .collect();
        let stacks = Stacks::of(&named);
        if !named.is_empty() {
            sample = Sample {
                kernel_stack: stacks.kernel(),
                user_stack: stacks.user(),
                ..sample
            };
        }
        sink.event(Event::Sample(&sample))
    }

    fn total(&mut self, key: (u32, u32), total: Option<u64>) -> Option<u64> {
        let before = self.totals.get(&key).copied();
        if let Some(total) = total
            && (before.is_some() || self.totals.len() < TOTALS_MAX)
        {
            self.totals.insert(key, total);
        }
        before
    }

    fn timebase(
        &mut self,
        number: u32,
        defaults: &Defaults<'_>,
        types: &mut Declared,
        sink: &mut dyn Sink,
    ) -> Result<Timebase, Error> {
        if let Some(base) = self.events.get(&number) {
            return Ok(*base);
        }
        let (mut name, mut kind) = (None, EventKind::Counter);
        let (mut period, mut frequency) = (None, None);
        let mut other = "samples".to_owned();
        for field in Message::new(defaults.timebase, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(value)) => period = Some(value),
                (2, Value::Number(value)) => frequency = Some(value),
                (3, Value::Bytes(tracepoint)) => {
                    let mut fields = Message::new(tracepoint, 0).map_while(Result::ok);
                    let found = fields.find(|field| field.number == 1);
                    if let Some(bytes) = found.and_then(|field| field.value.bytes()) {
                        other = String::from_utf8_lossy(bytes).into_owned();
                    }
                }
                (4, Value::Number(counter)) => {
                    let known = usize::try_from(counter).ok().and_then(|n| COUNTERS.get(n));
                    other = known.copied().unwrap_or("unknown").to_owned();
                    if matches!(counter, 1..=9 | 20) {
                        kind = EventKind::Software;
                    }
                }
                (10, Value::Bytes(value)) => {
                    name = Some(String::from_utf8_lossy(value).into_owned());
                }
                _ => {}
            }
        }
        let name = name.filter(|name| !name.is_empty()).unwrap_or(other);
        let key = (name, period, frequency);
        let id = match self.ids.get(&key) {
            Some(id) => *id,
            None => {
                let id = types.declare(
                    &EventType {
                        system: if kind == EventKind::Software {
                            "software"
                        } else {
                            ""
                        }
                        .into(),
                        name: key.0.clone(),
                        kind,
                        period,
                        frequency,
                        ..EventType::default()
                    },
                    sink,
                )?;
                self.ids.insert(key, id);
                id
            }
        };
        // A tracepoint hit once is one event.
        let base = Timebase { id, period };
        self.events.insert(number, base);
        Ok(base)
    }
}

/// What a frame needs that no slice of the input has.
struct Path {
    module: Vec<u8>,
    build_id: Vec<u8>,
    is_kernel: bool,
}

impl Path {
    fn of(state: &Interned<'_>, frame: u64) -> Path {
        let mut path = Path {
            module: Vec::new(),
            build_id: Vec::new(),
            is_kernel: false,
        };
        let Some(frame) = state.frames.get(&frame) else {
            return path;
        };
        path.is_kernel = frame.is_kernel;
        let Some(mapping) = state.mappings.get(&frame.mapping) else {
            return path;
        };
        for part in mapping.path.iter().take(1000) {
            let part = state.text(text::PATH, *part).unwrap_or_default();
            if !path.module.is_empty() || !part.starts_with(b"[") && !part.starts_with(b"/") {
                path.module.push(b'/');
            }
            path.module.extend(part);
        }
        if let b"/kernel" | b"[kernel.kallsyms]" = path.module.as_slice() {
            path.is_kernel = true;
            path.module = b"[kernel.kallsyms]".to_vec();
        }
        if path.module == b"[unknown]" {
            path.module.clear();
        }
        // Modules of the kernel: `[ext4]`.
        path.is_kernel |= is_kernel_module(&path.module);
        for byte in state
            .text(text::BUILD_ID, mapping.build_id)
            .unwrap_or_default()
        {
            path.build_id.extend(format!("{byte:02x}").as_bytes());
        }
        path
    }

    fn frame<'f>(&'f self, state: &Interned<'f>, id: u64) -> NamedFrame<'f> {
        let Some(frame) = state.frames.get(&id) else {
            return NamedFrame::default();
        };
        let function = state.text(text::FUNCTION, frame.function);
        let function = function.unwrap_or_default();
        NamedFrame {
            function: without_placeholder(function, &self.module),
            module: &self.module,
            build_id: &self.build_id,
            module_offset: frame.offset.filter(|_| !self.is_kernel),
            address: frame.offset.filter(|_| self.is_kernel),
            file: state.text(text::SOURCE, frame.source).unwrap_or_default(),
            line: frame.line,
            space: match self.is_kernel {
                true => Space::Kernel,
                false => Space::User,
            },
            ..NamedFrame::default()
        }
    }
}
