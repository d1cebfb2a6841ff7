//! What needs memory: turns the events of an input into the rows of a trace directory.
//!
//! ```text
//! Event::Comm, Fork, Exit ─► threads ──┐ who?
//! Event::Mapping, BuildId ─► mappings ─┤ where?                    ┌─► samples, events/SYSTEM/NAME
//! Event::Sample ───────────────────────┴─► stacks, frames ─► rows ─┼─► threads, mappings, stacks
//! Event::Enter, Leave, Call, pairs of samples ─► calls ────────────┤
//! Event::Loss, Problem, Fact ─► losses, problems, manifest         └─► frames, named at the end
//! ```
//! [`Normalizer`] is the [`Sink`] of one input; [`Output`] outlives it. What it keeps is bounded: caches and
//! trees have limits, and begin anew when these are reached.

mod aggregates;
mod calls;
mod columns;
mod facts;
mod frames;
mod life;
mod mappings;
mod modules;
mod names;
mod output;
mod problems;
mod reads;
mod rows;
mod samples;
mod stacks;
#[cfg(test)]
mod tests;
pub(crate) mod texts;
mod threads;
mod unwinding;
mod window;

pub use output::Counts;
pub(crate) use output::Output;
pub use window::TimeRange;

use crate::Error;
use crate::event::{Event, EventType, Fact, Loss, Place, Problem, Progress, Sink};
use crate::symbols;

use calls::{Calls, Pairs};
use frames::Frames;
use life::Life;
use names::Told;
use reads::Reads;
use rows::Plan;
use stacks::Stacks;
use unwinding::Unwinding;
use window::Window;

/// Rows of `stacks` that may wait to be written.
const FRESH_STACKS: usize = 4096;

/// The sink of one input.
pub(crate) struct Normalizer<'o> {
    output: &'o mut Output,
    /// Name of the input.
    source: String,
    /// What to do with the progress that the reader tells.
    progress: &'o mut (dyn FnMut(Progress) + Send),
    symbols: symbols::Options,
    window: Window,
    life: Life,
    frames: Frames,
    stacks: Stacks,
    plans: Vec<Plan>,
    reads: Reads,
    unwinding: Unwinding,
    calls: Calls,
    pairs: Pairs,
    call_names: calls::Names,
    told: Told,
    kernel: symbols::KernelFacts,
    facts: facts::Told,
}

