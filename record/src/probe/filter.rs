//! Error messages for rejected filters, because the kernel reports only that a filter is invalid.
//!
//! ```text
//! prev_pidd == 0 && next_comm ~ "kw*"      no field prev_pidd; hint: use prev_pid
//! ```
//! (kernel/trace/trace_events_filter.c, Documentation/trace/events.rst)

use std::io;

use perfquet_cli::nearest;
use perfquet_events::event_format::EventFormat;

use crate::failure::{Failure, failed, misuse};

/// Keywords of the syntax, and names that every event has in addition to its fields.
const WORDS: &[&str] = &[
    "cpu",
    "CPU",
    "comm",
    "COMM",
    "stacktrace",
    "STACKTRACE",
    "function",
    "CPUS",
    "ustring",
    "user",
    "kernel",
];

/// The error for an event filter that the kernel rejected.
pub(crate) fn refused(event: &str, filter: &str, format: &[u8], error: &io::Error) -> Failure {
    let mut fields = fields_of(format);
    if let Some(name) = names_in(filter).find(|name| !is_known(name, &fields)) {
        fields.retain(|field| !field.starts_with("common_"));
        let near = nearest(&name, fields.clone());
        let meant = match near.is_empty() {
            true => String::new(),
            false => format!("use {}, or ", near.join(", ")),
        };
        return misuse(format!("{event}: no field {name} in the filter '{filter}'")).hint(format!(
            "{meant}choose from the fields: {}",
            fields.join(", ")
        ));
    }
    fields.retain(|field| !field.starts_with("common_"));
    failed(format!(
        "{event}: the kernel rejected the filter '{filter}': {error}"
    ))
    .hint(format!(
        "write a filter like 'prev_pid == 0 && next_comm ~ \"kw*\"'; fields: {}",
        fields.join(", ")
    ))
}

fn fields_of(format: &[u8]) -> Vec<String> {
    let format = EventFormat::parse(format, 8).unwrap_or_default();
    let fields = format.fields.into_iter().chain(format.common);
    fields.map(|field| field.name).collect()
}

fn is_known(name: &str, fields: &[String]) -> bool {
    fields.iter().any(|field| field == name) || WORDS.contains(&name)
}

/// Returns the names where the kernel expects a field: before an operator, outside quotes.
fn names_in(filter: &str) -> impl Iterator<Item = String> {
    let mut names = Vec::new();
    let mut rest = filter;
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' => {
                let end = rest.get(1..).and_then(|inside| inside.find(first));
                end.map_or(rest.len(), |end| end + 2)
            }
            letter if is_word(letter) => {
                let length = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(length);
                let is_before_operator = after
                    .trim_start()
                    .starts_with(['=', '!', '<', '>', '&', '~']);
                let is_number = word.starts_with(|first: char| first.is_ascii_digit());
                // In "a && b", the operator after a value does not belong to it.
                let is_value = after.trim_start().starts_with("&&");
                if is_before_operator && !is_number && !is_value {
                    names.push(word.trim_end_matches(".ustring").to_owned());
                }
                length
            }
            letter => letter.len_utf8(),
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    names.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &[u8] = b"name: sched_switch\nID: 316\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"%d\", REC->prev_pid\n";

    #[track_caller]
    fn check(filter: &str, message: &str, hint: &str) {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        let failure = refused("sched:sched_switch", filter, FORMAT, &error);
        assert!(failure.to_string().contains(message), "{failure}");
        let said = failure.hint_text().unwrap();
        assert!(said.contains(hint), "{said}");
    }

    #[test]
    fn misspelled_field_gets_the_nearest_name() {
        let fields = "fields: prev_comm, prev_pid";
        check("prev_pidd == 0", "no field prev_pidd", "use prev_pid");
        check(
            "prev_comm == \"a == b\" && (prev_pdi > 3)",
            "no field prev_pdi in the filter",
            "use prev_pid",
        );
        check("zzz & 1", "no field zzz", fields);
        // All names are valid.
        check(
            "prev_pid == 0 && common_pid == prev_pid &&",
            "rejected the filter",
            fields,
        );
        check("prev_pid ==", "rejected the filter", fields);
        check(
            "comm ~ \"x*\" && CPU == 1 && \"q\" == 3",
            "rejected the filter",
            fields,
        );
    }
}
