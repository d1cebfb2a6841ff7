//! Facts about the recording, on their way into the manifest.
//!
//! The first input's facts are the trace's. Different facts of a later input are kept too, under its number
//! (`input2.host`): a trace made from two machines must not look like one.

use std::collections::BTreeMap;

use perfquet_events::event::Fact;

use super::life::hexadecimal;
use crate::store::Facts;

/// Name of the fact with a kernel symbol and its address: "_text 0xffffffff81000000".
pub(crate) const KERNEL_REFERENCE: &str = "kernel.reference";

/// Name of the fact with the time of day if the input lacks it: nanoseconds since 1970 at time 0, at most.
pub(crate) const ESTIMATED_WALL_OFFSET: &str = "wall_offset.estimated";

/// Limits for hostile inputs with endless facts.
const OTHERS: usize = 4096;

/// Facts of one input.
#[derive(Default)]
pub(crate) struct CollectedFacts {
    pub(crate) facts: Facts,
    pub(crate) kernel_build_id: Option<Vec<u8>>,
}

impl CollectedFacts {
    /// Stores a fact; a repeated one replaces the earlier.
    pub(crate) fn tell(&mut self, fact: Fact<'_>) {
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
            Fact::Other { name, value } => {
                if facts.other.len() < OTHERS || facts.other.contains_key(name) {
                    facts.other.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }

    /// Joins them to those of the inputs before.
    pub(crate) fn store(self, all: &mut Facts) {
        let number = all.sources.len() + 1;
        let told = self.facts;
        let mut differing = BTreeMap::new();
        let mut join = |name: &str, known: &mut Option<String>, told: Option<String>| match known {
            None => *known = told,
            Some(known) => {
                if let Some(told) = told.filter(|told| told != known) {
                    differing.insert(format!("input{number}.{name}"), told);
                }
            }
        };
        join("clock", &mut all.clock, told.clock);
        join("host", &mut all.host, told.host);
        join("os_release", &mut all.os_release, told.os_release);
        join("architecture", &mut all.architecture, told.architecture);
        join("recorder", &mut all.recorder, told.recorder);
        join("command_line", &mut all.command_line, told.command_line);
        join("cpu_model", &mut all.cpu_model, told.cpu_model);
        join(
            "kernel_build_id",
            &mut all.kernel_build_id,
            told.kernel_build_id,
        );
        let mut join_number = |name: &str, known: Option<String>, told: Option<String>| {
            let mut known = known;
            join(name, &mut known, told);
        };
        let number_of = |value: Option<i64>| value.map(|value| value.to_string());
        join_number(
            "wall_offset",
            number_of(all.wall_offset),
            number_of(told.wall_offset),
        );
        all.wall_offset = all.wall_offset.or(told.wall_offset);
        all.cpus = all.cpus.or(told.cpus);
        all.memory_bytes = all.memory_bytes.or(told.memory_bytes);
        for (name, value) in told.other {
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
    fn a_second_input_keeps_what_differs() {
        let mut all = Facts::default();
        let mut first = CollectedFacts::default();
        first.tell(Fact::Host("a"));
        first.tell(Fact::Host("b"));
        first.tell(Fact::WallOffset(5));
        first.store(&mut all);
        all.sources.push(Source::default());
        let mut second = CollectedFacts::default();
        second.tell(Fact::Host("c"));
        second.tell(Fact::WallOffset(6));
        second.tell(Fact::Clock("monotonic"));
        second.store(&mut all);
        assert_eq!(all.host.as_deref(), Some("b"));
        assert_eq!(all.wall_offset, Some(5));
        assert_eq!(all.clock.as_deref(), Some("monotonic"));
        let others: Vec<_> = all.other.iter().map(|(a, b)| format!("{a}={b}")).collect();
        assert_eq!(others, ["input2.host=c", "input2.wall_offset=6"]);
    }
}
