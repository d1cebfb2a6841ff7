//! One input format: its name, how it is recognized and how it is read.
//!
//! ```text
//! Format { name: "kfi", about: "KFI and KFT logs", main_file: None, sniff, read }
//! ```

use crate::event::Sink;
use crate::{Error, Input};

/// Everything the rest of the program knows about a format.
pub struct Format {
    /// As given to `--from`, and named in the manifest: "kfi".
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// For traces that are directories: the file that identifies them and is read first.
    pub main_file: Option<&'static str>,
    /// Looks at the first 4 KiB only, of a directory at those of its main file. Formats are tried in the order of their
    /// list; a test runs every sniffer on every golden file.
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
