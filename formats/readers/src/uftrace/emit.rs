//! Records → calls, hits, states of threads and mappings.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::event::{
    Comm, Common, Enter, Event, EventId, EventKind, EventType, Exit, FieldType, Fields, Fork,
    Function, Leave, Loss, Mapping, Sample, Sink, Space, Value, time_of,
};

use super::arguments::{Decoded, Named, Signature, Signatures, Texts, decode};
use super::events::{FIRST_EVENT, USER_EVENTS, builtin, column_type, field, values};
use super::perf::{PerfRecord, What};
use super::record::{Kind, Record};
use super::sessions::{Change, Map, Sessions};
use super::symbols::{SymbolFile, file_of};

/// Cached functions.
const FUNCTIONS_MAX: usize = 1 << 20;
/// Event types of user programs (SDT).
const TYPES_MAX: usize = 10_000;
/// Kernel's limit of thread names.
const COMM_BYTES: usize = 15;
/// A call of which only the depth is known.
const UNKNOWN: u32 = u32::MAX;
/// A thread that does not run.
const SCHEDULE: u32 = u32::MAX - 1;
const PREEMPTED: u32 = u32::MAX - 2;

/// Event types that are declared when they first occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Type {
    ReturnValue,
    SchedOut,
    SchedIn,
    External,
    /// By the ID in the record.
    Recorded(u64),
}

/// A function at an address.
#[derive(Debug)]
struct Known<'a> {
    function: Function<'a>,
    signature: Signature<'a>,
}

/// A thread while it is read.
#[derive(Debug, Default)]
struct Thread {
    tid: i32,
    pid: Option<i32>,
    /// Open calls: function and time of the entry.
    stack: Vec<(u32, u64)>,
    /// Open functions of the kernel, inside of these calls.
    kernel_depth: u32,
    /// Depth of the call that represents the thread's waiting.
    schedule_depth: Option<u32>,
    /// Records were lost since: nobody knows the depth until the next record.
    is_depth_lost: bool,
    /// The program, and until when.
    program: Option<usize>,
    program_until: u64,
}

impl Thread {
    /// Open user functions, if known.
    fn user_depth(&self) -> Option<u32> {
        let is_waiting = matches!(self.stack.last(), Some((SCHEDULE | PREEMPTED, _)));
        let depth = self.stack.len() - usize::from(is_waiting);
        let depth = u32::try_from(depth).ok();
        depth.filter(|_| !self.is_depth_lost)
    }
}

/// The state of all threads.
pub(super) struct Emitter<'a> {
    sessions: &'a Sessions<'a>,
    symbols: Vec<SymbolFile<'a>>,
    signatures: Signatures<'a>,
    has_relative_symbols: bool,
    endian: Endian,
    /// Names of the events of user programs.
    user_events: HashMap<u64, (&'a [u8], &'a [u8])>,
    functions: Vec<Known<'a>>,
    by_address: HashMap<(usize, u64), u32>,
    threads: Vec<Thread>,
    by_tid: HashMap<i32, usize>,
    types: HashMap<Type, EventId>,
    /// Declared event types, those of the kernel's pages included.
    types_count: u32,
    texts: Texts,
}

/// What the records need besides themselves.
pub(super) struct Context<'a> {
    pub(super) sessions: &'a Sessions<'a>,
    pub(super) symbols: Vec<SymbolFile<'a>>,
    pub(super) signatures: Signatures<'a>,
    pub(super) has_relative_symbols: bool,
    pub(super) endian: Endian,
    pub(super) user_events: HashMap<u64, (&'a [u8], &'a [u8])>,
}

