//! Decoded events → samples, calls, threads, mappings.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{
    BuildId, Call, Comm, Common, Context, Enter, Event, EventId, EventKind, EventType, Exit,
    Extras, Field, FieldType, Fields, Flags, Fork, Function, Leave, Mapping, NamedFrame, Purpose,
    Sample, Sink, Space, Stack, Switch, Value,
};

use super::layout::{ClassLayout, Column, ScopeOf};
use super::names::{self, Change, Identity, Tracer};
use crate::placeholder::module_of;

/// A column that is a member of all samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Pid,
    Tid,
    /// IDs inside of a container, unless the others are there.
    InnerPid,
    InnerTid,
    Comm,
    Ip,
    Period,
    Cpu,
    KernelStack,
    UserStack,
    /// Both stacks, with markers.
    Callchain,
    /// Names from the root, with semicolons.
    NamedStack,
    /// No column, and no member.
    Dropped,
}

/// Events that mean more than a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    None,
    /// `sched_switch` of a kernel.
    Switch,
    FunctionEntry,
    FunctionExit,
    /// A program or library was loaded.
    Loaded,
    BuildId,
    /// A thread of the kernel at the start.
    ThreadState,
    PerfComm,
    PerfFork,
    PerfExit,
    PerfMapping,
    /// A call that our exporter has written.
    Call,
}

impl Special {
    fn of(name: &str, tracer: Tracer) -> Special {
        match (tracer, name) {
            (Tracer::LttngKernel, "sched_switch") => Special::Switch,
            (Tracer::LttngKernel, "lttng_statedump_process_state") => Special::ThreadState,
            (Tracer::Perfquet, "call") => Special::Call,
            (Tracer::Perf, "perf_comm") => Special::PerfComm,
            (Tracer::Perf, "perf_fork") => Special::PerfFork,
            (Tracer::Perf, "perf_exit") => Special::PerfExit,
            (Tracer::Perf, "perf_mmap" | "perf_mmap2") => Special::PerfMapping,
            (_, "lttng_ust_cyg_profile:func_entry" | "lttng_ust_cyg_profile_fast:func_entry") => {
                Special::FunctionEntry
            }
            (_, "lttng_ust_cyg_profile:func_exit" | "lttng_ust_cyg_profile_fast:func_exit") => {
                Special::FunctionExit
            }
            (
                _,
                "lttng_ust_statedump:bin_info"
                | "lttng_ust_lib:load"
                | "lttng_ust_dl:dlopen"
                | "lttng_ust_dl:dlmopen",
            ) => Special::Loaded,
            (
                _,
                "lttng_ust_statedump:build_id" | "lttng_ust_lib:build_id" | "lttng_ust_dl:build_id",
            ) => Special::BuildId,
            _ => Special::None,
        }
    }

    /// Whether it is a row, too.
    fn has_row(self) -> bool {
        match self {
            Special::None
            | Special::Switch
            | Special::Loaded
            | Special::BuildId
            | Special::ThreadState => true,
            Special::FunctionEntry
            | Special::FunctionExit
            | Special::PerfComm
            | Special::PerfFork
            | Special::PerfExit
            | Special::PerfMapping
            | Special::Call => false,
        }
    }
}

/// How an event class becomes events.
#[derive(Debug)]
pub(super) struct Plan {
    id: EventId,
    special: Special,
    members: Vec<(usize, Member)>,
    fields: Vec<(usize, Change)>,
    /// Columns of what a special event needs.
    arguments: HashMap<String, usize>,
    has_tid: bool,
}

impl Plan {
    /// A column by its name.
    fn argument(&self, name: &str) -> usize {
        self.arguments.get(name).copied().unwrap_or(usize::MAX)
    }
}

/// The types of all events; classes with equal types share one.
#[derive(Debug, Default)]
pub(super) struct Types {
    known: Vec<EventType>,
    by_name: HashMap<(String, String), Vec<usize>>,
}

