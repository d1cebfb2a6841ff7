//! Structured output of FreeBSD's dtrace (`-x oformat=json`, `-x oformat=xml`, `--libxo`): one object for each hit.
//!
//! ```text
//! {"dtrace": {"probes": [{"timestamp": 1694105342633402400, "cpu": 0, "id": 2, "provider": "dtrace", "module": "",
//!   "function": "", "name": "END", "output": [
//!     {"aggregation-data": [{"keys": ["csh", 12], "count": 3}], "aggregation-name": "c"}]}]}}
//! ```
//! Structured output names everything: provider and module, names and functions of aggregations. The time is that of
//! the output, not of the hit, and becomes `output_time`. A drop is a probe named `DROP`. XML maps to the same objects:
//! elements that can repeat are lists.

use perfquet_events::Error;
use perfquet_events::event::{
    Action, AggregateValue, Event, Fact, NamedFrame, Place, Progress, Sink, Space,
};
use serde_json::Value as Json;

use super::emit::{Hit, Key, Output};
use super::stack;
use crate::distribution::{self, Bar};
use crate::lines::{Meter, hexadecimal};

/// Reads a JSON document up to the first error.
pub(super) fn read_json(text: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    sink.event(Event::Fact(Fact::Recorder("dtrace")))?;
    let mut out = Output::new(sink, Space::Unknown);
    let mut meter = Meter::default();
    let start = first_probe(text).unwrap_or(text.len());
    let mut place = start;
    let mut is_whole = false;
    while let Some(rest) = text.get(place..) {
        let blanks = rest
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace() || **byte == b',')
            .count();
        place += blanks;
        match text.get(place) {
            Some(b'{') => {}
            Some(b']') => {
                is_whole = true;
                break;
            }
            _ => break,
        }
        let rest = text.get(place..).unwrap_or_default();
        let mut probes = serde_json::Deserializer::from_slice(rest).into_iter::<Json>();
        match probes.next() {
            Some(Ok(found)) => probe(&found, &mut out)?,
            Some(Err(error)) => {
                let message = format!("expected a probe, found: {error}");
                report(&mut out, place, &message)?;
                return out.finish();
            }
            None => break,
        }
        place += probes.byte_offset().max(1);
        let (done, total) = (place as u64, Some(text.len() as u64));
        meter.report(Progress { done, total }, out.sink())?;
    }
    if !is_whole {
        report(
            &mut out,
            place.min(text.len()),
            "expected the end of the list of probes",
        )?;
    }
    out.finish()
}

/// Offset where the list of probes begins.
fn first_probe(text: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"\"probes\"";
    let name = text.windows(NAME.len()).position(|part| part == NAME)?;
    let bracket = text.get(name..)?.iter().position(|&byte| byte == b'[')?;
    Some(name + bracket + 1)
}

fn report(out: &mut Output<'_>, place: usize, message: &str) -> Result<(), Error> {
    let place = Place::Offset(place as u64);
    out.problem_at(place, message)
}

/// Emits one hit with everything it printed.
pub(super) fn probe(probe: &Json, out: &mut Output<'_>) -> Result<(), Error> {
    let text = |name: &str| probe.get(name).and_then(Json::as_str).unwrap_or_default();
    let (provider, module, name) = (text("provider"), text("module"), text("name"));
    if name == "DROP" && provider == "dtrace" {
        return drop(probe, out);
    }
    let mut hit = Hit {
        cpu: number(probe.get("cpu")).and_then(|cpu| u32::try_from(cpu).ok()),
        id: number(probe.get("id")).and_then(|id| u64::try_from(id).ok()),
        provider: provider.as_bytes(),
        module: module.as_bytes(),
        function: text("function").as_bytes(),
        name: name.as_bytes(),
        output_time: number(probe.get("timestamp")),
        ..Hit::default()
    };
    let items = probe.get("output").and_then(Json::as_array);
    let items: &[Json] = items.map_or(&[], Vec::as_slice);
    for item in items {
        add(item, &mut hit);
    }
    out.hit(&mut hit)?;
    for item in items {
        aggregation(item, out)?;
    }
    Ok(())
}

/// A number; XML has it as a string.
fn number(value: Option<&Json>) -> Option<i64> {
    match value? {
        Json::String(text) => text.trim().parse().ok(),
        value => value.as_i64(),
    }
}

/// `{"count": 7, "total": 7, "kind": 1, "msg": "7 drops on CPU 0\n"}`
fn drop(probe: &Json, out: &mut Output<'_>) -> Result<(), Error> {
    let items = probe.get("output").and_then(Json::as_array);
    let inner = items.and_then(|items| items.first()).unwrap_or(probe);
    let of = |name: &str| inner.get(name).or_else(|| probe.get(name));
    let count = number(of("count")).and_then(|count| u64::try_from(count).ok());
    let text = of("msg").and_then(Json::as_str).unwrap_or("drop").trim();
    let text = text.strip_prefix("dtrace: ").unwrap_or(text);
    match super::notice::notice(text) {
        super::notice::Notice::Lost {
            count: in_text,
            cpu,
            reason,
        } => out.loss(count.or(in_text), cpu, &reason),
        _ => out.loss(count, None, text),
    }
}

