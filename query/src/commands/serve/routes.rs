//! The paths of the server and what answers them.
//!
//! ```text
//! GET  /, /explorer.js, /explorer.css            the page
//! GET  /api/meta                                 traces
//! GET  /api/tracks?trace=0                       rows of its timeline, losses
//! GET  /api/active?trace=0&from=…&to=…           threads with events there
//! GET  /api/progress?trace=0                     how far its index is
//! GET  /api/tile?trace=0&kind=calls&from=…&to=…&step=…&ids=…
//! GET  /api/detail?trace=0&kind=events&id=…&from=…&to=…
//! GET  /api/panel?trace=0&name=functions&from=…&to=…&ids=…
//! GET  /api/flame?trace=0&from=…&to=…&ids=…&event=…  stacks as a tree
//! GET  /api/code?trace=0&from=…&to=…&function=…  instructions of a function
//! GET  /api/diff?trace=0&from=…&to=…&other=1&from2=…&to2=…
//! GET  /api/counters?trace=0                     counters that can be drawn as lines
//! GET  /api/library                              tables, columns and functions, for completion
//! POST /api/tab?id=…&open=1                      a tab was opened, or closed
//! POST /api/sql                                  {"sql": "SELECT …", "rows": 1000, "seconds": 60}
//! ```
//! Nothing but these lists is read: no path names a file.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use perfquet::failure::Misuse;
use serde_json::{Value, json};

use super::engine::{Gone, Late, Limit};
use super::http::{Answer, Peer, Request};
use super::tiles::{self, Window, ids, integer};
use super::{
    Served, Server, active, calls, code, compare, counters, details, flame, library, panels, states,
};

const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<title>perfquet</title>\n<link rel=\"icon\" href=\"data:,\">\n",
    "<link rel=\"stylesheet\" href=\"/explorer.css\">\n</head>\n<body>\n",
    "<noscript>The explorer needs JavaScript.</noscript>\n<script src=\"/explorer.js\"></script>\n</body>\n</html>\n",
);
const SCRIPT: &str = include_str!("../../../page/dist/explorer.js");
const STYLE: &str = include_str!("../../../page/dist/explorer.css");

/// The page may run its own script and ask this server, nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
    frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
/// Rows and time of a query that asks for more.
const MOST_ROWS: u64 = 100_000;
const MOST_SECONDS: u64 = 600;

pub(super) fn answer(server: &Server, request: &Request, peer: &Peer<'_>) -> Answer {
    if let Err(refused) = server.access.check(request) {
        return refused.with("Content-Security-Policy", POLICY);
    }
    let begin = Instant::now();
    let answer = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => Ok(Answer::new(200, "text/html; charset=utf-8", PAGE)),
        ("GET", "/explorer.js") => Ok(Answer::new(200, "text/javascript; charset=utf-8", SCRIPT)),
        ("GET", "/explorer.css") => Ok(Answer::new(200, "text/css; charset=utf-8", STYLE)),
        ("GET", "/api/meta") => meta(server).map(|value| Answer::json(&value)),
        ("GET", "/api/tracks") => tracks(server, request, peer),
        ("GET", "/api/progress") => of_trace(server, request).map(|served| {
            Answer::json(&json!({
                "thousandths": served.progress.thousandths(), "is_done": served.is_indexed(),
            }))
        }),
        ("GET", "/api/active") => of_trace(server, request)
            .and_then(|served| {
                let _answering = served.progress.answering();
                active::answer(served, request, peer)
            })
            .map(|value| Answer::json(&value)),
        ("GET", "/api/tile") => tile(server, request, peer),
        ("GET", "/api/detail") => of_trace(server, request)
            .and_then(|served| details::answer(served, request, peer))
            .map(|value| Answer::json(&value)),
        ("GET", "/api/panel") => of_trace(server, request)
            .and_then(|served| panels::rows(server, served, request, peer))
            .map(|value| Answer::json(&value)),
        ("GET", "/api/flame") => of_trace(server, request)
            .and_then(|served| flame::answer(server, served, request, peer))
            .map(|value| Answer::json(&value)),
        ("GET", "/api/code") => of_trace(server, request)
            .and_then(|served| code::answer(server, served, request, peer))
            .map(|value| Answer::json(&value)),
        ("GET", "/api/diff") => of_trace(server, request)
            .and_then(|served| compare::answer(server, served, request, peer))
            .map(|value| Answer::json(&value)),
        ("GET", "/api/counters") => of_trace(server, request)
            .and_then(|served| counters::answer(served, request, peer))
            .map(|value| Answer::json(&value)),
        ("GET", "/api/library") => library::answer(server).map(|value| Answer::json(&value)),
        ("POST", "/api/sql") => sql(server, request, peer).map(|value| Answer::json(&value)),
        ("POST", "/api/tab") => server.tabs.take(request).map(|()| Answer::text(200, "")),
        (_, "/api/tab") => Ok(Answer::text(405, "expected POST\n").with("Allow", "POST")),
        (_, "/api/sql") => Ok(Answer::text(405, "expected POST\n").with("Allow", "POST")),
        ("GET", _) => Ok(Answer::text(404, "no such page\n")),
        _ => Ok(Answer::text(405, "expected GET\n").with("Allow", "GET")),
    };
    let answer = answer.unwrap_or_else(|error| failure(&error));
    let time = begin.elapsed().as_secs_f64() * 1e3;
    answer
        .with("Content-Security-Policy", POLICY)
        .with("Server-Timing", format!("all;dur={time:.1}"))
}

