//! Panels and SQL: reports of a selection and queries of the user, each computed by a process with the command line that a person
//! would type.
//!
//! Like that, a panel shows what its command prints, ends with its request, and cannot take the server with it: a cross join
//! may keep the threads of an engine busy for minutes without a look at what became of its request.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use arrow::ipc::reader::StreamReader;
use perfquet::failure::Misuse;
use serde_json::{Value, json};

use super::engine::{Found, Gone, Late, Limit};
use super::http::{Peer, Request};
use super::tiles::{ids, range};
use super::{Served, Server, grid};
use crate::render::TERMINAL;

/// Reports with rows that the page offers, with their words.
const PANELS: [(&str, &[&str]); 11] = [
    ("findings", &["findings"]),
    ("functions", &["top"]),
    ("threads", &["utilization", "--by", "thread"]),
    ("calls", &["calls"]),
    ("durations", &["durations"]),
    ("syscalls", &["syscalls"]),
    ("waits", &["waits"]),
    ("wakers", &["wakers"]),
    ("locks", &["locks"]),
    ("io", &["io"]),
    ("critical path", &["critical-path"]),
];
/// Rows of a panel.
const MOST_ROWS: usize = 200;
/// Bytes of an answer.
const MOST_BYTES: u64 = 64 << 20;
/// Bytes of notes and errors.
const MOST_NOTES: u64 = 10_000;
const STEP: Duration = Duration::from_millis(10);

/// A command line without the program, as it runs and as a person types it.
pub(super) struct Words {
    pub(super) arguments: Vec<String>,
    pub(super) shown: String,
}

impl Words {
    /// The words of a report, its name first, on the selection of a request; `last` are arguments after the options.
    pub(super) fn of(
        served: &Served,
        request: &Request,
        report: &[String],
        last: &[&str],
    ) -> Result<Words> {
        let (from, to) = range(request)?;
        let mut arguments = report.to_vec();
        arguments.insert(1, served.trace().path.display().to_string());
        // Without any time in the trace, the range would select nothing.
        if served.trace().time_range().is_some() {
            arguments.push(format!("--time={}ns..{}ns", from.max(0), to.max(1)));
        }
        let tids = ids(request)?;
        if !tids.is_empty() {
            let tids: Vec<String> = tids.iter().map(ToString::to_string).collect();
            arguments.push(format!("--tid={}", tids.join(",")));
        }
        if last.iter().any(|word| word.starts_with('-')) {
            arguments.push("--".to_owned());
        }
        arguments.extend(last.iter().map(|word| (*word).to_owned()));
        Ok(Words::plain(arguments))
    }

    /// Words as they are.
    pub(super) fn plain(arguments: Vec<String>) -> Words {
        let is_plain = |word: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
            !word.is_empty() && word.bytes().all(is_plain)
        };
        let typed = arguments.iter().map(|word| match is_plain(word) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        });
        let typed: Vec<String> = typed.collect();
        let shown = format!("perfquet-query {}", typed.join(" "));
        Words { arguments, shown }
    }
}

/// The rows of a report.
pub(super) fn rows(
    server: &Server,
    served: &Served,
    request: &Request,
    peer: &Peer<'_>,
) -> Result<Value> {
    let name = request.parameter("name").unwrap_or_default();
    let Some((_, report)) = PANELS.iter().find(|(panel, _)| *panel == name) else {
        let all: Vec<&str> = PANELS.iter().map(|(panel, _)| *panel).collect();
        bail!(Misuse(format!("name: expected one of {}", all.join(", "))));
    };
    let mut report: Vec<String> = report.iter().map(|word| (*word).to_owned()).collect();
    if name != "findings" {
        report.extend(["-n".to_owned(), MOST_ROWS.to_string()]);
    }
    if name == "functions"
        && let Some(event) = request.parameter("event").filter(|event| !event.is_empty())
    {
        report.push(format!("--event={event}"));
    }
    let words = Words::of(served, request, &report, &[])?;
    if name == "critical path" && ids(request)?.len() != 1 {
        let error = "a critical path is that of one thread: select a single thread";
        return Ok(json!({ "command": words.shown, "error": error }));
    }
    let most = Limit::COMMAND;
    let mut answer = table(server, words, most, peer)?;
    let count = answer["grid"]["rows"].as_array().map_or(0, Vec::len);
    if count >= MOST_ROWS {
        // There may be more of them.
        answer["grid"]["is_cut"] = json!(true);
    }
    Ok(answer)
}

