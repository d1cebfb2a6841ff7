//! BPF programs and their loading: for what perf events cannot do.
//!
//! ```text
//! src/NAME.bpf.c  ─clang─►  objects/NAME.bpf.o  ─in this library─►  Object::load  ─►  the kernel
//! ```
//! The programs are C, and their objects are kept beside them, so that building needs no clang; `cargo xtask bpf`
//! makes the objects anew, and a test tells when they do not fit their sources. `frame.h` is what all programs share,
//! [`layout`] what both sides share. A program runs on every hit of the machine: `frame.h` says whom it lets through.

pub mod compiled;
mod error;
mod hooks;
pub mod layout;
mod object;
mod sys;

pub use aya::{EbpfLoader, Pod};
pub use error::Error;
pub use object::{Object, PerCpu, Target};
pub use sys::{End, Hook};
