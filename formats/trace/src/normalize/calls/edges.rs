//! Passes edges of readers and of event pairs to [`Calls`].

use std::hash::BuildHasher;

use perfquet_events::Error;
use perfquet_events::event::{
    Call, Common, Enter, EventId, Fields, Function, Id, Leave, PairedCall, Space, Switch, Value,
};

use super::super::heads::Head;
use super::super::life::Life;
use super::super::samples::stack_of;
use super::super::texts::TextId;
use super::super::{Calling, Normalizer, Trees};
use super::lanes::Lane;
use super::pairs::{self, DECLARED, EARLY_ENTRIES, Edge, NameOf, PROBE, Recorded, SOFTIRQS};
use super::{Calls, Entry, Exit, Extra, NUMBERED, Pair, args, system_calls};

/// Readers of text learn that exits are recorded at the first one; a filter may hold them back for long.
const UNPROVEN: &str =
    "an entry before the first exit in the input: it was not known that exits are recorded";
/// Numbers whose names are found by index.
const NUMBERS: usize = 1024;

/// A hit of an event that is one edge of a pair.
#[derive(Clone, Copy)]
pub(crate) struct EdgeHit<'a> {
    pub(crate) event: EventId,
    pub(crate) head: Head,
    pub(crate) fields: Fields<'a>,
}

