//! `--stat`: counts events instead of sampling or recording them, like `perf stat`.
//!
//! ```text
//! --stat task-clock,page-faults,'sched:*'      one value per event
//! --stat '{cycles,instructions}' --per cpu     counted at the same time, one value per CPU
//! ```
//! The kernel counts; nothing goes through a ring. [`Counters`] reads the values at the end, and every `--every`. An event that
//! cannot be counted here has a row that says so.

mod counters;
mod table;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, misuse};
use crate::probe::{self, Probe};
use crate::target::Target;

pub(crate) use counters::{Counters, Places};

/// Stands for the usual events.
const USUAL: &str = "usual";
/// The events of perf stat, without those that depend on the CPU.
const EVENTS: &str =
    "context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses";

/// Command-line options.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StatOptions {
    /// Count an event instead of sampling it; repeatable or comma-separated
    ///
    /// EVENT is as for -e; the events of a group {A,B} are counted at the same time. Prints the counts at the end, and stores them
    /// in table counts. [default: task-clock or cpu-clock, context-switches, cpu-migrations, page-faults, cycles, instructions,
    /// branches, branch-misses]
    #[arg(id = "stat", long = "stat", value_name = "EVENT", num_args = 0..=1, default_missing_value = USUAL)]
    events: Vec<String>,
    /// With --stat: one count per cpu or thread [default: one count]
    ///
    /// A thread's count includes the threads and processes that it starts. With several cgroups (-G), each has its counts.
    #[arg(long, value_name = "WHAT", requires = "stat")]
    per: Option<Per>,
}

/// The parts into which a count is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Per {
    Cpu,
    Thread,
}

/// Events that are counted at the same time.
pub(crate) type Group = Vec<Probe>;

impl StatOptions {
    /// Whether events are counted.
    pub(crate) fn is_requested(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the parts into which counts are divided; `None` if they are not.
    pub(crate) fn per(&self) -> Option<Per> {
        self.per
    }

    /// Returns the events in their groups; most are alone.
    pub(crate) fn groups(&self, target: &Target) -> Result<Vec<Group>, Failure> {
        if self.per == Some(Per::Thread) && target.is_of_cpus() {
            return Err(misuse("--per thread: requires a command, -p, -t or -u")
                .hint("use --per cpu, or count sched:sched_switch --agg 'count() by comm'"));
        }
        let clock = match target.is_of_cpus() {
            true => "cpu-clock",
            false => "task-clock",
        };
        let mut groups = Vec::new();
        for text in &self.events {
            let usual = format!("{clock},{EVENTS}");
            let text = if text == USUAL { &usual } else { text };
            for part in parts(text)? {
                match part {
                    Part::Events(text) => {
                        let probes = probe::parse(text)?.into_iter();
                        groups.extend(probes.map(|probe| vec![probe]));
                    }
                    Part::Group(text) => groups.push(probe::parse(text)?),
                }
            }
        }
        Ok(groups)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Events(&'a str),
    Group(&'a str),
}

/// Splits `a,{b,c},d` into single events and groups.
fn parts(text: &str) -> Result<Vec<Part<'_>>, Failure> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (before, after) = match rest.split_once('{') {
            None => (rest, None),
            Some((before, after)) => (before, Some(after)),
        };
        // The commas between events and groups.
        let events = match after {
            Some(_) => before.strip_suffix(',').unwrap_or(before),
            None => before,
        };
        let events = match parts.is_empty() {
            true => events,
            false => events.strip_prefix(',').unwrap_or(events),
        };
        if events.contains('}') {
            return Err(misuse(format!("--stat {text}: expected '{{' before '}}'")));
        }
        if !events.is_empty() || parts.is_empty() && after.is_none() {
            parts.push(Part::Events(events));
        }
        let Some(after) = after else {
            return Ok(parts);
        };
        let Some((group, more)) = after.split_once('}') else {
            return Err(misuse(format!(
                "--stat {text}: expected '}}' after the group"
            )));
        };
        parts.push(Part::Group(group));
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_split() {
        use Part::{Events, Group};
        let check = |text: &str, expected: &[Part<'_>]| {
            assert_eq!(parts(text).unwrap(), expected, "{text}");
        };
        check("a", &[Events("a")]);
        check("a,b", &[Events("a,b")]);
        check("{a,b}", &[Group("a,b")]);
        check(
            "a,{b,c},{d},e,f",
            &[Events("a"), Group("b,c"), Group("d"), Events("e,f")],
        );
        check("", &[Events("")]);
        assert!(parts("{a").is_err() && parts("a}").is_err());
    }

    #[test]
    fn usual_events() {
        let options = StatOptions {
            events: vec![USUAL.to_owned()],
            per: None,
        };
        let first = |target: &Target| options.groups(target).unwrap()[0][0].name.clone();
        assert_eq!(first(&Target::System), "cpu-clock");
        assert_eq!(first(&Target::Command), "task-clock");
        let per_thread = StatOptions {
            per: Some(Per::Thread),
            ..options.clone()
        };
        assert!(per_thread.groups(&Target::System).is_err());
    }
}
