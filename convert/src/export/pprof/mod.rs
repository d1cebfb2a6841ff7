//! pprof's profiles, for `go tool pprof`, speedscope and others: values by stack, without time.
//!
//! ```text
//! sample types   samples/count  cpu-clock/nanoseconds   sched:sched_switch/count   calls/count  self_time/nanoseconds
//! sample         vfs_write < work < main     1  1000000  0  0  0     thread=dd tid=220 pid=220 cpu=1
//! ```
//! All events are in one profile; `-sample_index=NAME` selects one. Fields may be in any order, so samples are streamed
//! first, and the tables that they refer to follow.

mod sums;
mod symbols;

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use perfquet_trace::unit_fact::OFF_CPU;

use super::aggregates;
use super::batch::{Head, Heads, column, i64_at, i64_column, text_at};
use super::calls::each_call;
use super::event_types::EventType;
use super::losses::{each_loss, problems};
use super::paths::{Path, Paths};
use super::protobuf::Message;
use super::source::{RowTable, Source};
use super::stacks::Stacks;
use super::weights::{COUNT, NANOSECONDS, Weights};
use super::{Exporter, Output, Tally};
use sums::{Key, StackKey, Sums};
use symbols::{Strings, Symbols};

/// `--to pprof`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "pprof",
    about: "pprof's profile, for go tool pprof and speedscope",
    output: Output::File {
        ending: ".pb.gz",
        next: "go tool pprof -http=: FILE",
        write,
    },
};

/// Field numbers of `profile.proto`.
mod profile {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
    /// Of a value type.
    pub(super) const TYPE: u32 = 1;
    pub(super) const UNIT: u32 = 2;
    /// Of a sample.
    pub(super) const LOCATION_ID: u32 = 1;
    pub(super) const VALUE: u32 = 2;
    pub(super) const LABEL: u32 = 3;
    /// Of a label.
    pub(super) const KEY: u32 = 1;
    pub(super) const TEXT: u32 = 2;
    pub(super) const NUMBER: u32 = 3;
}

/// A value of each sample.
struct ValueType {
    name: String,
    unit: &'static str,
}

/// The value types of the profile. A row adds to two adjacent ones, or to one.
struct ValueTypes {
    types: Vec<ValueType>,
    /// Index of an event's value, by the name of a sampled event or by table.
    events: HashMap<String, usize>,
    samples: Option<usize>,
    calls: Option<usize>,
    aggregates: HashMap<Option<String>, usize>,
}

impl ValueTypes {
    fn of(
        source: &Source<'_>,
        weights: &Weights,
        aggregates: &HashMap<aggregates::Key, aggregates::Latest>,
    ) -> ValueTypes {
        let mut values = ValueTypes {
            types: Vec::new(),
            events: HashMap::new(),
            samples: None,
            calls: None,
            aggregates: HashMap::new(),
        };
        let has_rows = |event: &&EventType| event.rows > 0;
        for event in source
            .event_types()
            .filter(has_rows)
            .filter(|event| event.is_sampled())
        {
            values.samples.get_or_insert_with(|| {
                // Imported profiles have an event with that name; pprof would add up or hide one of the two.
                let mut sampled = source.event_types().filter(|event| event.is_sampled());
                let name = match sampled.any(|event| event.name == "samples") {
                    true => "rows",
                    false => "samples",
                };
                values.types.push(ValueType {
                    name: name.to_owned(),
                    unit: "count",
                });
                0
            });
            let unit = weights.unit(&event.name);
            values.add_event(&event.name, event.name.clone(), unit);
        }
        for event in source
            .event_types()
            .filter(has_rows)
            .filter(|event| !event.is_sampled())
        {
            values.add_event(&event.table, event.full_name(), "count");
        }
        if source.call_rows() > 0 {
            values.calls = Some(values.types.len());
            for (name, unit) in [("calls", "count"), ("self_time", "nanoseconds")] {
                let name = name.to_owned();
                values.types.push(ValueType { name, unit });
            }
        }
        let mut names: Vec<&Option<String>> = aggregates.keys().map(|key| &key.0).collect();
        names.sort();
        names.dedup();
        for name in names {
            values.aggregates.insert(name.clone(), values.types.len());
            let name = name.clone().unwrap_or_else(|| "aggregate".to_owned());
            let unit = match name.as_str() {
                OFF_CPU => NANOSECONDS,
                _ => COUNT,
            };
            values.types.push(ValueType { name, unit });
        }
        values
    }

