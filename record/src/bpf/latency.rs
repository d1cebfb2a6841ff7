//! `--latency`: the time from one event to another with the same key, aggregated in the kernel.
//!
//! ```text
//! sched:sched_wakeup[pid], sched:sched_switch[prev_pid]/prev_state == 0/ -> sched:sched_switch[next_pid]
//! block:block_rq_issue[dev,sector] -> block:block_rq_complete[dev,sector]
//! ```
//! If several starts have one key, the first one counts. Fields of the end have their names, those of the start are
//! `start.NAME`.

use perfquet_ebpf::layout::{
    Base, Fetch, LatencySettings, MOST_LATENCY_KEYS, MOST_STARTS, Predicate, Saved, Value,
};

use super::agg;
use super::agg::fetch::{self, Fetched};
use super::agg::names::{Fields, Found, Saver};
use super::plan::{Located, Requested};
use crate::failure::{Failure, misuse};
use crate::probe::{self, Kind, Probe};

const OPTION: &str = "--latency";
/// Fields of the start.
const START: &str = "start.";
/// Fields that contain a thread ID.
const THREADS: &[&str] = &["pid", "tid", "next_pid", "prev_pid", "child_pid"];
/// The default without --agg.
const USUAL: &str = "quantize(duration)";

/// Starts and end, with their keys.
#[derive(Clone)]
pub(crate) struct Latency {
    pub(crate) starts: Vec<Start>,
    pub(crate) end: Probe,
    end_key: [Fetch; MOST_LATENCY_KEYS],
    is_by_thread: bool,
}

/// An event that begins latencies.
#[derive(Clone)]
pub(crate) struct Start {
    pub(crate) probe: Probe,
    key: [Fetch; MOST_LATENCY_KEYS],
    predicate: Predicate,
}

/// The names that one latency has.
#[derive(Clone)]
struct LatencyFields<'a> {
    latency: &'a Latency,
    /// Fields of the start that have a slot.
    found: Vec<(String, Found)>,
    /// By start: a name has the same slot in all of them.
    savers: Vec<Saver>,
}

/// A parsed event: its name, its key, its filter.
#[derive(Debug, PartialEq, Eq)]
struct Written<'a> {
    event: &'a str,
    key: Vec<&'a str>,
    filter: Option<&'a str>,
}

impl Latency {
    /// Returns the constants for the programs.
    pub(super) fn settings(&self, saved: &[Saved]) -> LatencySettings {
        let mut settings = LatencySettings {
            is_by_thread: self.is_by_thread.into(),
            end_key: self.end_key,
            ..LatencySettings::default()
        };
        for ((to, start), saved) in settings.starts.iter_mut().zip(&self.starts).zip(saved) {
            to.key = start.key;
            to.predicate = start.predicate;
            to.saved = *saved;
        }
        settings
    }

    /// Returns whether the key identifies threads, and therefore selects them.
    pub(super) fn is_by_thread(&self) -> bool {
        self.is_by_thread
    }
}

/// Compiles the aggregations `texts` of the latency `text`, for those that pass `filter`.
pub(super) fn requested(
    text: &str,
    texts: &[String],
    filter: Option<&str>,
) -> Result<Vec<Requested<Latency>>, Failure> {
    let latency = parse(text)?;
    let usual = [USUAL.to_owned()];
    let texts = match texts {
        [] => &usual[..],
        texts => texts,
    };
    let fields = LatencyFields {
        latency: &latency,
        found: Vec::new(),
        savers: vec![Saver::default(); latency.starts.len()],
    };
    agg::requested(text, texts, filter, vec![(latency.clone(), fields)])
}

impl Fields for LatencyFields<'_> {
    fn find(&mut self, option: &str, name: &str) -> Result<Found, Failure> {
        if name == "duration" {
            return Ok(Found::measured(Value::Duration));
        }
        let Some(field) = name.strip_prefix(START) else {
            let of_end = fetch::of(option, &self.latency.end, name);
            let has_it = |start: &Start| fetch::of(option, &start.probe, name).is_ok();
            return match of_end {
                Err(failure) if self.latency.starts.iter().all(has_it) => Err(failure.hint(
                    format!("use {START}{name}, the field of the event that begins the latency"),
                )),
                found => found.map(Found::fetched),
            };
        };
        if let Some((_, found)) = self.found.iter().find(|(known, _)| known == name) {
            return Ok(*found);
        }
        let mut same = None;
        for (start, saver) in self.latency.starts.iter().zip(&mut self.savers) {
            let found = saver.save(option, value(option, &start.probe, field)?)?;
            let shape = |found: Found| match found {
                Found::Number(at, width) => (at, width.size, width.is_signed),
                Found::Text { at, .. } => (at, 0, 0),
                Found::Comm => (Located::default(), 0, 0),
            };
            if same.is_some_and(|same| shape(same) != shape(found)) {
                return Err(misuse(format!(
                    "{option}: {name} has different types in the events of {OPTION}"
                )));
            }
            same = Some(found);
        }
        let found = same.ok_or_else(|| misuse(format!("{option}: {OPTION} has no start")))?;
        if matches!(
            found,
            Found::Text {
                is_short: false,
                ..
            }
        ) {
            return Err(
                misuse(format!("{option}: {name} is too long to save at the start"))
                    .hint("use a number, or a string of at most 15 bytes"),
            );
        }
        self.found.push((name.to_owned(), found));
        Ok(found)
    }

    fn saved(&self) -> Vec<Saved> {
        self.savers.iter().map(Saver::saved).collect()
    }
}

