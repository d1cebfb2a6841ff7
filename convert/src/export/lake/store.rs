//! `--to lake -o s3://bucket/lake`: a lake in an object store.
//!
//! ```text
//! traces that the store lacks ─► a lake in a temporary directory ─► perfquet-query publish, a child, which has the HTTP client
//!
//! ◄ {"version":"0.1.0","partition":["date","host"],"summaries":false}   the state of the store; without a partition, it is empty
//! ► {"needed":[["perf-1f…","8d41…"]]}                          names and checksums of traces
//! ◄ {"needed":[true]}
//! ► {"publish":"/tmp/perfquet-passing-x/lake"}
//! ◄ {"published":1,"unchanged":0,"files":24,"bytes":90210,"abandoned":0}
//! ► {"administration":"/tmp/perfquet-passing-x/lake"}           writes head, records and manifests there
//! ◄ {"traces":200}
//! ► {"retain":"2026-11-01"}
//! ◄ {"removed":3,"kept":0,"abandoned":0}
//! ```
//! The child ends when its stdin does, so it does not outlive this process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use perfquet_trace::store::Directory;
use serde_json::{Value, json};

use super::files::Lake;
use super::partition::Partition;
use super::{Options, Plan, Summary, first_date, publish_trace};
use crate::misuse::misuse;
use crate::passing::Passing;

const PROGRAM: &str = "perfquet-query";
/// Traces are uploaded once those in the temporary directory have this size.
const BATCH_BYTES: u64 = 256 << 20;
/// Traces whose names are asked for at once.
const AT_ONCE: usize = 1_000;

/// Publishes traces in a lake in an object store.
pub(super) fn publish(traces: &[&Path], url: &str, options: Options<'_>) -> Result<Summary> {
    if options.compact {
        return Err(misuse(
            format!("{url}: --compact: files of a lake in an object store cannot be merged"),
            "merge those of a lake in a directory: perfquet-convert --to lake -o DIR --compact",
        ));
    }
    let mut publisher = Publisher::start(url)?;
    let partition = publisher.partition(options.partition)?;
    publisher.summaries |= options.summaries;
    let mut summary = Summary::default();
    for traces in traces.chunks(AT_ONCE) {
        let needed = publisher.needed(traces, &partition)?;
        summary.unchanged += (traces.len() - needed.len()) as u64;
        publisher.send(&needed, &partition, &mut summary)?;
    }
    if let Some(retain) = options.retain {
        let answer = publisher.ask(&json!({ "retain": first_date(retain)? }))?;
        summary.removed = count(&answer, "removed");
        summary.kept = count(&answer, "kept");
        summary.abandoned += count(&answer, "abandoned");
    }
    publisher.finish()?;
    Ok(summary)
}

/// Copies head, records and manifests of a lake in an object store to a temporary directory, which then is a lake without rows.
pub(in super::super) fn administration(url: &str) -> Result<Passing> {
    let mut publisher = Publisher::start(url)?;
    if publisher.keys.is_none() {
        bail!(
            "{url}: expected a lake, found nothing\nhint: write one with: perfquet-convert TRACE... --to lake -o {url}"
        );
    }
    let passing = Passing::create()?;
    publisher.ask(&json!({ "administration": passing.lake() }))?;
    publisher.finish()?;
    Ok(passing)
}

/// The program that uploads.
struct Publisher {
    url: String,
    child: Child,
    /// `None` after it was told to end.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    /// Keys of the lake; `None` if there is none yet.
    keys: Option<Vec<String>>,
    /// Whether traces are published with summaries.
    summaries: bool,
}

