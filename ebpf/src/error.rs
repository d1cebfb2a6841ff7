//! Why a program could not be loaded, in words.

use std::io;

/// What went wrong, by what can be done about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only root may, or CAP_BPF and CAP_PERFMON.
    #[error("not permitted to load programs into the kernel")]
    NotPermitted,
    /// The kernel does not describe itself.
    #[error("this kernel does not describe its types (no /sys/kernel/btf/vmlinux)")]
    NoBtf,
    /// The kernel refused a program; the last lines of its reasons.
    #[error("the kernel refused the program {program}: {reason}")]
    Refused {
        /// Which.
        program: String,
        /// The end of the verifier's log, or the error.
        reason: String,
        /// All of the log.
        log: String,
    },
    /// Anything else.
    #[error("{step}: {reason}")]
    Failed {
        /// What was being done.
        step: String,
        /// Why it failed.
        reason: String,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::NotPermitted => {
                Some("run as root, or give perfquet-record CAP_BPF and CAP_PERFMON")
            }
            Error::NoBtf => Some("it needs a kernel built with CONFIG_DEBUG_INFO_BTF"),
            Error::Refused { .. } => Some("-v shows the whole reason"),
            Error::Failed { .. } => None,
        }
    }

    pub(crate) fn failed(
        step: impl Into<String>,
        error: &(dyn std::error::Error + 'static),
    ) -> Error {
        match root_cause(error) {
            Some(libc::EPERM | libc::EACCES) => Error::NotPermitted,
            _ => Error::Failed {
                step: step.into(),
                reason: chain(error),
            },
        }
    }
}

/// The number of the system's error below, if there is one.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.raw_os_error();
        }
        next = error.source();
    }
    None
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
