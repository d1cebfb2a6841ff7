//! `--agg`: aggregates hits of a probe or calls of a function in the kernel, like DTrace.
//!
//! ```text
//! quantize(bytes) by comm              a distribution for each thread name
//! count() by probe, ustack             how often, from where
//! avg(duration), max(duration) by cpu  of calls, and of latencies
//! ```
//! The option applies to the preceding probe. Names in parentheses and after `by` are fields of that probe, or names
//! that every probe has ([`names`]).

mod call_fields;
pub(super) mod fetch;
mod fields;
mod filter;
pub(super) mod names;
pub(super) mod registers;
mod text;

use clap::Args;
use perfquet_ebpf::layout::{AggSettings, Predicate};
use perfquet_events::event::{Action, bars};

use super::plan::{Key, Located, Output, Plan, Reads, Requested};
use crate::failure::{Failure, misuse};
use crate::probe::Probe;
use crate::probe::edges::Both;
use call_fields::CallFields;
use names::{Fields, Found, HitFields};
use text::ActionSpec;

/// ID of the option in clap.
pub(crate) const AGGREGATIONS: &str = "agg_texts";

/// Command-line options.
#[derive(Debug, Clone, Args)]
#[group(id = "agg")]
pub(crate) struct Options {
    /// Aggregate hits or calls of the preceding event or probe instead of recording them
    ///
    /// ACTION is count(), sum(FIELD), avg(FIELD), min(FIELD), max(FIELD), stddev(FIELD), quantize(FIELD), lquantize(FIELD,
    /// LOW, HIGH, STEP) or llquantize(FIELD, FACTOR, LOW, HIGH, STEPS). KEY is comm, pid, tid, cpu, probe, stack, ustack,
    /// kstack or a field. With --call and --latency, FIELD can be duration; with --call, retval and self.
    #[arg(id = AGGREGATIONS, long = "agg", value_name = "ACTION,... [by KEY,...]")]
    texts: Vec<String>,
}

impl Options {
    /// Returns the options in the order of the command line.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// The actions on one value by one key, as in the option.
struct Group {
    /// For messages.
    text: String,
    value: Option<String>,
    actions: Vec<ActionSpec>,
    keys: Vec<String>,
}

/// Compiles the aggregations `texts` of probes that match `argument`, for hits that pass `filter`.
pub(super) fn of_hits(
    argument: &str,
    texts: &[String],
    filter: Option<&str>,
    probes: &[Probe],
) -> Result<Vec<Requested<Probe>>, Failure> {
    let sources: Vec<_> = probes
        .iter()
        .map(|probe| (probe.clone(), HitFields(probe)))
        .collect();
    requested(argument, texts, filter, sources)
}

/// Compiles the aggregations `texts` of functions that match `argument`, for calls that pass `filter`.
pub(super) fn of_calls<'a>(
    argument: &str,
    texts: &[String],
    filter: Option<&str>,
    functions: impl Iterator<Item = &'a Both>,
) -> Result<Vec<Requested<Both>>, Failure> {
    let sources: Vec<_> = functions
        .map(|both| (both.clone(), CallFields::of(both)))
        .collect();
    requested(argument, texts, filter, sources)
}

/// Compiles the aggregations `texts` for probes or functions with these fields.
pub(super) fn requested<P: Clone, F: Fields + Clone>(
    argument: &str,
    texts: &[String],
    filter: Option<&str>,
    sources: Vec<(P, F)>,
) -> Result<Vec<Requested<P>>, Failure> {
    let mut all = Vec::new();
    for group in groups(texts)? {
        let mut plan = plan(&group)?;
        let mut keys: Option<Vec<Key>> = None;
        let mut found = Vec::new();
        for (source, fields) in &sources {
            let (source_keys, reads) = reads(&group, filter, fields.clone())?;
            match &keys {
                // A field can be a number in one probe and a string in another.
                Some(keys) if *keys != source_keys => {
                    return Err(misuse(format!(
                        "{argument}: the fields in {} have different types in its probes",
                        group.text
                    ))
                    .hint("name the probes separately, each with its own --agg"));
                }
                _ => keys = Some(source_keys),
            }
            found.push((source.clone(), reads));
        }
        plan.keys = keys.unwrap_or_default();
        all.push(Requested {
            plan,
            sources: found,
        });
    }
    Ok(all)
}

