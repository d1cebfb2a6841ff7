//! The stateful part: turns the events of an input into the rows of a trace directory.
//!
//! ```text
//! Event::Comm, Fork, Exit ─► threads ──┐ who?
//! Event::Mapping, BuildId ─► mappings ─┤ where?                    ┌─► samples, events/SYSTEM/NAME
//! Event::Sample ───────────────────────┴─► stacks, frames ─► rows ─┼─► threads, mappings, stacks
//! Event::Enter, Leave, Call, pairs of samples ─► calls ────────────┤
//! Event::Loss, Problem, Fact ─► losses, problems, manifest         └─► frames, named at the end
//! ```
//! [`Normalizer`] is the [`Sink`] of one input; [`Output`] outlives it. Its state is bounded: caches and trees have
//! limits, and are reset when they reach them.

mod age;
mod aggregates;
mod calls;
mod columns;
mod counts;
mod event_tables;
pub(crate) mod facts;
mod fields;
mod fixed_tables;
mod frames;
mod generated;
mod heads;
mod hits;
mod kept_code;
mod kernel_texts;
mod life;
mod limits;
mod live;
mod mappings;
mod modules;
mod named_chains;
mod names;
mod open_files;
mod output;
mod problems;
mod process_details;
mod reads;
mod rows;
mod sample_rows;
mod samples;
mod selected;
mod spans;
mod spare;
mod stacks;
#[cfg(test)]
mod tests;
pub(crate) mod texts;
mod threads;
mod times;
mod unwinding;
mod window;

pub use limits::Limits;
pub use live::{
    CodeFinder, EventHits, Function, FunctionNames, Interval, SampledFunction, Tally, ThreadWeight,
};
pub use output::{Counts, Output};
pub use spans::InputSummary;
pub use window::TimeRange;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use perfquet_events::Error;
use perfquet_events::event::{
    Event, EventType, Fact, Hit, Loss, Mapping, Place, Problem, Progress, Sink, Space, TIME_BEYOND,
};
use perfquet_events::wire::PauseRecord;

use crate::recorded;
use crate::symbols;

use age::Age;
use calls::{Calls, Pairs};
use frames::Frames;
use generated::Generated;
use kernel_texts::KernelTexts;
use life::Life;
use names::InputSymbols;
use reads::Reads;
use rows::Plan;
use selected::Selected;
use stacks::Stacks;
use unwinding::Unwinding;
use window::Window;

/// Prefix of the loss reasons for recorded calls outside the selection.
const FILTERED_CALLS: &str = "filtered: calls ";
/// Maximum number of `stacks` rows that wait to be written.
const FRESH_STACKS: usize = 4096;

/// The sink of one input.
pub struct Normalizer<'o> {
    output: &'o mut Output,
    /// Name of the input.
    source: String,
    /// Callback for the reader's progress.
    progress: &'o mut (dyn FnMut(Progress) + Send),
    window: Window,
    age: Age,
    selected: Selected,
    /// Every hit becomes a row, and no generated code changes with time; known since the last event that is none.
    is_plain: bool,
    life: Life,
    /// An earlier input of the same recording has the threads and mappings.
    is_continued: bool,
    trees: Trees,
    plans: Vec<Plan>,
    reads: Reads,
    calling: Calling,
    naming: Naming,
    facts: facts::InputFacts,
}

/// Stacks and their frames, until they are written.
struct Trees {
    frames: Frames,
    stacks: Stacks,
    unwinding: Unwinding,
}

/// Calls that are open or wait to be written, and what makes events their edges.
struct Calling {
    calls: Calls,
    pairs: Pairs,
    names: calls::Names,
}

/// Sources of the names of addresses.
struct Naming {
    options: symbols::Options,
    kernel: symbols::KernelFacts,
    kernel_texts: KernelTexts,
    input: InputSymbols,
    generated: Generated,
}