    fn add_event(&mut self, key: &str, name: String, unit: &'static str) {
        if !self.events.contains_key(key) {
            self.events.insert(key.to_owned(), self.types.len());
            self.types.push(ValueType { name, unit });
        }
    }

    /// Returns the values of a sample from a sum.
    fn values(&self, key: &Key, count: i64, sum: i64) -> Vec<u64> {
        let mut values = vec![0; self.types.len()];
        let first = key.value;
        let is_sampled = self.samples.is_some() && self.is_sampled(first);
        let pairs = if self.calls == Some(first) {
            [(first, count), (first + 1, sum)]
        } else if is_sampled {
            [(0, count), (first, sum)]
        } else {
            [(first, sum), (first, sum)]
        };
        for (index, value) in pairs {
            if let Some(place) = values.get_mut(index) {
                *place = value.cast_unsigned();
            }
        }
        values
    }

    /// Returns the type that readers show first: the time of samples, otherwise that of calls, otherwise the values of an
    /// aggregation, otherwise hits. Nobody selected the records that the recorder needs itself.
    fn default(&self, source: &Source<'_>) -> usize {
        let aggregates = self.aggregates.values().min().copied();
        let hits = source
            .event_types()
            .filter(|event| event.kind != "recorder")
            .filter_map(|event| self.events.get(&event.table).copied());
        match (self.samples, self.calls) {
            (Some(samples), _) => samples + 1,
            (None, Some(calls)) => calls + 1,
            (None, None) => aggregates.or(hits.min()).unwrap_or(0),
        }
    }

    /// Values of sampled events directly follow the number of samples.
    fn is_sampled(&self, value: usize) -> bool {
        let tables = self
            .events
            .iter()
            .filter(|(key, _)| key.starts_with("events/"));
        let first_table = tables.map(|(_, index)| *index).min();
        let end = first_table
            .or(self.calls)
            .or(self.aggregates.values().min().copied());
        (1..end.unwrap_or(self.types.len())).contains(&value)
    }
}

struct Profile<'e, 'o> {
    out: &'o mut dyn Write,
    message: Message,
    values: ValueTypes,
    weights: Weights,
    strings: Strings,
    symbols: Symbols<'e>,
    sums: Sums,
    paths: Paths,
    labels: Labels,
}

/// Names of labels, as strings of the profile.
struct Labels {
    thread: u64,
    tid: u64,
    pid: u64,
    cpu: u64,
}

fn write(source: &Source<'_>, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let stacks = Stacks::read(source.trace)?;
    let sums_of_tools = aggregates::read(source.trace)?;
    let mut strings = Strings::new();
    let labels = Labels {
        thread: strings.number("thread"),
        tid: strings.number("tid"),
        pid: strings.number("pid"),
        cpu: strings.number("cpu"),
    };
    let weights = Weights::of(source, tally)?;
    let mut profile = Profile {
        out,
        message: Message::default(),
        values: ValueTypes::of(source, &weights, &sums_of_tools),
        weights,
        strings,
        symbols: Symbols::new(&stacks),
        sums: Sums::default(),
        paths: Paths::new(),
        labels,
    };
    profile.types()?;
    for table in source.samples() {
        profile.samples(source, table, tally)?;
    }
    for table in source.events() {
        profile.hits(source, table, tally)?;
    }
    profile.calls(source, tally)?;
    profile.aggregates(source, &sums_of_tools, tally)?;
    profile.write_sums()?;
    profile.facts(source, tally)?;
    profile.symbols()
}

impl Profile<'_, '_> {
    fn types(&mut self) -> Result<()> {
        for index in 0..self.values.types.len() {
            let value = &self.values.types[index];
            let (name, unit) = (
                self.strings.number(&value.name),
                self.strings.number(value.unit),
            );
            self.message.message(profile::SAMPLE_TYPE, |message| {
                message.uint(profile::TYPE, name);
                message.uint(profile::UNIT, unit);
            });
        }
        self.flush()
    }

    fn samples(
        &mut self,
        source: &Source<'_>,
        table: &RowTable<'_>,
        tally: &mut Tally,
    ) -> Result<()> {
        const WANTED: [&str; 8] = [
            "cpu",
            "pid",
            "tid",
            "comm",
            "kernel_stack",
            "user_stack",
            "event",
            "period",
        ];
        let (mut written, mut undeclared) = (0, 0);
        for batch in source.rows(table, Some(&WANTED))? {
            let batch = batch?;
            let heads = Heads::of(&batch);
            let events = column(&batch, "event");
            let periods = i64_column(&batch, "period");
            for row in 0..batch.num_rows() {
                let event = events.and_then(|events| text_at(events, row));
                let value = event.and_then(|event| self.values.events.get(event).copied());
                let Some(value) = value else {
                    undeclared += 1;
                    continue;
                };
                written += 1;
                let key = self.key(&heads.row(row), value);
                self.add(key, self.weights.of_sample(event, i64_at(periods, row)))?;
            }
        }
        tally.wrote("sample", written);
        tally.omit("sample", "of an event that is not declared", undeclared);
        Ok(())
    }

