//! Lines of JSON (`-f json`) → maps and messages.
//!
//! ```text
//! {"type": "map", "data": {"@b": {"bpftrace,9920": 7}}}
//! {"type": "hist", "data": {"@h": [{"max": -1, "count": 1}, {"min": 0, "max": 0, "count": 0}]}}
//! {"type": "stats", "data": {"@s": {"count": 2, "average": 15, "total": 30}}}
//! {"type": "printf", "data": "hello 5\n"}
//! ```

use perfquet_events::Error;
use perfquet_events::event::{AggregateValue, Bucket, Sink};
use serde_json::{Map, Value as Json};

use super::histogram;
use super::key::{Key, Shape};
use super::output::{Content, Output};
use crate::lines::{Lines, Meter};

/// Separator of a key's parts.
const SEPARATOR: &[u8] = b",";

/// Reads all lines.
pub(super) fn read(text: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    let mut out = Output::new(sink)?;
    let mut meter = Meter::default();
    let mut lines = Lines::of(text);
    while let Some(line) = lines.next() {
        let content = line.text.trim_ascii();
        if content.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Json>(content) {
            Ok(object) => take(&object, line.number, content, &mut out)?,
            // The file may include lines that bpftrace prints to standard error.
            Err(_) if !content.starts_with(b"{") => out.message(line.number, content)?,
            Err(error) => {
                let message = format!("expected an object, found: {error}");
                out.problem(line.number, &message)?;
            }
        }
        meter.report(lines.progress(), out.sink())?;
    }
    out.finish()
}

fn take(object: &Json, line: u64, text: &[u8], out: &mut Output<'_>) -> Result<(), Error> {
    let kind = object
        .get("type")
        .and_then(Json::as_str)
        .unwrap_or_default();
    let data = object.get("data").unwrap_or(&Json::Null);
    match (kind, data) {
        ("map" | "hist" | "stats", Json::Object(maps)) => {
            for (name, content) in maps {
                map(name, content, line, out)?;
            }
            Ok(())
        }
        ("attached_probes", data) => {
            let probes = data.get("probes").and_then(Json::as_u64);
            out.fact("bpftrace.probes", &probes.unwrap_or(0).to_string())
        }
        ("lost_events", data) => out.loss(data.get("events").and_then(Json::as_u64)),
        (_, Json::String(text)) => out.message(line, text.trim_end_matches('\n').as_bytes()),
        _ => out.message(line, text),
    }
}

/// A map with keys is an object with one member per key; stats without keys are an object too.
fn map(name: &str, content: &Json, line: u64, out: &mut Output<'_>) -> Result<(), Error> {
    let keys = match content {
        Json::Object(keys) if stats(keys).is_none() => keys,
        content => return entry(name, Key::default(), content, line, out),
    };
    let mut shape = Shape::default();
    for key in keys.keys() {
        shape.add(key.as_bytes(), SEPARATOR);
    }
    let has_stacks = keys.keys().any(|key| key.contains('\n'));
    for (key, content) in keys {
        let key = match key.is_empty() && has_stacks {
            true => Key::empty_stack(),
            false => Key::of(key.as_bytes(), SEPARATOR, &shape),
        };
        entry(name, key, content, line, out)?;
    }
    Ok(())
}

fn entry(
    name: &str,
    key: Key<'_>,
    content: &Json,
    line: u64,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    let name = name.as_bytes();
    match content {
        Json::Number(number) => out.entry(name, key, Content::Number(number_of(number))),
        Json::Object(object) => match stats(object) {
            Some(stats) => out.entry(name, key, stats),
            None => other(name, &key, content, line, out),
        },
        Json::Array(bars) => {
            let buckets: Option<Vec<Bucket>> = bars.iter().map(bar).collect();
            match buckets {
                Some(buckets) if !buckets.is_empty() => {
                    let action = histogram::action(&buckets);
                    out.entry(name, key, Content::Bars(&buckets, action))
                }
                _ => other(name, &key, content, line, out),
            }
        }
        _ => other(name, &key, content, line, out),
    }
}

/// A string, a tuple, a record.
fn other(
    name: &[u8],
    key: &Key<'_>,
    content: &Json,
    line: u64,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    let keys = match key.texts.as_slice() {
        [] => Vec::new(),
        texts => [b"[", texts.join(&b", "[..]).as_slice(), b"]"].concat(),
    };
    let text = [name, keys.as_slice(), b": ", content.to_string().as_bytes()].concat();
    out.message(line, &text)
}

fn number_of(number: &serde_json::Number) -> AggregateValue {
    match number.as_i64() {
        Some(value) => AggregateValue::Int(value),
        None => AggregateValue::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

fn stats(object: &Map<String, Json>) -> Option<Content<'static>> {
    let of = |name: &str| Some(number_of(object.get(name)?.as_number()?));
    let found = Content::Stats(of("count")?, of("average")?, of("total")?);
    (object.len() == 3).then_some(found)
}

/// `{"min": 2, "max": 3, "count": 0}`: both ends are inclusive.
fn bar(bar: &Json) -> Option<Bucket> {
    let of = |name: &str| bar.get(name).and_then(Json::as_i64);
    Some(Bucket {
        low: of("min"),
        high: of("max").and_then(|max| max.checked_add(1)),
        count: of("count")?,
    })
}