impl Publisher {
    fn start(url: &str) -> Result<Publisher> {
        let program = beside_this_one().unwrap_or_else(|| PROGRAM.into());
        let mut command = Command::new(&program);
        command
            .args(["publish", "--converse", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C ends this process, whose end is the end of its input.
            .process_group(0);
        let started = command.spawn().map_err(|error| {
            anyhow!(
                "cannot start {}, which reads and writes object stores: {error}\nhint: install {PROGRAM} beside perfquet-convert or in PATH; or write the lake to a directory and copy that",
                program.display()
            )
        });
        let mut child = started?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let mut publisher = Publisher {
            url: url.to_owned(),
            child,
            to,
            from: BufReader::new(from.context("a pipe")?),
            keys: None,
            summaries: false,
        };
        let hello = publisher
            .answer()
            .map_err(|error| match error.is::<Ended>() {
                true => anyhow!(
                    "{}: cannot read and write object stores\nhint: use a {PROGRAM} of version {}",
                    program.display(),
                    env!("CARGO_PKG_VERSION")
                ),
                false => error,
            })?;
        let version = hello["version"].as_str().unwrap_or_default();
        if version != env!("CARGO_PKG_VERSION") {
            bail!(
                "{}: expected version {}, found {version:?}",
                program.display(),
                env!("CARGO_PKG_VERSION")
            );
        }
        publisher.keys = serde_json::from_value(hello["partition"].clone())?;
        publisher.summaries = hello["summaries"].as_bool().unwrap_or_default();
        Ok(publisher)
    }

    /// The partition of the lake, with the values that are given.
    fn partition(&self, given: Option<&Partition>) -> Result<Partition> {
        let url = &self.url;
        match (given, &self.keys) {
            (Some(given), Some(keys)) if given.keys() != *keys => bail!(
                "{url}: --partition {}: expected the keys of the lake, {}",
                given.keys().join(","),
                keys.join(",")
            ),
            (Some(given), _) => Ok(given.clone()),
            (None, Some(keys)) => {
                Partition::parse(&keys.join(",")).map_err(|message| anyhow!("{url}: {message}"))
            }
            (None, None) => Ok(Partition::default()),
        }
    }

    /// The traces that the lake lacks, or has in another state.
    fn needed<'t>(&mut self, traces: &[&'t Path], partition: &Partition) -> Result<Vec<&'t Path>> {
        let mut names = Vec::new();
        for trace in traces {
            let directory = Directory::open(trace)?;
            let plan = Plan::new(trace, &directory, partition, self.summaries)?;
            names.push((plan.id, plan.content));
        }
        let answer = self.ask(&json!({ "needed": names }))?;
        let needed: Vec<bool> = serde_json::from_value(answer["needed"].clone())?;
        if needed.len() != traces.len() {
            bail!("{PROGRAM}: expected {} answers", traces.len());
        }
        let traces = traces.iter().zip(needed).filter(|(_, needed)| *needed);
        Ok(traces.map(|(trace, _)| *trace).collect())
    }

    /// Writes traces to a temporary lake, and uploads that, several at once while they are small.
    fn send(&mut self, traces: &[&Path], partition: &Partition, sum: &mut Summary) -> Result<()> {
        let mut rest = traces;
        while !rest.is_empty() {
            let passing = Passing::create()?;
            let folder = passing.lake();
            let lake = Lake::open(&folder, Some(partition), self.summaries)?;
            let mut staged = Summary::default();
            while let Some((trace, others)) = rest.split_first()
                && staged.bytes < BATCH_BYTES
            {
                publish_trace(trace, &lake, partition, &mut staged)?;
                rest = others;
            }
            let answer = self.ask(&json!({ "publish": folder }))?;
            sum.published += count(&answer, "published");
            sum.unchanged += count(&answer, "unchanged") + staged.unchanged;
            sum.files += count(&answer, "files");
            sum.bytes += count(&answer, "bytes");
            sum.abandoned += count(&answer, "abandoned");
            // Of traces that another process has published in the meantime, the rows are not known.
            if count(&answer, "unchanged") == 0 {
                sum.rows += staged.rows;
            }
            sum.omitted.extend(staged.omitted);
        }
        Ok(())
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        let to = self.to.as_mut().context("a running program")?;
        let sent = writeln!(to, "{request}").and_then(|()| to.flush());
        match (sent, self.answer()) {
            (Ok(()), answer) => answer,
            // What it says is more than that it does not listen.
            (Err(_), Err(error)) => Err(error),
            (Err(error), Ok(_)) => Err(error).context(PROGRAM),
        }
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err(Ended.into());
        }
        let answer: Value = serde_json::from_str(&line)
            .with_context(|| format!("{PROGRAM}: unexpected answer {line:?}"))?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }

    fn finish(mut self) -> Result<()> {
        drop(self.to.take());
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(Ended.into()),
        }
    }
}

impl Drop for Publisher {
    /// The child ends with its input; its own messages come before those of this process.
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

/// The child has ended without an answer; it has said why.
#[derive(Debug)]
struct Ended;

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{PROGRAM}, which reads and writes object stores, ended early"
        )
    }
}

impl std::error::Error for Ended {}

fn count(answer: &Value, name: &str) -> u64 {
    answer[name].as_u64().unwrap_or_default()
}

/// The program in the directory of this one.
fn beside_this_one() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let beside = own.parent()?.join(PROGRAM);
    beside.is_file().then_some(beside)
}