/// The rows of a command as a grid, or why there are none.
pub(super) fn table(server: &Server, words: Words, most: Limit, peer: &Peer<'_>) -> Result<Value> {
    let output = found(server, &words, most, peer)?;
    let Some(mut found) = output.found else {
        return Ok(json!({ "command": words.shown, "error": output.notes }));
    };
    // Columns that only terminals show repeat others.
    let kept: Vec<usize> = (found.columns.fields().iter().enumerate())
        .filter(|(_, field)| !field.metadata().contains_key(TERMINAL))
        .map(|(index, _)| index)
        .collect();
    found.columns = Arc::new(found.columns.project(&kept)?);
    let batches = found.batches.iter().map(|batch| batch.project(&kept));
    found.batches = batches.collect::<Result<_, _>>()?;
    let grid = grid::json(&found)?;
    Ok(json!({ "command": words.shown, "grid": grid, "notes": output.notes }))
}

/// The rows of a command, unless it failed without any.
pub(super) fn found(
    server: &Server,
    words: &Words,
    most: Limit,
    peer: &Peer<'_>,
) -> Result<Output<Found>> {
    let mut arguments = words.arguments.clone();
    let options = ["--format", "arrow"].map(str::to_owned);
    let options = options.into_iter().chain(server.limits.iter().cloned());
    // Before the arguments, of which the last ones may follow `--`.
    arguments.splice(1..1, options);
    let output = run(&server.program, &arguments, "", most, peer, batches)?;
    let is_success = output.is_success;
    Ok(Output {
        found: output
            .found
            .flatten()
            .filter(|found| is_success || !found.batches.is_empty()),
        notes: output.notes,
        is_success,
    })
}

/// The rows of a query over all traces.
pub(super) fn sql(server: &Server, text: &str, limit: Limit, peer: &Peer<'_>) -> Result<Value> {
    let mut arguments = vec!["sql".to_owned()];
    let traces = server.session.traces().iter();
    arguments.extend(traces.map(|trace| trace.path.display().to_string()));
    // Other users of the host can read command lines, but not this pipe.
    arguments.extend(["-f", "-", "--queries-only", "--format", "arrow"].map(str::to_owned));
    arguments.extend(server.limits.iter().cloned());
    let output = run(&server.program, &arguments, text, limit, peer, batches)?;
    match output.found.flatten() {
        Some(found) if output.is_success || found.is_cut => grid::json(&found),
        _ => bail!("{}", output.notes),
    }
}

/// What a process wrote.
pub(super) struct Output<T> {
    pub(super) found: Option<T>,
    pub(super) notes: String,
    pub(super) is_success: bool,
}

/// A process that ends with the request.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a process; `read` takes its output on a thread, and may close it before the end.
pub(super) fn run<T: Send + 'static>(
    program: &Path,
    arguments: &[String],
    input: &str,
    limit: Limit,
    peer: &Peer<'_>,
    read: impl FnOnce(ChildStdout, Limit) -> T + Send + 'static,
) -> Result<Output<T>> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let mut process = Process(child);
    let child = &mut process.0;
    let (stdin, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = input.to_owned();
    // It ends with the process, which may close its stdin before.
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
    let out = std::thread::spawn(move || out.map(|out| read(out, limit)));
    let err = std::thread::spawn(move || err.map(|err| limited(err, MOST_NOTES)));
    let end = Instant::now() + limit.time;
    let status = loop {
        if let Some(status) = process.0.try_wait()? {
            break status;
        }
        if peer.is_gone() {
            return Err(Gone.into());
        }
        if Instant::now() > end {
            return Err(Late::after(limit.time).into());
        }
        std::thread::sleep(STEP);
    };
    let found = out.join().ok().flatten();
    let err = err.join().ok().flatten().unwrap_or_default();
    let notes = String::from_utf8_lossy(&err);
    Ok(Output {
        found,
        notes: notes.trim().replace("perfquet-query: ", ""),
        is_success: status.success(),
    })
}

/// Reads the rows of an Arrow stream up to the limit. Then the pipe is closed, which ends its writer.
fn batches(out: ChildStdout, limit: Limit) -> Option<Found> {
    let reader = StreamReader::try_new(BufReader::new(out), None).ok()?;
    let mut found = Found {
        columns: reader.schema(),
        units: Vec::new(),
        batches: Vec::new(),
        is_cut: false,
    };
    let (mut rows, mut bytes) = (0, 0);
    // Of a writer that fails, the status says so.
    for batch in reader.map_while(Result::ok) {
        let rest = limit.rows - rows;
        found.is_cut = batch.num_rows() > rest || bytes > MOST_BYTES as usize;
        if found.is_cut {
            found
                .batches
                .push(batch.slice(0, batch.num_rows().min(rest)));
            break;
        }
        rows += batch.num_rows();
        bytes += batch.get_array_memory_size();
        found.batches.push(batch);
    }
    Some(found)
}

/// Reads up to a byte more than the limit. Then the pipe is closed, which ends its writer.
fn limited(from: impl Read, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What was read before an error is shown.
    let _ = from.take(most + 1).read_to_end(&mut bytes);
    bytes
}
