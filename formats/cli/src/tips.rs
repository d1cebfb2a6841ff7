//! Tips for words of a command line that are not known.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds a tip to an error of this kind, an unknown argument or subcommand, in place of what clap suggests. `tip` has one for the unknown
/// word, or none.
pub fn with_tip(
    mut error: clap::Error,
    kind: ErrorKind,
    tip: impl FnOnce(&str) -> Option<String>,
) -> clap::Error {
    let (word, suggestion) = match kind {
        ErrorKind::InvalidSubcommand => (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        _ => (ContextKind::InvalidArg, ContextKind::SuggestedArg),
    };
    let tip = match error.get(word) {
        Some(ContextValue::String(word)) if error.kind() == kind => tip(word),
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(suggestion);
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
        );
    }
    error
}