impl Normalizer<'_> {
    /// Handles a function entry.
    pub(crate) fn enter(&mut self, enter: &Enter<'_>) -> Result<(), Error> {
        if !self.window.holds(enter.common.time) || !self.selected.holds(enter.common.time) {
            return Ok(());
        }
        self.age.see_call(enter.common.time);
        let entry = self.entry(enter)?;
        self.calling.calls.enter(entry);
        self.write_calls()
    }

    /// The beginning of a call, with its lane and names resolved.
    fn entry(&mut self, enter: &Enter<'_>) -> Result<Entry, Error> {
        let function = self.name(enter.function, enter.common.pid)?;
        let caller = self.name(enter.caller, enter.common.pid)?;
        let head = self.head(&enter.common);
        let texts = &mut self.calling.calls.texts;
        Ok(Entry {
            head,
            function: function.function,
            module: function.module,
            caller: caller.function,
            depth: enter.depth,
            context: enter.context,
            extra: Extra::of(
                enter.args.iter().map(|arg| texts.intern(arg)).collect(),
                Vec::new(),
            ),
            ..Entry::default()
        })
    }

    /// Handles a function exit.
    pub(crate) fn leave(&mut self, leave: &Leave<'_>) -> Result<(), Error> {
        let time = leave.common.time;
        if time.is_some() && !(self.window.holds(time) && self.selected.holds(time)) {
            return Ok(());
        }
        self.age.see_call(time);
        let function = self.name(leave.function, leave.common.pid)?;
        let head = self.head(&leave.common);
        self.calling.calls.leave(Exit {
            head,
            function: function.function,
            module: function.module,
            depth: leave.depth,
            context: leave.context,
            duration: leave.duration,
            retval: leave.retval,
            ..Exit::default()
        });
        self.write_calls()
    }

    /// Handles a complete call.
    pub(crate) fn call(&mut self, call: &Call<'_>) -> Result<(), Error> {
        if !self.window.holds(call.common.time) || !self.selected.holds(call.common.time) {
            return Ok(());
        }
        self.age.see_call(call.common.time);
        let end = call.common.time.zip(call.duration);
        self.age
            .see_call(end.and_then(|(time, duration)| time.checked_add(duration)));
        let entry = self.entry(&Enter {
            common: call.common,
            function: call.function,
            caller: call.caller,
            depth: call.depth,
            context: call.context,
            args: call.args,
        })?;
        let exit = Exit {
            duration: call.duration,
            retval: call.retval,
            ..Exit::default()
        };
        self.calling.calls.call(entry, exit, call.may_nest);
        self.write_calls()
    }

    /// Handles a call paired by a BPF program.
    pub(crate) fn paired_call(&mut self, paired: &PairedCall<'_>) -> Result<(), Error> {
        let call = &paired.call;
        let end = call.common.time.zip(call.duration);
        let end = end.and_then(|(time, duration)| time.checked_add(duration));
        if !self.window.holds(end) || !self.selected.holds_all(call.common.time, end) {
            return Ok(());
        }
        self.age.see_call(call.common.time);
        self.age.see_call(end);
        let mut entry = self.entry(&Enter {
            common: call.common,
            function: call.function,
            caller: call.caller,
            depth: call.depth,
            context: call.context,
            args: &[],
        })?;
        let fetched = call.args.iter().map(|&arg| arg.into()).collect();
        entry.extra = Extra::of(Box::default(), fetched);
        let exit = Exit {
            duration: call.duration,
            retval: call.retval,
            ..Exit::default()
        };
        self.calling
            .calls
            .paired(entry, exit, paired.parent_entry, paired.inside);
        self.write_calls()
    }

    /// Handles a thread switch on a CPU.
    pub(crate) fn switch(&mut self, switch: &Switch<'_>) {
        let threads = &mut self.life.threads;
        let mut name = |tid, comm: &[u8]| {
            let thread = threads.at(tid, None);
            match comm {
                [] => threads.describe(thread).1,
                comm => Some(threads.seen_as(thread, comm)),
            }
        };
        name(switch.next_tid, switch.next_comm);
        let comm = name(switch.previous_tid, switch.previous_comm);
        self.calling
            .calls
            .switch(switch.cpu, switch.previous_tid, comm, switch.next_tid);
    }

    /// Handles a sample of an event that is one edge of a pair, whose other edge is recorded, or may be.
    pub(crate) fn pair(&mut self, hit: EdgeHit<'_>, recorded: Recorded) -> Result<(), Error> {
        let EdgeHit {
            event,
            head,
            fields,
        } = hit;
        let plan = self.plans.get(event.0 as usize);
        let Some(role) = plan.and_then(|plan| plan.role.as_ref()) else {
            return Ok(());
        };
        if recorded == Recorded::GivenUp {
            self.calling.calls.give_up(event.0);
            return Ok(());
        }
        let value = |place: Option<usize>| match place {
            Some(place) => fields.value(place),
            None => Value::Null,
        };
        let key = match (role.key, value(role.key)) {
            (None, _) => role.number,
            (Some(_), Value::UInt(key)) => key,
            (Some(_), Value::Int(key)) => key as u64,
            (Some(_), Value::Bytes(text)) => key_of_text(text, role.class == PROBE),
            // Not recorded: the call is unknown.
            (Some(_), _) => return Ok(()),
        };
        let pair = Pair {
            class: role.class,
            key,
        };
        let retval = match value(role.retval) {
            Value::Int(value) => Some(value),
            Value::UInt(value) => Some(value as i64),
            _ => None,
        };
        let fetched = args::fetched(&role.args, fields);
        let is_declared = role.class == DECLARED;
        let context = match is_declared {
            true => fields.context().or(Some(role.context)),
            false => Some(role.context),
        };
        let module = match role.module.as_bytes() {
            b"" => None,
            module => Some(self.calling.calls.texts.intern(module)),
        };
        let (mut edge, is_probe) = (role.edge, role.class == PROBE);
        let is_proven = role.is_proven || is_probe || is_declared;
        if let NameOf::Marker(place) = role.name {
            let Value::Bytes(text) = fields.value(place) else {
                return Ok(());
            };
            match pairs::edge_of_marker(text) {
                Some((found, _)) => edge = found,
                None => return Ok(()),
            }
        }
        if let Some(place) = role.buffer {
            let buffer = match fields.value(place) {
                Value::Bytes(name) => Some(name),
                _ => None,
            };
            let lane = Lane::of(head.tid(), head.cpu());
            let calls = &mut self.calling.calls;
            if !calls.is_used(lane, pair, buffer, edge == Edge::Enter) {
                // Exits are recorded nevertheless.
                if edge == Edge::Leave && !is_proven {
                    self.prove(event, pair.class);
                }
                return Ok(());
            }
        }
        let is_provisional = recorded == Recorded::Perhaps;
        let system_call = role.system_call;
        let number = match value(role.number_of_call) {
            Value::Int(number) => Some(number as u64),
            Value::UInt(number) => Some(number),
            _ => None,
        };
        let function = self.function_of(event, fields)?;
        match edge {
            Edge::Enter => self.calling.calls.enter(Entry {
                head,
                function,
                module,
                context,
                extra: Extra::of(Box::default(), fetched),
                pair: Some(pair),
                event: event.0,
                is_provisional,
                system_call,
                number,
                ..Entry::default()
            }),
            Edge::Leave => {
                if !is_proven {
                    self.prove(event, pair.class);
                }
                let ended = self.calling.calls.ended;
                let entered_by = self.calling.calls.leave(Exit {
                    head,
                    function,
                    module,
                    context,
                    retval,
                    fetched,
                    pair: Some(pair),
                    system_call,
                    number,
                    ..Exit::default()
                });
                if self.calling.calls.ended > ended {
                    self.selected.call_ended();
                }
                // Entries of that probe are now known to have exits.
                let plan = entered_by.and_then(|event| self.plans.get_mut(event as usize));
                if let (true, Some(role)) = (is_probe, plan.and_then(|plan| plan.role.as_mut())) {
                    role.is_proven = true;
                }
            }
        }
        self.write_calls()
    }

    /// Handles the first exit of a class: calls open by now have exits, too.
    #[cold]
    fn prove(&mut self, event: EventId, class: u32) {
        let mut dropped = self.calling.calls.prove(class);
        let roles = self.plans.iter_mut().flat_map(|plan| plan.role.as_mut());
        for role in roles.filter(|role| role.class == class && role.edge == Edge::Enter) {
            // Entries beyond this number were not kept.
            dropped += u64::from(role.hits.saturating_sub(EARLY_ENTRIES));
            role.hits = 0;
        }
        if dropped > 0 {
            self.problem(dropped, UNPROVEN);
        }
        let plan = self.plans.get_mut(event.0 as usize);
        if let Some(role) = plan.and_then(|plan| plan.role.as_mut()) {
            role.is_proven = true;
        }
    }

    /// The name of the call that a sample is an edge of.
    fn function_of(&mut self, event: EventId, fields: Fields<'_>) -> Result<Option<TextId>, Error> {
        let Normalizer {
            plans,
            calling: Calling { calls, .. },
            trees,
            ..
        } = self;
        let architecture = trees.unwinding.architecture.as_deref();
        let Some((plan, role)) = plans
            .get(event.0 as usize)
            .and_then(|plan| Some((plan, plan.role.as_ref()?)))
        else {
            return Ok(None);
        };
        let texts = &mut calls.texts;
        let place = match &role.name {
            NameOf::Unknown => return Ok(None),
            NameOf::Marker(place) => {
                let name = match fields.value(*place) {
                    Value::Bytes(text) => pairs::edge_of_marker(text).map(|found| found.1),
                    _ => None,
                };
                // The end of a section does not name it.
                let name = name.filter(|name| !name.is_empty());
                return Ok(name.map(|name| texts.intern(name)));
            }
            NameOf::Fixed(name) => {
                let generation = calls.generation;
                let known = role.ids.fixed.filter(|known| known.0 == generation);
                let id = known.map_or_else(|| texts.intern(name.as_bytes()), |known| known.1);
                let plan = plans.get_mut(event.0 as usize);
                if let Some(role) = plan.and_then(|plan| plan.role.as_mut()) {
                    role.ids.fixed = Some((generation, id));
                }
                return Ok(Some(id));
            }
            NameOf::Text(prefix, place) => {
                let text = match fields.value(*place) {
                    Value::Bytes(text) => text.to_vec(),
                    Value::Int(number) => number.to_string().into_bytes(),
                    Value::UInt(number) => number.to_string().into_bytes(),
                    _ => return Ok(None),
                };
                let name = [prefix.as_bytes(), &text].concat();
                return Ok(Some(texts.intern(&name)));
            }
            NameOf::SystemCall(place) => {
                let Some(number) = system_calls::number(fields.value(*place)) else {
                    return Ok(None);
                };
                // Few distinct numbers, often repeated.
                let generation = calls.generation;
                let place = usize::try_from(number)
                    .ok()
                    .filter(|&place| place < NUMBERS);
                let known = place.and_then(|place| role.ids.numbers.get(place).copied());
                if let Some(Some((of, name))) = known
                    && of == generation
                {
                    return Ok(Some(name));
                }
                let key = (event.0, number);
                let known = calls.numbered.get(&key).copied();
                let name = known.unwrap_or_else(|| {
                    let name = system_calls::name(number, architecture);
                    let name = texts.intern(name.as_bytes());
                    if calls.numbered.len() < NUMBERED {
                        calls.numbered.insert(key, name);
                    }
                    name
                });
                let plan = plans.get_mut(event.0 as usize);
                if let (Some(role), Some(place)) = (plan.and_then(|plan| plan.role.as_mut()), place)
                {
                    role.set_number(place, (generation, name));
                }
                return Ok(Some(name));
            }
            NameOf::Softirq(place) => {
                let number = match fields.value(*place) {
                    Value::UInt(number) => number,
                    Value::Int(number) => number as u64,
                    _ => return Ok(None),
                };
                let known = usize::try_from(number).ok();
                let name = match known.and_then(|number| SOFTIRQS.get(number)) {
                    Some(name) => format!("softirq:{name}"),
                    None => format!("softirq:{number}"),
                };
                return Ok(Some(texts.intern(name.as_bytes())));
            }
            NameOf::Function(place) => *place,
        };
        let probe = (role.class == PROBE).then(|| pairs::name_of_probe(plan.name()).to_owned());
        let address = match fields.value(place) {
            Value::Bytes(text) => return Ok(Some(texts.intern(symbol_of(text)))),
            Value::UInt(address) => Some(address),
            Value::Int(address) => Some(address as u64),
            _ => None,
        };
        // User functions are named by the event: the mapping of their file is not looked up here.
        let space = Space::Kernel;
        let named = match address.filter(|address| address >> 63 == 1) {
            Some(address) => {
                self.name(Function::Address { space, address }, None)?
                    .function
            }
            None => None,
        };
        let texts = &mut self.calling.calls.texts;
        let is_named = named.is_some_and(|name| !texts.get(name).starts_with(b"0x"));
        Ok(match probe {
            Some(probe) if !is_named => Some(texts.intern(probe.as_bytes())),
            _ => named,
        })
    }

    fn head(&mut self, common: &Common<'_>) -> Head {
        let tid = self.calling.calls.thread_of(common).filter(|&tid| tid >= 0);
        let mut pid = common.pid.filter(|&pid| pid >= 0);
        let mut comm = None;
        if let Some(tid) = tid {
            let thread = self.life.threads.at(tid, pid);
            comm = match common.comm {
                Some(comm) => Some(self.life.threads.seen_as(thread, comm)),
                None => self.life.threads.describe(thread).1,
            };
            pid = pid.or(self.life.threads.describe(thread).0);
        }
        let Normalizer {
            life,
            trees: Trees { frames, stacks, .. },
            ..
        } = self;
        Head::new(common.time, Id::of_cpu(common.cpu), pid.into(), tid.into())
            .named(comm)
            .on(
                stack_of(common.kernel_stack, pid, life, stacks, frames),
                stack_of(common.user_stack, pid, life, stacks, frames),
            )
    }

    fn name(
        &mut self,
        function: Function<'_>,
        pid: Option<i32>,
    ) -> Result<super::names::Named, Error> {
        let Life {
            mappings, modules, ..
        } = &mut self.life;
        self.calling.names.of(
            function,
            (mappings.of(pid, Space::User), modules),
            &mut self.calling.calls.texts,
            &self.naming.input,
            &self.naming.kernel,
            &self.naming.options,
        )
    }

    #[inline]
    fn write_calls(&mut self) -> Result<(), Error> {
        if self.calling.calls.is_due() {
            self.write_calls_if(false)?;
        }
        self.make_room()
    }

    /// Writes finished calls, or all.
    pub(crate) fn write_calls_if(&mut self, all: bool) -> Result<(), Error> {
        let (threads, selected) = (&self.life.threads, &mut self.selected);
        self.calling
            .calls
            .write(threads, self.output, selected, all)
    }
}