impl<'o> Normalizer<'o> {
    /// Returns the sink of the input named `source`.
    pub fn new(
        output: &'o mut Output,
        source: &str,
        (symbols, limits): (symbols::Options, Limits),
        time: Option<TimeRange>,
        kept: Option<Arc<AtomicU64>>,
        progress: &'o mut (dyn FnMut(Progress) + Send),
    ) -> Normalizer<'o> {
        source.clone_into(&mut output.source);
        let frames = Frames::starting_at(output.next_ids.frame, limits);
        let stacks = Stacks::starting_at(output.next_ids.stack, limits);
        let mut calls = Calls::starting_at(output.next_ids.call);
        let selected = match output.selected.take() {
            Some(selected) => selected.continued(),
            None => Selected::reporting_to(kept),
        };
        calls.select(selected.selection());
        let known = output.life.take();
        let is_continued = known.is_some();
        if is_continued {
            calls.count_all();
        }
        let mut life = known.unwrap_or_else(|| Life::within(limits));
        life.modules.set_roots(&symbols.roots);
        Normalizer {
            output,
            source: source.to_owned(),
            progress,
            window: Window::new(time),
            age: Age::default(),
            selected,
            is_plain: false,
            is_continued,
            life,
            trees: Trees {
                frames,
                stacks,
                unwinding: Unwinding::new(symbols.clone()),
            },
            plans: Vec::new(),
            reads: Reads::default(),
            calling: Calling {
                calls,
                pairs: Pairs::default(),
                names: calls::Names::default(),
            },
            naming: Naming {
                options: symbols,
                kernel: symbols::KernelFacts::default(),
                kernel_texts: KernelTexts::default(),
                input: InputSymbols::default(),
                generated: Generated::default(),
            },
            facts: facts::InputFacts::default(),
        }
    }

    /// Sets the time of the input file's last change.
    pub fn set_written(&mut self, written: Option<SystemTime>) {
        self.age.written = written;
    }

    /// Ends the input: writes the remaining state.
    pub fn finish(mut self) -> Result<(), Error> {
        self.write_calls_if(true)?;
        self.output.hand_over_all_hits()?;
        self.report_filtered()?;
        self.output.next_ids.call = self.calling.calls.next_id();
        if !self.output.is_one_recording {
            self.life
                .write_all(&mut self.output.writer, &self.output.fixed)?;
        }
        self.write_stacks()?;
        self.write_frames()?;
        if let Some(counts) = self.trees.unwinding.counts() {
            self.output.unwound.push(counts);
            self.facts.add(Fact::Other {
                name: "user_stacks.unwound",
                value: &format!(
                    "{} complete, {} cut at the end of the copy, {} at code without unwind information, {} at the maximum depth, {} not supported",
                    counts.complete,
                    counts.memory_ended,
                    counts.lost + counts.no_rule,
                    counts.too_deep,
                    counts.unsupported
                ),
            });
        }
        self.trees.unwinding.log();
        self.output.next_ids.stack = self.trees.stacks.next_id();
        let left_out = self.window.left_out();
        if left_out > 0 {
            self.loss(&Loss {
                time: None,
                cpu: None,
                event: None,
                count: Some(left_out),
                in_all: None,
                reason: "filtered: outside the selected time",
            })?;
            // These were dropped on purpose.
            self.output.counts.left_out += left_out;
            self.output.counts.losses -= 1;
            let lost = &mut self.output.counts.lost;
            *lost = lost.saturating_sub(left_out);
        }
        self.report_times_beyond();
        let given_up = self.life.mappings.given_up();
        if given_up > 0 {
            self.problem(
                given_up,
                "more mappings than can be kept: frames of some processes have addresses only",
            );
        }
        let given_up = self.trees.stacks.given_up();
        if given_up > 0 {
            self.problem(
                given_up,
                "more stacks with an ID than can be kept: some aggregations or samples have none",
            );
        }
        let given_up = self.calling.calls.given_up();
        if given_up > 0 {
            self.problem(
                given_up,
                "more open calls than can be kept: these have no exit",
            );
        }
        for (count, message) in self.calling.calls.threadless() {
            if count > 0 {
                self.problem(count, message);
            }
        }
        self.selected.facts(|fact| self.facts.add(fact));
        for plan in std::mem::take(&mut self.plans) {
            plan.finish(self.output)?;
        }
        if let Some((name, address)) = &self.naming.kernel.reference {
            self.facts.add(Fact::Other {
                name: facts::KERNEL_REFERENCE,
                value: &format!("{name} {address:#x}"),
            });
        }
        let origin = self.age.origin(&self.facts.facts);
        if let (true, Some(offset)) = (origin.is_estimated, origin.wall_offset) {
            self.facts.add(Fact::Other {
                name: facts::ESTIMATED_WALL_OFFSET,
                value: &offset.to_string(),
            });
        }
        self.limit_recorded();
        self.facts.store(&mut self.output.facts);
        if self.output.is_one_recording {
            self.output.life = Some(self.life);
            self.output.selected = Some(self.selected);
        }
        Ok(())
    }

    /// Limits the ranges of time that were recorded to what rows were kept of. Those of several recordings are joined after the last
    /// one ([`Output::add_gaps`]).
    fn limit_recorded(&mut self) {
        let kept = self.selected.bounds().map(|(begin, end)| {
            let (from, to) = self.window.bounds();
            (begin.max(from), end.min(to))
        });
        recorded::limit(&mut self.facts.facts.other, kept);
        self.output.summary = self.facts.summary(self.age.times());
        let all = &mut self.output.facts;
        let (first, own) = (&mut all.other, &mut self.facts.facts.other);
        if all.sources.is_empty() || self.output.is_one_recording {
            recorded::limit(first, kept);
        } else {
            first.remove(recorded::RANGES);
            own.remove(recorded::RANGES);
        }
    }

    /// Reports events outside the selection: counted, but not lost.
    fn report_filtered(&mut self) -> Result<(), Error> {
        let mut all = self.calling.calls.left_out();
        let elsewhere = self.selected.elsewhere();
        if elsewhere > 0 {
            all.push((
                elsewhere,
                "filtered: calls and hits in another context".to_owned(),
            ));
        }
        for (count, reason) in all {
            self.loss(&Loss {
                time: None,
                cpu: None,
                event: None,
                count: Some(count),
                in_all: None,
                reason: &reason,
            })?;
        }
        Ok(())
    }

    fn declare(&mut self, event: &EventType) {
        self.selected.declare(&event.purpose);
        if event.has_switches {
            self.calling.calls.see_switches();
        }
        let role = self.calling.pairs.role_of(event);
        self.plans
            .push(Plan::new(event, role, &self.naming.kernel_texts));
    }

    fn loss(&mut self, loss: &Loss<'_>) -> Result<(), Error> {
        let is_of_program = loss.reason.starts_with(Loss::UNRECORDED_PROGRAM);
        // The events of other threads are whole.
        if !is_of_program {
            self.calling.calls.loss();
        }
        self.output.counts.unrecorded_programs += u64::from(is_of_program);
        let plan = loss
            .event
            .and_then(|event| self.plans.get_mut(event.0 as usize));
        let name = plan.map(|plan| {
            plan.lost(loss);
            plan.event_name()
        });
        if loss.count == Some(0) {
            return Ok(()); // reported before
        }
        let table = self.output.fixed.losses;
        let count = loss.count.unwrap_or(0);
        match loss.reason {
            // These were dropped on purpose.
            filtered if filtered.starts_with(FILTERED_CALLS) => {
                let filtered = &mut self.output.counts.filtered;
                *filtered = filtered.saturating_add(count);
            }
            PauseRecord::PAUSED | PauseRecord::RESUMED => {}
            _ => {
                self.output.counts.losses += 1;
                let is_uncounted = loss.count.is_none() && loss.reason != Loss::THROTTLED;
                self.output.counts.uncounted_losses += u64::from(is_uncounted);
                let lost = &mut self.output.counts.lost;
                *lost = lost.saturating_add(count);
            }
        }
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
        let (first, nodes) = self.trees.stacks.take_fresh();
        let table = self.output.fixed.stacks;
        self.output.counts.stacks += nodes.len() as u64;
        for (stack, node) in (first..).zip(nodes) {
            crate::tables::stacks::Row {
                stack_id: stack as i32,
                parent_id: node.parent as i32,
                frame_id: node.frame as i32,
                depth: node.depth as i32,
                cut: node.is_cut.then_some(true),
            }
            .push(self.output.writer.rows(table));
            self.output.writer.end_row(table)?;
        }
        Ok(())
    }

    /// Symbolizes and writes the frames, and resets them with the stacks that use them. No stack may be waiting to be
    /// written.
    fn write_frames(&mut self) -> Result<(), Error> {
        // Symbol tables take tens of MB, the kernel's alone 37, so the large state goes first. IDs continue.
        self.trees.stacks = Stacks::starting_after(&mut self.trees.stacks);
        self.output.hand_over_all_hits()?;
        self.output.writer.hand_over_all()?;
        self.naming.input.set_dumps(self.naming.generated.dumps());
        let next = names::write(
            &self.trees.frames,
            &mut self.life.modules,
            &self.naming.input,
            (&self.naming.kernel, self.age.origin(&self.facts.facts)),
            &self.naming.options,
            self.output,
        )?;
        self.output.next_ids.frame = next;
        self.trees.frames.restart(next);
        Ok(())
    }
}

