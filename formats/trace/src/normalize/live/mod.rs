//! The hottest functions and threads of a recording while it is written.
//!
//! ```text
//! Event ─► Tally ─take─► Interval { events, threads, frames } ─► FunctionNames ─► functions and their weights
//! ```
//! A [`Tally`] is the sink of a reader that follows the journal. It finds the mapping of each sample when it arrives, as for rows, and
//! counts by frame. What it counted is taken at intervals, and named elsewhere, so that slow symbol tables do not hold up the reader.
//! Its memory is bounded: weights beyond the limits are counted together. A [`CodeFinder`] finds the functions whose code is to be kept.

mod code;
mod naming;
mod tally;
#[cfg(test)]
mod tests;

pub use code::{CodeFinder, SampledFunction};
pub use naming::{Function, FunctionNames};
pub use tally::{EventHits, Interval, Tally, ThreadWeight};
