//! `say!` prints a message to stderr, as `eprintln!` would, but a closed pipe (`2>&1 | head -1`, `2>&-`) does no harm, and
//! control characters are escaped.

/// A message on stderr.
macro_rules! say {
    ($($word:tt)*) => {
        perfquet_cli::terminal::say(format_args!($($word)*))
    };
}
