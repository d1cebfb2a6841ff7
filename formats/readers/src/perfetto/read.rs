//! Packets → events, in the order of time.

use perfquet_events::event::{
    Call, Comm, Event, EventKind, Fact, FieldType, Fields, Fork, Function, Loss, Place,
    ProcessState, Progress, Purpose, Sample, Sink, Value as Cell,
};
use perfquet_events::{Error, Input};

use super::entry::{Entry, Item};
use super::kernel::Kernel;
use super::names::{Fate, kind};
use super::ours;
use super::packets::{Contents, pieces};
use super::pairs::{self, Pairs};
use super::samples::Samples;
use super::statistics::Statistics;
use super::tracks::{self, Argument, Phase, TrackEvent};
use super::types::Declared;
use crate::problems::{Problems, report_totals};
use crate::protobuf::{Message, Value};

const PROGRESS_ENTRIES: usize = 1 << 16;
const FACTS_MAX: usize = 1000;

/// Reads a whole trace.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let mut problems = Problems::default();
    let pieces = pieces(&map, &mut problems, sink)?;
    let mut contents = Contents::default();
    contents.read(&pieces, &mut problems, sink)?;
    if contents.packets == 0 {
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Offset(0),
            message: "expected a packet of a trace".to_owned(),
        });
    }
    let pairs = pairs::pair(&mut contents);
    let mut reader = Reader {
        kernel: Kernel::new(&contents.schemas),
        samples: Samples::default(),
        statistics: Statistics::default(),
        types: Declared::default(),
        pairs,
        problems,
        is_ours: contents.is_ours(),
    };
    reader.samples.is_ours = reader.is_ours;
    if reader.is_ours {
        // Calls that follow from other events are slices, too.
        reader.types.purpose = Purpose::RowsOnly;
    }
    facts(&contents, sink)?;
    trees(&contents, sink)?;
    contents.tracks.emit_names(sink)?;
    let entries = std::mem::take(&mut contents.entries);
    for (number, entry) in entries.iter().enumerate() {
        reader.entry(entry, &mut contents, sink)?;
        if number % PROGRESS_ENTRIES == 0 {
            let (done, total) = (number as u64, Some(entries.len() as u64));
            sink.event(Event::Progress(Progress { done, total }))?;
        }
    }
    reader.finish(&contents, sink)
}

struct Reader<'a> {
    kernel: Kernel<'a>,
    samples: Samples,
    statistics: Statistics,
    types: Declared,
    pairs: Pairs<'a>,
    problems: Problems,
    /// Whether our exporter has written the trace.
    is_ours: bool,
}

impl<'a> Reader<'a> {
    fn entry(
        &mut self,
        entry: &Entry<'a>,
        contents: &mut Contents<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (types, problems) = (&mut self.types, &mut self.problems);
        match entry.item {
            Item::Ftrace { cpu, body } => {
                self.kernel
                    .event((entry.time, cpu), body, types, problems, sink)
            }
            Item::Switch { .. } | Item::Waking { .. } => self
                .kernel
                .compact(entry.time, entry.item, types, problems, sink),
            Item::Sample {
                body,
                state,
                defaults,
                sequence,
            } => {
                let (Some(state), Some(found)) = (
                    contents.states.get(state as usize),
                    contents.defaults.get(defaults as usize),
                ) else {
                    return Ok(());
                };
                let numbers = (defaults, sequence);
                let at = (entry.time, body);
                self.samples
                    .emit(at, (state, found), numbers, types, problems, sink)
            }
            Item::Statistics { packet, body } => {
                self.statistics
                    .emit(entry.time, (packet, body), types, sink)
            }
            // An instant of the track of losses has all that is known of it.
            Item::Loss { cpu: Some(_), .. } if self.is_ours => Ok(()),
            Item::Loss { cpu, count, reason } => sink.event(Event::Loss(Loss {
                time: Some(entry.time),
                cpu,
                event: None,
                count,
                in_all: None,
                reason,
            })),
            Item::Track { duration, .. } => {
                for (uuid, value) in contents.extra_counters(&entry.item) {
                    self.count(entry.time, uuid, value, contents, sink)?;
                }
                let Some((event, ..)) = contents.track_event(&entry.item) else {
                    return Ok(());
                };
                match event.phase {
                    Phase::Begin | Phase::Complete => {
                        self.call(entry, &event, duration, contents, sink)
                    }
                    Phase::Instant => self.marker(entry, &event, contents, sink),
                    Phase::Counter => {
                        let uuid = event.uuid();
                        let value = event.value.unwrap_or(f64::NAN);
                        self.count(entry.time, uuid, value, contents, sink)
                    }
                    Phase::End | Phase::Unread => Ok(()),
                }
            }
        }
    }

