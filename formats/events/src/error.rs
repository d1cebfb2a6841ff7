//! Why an import, or a trace directory, cannot go on.

use std::path::PathBuf;

use crate::event::Place;

/// Named by what the caller can do about it. A reader fails only when nothing can be read; all else
/// is an [`Event::Problem`](crate::event::Event::Problem) in its stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused: no such file, no permission, a full disk.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// File at hand.
        path: PathBuf,
        /// Reason of the system.
        source: std::io::Error,
    },
    /// No format recognized the input's first bytes.
    #[error("{input}: unknown trace format{nearest}")]
    UnknownFormat {
        /// File name, or `stdin`.
        input: String,
        /// The formats that came nearest, as a sentence; empty if none did.
        nearest: String,
    },
    /// The input is of its format, but so damaged that nothing can be read.
    #[error("{input}: {place}{message}")]
    Damaged {
        /// File name, or `stdin`.
        input: String,
        /// Where.
        place: Place,
        /// What was expected, what was found.
        message: String,
    },
    /// The input, or a trace directory, is of a kind or version that is not read here.
    #[error("{input}: {message}")]
    Unsupported {
        /// File name, or `stdin`.
        input: String,
        /// What it is, and what to do.
        message: String,
    },
    /// Symbols that were asked for cannot be had.
    #[error("{path}: {message}", path = path.display())]
    Symbols {
        /// Symbol file.
        path: PathBuf,
        /// Reason.
        message: String,
    },
    /// An output that exists is not overwritten.
    #[error("{path} exists", path = path.display())]
    Exists {
        /// The trace directory.
        path: PathBuf,
    },
}

impl Error {
    /// An [`Error::Io`] at `path`, for `map_err`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, source }
    }
}

impl std::fmt::Display for Place {
    /// `offset 0x7f10: `, `line 48: `, or nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Offset(offset) => write!(f, "offset {offset:#x}: "),
            Place::Line(line) => write!(f, "line {line}: "),
        }
    }
}
