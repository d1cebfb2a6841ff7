//! Weights by frame and thread, as events arrive.

use std::cmp::Reverse;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Event, EventKind, EventType, Fact, Hit, Sample, Sink, Space, Stack};

use super::super::age::Age;
use super::super::facts::InputFacts;
use super::super::frames::{FrameId, FrameKey, Frames};
use super::super::generated::Generated;
use super::super::life::Life;
use super::super::limits::Limits;
use super::super::mappings::space_of_ip;
use super::super::names::{self, InputSymbols};
use super::super::rows::full_name;
use super::super::texts::TextId;
use crate::symbols::{KernelFacts, Options, Origin};

/// Distinct frames, and distinct threads, of an interval.
const LIMITS: Limits = Limits {
    frames: 1 << 16,
    ..Limits::RECORDING
};

/// Counts samples by frame and thread, and hits by event.
pub struct Tally {
    options: Options,
    life: Life,
    generated: Generated,
    input: InputSymbols,
    kernel: KernelFacts,
    facts: InputFacts,
    age: Age,
    events: Vec<Counted>,
    /// Index of the sampled event whose weights are taken, once there is one.
    weighed: Option<u32>,
    frames: Frames,
    /// By sampled event and frame.
    by_frame: HashMap<(u32, FrameId), Hot>,
    /// Weights by thread: of a sampled event, or of the hits of all other events.
    by_thread: HashMap<(Option<u32>, i32, Option<TextId>), u64>,
    /// Weights of frames and threads beyond the limit, by the same events.
    beyond_frames: HashMap<u32, u64>,
    beyond_threads: HashMap<Option<u32>, u64>,
    done_bytes: u64,
}

/// A frame's weight, and the last sample in it.
#[derive(Debug, Clone, Copy, Default)]
struct Hot {
    weight: u64,
    last: Place,
}

/// Where a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// Process; -1 if unknown.
    pub(super) pid: i32,
    pub(super) address: u64,
    pub(super) time: i64,
}

struct Counted {
    name: String,
    is_sampled: bool,
    /// Whether its hits become rows that the user requested.
    is_shown: bool,
    period: Option<u64>,
    hits: u64,
    /// Whether it had any hit: the recorder opens events that have none.
    has_occurred: bool,
}

/// What was counted since the previous interval.
pub struct Interval {
    /// The requested events that have occurred, in their order.
    pub events: Vec<EventHits>,
    /// Name of the sampled event whose weights the functions and threads have; `None`: a hit of any event weighs 1.
    pub weighed: Option<String>,
    /// Threads by name, in no order.
    pub threads: Vec<ThreadWeight>,
    /// Weight of threads beyond the limit.
    pub beyond_threads: u64,
    /// Weight of frames beyond the limit.
    pub beyond_frames: u64,
    /// Time of the newest event so far, on the clock of the recording.
    pub newest: Option<i64>,
    /// Number of bytes of the journal that were read.
    pub done_bytes: u64,
    pub(super) frames: Vec<(FrameKey, u64)>,
    /// Of each frame of any sampled event, the last sample.
    pub(super) places: Vec<(FrameKey, Place)>,
    pub(super) modules: Vec<names::Module>,
    pub(super) input: InputSymbols,
    pub(super) kernel: KernelFacts,
    pub(super) origin: Origin,
}

/// The hits of an event in an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventHits {
    /// Name of the event.
    pub name: String,
    /// Number of hits.
    pub hits: u64,
}

/// The weight of all threads with a name in an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadWeight {
    /// Name of the threads; `None` if it is unknown.
    pub comm: Option<String>,
    /// Number of threads.
    pub threads: u64,
    /// Their weight.
    pub weight: u64,
}

impl Tally {
    /// Counts nothing yet. Names will be found with these options.
    pub fn new(options: Options) -> Tally {
        let mut life = Life::within(LIMITS);
        life.modules.set_roots(&options.roots);
        Tally {
            options,
            life,
            generated: Generated::default(),
            input: InputSymbols::default(),
            kernel: KernelFacts::default(),
            facts: InputFacts::default(),
            age: Age::default(),
            events: Vec::new(),
            weighed: None,
            frames: Frames::starting_at(1, LIMITS),
            by_frame: HashMap::new(),
            by_thread: HashMap::new(),
            beyond_frames: HashMap::new(),
            beyond_threads: HashMap::new(),
            done_bytes: 0,
        }
    }

