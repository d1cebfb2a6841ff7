//! The edges that readers tell, and those that pairs of events are, looked up and handed to [`Calls`].

use std::hash::BuildHasher;

use super::super::samples::stack_of;
use super::super::{Normalizer, stacks::StackId};
use super::pairs::{self, Edge, NameOf, PROBE, SOFTIRQS};
use super::{Calls, Entry, Exit, Pair, Place};
use crate::Error;
use crate::event::{Call, Common, Enter, Function, Leave, Sample, Space, Switch};
use crate::event_format::Decoded;

/// What [`Normalizer::sample`] found out about a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    pub(crate) pid: Option<i32>,
    pub(crate) tid: Option<i32>,
    pub(crate) kernel_stack: Option<StackId>,
    pub(crate) user_stack: Option<StackId>,
}

impl Normalizer<'_> {
    /// A function was entered.
    pub(crate) fn enter(&mut self, enter: &Enter<'_>) -> Result<(), Error> {
        if !self.window.holds(enter.common.time) {
            return Ok(());
        }
        let function = self.name(enter.function)?;
        let caller = self.name(enter.caller)?;
        let place = self.place(&enter.common);
        let texts = &mut self.calls.texts;
        let entry = Entry {
            place,
            function: function.function,
            module: function.module,
            caller: caller.function,
            depth: enter.depth,
            context: enter.context,
            args: enter.args.iter().map(|arg| texts.intern(arg)).collect(),
            ..Entry::default()
        };
        self.calls.enter(entry);
        self.write_calls()
    }

    /// A function was left.
    pub(crate) fn leave(&mut self, leave: &Leave<'_>) -> Result<(), Error> {
        if leave.common.time.is_some() && !self.window.holds(leave.common.time) {
            return Ok(());
        }
        let function = self.name(leave.function)?;
        let place = self.place(&leave.common);
        self.calls.leave(Exit {
            place,
            function: function.function,
            module: function.module,
            depth: leave.depth,
            context: leave.context,
            duration: leave.duration,
            retval: leave.retval,
            pair: None,
        });
        self.write_calls()
    }

    /// A whole call.
    pub(crate) fn call(&mut self, call: &Call<'_>) -> Result<(), Error> {
        if !self.window.holds(call.common.time) {
            return Ok(());
        }
        let function = self.name(call.function)?;
        let caller = self.name(call.caller)?;
        let place = self.place(&call.common);
        let texts = &mut self.calls.texts;
        let entry = Entry {
            place,
            function: function.function,
            module: function.module,
            caller: caller.function,
            depth: call.depth,
            context: call.context,
            args: call.args.iter().map(|arg| texts.intern(arg)).collect(),
            ..Entry::default()
        };
        let exit = Exit {
            duration: call.duration,
            retval: call.retval,
            ..Exit::default()
        };
        self.calls.call(entry, exit, call.may_nest);
        self.write_calls()
    }

    /// Another thread runs on a CPU.
    pub(crate) fn switch(&mut self, switch: &Switch<'_>) {
        for (tid, comm) in [
            (switch.previous_tid, switch.previous_comm),
            (switch.next_tid, switch.next_comm),
        ] {
            if !comm.is_empty() {
                let thread = self.life.threads.at(tid, None);
                self.life.threads.seen_as(thread, comm);
            }
        }
        let comm = switch.previous_comm;
        let comm = (!comm.is_empty()).then(|| self.calls.texts.intern(comm));
        self.calls
            .switch(switch.cpu, switch.previous_tid, comm, switch.next_tid);
    }

    /// A sample of an event that is one edge of a pair.
    pub(crate) fn pair(&mut self, sample: &Sample<'_>, hit: &Hit) -> Result<(), Error> {
        let event = sample.event.0 as usize;
        let Some(plan) = self.plans.get(event) else {
            return Ok(());
        };
        let Some(role) = &plan.role else {
            return Ok(());
        };
        let value = |place: Option<usize>| match place {
            Some(place) => plan.value(sample, place),
            None => Decoded::Null,
        };
        let key = match (role.key, value(role.key)) {
            (None, _) => 0,
            (Some(_), Decoded::UInt(key)) => key,
            (Some(_), Decoded::Int(key)) => key as u64,
            (Some(_), Decoded::Bytes(text)) => key_of_text(text, role.class == PROBE),
            // Not recorded: nothing says which call it is.
            (Some(_), _) => return Ok(()),
        };
        let pair = Pair {
            class: role.class,
            key,
        };
        let retval = match value(role.retval) {
            Decoded::Int(value) => Some(value),
            Decoded::UInt(value) => Some(value as i64),
            _ => None,
        };
        let mut name = Vec::new();
        let mut address = None;
        match &role.name {
            NameOf::Fixed(fixed) => name.extend_from_slice(fixed.as_bytes()),
            NameOf::Text(prefix, place) => match plan.value(sample, *place) {
                Decoded::Bytes(text) => name.extend([prefix.as_bytes(), text].concat()),
                Decoded::Int(number) => name.extend(format!("{prefix}{number}").into_bytes()),
                Decoded::UInt(number) => name.extend(format!("{prefix}{number}").into_bytes()),
                _ => {}
            },
            NameOf::Softirq(_) => {
                let softirq = usize::try_from(key).ok().and_then(|key| SOFTIRQS.get(key));
                let softirq = softirq.map_or_else(|| key.to_string(), |name| (*name).to_owned());
                name.extend(format!("softirq:{softirq}").into_bytes());
            }
            NameOf::Function(place) => match plan.value(sample, *place) {
                Decoded::Bytes(text) => name.extend_from_slice(symbol_of(text)),
                Decoded::UInt(value) => address = Some(value),
                Decoded::Int(value) => address = Some(value as u64),
                _ => {}
            },
            NameOf::Unknown => {}
        }
        let is_probe = role.class == PROBE;
        let (edge, context) = (role.edge, role.context);
        let is_provisional = !self.pairs.is_complete(role);
        let probe_name = is_probe.then(|| pairs::name_of_probe(plan.name()).to_owned());
        let function = match address {
            Some(address) if address >> 63 == 1 => {
                let space = Space::Kernel;
                let named = self.name(Function::Address { space, address })?;
                let unnamed = format!("{address:#x}");
                match (named.function, probe_name) {
                    (Some(id), Some(name)) if self.calls.texts.get(id) == unnamed.as_bytes() => {
                        Some(self.calls.texts.intern(name.as_bytes()))
                    }
                    (function, _) => function,
                }
            }
            Some(_) | None => match (probe_name, name.is_empty()) {
                (Some(probe), true) => Some(self.calls.texts.intern(probe.as_bytes())),
                (_, false) => Some(self.calls.texts.intern(&name)),
                (None, true) => None,
            },
        };
        let comm = match (sample.comm, hit.tid) {
            (Some(comm), _) => Some(self.calls.texts.intern(comm)),
            (None, Some(tid)) => self.comm_of(tid),
            (None, None) => None,
        };
        let place = Place {
            time: sample.time,
            cpu: sample.cpu,
            pid: hit.pid,
            tid: hit.tid,
            comm,
            kernel_stack: hit.kernel_stack,
            user_stack: hit.user_stack,
        };
        match edge {
            Edge::Enter => self.calls.enter(Entry {
                place,
                function,
                context: Some(context),
                pair: Some(pair),
                event: sample.event.0,
                is_provisional,
                ..Entry::default()
            }),
            Edge::Leave => {
                let entered_by = self.calls.leave(Exit {
                    place,
                    function,
                    context: Some(context),
                    retval,
                    pair: Some(pair),
                    ..Exit::default()
                });
                // From now on entries of that probe are known to be such.
                let plan = entered_by.and_then(|event| self.plans.get_mut(event as usize));
                if let (true, Some(role)) = (is_probe, plan.and_then(|plan| plan.role.as_mut())) {
                    role.is_proven = true;
                }
            }
        }
        self.write_calls()
    }

    fn place(&mut self, common: &Common<'_>) -> Place {
        let tid = self.calls.thread_of(common).filter(|&tid| tid >= 0);
        let mut pid = common.pid.filter(|&pid| pid >= 0);
        let mut comm = common.comm.map(|comm| self.calls.texts.intern(comm));
        if let Some(tid) = tid {
            let thread = self.life.threads.at(tid, pid);
            match common.comm {
                Some(comm) => {
                    self.life.threads.seen_as(thread, comm);
                }
                None => comm = self.comm_of(tid),
            }
            pid = pid.or(self.life.threads.describe(thread).0);
        }
        let Normalizer {
            life,
            frames,
            stacks,
            ..
        } = self;
        Place {
            time: common.time,
            cpu: common.cpu,
            pid,
            tid,
            comm,
            kernel_stack: stack_of(common.kernel_stack, pid, life, stacks, frames),
            user_stack: stack_of(common.user_stack, pid, life, stacks, frames),
        }
    }

    /// The name of a thread, among the texts of the calls.
    fn comm_of(&mut self, tid: i32) -> Option<super::TextId> {
        let thread = self.life.threads.at(tid, None);
        let comm = self.life.threads.describe(thread).1?;
        Some(self.calls.texts.intern(self.life.threads.comm_bytes(comm)))
    }

    fn name(&mut self, function: Function<'_>) -> Result<super::names::Named, Error> {
        self.call_names.of(
            function,
            &mut self.calls.texts,
            &self.told,
            &self.kernel,
            &self.symbols,
        )
    }

    #[inline]
    fn write_calls(&mut self) -> Result<(), Error> {
        if self.calls.is_due() {
            self.calls.write(self.output, false)?;
        }
        self.make_room()
    }
}

impl Calls {
    /// The thread that an edge is of: as told, or as the last switch on its CPU said.
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

/// A number for a text that both edges have. Of a place in a function ("vfs_read+0x4/0x2b0") so that
/// differences are bytes, as between addresses.
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
    // The same within one run of the program is enough.
    static STATE: std::sync::LazyLock<hashbrown::DefaultHashBuilder> =
        std::sync::LazyLock::new(hashbrown::DefaultHashBuilder::default);
    STATE.hash_one(text)
}
