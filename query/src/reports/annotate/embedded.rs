//! The code of the hottest functions for a page: what the command prints of each, or why it prints nothing.
//!
//! ```text
//! cpu-clock   mix     62.09%   41 lines           step   3.10%   no code: …
//! ```

use anyhow::Result;
use clap::{Args, FromArgMatches};
use perfquet::Session;
use serde_json::{Value, json};

use super::Annotate;
use super::code::Codes;
use super::listed;
use super::sampled::Sampled;
use super::source_text::SourceText;
use crate::render::shaded_lines;

/// Bytes of the lines of a function; the command prints the others.
const MOST_BYTES: usize = 48 << 10;
/// Functions are at least this part of the samples, in percent: below, there is little to see.
const LEAST_PERCENT: f64 = 0.1;

/// How much a page has of the code.
pub(in crate::reports) struct Bounds {
    pub(in crate::reports) functions: usize,
    /// Bytes of all lines, of which the functions use up their part.
    pub(in crate::reports) bytes: usize,
}

/// The hottest functions of an event with their lines or the reason why there are none, from the options of the command.
pub(in crate::reports) fn hottest(
    session: &Session,
    event: &str,
    filters: &[String],
    bounds: &mut Bounds,
) -> Result<Vec<Value>> {
    let annotate = parsed(session, event, filters)?;
    let subjects = annotate.subjects(session)?;
    let condition = annotate.filters.condition(session)?;
    let sampled = Sampled::query(session, &subjects, &condition)?;
    let mut codes = Codes::new(session, &subjects, &condition, &annotate.symbol_options()?);
    let mut source = SourceText::new(Vec::new());
    let names: Vec<&str> = (subjects.iter())
        .map(|subject| subject.name.as_str())
        .collect();
    let mut all = Vec::new();
    for (function, hits) in sampled.by_weight().into_iter().take(bounds.functions) {
        let percent = match (hits.total.first(), sampled.total.first()) {
            (Some(own), Some(all)) => own.percent_of(*all),
            _ => 0.0,
        };
        if percent < LEAST_PERCENT {
            break;
        }
        let mut found = json!({
            "event": event, "function": function.name, "module": function.module,
            "percent": (percent * 100.0).round() / 100.0,
        });
        match annotate.annotated(&mut codes, &mut source, (function, hits), &sampled)? {
            Ok(annotated) => {
                let listed = listed::instructions(&annotated, &names, &mut source, false);
                let lines = shaded_lines(&listed);
                let most = MOST_BYTES.min(bounds.bytes);
                let (kept, bytes) = fitting(&lines, most);
                bounds.bytes -= bytes;
                found["lines"] = json!(lines[..kept]);
                found["omitted"] = json!(lines.len() - kept);
            }
            Err(reason) => found["reason"] = json!(reason),
        }
        all.push(found);
    }
    Ok(all)
}

/// The command as a person types it for this event.
fn parsed(session: &Session, event: &str, filters: &[String]) -> Result<Annotate> {
    let path = session.traces()[0].path.clone().into_os_string();
    let words = [format!("--event={event}")].into_iter();
    let words = words.chain(filters.iter().cloned());
    let words = words.map(std::ffi::OsString::from);
    let name = std::ffi::OsString::from("annotate");
    let all = std::iter::once(name)
        .chain(words)
        .chain(["--".into(), path]);
    let matches =
        Annotate::augment_args(clap::Command::new("annotate")).try_get_matches_from(all)?;
    Ok(Annotate::from_arg_matches(&matches)?)
}

/// Number of the first lines that have at most as many bytes, and their bytes.
fn fitting(lines: &[(Option<f64>, String)], most: usize) -> (usize, usize) {
    let mut bytes = 0;
    for (place, (_, line)) in lines.iter().enumerate() {
        if bytes + line.len() + 1 > most {
            return (place, bytes);
        }
        bytes += line.len() + 1;
    }
    (lines.len(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_their_bytes() {
        let line = |text: &str| (None, text.to_owned());
        let lines = [line("ab"), line("cde"), line("f")];
        assert_eq!(fitting(&lines, 100), (3, 9));
        assert_eq!(fitting(&lines, 7), (2, 7));
        assert_eq!(fitting(&lines, 6), (1, 3));
        assert_eq!(fitting(&lines, 2), (0, 0));
    }
}
