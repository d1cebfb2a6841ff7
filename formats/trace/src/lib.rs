//! The trace directory: turns events into tables, names addresses, writes and opens the directory.
//!
//! ```text
//! Event ─► normalize ─► store ─► NAME.pqt/*.parquet ─► store::Directory
//!             └─ symbols
//! ```
//! `normalize` keeps state: threads, mappings, stacks. `store` writes and reads trace directories and knows nothing
//! about traces beyond their schema. `symbols` names addresses. This crate sees events, never a reader.

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

pub mod count;
pub mod function_name;
#[cfg(test)]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../../tests/src/needs.rs"]
mod needs;
pub mod normalize;
pub mod output_file;
pub mod reopen;
mod report;
pub mod store;
pub mod symbols;
pub mod tables;

pub use report::Report;
