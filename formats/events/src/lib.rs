//! The event vocabulary, and the input bytes from which readers decode events.
//!
//! ```text
//! Input ─► Format::read ─► Event ─► Sink
//! ```
//! A reader turns an [`Input`] into [`event::Event`]s and passes each to an [`event::Sink`]. Readers and the trace
//! directory share only this crate, which depends on neither of them, nor on Arrow or Parquet.
//!
//! A format is a value with two functions. The following one has one thread name per line:
//!
//! ```
//! use perfquet_events::event::{Comm, Event, Sink};
//! use perfquet_events::{Error, Format, Guess, Input};
//!
//! fn sniff(head: &[u8]) -> Guess {
//!     if head.starts_with(b"# names") { Guess::Certain } else { Guess::No }
//! }
//!
//! fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
//!     let Some(bytes) = input.whole()? else { return Ok(()) };
//!     for (tid, name) in bytes.split(|&byte| byte == b'\n').enumerate().skip(1) {
//!         let comm = Comm { time: None, pid: None, tid: tid as i32, comm: name, exec: false };
//!         sink.event(Event::Comm(comm))?;
//!     }
//!     Ok(())
//! }
//!
//! const NAMES: Format = Format {
//!     name: "names",
//!     about: "one thread name per line",
//!     main_file: None,
//!     has_lines: false,
//!     sniff,
//!     read_file: read,
//! };
//!
//! struct Count(usize);
//! impl Sink for Count {
//!     fn event(&mut self, _: Event<'_>) -> Result<(), Error> {
//!         self.0 += 1;
//!         Ok(())
//!     }
//! }
//!
//! let mut input = Input::from_bytes("names.txt", b"# names\nsh\nls")?;
//! let mut count = Count(0);
//! NAMES.read(&mut input, &mut count)?;
//! assert_eq!(count.0, 2);
//! # Ok::<(), Error>(())
//! ```
//! Times are nanoseconds on the clock of the recording. Unreadable data becomes [`event::Event::Problem`] with its
//! offset or line; an [`Error`] ends the import.

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

pub mod archive;
pub mod bytes;
pub mod counters;
pub mod directory;
pub mod errno;
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
pub mod signal;
pub mod wire;

pub use error::Error;
pub use format::{Format, Guess};
pub use input::Input;
