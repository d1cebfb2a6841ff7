//! What the tests and the chores share: where things lie, the programs under test, and saying what was skipped.
//!
//! `cargo xtask NAME` is one file here per chore; `src/bin/xtask.rs` only chooses among them.

pub mod bench;
pub mod bpf;
pub mod corpus;
pub mod demo;
pub mod dist;
pub mod fuzz;
pub mod load;
pub mod needs;
pub mod place;
pub mod salvage;
pub mod say;
pub mod schemas;
pub mod session;
pub mod test;
pub mod vm;

pub use place::{bin, corpora, foreign_corpus, root, target_directory};

/// Says aloud that a test, or a part of it, could not run here. `cargo xtask test` collects these lines.
///
/// ```text
/// skipped: needs machines: no QEMU: cargo xtask vm --fetch
/// ```
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
}
