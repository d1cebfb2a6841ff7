//! What the library tells while it works: warnings always, more with `-v` and `-vv`.

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::terminal;

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Other crates have much to say that concerns nobody here.
        metadata.target().starts_with("perfquet")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        match record.level() {
            Level::Error | Level::Warn => terminal::say(&record.args().to_string()),
            Level::Info | Level::Debug | Level::Trace => {
                terminal::put(&record.args().to_string());
            }
        }
    }

    fn flush(&self) {}
}

/// Begins to show what is told, as often as `-v` was given.
pub(crate) fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(level);
    }
}
