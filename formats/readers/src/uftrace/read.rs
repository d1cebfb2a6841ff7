//! Directories → events, in the order of time: the files of tasks, of perf and of threads are merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;
use perfquet_events::bytes::Endian;
use perfquet_events::event::{Event, Place, ProcessState, Progress, Sink};
use perfquet_events::{Error, Input};

use super::arguments::Signatures;
use super::emit::{After, Context, Emitter};
use super::info::{Info, MAGIC};
use super::kernel::{self, Kernel};
use super::perf::PerfRecord;
use super::record::{RECORD_BYTES, Record};
use super::sessions::{Change, Sessions, nanoseconds};
use super::{dump, replay, symbols};
use crate::files::Files;
use crate::lines::{Lines, signed, unsigned};
use crate::problems::Problems;

const INFO: &str = "info";
const PROGRESS_BYTES: u64 = 1 << 20;
/// Bytes read between two releases of the mapped pages.
const RELEASED_BYTES: u64 = 64 << 20;
/// Longest message in extern.dat.
const MESSAGE_BYTES: usize = 4096;

/// Reads a directory, an archive or a text.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let head = input.head();
    if dump::is_dump(head) {
        return dump::read(input, sink);
    }
    if replay::is_replay(head) || replay::other_text(head).is_some() {
        return replay::read(input, sink);
    }
    let is_info = head.starts_with(MAGIC);
    let files = Files::of(input, INFO)?;
    let mut problems = Problems::default();
    let folder = folder(input.name(), &files, is_info)?;
    let Some(info) = (0..files.len()).find(|&file| files.name(file) == format!("{folder}{INFO}"))
    else {
        return Ok(());
    };
    let info = Info::parse(files.bytes(info)).map_err(|message| Error::Damaged {
        input: input.name().to_owned(),
        place: Place::Offset(0),
        message: format!("{folder}{INFO}: {message}"),
    })?;
    Directory {
        files: &files,
        folder: &folder,
        info: &info,
    }
    .read(&mut problems, sink)?;
    problems.finish(sink)
}

/// The directory of the trace, with its slash.
fn folder(name: &str, files: &Files, is_info: bool) -> Result<String, Error> {
    let infos = (0..files.len()).filter(|&file| {
        let base = files.name(file).rsplit('/').next();
        base == Some(INFO) && files.bytes(file).starts_with(MAGIC)
    });
    let folders: Vec<&str> = infos
        .map(|file| files.name(file).strip_suffix(INFO).unwrap_or_default())
        .collect();
    match folders.as_slice() {
        [folder] => Ok((*folder).to_owned()),
        [] => {
            let hint = match is_info {
                true => "\nhint: this is the file info alone: name its directory",
                false => "",
            };
            Err(Error::Damaged {
                input: name.to_owned(),
                place: Place::Whole,
                message: "expected a directory or an archive (.tar, .zip) of uftrace, with a file \"info\", or the text of uftrace dump or replay"
                    .to_owned()
                    + hint,
            })
        }
        [first, second, ..] => Err(Error::Unsupported {
            input: name.to_owned(),
            message: format!(
                "expected one directory of uftrace, found {}: {first} and {second}\nhint: name one of them",
                folders.len()
            ),
        }),
    }
}

struct Directory<'f> {
    files: &'f Files,
    folder: &'f str,
    info: &'f Info<'f>,
}

impl<'f> Directory<'f> {
    /// Files of the directory by their names.
    fn named(&self) -> impl Iterator<Item = (&'f str, &'f [u8])> {
        let (files, folder) = (self.files, self.folder);
        (0..files.len()).filter_map(move |file| {
            let name = files.name(file).strip_prefix(folder)?;
            (!name.contains('/')).then(|| (name, files.bytes(file)))
        })
    }

