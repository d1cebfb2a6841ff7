//! The vocabulary of events, and the bytes from which readers decode them.
//!
//! ```text
//! Input ─► Format::read ─► Event ─► Sink
//! ```
//! A reader turns an [`Input`] into [`event::Event`]s and passes each to an [`event::Sink`]. Readers and the trace
//! directory share this crate and nothing else: it sees neither of them, no Arrow and no Parquet.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod bytes;
mod error;
pub mod event;
pub mod event_format;
mod format;
pub mod input;
#[cfg(test)]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../../tests/src/needs.rs"]
mod needs;
pub mod scan;

pub use error::Error;
pub use format::{Format, Guess};
pub use input::Input;
