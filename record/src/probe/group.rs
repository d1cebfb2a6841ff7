//! Event groups: the first event samples, and each of its samples has the values of all.
//!
//! ```text
//! -e '{cpu-clock,page-faults}:S'    a row of cpu-clock, and one of page-faults with their number since the last sample
//! ```
//! The syntax is perf's; modifiers after the brace apply to all events of the group.

use super::{Probe, parse_list};
use crate::failure::{Failure, misuse};
use crate::sys::perf_event::GROUP_EVENTS;

/// A part of an argument of `-e`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// `a,b`
    Events(&'a str),
    /// `{a,b}:S`
    Group {
        events: &'a str,
        /// After the brace, without the colon.
        modifiers: &'a str,
    },
}

/// Splits `a,{b,c}:S,d` into events and groups.
pub(super) fn parts(text: &str) -> Result<Vec<Part<'_>>, Failure> {
    let wrong = |expected: &str| misuse(format!("{text}: expected {expected}"));
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        match before.strip_suffix(',') {
            Some(events) => parts.push(Part::Events(events)),
            None if before.is_empty() => {}
            None => return Err(wrong("a comma before the group")),
        }
        let (events, after) = after
            .split_once('}')
            .ok_or_else(|| wrong("'}' after the group"))?;
        let (modifiers, after) = match after.split_once(',') {
            Some((modifiers, after)) => (modifiers, Some(after)),
            None => (after, None),
        };
        let modifiers = match modifiers {
            "" => "",
            modifiers => modifiers
                .strip_prefix(':')
                .ok_or_else(|| wrong("a comma after the group"))?,
        };
        parts.push(Part::Group { events, modifiers });
        match after {
            Some(after) => rest = after,
            None => return Ok(parts),
        }
    }
    match rest.contains('}') {
        true => Err(wrong("'{' before '}'")),
        false => {
            parts.push(Part::Events(rest));
            Ok(parts)
        }
    }
}

/// Returns the leader of a group, which has the others.
pub(super) fn parse(text: &str, events: &str, modifiers: &str) -> Result<Probe, Failure> {
    if !modifiers.contains('S') {
        return Err(misuse(format!(
            "{text}: a group that is recorded needs :S, which reads all of its events with each sample of the first"
        ))
        .hint(format!(
            "write {{{events}}}:S{modifiers}; or count the events with --stat, or sample each: -e {events}"
        )));
    }
    let modifiers = modifiers.replace('S', "");
    let mut probes = Vec::new();
    for event in super::split(events) {
        let event = event.trim();
        let event = match (&modifiers[..], event.ends_with('/') || event.contains(':')) {
            ("", _) => event.to_owned(),
            (modifiers, true) => format!("{event}{modifiers}"),
            (modifiers, false) => format!("{event}:{modifiers}"),
        };
        probes.extend(parse_list(&event)?);
    }
    if let Some(other) = probes.iter().find(|probe| !probe.is_sampled()) {
        return Err(misuse(format!(
            "{text}: {} is a tracepoint, which cannot be in a group with :S",
            other.name
        ))
        .hint("name it separately: -e EVENT"));
    }
    if probes.len() > GROUP_EVENTS {
        return Err(misuse(format!(
            "{text}: {} events, a group has at most {GROUP_EVENTS}",
            probes.len()
        )));
    }
    let mut probes = probes.into_iter();
    let Some(leader) = probes.next() else {
        return Err(misuse(format!("{text}: a group without events")));
    };
    Ok(Probe {
        members: probes.collect(),
        ..leader
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe;

    #[test]
    fn arguments_are_split() {
        let group = |events, modifiers| Part::Group { events, modifiers };
        let check = |text: &str, expected: &[Part<'_>]| {
            assert_eq!(parts(text).unwrap(), expected, "{text}");
        };
        check("a,b", &[Part::Events("a,b")]);
        check("{a,b}:S", &[group("a,b", "S")]);
        check(
            "a,{b,c}:Su,{d},e,f",
            &[
                Part::Events("a"),
                group("b,c", "Su"),
                group("d", ""),
                Part::Events("e,f"),
            ],
        );
        for wrong in ["{a", "a}", "a{b}", "{a}b", "{a}S,b"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn leader_has_the_others() {
        let names = |text: &str| {
            let probes = probe::parse(text).map_err(|failure| failure.to_string())?;
            let one = |probe: &Probe| {
                let members = probe.members.iter().map(|member| member.name.as_str());
                format!("{} {}", probe.name, members.collect::<Vec<_>>().join(" "))
            };
            Ok::<_, String>(probes.iter().map(one).collect::<Vec<_>>())
        };
        assert_eq!(
            names("{cpu-clock,page-faults}:S,task-clock"),
            Ok(vec![
                "cpu-clock page-faults".to_owned(),
                "task-clock ".to_owned()
            ])
        );
        assert_eq!(
            names("{cycles,instructions:p}:Su"),
            Ok(vec!["cycles:u instructions:pu".to_owned()])
        );
        for (wrong, reason) in [
            ("{cpu-clock,page-faults}", "needs :S"),
            ("{}:S", "empty name"),
            ("{cpu-clock,none}:S", "no event none"),
            ("{cpu-clock}:Sq", "unknown modifier"),
        ] {
            let error = names(wrong).unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }
}
