//! One input format: its name, how it is recognized and how it is read.
//!
//! ```text
//! Format { name: "kfi", about: "KFI and KFT logs", sniff, read }
//! ```

use crate::event::Sink;
use crate::{Error, Input};

/// Everything the rest of the program knows about a format.
pub struct Format {
    /// As given to `--from`, and named in the manifest: "kfi".
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// Looks at the first 4 KiB only. The list of formats is in the order of trial; a test lets every golden file
    /// meet every sniffer.
    pub sniff: fn(head: &[u8]) -> Guess,
    /// Hands over events, in the order of time where the format has one. Unreadable data becomes
    /// [`Event::Problem`](crate::event::Event::Problem).
    pub read: fn(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error>,
}

/// How sure a sniffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guess {
    /// It is something else.
    No,
    /// It looks like it; another format may be surer.
    Likely,
    /// It is.
    Certain,
}
