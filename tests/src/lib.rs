//! Shared by tests and chores: paths, the programs under test, reporting skipped tests.
//!
//! `cargo xtask NAME` is one file here per chore; `src/bin/xtask.rs` only selects one.

pub mod bench;
pub mod bpf;
pub mod corpus;
pub mod demo;
pub mod dist;
pub mod fuzz;
pub mod kept_code;
pub mod load;
pub mod needs;
pub mod pairs;
pub mod place;
pub mod random;
pub mod salvage;
pub mod say;
pub mod schemas;
pub mod scopes;
pub mod session;
pub mod shapes;
pub mod site;
pub mod sniff;
pub mod stacks;
pub mod test;
pub mod vm;

pub use place::{bin, cargo, corpora, foreign_corpus, outside_of_cargo, root, target_directory};

/// Reports that a test, or a part of it, cannot run here. `cargo xtask test` collects these lines.
///
/// ```text
/// skipped: needs machines: no QEMU: cargo xtask vm --fetch
/// ```
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
}
