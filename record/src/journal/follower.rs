//! Readers of the growing journal beside the encoder: the display of `--live`, and `--keep-code`.
//!
//! ```text
//! journal ─reader─► Tally ─take()─► Interval: what was added since the last time
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use perfquet_events::event::{Event, Hit, Sink};
use perfquet_events::{Error, Input};
use perfquet_trace::normalize::{Interval, Tally};
use perfquet_trace::symbols::Options;

/// Polling interval at the end.
const PAUSE: Duration = Duration::from_millis(5);

/// The journal of a recording, for a reader.
pub(crate) struct Growing {
    pub(crate) journal: PathBuf,
    /// Length up to which it is not truncated any more.
    pub(crate) settled: Arc<AtomicU64>,
    /// Number of its bytes that the reader no longer needs.
    pub(crate) read: Arc<AtomicU64>,
}

/// The running reader.
pub(crate) struct Follower {
    followed: Arc<Followed>,
    thread: JoinHandle<()>,
}

/// What was read.
pub(crate) struct Followed {
    tally: Mutex<Tally>,
    read: Arc<AtomicU64>,
    journal_is_whole: Arc<AtomicBool>,
    is_over: AtomicBool,
}

impl Followed {
    /// Nothing so far. `read` is that of [`Growing`].
    pub(crate) fn new(read: Arc<AtomicU64>, options: Options) -> Followed {
        Followed {
            tally: Mutex::new(Tally::new(options)),
            read,
            journal_is_whole: Arc::default(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Takes what was added since the last time.
    pub(crate) fn take(&self) -> Interval {
        self.tally().take()
    }

    /// Whether the rest of the journal is not needed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Its values are sums and texts, so they are valid even if their last holder panicked.
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// Starts to read. `option` needs it, and is named in messages.
    pub(crate) fn start(growing: Growing, options: Options, option: &'static str) -> Follower {
        let Growing {
            journal,
            settled,
            read,
        } = growing;
        let followed = Arc::new(Followed::new(read, options));
        let of_thread = Arc::clone(&followed);
        // It keeps the inherited thread name: the filter that excludes the recorder matches by name.
        let thread = std::thread::spawn(move || follow(&journal, settled, &of_thread, option));
        Follower { followed, thread }
    }

    /// What it reads.
    pub(crate) fn followed(&self) -> Arc<Followed> {
        Arc::clone(&self.followed)
    }

    /// The journal does not grow any more.
    pub(crate) fn end_of_journal(&self) {
        self.followed
            .journal_is_whole
            .store(true, Ordering::Release);
        // It may be waiting for more.
        self.thread.thread().unpark();
    }

    /// The rest of the journal is not needed.
    pub(crate) fn give_up(&self) {
        self.followed.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until the whole journal is read.
    pub(crate) fn wait(&self, deadline: Instant) {
        wait_for(&self.thread, deadline);
    }
}

/// Waits for the end of a thread.
pub(crate) fn wait_for(thread: &JoinHandle<()>, deadline: Instant) {
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(PAUSE);
    }
}

/// Adds the journal's events to the tally until its end.
fn follow(journal: &Path, settled: Arc<AtomicU64>, followed: &Followed, option: &str) {
    let is_whole = Arc::clone(&followed.journal_is_whole);
    let read = Input::following(journal, settled, is_whole).and_then(|mut input| {
        input.set_prompt();
        perfquet_import::read(&mut input, &mut Tallying(followed))
    });
    if let Err(error) = read
        && !followed.is_over()
    {
        log::warn!("{option}: {error}");
    }
    // From now on, the whole journal may be packed.
    followed.read.store(u64::MAX, Ordering::Relaxed);
}

/// Passes events to the tally, whose lock is nearly always free.
struct Tallying<'a>(&'a Followed);

impl Sink for Tallying<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::Progress(progress) = event {
            self.0.read.store(progress.done, Ordering::Relaxed);
            if self.0.is_over() {
                let reason = std::io::ErrorKind::Interrupted.into();
                return Err(Error::io("journal")(reason));
            }
        }
        self.0.tally().event(event)
    }

    fn hit(&mut self, hit: &Hit<'_>) -> Result<(), Error> {
        self.0.tally().hit(hit)
    }
}
