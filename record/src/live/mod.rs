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

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use perfquet_events::event::{Event, Hit, Sink};
use perfquet_events::{Error, Input};
use perfquet_trace::normalize::Tally;
use perfquet_trace::symbols::{Options, Roots};

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
    /// The growing journal.
    pub(crate) journal: PathBuf,
    /// Number of bytes in it.
    pub(crate) written: Arc<AtomicU64>,
    /// Length up to which it is not truncated any more.
    pub(crate) settled: Arc<AtomicU64>,
    /// Number of its bytes that the display no longer needs.
    pub(crate) read: Arc<AtomicU64>,
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
    reader: JoinHandle<()>,
    painter: JoinHandle<()>,
}

/// State shared by the threads of a display.
struct Shared {
    tally: Mutex<Tally>,
    shown: Mutex<Shown>,
    written: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
    journal_is_whole: Arc<AtomicBool>,
    /// Whether the rest of the journal is not needed.
    is_over: AtomicBool,
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
        let shared = Arc::new(Shared {
            tally: Mutex::new(Tally::new(options.clone())),
            shown: Mutex::default(),
            written: request.written,
            read: request.read,
            journal_is_whole: Arc::default(),
            is_over: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        let screen = Arc::new(Mutex::new(Screen::open(request.has_command)));
        let keyboard = lock(&screen).is_full().then(Keyboard::open).flatten();
        let (end, ended) = channel();
        // Both keep the inherited thread name: the filter that excludes the recorder matches by name.
        let of_reader = Arc::clone(&shared);
        let reader =
            std::thread::spawn(move || follow(&request.journal, request.settled, &of_reader));
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
        self.end_of_journal();
        let blocked = Instant::now() + BLOCKED;
        let is_text = lock_soon(&self.screen, blocked).is_some_and(|screen| !screen.is_full());
        if is_text {
            wait_for(&self.reader, deadline);
        } else {
            self.shared.is_over.store(true, Ordering::Relaxed);
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

    fn end_of_journal(&self) {
        self.shared.journal_is_whole.store(true, Ordering::Release);
        // It may be waiting for more.
        self.reader.thread().unpark();
    }
}

impl Drop for Display {
    /// Restores the terminal, even if the recording failed.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.end_of_journal();
        // A painter that waits for a stopped terminal holds it.
        if let Some(mut screen) = lock_soon(&self.screen, Instant::now() + BLOCKED) {
            screen.close();
        }
    }
}

fn wait_for(thread: &JoinHandle<()>, deadline: Instant) {
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(PAUSE);
    }
}

/// Counts the journal's events until its end.
fn follow(journal: &std::path::Path, settled: Arc<AtomicU64>, shared: &Arc<Shared>) {
    let is_whole = Arc::clone(&shared.journal_is_whole);
    let read = Input::following(journal, settled, is_whole).and_then(|mut input| {
        input.set_prompt();
        perfquet_import::read(&mut input, &mut Counting(shared))
    });
    if let Err(error) = read
        && !shared.is_over.load(Ordering::Relaxed)
    {
        log::warn!("--live: {error}");
    }
    // From now on, the whole journal may be packed.
    shared.read.store(u64::MAX, Ordering::Relaxed);
}

/// Passes events to the tally, whose lock is nearly always free.
struct Counting<'a>(&'a Shared);

impl Sink for Counting<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::Progress(progress) = event {
            self.0.read.store(progress.done, Ordering::Relaxed);
            if self.0.is_over.load(Ordering::Relaxed) {
                let reason = std::io::ErrorKind::Interrupted.into();
                return Err(Error::io("journal")(reason));
            }
        }
        lock(&self.0.tally).event(event)
    }

    fn hit(&mut self, hit: &Hit<'_>) -> Result<(), Error> {
        lock(&self.0.tally).hit(hit)
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