impl Types {
    /// Plans an event class, and declares its type.
    pub(super) fn plan(
        &mut self,
        class: &ClassLayout,
        tracer: Tracer,
        tracer_name: Option<&str>,
        sink: &mut dyn Sink,
    ) -> Result<Plan, Error> {
        let Identity { system, name, kind } = names::identify(&class.name, tracer, tracer_name);
        let special = Special::of(&class.name, tracer);
        let mut plan = Plan {
            id: EventId(0),
            special,
            members: Vec::new(),
            fields: Vec::new(),
            arguments: HashMap::new(),
            has_tid: false,
        };
        let mut fields = Vec::new();
        for (slot, column) in class.columns.iter().enumerate() {
            if let Some(member) = member(column, tracer, kind) {
                plan.has_tid |= matches!(member, Member::Tid | Member::InnerTid);
                plan.members.push((slot, member));
                continue;
            }
            if special != Special::None && column.of == ScopeOf::Fields {
                plan.arguments.insert(column.name.clone(), slot);
            }
            if kind.is_sampled() {
                continue;
            }
            let (field, change) = match column.of {
                ScopeOf::Packet => (format!("packet_{}", column.name), Change::None),
                ScopeOf::Header | ScopeOf::Context => (column.name.clone(), Change::None),
                ScopeOf::Fields => {
                    let (field, change) = names::field(&name, &column.name, tracer);
                    (field.to_owned(), change)
                }
            };
            let is_number = matches!(column.kind, FieldType::Int(_) | FieldType::UInt(_));
            let change = if is_number { change } else { Change::None };
            plan.fields.push((slot, change));
            // perf writes the bytes of the kernel with 32 bits.
            let flags = Flags::fields().into_iter();
            if let Some(byte) = flags
                .filter(|_| tracer == Tracer::Perf)
                .find(|flag| flag.name == field)
            {
                fields.push(byte);
                continue;
            }
            fields.push(Field {
                name: field,
                kind: match change {
                    Change::None | Change::Priority => column.kind,
                    Change::Rwbs => FieldType::Text,
                },
                layout: None,
                declaration: String::new(),
            });
        }
        // The outer IDs win.
        plan.members
            .sort_by_key(|(_, member)| !matches!(member, Member::InnerPid | Member::InnerTid));
        if special.has_row() {
            let purpose = match tracer {
                // Our exporter writes both the events and the calls that follow from them.
                Tracer::Perfquet => Purpose::RowsOnly,
                _ => Purpose::Rows,
            };
            let purpose = (purpose, special == Special::Switch);
            plan.id = self.declare((system, name), kind, fields, purpose, sink)?;
        }
        Ok(plan)
    }

    fn declare(
        &mut self,
        (system, name): (String, String),
        kind: EventKind,
        fields: Vec<Field>,
        (purpose, has_switches): (Purpose, bool),
        sink: &mut dyn Sink,
    ) -> Result<EventId, Error> {
        let of_type = EventType {
            system,
            name,
            kind,
            fields,
            purpose,
            has_switches,
            extras: Extras {
                period: kind.is_sampled(),
                ..Extras::default()
            },
            ..EventType::default()
        };
        let key = (of_type.system.clone(), of_type.name.clone());
        let same = self.by_name.entry(key).or_default();
        let known = &self.known;
        let found = same
            .iter()
            .find(|place| known.get(**place) == Some(&of_type));
        let place = match found {
            Some(place) => *place,
            None => {
                sink.event(Event::Type(&of_type))?;
                same.push(self.known.len());
                self.known.push(of_type);
                self.known.len() - 1
            }
        };
        Ok(EventId(place as u32))
    }
}