impl<'o> Normalizer<'o> {
    /// The sink of the input named `source`.
    pub(crate) fn new(
        output: &'o mut Output,
        source: &str,
        symbols: symbols::Options,
        time: Option<TimeRange>,
        progress: &'o mut (dyn FnMut(Progress) + Send),
    ) -> Normalizer<'o> {
        let mut frames = Frames::default();
        frames.restart(output.next_frame);
        let stacks = Stacks::starting_at(output.next_stack);
        let calls = Calls::starting_at(output.next_call);
        Normalizer {
            output,
            source: source.to_owned(),
            progress,
            unwinding: Unwinding::new(symbols.clone()),
            symbols,
            window: Window::new(time),
            life: Life::default(),
            frames,
            stacks,
            plans: Vec::new(),
            reads: Reads::default(),
            calls,
            pairs: Pairs::default(),
            call_names: calls::Names::default(),
            told: Told::default(),
            kernel: symbols::KernelFacts::default(),
            facts: facts::Told::default(),
        }
    }

    /// The input has ended: writes what was kept.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.calls.write(&self.life.threads, self.output, true)?;
        self.output.next_call = self.calls.next_id();
        self.life.write_all(self.output)?;
        self.write_stacks()?;
        self.write_frames()?;
        self.output.unwound.extend(self.unwinding.counts());
        self.unwinding.log();
        self.output.next_stack = self.stacks.next_id();
        let left_out = self.window.left_out();
        if left_out > 0 {
            self.loss(&Loss {
                time: None,
                cpu: None,
                event: None,
                count: Some(left_out),
                in_all: None,
                reason: "filtered: outside the time asked for",
            })?;
            // Nobody lost them.
            self.output.counts.left_out += left_out;
            self.output.counts.losses -= 1;
            self.output.counts.lost -= left_out;
        }
        let given_up = self.life.mappings.given_up();
        if given_up > 0 {
            self.problem(
                given_up,
                "more mappings than can be kept: frames of some processes have addresses only",
            );
        }
        let given_up = self.calls.given_up();
        if given_up > 0 {
            self.problem(
                given_up,
                "more open calls than can be kept: these have no exit",
            );
        }
        for plan in std::mem::take(&mut self.plans) {
            plan.finish(self.output)?;
        }
        if let Some((name, address)) = &self.kernel.reference {
            self.facts.tell(Fact::Other {
                name: crate::import::KERNEL_REFERENCE,
                value: &format!("{name} {address:#x}"),
            });
        }
        self.facts.store(&mut self.output.facts);
        Ok(())
    }

    fn declare(&mut self, event: &EventType) {
        let role = self.pairs.role_of(event);
        self.plans.push(Plan::new(event, role));
    }

    fn loss(&mut self, loss: &Loss<'_>) -> Result<(), Error> {
        self.calls.loss();
        let plan = loss
            .event
            .and_then(|event| self.plans.get_mut(event.0 as usize));
        let name = plan.map(|plan| {
            plan.lost(loss.count, loss.in_all);
            plan.event_name()
        });
        if loss.count == Some(0) {
            return Ok(()); // nothing that was not told before
        }
        let table = self.output.fixed.losses;
        self.output.counts.losses += 1;
        self.output.counts.lost += loss.count.unwrap_or(0);
        crate::tables::losses::Row {
            time: loss.time,
            cpu: loss.cpu.and_then(|cpu| cpu.try_into().ok()),
            event: name.as_deref().map(str::as_bytes),
            count: loss.count.map(|count| count.try_into().unwrap_or(i64::MAX)),
            reason: loss.reason.as_bytes(),
        }
        .push(self.output.writer.rows(table));
        self.output.writer.end_row(table)
    }

    fn problem(&mut self, count: u64, message: &str) {
        let problem = Problem {
            place: Place::Whole,
            count,
            message,
        };
        self.output.problems.add(&self.source, &problem);
    }

    fn write_stacks(&mut self) -> Result<(), Error> {
        let (first, nodes) = self.stacks.take_fresh();
        let table = self.output.fixed.stacks;
        self.output.counts.stacks += nodes.len() as u64;
        for (stack, node) in (first..).zip(nodes) {
            crate::tables::stacks::Row {
                stack_id: stack as i32,
                parent_id: node.parent as i32,
                frame_id: node.frame as i32,
                depth: node.depth as i32,
            }
            .push(self.output.writer.rows(table));
            self.output.writer.end_row(table)?;
        }
        Ok(())
    }

    /// Names and writes the frames kept, which are then forgotten with the stacks over them.
    fn write_frames(&mut self) -> Result<(), Error> {
        let next = names::write(
            &self.frames,
            &mut self.life.modules,
            &self.told,
            &self.kernel,
            &self.symbols,
            self.output,
        )?;
        self.output.next_frame = next;
        self.frames.restart(next);
        self.stacks.restart();
        Ok(())
    }
}

impl Sink for Normalizer<'_> {
    #[inline]
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Sample(sample) => self.sample(sample),
            other => self.side_band(other),
        }
    }
}

impl Normalizer<'_> {
    /// Everything that comes seldom.
    fn side_band(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.kernel.note(&event);
        match event {
            Event::Sample(sample) => return self.sample(sample),
            Event::Fact(fact) => {
                self.facts.tell(fact);
                match fact {
                    Fact::KernelBuildId(id) => self.life.modules.kernel_build_id(id),
                    Fact::Architecture(name) => {
                        self.unwinding.architecture = Some(name.to_owned());
                    }
                    _ => {}
                }
            }
            Event::Type(event) => self.declare(event),
            Event::Comm(comm) => return self.life.comm(&comm, self.output),
            Event::Enter(enter) => return self.enter(enter),
            Event::Leave(leave) => return self.leave(leave),
            Event::Call(call) => return self.call(call),
            Event::Aggregate(aggregate) => return self.aggregate(aggregate),
            Event::Switch(switch) => self.switch(&switch),
            Event::Fork(fork) => {
                if fork.time.is_some() {
                    self.calls.reused(fork.tid);
                }
                return self.life.fork(&fork, self.output);
            }
            Event::Exit(exit) => return self.life.exit(&exit, self.output),
            Event::Mapping(mapping) => return self.life.map(&mapping, self.output),
            Event::BuildId(build_id) => self.life.modules.build_id(&build_id),
            Event::KernelSymbol(symbol) => self.life.kernel_symbol(&symbol),
            Event::Symbol(symbol) => self.told.add(&symbol),
            Event::Loss(loss) => return self.loss(&loss),
            Event::Problem(problem) => self.output.problems.add(&self.source, &problem),
            Event::Progress(progress) => (self.progress)(progress),
        }
        Ok(())
    }
}