    fn call(
        &mut self,
        entry: &Entry<'a>,
        event: &TrackEvent<'a>,
        duration: i64,
        contents: &Contents<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some((_, body, state)) = contents.track_event(&entry.item) else {
            return Ok(());
        };
        let mut found = tracks::arguments(body, state);
        if self.is_ours && event.category == ours::CALLS {
            return ours::call((entry.time, event, duration), found, sink);
        }
        let args: Vec<Vec<u8>> = found
            .drain(..)
            .map(|(name, value)| [&name[..], b"=", &value.text()].concat())
            .collect();
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        sink.event(Event::Call(&Call {
            common: event.common(entry.time),
            function: Function::Named {
                name: event.name,
                module: event.category,
            },
            caller: Function::Unknown,
            depth: None,
            context: None,
            args: &args,
            duration: (duration >= 0).then_some(duration),
            retval: None,
            may_nest: event.place.is_thread,
        }))
    }

    fn marker(
        &mut self,
        entry: &Entry<'a>,
        event: &TrackEvent<'a>,
        contents: &Contents<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some((_, body, state)) = contents.track_event(&entry.item) else {
            return Ok(());
        };
        if self.is_ours && event.category == ours::CALLS {
            return ours::call(
                (entry.time, event, -1),
                tracks::arguments(body, state),
                sink,
            );
        }
        if self.is_ours && event.category == ours::LOSSES {
            return ours::loss(entry.time, &tracks::arguments(body, state), sink);
        }
        let columns = self.pairs.markers.get(&(event.category, event.name));
        let columns = columns.map_or(&[][..], Vec::as_slice);
        let declared = columns
            .iter()
            .map(|(name, kind)| (String::from_utf8_lossy(name).into_owned(), *kind));
        let system = match event.category {
            b"" => "perfetto".into(),
            category => String::from_utf8_lossy(category),
        };
        let name = String::from_utf8_lossy(event.name);
        let names = match name.split_once(':') {
            Some(names) if self.is_ours => names,
            _ => (&*system, &*name),
        };
        let id = self
            .types
            .of(names, EventKind::Marker, declared.collect(), sink)?;
        let found = tracks::arguments(body, state);
        let texts: Vec<Vec<u8>> = found.iter().map(|(_, value)| value.text()).collect();
        let values: Vec<Cell<'_>> = columns
            .iter()
            .map(|(name, kind)| {
                let place = found.iter().position(|(known, _)| known == name);
                let value = place.and_then(|place| found.get(place).zip(texts.get(place)));
                value.map_or(Cell::Null, |((_, value), text)| cell(*kind, *value, text))
            })
            .collect();
        let at = match self.is_ours {
            true => ours::thread(event.common(entry.time), event),
            false => event.common(entry.time),
        };
        sink.event(Event::Sample(&Sample {
            time: at.time,
            pid: at.pid,
            tid: at.tid,
            comm: at.comm,
            fields: Fields::Values(&values),
            ..Sample::of(id)
        }))
    }

    fn count(
        &mut self,
        time: i64,
        uuid: u64,
        value: f64,
        contents: &mut Contents<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        if self.is_ours {
            // The event that sets the counter is a row, too.
            return Ok(());
        }
        let (name, place, value) = contents.tracks.count(uuid, value);
        let columns = vec![("value".to_owned(), FieldType::Float)];
        let names = ("perfetto", name.as_str());
        let id = self.types.of(names, EventKind::Marker, columns, sink)?;
        sink.event(Event::Sample(&Sample {
            time: Some(time),
            pid: place.pid,
            tid: place.tid,
            fields: Fields::Values(&[match value.is_nan() {
                true => Cell::Null,
                false => Cell::Float(value),
            }]),
            ..Sample::of(id)
        }))
    }

