//! Description of an input format: its name, its recognition, and its reader.
//!
//! ```text
//! Format { name: "kfi", about: "KFI and KFT logs", main_file: None, sniff, read_file: read }
//! ```

use crate::event::{Event, Place, Problem, Sink};
use crate::{Error, Input};

/// Begins the name of a main file that may be in any directory below.
const BELOW: &str = "**/";
/// Main files of a directory whose heads are compared.
const GUESSED_FILES_MAX: usize = 64;

/// An input format.
pub struct Format {
    /// Name in `--from` and in the manifest: "kfi".
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// For directories: the file that identifies the format and is read first. `**/NAME` may be in any directory below;
    /// the reader finds them by [`Input::files_below`], and no file is entered.
    pub main_file: Option<&'static str>,
    /// Whether files of this format, unless they are in a directory, consist of lines. The last line of a file that
    /// was cut off has no end, which is reported.
    pub has_lines: bool,
    /// Recognizes the format from the first 4 KiB of the input, or of a directory's main file. Formats are tried in
    /// list order; a test runs every sniffer on every golden file.
    pub sniff: fn(head: &[u8]) -> Guess,
    /// Passes events to the sink, in order of time if the format has one. Unreadable data becomes an
    /// [`Event::Problem`](crate::event::Event::Problem).
    ///
    /// [`Format::read`] calls this function after entering the main file of a directory.
    pub read_file: fn(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error>,
}

impl Format {
    /// Returns how certain this format is of an input, by its first bytes; for a directory, by those of the main file.
    pub fn guess(&self, input: &Input) -> Result<Guess, Error> {
        if !input.is_directory() {
            return Ok((self.sniff)(input.head()));
        }
        let files = match self.main_file {
            Some(file) => match file.strip_prefix(BELOW) {
                Some(name) => input.files_below(name)?,
                None => vec![file.to_owned()],
            },
            None => Vec::new(),
        };
        let mut most = Guess::No;
        for file in files.iter().take(GUESSED_FILES_MAX) {
            if let Some(head) = input.head_of(file)? {
                most = most.max((self.sniff)(&head));
            }
        }
        Ok(most)
    }

    /// Reads the events of a file, a stream, a directory or an archive.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a directory if this format is a single file, or if the main file is missing.
    /// Otherwise only if nothing can be read, or if the sink fails.
    pub fn read(&self, input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
        input.open_archive()?;
        let is_directory = input.is_directory();
        if is_directory {
            let file = self.main_file.ok_or_else(|| Error::Unsupported {
                input: input.name().to_owned(),
                message: format!("expected a file of format {}, found a directory", self.name),
            })?;
            if !file.starts_with(BELOW) {
                input.enter(file)?;
            }
        }
        let is_text = self.has_lines && !is_directory;
        for flaw in input.take_flaws() {
            sink.event(Event::Problem(Problem {
                place: Place::Offset(flaw.offset),
                count: 1,
                message: &flaw.message,
            }))?;
        }
        (self.read_file)(input, sink)?;
        // Here, because a reader that forgets it would pass a part for the whole.
        let cut = match input.damage() {
            Some(reason) => Some(reason),
            None if is_text && input.ends_within_a_line() => {
                Some("expected a line ending at the end of the text: it may be cut off")
            }
            None => None,
        };
        if let Some(message) = cut {
            sink.event(Event::Problem(Problem {
                place: Place::Whole,
                count: 1,
                message,
            }))?;
        }
        // Of files that the reader has opened.
        for flaw in input.take_flaws() {
            sink.event(Event::Problem(Problem {
                place: Place::Offset(flaw.offset),
                count: 1,
                message: &flaw.message,
            }))?;
        }
        Ok(())
    }
}

/// Certainty of a sniffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guess {
    /// Not this format.
    No,
    /// Probably this format, unless another one is certain.
    Likely,
    /// This format.
    Certain,
}
