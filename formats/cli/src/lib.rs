//! What the command lines of the programs share: quantities, hints with similar names, the logger, escaping for terminals,
//! documents for packages.
//!
//! It knows nothing about traces.

mod documents;
mod escape;
pub mod logger;
mod names;
pub mod quantity;

pub use documents::write_documents;
pub use escape::{escaped, escaped_where};
pub use names::{glob_matches, nearest, suggestion};
