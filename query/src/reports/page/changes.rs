//! What changed between two traces: the answers of `diff` by function, by thread, and of calls, with its test of significance.

use anyhow::Result;
use serde_json::{Value, json};

use perfquet::Session;
use perfquet::unit::UNIT;

use super::calls::objects;
use super::{answered, unless_failed};
use crate::filter::Filters;
use crate::render::{Answered, Section};
use crate::reports::diff::Diff;

/// Rows of a table.
const ROWS: &str = "200";

/// A table for each comparison that the traces allow.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    events: &[String],
    omitted: &mut Vec<String>,
) -> Result<Vec<Value>> {
    let has_calls = session.has_rows("calls");
    let has_only_calls = events.is_empty() && has_calls && !session.has_rows("samples");
    let event = events.first().map(|event| ["--event", event]);
    let of_event = |words: &[&'static str]| -> Vec<String> {
        let event = event.iter().flatten().copied();
        event
            .chain(words.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    let calls = |words: &[&str]| -> Vec<String> {
        let words = ["--calls"].iter().chain(words);
        words.map(|&word| word.to_owned()).collect()
    };
    let mut wanted = Vec::new();
    if !has_only_calls {
        wanted.push(("functions", "function", of_event(&[])));
        wanted.push(("threads", "comm", of_event(&["--by", "comm"])));
    }
    if has_calls && events.is_empty() {
        wanted.push(("calls", "function", calls(&[])));
        wanted.push(("medians of calls", "function", calls(&["--metric", "p50"])));
        wanted.push(("threads of calls", "comm", calls(&["--by", "comm"])));
    }
    let mut found = Vec::new();
    for (title, key, words) in wanted {
        let options = [
            words.clone(),
            vec!["-n".to_owned(), ROWS.to_owned()],
            filters.arguments(),
        ];
        let answer = perfquet_cli::terminal::muted(|| answered::<Diff>(session, &options.concat()));
        let Some(Answered {
            section, summary, ..
        }) = unless_failed(answer, title, omitted)?
        else {
            continue;
        };
        if let Section::Table(rows) = section {
            let unit = rows.schema_ref().column_with_name("before");
            let unit = unit.and_then(|(_, field)| field.metadata().get(UNIT).cloned());
            let command = [vec!["diff".to_owned()], words].concat();
            found.push(json!({
                "title": title,
                "key": key,
                "unit": unit,
                "summary": summary,
                "rows": objects(&rows)?,
                "command": command,
            }));
        }
    }
    Ok(found)
}