/// Adds one item of the output to the hit.
fn add<'a>(item: &'a Json, hit: &mut Hit<'a>) {
    let Some(object) = item.as_object() else {
        return;
    };
    for (name, value) in object {
        match (name.as_str(), value) {
            ("value", Json::Number(number)) if number.as_i64().is_some() => {
                hit.values.extend(number.as_i64());
            }
            ("message" | "value", Json::String(text)) => put(text.trim_end_matches('\n'), hit),
            ("aggregation-data" | "aggregation-name", _) => {}
            ("stack-frames", frames) => hit.stacks.push(stack(frames, Space::Kernel)),
            ("ustack-frames", frames) => hit.stacks.push(stack(frames, Space::User)),
            (name, Json::String(text)) => put(&format!("{name}={text}"), hit),
            (name, value) => put(&format!("{name}={value}"), hit),
        }
    }
}

fn put(text: &str, hit: &mut Hit<'_>) {
    if text.is_empty() {
        return;
    }
    if !hit.message.is_empty() {
        hit.message.push(b' ');
    }
    hit.message.extend_from_slice(text.as_bytes());
}

fn stack<'a>(frames: &'a Json, space: Space) -> Vec<NamedFrame<'a>> {
    let frames = frames.as_array().map_or(&[][..], Vec::as_slice);
    let mut named = Vec::new();
    for frame in frames {
        let text = |name: &str| frame.get(name).and_then(Json::as_str).unwrap_or_default();
        let offset = match frame.get("offset") {
            Some(Json::String(offset)) => offset
                .strip_prefix("0x")
                .and_then(|digits| hexadecimal(digits.as_bytes())),
            offset => offset.and_then(Json::as_u64),
        };
        if text("name").is_empty() {
            stack::add(text("symbol").as_bytes(), space, &mut named);
            continue;
        }
        named.push(NamedFrame {
            function: text("name").as_bytes(),
            module: text("module").as_bytes(),
            function_offset: offset,
            space,
            ..NamedFrame::default()
        });
    }
    named
}

/// The keys of an aggregation in an item.
fn aggregation(item: &Json, out: &mut Output<'_>) -> Result<(), Error> {
    let Some(rows) = item.get("aggregation-data").and_then(Json::as_array) else {
        return Ok(());
    };
    let name = item
        .get("aggregation-name")
        .and_then(Json::as_str)
        .unwrap_or_default();
    for row in rows {
        let parts = row.get("keys").and_then(Json::as_array);
        let mut texts: Vec<String> = Vec::new();
        let mut key = Key {
            name: name.as_bytes(),
            ..Key::default()
        };
        for part in parts.into_iter().flatten() {
            match part {
                Json::Object(_) if part.get("stack-frames").is_some() => {
                    let frames = part.get("stack-frames").unwrap_or(&Json::Null);
                    key.stacks.push(stack(frames, Space::Kernel));
                }
                Json::Object(_) if part.get("ustack-frames").is_some() => {
                    let frames = part.get("ustack-frames").unwrap_or(&Json::Null);
                    key.stacks.push(stack(frames, Space::User));
                }
                Json::String(text) => texts.push(text.clone()),
                Json::Object(object) if object.len() == 1 => {
                    let of_one = object.values().next().unwrap_or(&Json::Null);
                    texts.push(
                        of_one
                            .as_str()
                            .map_or_else(|| of_one.to_string(), str::to_owned),
                    );
                }
                other => texts.push(other.to_string()),
            }
        }
        key.keys = texts.iter().map(String::as_bytes).collect();
        let (action, value) = value(row);
        key.action = action;
        let bars = bars(row);
        let buckets = distribution::buckets(&bars, None);
        if value.is_none() && bars.is_empty() {
            out.problem_at(
                Place::Whole,
                "expected a value or buckets of an aggregation",
            )?;
        }
        out.aggregate(&mut key, value, &buckets)?;
    }
    Ok(())
}

fn value(row: &Json) -> (Option<Action>, Option<AggregateValue>) {
    const ACTIONS: [(&str, Action); 6] = [
        ("count", Action::Count),
        ("sum", Action::Sum),
        ("avg", Action::Avg),
        ("min", Action::Min),
        ("max", Action::Max),
        ("stddev", Action::Stddev),
    ];
    ACTIONS
        .iter()
        .find_map(|(name, action)| {
            let value = row.get(name)?;
            let int = value.as_i64().map(AggregateValue::Int);
            let value = int
                .or_else(|| value.as_f64().map(AggregateValue::Float))
                .or_else(|| AggregateValue::parse(value.as_str()?.trim()));
            Some((Some(*action), value))
        })
        .unwrap_or_default()
}

fn bars(row: &Json) -> Vec<Bar> {
    let buckets = row.get("buckets").and_then(Json::as_array);
    let bar = |bucket: &Json| {
        let count = number(bucket.get("count"))?;
        let label = match bucket.get("value")? {
            Json::String(text) => distribution::label(text.as_bytes())?,
            value => distribution::Label::Value(value.as_i64()?),
        };
        Some(Bar { label, count })
    };
    buckets.into_iter().flatten().filter_map(bar).collect()
}
