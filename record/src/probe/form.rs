//! A probe as the kernel's probe files take it.

/// What kind of place is probed; decides about the file, and about who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The kernel.
    Kernel,
    /// A program or library.
    User,
}

/// One way to write a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    /// `p`, `r`, `f` for functions by fprobe; with the number of returns that may be awaited at once.
    pub(crate) head: String,
    /// The place and the arguments, in the kernel's words.
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
