//! Output to stderr: notes and errors.
//!
//! `say!` is `eprintln!` that ignores write errors, for example of a closed pipe (`2>&1 | head -1`, `2>&-`)
//! instead of panicking.

use std::sync::atomic::{AtomicBool, Ordering};

/// A line of stderr.
macro_rules! say {
    ($($word:tt)*) => {
        $crate::terminal::put(format_args!($($word)*))
    };
}

/// Whether `say!` writes nothing.
static IS_MUTED: AtomicBool = AtomicBool::new(false);

/// Computes a part of a report without its notes, which are those of other parts or repeated in the report.
pub(crate) fn muted<T>(part: impl FnOnce() -> T) -> T {
    IS_MUTED.store(true, Ordering::Relaxed);
    let answer = part();
    IS_MUTED.store(false, Ordering::Relaxed);
    answer
}

/// Writes the line of `say!`.
pub(crate) fn put(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    if IS_MUTED.load(Ordering::Relaxed) {
        return;
    }
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
