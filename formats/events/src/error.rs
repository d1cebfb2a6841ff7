//! Errors that end an import, or the opening of a trace directory.

use std::path::PathBuf;

use crate::event::Place;

/// An error that ends an import. Variants are named by what the caller can do. A reader fails only if nothing can be
/// read; everything else is an [`Event::Problem`](crate::event::Event::Problem) in its stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed: no such file, no permission, a full disk.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// No format recognizes the first bytes of the input.
    #[error("{input}: unknown trace format{nearest}")]
    UnknownFormat {
        /// File name, or `stdin`.
        input: String,
        /// The most similar formats, as a sentence; empty if there are none.
        nearest: String,
    },
    /// The input has the format, but is so damaged that nothing can be read.
    #[error("{input}: {place}{message}")]
    Damaged {
        /// File name, or `stdin`.
        input: String,
        /// Offset or line of the damage.
        place: Place,
        /// What was expected, and what was found.
        message: String,
    },
    /// The input, or trace directory, has an unsupported type or version.
    #[error("{input}: {message}")]
    Unsupported {
        /// File name, or `stdin`.
        input: String,
        /// Description and advice.
        message: String,
    },
    /// Two inputs of one import have no clock or system in common.
    #[error("{input}: it cannot be in one trace with {other}: {reason}")]
    Apart {
        /// File name of the later input.
        input: String,
        /// File name of the earlier one.
        other: String,
        /// What was expected, and what was found.
        reason: String,
    },
    /// Requested symbols are not available.
    #[error("{path}: {message}", path = path.display())]
    Symbols {
        /// Symbol file.
        path: PathBuf,
        /// Reason.
        message: String,
    },
    /// The caller ended the import.
    #[error("interrupted")]
    Interrupted,
    /// The output exists.
    #[error("{path} exists", path = path.display())]
    Exists {
        /// The trace directory.
        path: PathBuf,
    },
}

impl Error {
    /// Returns a function that makes an [`Error::Io`] at `path`, for `map_err`.
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
