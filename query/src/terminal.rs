//! Output to stderr: notes and errors.
//!
//! `say!` is `eprintln!` that ignores write errors, for example of a closed pipe (`2>&1 | head -1`, `2>&-`)
//! instead of panicking.

/// A line of stderr.
macro_rules! say {
    ($($word:tt)*) => {
        $crate::terminal::put(format_args!($($word)*))
    };
}

/// Writes the line of `say!`.
pub(crate) fn put(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