    fn finish(mut self, contents: &Contents<'a>, sink: &mut dyn Sink) -> Result<(), Error> {
        self.problems.finish(sink)?;
        let mut overruns: Vec<_> = contents.overruns.iter().collect();
        overruns.sort();
        for (cpu, (first, last)) in overruns {
            let count = last.saturating_sub(*first);
            if count > 0 {
                sink.event(Event::Loss(Loss {
                    time: None,
                    cpu: u32::try_from(*cpu).ok(),
                    event: None,
                    count: Some(count),
                    in_all: None,
                    reason: "the kernel's ring buffer was full",
                }))?;
            }
        }
        for (count, reason) in contents.buffer_losses {
            if count > 0 {
                sink.event(Event::Loss(Loss {
                    time: None,
                    cpu: None,
                    event: None,
                    count: Some(count),
                    in_all: None,
                    reason,
                }))?;
            }
        }
        let flows = (
            contents.flows,
            "events of tracks with flows: no table holds those".to_owned(),
        );
        let thread_counts = (
            contents.thread_counts,
            "events of tracks with time or instructions of their thread: no table holds those"
                .to_owned(),
        );
        let alone = (
            self.pairs.ends_alone,
            "ends of slices without a begin".to_owned(),
        );
        let unread = (
            self.pairs.unread,
            "events of tracks that are neither slice, instant nor counter".to_owned(),
        );
        let mut others: Vec<_> = contents.others.iter().collect();
        others.sort();
        let others = others.into_iter().filter_map(|(number, count)| {
            let name = match kind(*number) {
                Some((_, _, Fate::Fact)) => return None,
                Some((name, ..)) => name.to_owned(),
                None => format!("kind {number}"),
            };
            Some((*count, format!("packets of {name}: no table holds them")))
        });
        let statistics = (
            self.statistics.unread,
            "members of statistics: no table holds them".to_owned(),
        );
        let cut = (
            self.statistics.cut,
            "statistics that end inside of a member".to_owned(),
        );
        let totals = [alone, unread, flows, thread_counts, statistics, cut];
        report_totals(sink, totals.into_iter().chain(others))
    }
}

fn cell<'a>(kind: FieldType, value: Argument<'a>, text: &'a [u8]) -> Cell<'a> {
    match (kind, value) {
        (FieldType::Text, _) => Cell::Bytes(text),
        (_, Argument::Bool(value)) => Cell::Bool(value),
        (_, Argument::Int(value)) => Cell::Int(value),
        (_, Argument::UInt(value)) => Cell::UInt(value),
        (_, Argument::Float(value)) => Cell::Float(value),
        (_, Argument::Text(_)) => Cell::Null,
    }
}

fn facts(contents: &Contents<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    sink.event(Event::Fact(Fact::Clock(contents.clocks.name())))?;
    if let Some(offset) = contents.clocks.wall_offset {
        sink.event(Event::Fact(Fact::WallOffset(offset)))?;
    }
    for &(number, body) in contents.facts.iter().take(FACTS_MAX) {
        match number {
            45 => system(body, sink)?,
            _ => attributes(body, sink)?,
        }
    }
    let mut others: Vec<_> = contents.others.iter().collect();
    others.sort();
    for (number, count) in others {
        if let Some((name, _, Fate::Fact)) = kind(*number) {
            sink.event(Event::Fact(Fact::Other {
                name: &format!("perfetto.packets.{name}"),
                value: &count.to_string(),
            }))?;
        }
    }
    Ok(())
}

