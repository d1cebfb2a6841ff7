//! Names of calls as our exporters write them, to Chrome's trace events, Perfetto, speedscope and the Firefox Profiler.
//!
//! ```text
//! vfs_read                      a call with entry and exit
//! vfs_read (exit not seen)      its duration is unknown
//! vfs_read (entry not seen)     it began before the recording
//! [unknown]                     a function without a name, and no module
//! ```

use perfquet_events::event::Function;

const EXIT_NOT_SEEN: &[u8] = b" (exit not seen)";
const ENTRY_NOT_SEEN: &[u8] = b" (entry not seen)";

/// The name of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallName<'a> {
    pub(crate) function: &'a [u8],
    pub(crate) is_entry_seen: bool,
    pub(crate) is_exit_seen: bool,
}

impl<'a> CallName<'a> {
    pub(crate) fn of(name: &'a [u8]) -> CallName<'a> {
        let entry_not_seen = name.strip_suffix(ENTRY_NOT_SEEN);
        let exit_not_seen = name.strip_suffix(EXIT_NOT_SEEN);
        CallName {
            function: entry_not_seen.or(exit_not_seen).unwrap_or(name),
            is_entry_seen: entry_not_seen.is_none(),
            is_exit_seen: exit_not_seen.is_none(),
        }
    }
}

/// The function of a call with this name and module.
pub(crate) fn function<'a>(name: &'a [u8], module: &'a [u8]) -> Function<'a> {
    match (name, module) {
        (b"[unknown]" | b"", b"") => Function::Unknown,
        (name, module) => Function::Named { name, module },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_was_not_seen() {
        let of = |name: &'static str| {
            let name = CallName::of(name.as_bytes());
            (name.function, name.is_entry_seen, name.is_exit_seen)
        };
        assert_eq!(of("read"), (&b"read"[..], true, true));
        assert_eq!(of("read (exit not seen)"), (&b"read"[..], true, false));
        assert_eq!(of("read (entry not seen)"), (&b"read"[..], false, true));
    }
}