/// The answer of an error; the page shows its text.
fn failure(error: &anyhow::Error) -> Answer {
    let status = if error.is::<Gone>() {
        499
    } else if error.is::<Late>() {
        504
    } else if error.is::<Misuse>() {
        400
    } else {
        422
    };
    Answer::text(status, &format!("{error:#}\n"))
}

fn of_trace<'s>(server: &'s Server, request: &Request) -> Result<&'s Served> {
    let number = integer(request, "trace")?;
    let served = usize::try_from(number)
        .ok()
        .and_then(|number| server.each.get(number));
    match served {
        Some(served) => Ok(served.as_ref()),
        None => bail!(Misuse(format!(
            "trace: expected a number below {}",
            server.each.len()
        ))),
    }
}

fn meta(server: &Server) -> Result<Value> {
    let traces = server.session.traces().iter().zip(&server.each);
    let traces = traces.map(|(trace, served)| {
        let facts: Vec<Value> = (trace.facts.iter())
            .map(|(name, value)| json!([name, value]))
            .collect();
        let rows = trace.tables.iter().map(|table| table.rows());
        json!({
            "name": trace.name,
            "path": trace.path.display().to_string(),
            "is_complete": trace.is_complete(),
            // A string: scripts cannot read such integers.
            "start": served.start.to_string(),
            "length": served.end.saturating_sub(served.start).saturating_add(1),
            "rows": rows.fold(0, u64::saturating_add),
            "recorded": trace.length(),
            "events": served.events,
            "calls": trace.table("calls").map_or(0, perfquet::TraceTable::rows),
            "facts": facts,
        })
    });
    Ok(json!({ "version": env!("CARGO_PKG_VERSION"), "traces": traces.collect::<Vec<_>>() }))
}

fn tracks(server: &Server, request: &Request, peer: &Peer<'_>) -> Result<Answer> {
    let served = of_trace(server, request)?;
    let _answering = served.progress.answering();
    cached(server, served, request, || served.tracks(peer))
}

/// The answer to a request, from the cache if it has been given before.
fn cached(
    server: &Server,
    served: &Served,
    request: &Request,
    make: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<Answer> {
    let key = format!("{}?{}", request.path, request.query);
    if let Some(tile) = server.tiles.get(&key) {
        let mut answer = Answer::new(200, "application/json", tile.as_slice());
        answer.is_compressed = true;
        return Ok(answer);
    }
    let answer = Answer::new(200, "application/json", make()?).compressed();
    if answer.is_compressed && served.trace().is_complete() {
        server.tiles.put(key, answer.body.clone());
    }
    Ok(answer)
}

fn tile(server: &Server, request: &Request, peer: &Peer<'_>) -> Result<Answer> {
    let served = of_trace(server, request)?;
    let (window, ids) = (Window::of(request)?, ids(request)?);
    let kind = request.parameter("kind").unwrap_or_default();
    let _answering = served.progress.answering();
    if matches!(kind.as_str(), "states" | "cpus") && served.is_sampled(peer)? {
        let tile = match kind.as_str() {
            "states" => served.about_threads(&window, &ids, peer)?,
            _ => served.about_cpus(&window, &ids, peer)?,
        };
        return Ok(Answer::new(200, "application/json", tile));
    }
    cached(server, served, request, || match kind.as_str() {
        "events" => tiles::events(served, &window, &ids, peer),
        "samples" => tiles::samples(served, &window, "tid", &ids, peer),
        "cpusamples" => tiles::samples(served, &window, "cpu", &ids, peer),
        "calls" => calls::tile(served, &window, &ids, peer),
        "states" => served.with_index(peer, |index| states::threads(index, &window, &ids, peer)),
        "cpus" => served.with_index(peer, |index| states::cpus(index, &window, &ids, peer)),
        _ => bail!(Misuse(
            "kind: expected events, samples, cpusamples, calls, states or cpus".to_owned()
        )),
    })
}

/// Runs a query of the user over all traces.
fn sql(server: &Server, request: &Request, peer: &Peer<'_>) -> Result<Value> {
    // A form of another site cannot send this type.
    if request.header("content-type") != Some("application/json") {
        bail!(Misuse("expected application/json".to_owned()));
    }
    let asked: Value = serde_json::from_slice(&request.body)
        .map_err(|error| Misuse(format!("expected JSON: {error}")))?;
    let text = asked["sql"]
        .as_str()
        .context(Misuse("sql: expected text".to_owned()))?;
    let number =
        |name: &str, usual: u64, most: u64| asked[name].as_u64().unwrap_or(usual).clamp(1, most);
    let limit = Limit {
        rows: number("rows", 1000, MOST_ROWS) as usize,
        time: Duration::from_secs(number("seconds", 60, MOST_SECONDS)),
    };
    panels::sql(server, text, limit, peer)
}