    /// Returns what was counted, and starts a new interval.
    pub fn take(&mut self) -> Interval {
        if self.weighed.is_none() {
            self.weighed = self.most_sampled();
        }
        let weighed = self.weighed;
        let (first, keys) = self.frames.kept();
        let (mut frames, mut places) = (Vec::new(), Vec::new());
        for ((event, id), hot) in self.by_frame.drain() {
            let Some(key) = keys.get(id.wrapping_sub(first) as usize) else {
                continue;
            };
            places.push((*key, hot.last));
            if Some(event) == weighed {
                frames.push((*key, hot.weight));
            }
        }
        self.frames.restart(1);
        let beyond_frames = weighed.and_then(|event| self.beyond_frames.get(&event).copied());
        let beyond_threads = self.beyond_threads.get(&weighed).copied();
        self.beyond_frames.clear();
        self.beyond_threads.clear();
        let mut input = std::mem::take(&mut self.input);
        input.set_dumps(self.generated.dumps());
        Interval {
            weighed: weighed
                .and_then(|event| self.events.get(event as usize))
                .map(|event| event.name.clone()),
            events: self.take_hits(),
            threads: self.take_threads(),
            beyond_threads: beyond_threads.unwrap_or(0),
            beyond_frames: beyond_frames.unwrap_or(0),
            newest: self.age.last(),
            done_bytes: self.done_bytes,
            frames,
            places,
            modules: names::resolve(&mut self.life.modules),
            input,
            kernel: self.kernel.clone(),
            origin: self.age.origin(&self.facts.facts),
        }
    }

    /// The sampled event with the most samples, which reports choose too.
    fn most_sampled(&self) -> Option<u32> {
        let sampled = (0..).zip(&self.events);
        let sampled =
            sampled.filter(|(_, event)| event.is_shown && event.is_sampled && event.hits > 0);
        // Of equals the first.
        let most = sampled.max_by_key(|(index, event)| (event.hits, Reverse(*index)));
        most.map(|(index, _)| index)
    }

    fn take_hits(&mut self) -> Vec<EventHits> {
        let shown = self.events.iter_mut().filter(|event| event.has_occurred);
        let taken = shown.map(|event| EventHits {
            name: event.name.clone(),
            hits: std::mem::take(&mut event.hits),
        });
        taken.collect()
    }

    fn take_threads(&mut self) -> Vec<ThreadWeight> {
        let mut by_comm: HashMap<Option<TextId>, (u64, u64)> = HashMap::new();
        for ((event, _, comm), weight) in self.by_thread.drain() {
            if event == self.weighed {
                let sum = by_comm.entry(comm).or_default();
                sum.0 += 1;
                add(&mut sum.1, weight);
            }
        }
        let named = by_comm.into_iter().map(|(comm, (threads, weight))| {
            let comm = comm.map(|comm| self.life.threads.comm_bytes(comm));
            ThreadWeight {
                comm: comm.map(|comm| String::from_utf8_lossy(comm).into_owned()),
                threads,
                weight,
            }
        });
        named.collect()
    }

    fn declare(&mut self, event: &EventType) {
        self.events.push(Counted {
            name: full_name(event),
            is_sampled: event.kind.is_sampled(),
            is_shown: event.purpose.has_rows() && event.kind != EventKind::Recorder,
            period: event.period,
            hits: 0,
            has_occurred: false,
        });
    }

