//! The layout of tracepoint and probe payloads: the kernel's `format` files, and decoding with them.
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
//! [`EventFormat::parse`] parses such a file into fields with their [`Layout`](crate::event::Layout), which a
//! [`Payload`](crate::event::Payload) uses to decode. [`print::PrintFormat`] prints an event as the kernel does.

mod parse;
pub mod print;

pub use parse::{EventFormat, declared};
