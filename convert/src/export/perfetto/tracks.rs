//! Tracks, and the events on them: slices, instants, counters.

use std::collections::HashMap;

use anyhow::Result;

use super::super::protobuf::Message;
use super::super::threads::Threads;
use super::fields::{annotation, interned, packet, track, track_event};
use super::packets::{Packets, SequenceId};

/// Sequence of the tracks.
const SEQUENCE: SequenceId = 3;

/// Maximum number of interned strings; after it, the sequence restarts.
const MOST_STRINGS: usize = 1 << 20;

/// A track. Its description is written before its first event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Track {
    Thread {
        tid: i32,
        /// NULL if the input has no processes. The importer would drop such a thread, so its track has only a name.
        pid: Option<i32>,
        lane: usize,
    },
    /// Interrupts of a CPU.
    Cpu {
        cpu: i32,
        what: &'static str,
        lane: usize,
    },
    /// Calls without an exit.
    Open {
        tid: i32,
        pid: Option<i32>,
    },
    Process(i32),
    Counter {
        pid: i32,
        name: String,
    },
    Named(&'static str),
}

/// Value of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Annotation {
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(String),
}

/// An event on a track.
pub(super) struct TrackEvent<'e> {
    pub(super) time: i64,
    /// `track_event::BEGIN`, …
    pub(super) kind: u64,
    pub(super) category: &'static str,
    pub(super) name: &'e str,
    pub(super) annotations: &'e [(String, Annotation)],
}

pub(super) struct Tracks<'t> {
    threads: &'t Threads,
    uuids: HashMap<Track, u64>,
    /// The machine, whose tracks are others than those of the machines before it.
    machine: u64,
    strings: HashMap<(u32, String), u64>,
    /// Interned data for the next packet.
    new_strings: Message,
    is_begun: bool,
}

