//! Several traces on one timeline: that of the first.
//!
//! ```text
//! trace  method        shift      drift      error     pairs
//! host   reference
//! perf   same clock    0 ns       0 ppm      0 ns
//! vm     events        -3.120 s   1.2 ppm    1.100 us    412      time 5 of vm is aligned(time) 5 - 3.12 s of host
//! ```
//! What traces say of their clocks, and alignments in files, are those of [`perfquet_trace::align`], which the converter uses, too.
//! [`events`] and [`messages`] compute placements from what both traces recorded.

pub mod events;
pub mod messages;

pub use perfquet_trace::align::{
    Clock, DRIFT_MAX, Method, Placement, by_facts, by_wall, fact, file, line,
};
