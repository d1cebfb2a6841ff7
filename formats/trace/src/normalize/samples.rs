//! A sample becomes a row: thread, stacks, values.

use perfquet_events::Error;
use perfquet_events::event::{Fields, Hit, Id, Sample, Space, Stack, Stacks as Chains};

use super::FRESH_STACKS;
use super::calls::{EdgeHit, Recorded};
use super::frames::Frames;
use super::heads::Head;
use super::life::Life;
use super::mappings::space_of_ip;
use super::rows::{LastIp, Plan};
use super::selected::Selected;
use super::stacks::{Chain, StackId, Stacks};
use super::{Calling, Normalizer, Trees};
use crate::tables;

/// The kernel's and the user's stack of a sample.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    kernel: Option<StackId>,
    user: Option<StackId>,
}

impl Normalizer<'_> {
    /// Handles one hit or sample.
    #[inline]
    pub(super) fn sample(&mut self, sample: &Sample<'_>) -> Result<(), Error> {
        if !self.window.holds(sample.time) {
            return Ok(());
        }
        if !self.naming.generated.is_empty()
            && let Some(time) = sample.time
        {
            self.naming.generated.advance(time, &mut self.life);
        }
        let Normalizer {
            life,
            trees:
                Trees {
                    frames,
                    stacks,
                    unwinding,
                    ..
                },
            plans,
            reads,
            output,
            selected,
            age,
            facts,
            calling: Calling { pairs, .. },
            ..
        } = self;
        age.see(sample.time);
        let Some(plan) = plans.get_mut(sample.event.0 as usize) else {
            self.problem(1, "a sample of an undeclared event");
            return Ok(());
        };
        let has_row = plan.purpose().has_rows();
        if !has_row && is_trigger(selected, plan, sample, life)
            || plan.is_asked_for() && !selected.holds(sample.time)
        {
            return Ok(());
        }
        if !has_row {
            plan.count();
        }
        // The kernel writes -1 for a thread that has already exited.
        let tid = sample.tid.filter(|&tid| tid >= 0);
        let mut pid = sample.pid.filter(|&pid| pid >= 0);
        let mut comm = None;
        if let Some(tid) = tid {
            let thread = life.threads.at(tid, pid);
            if let Some(cgroup) = sample.cgroup {
                life.threads.is_in_cgroup(thread, cgroup);
            }
            comm = match sample.comm {
                Some(comm) => Some(life.threads.seen_as(thread, comm)),
                None => {
                    let (known_pid, comm) = life.threads.describe(thread);
                    pid = pid.or(known_pid);
                    comm
                }
            };
        }
        plan.see_code(sample.fields, life, frames);
        let mut pair = stacks_of(sample, pid, plan, life, stacks, frames);
        if let (false, Some(pid), Some(registers)) =
            (sample.user_memory.is_empty(), pid, &sample.user_registers)
        {
            let Life {
                mappings, modules, ..
            } = life;
            let origin = || age.origin(&facts.facts);
            let unwound = unwinding.unwind(sample, registers, pid, mappings, modules, origin);
            if let Some((addresses, is_cut)) = unwound {
                let stack = Stack::Addresses {
                    space: Space::User,
                    addresses,
                    is_cut,
                    is_unwound: true,
                };
                pair.user = stack_of(stack, Some(pid), life, stacks, frames);
            }
        }
        let common = tables::common::Row {
            time: sample.time,
            cpu: sample.cpu.map(|cpu| cpu as i32),
            pid,
            tid,
            comm: match comm {
                Some(comm) => Some(life.threads.comm_bytes(comm)),
                None => sample.comm,
            },
            kernel_stack: pair.kernel.map(|stack| stack as i32),
            user_stack: pair.user.map(|stack| stack as i32),
        };
        let ids = (pid, tid, comm);
        let edge = plan.role.as_mut().map(|role| pairs.is_recorded(role));
        let mut homeless = 0;
        if !has_row || plan.is_asked_for() && !selected.holds_hit(sample.fields) {
            // The hit has no row; it may be an edge of a call.
        } else if sample.read.is_empty() {
            let period = sample.period.map(|period| period as i64);
            homeless += u64::from(!push(plan, output, &common, sample, period)?);
        } else {
            let thread = tid.filter(|_| plan.is_inherited());
            for read in sample.read {
                let Some(period) = reads.growth(read, thread) else {
                    continue;
                };
                let event = read.event.unwrap_or(sample.event);
                if let Some(plan) = plans.get_mut(event.0 as usize) {
                    homeless += u64::from(!push(plan, output, &common, sample, Some(period))?);
                }
            }
        }
        if homeless > 0 {
            self.problem(homeless, "an event in more forms than tables are possible");
        }
        if let Some(recorded) = edge
            && recorded != Recorded::No
        {
            let (pid, tid, comm) = ids;
            let cpu = Id::of_cpu(sample.cpu);
            let head = Head::new(sample.time, cpu, pid.into(), tid.into())
                .named(comm)
                .on(pair.kernel, pair.user);
            let hit = EdgeHit {
                event: sample.event,
                head,
                fields: sample.fields,
            };
            self.pair(hit, recorded)?;
        }
        self.make_room()
    }

    /// Handles a hit or sample without unusual members that no filter excludes. Returns false if it needs the general path.
    #[inline]
    pub(super) fn usual(&mut self, hit: &Hit<'_>) -> Result<bool, Error> {
        let Normalizer {
            life,
            trees: Trees { frames, stacks, .. },
            plans,
            output,
            age,
            calling: Calling { pairs, .. },
            ..
        } = self;
        let Some(plan) = plans.get_mut(hit.event.0 as usize) else {
            return Ok(false);
        };
        if !plan.is_usual(output, hit)? {
            return Ok(false);
        }
        age.see(Some(hit.time));
        let (mut pid, tid) = (hit.pid, hit.tid);
        let mut comm = None;
        if let Some(number) = tid.known() {
            let who = life.threads.who(number, pid);
            (pid, comm) = (who.0, who.1);
        }
        let (pair, may_be_new) = match (&hit.stacks, hit.ip) {
            (Some(chains), _) if !is_without(chains) => {
                let pid = pid.known();
                let kernel = stack_of(chains.kernel, pid, life, stacks, frames);
                let user = stack_of(chains.user, pid, life, stacks, frames);
                (Pair { kernel, user }, true)
            }
            (_, Some(ip)) => match plan.last_ip {
                // Its map is that of all processes.
                Some(last) if last.is_kernels(ip, hit.space, stacks.epoch(), &life.mappings) => {
                    let kernel = Some(last.stack);
                    (Pair { kernel, user: None }, false)
                }
                _ => {
                    let pid = pid.known();
                    let pair = stack_of_ip(ip, hit.space, pid, plan, life, stacks, frames);
                    (pair, true)
                }
            },
            _ => (Pair::default(), false),
        };
        let head = Head::new(Some(hit.time), hit.cpu, pid, tid)
            .named(comm)
            .on(pair.kernel, pair.user);
        let edge = plan.role.as_mut().map(|role| pairs.is_recorded(role));
        let has_code = plan.see_code(hit.payload.map_or(Fields::None, Fields::Raw), life, frames);
        plan.push_usual(output, life.threads.comms(), head, hit)?;
        if let Some(recorded) = edge
            && recorded != Recorded::No
        {
            let edge = EdgeHit {
                event: hit.event,
                head,
                fields: hit.payload.map_or(Fields::None, Fields::Raw),
            };
            self.pair(edge, recorded)?;
        }
        if may_be_new || has_code {
            self.make_room()?;
        }
        Ok(true)
    }

    /// Writes stacks and frames if too many are waiting.
    #[inline]
    pub(super) fn make_room(&mut self) -> Result<(), Error> {
        if self.trees.stacks.fresh_count() >= FRESH_STACKS {
            self.write_stacks()?;
        }
        if self.trees.frames.is_full() {
            self.write_stacks()?;
            self.write_frames()?;
        }
        Ok(())
    }
}