impl<'t> Tracks<'t> {
    pub(super) fn new(threads: &'t Threads, machine: u64) -> Tracks<'t> {
        Tracks {
            threads,
            machine,
            uuids: HashMap::new(),
            strings: HashMap::new(),
            new_strings: Message::default(),
            is_begun: false,
        }
    }

    /// Writes an event on a track. `comm` is the name of the thread of a new track.
    pub(super) fn event(
        &mut self,
        packets: &mut Packets<'_>,
        track: &Track,
        comm: Option<&str>,
        event: &TrackEvent<'_>,
    ) -> Result<()> {
        let uuid = self.uuid(packets, track, comm)?;
        if self.strings.len() >= MOST_STRINGS {
            self.strings.clear();
            self.is_begun = false;
        }
        let name = self.intern(interned::EVENT_NAMES, event.name);
        let category = self.intern(interned::CATEGORIES, event.category);
        let mut annotations = Message::default();
        for (name, value) in event.annotations {
            let name = self.intern(interned::ANNOTATION_NAMES, name);
            annotations.message(track_event::ANNOTATION, |message| {
                message.uint(annotation::NAME, name);
                write_annotation(message, value);
            });
        }
        let begins = !std::mem::replace(&mut self.is_begun, true);
        packets.add_to(
            SEQUENCE,
            event.time,
            begins,
            &mut self.new_strings,
            |message| {
                message.message(packet::TRACK_EVENT, |message| {
                    message.uint(track_event::TYPE, event.kind);
                    message.uint(track_event::TRACK, uuid);
                    message.uint(track_event::CATEGORY, category);
                    message.uint(track_event::NAME, name);
                    message.append(&annotations);
                });
            },
        )
    }

    /// Ends the innermost slice of a track.
    pub(super) fn end(
        &mut self,
        packets: &mut Packets<'_>,
        track: &Track,
        time: i64,
    ) -> Result<()> {
        let uuid = self.uuid(packets, track, None)?;
        packets.add_to(SEQUENCE, time, false, &mut self.new_strings, |message| {
            message.message(packet::TRACK_EVENT, |message| {
                message.uint(track_event::TYPE, track_event::END);
                message.uint(track_event::TRACK, uuid);
            });
        })
    }

    /// Sets a counter.
    pub(super) fn count(
        &mut self,
        packets: &mut Packets<'_>,
        track: &Track,
        time: i64,
        value: &Annotation,
    ) -> Result<()> {
        let uuid = self.uuid(packets, track, None)?;
        let begins = !std::mem::replace(&mut self.is_begun, true);
        packets.add_to(SEQUENCE, time, begins, &mut self.new_strings, |message| {
            message.message(packet::TRACK_EVENT, |message| {
                message.uint(track_event::TYPE, track_event::COUNT);
                message.uint(track_event::TRACK, uuid);
                match value {
                    Annotation::Int(value) => message.int(track_event::COUNTER, *value),
                    Annotation::Float(value) => message.double(track_event::COUNTER_DOUBLE, *value),
                    Annotation::UInt(value) => {
                        message.double(track_event::COUNTER_DOUBLE, *value as f64);
                    }
                    Annotation::Bool(value) => message.int(track_event::COUNTER, i64::from(*value)),
                    Annotation::Text(_) => {}
                }
            });
        })
    }

    /// Returns the number of a string in the sequence.
    fn intern(&mut self, kind: u32, text: &str) -> u64 {
        // Allocated only for the lookup: names are short, and a slice has few.
        if let Some(number) = self.strings.get(&(kind, text.to_owned())) {
            return *number;
        }
        let number = self.strings.len() as u64 + 1;
        self.strings.insert((kind, text.to_owned()), number);
        self.new_strings.message(kind, |message| {
            message.uint(interned::IID, number);
            message.text(interned::TEXT, text);
        });
        number
    }

    fn uuid(
        &mut self,
        packets: &mut Packets<'_>,
        track: &Track,
        comm: Option<&str>,
    ) -> Result<u64> {
        if let Some(uuid) = self.uuids.get(track) {
            return Ok(*uuid);
        }
        let parent = match track {
            Track::Thread {
                tid,
                pid: Some(pid),
                lane: 1..,
            } => Some(Track::Thread {
                tid: *tid,
                pid: Some(*pid),
                lane: 0,
            }),
            Track::Open {
                tid,
                pid: Some(pid),
            } => Some(Track::Thread {
                tid: *tid,
                pid: Some(*pid),
                lane: 0,
            }),
            Track::Counter { pid, .. } => Some(Track::Process(*pid)),
            _ => None,
        };
        let parent = match parent {
            Some(parent) => Some(self.uuid(packets, &parent, comm)?),
            None => None,
        };
        let uuid = (self.machine << 40) + self.uuids.len() as u64 + 1;
        self.uuids.insert(track.clone(), uuid);
        let name = self.name(track, comm);
        packets.add(|message| {
            message.uint(packet::SEQUENCE_ID, u64::from(SEQUENCE));
            message.message(packet::TRACK_DESCRIPTOR, |message| {
                message.uint(track::UUID, uuid);
                if let Some(parent) = parent {
                    message.uint(track::PARENT, parent);
                }
                describe(message, track, &name);
            });
        })?;
        Ok(uuid)
    }

    fn name(&self, track: &Track, comm: Option<&str>) -> String {
        let thread = |tid: i32| {
            let known = self.threads.find(tid, None);
            let known = known.and_then(|index| self.threads.all()[index].comm.as_deref());
            known.or(comm).unwrap_or("thread").to_owned()
        };
        match track {
            Track::Thread {
                tid,
                pid: Some(_),
                lane: 0,
            } => thread(*tid),
            Track::Thread {
                tid,
                pid: None,
                lane: 0,
            } => format!("{} [{tid}]", thread(*tid)),
            Track::Thread { tid, .. } => format!("{} [{tid}] overlapping", thread(*tid)),
            Track::Open { tid, .. } => format!("{} [{tid}] not left", thread(*tid)),
            Track::Cpu { cpu, what, lane: 0 } => format!("CPU {cpu} {what}"),
            Track::Cpu { cpu, what, .. } => format!("CPU {cpu} {what} overlapping"),
            Track::Process(pid) => {
                let main = self.threads.process(*pid);
                main.and_then(|thread| thread.comm.clone())
                    .unwrap_or_default()
            }
            Track::Counter { name, .. } => name.clone(),
            Track::Named(name) => (*name).to_owned(),
        }
    }
}

fn describe(message: &mut Message, track: &Track, name: &str) {
    match track {
        Track::Thread {
            tid,
            pid: Some(pid),
            lane: 0,
        } => {
            message.message(track::THREAD, |message| {
                message.int(track::PID, i64::from(*pid));
                message.int(track::TID, i64::from(*tid));
                message.text(track::THREAD_NAME, name);
            });
        }
        Track::Process(pid) => message.message(track::PROCESS, |message| {
            message.int(track::PID, i64::from(*pid));
        }),
        Track::Counter { .. } => {
            message.text(track::NAME, name);
            message.message(track::COUNTER, |_| {});
        }
        Track::Named("losses") => {
            message.text(track::NAME, name);
            message.text(track::DESCRIPTION, "Events known to be missing");
        }
        _ => message.text(track::NAME, name),
    }
}

fn write_annotation(message: &mut Message, value: &Annotation) {
    match value {
        Annotation::Bool(value) => message.bool(annotation::BOOL, *value),
        Annotation::Int(value) => message.int(annotation::INT, *value),
        Annotation::UInt(value) => message.uint(annotation::UINT, *value),
        Annotation::Float(value) => message.double(annotation::DOUBLE, *value),
        Annotation::Text(value) => message.text(annotation::TEXT, value),
    }
}