    fn bytes(&self, wanted: &str) -> &'f [u8] {
        let mut named = self.named();
        named
            .find(|(name, _)| *name == wanted)
            .map_or(&[], |(_, bytes)| bytes)
    }

    fn read(&self, problems: &mut Problems, sink: &mut dyn Sink) -> Result<(), Error> {
        self.info.facts(sink)?;
        let sessions = Sessions::of(self.files, self.folder);
        for (line, text) in &sessions.unreadable {
            problems.report(sink, Place::Line(*line), "task.txt", || {
                format!("task.txt: expected SESS, TASK, FORK or DLOP with a time, found {text}")
            })?;
        }
        let mut signatures = Signatures::of(self.info);
        for (name, bytes) in self.named() {
            if let Some(module) = name.strip_suffix(".dbg") {
                signatures.add_debug(module.as_bytes(), bytes, self.info.word_bytes);
            }
        }
        let emitter = Emitter::new(Context {
            sessions: &sessions,
            symbols: symbols::files(self.files, self.folder),
            signatures,
            has_relative_symbols: self.info.has_relative_symbols(),
            endian: self.info.endian,
            user_events: user_events(self.bytes("events.txt")),
        });
        let mut cpus: Vec<(u32, &[u8])> = self
            .named()
            .filter_map(|(name, bytes)| Some((kernel::cpu_of(name)?, bytes)))
            .collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        let kernel = Kernel::open(&cpus, |name| self.bytes(name), problems, sink)?;
        let mut merge = Merge {
            endian: self.info.endian,
            emitter,
            kernel,
            problems,
            done: 0,
            released: 0,
            reported: 0,
            total: 0,
        };
        merge.run(self, &sessions, cpus.len(), sink)?;
        if let Some(kernel) = merge.kernel {
            kernel.finish(sink)?;
        }
        if let (Some(session), Some(_)) = (sessions.all.first(), self.info.exit_code()) {
            sink.event(Event::Process(ProcessState {
                time: None,
                pid: session.pid,
                exit_code: self.info.exit_code(),
                ..ProcessState::default()
            }))?;
        }
        Ok(())
    }
}

/// `EVENT: 1000000 provider:name`
fn user_events(file: &[u8]) -> HashMap<u64, (&[u8], &[u8])> {
    let events = Lines::of(file).filter_map(|line| {
        let rest = line.text.strip_prefix(b"EVENT: ")?;
        let space = memchr::memchr(b' ', rest)?;
        let id = unsigned(rest.get(..space)?)?;
        let name = rest.get(space + 1..)?;
        let colon = memchr::memchr(b':', name)?;
        Some((id, (name.get(..colon)?, name.get(colon + 1..)?)))
    });
    events.take(1 << 16).collect()
}

/// A file that is merged with the others.
enum Source<'f> {
    Changes(std::slice::Iter<'f, (u64, Change<'f>)>),
    Task {
        name: &'f str,
        bytes: &'f [u8],
        at: usize,
        tid: i32,
        thread: usize,
        last: Option<Record>,
    },
    Perf {
        name: &'f str,
        bytes: &'f [u8],
        at: usize,
        cpu: u32,
    },
    /// The pages of a CPU, by its place, and the bytes of them that were read.
    Kernel {
        place: usize,
        read: u64,
    },
    External(Lines<'f>),
}

/// The next item of a file.
#[derive(Clone, Copy)]
enum Item<'f> {
    Change(u64, &'f Change<'f>),
    Record(Record),
    Perf(PerfRecord<'f>),
    Kernel(u64),
    Text(u64, &'f [u8]),
}

impl Item<'_> {
    fn time(&self) -> u64 {
        match self {
            Item::Change(time, _) | Item::Text(time, _) | Item::Kernel(time) => *time,
            Item::Record(record) => record.time,
            Item::Perf(record) => record.time,
        }
    }
}

struct Merge<'f, 'p> {
    endian: Endian,
    emitter: Emitter<'f>,
    kernel: Option<Kernel<'f>>,
    problems: &'p mut Problems,
    done: u64,
    released: u64,
    reported: u64,
    total: u64,
}

