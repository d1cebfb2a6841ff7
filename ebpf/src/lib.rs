//! BPF programs and their loader, for features that perf events lack.
//!
//! ```text
//! src/NAME.bpf.c  ─clang─►  objects/NAME.bpf.o  ─embedded─►  Object::load  ─►  the kernel
//! ```
//! The programs are in C. Their compiled objects are committed, so that building needs no clang; `cargo xtask bpf`
//! rebuilds them, and a test fails if they do not match their sources. `program.h` is shared by all programs, [`layout`]
//! by both sides. A program runs on every hit on the system; `program.h` selects the threads to record.

pub mod compiled;
mod error;
mod hooks;
pub mod layout;
mod object;
mod sys;
pub mod walk_tables;
pub mod walker;

pub use aya::{EbpfLoader, Pod};
pub use error::Error;
pub use object::{Object, PerCpu, Target};
pub use sys::{End, Hook};
