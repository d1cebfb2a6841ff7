//! Errors of loading and attaching programs.

use std::io;

/// Error, by the possible remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Requires root, or CAP_BPF and CAP_PERFMON.
    #[error("not permitted to load BPF programs")]
    NotPermitted,
    /// The kernel has no BTF.
    #[error("this kernel does not describe its types (no /sys/kernel/btf/vmlinux)")]
    NoBtf,
    /// The kernel rejected a program; with the last lines of the reason.
    #[error("the kernel rejected the BPF program {program}: {reason}")]
    Refused {
        /// The program.
        program: String,
        /// The end of the verifier's log, or the error.
        reason: String,
        /// The whole log.
        log: String,
    },
    /// Any other error.
    #[error("{step}: {reason}")]
    Failed {
        /// The step that failed.
        step: String,
        /// The reason of the failure.
        reason: String,
    },
}

impl Error {
    /// Returns an action for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::NotPermitted => {
                Some("run as root, or grant perfquet-record CAP_BPF and CAP_PERFMON")
            }
            Error::NoBtf => Some("use a kernel built with CONFIG_DEBUG_INFO_BTF"),
            Error::Refused { .. } => Some("use -v for the whole verifier log"),
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

/// The error number of the innermost system error, if there is one.
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