/// The member of samples that a column is.
fn member(column: &Column, tracer: Tracer, kind: EventKind) -> Option<Member> {
    let name = column.name.as_str();
    let is_lttng = matches!(tracer, Tracer::LttngKernel | Tracer::LttngUser);
    Some(match (column.of, name) {
        (ScopeOf::Packet, "cpu_id") => Member::Cpu,
        (
            ScopeOf::Packet,
            "timestamp_begin" | "timestamp_end" | "content_size" | "packet_size"
            | "events_discarded" | "packet_seq_num",
        ) => Member::Dropped,
        (ScopeOf::Header, "id" | "timestamp") => Member::Dropped,
        (ScopeOf::Header, "v") => Member::Dropped,
        (ScopeOf::Header, _) if name.starts_with("v.") || name == "id_label" => Member::Dropped,
        (ScopeOf::Context, "pid") => Member::Pid,
        (ScopeOf::Context, "tid") => Member::Tid,
        (ScopeOf::Context, "vpid") => Member::InnerPid,
        (ScopeOf::Context, "vtid") => Member::InnerTid,
        (ScopeOf::Context, "procname") => Member::Comm,
        (ScopeOf::Context, "ip") if is_lttng => Member::Ip,
        (ScopeOf::Context, "callstack_kernel") => Member::KernelStack,
        (ScopeOf::Context, "callstack_user") => Member::UserStack,
        (ScopeOf::Context, "callchain") if tracer == Tracer::Perfquet => Member::NamedStack,
        (ScopeOf::Fields, _) if tracer == Tracer::Perf => match name {
            "perf_ip" => Member::Ip,
            "perf_tid" => Member::Tid,
            "perf_pid" => Member::Pid,
            "perf_cpu" => Member::Cpu,
            "perf_period" if kind.is_sampled() => Member::Period,
            "perf_callchain" => Member::Callchain,
            "perf_period"
            | "perf_callchain_size"
            | "perf_id"
            | "raw_len"
            | "raw_data"
            | "common_type"
            | "common_pid" => Member::Dropped,
            _ => return None,
        },
        (ScopeOf::Fields, "ip") if tracer == Tracer::Perfquet && kind.is_sampled() => Member::Ip,
        (ScopeOf::Fields, "period") if tracer == Tracer::Perfquet && kind.is_sampled() => {
            Member::Period
        }
        _ => return None,
    })
}

/// The thread that runs on a CPU, as its last switch says.
#[derive(Debug, Default)]
struct Running {
    tid: i32,
}

/// The values of an event, by column.
pub(super) trait Slots {
    fn value(&self, slot: usize) -> Value<'_>;
}

/// Turns decoded events into ours.
#[derive(Debug, Default)]
pub(super) struct Emitter {
    running: HashMap<u32, Running>,
    /// Paths of loaded programs and libraries by process and address, for their build IDs.
    loaded: HashMap<(i32, u64), Vec<u8>>,
    /// Memory of the values of an event.
    values: Vec<Value<'static>>,
    kernel_stack: Vec<u64>,
    user_stack: Vec<u64>,
}

/// Most loaded programs and libraries that are remembered.
const LOADED_MAX: usize = 1 << 16;

