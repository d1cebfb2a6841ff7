//! What a failed recording says: one sentence, and a `hint:` line with the next step.
//!
//! ```text
//! perfquet-record: cannot record the whole system: permission denied (kernel.perf_event_paranoid is 2)
//! hint: run as root, or give perfquet-record CAP_PERFMON
//! ```

use std::fmt;

/// A failure that knows its next step. Made by [`failed`] or [`misuse`], carried by `anyhow::Error`.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    /// The command line was wrong, not the machine: exit code 2.
    pub(crate) is_misuse: bool,
}

/// The machine refused.
pub(crate) fn failed(message: impl Into<String>) -> Failure {
    Failure {
        message: message.into(),
        hint: None,
        is_misuse: false,
    }
}

/// The command line makes no sense.
pub(crate) fn misuse(message: impl Into<String>) -> Failure {
    Failure {
        is_misuse: true,
        ..failed(message)
    }
}

impl Failure {
    /// Adds the next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Says in front what was being done.
    pub(crate) fn during(mut self, step: &str) -> Failure {
        self.message = format!("{step}: {}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Prints an error with its causes, and its hint on a line of its own.
pub(crate) fn print(error: &anyhow::Error) {
    eprintln!("perfquet-record: {error:#}");
    if let Some(hint) = hint_of(error) {
        eprintln!("hint: {hint}");
    }
}

/// Whether the command line was at fault.
pub(crate) fn is_misuse(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Failure>()
        .is_some_and(|failure| failure.is_misuse)
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
    fn hints_are_found_wherever_they_are() {
        let failure = || failed("it failed").hint("do this");
        let plain = anyhow::Error::new(failure());
        let cause = anyhow::Error::new(failure()).context("step");
        let context = Err::<(), _>(std::io::Error::other("x")).context(failure());
        for error in [plain, cause, context.unwrap_err()] {
            assert_eq!(hint_of(&error), Some("do this"));
            assert!(!is_misuse(&error));
        }
        assert!(is_misuse(&misuse("so not").into()));
    }
}
