//! `--agg`: aggregates a probe's hits in the kernel, as DTrace does.
//!
//! ```text
//! quantize(bytes) by comm              a distribution for each thread name
//! count() by probe, ustack             how often, from where
//! slow = lquantize(us, 0, 1000, 100)   its own name; equal steps
//! llquantize(ns, 10, 3, 9, 10)         steps in powers of ten
//! ```
//! The option applies to the preceding probe. Names in brackets, and after `by`, are fields of that probe or one of
//! [`BUILT_IN`].

mod fetch;
mod fields;
mod filter;
pub(super) mod registers;

use clap::Args;
use perfquet_ebpf::layout::{AggSettings, Fetch, Predicate};
use perfquet_events::event::{Action, bars};

use super::plan::{Key, Plan, Source};
use crate::failure::{Failure, misuse};
use crate::probe::Probe;
use fetch::Fetched;

/// The option, as clap knows it.
pub(crate) const AGGREGATIONS: &str = "agg_texts";

/// Parts of a key that every probe has.
const BUILT_IN: &[(&str, &[Key])] = &[
    ("comm", &[Key::Comm]),
    ("pid", &[Key::Process]),
    ("tid", &[Key::Thread]),
    ("cpu", &[Key::Cpu]),
    ("probe", &[Key::Probe]),
    ("stack", &[Key::KernelStack, Key::UserStack]),
    ("kstack", &[Key::KernelStack]),
    ("ustack", &[Key::UserStack]),
];

/// Command-line options.
#[derive(Debug, Clone, Args)]
#[group(id = "agg")]
pub(crate) struct Options {
    /// Aggregate hits of the preceding event or probe instead of recording them
    ///
    /// ACTION is count(), sum(FIELD), avg(FIELD), min(FIELD), max(FIELD), stddev(FIELD), quantize(FIELD), lquantize(FIELD,
    /// LOW, HIGH, STEP) or llquantize(FIELD, FACTOR, LOW, HIGH, STEPS). KEY is comm, pid, tid, cpu, probe, stack, ustack,
    /// kstack or a field.
    #[arg(id = AGGREGATIONS, long = "agg", value_name = "ACTION [by KEY,...]")]
    texts: Vec<String>,
}

impl Options {
    /// In their order.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// A parsed `--agg` option.
#[derive(Debug, PartialEq, Eq)]
struct AggregationSpec {
    name: String,
    action: Action,
    /// The aggregated field.
    value: Option<String>,
    /// The numbers after it.
    numbers: Vec<i64>,
    keys: Vec<String>,
}

/// The aggregation `text` of the probes that match `argument`, over the hits that pass `filter`.
pub(super) fn plan(
    argument: &str,
    text: &str,
    filter: Option<&str>,
    probes: &[Probe],
) -> Result<Plan, Failure> {
    let asked = parse(text)?;
    let mut settings = AggSettings::default();
    let mut edges = Vec::new();
    match (asked.action, &asked.numbers[..]) {
        (Action::Lquantize, &[low, high, step]) => {
            settings.low = low;
            (settings.step, settings.levels) = steps(text, low, high, step)?;
        }
        (Action::Llquantize, &[factor, low, high, steps]) => {
            edges = magnitudes(text, factor, low, high, steps)?;
        }
        _ => {}
    }
    let mut keys: Option<Vec<Key>> = None;
    let mut sources = Vec::new();
    for probe in probes {
        let (source_keys, mut source) = source(text, &asked, probe)?;
        if let Some(filter) = filter {
            source.predicate = filter::of(filter, probe)?;
        }
        match &keys {
            // One field can be a number here and a text there.
            Some(keys) if *keys != source_keys => {
                return Err(misuse(format!(
                    "{argument}: the fields in {text} have different types in its probes"
                ))
                .hint("name the probes separately, each with its own --agg"));
            }
            _ => keys = Some(source_keys),
        }
        sources.push(source);
    }
    Ok(Plan {
        name: asked.name,
        action: asked.action,
        settings,
        edges,
        keys: keys.unwrap_or_default(),
        sources,
    })
}

/// How value and key are fetched at a probe.
fn source(
    text: &str,
    asked: &AggregationSpec,
    probe: &Probe,
) -> Result<(Vec<Key>, Source), Failure> {
    let option = format!("--agg {text}");
    let value = match &asked.value {
        None => Fetch::default(),
        Some(name) => match fetch::of(&option, probe, name)? {
            Fetched::Number(fetch) => fetch,
            Fetched::Text(_) | Fetched::Comm => {
                return Err(misuse(format!("{option}: {name} is a string"))
                    .hint("use a string as a key: count() by FIELD"));
            }
        },
    };
    let (mut keys, mut fetches) = (Vec::new(), Vec::new());
    for name in &asked.keys {
        if let Some((_, parts)) = BUILT_IN.iter().find(|(built_in, _)| built_in == name) {
            keys.extend_from_slice(parts);
            fetches.extend(parts.iter().map(|_| Fetch::default()));
            continue;
        }
        let (key, fetch) = match fetch::of(&option, probe, name)? {
            Fetched::Number(fetch) => {
                let is_signed = fetch.is_signed != 0;
                (Key::Number { is_signed }, fetch)
            }
            Fetched::Text(fetch) => (Key::Text, fetch),
            Fetched::Comm => (Key::Comm, Fetch::default()),
        };
        keys.push(key);
        fetches.push(fetch);
    }
    Ok((
        keys,
        Source {
            probe: probe.clone(),
            value,
            keys: fetches,
            predicate: Predicate::default(),
        },
    ))
}

/// `[NAME =] ACTION([EXPR[, NUMBER]...]) [by KEY[, KEY]...]`
fn parse(text: &str) -> Result<AggregationSpec, Failure> {
    let expected = || {
        misuse(format!("--agg {text}: expected ACTION(FIELD) by KEY")).hint(
            "write --agg like 'quantize(bytes) by comm'; actions are count, sum, avg, min, max, stddev, quantize, lquantize, \
             llquantize",
        )
    };
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) => (Some(name.trim()), rest),
        None => (None, text),
    };
    let (call, behind) = rest.split_once(')').ok_or_else(expected)?;
    let (action, inside) = call.split_once('(').ok_or_else(expected)?;
    let action_name = action.trim();
    let (action, numbers) = match action_name {
        "count" => (Action::Count, 0),
        "sum" => (Action::Sum, 0),
        "avg" => (Action::Avg, 0),
        "min" => (Action::Min, 0),
        "max" => (Action::Max, 0),
        "stddev" => (Action::Stddev, 0),
        "quantize" => (Action::Quantize, 0),
        "lquantize" => (Action::Lquantize, 3),
        "llquantize" => (Action::Llquantize, 4),
        _ => return Err(expected()),
    };
    let mut parts = inside.split(',').map(str::trim);
    let value = parts.next().filter(|value| !value.is_empty());
    let given: Option<Vec<i64>> = parts.map(|part| part.parse().ok()).collect();
    let is_right = given.as_ref().is_some_and(|given| given.len() == numbers)
        && value.is_some() == (action != Action::Count);
    if !is_right {
        let form = match action {
            Action::Count => "count()".to_owned(),
            Action::Lquantize => "lquantize(FIELD, LOW, HIGH, STEP)".to_owned(),
            Action::Llquantize => "llquantize(FIELD, FACTOR, LOW, HIGH, STEPS)".to_owned(),
            _ => format!("{action_name}(FIELD)"),
        };
        return Err(misuse(format!("--agg {text}: expected {form}")));
    }
    let keys = match behind.trim() {
        "" => Vec::new(),
        behind => {
            let keys = behind
                .strip_prefix("by")
                .filter(|keys| keys.starts_with(char::is_whitespace))
                .ok_or_else(expected)?;
            keys.split(',').map(|key| key.trim().to_owned()).collect()
        }
    };
    if keys.iter().any(String::is_empty) || name.is_some_and(str::is_empty) {
        return Err(expected());
    }
    Ok(AggregationSpec {
        name: name.map_or_else(
            || format!("{action_name}({})", inside.trim()),
            str::to_owned,
        ),
        action,
        value: value.map(str::to_owned),
        numbers: given.unwrap_or_default(),
        keys,
    })
}

