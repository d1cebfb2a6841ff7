//! Requests of perfquet-convert, as lines of JSON on stdin; answers on stdout. `convert/src/export/lake/store.rs` has a sample.
//!
//! When stdin ends, so does this process, even in the middle of an upload: whoever wanted it is gone.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::mpsc;

use anyhow::{Context, Result, bail};
use perfquet_cli::terminal;
use perfquet_trace::lake::Lake;
use serde_json::{Value, json};

use super::store::{Change, Store};

/// Answers requests until stdin ends.
pub(super) fn hold(url: &str) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("requests".to_owned())
        .spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
            std::process::exit(0);
        })
        .context("cannot start a thread")?;
    let mut store = match Store::open(url) {
        Ok(store) => store,
        Err(error) => return fail(&error),
    };
    say(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "partition": store.keys(),
        "summaries": store.has_summaries(),
    }))?;
    // The other thread ends the process.
    while let Ok(line) = receiver.recv() {
        match answer(&mut store, &line) {
            Ok(answer) => say(&answer)?,
            Err(error) => return fail(&error),
        }
    }
    Ok(())
}

fn say(answer: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}

/// The other side prints the error.
fn fail(error: &anyhow::Error) -> Result<()> {
    say(&json!({ "error": terminal::sentence(error.chain()) }))
}

fn answer(store: &mut Store, line: &str) -> Result<Value> {
    let request: Value = serde_json::from_str(line)?;
    let member = |name: &str| request.get(name).cloned();
    let mut change = Change::default();
    if let Some(traces) = member("needed") {
        let traces: Vec<(String, String)> = serde_json::from_value(traces)?;
        let needed = store.needed(&traces)?;
        return Ok(json!({ "needed": needed }));
    }
    if let Some(root) = member("publish") {
        let root: PathBuf = serde_json::from_value(root)?;
        let records = Lake::open(&root)?.records()?;
        store.publish(&root, records, &mut change)?;
        return Ok(json!({
            "published": change.published,
            "unchanged": change.unchanged,
            "files": change.files,
            "bytes": change.bytes,
            "abandoned": change.abandoned,
        }));
    }
    if let Some(folder) = member("administration") {
        let folder: PathBuf = serde_json::from_value(folder)?;
        return Ok(json!({ "traces": store.copy_administration(&folder)? }));
    }
    let Some(Value::String(date)) = member("retain") else {
        bail!("unexpected request {line:?}");
    };
    store.retain(&date, &mut change)?;
    Ok(json!({
        "removed": change.removed,
        "kept": change.kept,
        "abandoned": change.abandoned,
    }))
}
