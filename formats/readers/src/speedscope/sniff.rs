//! Recognizes a profile of speedscope by its schema, or by the members of its parts.

use memchr::memmem;
use perfquet_events::Guess;

/// Certain with the schema; likely with profiles of speedscope's types.
pub(super) fn sniff(head: &[u8]) -> Guess {
    let head = head.trim_ascii_start();
    let has = |text: &str| memmem::find(head, text.as_bytes()).is_some();
    if !head.starts_with(b"{") {
        return Guess::No;
    }
    if has("speedscope.app/file-format-schema.json") {
        return Guess::Certain;
    }
    let is_profile = has("\"profiles\"") && (has("\"sampled\"") || has("\"evented\""));
    match is_profile
        || (has("\"shared\"") && has("\"frames\"") && has("\"name\"") && has("\"exporter\""))
    {
        true => Guess::Likely,
        false => Guess::No,
    }
}
