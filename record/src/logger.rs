//! What is said on standard error beside the result: warnings always, steps with `-v`, details with `-vv`.

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::terminal;

struct Logger;

/// Starts it; `verbosity` is the number of `-v`.
pub(crate) fn start(verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    // Fails only if a logger exists already, and then that one is as good.
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        match record.level() {
            Level::Error | Level::Warn => {
                terminal::say(format_args!("perfquet-record: {}", record.args()));
            }
            _ => terminal::say(format_args!("  {}", record.args())),
        }
    }

    fn flush(&self) {}
}
