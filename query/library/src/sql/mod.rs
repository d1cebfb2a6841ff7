//! From the text of a query to its plan.
//!
//! ```text
//! text ─► literals ─► macros ─► dialect ─► scoping ─► planning ─► plan ─► result_units
//! ```

mod dialect;
pub mod literals;
pub(crate) mod macros;
pub mod names;
pub(crate) mod planning;
pub(crate) mod result_units;
pub mod scoping;
pub mod statements;
pub(crate) mod summarize;
pub(crate) mod times;