    fn count(&mut self, sample: &Sample<'_>) {
        self.age.see(sample.time);
        let number = sample.event.0;
        let Some(event) = self.events.get_mut(number as usize) else {
            return;
        };
        if !event.is_shown {
            return;
        }
        event.hits += 1;
        event.has_occurred = true;
        let period = sample.period.or(event.period);
        let (sampled, weight) = match event.is_sampled {
            true => (Some(number), period.unwrap_or(1)),
            false => (None, 1),
        };
        let tid = sample.tid.filter(|&tid| tid >= 0);
        let pid = sample.pid.filter(|&pid| pid >= 0);
        let thread = tid.map(|tid| self.life.threads.at(tid, pid));
        let (known, comm) = match thread {
            Some(thread) => self.life.threads.describe(thread),
            None => (None, None),
        };
        let key = (sampled, tid.unwrap_or(-1), comm);
        let has_room = self.by_thread.len() < LIMITS.frames || self.by_thread.contains_key(&key);
        add(
            match has_room {
                true => self.by_thread.entry(key).or_default(),
                false => self.beyond_threads.entry(sampled).or_default(),
            },
            weight,
        );
        if sampled.is_none() {
            return;
        }
        if let (false, Some(time)) = (self.generated.is_empty(), sample.time) {
            self.generated.advance(time, &mut self.life);
        }
        let Some((address, space)) = leaf(sample).filter(|_| !self.frames.is_full()) else {
            add(self.beyond_frames.entry(number).or_default(), weight);
            return;
        };
        let map = self.life.mappings.of(pid.or(known), space);
        let frame = self
            .frames
            .at(address, false, space, map, &self.life.modules);
        let hot = self.by_frame.entry((number, frame)).or_default();
        add(&mut hot.weight, weight);
        hot.last = Place {
            pid: pid.or(known).unwrap_or(-1),
            address,
            time: sample.time.unwrap_or(0),
        };
    }

    fn note(&mut self, event: Event<'_>) {
        self.kernel.note(&event);
        let Life {
            threads,
            mappings,
            modules,
            ..
        } = &mut self.life;
        match event {
            Event::Fact(fact) => {
                self.facts.add(fact);
                match fact {
                    Fact::Clock(clock) => clock.clone_into(&mut self.generated.clock),
                    Fact::KernelBuildId(id) => modules.set_kernel(id, &self.options),
                    _ => {}
                }
            }
            Event::Type(event) => self.declare(event),
            Event::Comm(comm) => self.life.know_comm(&comm),
            Event::Fork(fork) => {
                threads.fork(&fork);
                mappings.fork(&fork);
            }
            Event::Exit(exit) => self.life.know_exit(&exit),
            Event::Mapping(mapping) => {
                self.age.see(mapping.time);
                // A dump that cannot be followed is reported by the encoder.
                let _ = self.generated.mapped(&mapping, &self.options);
                if !self.generated.covers(&mapping, &self.life) {
                    let Life {
                        mappings, modules, ..
                    } = &mut self.life;
                    mappings.map(&mapping, modules);
                }
            }
            Event::BuildId(build_id) => {
                modules.build_id(&build_id);
                if let (Space::Kernel, Some(kernel)) = (build_id.space, &self.kernel.build_id) {
                    modules.set_kernel(kernel, &self.options);
                }
            }
            Event::KernelSymbol(symbol) => self.life.kernel_symbol(&symbol),
            Event::Symbol(symbol) => self.input.add(&symbol),
            Event::Progress(progress) => self.done_bytes = progress.done,
            Event::Sample(sample) => self.count(sample),
            // Without samples.
            Event::Selection(_)
            | Event::Enter(_)
            | Event::Leave(_)
            | Event::Call(_)
            | Event::PairedCall(_)
            | Event::Stack(_)
            | Event::Aggregate(_)
            | Event::Count(_)
            | Event::Switch(_)
            | Event::KernelText(_)
            | Event::Process(_)
            | Event::OpenFile(_)
            | Event::KeptCode(_)
            | Event::Cgroup(_)
            | Event::Namespaces(_)
            | Event::Loss(_)
            | Event::Problem(_) => {}
        }
        if self.life.threads.is_full(LIMITS.rows) {
            self.life.threads.take_finished(false);
        }
    }
}

impl Sink for Tally {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.note(event);
        Ok(())
    }

    #[inline]
    fn hit(&mut self, hit: &Hit<'_>) -> Result<(), Error> {
        self.count(&hit.sample());
        Ok(())
    }
}

/// Periods are any numbers in a damaged journal.
fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}

/// The code that ran: the kernel's leaf, otherwise that of the user stack, otherwise the instruction pointer.
fn leaf(sample: &Sample<'_>) -> Option<(u64, Space)> {
    let of_stack = |stack: &Stack<'_>| match stack {
        Stack::Addresses {
            space, addresses, ..
        } => addresses.first().map(|&address| (address, *space)),
        Stack::None | Stack::Named(_) | Stack::Id(_) => None,
    };
    let of_ip = || Some((sample.ip?, space_of_ip(sample.ip?, sample.space)));
    of_stack(&sample.kernel_stack)
        .or_else(|| of_stack(&sample.user_stack))
        .or_else(of_ip)
}
