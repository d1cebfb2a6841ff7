//! One input format: its name, how it is recognized and how it is read.
//!
//! ```text
//! Format { name: "kfi", about: "KFI and KFT logs", main_file: None, sniff, read_file: read }
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
    ///
    /// [`Format::read`] calls this function, after it has entered the main file of a directory.
    pub read_file: fn(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error>,
}

impl Format {
    /// How sure this format is of an input: by its first bytes, of a directory by those of the main file.
    pub fn guess(&self, input: &Input) -> Result<Guess, Error> {
        if !input.is_directory() {
            return Ok((self.sniff)(input.head()));
        }
        let head = match self.main_file {
            Some(file) => input.head_of(file)?,
            None => None,
        };
        Ok(head.map_or(Guess::No, |head| (self.sniff)(&head)))
    }

    /// Reads the events of a file, a stream or a directory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a directory if this format is a single file, or if the directory lacks the main file;
    /// otherwise only if nothing can be read, or if the sink fails.
    pub fn read(&self, input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
        if input.is_directory() {
            let file = self.main_file.ok_or_else(|| Error::Unsupported {
                input: input.name().to_owned(),
                message: format!("expected a file of format {}, found a directory", self.name),
            })?;
            input.enter(file)?;
        }
        (self.read_file)(input, sink)
    }
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