impl Sink for Normalizer<'_> {
    #[inline]
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Sample(sample) if sample.time == Some(TIME_BEYOND) => self.sample_beyond(sample),
            Event::Sample(sample) => self.sample(sample),
            other => {
                self.side_band_in_time(other)?;
                self.is_plain = self.window.holds_all()
                    && self.naming.generated.is_empty()
                    && self.selected.holds_everything();
                Ok(())
            }
        }
    }

    #[inline]
    fn hit(&mut self, hit: &Hit<'_>) -> Result<(), Error> {
        if !self.is_plain || hit.time == TIME_BEYOND || !self.usual(hit)? {
            return self.event(Event::Sample(&hit.sample()));
        }
        Ok(())
    }
}

impl Normalizer<'_> {
    fn map(&mut self, mapping: &Mapping<'_>) -> Result<(), Error> {
        if let Some(problem) = self.naming.generated.mapped(mapping, &self.naming.options) {
            self.problem(1, &problem);
        }
        if self.naming.generated.covers(mapping, &self.life) {
            return Ok(());
        }
        self.life
            .map(mapping, &mut self.output.writer, &self.output.fixed)
    }

    /// Handles rare events.
    fn side_band(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.naming.kernel.note(&event);
        match event {
            Event::Sample(sample) => return self.sample(sample),
            Event::Fact(fact) => {
                self.facts.add(fact);
                match fact {
                    Fact::Clock(clock) => self.naming.generated.clock = clock.to_owned(),
                    Fact::KernelBuildId(id) => {
                        self.life.modules.set_kernel(id, &self.naming.options);
                    }
                    Fact::Architecture(name) => {
                        self.trees.unwinding.architecture = Some(name.to_owned());
                        self.calling.calls.forget_numbers();
                    }
                    _ => {}
                }
                if matches!(fact, Fact::Clock(_) | Fact::WallOffset(_) | Fact::Host(_)) {
                    self.output.know(&self.facts.facts)?;
                }
            }
            Event::Selection(selection) => {
                self.selected.select(selection);
                self.calling.calls.select(selection);
            }
            Event::Type(event) => self.declare(event),
            // The first input reported all existing threads, with their names.
            Event::Comm(comm)
                if self.is_continued
                    && comm.time.is_none()
                    && !self.life.threads.is_nameless(comm.tid) => {}
            Event::Comm(comm) => {
                return self
                    .life
                    .comm(&comm, &mut self.output.writer, &self.output.fixed);
            }
            Event::Enter(enter) => return self.enter(enter),
            Event::Leave(leave) => return self.leave(leave),
            Event::Call(call) => return self.call(call),
            Event::PairedCall(call) => return self.paired_call(call),
            Event::Stack(stack) => return self.stack_record(&stack),
            Event::Aggregate(aggregate) => return self.aggregate(aggregate),
            Event::Count(value) => return self.count(value),
            Event::Switch(switch) => self.switch(&switch),
            Event::Fork(fork) => {
                if fork.time.is_some() {
                    self.calling.calls.reused(fork.tid);
                }
                return self
                    .life
                    .fork(&fork, &mut self.output.writer, &self.output.fixed);
            }
            Event::Exit(exit) => {
                return self
                    .life
                    .exit(&exit, &mut self.output.writer, &self.output.fixed);
            }
            Event::Process(state) => self.life.threads.process(&state),
            Event::OpenFile(file) => return self.open_file(&file),
            Event::KeptCode(kept) => return self.kept_code(&kept),
            Event::Cgroup(cgroup) => self.life.threads.cgroup(&cgroup),
            Event::Namespaces(namespaces) => self.life.threads.namespaces(&namespaces),
            Event::Mapping(mapping) => {
                self.age.see_mapping(mapping.time);
                return self.map(&mapping);
            }
            Event::BuildId(build_id) => {
                self.life.modules.build_id(&build_id);
                let kernel = self.naming.kernel.build_id.clone();
                let is_of_kernel = build_id.space == Space::Kernel;
                if let (true, Some(kernel)) = (is_of_kernel, kernel) {
                    self.life.modules.set_kernel(&kernel, &self.naming.options);
                }
            }
            Event::KernelSymbol(symbol) => self.life.kernel_symbol(&symbol),
            Event::KernelText(text) => self.naming.kernel_texts.add(text),
            Event::Symbol(symbol) => self.naming.input.add(&symbol),
            Event::Loss(loss) => return self.loss(&loss),
            Event::Problem(problem) => self.output.problems.add(&self.source, &problem),
            Event::Progress(progress) => (self.progress)(progress),
        }
        Ok(())
    }
}