/// Whether no stack was recorded.
#[inline]
fn is_without(chains: &Chains<'_>) -> bool {
    matches!((chains.kernel, chains.user), (Stack::None, Stack::None))
}

/// Whether a hit is that of a trigger, which needs no further handling.
#[cold]
fn is_trigger(selected: &mut Selected, plan: &Plan, sample: &Sample<'_>, life: &mut Life) -> bool {
    let who = match sample.tid.filter(|&tid| tid >= 0) {
        Some(tid) => {
            let pid = sample.pid.filter(|&pid| pid >= 0);
            let thread = life.threads.at(tid, pid);
            let comm = life.threads.describe(thread).1;
            let comm = comm.map(|comm| life.threads.comm_bytes(comm));
            let comm = String::from_utf8_lossy(comm.unwrap_or_default());
            format!(" by {comm} {tid}")
        }
        None => String::new(),
    };
    selected.trigger(plan.purpose(), sample.time, &who)
}

#[inline]
fn push(
    plan: &mut Plan,
    output: &mut super::Output,
    common: &tables::common::Row<'_>,
    sample: &Sample<'_>,
    period: Option<i64>,
) -> Result<bool, Error> {
    if plan.is_sampled() {
        plan.push_sample(output, common, sample, period)?;
        Ok(true)
    } else {
        plan.push_hit(output, common, sample, period)
    }
}

