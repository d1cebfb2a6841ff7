//! Recognizes a profile of the Firefox Profiler by members of its `meta`.

use memchr::memmem;
use perfquet_events::Guess;

/// Certain with the version of processed profiles, which may be after the head.
pub(super) fn sniff(head: &[u8]) -> Guess {
    let has = |text: &str| memmem::find(head, text.as_bytes()).is_some();
    if !head.trim_ascii_start().starts_with(b"{") {
        return Guess::No;
    }
    if has("\"preprocessedProfileVersion\"") {
        return Guess::Certain;
    }
    let is_profile = has("\"stackwalk\"") || has("\"markerSchema\"") || has("\"processType\"");
    match has("\"meta\"") && has("\"interval\"") && is_profile {
        true => Guess::Likely,
        false => Guess::No,
    }
}
