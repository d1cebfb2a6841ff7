//! What `--to chrome` adds to the format, so that its exports come back as they were.
//!
//! ```text
//! "otherData":{"exporter":"perfquet 0.1.0","clock":"monotonic","start_ns":"42788000000","start_since_1970_ns":"1795363209100706000"}
//! {"ph":"M","name":"thread_name","pid":16777216,"tid":16777217,"args":{"name":"CPU 0 irq","perfquet":{"cpu":0,"context":"irq"}}}
//! {"ph":"i","s":"t","cat":"calls","name":"read (exit not seen)",…}
//! {"ph":"i","s":"t","cat":"events","name":"sched:sched_switch","pid":7,"tid":7,"ts":1,"args":{"cpu":0,"prev_comm":"dd",…}}
//! {"ph":"i","s":"g","cat":"losses","name":"7 events lost on CPU 1: ring full","pid":0,"tid":0,"ts":5,"args":{"reason":"ring full","count":7}}
//! ```

use std::borrow::Cow;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Call, Common, Context, Event, Fact, Function, Leave, Loss, Sink};

use super::members::Members;
use crate::exported::{CallName, function};
use crate::json::{integer, members, text};

/// Threads and CPUs of rows that have other IDs.
const ROWS_MAX: usize = 1 << 20;

/// An export of ours.
#[derive(Debug, Default)]
pub(super) struct Ours<'a> {
    facts: Vec<(&'a [u8], Cow<'a, [u8]>)>,
    /// Time 0 of the export on the trace's clock.
    start: i64,
    rows: HashMap<(i64, i64), Row<'a>>,
}

/// The thread or CPU of a row.
#[derive(Debug, Default)]
struct Row<'a> {
    comm: Option<Cow<'a, [u8]>>,
    pid: Option<i32>,
    tid: Option<i32>,
    cpu: Option<u32>,
    context: Option<Context>,
}

/// What an event of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Call,
    Hit,
    Loss,
    /// A counter, whose event is a row, too.
    Repeated,
}

impl<'a> Ours<'a> {
    /// Takes the member `otherData` of a file; `None` if another program has written it, or if it has several traces.
    pub(super) fn of(other_data: &'a [u8]) -> Option<Ours<'a>> {
        let facts: Vec<(&[u8], Cow<'_, [u8]>)> = members(other_data)
            .map(|(name, value)| (name, text(value)))
            .collect();
        let mut ours = Ours {
            facts,
            ..Ours::default()
        };
        let is_ours = ours
            .fact(b"exporter")
            .is_some_and(|exporter| exporter.starts_with(b"perfquet "));
        ours.start = ours.number(b"start_ns")?;
        (is_ours && ours.fact(b"traces").is_none()).then_some(ours)
    }

    fn fact(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.facts.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| &**value)
    }

    fn number(&self, name: &[u8]) -> Option<i64> {
        integer(self.fact(name)?)
    }

    pub(super) fn emit_facts(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        for (name, value) in &self.facts {
            let value = &*String::from_utf8_lossy(value);
            sink.event(Event::Fact(match *name {
                b"clock" => Fact::Clock(value),
                b"host" => Fact::Host(value),
                b"os_release" => Fact::OsRelease(value),
                b"architecture" => Fact::Architecture(value),
                b"recorder" => Fact::Recorder(value),
                b"command_line" => Fact::CommandLine(value),
                b"start_since_1970_ns" => match self.number(name) {
                    Some(wall) => Fact::WallOffset(wall.saturating_sub(self.start)),
                    None => continue,
                },
                b"scope" => Fact::Other {
                    name: "scope",
                    value,
                },
                b"state" => Fact::Other {
                    name: "chrome.state",
                    value,
                },
                _ => continue,
            }))?;
        }
        Ok(())
    }

    /// Notes the thread or CPU of a row, from an event that names it.
    pub(super) fn note(&mut self, event: &Members<'a>) {
        let find = |object: &'a [u8], name: &[u8]| {
            let found = members(object).find(|(key, _)| *key == name);
            found.map(|(_, value)| value)
        };
        let (Some(ids), Some(body)) = (ids(event), find(event.args, b"perfquet")) else {
            return;
        };
        if self.rows.len() >= ROWS_MAX {
            return;
        }
        let id = |name: &[u8]| i32::try_from(integer(find(body, name)?)?).ok();
        let row = Row {
            comm: find(body, b"comm").map(text),
            pid: id(b"pid"),
            tid: id(b"tid"),
            cpu: id(b"cpu").and_then(|cpu| u32::try_from(cpu).ok()),
            context: match find(body, b"context") {
                Some(b"\"irq\"") => Some(Context::Irq),
                Some(b"\"softirq\"") => Some(Context::Softirq),
                Some(b"\"nmi\"") => Some(Context::Nmi),
                _ => None,
            },
        };
        self.rows.insert(ids, row);
    }