impl<'f> Merge<'f, '_> {
    fn run(
        &mut self,
        directory: &Directory<'f>,
        sessions: &'f Sessions<'f>,
        kernel_cpus: usize,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let mut sources = self.sources(directory, sessions);
        sources.extend((0..kernel_cpus).map(|place| Source::Kernel { place, read: 0 }));
        let mut items = Vec::new();
        let mut heap = BinaryHeap::new();
        for (place, source) in sources.iter_mut().enumerate() {
            let item = self.advance(source, sink)?;
            if let Some(item) = &item {
                heap.push(Reverse((item.time(), place)));
            }
            items.push(item);
        }
        while let Some(Reverse((_, place))) = heap.pop() {
            let (Some(source), Some(next)) = (sources.get_mut(place), items.get_mut(place)) else {
                break;
            };
            // Most often, the next record is of the same file.
            while let Some(item) = *next {
                self.emit(source, &item, sink)?;
                *next = self.advance(source, sink)?;
                let Some(following) = next else {
                    break;
                };
                let key = Reverse((following.time(), place));
                if heap.peek().is_some_and(|other| *other > key) {
                    heap.push(key);
                    break;
                }
            }
            self.progress(directory.files, sink)?;
        }
        Ok(())
    }

    fn sources(
        &mut self,
        directory: &Directory<'f>,
        sessions: &'f Sessions<'f>,
    ) -> Vec<Source<'f>> {
        // Of equal times: threads first, then records of tasks, then those of perf.
        let mut sources = vec![Source::Changes(sessions.changes.iter())];
        let mut others = Vec::new();
        for (name, bytes) in directory.named() {
            let Some(stem) = name.strip_suffix(".dat") else {
                continue;
            };
            self.total += bytes.len() as u64;
            let cpu = stem.strip_prefix("perf-cpu");
            let cpu = cpu.and_then(|cpu| u32::try_from(unsigned(cpu.as_bytes())?).ok());
            let tid = signed(stem.as_bytes()).and_then(|tid| i32::try_from(tid).ok());
            let at = 0;
            if let Some(cpu) = cpu {
                others.push(Source::Perf {
                    name,
                    bytes,
                    at,
                    cpu,
                });
            } else if let Some(tid) = tid.filter(|tid| *tid >= 0) {
                let thread = self.emitter.thread(tid);
                sources.push(Source::Task {
                    name,
                    bytes,
                    at,
                    tid,
                    thread,
                    last: None,
                });
            } else if stem == "extern" {
                others.push(Source::External(Lines::of(bytes)));
            }
        }
        sources.extend(others);
        sources
    }

    /// The next item of a file; `None` at its end.
    fn advance(
        &mut self,
        source: &mut Source<'f>,
        sink: &mut dyn Sink,
    ) -> Result<Option<Item<'f>>, Error> {
        match source {
            Source::Changes(changes) => {
                let next = changes.next();
                Ok(next.map(|(time, change)| Item::Change(*time, change)))
            }
            Source::External(lines) => Ok(lines.find_map(|line| external(line.text))),
            Source::Kernel { place, read } => {
                let Some(kernel) = &mut self.kernel else {
                    return Ok(None);
                };
                let next = kernel.advance(*place, sink)?;
                Ok(next.map(|(time, bytes)| {
                    self.done += bytes.saturating_sub(*read);
                    *read = bytes;
                    Item::Kernel(time)
                }))
            }
            Source::Perf {
                name, bytes, at, ..
            } => {
                if *at >= bytes.len() {
                    return Ok(None);
                }
                let record = PerfRecord::at(bytes, *at, self.endian);
                if let Some(record) = record.filter(|record| record.bytes > 0) {
                    *at += record.bytes;
                    return Ok(Some(Item::Perf(record)));
                }
                let left = bytes.len() - *at;
                self.problems
                    .report(sink, Place::Offset(*at as u64), "perf", || {
                        format!("{name}: expected a record of perf; {left} bytes are skipped")
                    })?;
                *at = bytes.len();
                Ok(None)
            }
            Source::Task {
                name,
                bytes,
                at,
                tid,
                last,
                ..
            } => {
                if *at >= bytes.len() {
                    return Ok(None);
                }
                let mut found = Record::at(bytes, *at, self.endian);
                if found.is_none() {
                    let is_known = |record: &Record| self.emitter.is_mapped(*tid, record);
                    let next = Record::find(bytes, *at, *last, self.endian, is_known);
                    let end = next.unwrap_or(bytes.len());
                    let skipped = end - *at;
                    let expected = match bytes.len() - *at < RECORD_BYTES {
                        true => "a record is cut",
                        false => "expected a record",
                    };
                    self.problems
                        .report(sink, Place::Offset(*at as u64), "task", || {
                            format!("{name}: {expected}; {skipped} bytes are skipped")
                        })?;
                    *at = end;
                    found = next.and_then(|next| Record::at(bytes, next, self.endian));
                }
                if let (Some(record), Some(last)) = (found, *last)
                    && record.time < last.time
                {
                    self.problems
                        .report(sink, Place::Offset(*at as u64), "time", || {
                            let before = last.time - record.time;
                            format!("{name}: a record is {before} ns older than the one before")
                        })?;
                }
                Ok(found.map(Item::Record))
            }
        }
    }

    fn emit(
        &mut self,
        source: &mut Source<'f>,
        item: &Item<'f>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        match (item, source) {
            (Item::Change(time, change), _) => self.emitter.change(*time, change, sink),
            (Item::Text(time, text), _) => self.emitter.external(*time, text, sink),
            (Item::Kernel(_), Source::Kernel { place, .. }) => match &mut self.kernel {
                Some(kernel) => kernel.emit(*place, &mut self.emitter, sink),
                None => Ok(()),
            },
            (Item::Perf(record), Source::Perf { cpu, .. }) => {
                self.done += record.bytes as u64;
                self.emitter.perf(record, *cpu, sink)
            }
            (
                Item::Record(record),
                Source::Task {
                    name,
                    bytes,
                    at,
                    tid,
                    thread,
                    last,
                },
            ) => {
                *last = Some(*record);
                let start = *at;
                *at += RECORD_BYTES;
                let data = bytes.get(*at..).unwrap_or_default();
                match self.emitter.record(*thread, record, data, sink)? {
                    After::Bytes(length) => *at += length,
                    After::Unknown => {
                        let is_known = |record: &Record| self.emitter.is_mapped(*tid, record);
                        let next = Record::find(bytes, *at, *last, self.endian, is_known);
                        let end = next.unwrap_or(bytes.len());
                        let skipped = end - *at;
                        self.problems.report(
                            sink,
                            Place::Offset(start as u64),
                            "arguments",
                            || format!("{name}: no specification of the values after a record; {skipped} bytes are skipped"),
                        )?;
                        *at = end;
                    }
                }
                self.done += (*at - start) as u64;
                Ok(())
            }
            (Item::Perf(_) | Item::Record(_) | Item::Kernel(_), _) => Ok(()),
        }
    }

    fn progress(&mut self, files: &Files, sink: &mut dyn Sink) -> Result<(), Error> {
        if self.done - self.released >= RELEASED_BYTES {
            self.released = self.done;
            files.release();
        }
        if self.done - self.reported >= PROGRESS_BYTES {
            self.reported = self.done;
            let (done, total) = (self.done, Some(self.total));
            sink.event(Event::Progress(Progress { done, total }))?;
        }
        Ok(())
    }
}

/// `16414531.193431732 text`, without comments.
fn external(line: &[u8]) -> Option<Item<'_>> {
    let line = line.trim_ascii();
    let space = line.iter().position(u8::is_ascii_whitespace)?;
    let time = nanoseconds(line.get(..space)?)?;
    let text = line.get(space..)?.trim_ascii_start();
    let text = text.get(..MESSAGE_BYTES).unwrap_or(text);
    Some(Item::Text(time, text))
}
