//! Parts of the command line shared by the programs: quantities, hints with similar names, the logger, messages and errors,
//! escaping for terminals, distributions as text, documents for packages, signals.
//!
//! This crate does not depend on traces.

pub mod distribution;
mod documents;
mod escape;
pub mod logger;
mod names;
pub mod paths;
pub mod quantity;
mod shell;
mod signals;
pub mod terminal;
mod tips;
mod width;

pub use documents::write_documents;
pub use escape::{escaped, escaped_where};
pub use names::{glob_matches, nearest, suggestion};
pub use shell::push_shell_word;
pub use signals::outlive_file_limits;
pub use tips::with_tip;
pub use width::{wide_lines, with_width};