/// What follows a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Data of this size.
    Bytes(usize),
    /// Data whose size is unknown.
    Unknown,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(context: Context<'a>) -> Emitter<'a> {
        Emitter {
            sessions: context.sessions,
            symbols: context.symbols,
            signatures: context.signatures,
            has_relative_symbols: context.has_relative_symbols,
            endian: context.endian,
            user_events: context.user_events,
            functions: Vec::new(),
            by_address: HashMap::new(),
            threads: Vec::new(),
            by_tid: HashMap::new(),
            types: HashMap::new(),
            types_count: 0,
            texts: Texts::default(),
        }
    }

    /// The place of a thread.
    pub(super) fn thread(&mut self, tid: i32) -> usize {
        if let Some(&place) = self.by_tid.get(&tid) {
            return place;
        }
        self.threads.push(Thread {
            tid,
            pid: self.sessions.pid(tid),
            ..Thread::default()
        });
        let place = self.threads.len() - 1;
        self.by_tid.insert(tid, place);
        place
    }

    /// Whether an address is in a mapping of the thread's program, for the search of records.
    pub(super) fn is_mapped(&self, tid: i32, record: &Record) -> bool {
        match record.kind {
            Kind::Entry | Kind::Exit => {
                let program = self.sessions.program(tid, record.time);
                let session = program.and_then(|place| self.sessions.all.get(place));
                session.is_some_and(|session| session.map(record.address, record.time).is_some())
            }
            Kind::Lost => true,
            Kind::Event => (FIRST_EVENT..2 * USER_EVENTS).contains(&record.address),
        }
    }

    /// Emits a record of a task; `data` begins after it.
    pub(super) fn record(
        &mut self,
        thread: usize,
        record: &Record,
        data: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Result<After, Error> {
        match record.kind {
            Kind::Entry => self.enter(thread, record, data, sink),
            Kind::Exit => self.leave(thread, record, data, sink),
            Kind::Event => self.hit(thread, record, data, sink),
            Kind::Lost => {
                if let Some(thread) = self.threads.get_mut(thread) {
                    thread.stack.clear();
                    thread.is_depth_lost = true;
                }
                sink.event(Event::Loss(Loss {
                    time: Some(time_of(record.time)),
                    cpu: None,
                    event: None,
                    count: Some(record.address),
                    in_all: None,
                    reason: "buffer full",
                }))?;
                Ok(After::Bytes(0))
            }
        }
    }

    fn enter(
        &mut self,
        place: usize,
        record: &Record,
        data: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Result<After, Error> {
        let id = self.function(place, record);
        let Some(thread) = self.threads.get_mut(place) else {
            return Ok(After::Bytes(0));
        };
        thread.is_depth_lost = false;
        thread.kernel_depth = 0;
        let depth = record.depth as usize;
        thread.stack.resize(depth, (UNKNOWN, 0));
        thread.stack.push((id, record.time));
        let common = common(thread, record.time);
        let known = self.functions.get(id as usize);
        let mut enter = Enter {
            common,
            function: known.map_or(Function::Unknown, |known| known.function),
            depth: Some(record.depth),
            ..Enter::default()
        };
        if !record.has_more {
            sink.event(Event::Enter(&enter))?;
            return Ok(After::Bytes(0));
        }
        let specs = known.map_or(&[][..], |known| &known.signature.arguments);
        let decoded = decode(data, specs, self.endian, &mut self.texts);
        let args: Vec<&[u8]> = match decoded {
            Some(_) => self.texts.iter().collect(),
            None => Vec::new(),
        };
        enter.args = &args;
        sink.event(Event::Enter(&enter))?;
        Ok(decoded.map_or(After::Unknown, |(length, _)| After::Bytes(length)))
    }

    fn leave(
        &mut self,
        place: usize,
        record: &Record,
        data: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Result<After, Error> {
        let id = self.function(place, record);
        let Some(thread) = self.threads.get_mut(place) else {
            return Ok(After::Bytes(0));
        };
        thread.is_depth_lost = false;
        thread.kernel_depth = 0;
        let depth = record.depth as usize;
        // The time since the entry proves that no loss is between them.
        let entered = thread
            .stack
            .get(depth)
            .filter(|(function, _)| *function == id);
        let duration = entered.and_then(|(_, time)| record.time.checked_sub(*time));
        thread.stack.truncate(depth);
        let common = common(thread, record.time);
        let known = self.functions.get(id as usize);
        let function = known.map_or(Function::Unknown, |known| known.function);
        let mut leave = Leave {
            common,
            function,
            depth: Some(record.depth),
            duration: duration.map(time_of),
            ..Leave::default()
        };
        if !record.has_more {
            sink.event(Event::Leave(&leave))?;
            return Ok(After::Bytes(0));
        }
        let specs = known.map_or(&[][..], |known| &known.signature.returned);
        let decoded = decode(data, specs, self.endian, &mut self.texts);
        let Some((length, value)) = decoded else {
            sink.event(Event::Leave(&leave))?;
            return Ok(After::Unknown);
        };
        if let Decoded::Integer(number) = value {
            leave.retval = Some(number);
        }
        sink.event(Event::Leave(&leave))?;
        if value == Decoded::Other {
            let event = self.declared(Type::ReturnValue, sink)?;
            let name = match function {
                Function::Named { name, .. } => Value::Bytes(name),
                Function::Address { .. } | Function::Unknown => Value::Null,
            };
            let text = self.texts.iter().last().unwrap_or_default();
            hit(event, common, &[name, Value::Bytes(text)], sink)?;
        }
        Ok(After::Bytes(length))
    }

    fn hit(
        &mut self,
        place: usize,
        record: &Record,
        data: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Result<After, Error> {
        let Some(thread) = self.threads.get(place) else {
            return Ok(After::Bytes(0));
        };
        let common = common(thread, record.time);
        let kind = Type::Recorded(record.address);
        if !self.types.contains_key(&kind) && self.types.len() >= TYPES_MAX {
            return Ok(match record.has_more {
                true => After::Unknown,
                false => After::Bytes(0),
            });
        }
        let event = self.declared(kind, sink)?;
        if !record.has_more {
            hit(event, common, &[], sink)?;
            return Ok(After::Bytes(0));
        }
        let size = self.endian.u16_at(data, 0).map(usize::from);
        let Some(bytes) = size.and_then(|size| data.get(2..2 + size)) else {
            hit(event, common, &[], sink)?;
            return Ok(After::Unknown);
        };
        let values = values(record.address, bytes, self.endian);
        hit(event, common, &values, sink)?;
        Ok(After::Bytes((2 + bytes.len()).next_multiple_of(8)))
    }

    /// The function of a record.
    fn function(&mut self, place: usize, record: &Record) -> u32 {
        let Some(thread) = self.threads.get_mut(place) else {
            return UNKNOWN;
        };
        if record.time >= thread.program_until || thread.program.is_none() {
            thread.program = self.sessions.program(thread.tid, record.time);
            thread.program_until = self.sessions.next_program(thread.tid, record.time);
        }
        let program = thread.program.unwrap_or(usize::MAX);
        let key = (program, record.address);
        if let Some(&id) = self.by_address.get(&key) {
            return id;
        }
        if self.functions.len() >= FUNCTIONS_MAX {
            self.functions.clear();
            self.by_address.clear();
            for thread in &mut self.threads {
                // Their numbers are those of other functions now.
                thread.stack.iter_mut().for_each(|open| open.0 = UNKNOWN);
            }
        }
        let known = self.resolve(program, record);
        let id = self.functions.len() as u32;
        self.functions.push(known);
        self.by_address.insert(key, id);
        id
    }

    fn resolve(&mut self, program: usize, record: &Record) -> Known<'a> {
        let unknown = Known {
            function: Function::Address {
                space: Space::User,
                address: record.address,
            },
            signature: Signature::default(),
        };
        let session = self.sessions.all.get(program);
        let Some(map) = session.and_then(|session| session.map(record.address, record.time)) else {
            return unknown;
        };
        let file = file_of(&self.symbols, map.path, map.build_id);
        let address = match self.has_relative_symbols {
            true => record.address - map.start,
            false => record.address,
        };
        let file = file.and_then(|file| self.symbols.get_mut(file));
        let Some(symbol) = file.and_then(|file| file.at(address)) else {
            return unknown;
        };
        let base = map.path.rsplit(|&byte| byte == b'/').next();
        Known {
            function: Function::Named {
                name: symbol.name,
                module: map.path,
            },
            signature: self.signatures.signature(&Named {
                name: symbol.name,
                module: base.unwrap_or_default(),
                address: symbol.start,
                is_library_call: symbol.is_library_call,
            }),
        }
    }

    /// Emits a record of perf.
    pub(super) fn perf(
        &mut self,
        record: &PerfRecord<'_>,
        cpu: u32,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let time = Some(time_of(record.time));
        let (pid, tid) = (record.pid, record.tid);
        match record.what {
            What::Out { is_preempted } => self.switch(record, Some(is_preempted), cpu, sink),
            What::In => self.switch(record, None, cpu, sink),
            What::Name { comm, is_exec } => {
                if is_exec {
                    self.begin_program(tid);
                }
                sink.event(Event::Comm(Comm {
                    time,
                    pid: Some(pid),
                    tid,
                    comm,
                    exec: is_exec,
                }))
            }
            What::Fork {
                parent_pid,
                parent_tid,
            } => match self.sessions.pid(tid) {
                // task.txt has it.
                Some(_) => Ok(()),
                None => sink.event(Event::Fork(Fork {
                    time,
                    pid,
                    tid,
                    parent_pid,
                    parent_tid,
                })),
            },
            What::Exit => sink.event(Event::Exit(Exit {
                time,
                pid: Some(pid),
                tid,
                code: None,
            })),
            What::Lost(count) => sink.event(Event::Loss(Loss {
                time,
                cpu: Some(cpu),
                event: None,
                count: Some(count),
                in_all: None,
                reason: "buffer full",
            })),
            What::Other => Ok(()),
        }
    }

    /// A thread stops running, or runs again.
    fn switch(
        &mut self,
        record: &PerfRecord<'_>,
        out: Option<bool>,
        cpu: u32,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let event = match out {
            Some(_) => self.declared(Type::SchedOut, sink)?,
            None => self.declared(Type::SchedIn, sink)?,
        };
        let place = self.thread(record.tid);
        let Some(thread) = self.threads.get_mut(place) else {
            return Ok(());
        };
        let common = Common {
            cpu: Some(cpu),
            pid: Some(record.pid),
            ..common(thread, record.time)
        };
        let values = out.map(Value::Bool);
        hit(event, common, values.as_slice(), sink)?;
        let depth = thread.user_depth();
        let depth = depth.map(|depth| depth.saturating_add(thread.kernel_depth));
        let name = |id| match id {
            SCHEDULE => Function::named(b"linux:schedule"),
            _ => Function::named(b"linux:schedule (pre-empted)"),
        };
        match out {
            // Outside of calls, they take nobody's time: before the first one, uftrace itself runs.
            Some(_) if thread.stack.is_empty() => Ok(()),
            Some(is_preempted) => {
                let id = match is_preempted {
                    false => SCHEDULE,
                    true => PREEMPTED,
                };
                thread.stack.push((id, record.time));
                thread.schedule_depth = depth;
                sink.event(Event::Enter(&Enter {
                    common,
                    function: name(id),
                    depth,
                    ..Enter::default()
                }))
            }
            None => match thread.stack.last().copied() {
                Some((id @ (SCHEDULE | PREEMPTED), since)) => {
                    thread.stack.pop();
                    sink.event(Event::Leave(&Leave {
                        common,
                        function: name(id),
                        depth: thread.schedule_depth,
                        duration: record.time.checked_sub(since).map(time_of),
                        ..Leave::default()
                    }))
                }
                _ => Ok(()),
            },
        }
    }

    /// No call of the program before continues.
    fn begin_program(&mut self, tid: i32) {
        let place = self.thread(tid);
        if let Some(thread) = self.threads.get_mut(place) {
            thread.stack.clear();
        }
    }

    /// Emits a line of task.txt.
    pub(super) fn change(
        &mut self,
        time: u64,
        change: &Change<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let at = Some(time_of(time));
        match *change {
            Change::Thread { tid, pid } if tid == pid => Ok(()),
            Change::Thread { tid, pid } => sink.event(Event::Fork(Fork {
                time: at,
                pid,
                tid,
                parent_pid: pid,
                parent_tid: pid,
            })),
            Change::Process { pid, parent } => sink.event(Event::Fork(Fork {
                time: at,
                pid,
                tid: pid,
                parent_pid: parent,
                parent_tid: parent,
            })),
            Change::Library(pid, map) => mapping(at, pid, &map, sink),
            Change::Program(place) => {
                let Some(session) = self.sessions.all.get(place) else {
                    return Ok(());
                };
                let pid = session.pid;
                if session.is_exec {
                    self.begin_program(pid);
                }
                let base = session.program.rsplit(|&byte| byte == b'/').next();
                let base = base.unwrap_or_default();
                sink.event(Event::Comm(Comm {
                    time: at,
                    pid: Some(session.pid),
                    tid: session.pid,
                    comm: base.get(..COMM_BYTES).unwrap_or(base),
                    exec: session.is_exec,
                }))?;
                for map in session.maps.iter().filter(|map| map.since == 0) {
                    mapping(at, session.pid, map, sink)?;
                }
                Ok(())
            }
        }
    }

    /// Emits a line of extern.dat.
    pub(super) fn external(
        &mut self,
        time: u64,
        text: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let event = self.declared(Type::External, sink)?;
        let common = Common {
            time: Some(time_of(time)),
            ..Common::default()
        };
        hit(event, common, &[Value::Bytes(text)], sink)
    }

    fn declared(&mut self, kind: Type, sink: &mut dyn Sink) -> Result<EventId, Error> {
        if let Some(&id) = self.types.get(&kind) {
            return Ok(id);
        }
        sink.event(Event::Type(&self.event_type(kind)))?;
        let id = self.next_type();
        self.types.insert(kind, id);
        Ok(id)
    }

    /// The ID of an event type that is declared now.
    pub(super) fn next_type(&mut self) -> EventId {
        self.types_count += 1;
        EventId(self.types_count - 1)
    }

    /// The process of a thread.
    pub(super) fn pid(&self, tid: Option<i32>) -> Option<i32> {
        self.sessions.pid(tid?)
    }

    /// The depth of a function of the kernel among all calls of its thread; `open` are open in the kernel after it.
    pub(super) fn kernel_depth(
        &mut self,
        tid: Option<i32>,
        depth: Option<u32>,
        open: impl Fn(u32) -> u32,
    ) -> Option<u32> {
        let depth = depth?;
        let place = self.by_tid.get(&tid?);
        let Some(thread) = place.and_then(|&place| self.threads.get_mut(place)) else {
            return Some(depth);
        };
        thread.kernel_depth = open(depth);
        let user = thread.user_depth()?;
        Some(user.saturating_add(depth))
    }

    fn event_type(&self, kind: Type) -> EventType {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (system, name, event_kind, fields) = match kind {
            Type::ReturnValue => (
                "uftrace".to_owned(),
                "return_value".to_owned(),
                EventKind::Recorder,
                vec![
                    field("function", FieldType::Text),
                    field("value", FieldType::Text),
                ],
            ),
            Type::SchedOut => (
                "linux".to_owned(),
                "sched_out".to_owned(),
                EventKind::Recorder,
                vec![field("preempted", FieldType::Bool)],
            ),
            Type::SchedIn => (
                "linux".to_owned(),
                "sched_in".to_owned(),
                EventKind::Recorder,
                Vec::new(),
            ),
            Type::External => (
                "uftrace".to_owned(),
                "external".to_owned(),
                EventKind::Marker,
                vec![field("msg", FieldType::Text)],
            ),
            Type::Recorded(id) => match (builtin(id), self.user_events.get(&id)) {
                (Some((system, name, columns)), _) => (
                    (*system).to_owned(),
                    (*name).to_owned(),
                    EventKind::Recorder,
                    columns
                        .iter()
                        .map(|column| field(column, column_type(system)))
                        .collect(),
                ),
                (None, Some((provider, name))) => (
                    text(provider),
                    text(name),
                    EventKind::Usdt,
                    vec![field("data", FieldType::Binary)],
                ),
                (None, None) => (
                    "uftrace".to_owned(),
                    format!("event_{id}"),
                    EventKind::Usdt,
                    vec![field("data", FieldType::Binary)],
                ),
            },
        };
        EventType {
            system,
            name,
            kind: event_kind,
            fields,
            ..EventType::default()
        }
    }
}

fn common<'a>(thread: &Thread, time: u64) -> Common<'a> {
    Common {
        time: Some(time_of(time)),
        pid: thread.pid,
        tid: Some(thread.tid),
        ..Common::default()
    }
}

fn hit(
    event: EventId,
    common: Common<'_>,
    values: &[Value<'_>],
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    sink.event(Event::Sample(&Sample {
        time: common.time,
        cpu: common.cpu,
        pid: common.pid,
        tid: common.tid,
        fields: Fields::Values(values),
        ..Sample::of(event)
    }))
}

fn mapping(time: Option<i64>, pid: i32, map: &Map<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    // The end of a library that was opened later is unknown.
    if map.end <= map.start || map.end == u64::MAX {
        return Ok(());
    }
    let build_id = build_id(map.build_id);
    sink.event(Event::Mapping(Mapping {
        time,
        pid,
        tid: pid,
        space: Space::User,
        start: map.start,
        length: map.end - map.start,
        file_offset: map.file_offset,
        path: map.path,
        build_id: build_id.as_deref(),
        device: None,
        inode: None,
        protection: Some(map.protection),
        flags: None,
    }))
}

/// Hexadecimal digits → bytes.
fn build_id(digits: &[u8]) -> Option<Vec<u8>> {
    let pairs = digits.chunks_exact(2);
    if digits.is_empty() || digits.len() > 64 || !pairs.remainder().is_empty() {
        return None;
    }
    pairs
        .map(|pair| u8::try_from(crate::lines::hexadecimal(pair)?).ok())
        .collect()
}