    /// Whether the IDs of an event are those of another thread or of a CPU.
    pub(super) fn is_other(&self, event: &Members<'_>) -> bool {
        ids(event).is_some_and(|ids| self.rows.contains_key(&ids))
    }

    /// Time and thread of an event.
    pub(super) fn common<'c>(&'c self, event: &'c Members<'_>) -> Common<'c> {
        let id = |value: Option<&[u8]>| i32::try_from(integer(value?)?).ok();
        let mut common = Common {
            time: event.time.map(|time| time.saturating_add(self.start)),
            pid: id(event.pid),
            tid: id(event.tid),
            ..Common::default()
        };
        if let Some(row) = ids(event).and_then(|ids| self.rows.get(&ids)) {
            common.comm = row.comm.as_deref();
            (common.pid, common.tid, common.cpu) = (row.pid, row.tid, row.cpu);
        }
        let first = members(event.args).next();
        if let Some((b"cpu", value)) = first.filter(|_| kind(event) == Some(Kind::Hit)) {
            common.cpu = integer(value).and_then(|cpu| u32::try_from(cpu).ok());
        }
        common
    }

    /// Emits a call.
    pub(super) fn call(&self, event: &Members<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut args: Vec<(&[u8], &[u8])> = members(event.args).collect();
        // What follows the arguments, from the end.
        let depth = args.pop_if(|(name, _)| *name == b"call_depth");
        let depth = depth.and_then(|(_, depth)| u32::try_from(integer(depth)?).ok());
        let module = args.pop_if(|(name, _)| *name == b"module");
        let module = module.map(|(_, module)| text(module)).unwrap_or_default();
        let retval = args.pop_if(|(name, _)| *name == b"retval");
        let retval = retval.and_then(|(_, retval)| integer(retval));
        let name = CallName::of(&event.name);
        let function = function(name.function, &module);
        let common = self.common(event);
        let row = ids(event).and_then(|ids| self.rows.get(&ids));
        let context = row.and_then(|row| row.context);
        if !name.is_entry_seen {
            return sink.event(Event::Leave(&Leave {
                common,
                function,
                depth,
                context,
                retval,
                ..Leave::default()
            }));
        }
        let args: Vec<Vec<u8>> = args
            .into_iter()
            .map(|(name, value)| [name, b"=", &text(value)].concat())
            .collect();
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        sink.event(Event::Call(&Call {
            common,
            function,
            caller: Function::Unknown,
            depth,
            context,
            args: &args,
            duration: event.duration.filter(|_| event.phase == b"X"),
            retval,
            may_nest: true,
        }))
    }

    /// Emits a loss.
    pub(super) fn loss(&self, event: &Members<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        let find = |name: &[u8]| {
            let found = members(event.args).find(|(key, _)| *key == name);
            found.map(|(_, value)| value)
        };
        let number = |name: &[u8]| u64::try_from(integer(find(name)?)?).ok();
        let reason = find(b"reason").map(text).unwrap_or_default();
        sink.event(Event::Loss(Loss {
            time: self.common(event).time,
            cpu: number(b"cpu").and_then(|cpu| u32::try_from(cpu).ok()),
            event: None,
            count: number(b"count"),
            in_all: None,
            reason: &String::from_utf8_lossy(&reason),
        }))
    }
}

/// What an event of an export is; `None` if it is none of ours.
pub(super) fn kind(event: &Members<'_>) -> Option<Kind> {
    Some(match (event.phase, &*event.category) {
        (b"X" | b"i", b"calls") => Kind::Call,
        (b"i", b"events") => Kind::Hit,
        (b"i", b"losses") => Kind::Loss,
        (b"C", b"") => Kind::Repeated,
        _ => return None,
    })
}

/// System and name of a hit, and whether its first argument is the CPU.
pub(super) fn names<'a>(event: &Members<'a>) -> (Cow<'a, [u8]>, Cow<'a, [u8]>) {
    let part = |range: std::ops::Range<usize>| match &event.name {
        Cow::Borrowed(name) => Cow::Borrowed(name.get(range).unwrap_or_default()),
        Cow::Owned(name) => Cow::Owned(name.get(range).unwrap_or_default().to_vec()),
    };
    let length = event.name.len();
    match memchr::memchr(b':', &event.name) {
        Some(colon) => (part(0..colon), part(colon + 1..length)),
        None => (Cow::Borrowed(&b""[..]), part(0..length)),
    }
}

fn ids(event: &Members<'_>) -> Option<(i64, i64)> {
    Some((integer(event.pid?)?, integer(event.tid?)?))
}