impl Emitter {
    /// Emits an event.
    pub(super) fn emit(
        &mut self,
        plan: &Plan,
        decoder: &impl Slots,
        time: Option<i64>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let mut sample = Sample {
            time,
            ..Sample::of(plan.id)
        };
        let (mut kernel, mut user) = (Vec::new(), Vec::new());
        std::mem::swap(&mut kernel, &mut self.kernel_stack);
        std::mem::swap(&mut user, &mut self.user_stack);
        kernel.clear();
        user.clear();
        let mut named: &[u8] = &[];
        for &(slot, member) in &plan.members {
            let value = decoder.value(slot);
            match member {
                Member::Pid | Member::InnerPid => sample.pid = id(value).or(sample.pid),
                Member::Tid | Member::InnerTid => sample.tid = id(value).or(sample.tid),
                Member::Cpu => sample.cpu = id(value).map(i32::cast_unsigned),
                Member::Ip => sample.ip = Some(bits(value)),
                Member::Period => sample.period = Some(bits(value)),
                Member::Comm => {
                    if let Value::Bytes(comm) = value {
                        sample.comm = (!comm.is_empty()).then_some(comm);
                    }
                }
                Member::KernelStack => addresses(value, &mut kernel),
                Member::UserStack => addresses(value, &mut user),
                Member::Callchain => callchain(value, &mut kernel, &mut user),
                Member::NamedStack => {
                    if let Value::Bytes(text) = value {
                        named = text;
                    }
                }
                Member::Dropped => {}
            }
        }
        let frames = named_frames(named);
        if !kernel.is_empty() {
            sample.kernel_stack = Stack::of(Space::Kernel, &kernel);
        }
        if !user.is_empty() {
            sample.user_stack = Stack::of(Space::User, &user);
        } else if !frames.is_empty() {
            sample.user_stack = Stack::Named(&frames);
        }
        if !plan.has_tid
            && let Some(cpu) = sample.cpu
            && plan.special != Special::Switch
            && let Some(running) = self.running.get(&cpu)
        {
            sample.tid = Some(running.tid);
        }
        if plan.special != Special::None {
            self.special(plan, decoder, &mut sample, sink)?;
        }
        if plan.special.has_row() {
            let mut texts = [([0; 8], 0); 2];
            let mut values = recycled(std::mem::take(&mut self.values));
            let mut free = texts.iter_mut();
            for &(slot, change) in &plan.fields {
                let value = decoder.value(slot);
                values.push(match change {
                    Change::None => value,
                    Change::Priority => match value {
                        Value::Int(number) => Value::Int(number.saturating_add(100)),
                        Value::UInt(number) => Value::UInt(number.saturating_add(100)),
                        other => other,
                    },
                    Change::Rwbs => match free.next() {
                        Some(text) => {
                            *text = names::rwbs(bits(value));
                            Value::Bytes(text.0.get(..text.1).unwrap_or_default())
                        }
                        None => Value::Null,
                    },
                });
            }
            sink.event(Event::Sample(&Sample {
                fields: Fields::Values(&values),
                ..sample
            }))?;
            self.values = recycled(values);
        }
        self.kernel_stack = kernel;
        self.user_stack = user;
        Ok(())
    }

    fn special(
        &mut self,
        plan: &Plan,
        decoder: &impl Slots,
        sample: &mut Sample<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let value = |name: &str| decoder.value(plan.argument(name));
        let number = |name: &str| id(value(name));
        let text = |name: &str| bytes_of(value(name));
        let common = Common {
            time: sample.time,
            cpu: sample.cpu,
            pid: sample.pid,
            tid: sample.tid,
            comm: sample.comm,
            kernel_stack: sample.kernel_stack,
            user_stack: sample.user_stack,
        };
        let function = |name: &str| match value(name) {
            Value::Null => Function::Unknown,
            value => Function::Address {
                space: Space::User,
                address: bits(value),
            },
        };
        match plan.special {
            Special::None => Ok(()),
            Special::FunctionEntry => sink.event(Event::Enter(&Enter {
                common,
                function: function("addr"),
                ..Enter::default()
            })),
            Special::FunctionExit => sink.event(Event::Leave(&Leave {
                common,
                function: function("addr"),
                ..Leave::default()
            })),
            Special::Switch => {
                let (Some(cpu), Some(previous_tid), Some(next_tid)) =
                    (sample.cpu, number("prev_tid"), number("next_tid"))
                else {
                    return Ok(());
                };
                sample.tid = sample.tid.or(Some(previous_tid));
                let (previous, next) = (text("prev_comm"), text("next_comm"));
                sink.event(Event::Switch(Switch {
                    time: sample.time,
                    cpu,
                    previous_tid,
                    previous_comm: &previous,
                    next_tid,
                    next_comm: &next,
                }))?;
                self.running.insert(cpu, Running { tid: next_tid });
                Ok(())
            }
            Special::Call => Self::call(plan, decoder, common, sink),
            Special::ThreadState => match number("tid") {
                Some(tid) => sink.event(Event::Comm(Comm {
                    time: None,
                    pid: number("pid"),
                    tid,
                    comm: &text("name"),
                    exec: false,
                })),
                None => Ok(()),
            },
            Special::Loaded => self.load(
                common,
                bits(value("baddr")),
                bits(value("memsz")),
                &text("path"),
                sink,
            ),
            Special::BuildId => {
                let key = (common.pid.unwrap_or(-1), bits(value("baddr")));
                let build_id = match value("build_id") {
                    Value::Bytes(bytes) => bytes.to_vec(),
                    Value::UIntList(bytes) => bytes.iter().map(|byte| *byte as u8).collect(),
                    _ => return Ok(()),
                };
                match self.loaded.get(&key) {
                    Some(path) => sink.event(Event::BuildId(BuildId {
                        pid: key.0,
                        space: Space::User,
                        path,
                        build_id: &build_id,
                    })),
                    None => Ok(()),
                }
            }
            Special::PerfComm | Special::PerfFork | Special::PerfExit | Special::PerfMapping => {
                perf_record(plan, decoder, sample.time, sink)
            }
        }
    }

