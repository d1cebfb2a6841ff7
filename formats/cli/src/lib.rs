//! What the command lines of the programs share: documents for packages, the logger, escaping for terminals.
//!
//! It knows nothing about traces.

mod documents;
mod escape;
pub mod logger;

pub use documents::write_documents;
pub use escape::{escaped, escaped_where};
