//! The thread that names, ranks and shows what was counted.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use perfquet_trace::normalize::{Function, FunctionNames, Interval};
use perfquet_trace::symbols::Options;

use super::paint::{Contents, Table, lines};
use super::ranking::Ranking;
use super::screen::Screen;
use super::{Shared, lock};
use crate::sys::clock;

/// Interval at which the size of the terminal is checked.
const RESIZED: Duration = Duration::from_millis(100);
/// Name of threads without a known name.
const UNKNOWN: &str = "[unknown]";

/// The painter of a display.
pub(super) struct Painter {
    shared: Arc<Shared>,
    screen: Arc<Mutex<Screen>>,
    names: FunctionNames,
    functions: Ranking<Function>,
    threads: Ranking<String>,
    every: Duration,
    /// When the next refresh is due.
    due: Instant,
    /// When the display started, and the time of the newest event that was shown; nanoseconds of the recording's clock.
    started: u64,
    newest: u64,
    /// The contents of the screen, and the size for which they were painted.
    painted: Option<(Contents, Option<(usize, usize)>)>,
}

impl Painter {
    pub(super) fn new(
        shared: Arc<Shared>,
        screen: Arc<Mutex<Screen>>,
        options: Options,
        every: Duration,
    ) -> Painter {
        let now = clock::monotonic();
        Painter {
            shared,
            screen,
            names: FunctionNames::new(options),
            functions: Ranking::new(),
            threads: Ranking::new(),
            every,
            due: Instant::now() + every,
            started: now,
            newest: now,
            painted: None,
        }
    }

    /// Refreshes the display until `ended` has no sender, then shows the rest.
    pub(super) fn run(mut self, ended: &Receiver<()>) {
        loop {
            let left = self.due.saturating_duration_since(Instant::now());
            match ended.recv_timeout(left.min(RESIZED)) {
                Err(RecvTimeoutError::Timeout) if Instant::now() < self.due => self.paint_again(),
                Err(RecvTimeoutError::Timeout) => {
                    // A refresh that symbol tables delayed by whole intervals is not made up for.
                    let now = Instant::now();
                    while self.due <= now {
                        self.due += self.every;
                    }
                    self.paint();
                }
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    self.paint();
                    return;
                }
            }
        }
    }

    /// Shows what has arrived since the last time.
    fn paint(&mut self) {
        let interval = self.shared.followed.take();
        let contents = self.contents(&interval);
        self.show(contents);
    }

    /// Paints the same contents again if the size of the terminal has changed.
    fn paint_again(&mut self) {
        let Some((_, size)) = &self.painted else {
            return;
        };
        let is_resized = lock(&self.screen).size() != *size;
        if is_resized && let Some((contents, _)) = self.painted.take() {
            self.show(contents);
        }
    }

    fn show(&mut self, contents: Contents) {
        let mut screen = lock(&self.screen);
        let size = screen.size();
        if !screen.show(&lines(&contents, size)) {
            self.shared.is_closed.store(true, Ordering::Relaxed);
        }
        self.painted = Some((contents, size));
    }

    fn contents(&mut self, interval: &Interval) -> Contents {
        let functions = self.names.weights(interval).unwrap_or_else(|error| {
            log::warn!("--live: {error}");
            Vec::new()
        });
        let comm = |comm: &Option<String>| comm.clone().unwrap_or_else(|| UNKNOWN.to_owned());
        let threads = interval.threads.iter();
        let weights = threads.map(|thread| (comm(&thread.comm), thread.weight));
        let threads = self.threads.add(weights.collect(), interval.beyond_threads);
        let mut thread_counts: HashMap<String, u64> = HashMap::new();
        for thread in &interval.threads {
            *thread_counts.entry(comm(&thread.comm)).or_default() += thread.threads;
        }
        let shown = *lock(&self.shared.shown);
        // What arrives late is divided by the time in which it happened.
        let newest = interval.newest.and_then(|time| u64::try_from(time).ok());
        let newest = newest.unwrap_or(0).max(self.newest);
        let span = Duration::from_nanos(newest - self.newest).as_secs_f64();
        self.newest = newest;
        let per_second = |hits: u64| match span > 0.0 {
            true => (hits as f64 / span).round() as u64,
            false => hits,
        };
        let is_quiet = interval.events.iter().all(|event| event.hits == 0);
        let until = if is_quiet { clock::monotonic() } else { newest };
        let written = self.shared.written.load(Ordering::Relaxed);
        Contents {
            elapsed: Duration::from_nanos(until.saturating_sub(self.started)),
            events: interval
                .events
                .iter()
                .map(|event| (event.name.clone(), per_second(event.hits)))
                .collect(),
            lost: shown.events.map(|_| shown.lost),
            bytes: written,
            waiting_bytes: written.saturating_sub(interval.done_bytes),
            weighed: interval.weighed.clone(),
            functions: Table {
                rows: self.functions.add(functions, interval.beyond_frames),
                is_beyond: interval.beyond_frames > 0,
            },
            threads: Table {
                rows: threads,
                is_beyond: interval.beyond_threads > 0,
            },
            thread_counts,
        }
    }
}