    /// A call that perfquet-convert wrote: both its ends in one event.
    fn call(
        plan: &Plan,
        decoder: &impl Slots,
        common: Common<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let value = |name: &str| decoder.value(plan.argument(name));
        let text = |name: &str| bytes_of(value(name));
        let (name, module, caller) = (text("function"), text("module"), text("caller"));
        let function = match name.as_slice() {
            b"" => Function::Unknown,
            name => Function::Named {
                name,
                module: &module,
            },
        };
        let is_seen = |end: &str| bits(value(end)) != 0;
        // Unknown numbers were written as 0.
        let retval = bits(value("retval")).cast_signed();
        let retval = (retval != 0).then_some(retval);
        let duration = bits(value("duration")).cast_signed();
        let duration = Some(duration).filter(|_| is_seen("entry_seen") && is_seen("exit_seen"));
        // Unknown numbers were written as 0, but a call inside of another is not at depth 0.
        let depth = u32::try_from(bits(value("depth")).cast_signed()).ok();
        let depth = depth.filter(|depth| *depth > 0 || bits(value("parent_id")) == 0);
        if !is_seen("entry_seen") {
            return sink.event(Event::Leave(&Leave {
                common,
                function,
                depth,
                retval,
                ..Leave::default()
            }));
        }
        let args = text("args");
        // `[count=1, buf=2]`
        let inside = args
            .strip_prefix(b"[")
            .and_then(|args| args.strip_suffix(b"]"));
        let args: Vec<&[u8]> = match inside.unwrap_or(&args) {
            b"" => Vec::new(),
            args => vec![args],
        };
        sink.event(Event::Call(&Call {
            common,
            function,
            caller: match caller.as_slice() {
                b"" => Function::Unknown,
                caller => Function::named(caller),
            },
            depth,
            context: match text("context").as_slice() {
                b"irq" => Some(Context::Irq),
                b"softirq" => Some(Context::Softirq),
                b"nmi" => Some(Context::Nmi),
                b"task" => Some(Context::Task),
                _ => None,
            },
            args: &args,
            duration,
            retval,
            may_nest: true,
        }))
    }

    fn load(
        &mut self,
        common: Common<'_>,
        start: u64,
        length: u64,
        path: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(pid) = common.pid else {
            return Ok(());
        };
        if self.loaded.len() < LOADED_MAX {
            self.loaded.insert((pid, start), path.to_vec());
        }
        // That of the vdso is unknown.
        if length == 0 {
            return Ok(());
        }
        sink.event(Event::Mapping(Mapping {
            time: common.time,
            pid,
            tid: common.tid.unwrap_or(pid),
            space: Space::User,
            start,
            length,
            file_offset: 0,
            path,
            build_id: None,
            device: None,
            inode: None,
            protection: None,
            flags: None,
        }))
    }
}

/// The memory of a list, for values of another lifetime.
fn recycled<'n>(mut values: Vec<Value<'_>>) -> Vec<Value<'n>> {
    values.clear();
    values.into_iter().map(|_| Value::Null).collect()
}

/// A PID, TID or CPU; -1 is unknown.
fn id(value: Value<'_>) -> Option<i32> {
    let number = match value {
        Value::Int(number) => i32::try_from(number).ok(),
        Value::UInt(number) => i32::try_from(number).ok(),
        _ => None,
    };
    number.filter(|number| *number >= 0)
}

