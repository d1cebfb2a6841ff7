//! The end of a recording: events are stopped, rings drained, and everything is closed.

use perfquet_cli::terminal;
use std::io;

use anyhow::Result;

use super::{Running, RunningCommand, command};
use crate::bpf::Programs;
use crate::cpu_limit::CpuLimit;
use crate::drain::Sink;
use crate::ftrace::Tracing;
use crate::kept_code::{Keeper, Kept};
use crate::output::progress::Progress;
use crate::probe::definition::Definitions;
use crate::process_states;
use crate::recording::Recording;
use crate::runtimes::{self, Runtimes};
use crate::stat::Counters;
use crate::sys::child;
use crate::user_stacks::Counts;

/// Maximum number of probes closed in the foreground; closing one takes 20 to 40 ms.
const MOST_CLOSED_HERE: usize = 16;

impl Running {
    /// Stops counting; returns the records of the last period.
    fn end_counts(&mut self) -> Vec<u8> {
        let Some(counters) = &mut self.counters else {
            return Vec::new();
        };
        if !self.on.switch.has_been_on() {
            return Vec::new();
        }
        let stopped = counters.switch(false);
        match stopped.and_then(|()| counters.read()) {
            Ok((records, _)) => records,
            Err(error) => {
                log::warn!("{}", terminal::sentence(error.chain()));
                Vec::new()
            }
        }
    }

    /// Stops the events and drains the rings.
    pub(crate) fn stop(mut self) -> (Sink, io::Result<()>, Stopped) {
        let counts = self.end_counts();
        self.programs.stop();
        let traced = self.tracing.as_mut().map_or(Ok(()), Tracing::finish);
        let ended_at = self.drain.end();
        let recorded = self.drain.recorded().text(0, ended_at);
        if let Some(handover) = &self.on.handover {
            handover.end(ended_at);
        }
        self.recording.disable();
        self.screen.progress.step("finishing");
        // Recording has stopped, and the command still runs unless it exited.
        let runtimes = self.beside.runtimes.take().map(Runtimes::finish);
        self.reap();
        if let (Some(pid), Some(ended), Some(_)) =
            (self.command.pid, self.command.ended, self.recording.own_id)
        {
            self.drain.add(process_states::of_ended(pid, ended));
        }
        if let Some(display) = &self.screen.display {
            display.note(self.shown());
        }
        let (sink, drained, user_stacks) = self.drain.finish();
        // The command still runs unless it has ended by itself.
        let code = self.beside.code.take().map(Keeper::finish);
        if let Some(display) = self.screen.display.take() {
            display.finish();
        }
        let stopped = Stopped {
            recording: self.recording,
            programs: self.programs,
            counters: self.counters,
            counts,
            cpu_limit: self.cpu_limit.map(|(limit, _)| limit),
            moments: self.moments.end(),
            recorded,
            command: self.command,
            progress: self.screen.progress,
            traced,
            user_stacks,
            runtimes: runtimes.unwrap_or_default(),
            code,
        };
        (sink, drained, stopped)
    }
}

/// A recording whose events are stopped, but still open.
pub(crate) struct Stopped {
    pub(crate) recording: Recording,
    pub(crate) programs: Programs,
    pub(crate) counters: Option<Counters>,
    pub(crate) cpu_limit: Option<CpuLimit>,
    /// Records of the last counts.
    pub(crate) counts: Vec<u8>,
    /// Moments on the trace's clock and on the wall's.
    pub(crate) moments: String,
    /// The ranges of time that were recorded.
    pub(crate) recorded: Option<String>,
    command: RunningCommand,
    progress: Progress,
    /// Result of function tracing.
    pub(crate) traced: Result<()>,
    /// The user stacks that were walked or unwound.
    pub(crate) user_stacks: Option<Counts>,
    /// Results of the requests for perf maps.
    pub(crate) runtimes: runtimes::Summary,
    /// The code that was kept.
    pub(crate) code: Option<Kept>,
}

impl Stopped {
    /// Closes the events, in the background if that is slow; releases the command.
    pub(crate) fn close(self, definitions: Option<&mut Definitions>) {
        // A small number of own probes is closed in the foreground, so that they are removed when the recorder exits.
        let removal = definitions.filter(|definitions| definitions.len() > MOST_CLOSED_HERE);
        let mut slow = self.recording.slow_to_close(removal.is_some());
        slow.extend(self.programs.slow_to_close(removal.is_some()));
        if !slow.is_empty() {
            let lines = removal.as_ref().map(|definitions| definitions.removal());
            let closing = child::close_elsewhere(&slow, &lines.unwrap_or_default());
            if let (Some(_), Some(definitions)) = (&closing, removal) {
                definitions.forget();
            }
            drop((self.recording, self.programs));
            drop(closing);
        }
        self.progress.clear();
        command::end(self.command.pid, self.command.ended);
    }
}