impl Calls {
    /// Returns the thread of an edge: as recorded, or from the last switch on its CPU.
    fn thread_of(&self, common: &Common<'_>) -> Option<i32> {
        match (common.tid, common.cpu) {
            (Some(tid), _) => Some(tid),
            (None, Some(cpu)) => self.running.get(&cpu).copied(),
            (None, None) => None,
        }
    }
}

/// "vfs_read+0x0/0x2b0" → "vfs_read".
fn symbol_of(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == b'+');
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// A key for a string that both edges have. For a location in a function ("vfs_read+0x4/0x2b0"), differences of keys
/// are bytes, as between addresses.
fn key_of_text(text: &[u8], is_place: bool) -> u64 {
    let hash = |text: &[u8]| foldhash(text) & !0xffff_ffff;
    if !is_place {
        return hash(text);
    }
    let symbol = symbol_of(text);
    let offset = text.get(symbol.len()..).unwrap_or_default();
    let digits = offset.strip_prefix(b"+0x").unwrap_or_default();
    let end = digits.iter().position(|byte| !byte.is_ascii_hexdigit());
    let digits = digits
        .get(..end.unwrap_or(digits.len()))
        .unwrap_or_default();
    let offset = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    hash(symbol) | u64::from(offset.unwrap_or(0))
}

fn foldhash(text: &[u8]) -> u64 {
    // The hash must be stable only within one run of the program.
    static STATE: std::sync::LazyLock<hashbrown::DefaultHashBuilder> =
        std::sync::LazyLock::new(hashbrown::DefaultHashBuilder::default);
    STATE.hash_one(text)
}
