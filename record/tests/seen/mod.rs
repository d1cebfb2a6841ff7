//! Contents of a recording, read by the ordinary perf.data reader.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use perfquet_events::event::{Event, EventType, Fact, Sink};
use perfquet_events::{Error, Input};
use perfquet_import::journal_inputs;
use perfquet_readers::FORMATS;

/// The data that the tests check.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) types: Vec<EventType>,
    pub(crate) samples: Vec<Hit>,
    pub(crate) comms: Vec<Named>,
    pub(crate) forks: Vec<i32>,
    pub(crate) exits: Vec<i32>,
    pub(crate) mappings: Vec<Mapped>,
    pub(crate) lost: u64,
    /// Losses by event, as counted at the end.
    pub(crate) lost_of: BTreeMap<usize, u64>,
    pub(crate) problems: Vec<String>,
    pub(crate) facts: BTreeMap<&'static str, String>,
    pub(crate) is_in_order: bool,
    /// Thread names at the time of each sample.
    names: HashMap<i32, String>,
    newest: i64,
}

/// A sample.
pub(crate) struct Hit {
    pub(crate) event: usize,
    pub(crate) tid: i32,
    comm: String,
}

/// A new name of a thread.
pub(crate) struct Named {
    pub(crate) time: Option<i64>,
    pub(crate) tid: i32,
    pub(crate) comm: String,
    pub(crate) exec: bool,
}

/// A mapping.
pub(crate) struct Mapped {
    pub(crate) pid: i32,
    pub(crate) path: String,
}

impl Hit {
    /// Returns the thread name at that time.
    pub(crate) fn comm(&self) -> &str {
        &self.comm
    }
}

impl Seen {
    /// Returns the number of hits of an event.
    pub(crate) fn count(&self, event: &str) -> u64 {
        self.samples_of(event).count() as u64
    }

    /// Returns the number of hits of an event, including lost ones.
    pub(crate) fn count_with_lost(&self, event: &str) -> u64 {
        let number = self.types.iter().position(|known| known.name == event);
        let lost = number.and_then(|number| self.lost_of.get(&number));
        self.count(event) + lost.copied().unwrap_or(0)
    }

    pub(crate) fn samples_of(&self, event: &str) -> impl Iterator<Item = &Hit> {
        let number = self.types.iter().position(|known| known.name == event);
        self.samples
            .iter()
            .filter(move |sample| Some(sample.event) == number)
    }

    /// Whether the kernel counts losses per event.
    pub(crate) fn knows_losses(&self) -> bool {
        let release = self.facts.get("release").map_or("", String::as_str);
        let major = release
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        major.is_some_and(|major| major >= 6)
    }
}

impl Sink for Seen {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(declared) => self.types.push(declared.clone()),
            Event::Sample(sample) => {
                let time = sample.time.expect("every event of ours has a time");
                self.is_in_order &= time >= self.newest;
                self.newest = time;
                let tid = sample.tid.expect("every event of ours has a thread");
                self.samples.push(Hit {
                    event: sample.event.0 as usize,
                    tid,
                    comm: self.names.get(&tid).cloned().unwrap_or_default(),
                });
            }
            Event::Comm(comm) => {
                let name = String::from_utf8_lossy(comm.comm).into_owned();
                self.names.insert(comm.tid, name.clone());
                self.comms.push(Named {
                    time: comm.time,
                    tid: comm.tid,
                    comm: name,
                    exec: comm.exec,
                });
            }
            Event::Fork(fork) => {
                // A thread starts with the name of its creator.
                if let Some(name) = self.names.get(&fork.parent_tid).cloned() {
                    self.names.insert(fork.tid, name);
                }
                self.forks.push(fork.tid);
            }
            Event::Exit(exit) => self.exits.push(exit.tid),
            Event::Mapping(mapping) => self.mappings.push(Mapped {
                pid: mapping.pid,
                path: String::from_utf8_lossy(mapping.path).into_owned(),
            }),
            Event::Loss(loss) => {
                self.lost += loss.count.unwrap_or(0);
                if let (Some(event), Some(in_all)) = (loss.event, loss.in_all) {
                    *self.lost_of.entry(event.0 as usize).or_default() += in_all;
                }
            }
            Event::Problem(problem) => self.problems.push(problem.message.to_owned()),
            Event::Fact(Fact::Clock(clock)) => {
                self.facts.insert("clock", clock.to_owned());
            }
            Event::Fact(Fact::OsRelease(release)) => {
                self.facts.insert("release", release.to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads a journal.
pub(crate) fn read(path: &Path) -> Seen {
    read_input(Input::open(path).expect("the journal opens"))
}

/// Reads the journal of a trace directory, parts of which may be compressed.
pub(crate) fn read_journal(trace: &Path) -> Seen {
    let inputs = journal_inputs(trace).expect("the journal opens");
    read_input(inputs.into_iter().next().expect("a journal"))
}

fn read_input(mut input: Input) -> Seen {
    let mut seen = Seen {
        is_in_order: true,
        ..Seen::default()
    };
    let format = FORMATS
        .iter()
        .find(|format| format.name == "perf.data")
        .expect("perf.data is read");
    format
        .read(&mut input, &mut seen)
        .expect("the journal is read");
    seen
}
