//! What the payload of a tracepoint or probe looks like: the kernel's `format` files, and how to read by them.
//!
//! ```text
//! name: sched_switch
//! ID: 316
//! format:
//!     field:unsigned short common_type; offset:0; size:2; signed:0;
//!
//!     field:char prev_comm[16]; offset:8; size:16; signed:0;
//! print fmt: "prev_comm=%s …", REC->prev_comm, …
//! ```
//! [`EventFormat::parse`] turns such a text into fields with their [`Layout`](crate::event::Layout), by which a
//! [`Payload`](crate::event::Payload) is decoded; [`print::PrintFormat`] prints an event as the kernel does.

mod parse;
pub mod print;

pub use parse::{EventFormat, declared};