    /// The key of a value of a sample or hit.
    fn key(&mut self, head: &Head<'_>, value: usize) -> Key {
        Key {
            stack: StackKey::Frames {
                user: head.user_stack,
                kernel: head.kernel_stack,
            },
            pid: head.pid,
            tid: head.tid,
            cpu: head.cpu,
            comm: head
                .comm
                .map(|comm| self.strings.number(comm).cast_signed()),
            value,
        }
    }

    /// Adds hits of tracepoints and probes, each with a value of one.
    fn hits(&mut self, source: &Source<'_>, table: &RowTable<'_>, tally: &mut Tally) -> Result<()> {
        const WANTED: [&str; 6] = ["cpu", "pid", "tid", "comm", "kernel_stack", "user_stack"];
        let Some(value) = self.values.events.get(&table.name).copied() else {
            tally.omit(
                "event",
                "of an event type that is not declared",
                source.table_rows(table),
            );
            return Ok(());
        };
        let mut written = 0;
        for batch in source.rows(table, Some(&WANTED))? {
            let batch = batch?;
            let heads = Heads::of(&batch);
            for row in 0..batch.num_rows() {
                let key = self.key(&heads.row(row), value);
                self.add(key, 1)?;
            }
            written += batch.num_rows() as u64;
        }
        tally.wrote("event", written);
        Ok(())
    }

    /// Adds each call with its self time to the stack of its callers.
    fn calls(&mut self, source: &Source<'_>, tally: &mut Tally) -> Result<()> {
        let Some(value) = self.values.calls else {
            return Ok(());
        };
        let (mut without_self_time, mut without_callers) = (0_u64, 0_u64);
        let counts = each_call(source, |call| {
            without_self_time += u64::from(call.self_time.is_none());
            let path = match self.paths.of(call) {
                Path::Nested(path) => path,
                Path::Alone(path) => {
                    without_callers += 1;
                    path
                }
            };
            let comm = call
                .head
                .comm
                .map(|comm| self.strings.number(comm).cast_signed());
            let key = Key {
                stack: StackKey::Calls(path),
                pid: call.head.pid,
                tid: call.head.tid,
                cpu: call.head.cpu,
                comm,
                value,
            };
            self.add(key, call.self_time.unwrap_or(0))
        })?;
        tally.wrote("call", counts.calls);
        counts.omissions(tally);
        if without_callers > 0 {
            tally.note(format!(
                "{} exported without callers: more than 256 overlapping",
                perfquet_trace::count::counted(without_callers, "call")
            ));
        }
        if without_self_time > 0 {
            tally.note(format!(
                "{} of unknown self time: exported with a count, without time",
                perfquet_trace::count::counted(without_self_time, "call")
            ));
        }
        Ok(())
    }

    fn aggregates(
        &mut self,
        source: &Source<'_>,
        sums: &HashMap<aggregates::Key, aggregates::Latest>,
        tally: &mut Tally,
    ) -> Result<()> {
        let mut keys: Vec<&aggregates::Key> = sums.keys().collect();
        keys.sort();
        for key in &keys {
            let (name, texts, user, kernel) = key;
            let Some(value) = self.values.aggregates.get(name).copied() else {
                continue;
            };
            let comm = (!texts.is_empty()).then(|| self.strings.number(&texts.join(", ")));
            let sum = sums.get(*key).map_or(0, |(_, sum)| sum.rounded());
            let key = Key {
                stack: StackKey::Frames {
                    user: *user,
                    kernel: *kernel,
                },
                pid: None,
                tid: None,
                cpu: None,
                comm: comm.map(u64::cast_signed),
                value,
            };
            self.add(key, sum)?;
        }
        tally.wrote("aggregate", keys.len() as u64);
        let without_stack = source.aggregate_rows().saturating_sub(keys.len() as u64);
        tally.omit("aggregate", aggregates::OMITTED, without_stack);
        if !keys.is_empty() && source.is_limited() {
            tally.note(
                "aggregates are exported whole: --time and --where do not apply to them".to_owned(),
            );
        }
        Ok(())
    }