/// Compiles a field of a start, or a name that every event has.
fn value(option: &str, probe: &Probe, name: &str) -> Result<Fetched, Failure> {
    let base = match name {
        "comm" => None,
        "cpu" => Some(Base::Cpu),
        "tid" => Some(Base::Thread),
        _ => return fetch::of(option, probe, name),
    };
    let Some(base) = base else {
        // A field with this name takes precedence.
        return fetch::of(option, probe, name).or(Ok(Fetched::Comm));
    };
    let built_in = Fetch {
        base: base as u32,
        size: 4,
        ..Fetch::default()
    };
    fetch::of(option, probe, name).or(Ok(Fetched::Number(built_in)))
}

fn parse(text: &str) -> Result<Latency, Failure> {
    let (starts, end) = text.split_once("->").ok_or_else(|| expected(text))?;
    let end = written(end).ok_or_else(|| expected(text))?;
    let starts = pieces(starts);
    let starts: Option<Vec<Written<'_>>> = starts.into_iter().map(written).collect();
    let starts = starts.ok_or_else(|| expected(text))?;
    if end.filter.is_some() {
        return Err(
            misuse(format!("{text}: {OPTION} takes no /FILTER/ at its end"))
                .hint("put --filter EXPR after it"),
        );
    }
    let mut begun = Vec::new();
    for start in &starts {
        if start.key.len() != end.key.len() {
            return Err(misuse(format!(
                "{text}: {} and {} have different numbers of keys",
                start.event, end.event
            )));
        }
        for probe in probes(text, start.event)? {
            let predicate = match start.filter {
                Some(filter) => agg::predicate(filter, &probe)?,
                None => Predicate::default(),
            };
            begun.push(Start {
                key: key(text, &probe, &start.key)?,
                probe,
                predicate,
            });
        }
    }
    if begun.len() > MOST_STARTS {
        return Err(misuse(format!(
            "{text}: {} START events, expected at most {MOST_STARTS}",
            begun.len()
        )));
    }
    let [probe] = &probes(text, end.event)?[..] else {
        return Err(misuse(format!("{text}: expected one END event")));
    };
    Ok(Latency {
        starts: begun,
        end_key: key(text, probe, &end.key)?,
        end: probe.clone(),
        is_by_thread: matches!(end.key[..], [name] if THREADS.contains(&name)),
    })
}

fn expected(text: &str) -> Failure {
    misuse(format!("{OPTION} {text}: expected START[KEY] -> END[KEY]")).hint(format!(
        "write {OPTION} like 'block:block_rq_issue[dev,sector] -> block:block_rq_complete[dev,sector]'"
    ))
}

/// Finds tracepoints, the only events that latencies support: a start may occur in the context of any thread.
fn probes(text: &str, event: &str) -> Result<Vec<Probe>, Failure> {
    let found = probe::parse(event)?;
    match found
        .iter()
        .all(|probe| matches!(probe.kind, Kind::Tracepoint(_)))
    {
        true => Ok(found),
        false => Err(misuse(format!("{text}: {event} is not a tracepoint"))
            .hint("use --call for the durations of functions")),
    }
}

fn key(text: &str, probe: &Probe, names: &[&str]) -> Result<[Fetch; MOST_LATENCY_KEYS], Failure> {
    let mut key = [Fetch::default(); MOST_LATENCY_KEYS];
    if names.len() > key.len() {
        return Err(misuse(format!(
            "{text}: expected at most {MOST_LATENCY_KEYS} keys"
        )));
    }
    for (place, name) in key.iter_mut().zip(names) {
        *place = match value(&format!("{OPTION} {text}"), probe, name)? {
            Fetched::Number(fetch) => fetch,
            Fetched::Text { .. } | Fetched::Comm => {
                return Err(
                    misuse(format!("{text}: {name} is a string")).hint("use numbers as keys")
                );
            }
        };
    }
    Ok(key)
}

/// Splits at commas outside of brackets and filters.
fn pieces(text: &str) -> Vec<&str> {
    let (mut is_in_key, mut is_in_filter) = (false, false);
    text.split(|character| {
        match character {
            '[' if !is_in_filter => is_in_key = true,
            ']' if !is_in_filter => is_in_key = false,
            '/' => is_in_filter = !is_in_filter,
            _ => {}
        }
        character == ',' && !is_in_key && !is_in_filter
    })
    .collect()
}

/// Parses `EVENT[KEY,...]/FILTER/`.
fn written(text: &str) -> Option<Written<'_>> {
    let text = text.trim();
    let (place, filter) = match text.strip_suffix('/') {
        Some(text) => {
            let (place, filter) = text.split_once('/')?;
            (place.trim(), Some(filter))
        }
        None => (text, None),
    };
    let (event, key) = place.strip_suffix(']')?.split_once('[')?;
    let key: Vec<&str> = key.split(',').map(str::trim).collect();
    let is_whole = !event.is_empty() && !key.iter().any(|name| name.is_empty());
    is_whole.then_some(Written { event, key, filter })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let found = pieces("a:b[x], c:d[y,z]/p == 1 || q, 2/ ,e:f[x]");
        assert_eq!(found, ["a:b[x]", " c:d[y,z]/p == 1 || q, 2/ ", "e:f[x]"]);
        let whole = |event, key: &[&'static str], filter| {
            Some(Written {
                event,
                key: key.to_vec(),
                filter,
            })
        };
        assert_eq!(written("a:b[x]"), whole("a:b", &["x"], None));
        let filtered = whole("c:d", &["y", "z"], Some("p == 1"));
        assert_eq!(written(" c:d[y, z]/p == 1/ "), filtered);
        for wrong in ["", "a:b", "a:b[]", "[x]", "a:b[x", "a:b[x,]", "a:b[x]/"] {
            assert_eq!(written(wrong), None, "{wrong}");
        }
    }
}
