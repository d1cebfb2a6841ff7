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
//! [`EventFormat::parse`] turns such a text into fields with their [`Layout`](crate::event::Layout);
//! [`Plan`] is what a hot loop compiles once per event type and then decodes every payload with, without allocating:
//!
//! ```text
//! let plan = Plan::new(&event_type.fields, event_type.big_endian);
//! for (op, column) in plan.ops().iter().zip(columns) {
//!     match op.decode(payload) {
//!         Decoded::Int(value) => column.push_i64(value),
//!         Decoded::Bytes(text) => column.push_bytes(text),
//!         Decoded::Null => column.push_null(),
//!         …
//!     }
//! }
//! ```

mod decode;
mod parse;
pub mod print;

pub use decode::{Array, Decoded, Op, Plan, decode_field};
pub use parse::{EventFormat, declared};
