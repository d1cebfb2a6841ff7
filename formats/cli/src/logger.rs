//! Messages of the libraries: warnings always, steps with `-v`, details with `-vv`.

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Prints a message; the first argument says whether it is a warning.
pub type Print = fn(bool, std::fmt::Arguments<'_>);

struct Logger {
    print: Print,
}

/// Starts the logger. `verbosity` is the number of `-v`.
pub fn start(verbosity: u8, print: Print) {
    let level = match verbosity {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    // Fails only if there is a logger already.
    if log::set_boxed_logger(Box::new(Logger { print })).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Messages of other crates are dropped.
        metadata.target().starts_with("perfquet") && metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            (self.print)(record.level() <= Level::Warn, *record.args());
        }
    }

    fn flush(&self) {}
}
