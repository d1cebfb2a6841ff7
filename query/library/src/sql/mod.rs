//! From the text of a query to its plan.
//!
//! ```text
//! text ─► literals ─► macros ─► pivot ─► star ─► dialect ─► scoping ─► planning ─► membership ─► no_row ─► narrowing ─► plan ─► result_units
//! ```

mod aliases;
mod casts;
mod dates;
mod definitions;
mod dialect;
pub mod literals;
pub(crate) mod macros;
mod membership;
pub mod names;
mod narrowing;
mod no_row;
mod opaque;
mod pivot;
pub(crate) mod planning;
pub(crate) mod result_units;
pub mod scoping;
mod sort_names;
mod star;
mod state_names;
pub mod statements;
pub(crate) mod summarize;
pub(crate) mod times;
mod wrong_answers;
