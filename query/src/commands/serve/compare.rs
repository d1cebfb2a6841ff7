//! Two selections compared, of one trace or of two, as `diff` prints them.

use anyhow::{Result, bail};
use perfquet::failure::Misuse;
use serde_json::Value;

use super::engine::Limit;
use super::http::{Peer, Request};
use super::panels::{self, Words};
use super::tiles::{ids, integer};
use super::{Served, Server};

/// What can be compared, as in the command line.
const KEYS: [&str; 8] = [
    "function", "module", "stack", "comm", "pid", "cpu", "event", "syscall",
];
const METRICS: [&str; 7] = ["self", "total", "count", "avg", "p50", "p95", "p99"];
/// Rows of a comparison.
const MOST_ROWS: &str = "200";

/// Answers `trace` and `other`, the ranges `from` to `to` of the first and `from2` to `to2` of the second, and `by`, `metric`, `per`.
pub(super) fn answer(
    server: &Server,
    served: &Served,
    request: &Request,
    peer: &Peer<'_>,
) -> Result<Value> {
    let number = integer(request, "other")?;
    let other = usize::try_from(number)
        .ok()
        .and_then(|number| server.each.get(number));
    let Some(other) = other else {
        bail!(Misuse(format!(
            "other: expected a number below {}",
            server.each.len()
        )));
    };
    let path = |served: &Served| served.trace().path.display().to_string();
    let (before, after) = (path(served), path(other));
    let mut arguments = vec!["diff".to_owned(), before.clone()];
    if before != after {
        arguments.push(after);
    }
    let sides = [
        (served, "before", "from", "to"),
        (other, "after", "from2", "to2"),
    ];
    for (served, option, from, to) in sides {
        let (from, to) = (integer(request, from)?, integer(request, to)?);
        if from >= to {
            bail!(Misuse("from, to: expected ranges".to_owned()));
        }
        // Without any time in a trace, the range would select nothing.
        if served.trace().time_range().is_some() {
            arguments.push(format!(
                "--{option}-time={}ns..{}ns",
                from.max(0),
                to.max(1)
            ));
        }
    }
    for (name, known) in [
        ("by", &KEYS[..]),
        ("metric", &METRICS),
        ("per", &["run", "second", "total"]),
    ] {
        let value = request.parameter(name).unwrap_or_default();
        if value.is_empty() {
            continue;
        }
        if !known.contains(&value.as_str()) {
            bail!(Misuse(format!(
                "{name}: expected one of {}",
                known.join(", ")
            )));
        }
        arguments.push(format!("--{name}={value}"));
    }
    let tids: Vec<String> = ids(request)?.iter().map(ToString::to_string).collect();
    if !tids.is_empty() {
        arguments.push(format!("--tid={}", tids.join(",")));
    }
    arguments.extend(["-n", MOST_ROWS].map(str::to_owned));
    let limit = Limit::COMMAND;
    panels::table(server, Words::plain(arguments), limit, peer)
}
