//! Forms of a probe in the kernel's probe files.

/// Kind of the probed place, which determines the file and the required permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The kernel.
    Kernel,
    /// A program or library.
    User,
}

/// One form of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    /// `p`, `r`, or `f` for fprobe; optionally with the maximum number of pending returns.
    pub(crate) head: String,
    /// Place and arguments, in the kernel's syntax.
    pub(crate) body: String,
}

impl Form {
    pub(crate) fn new(head: impl Into<String>, body: impl Into<String>) -> Form {
        Form {
            head: head.into(),
            body: body.into(),
        }
    }
}