/// `SystemInfo`
fn system(body: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    for field in Message::new(body, 0).map_while(Result::ok) {
        let fact = |fact: Fact<'_>, sink: &mut dyn Sink| sink.event(Event::Fact(fact));
        match (field.number, field.value) {
            (1, Value::Bytes(names)) => {
                // Our exporter writes some release where none is known, since the importer of Perfetto goes by it.
                let mut is_known = true;
                for field in Message::new(names, 0).map_while(Result::ok) {
                    let text = String::from_utf8_lossy(field.value.bytes().unwrap_or_default());
                    match field.number {
                        2 => is_known = text != "release unknown",
                        3 if is_known => fact(Fact::OsRelease(&text), sink)?,
                        4 => fact(Fact::Architecture(&text), sink)?,
                        _ => {}
                    }
                }
            }
            (8, Value::Number(cpus)) => {
                if let Ok(cpus) = u32::try_from(cpus) {
                    fact(Fact::Cpus(cpus), sink)?;
                }
            }
            (16, Value::Number(bytes)) => fact(Fact::MemoryBytes(bytes), sink)?,
            _ => {}
        }
    }
    Ok(())
}

/// `TraceAttributes`
fn attributes(body: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    let fields = Message::new(body, 0).map_while(Result::ok);
    for field in fields.take(FACTS_MAX) {
        let (mut key, mut value) = (&b""[..], &b""[..]);
        let inner = field.value.bytes().unwrap_or_default();
        for field in Message::new(inner, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Bytes(text)) => key = text,
                (3, Value::Bytes(text)) => value = text,
                _ => {}
            }
        }
        let value = &*String::from_utf8_lossy(value);
        let name = &*format!("perfetto.{}", String::from_utf8_lossy(key));
        sink.event(Event::Fact(match key {
            _ if value.is_empty() => continue,
            b"perfquet.host" => Fact::Host(value),
            b"perfquet.cpu_model" => Fact::CpuModel(value),
            b"perfquet.recorder" => Fact::Recorder(value),
            b"perfquet.command_line" => Fact::CommandLine(value),
            _ => Fact::Other { name, value },
        }))?;
    }
    Ok(())
}

/// Processes and threads, as of the start.
fn trees(contents: &Contents<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    let mut seen = hashbrown::HashSet::new();
    for tree in &contents.trees {
        for field in Message::new(tree, 0).map_while(Result::ok) {
            let Value::Bytes(body) = field.value else {
                continue;
            };
            // A later tree repeats what an earlier one has.
            if seen.insert((field.number, body)) {
                match field.number {
                    1 => process(body, sink)?,
                    2 => thread(body, sink)?,
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

fn process(body: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    let (mut pid, mut parent, mut words, mut is_comm) = (None, None, Vec::new(), false);
    for field in Message::new(body, 0).map_while(Result::ok) {
        match (field.number, field.value) {
            (1, Value::Number(value)) => pid = Some(value as i32),
            (2, Value::Number(value)) => parent = Some(value as i32),
            (3, Value::Bytes(word)) => words.push(word),
            (9, Value::Number(value)) => is_comm = value != 0,
            _ => {}
        }
    }
    let Some(pid) = pid else {
        return Ok(());
    };
    if let Some(parent) = parent.filter(|parent| *parent > 0) {
        sink.event(Event::Fork(Fork {
            time: None,
            pid,
            tid: pid,
            parent_pid: parent,
            parent_tid: parent,
        }))?;
    }
    let words = words.join(&b' ');
    if is_comm {
        return sink.event(Event::Comm(Comm {
            time: None,
            pid: Some(pid),
            tid: pid,
            comm: &words,
            exec: false,
        }));
    }
    sink.event(Event::Process(ProcessState {
        pid,
        cmdline: (!words.is_empty()).then_some(&words),
        ..ProcessState::default()
    }))
}

fn thread(body: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    let (mut tid, mut pid, mut name) = (None, None, &b""[..]);
    for field in Message::new(body, 0).map_while(Result::ok) {
        match (field.number, field.value) {
            (1, Value::Number(value)) => tid = Some(value as i32),
            (2, Value::Bytes(text)) => name = text,
            (3, Value::Number(value)) => pid = Some(value as i32),
            _ => {}
        }
    }
    match (tid, pid) {
        (Some(tid), pid) if !name.is_empty() => sink.event(Event::Comm(Comm {
            time: None,
            pid,
            tid,
            comm: name,
            exec: false,
        })),
        (Some(tid), Some(pid)) => sink.event(Event::Fork(Fork {
            time: None,
            pid,
            tid,
            parent_pid: pid,
            parent_tid: pid,
        })),
        _ => Ok(()),
    }
}
