//! The error of a failed recording: one sentence, and a `hint:` line with the next step.
//!
//! ```text
//! perfquet-record: cannot record the whole system: permission denied (kernel.perf_event_paranoid is 2)
//! hint: run as root, grant CAP_PERFMON
//! ```

use std::fmt;

use perfquet_cli::nearest;

use perfquet_cli::terminal;

/// A failure that knows its next step. Made by [`failed`] or [`misuse`], carried by `anyhow::Error`.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    status: u8,
}

/// Creates an error of the system or the kernel.
pub(crate) fn failed(message: impl Into<String>) -> Failure {
    Failure {
        message: message.into(),
        hint: None,
        status: 1,
    }
}

/// The command line makes no sense.
pub(crate) fn misuse(message: impl Into<String>) -> Failure {
    failed(message).status(2)
}

impl Failure {
    /// Adds the next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the hint.
    #[cfg(test)]
    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Ends the process with another status than 1: 2 for a command line that makes no sense, 126 and 127 for a
    /// command that cannot be run.
    pub(crate) fn status(mut self, status: u8) -> Failure {
        self.status = status;
        self
    }

    /// Prefixes the error with the failed step.
    pub(crate) fn during(mut self, step: &str) -> Failure {
        self.message = format!("{step}: {}", self.message);
        self
    }
}

/// Returns the hint for an unknown name: similar `names`, and the option that lists all.
pub(crate) fn similar(wanted: &str, names: impl IntoIterator<Item = String>, list: &str) -> String {
    let similar = nearest(wanted, names);
    match similar.is_empty() {
        true => format!("list all with {list}"),
        false => format!("use {}, or list all with {list}", similar.join(", ")),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Prints an error with its causes, and its hint on a separate line.
pub(crate) fn print(error: &anyhow::Error) {
    terminal::fail(terminal::sentence(error.chain()), hint_of(error));
}

/// The status that the process ends with.
pub(crate) fn status_of(error: &anyhow::Error) -> u8 {
    let failure = error.downcast_ref::<Failure>();
    failure.map_or(1, |failure| failure.status)
}

fn hint_of(error: &anyhow::Error) -> Option<&str> {
    // As a context it is found only from outside, as a cause only in the chain.
    let from_outside = error.downcast_ref::<Failure>();
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<Failure>());
    from_outside.or_else(|| causes.next())?.hint.as_deref()
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn hints_are_found_in_any_cause() {
        let failure = || failed("it failed").hint("do this");
        let plain = anyhow::Error::new(failure());
        let cause = anyhow::Error::new(failure()).context("step");
        let context = Err::<(), _>(std::io::Error::other("x")).context(failure());
        for error in [plain, cause, context.unwrap_err()] {
            assert_eq!(hint_of(&error), Some("do this"));
            assert_eq!(status_of(&error), 1);
        }
        assert_eq!(status_of(&misuse("so not").into()), 2);
    }
}
