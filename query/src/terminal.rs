//! What goes to stderr beside the result.
//!
//! `say!` is `eprintln!` for a program whose reader may be gone (`2>&1 | head -1`, `2>&-`): then there is nobody to tell,
//! and nothing ends of it.

/// A line of stderr.
macro_rules! say {
    ($($word:tt)*) => {
        $crate::terminal::put(format_args!($($word)*))
    };
}

/// Writes the line that `say!` makes.
pub(crate) fn put(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
