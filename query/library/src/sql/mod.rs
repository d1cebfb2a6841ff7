//! SQL before and after DataFusion: what is written, what is planned, and what went wrong.
//!
//! ```text
//! text ─► literals ─► macros ─► dialect ─► scoping ─► planning ─► plan ─► result_units
//!                                                          └─► explain ─► sentences, synonyms
//! ```

pub mod definitions;
mod dialect;
pub mod explain;
pub mod literals;
pub(crate) mod macros;
pub mod names;
pub(crate) mod planning;
pub(crate) mod result_units;
pub mod scoping;
mod sentences;
pub mod statements;
pub(crate) mod summarize;
mod synonyms;