/// Name of the duration of calls; `self` excludes nested calls.
const DURATION: &str = "duration";
const SELF: &str = "self";

/// Groups the actions that one program can do: on one value, or on both times of a call, by one key, with at most one
/// distribution.
fn groups(texts: &[String]) -> Result<Vec<Group>, Failure> {
    let mut groups: Vec<Group> = Vec::new();
    for text in texts {
        let spec = text::parse(text)?;
        for action in spec.actions {
            let fits = |group: &&mut Group| group.keys == spec.keys && group.has_room_for(&action);
            match groups.iter_mut().find(fits) {
                Some(group) => {
                    let is_first = group.value.is_none() || group.value.as_deref() == Some(SELF);
                    if is_first && action.value.is_some() {
                        group.value.clone_from(&action.value);
                    }
                    group.actions.push(action);
                }
                None => groups.push(Group {
                    text: text.clone(),
                    value: action.value.clone(),
                    actions: vec![action],
                    keys: spec.keys.clone(),
                }),
            }
        }
    }
    Ok(groups)
}

impl Group {
    /// Returns whether the program can also do this action.
    fn has_room_for(&self, action: &ActionSpec) -> bool {
        let is_same =
            |other: &ActionSpec| (other.action, &other.value) == (action.action, &action.value);
        if self.actions.iter().any(is_same) {
            return false;
        }
        let value = |spec: &ActionSpec| spec.value.clone();
        let is_time = |value: &Option<String>| {
            value
                .as_deref()
                .is_none_or(|value| value == DURATION || value == SELF)
        };
        let has_distribution = self
            .actions
            .iter()
            .chain([action])
            .filter(|spec| is_distribution(spec));
        let distributions: Vec<&ActionSpec> = has_distribution.collect();
        let values: Vec<Option<String>> = self
            .actions
            .iter()
            .map(value)
            .chain([value(action)])
            .collect();
        // Reading a time cannot fail, so hits are counted with it. Bars are those of the main value.
        let are_times = values.iter().all(is_time);
        let has_duration = values
            .iter()
            .any(|value| value.as_deref() == Some(DURATION));
        let are_bars_main = distributions
            .iter()
            .all(|spec| !has_duration || spec.value.as_deref() == Some(DURATION));
        let are_same = values.iter().all(|other| *other == action.value);
        distributions.len() <= 1 && (are_same || are_times && are_bars_main)
    }
}

fn is_distribution(spec: &ActionSpec) -> bool {
    matches!(
        spec.action,
        Action::Quantize | Action::Lquantize | Action::Llquantize
    )
}

/// Returns the plan without keys, whose types depend on the probes.
fn plan(group: &Group) -> Result<Plan, Failure> {
    let text = &group.text;
    let mut settings = AggSettings::default();
    let mut edges = Vec::new();
    for action in &group.actions {
        match (action.action, &action.numbers[..]) {
            (Action::Lquantize, &[low, high, step]) => {
                settings.low = low;
                (settings.step, settings.levels) = steps(text, low, high, step)?;
            }
            (Action::Llquantize, &[factor, low, high, steps]) => {
                edges = magnitudes(text, factor, low, high, steps)?;
            }
            _ => {}
        }
    }
    Ok(Plan {
        outputs: group.outputs(),
        settings,
        edges,
        keys: Vec::new(),
        key_names: group
            .keys
            .iter()
            .filter(|key| !is_stack(key))
            .cloned()
            .collect(),
    })
}

fn is_stack(name: &str) -> bool {
    let parts = names::built_in(name).unwrap_or_default();
    parts.iter().any(|key| key.is_stack())
}