fn bits(value: Value<'_>) -> u64 {
    match value {
        Value::Int(number) => number.cast_unsigned(),
        Value::UInt(number) => number,
        _ => 0,
    }
}

fn addresses(value: Value<'_>, into: &mut Vec<u64>) {
    match value {
        Value::UIntList(list) => into.extend_from_slice(list),
        Value::IntList(list) => into.extend(list.iter().map(|address| address.cast_unsigned())),
        _ => {}
    }
}

/// Splits a call chain at the kernel's markers (`PERF_CONTEXT_KERNEL` = -128, `PERF_CONTEXT_USER` = -512).
fn callchain(value: Value<'_>, kernel: &mut Vec<u64>, user: &mut Vec<u64>) {
    const KERNEL: u64 = 0_u64.wrapping_sub(128);
    const USER: u64 = 0_u64.wrapping_sub(512);
    const MARKERS: u64 = 0_u64.wrapping_sub(4095);
    let Value::UIntList(list) = value else {
        return;
    };
    let mut is_kernel = false;
    for &address in list {
        match address {
            KERNEL => is_kernel = true,
            USER => is_kernel = false,
            MARKERS.. => {}
            _ if is_kernel => kernel.push(address),
            _ => user.push(address),
        }
    }
}

/// A record of perf that perfquet-convert wrote: names, forks, exits and mappings.
fn perf_record(
    plan: &Plan,
    decoder: &impl Slots,
    time: Option<i64>,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    let value = |name: &str| decoder.value(plan.argument(name));
    let number = |name: &str| id(value(name));
    let text = |name: &str| bytes_of(value(name));
    match plan.special {
        Special::PerfComm => match number("tid") {
            Some(tid) => sink.event(Event::Comm(Comm {
                time,
                pid: number("pid"),
                tid,
                comm: &text("comm"),
                exec: false,
            })),
            None => Ok(()),
        },
        Special::PerfFork => {
            let ids = (number("pid"), number("tid"), number("ppid"), number("ptid"));
            match ids {
                (Some(pid), Some(tid), Some(parent_pid), Some(parent_tid)) => {
                    sink.event(Event::Fork(Fork {
                        time,
                        pid,
                        tid,
                        parent_pid,
                        parent_tid,
                    }))
                }
                _ => Ok(()),
            }
        }
        Special::PerfExit => match (number("pid"), number("tid")) {
            (Some(pid), Some(tid)) => sink.event(Event::Exit(Exit {
                time,
                pid: Some(pid),
                tid,
                code: None,
            })),
            _ => Ok(()),
        },
        Special::PerfMapping => {
            // perf stores the kernel's -1 without its sign.
            let signed = |name: &str| bits(value(name)) as u32;
            let pid = signed("pid").cast_signed();
            sink.event(Event::Mapping(Mapping {
                time: time.filter(|time| *time > 0),
                pid,
                tid: signed("tid").cast_signed(),
                space: match pid {
                    -1 => Space::Kernel,
                    _ => Space::User,
                },
                start: bits(value("start")),
                length: bits(value("len")),
                file_offset: bits(value("pgoff")),
                path: &text("filename"),
                build_id: None,
                device: None,
                inode: None,
                protection: None,
                flags: None,
            }))
        }
        _ => Ok(()),
    }
}

/// The bytes of a string; empty for other values.
fn bytes_of(value: Value<'_>) -> Vec<u8> {
    match value {
        Value::Bytes(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

/// The frames of a stack that is written as names, the outermost first.
fn named_frames(named: &[u8]) -> Vec<NamedFrame<'_>> {
    if named.is_empty() {
        return Vec::new();
    }
    let frame = |name| {
        let module = module_of(name, false);
        let is_unknown = module.is_some() || name == b"[unknown]";
        NamedFrame {
            function: if is_unknown { b"" } else { name },
            module: module.unwrap_or_default(),
            ..NamedFrame::default()
        }
    };
    named.rsplit(|&byte| byte == b';').map(frame).collect()
}
