//! Facts about the recording, for the manifest.
//!
//! The first input's facts are the trace's. Different facts of a later input are kept too, with its number
//! (`input2.host`): a trace made from two hosts must be recognizable.

use std::collections::BTreeMap;

use perfquet_events::event::Fact;

use super::life::hexadecimal;
use super::spans::InputSummary;
use crate::recorded::{RANGES, parse};
use crate::store::Facts;

/// Name of the fact with a kernel symbol and its address: "_text 0xffffffff81000000".
pub(crate) const KERNEL_REFERENCE: &str = "kernel.reference";

/// Name of the fact with the time of day if the input lacks it: nanoseconds since 1970 at time 0, at most.
pub(crate) const ESTIMATED_WALL_OFFSET: &str = "wall_offset.estimated";

/// Name of the fact with the ID of the boot during which a trace was recorded.
pub(crate) const BOOT: &str = "clock.boot_id";

/// Limits for hostile inputs with endless facts.
const OTHERS: usize = 4096;

/// Facts of one input.
#[derive(Default)]
pub(crate) struct InputFacts {
    pub(crate) facts: Facts,
    pub(crate) kernel_build_id: Option<Vec<u8>>,
    recording: Option<String>,
}

impl InputFacts {
    /// Stores a fact; a repeated one replaces the earlier.
    pub(crate) fn add(&mut self, fact: Fact<'_>) {
        let facts = &mut self.facts;
        let text = |value: &str| Some(value.to_owned());
        match fact {
            Fact::Host(value) => facts.host = text(value),
            Fact::OsRelease(value) => facts.os_release = text(value),
            Fact::Architecture(value) => facts.architecture = text(value),
            Fact::Recorder(value) => facts.recorder = text(value),
            Fact::CommandLine(value) => facts.command_line = text(value),
            Fact::CpuModel(value) => facts.cpu_model = text(value),
            Fact::Cpus(value) => facts.cpus = Some(value),
            Fact::MemoryBytes(value) => facts.memory_bytes = Some(value),
            Fact::Clock(value) => facts.clock = text(value),
            Fact::WallOffset(value) => facts.wall_offset = Some(value),
            Fact::KernelBuildId(value) => {
                facts.kernel_build_id = Some(hexadecimal(value));
                self.kernel_build_id = Some(value.to_vec());
            }
            Fact::Recording(value) => self.recording = text(value),
            Fact::Other { name, value } => {
                if facts.other.len() < OTHERS || facts.other.contains_key(name) {
                    facts.other.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }

    /// What tells the input from the others of an import.
    pub(crate) fn summary(&self, times: Option<(i64, i64)>) -> InputSummary {
        let facts = &self.facts;
        InputSummary {
            name: String::new(),
            times,
            clock: facts.clock.clone(),
            wall_offset: facts.wall_offset,
            host: facts.host.clone(),
            os_release: facts.os_release.clone(),
            boot: facts.other.get(BOOT).cloned(),
            recording: self.recording.clone(),
            recorded: facts.other.get(RANGES).and_then(|text| parse(text)),
        }
    }

    /// Merges these facts with those of earlier inputs.
    pub(crate) fn store(self, all: &mut Facts) {
        let number = all.sources.len() + 1;
        let facts = self.facts;
        let mut differing = BTreeMap::new();
        let mut join = |name: &str, known: &mut Option<String>, facts: Option<String>| match known {
            None => *known = facts,
            Some(known) => {
                if let Some(facts) = facts.filter(|facts| facts != known) {
                    differing.insert(format!("input{number}.{name}"), facts);
                }
            }
        };
        join("clock", &mut all.clock, facts.clock);
        join("host", &mut all.host, facts.host);
        join("os_release", &mut all.os_release, facts.os_release);
        join("architecture", &mut all.architecture, facts.architecture);
        join("recorder", &mut all.recorder, facts.recorder);
        join("command_line", &mut all.command_line, facts.command_line);
        join("cpu_model", &mut all.cpu_model, facts.cpu_model);
        join(
            "kernel_build_id",
            &mut all.kernel_build_id,
            facts.kernel_build_id,
        );
        let mut join_number = |name: &str, known: Option<String>, facts: Option<String>| {
            let mut known = known;
            join(name, &mut known, facts);
        };
        let number_of = |value: Option<i64>| value.map(|value| value.to_string());
        join_number(
            "wall_offset",
            number_of(all.wall_offset),
            number_of(facts.wall_offset),
        );
        all.wall_offset = all.wall_offset.or(facts.wall_offset);
        all.cpus = all.cpus.or(facts.cpus);
        all.memory_bytes = all.memory_bytes.or(facts.memory_bytes);
        for (name, value) in facts.other {
            let known = all
                .other
                .entry(name.clone())
                .or_insert_with(|| value.clone());
            if *known != value {
                differing.insert(format!("input{number}.{name}"), value);
            }
        }
        all.other.extend(differing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Source;

    #[test]
    fn a_second_input_keeps_differing_facts() {
        let mut all = Facts::default();
        let mut first = InputFacts::default();
        first.add(Fact::Host("a"));
        first.add(Fact::Host("b"));
        first.add(Fact::WallOffset(5));
        first.store(&mut all);
        all.sources.push(Source::default());
        let mut second = InputFacts::default();
        second.add(Fact::Host("c"));
        second.add(Fact::WallOffset(6));
        second.add(Fact::Clock("monotonic"));
        second.store(&mut all);
        assert_eq!(all.host.as_deref(), Some("b"));
        assert_eq!(all.wall_offset, Some(5));
        assert_eq!(all.clock.as_deref(), Some("monotonic"));
        let others: Vec<_> = all.other.iter().map(|(a, b)| format!("{a}={b}")).collect();
        assert_eq!(others, ["input2.host=c", "input2.wall_offset=6"]);
    }
}