    fn add(&mut self, key: Key, value: i64) -> Result<()> {
        if self.sums.add(key, value) {
            self.write_sums()?;
        }
        Ok(())
    }

    fn write_sums(&mut self) -> Result<()> {
        let mut locations = Vec::new();
        for (key, (count, sum)) in self.sums.take() {
            locations.clear();
            match key.stack {
                StackKey::Frames { user, kernel } => {
                    self.symbols.locations_of(kernel, &mut locations);
                    self.symbols.locations_of(user, &mut locations);
                }
                StackKey::Calls(path) => {
                    self.symbols
                        .locations_of_calls(&self.paths, path, &mut locations)
                }
            }
            if locations.is_empty() {
                locations.push(self.symbols.no_stack());
            }
            let values = self.values.values(&key, count, sum);
            let labels = &self.labels;
            self.message.message(profile::SAMPLE, |message| {
                message.packed(profile::LOCATION_ID, locations.iter().copied());
                message.packed(profile::VALUE, values);
                if let Some(comm) = key.comm {
                    message.message(profile::LABEL, |message| {
                        message.uint(profile::KEY, labels.thread);
                        message.int(profile::TEXT, comm);
                    });
                }
                for (name, number) in [
                    (labels.tid, key.tid),
                    (labels.pid, key.pid),
                    (labels.cpu, key.cpu),
                ] {
                    // Readers of pprof treat a number of 0 as missing.
                    if let Some(number) = number.filter(|number| *number != 0) {
                        message.message(profile::LABEL, |message| {
                            message.uint(profile::KEY, name);
                            message.int(profile::NUMBER, i64::from(number));
                        });
                    }
                }
            });
            if self.message.as_bytes().len() > 1 << 16 {
                self.flush()?;
            }
        }
        self.flush()
    }

    /// Writes times and comments.
    fn facts(&mut self, source: &Source<'_>, tally: &mut Tally) -> Result<()> {
        let facts = &source.trace.manifest().facts;
        let first = source.first_time();
        // Samples of an imported profile have no times.
        let stated = |name: &str| facts.other.get(name)?.parse::<i64>().ok();
        let wall = facts.wall_offset.map(|wall| wall.saturating_add(first));
        if let Some(wall) = wall.or_else(|| stated("pprof.time_ns")) {
            self.message.int(profile::TIME_NANOS, wall);
        }
        let duration = match source.length() {
            0 => stated("pprof.duration_ns").unwrap_or(0),
            duration => duration,
        };
        self.message.int(profile::DURATION_NANOS, duration.max(0));
        let sampled = source
            .event_types()
            .find(|event| event.is_sampled() && event.rows > 0);
        let main = self.values.default(source);
        if let Some(value) = self.values.types.get(main) {
            let (name, unit) = (
                self.strings.number(&value.name),
                self.strings.number(value.unit),
            );
            self.message.uint(profile::DEFAULT_SAMPLE_TYPE, name);
            if let Some(period) = sampled.and_then(|event| event.period) {
                self.message.message(profile::PERIOD_TYPE, |message| {
                    message.uint(profile::TYPE, name);
                    message.uint(profile::UNIT, unit);
                });
                self.message.int(profile::PERIOD, period);
            }
        }
        let mut comments: Vec<String> = Vec::new();
        for (name, value) in [
            ("recorder", facts.recorder.as_deref()),
            ("command line", facts.command_line.as_deref()),
            ("host", facts.host.as_deref()),
            ("kernel", facts.os_release.as_deref()),
        ] {
            comments.extend(value.map(|value| format!("{name}: {value}")));
        }
        let losses = each_loss(source, tally, |_| Ok(()))?;
        match (losses.rows, losses.events) {
            (0, _) => {}
            (_, 0) => comments.push("events lost while recording".to_owned()),
            (_, lost) => comments.push(format!("{lost} events lost while recording")),
        }
        let problems = problems(source, tally)?;
        if problems > 0 {
            comments.push(format!("{problems} read errors in the recording"));
        }
        for comment in comments {
            let number = self.strings.number(&comment);
            self.message.uint(profile::COMMENT, number);
        }
        self.flush()
    }

    /// Writes the tables that samples refer to.
    fn symbols(&mut self) -> Result<()> {
        self.symbols.write(
            &mut self.strings,
            &self.paths,
            &mut self.message,
            |message| {
                self.out.write_all(message.as_bytes())?;
                message.clear();
                Ok(())
            },
        )?;
        for text in self.strings.all() {
            self.message.text(profile::STRING_TABLE, text);
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.out.write_all(self.message.as_bytes())?;
        self.message.clear();
        Ok(())
    }
}
