//! `--live` without aggregations: the hottest functions and threads, refreshed while recording.
//!
//! ```text
//! journal ─reader─► Tally ─every second─► painter: names, ranking, lines ─► terminal or text
//! ```
//! The display costs the drain nothing: its reader follows the journal, like the encoder. Names of functions are looked up by the painter, which
//! may wait for symbol tables, and for a terminal that does not take more.

mod paint;
mod painter;
mod ranking;
mod screen;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use perfquet_trace::symbols::{Options, Roots};

use crate::journal::follower::{Followed, Follower, Growing};
use crate::output::progress::Shown;
use crate::sys::keyboard::Keyboard;
use painter::Painter;
use screen::Screen;

/// Time for the last interval at the end: symbol tables take half a second, on a busy host much longer.
const LAST_PAINT: Duration = Duration::from_secs(60);
/// Time after which a terminal or pipe that takes no more text is given up.
const BLOCKED: Duration = Duration::from_secs(5);
/// Polling interval at the end.
const PAUSE: Duration = Duration::from_millis(5);

/// The recording to display.
pub(crate) struct Request {
    pub(crate) growing: Growing,
    /// Number of bytes in the journal.
    pub(crate) written: Arc<AtomicU64>,
    /// Roots of processes with another view of the file system.
    pub(crate) roots: Roots,
    /// Time between two refreshes.
    pub(crate) every: Duration,
    /// Whether a command writes to the same terminal.
    pub(crate) has_command: bool,
}

/// A running display.
pub(crate) struct Display {
    shared: Arc<Shared>,
    screen: Arc<Mutex<Screen>>,
    /// If the display takes the whole terminal.
    keyboard: Option<Keyboard>,
    /// Ends the painter when dropped.
    end: Option<Sender<()>>,
    reader: Follower,
    painter: JoinHandle<()>,
}

/// State shared by the threads of a display.
struct Shared {
    followed: Arc<Followed>,
    shown: Mutex<Shown>,
    written: Arc<AtomicU64>,
    /// Whether the reader of stdout has closed it.
    is_closed: AtomicBool,
}

impl Display {
    /// Starts to display the recording.
    pub(crate) fn start(request: Request) -> Display {
        let options = Options {
            roots: request.roots,
            ..Options::default()
        };
        let reader = Follower::start(request.growing, options.clone(), "--live");
        let shared = Arc::new(Shared {
            followed: reader.followed(),
            shown: Mutex::default(),
            written: request.written,
            is_closed: AtomicBool::new(false),
        });
        let screen = Arc::new(Mutex::new(Screen::open(request.has_command)));
        let keyboard = lock(&screen).is_full().then(Keyboard::open).flatten();
        let (end, ended) = channel();
        // It keeps the inherited thread name: the filter that excludes the recorder matches by name.
        let (of_painter, its_screen) = (Arc::clone(&shared), Arc::clone(&screen));
        let painter = std::thread::spawn(move || {
            Painter::new(of_painter, its_screen, options, request.every).run(&ended);
        });
        Display {
            shared,
            screen,
            keyboard,
            end: Some(end),
            reader,
            painter,
        }
    }

    /// Passes on the losses so far.
    pub(crate) fn note(&self, shown: Shown) {
        *lock(&self.shared.shown) = shown;
    }

    /// Whether the reader of stdout has closed it: `| head` has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Relaxed)
    }

    /// Whether the user has pressed `q`.
    pub(crate) fn is_quit(&self) -> bool {
        let keyboard = self.keyboard.as_ref();
        keyboard.is_some_and(|keyboard| keyboard.is_pressed(b"qQ"))
    }

    /// Displays the last interval, unless the terminal is restored anyway. The rings are drained, so the journal has all samples.
    pub(crate) fn finish(mut self) {
        let deadline = Instant::now() + LAST_PAINT;
        self.reader.end_of_journal();
        let blocked = Instant::now() + BLOCKED;
        let is_text = lock_soon(&self.screen, blocked).is_some_and(|screen| !screen.is_full());
        if is_text {
            self.reader.wait(deadline);
        } else {
            self.reader.give_up();
        }
        drop(self.end.take());
        if is_text && !self.is_painted(deadline) {
            log::warn!("--live: the last interval is not shown");
        }
    }

    /// Waits until the painter has shown all. It holds the screen only while it writes.
    fn is_painted(&self, deadline: Instant) -> bool {
        let mut written = Instant::now();
        while !self.painter.is_finished() {
            let now = Instant::now();
            if self.screen.try_lock().is_ok() {
                written = now;
            }
            if now >= deadline || now - written >= BLOCKED {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

impl Drop for Display {
    /// Restores the terminal, even if the recording failed.
    fn drop(&mut self) {
        self.reader.give_up();
        self.reader.end_of_journal();
        // A painter that waits for a stopped terminal holds it.
        if let Some(mut screen) = lock_soon(&self.screen, Instant::now() + BLOCKED) {
            screen.close();
        }
    }
}

/// The values are sums and texts, so they are valid even if their last holder panicked.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a value unless it is held until the deadline.
fn lock_soon<T>(value: &Mutex<T>, deadline: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match value.try_lock() {
            Ok(guard) => return Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
            Err(std::sync::TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
        }
    }
}