impl Group {
    fn outputs(&self) -> Vec<Output> {
        let output = |spec: &ActionSpec| {
            let value = spec.value.as_deref();
            Output {
                name: spec.name.clone(),
                action: spec.action,
                is_of_self: value == Some(SELF) && self.value.as_deref() == Some(DURATION),
                is_time: matches!(value, Some(DURATION | SELF)),
            }
        };
        self.actions.iter().map(output).collect()
    }
}

/// Returns how value and key are fetched at a probe.
fn reads(
    group: &Group,
    filter: Option<&str>,
    mut fields: impl Fields,
) -> Result<(Vec<Key>, Reads), Failure> {
    let option = format!("--agg {}", group.text);
    let value = match &group.value {
        None => Located::default(),
        Some(name) => match fields.find(&option, name)? {
            Found::Number(at, _) => at,
            Found::Text { .. } | Found::Comm => {
                return Err(misuse(format!("{option}: {name} is a string"))
                    .hint("use a string as a key: count() by FIELD"));
            }
        },
    };
    let (mut keys, mut places) = (Vec::new(), Vec::new());
    for name in &group.keys {
        if let Some(parts) = names::built_in(name) {
            keys.extend_from_slice(parts);
            places.extend(parts.iter().map(|_| Located::default()));
            continue;
        }
        let (key, at) = match fields.find(&option, name)? {
            Found::Number(Located::Measured(_), _) => {
                return Err(misuse(format!("{option}: {name} cannot be a key"))
                    .hint(format!("use a distribution: quantize({name})")));
            }
            Found::Number(at, width) => {
                let is_signed = width.is_signed != 0;
                (Key::Number { is_signed }, at)
            }
            Found::Text { at, is_short } => (Key::Text { is_short }, at),
            Found::Comm => (Key::Comm, Located::default()),
        };
        keys.push(key);
        places.push(at);
    }
    let predicate = match filter {
        Some(filter) => filter::of(filter, &mut fields)?,
        None => Predicate::default(),
    };
    let reads = Reads {
        value,
        keys: places,
        predicate,
        saved: fields.saved(),
    };
    Ok((keys, reads))
}

/// Compiles a filter for the start of latencies.
pub(super) fn predicate(filter: &str, probe: &Probe) -> Result<Predicate, Failure> {
    filter::of(filter, &mut HitFields(probe))
}

/// Returns width and number of the steps of lquantize.
fn steps(text: &str, low: i64, high: i64, step: i64) -> Result<(u64, u64), Failure> {
    let levels = bars::levels(low, high, step).map_err(|wrong| misplaced(text, &wrong))?;
    Ok((step as u64, levels as u64))
}

/// Returns the start of each bar of llquantize, as in perfquet-query.
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
    fn one_program_does_what_it_can() {
        let shown = |texts: &[&str]| -> Vec<String> {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let groups = groups(&texts).unwrap();
            let names = |group: &Group| {
                let names: Vec<_> = group.actions.iter().map(|action| &*action.name).collect();
                format!("{} by {}", names.join(", "), group.keys.join(", "))
            };
            groups.iter().map(names).collect()
        };
        assert_eq!(
            shown(&[
                "count(), avg(duration), quantize(duration) by a",
                "min(duration) by a"
            ]),
            ["count(), avg(duration), quantize(duration), min(duration) by a"]
        );
        assert_eq!(
            shown(&["avg(x), avg(y), max(x) by a", "avg(x) by b", "count() by b"]),
            [
                "avg(x), max(x) by a",
                "avg(y) by a",
                "avg(x) by b",
                "count() by b"
            ]
        );
        assert_eq!(
            shown(&[
                "quantize(x), lquantize(x, 0, 9, 1)",
                "one = sum(x), two = sum(x)"
            ]),
            ["quantize(x), one by ", "lquantize(x, 0, 9, 1), two by "]
        );
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