#[inline]
fn stacks_of(
    sample: &Sample<'_>,
    pid: Option<i32>,
    plan: &mut Plan,
    life: &Life,
    stacks: &mut Stacks,
    frames: &mut Frames,
) -> Pair {
    match (sample.kernel_stack, sample.user_stack) {
        (Stack::None, Stack::None) => match sample.ip {
            Some(ip) => stack_of_ip(ip, sample.space, pid, plan, life, stacks, frames),
            None => Pair::default(),
        },
        (kernel, user) => Pair {
            kernel: stack_of(kernel, pid, life, stacks, frames),
            user: stack_of(user, pid, life, stacks, frames),
        },
    }
}

#[inline]
pub(super) fn stack_of(
    stack: Stack<'_>,
    pid: Option<i32>,
    life: &Life,
    stacks: &mut Stacks,
    frames: &mut Frames,
) -> Option<StackId> {
    match stack {
        Stack::None => None,
        Stack::Id(id) => stacks.defined(id),
        Stack::Addresses {
            space,
            addresses,
            is_cut,
            is_unwound,
        } => {
            let chain = Chain {
                addresses,
                space,
                map: life.mappings.of(pid, space),
                modules: &life.modules,
                is_cut,
                is_unwound,
            };
            stacks.of(chain, frames)
        }
        Stack::Named(chain) => stacks.of_named(chain, frames),
    }
}

/// Without a chain, the IP is a stack of one frame.
#[inline]
fn stack_of_ip(
    ip: u64,
    space: Space,
    pid: Option<i32>,
    plan: &mut Plan,
    life: &Life,
    stacks: &mut Stacks,
    frames: &mut Frames,
) -> Pair {
    let space = space_of_ip(ip, space);
    let map = life.mappings.of(pid, space);
    let epoch = stacks.epoch();
    let last = plan
        .last_ip
        .filter(|last| last.ip == ip && last.generation == map.generation && last.epoch == epoch);
    let stack = match last {
        Some(last) => Some(last.stack),
        None => {
            let chain = Chain {
                addresses: &[ip],
                space,
                map,
                modules: &life.modules,
                is_cut: false,
                is_unwound: false,
            };
            let stack = stacks.of(chain, frames);
            plan.last_ip = stack.map(|stack| LastIp {
                ip,
                space,
                generation: map.generation,
                epoch: stacks.epoch(),
                stack,
            });
            stack
        }
    };
    match space {
        Space::Kernel | Space::GuestKernel | Space::Hypervisor => Pair {
            kernel: stack,
            user: None,
        },
        Space::User | Space::GuestUser | Space::Unknown => Pair {
            kernel: None,
            user: stack,
        },
    }
}
