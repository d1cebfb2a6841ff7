//! The instructions and source lines of a function, as `annotate` prints them.
//!
//! ```text
//!    1.20   11a0  ╭► cmp     %eax,-0x4(%rbp)
//! ```
//! Lines are sent as text with the share that they begin with, which the page shades.

use std::io::Read;
use std::process::ChildStdout;

use anyhow::{Result, bail};
use perfquet::failure::Misuse;
use serde_json::{Value, json};

use super::engine::Limit;
use super::http::{Peer, Request};
use super::panels::{self, Words};
use super::{Served, Server};

/// Bytes of a listing.
const MOST_BYTES: u64 = 2 << 20;

/// Events side by side.
const MOST_EVENTS: usize = 8;

/// Answers `function` in `from`, `to` and `ids`; `module`, `by` and any number of `event` if there are any.
pub(super) fn answer(
    server: &Server,
    served: &Served,
    request: &Request,
    peer: &Peer<'_>,
) -> Result<Value> {
    let function = request.parameter("function").unwrap_or_default();
    if function.is_empty() {
        bail!(Misuse("function: expected a name".to_owned()));
    }
    let mut report = vec!["annotate".to_owned()];
    if let Some(module) = request
        .parameter("module")
        .filter(|module| !module.is_empty())
    {
        report.push(format!("--module={module}"));
    }
    let events = request.parameters("event");
    if events.len() > MOST_EVENTS {
        bail!(Misuse(format!("event: expected at most {MOST_EVENTS}")));
    }
    report.extend(events.iter().map(|event| format!("--event={event}")));
    match request.parameter("by").as_deref() {
        None | Some("" | "instruction") => {}
        Some("line") => report.push("--by=line".to_owned()),
        Some(_) => bail!(Misuse("by: expected instruction or line".to_owned())),
    }
    if request.parameter("all").as_deref() == Some("1") {
        report.push("--all".to_owned());
    }
    let words = Words::of(served, request, &report, &[&function])?;
    let limit = Limit::COMMAND;
    let mut arguments = words.arguments.clone();
    arguments.splice(1..1, server.limits.iter().cloned());
    let output = panels::run(&server.program, &arguments, "", limit, peer, text)?;
    let (text, is_cut) = output.found.unwrap_or_default();
    if !output.is_success {
        return Ok(json!({ "command": words.shown, "error": output.notes }));
    }
    Ok(json!({
        "command": words.shown, "lines": lines(&text), "notes": output.notes, "is_cut": is_cut,
    }))
}

/// Reads the text up to the limit. Then the pipe is closed, which ends its writer.
fn text(out: ChildStdout, _: Limit) -> (String, bool) {
    let mut bytes = Vec::new();
    // What was read before an error is shown.
    let _ = out.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    let is_cut = bytes.len() as u64 > MOST_BYTES;
    (String::from_utf8_lossy(&bytes).into_owned(), is_cut)
}

/// Lines with their percentages: the largest of the first numbers of a line, one for each event that has any there. The number of a source
/// line is none.
fn lines(text: &str) -> Vec<Value> {
    let line = |line: &str| {
        let words = line.split_whitespace();
        let shares = words.map_while(|word| word.parse().ok().filter(|_| word.contains('.')));
        let share: Option<f64> = match line.starts_with(' ') {
            true => shares.reduce(f64::max),
            false => None,
        };
        json!([share, line])
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_lines() {
        let text = "mix: 62.09% of cpu-clock\n   27.55  1273 │  │  add     $0x1,%esi\n            20    │   x / 7;\n  3.5 not\n   1.00   27.50  1273  add\n            27.50  1273  add\n";
        let shares: Vec<Value> = lines(text).iter().map(|line| line[0].clone()).collect();
        assert_eq!(
            shares,
            [
                json!(null),
                json!(27.55),
                json!(null),
                json!(3.5),
                json!(27.5),
                json!(27.5),
            ]
        );
    }
}