/// Width and number of the steps of lquantize.
fn steps(text: &str, low: i64, high: i64, step: i64) -> Result<(u64, u64), Failure> {
    let levels = bars::levels(low, high, step).map_err(|wrong| misplaced(text, &wrong))?;
    Ok((step as u64, levels as u64))
}

/// Where the bars of llquantize begin: those of perfquet-query.
fn magnitudes(
    text: &str,
    factor: i64,
    low: i64,
    high: i64,
    steps: i64,
) -> Result<Vec<u64>, Failure> {
    let edges = bars::magnitudes(factor, low, high, steps);
    let edges = edges.map_err(|wrong| misplaced(text, &wrong))?;
    Ok(edges.into_iter().map(|edge| edge as u64).collect())
}

fn misplaced(text: &str, wrong: &str) -> Failure {
    misuse(format!("--agg {text}: {wrong}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let asked = parse("quantize(bytes) by comm, ustack").unwrap();
        assert_eq!(
            (asked.name.as_str(), asked.action),
            ("quantize(bytes)", Action::Quantize)
        );
        assert_eq!(asked.value.as_deref(), Some("bytes"));
        assert_eq!(asked.keys, ["comm", "ustack"]);
        let asked = parse(" slow = lquantize( us , 0, 1000,100)").unwrap();
        assert_eq!(
            (asked.name.as_str(), asked.numbers),
            ("slow", vec![0, 1000, 100])
        );
        assert_eq!(parse("count()").unwrap().value, None);
        for (wrong, said) in [
            ("", "expected ACTION(FIELD) by KEY"),
            ("mean(x)", "expected ACTION(FIELD) by KEY"),
            ("count(x)", "expected count()"),
            ("sum()", "expected sum(FIELD)"),
            ("sum(x, 1)", "expected sum(FIELD)"),
            (
                "lquantize(x, 1)",
                "expected lquantize(FIELD, LOW, HIGH, STEP)",
            ),
            ("llquantize(x, 10, a, 3, 10)", "expected llquantize"),
            ("sum(x) comm", "expected ACTION(FIELD) by KEY"),
            ("sum(x) by", "expected ACTION(FIELD) by KEY"),
            ("sum(x) by a,,b", "expected ACTION(FIELD) by KEY"),
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn bars_are_those_of_the_query() {
        let edges = |factor, low, high, steps| magnitudes("", factor, low, high, steps).unwrap();
        assert_eq!(
            edges(10, 0, 1, 10),
            [
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100
            ]
        );
        assert_eq!(edges(4, 0, 1, 2), [1, 2, 4, 8, 16]);
        assert_eq!(edges(10, 3, 4, 1), [1000, 10_000, 100_000]);
        assert!(magnitudes("", 10, 0, 19, 10).is_err() && magnitudes("", 10, 0, 3, 3).is_err());
        assert_eq!(steps("", 0, 1000, 100).unwrap(), (100, 10));
        assert!(steps("", 0, 10, 0).is_err() && steps("", 10, 0, 1).is_err());
    }
}
