//! Errors of the command line that clap cannot find.

/// An invalid combination of arguments.
#[derive(Debug)]
pub(crate) struct Misuse {
    what: String,
    pub(crate) hint: &'static str,
}

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Misuse {}

/// Returns the error with the next step.
pub(crate) fn misuse(what: String, hint: &'static str) -> anyhow::Error {
    Misuse { what, hint }.into()
}
