//! Handles Ctrl-C and other termination signals on a dedicated thread.
//!
//! ```text
//! SIGINT   first: the query ends (exit 130; the shell returns to its prompt)      second: the program ends immediately
//! SIGTERM, SIGHUP                                                                 the program ends immediately
//! ```
//! The library wakes the thread that waits for rows; if the program does not end soon, this module ends it. Temporary
//! files are removed in either case.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use perfquet::interrupt::{self, Met};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// Time that the program gets to end normally.
const PATIENCE: Duration = Duration::from_millis(600);

/// Interrupting a query does not end the program, as in the shell.
static OUTLIVES_QUESTIONS: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-C end a query, but not the program.
pub(crate) fn outlive_questions() {
    OUTLIVES_QUESTIONS.store(true, Ordering::Relaxed);
}

/// Starts the thread.
pub(crate) fn watch() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if signal == SIGINT {
                    interrupted();
                } else {
                    interrupt::end();
                    let _ = low_level::emulate_default_handler(signal);
                }
            }
        })
        .context("cannot start a thread for signals")?;
    Ok(())
}

fn interrupted() {
    let outlives = OUTLIVES_QUESTIONS.load(Ordering::Relaxed);
    match interrupt::interrupt() {
        Met::InterruptedQuery => end(),
        Met::Nothing if !outlives => end(),
        _ if outlives => return,
        _ => {}
    }
    // On another thread: this one waits for the second Ctrl-C.
    let impatient = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(PATIENCE);
        end();
    });
    if impatient.is_err() {
        end();
    }
}

fn end() -> ! {
    interrupt::end();
    let _ = writeln!(std::io::stderr(), "perfquet-query: interrupted");
    low_level::exit(130)
}
