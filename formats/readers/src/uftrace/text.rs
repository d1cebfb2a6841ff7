//! Calls and events of the printed texts, which have names instead of addresses.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{
    Call, Common, Enter, Event, EventId, EventKind, EventType, Exit, FieldType, Fields, Function,
    Leave, Sample, Sink, Value,
};

use super::events::{columns_of, field};
use crate::lines::{hexadecimal, signed};

/// Event types of one text.
const TYPES_MAX: usize = 10_000;
const SCHEDULE: &[u8] = b"linux:schedule";
const PREEMPTED: &[u8] = b"linux:schedule (pre-empted)";
/// Functions in which another program begins.
const EXEC: [&[u8]; 9] = [
    b"execl",
    b"execle",
    b"execlp",
    b"execv",
    b"execve",
    b"execvp",
    b"execvpe",
    b"execveat",
    b"fexecve",
];

/// The state of a thread.
#[derive(Debug, Default)]
struct Thread {
    /// Open calls of functions.
    depth: u32,
    /// Open functions of the kernel inside of those.
    kernel_depth: u32,
    /// The name under which the thread does not run.
    waiting: Option<&'static [u8]>,
    /// The innermost open function begins another program, unless it fails.
    is_in_exec: bool,
}

/// Emits what the lines say.
#[derive(Debug, Default)]
pub(super) struct TextEmitter {
    threads: HashMap<Option<i32>, Thread>,
    types: HashMap<Vec<u8>, EventId>,
}

/// A line or group of lines.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct At {
    pub(super) time: Option<i64>,
    pub(super) tid: Option<i32>,
    pub(super) cpu: Option<u32>,
    pub(super) depth: u32,
}

impl At {
    fn common(self) -> Common<'static> {
        Common {
            time: self.time,
            tid: self.tid,
            cpu: self.cpu,
            ..Common::default()
        }
    }
}

impl TextEmitter {
    fn thread(&mut self, tid: Option<i32>) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    pub(super) fn enter(
        &mut self,
        at: At,
        name: &[u8],
        args: &[&[u8]],
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let thread = self.thread(at.tid);
        thread.waiting = None;
        thread.kernel_depth = 0;
        thread.depth = at.depth.saturating_add(1);
        thread.is_in_exec = EXEC.contains(&name);
        sink.event(Event::Enter(&Enter {
            common: at.common(),
            function: Function::named(name),
            depth: Some(at.depth),
            args,
            ..Enter::default()
        }))
    }

    pub(super) fn leave(
        &mut self,
        at: At,
        name: &[u8],
        duration: Option<i64>,
        value: Option<&[u8]>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let thread = self.thread(at.tid);
        thread.waiting = None;
        thread.kernel_depth = 0;
        thread.depth = at.depth;
        thread.is_in_exec = false;
        let retval = value.and_then(integer);
        sink.event(Event::Leave(&Leave {
            common: at.common(),
            function: match name {
                b"" => Function::Unknown,
                name => Function::named(name),
            },
            depth: Some(at.depth),
            duration,
            retval,
            ..Leave::default()
        }))?;
        match value.filter(|_| retval.is_none()) {
            Some(value) => self.returned(at, name, value, sink),
            None => Ok(()),
        }
    }

    /// An entry or exit of a function of the kernel: its depth is that among the kernel's.
    pub(super) fn kernel(
        &mut self,
        at: At,
        name: &[u8],
        is_entry: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let thread = self.thread(at.tid);
        thread.kernel_depth = at.depth.saturating_add(u32::from(is_entry));
        let depth = Some(thread.depth.saturating_add(at.depth));
        let (common, function) = (at.common(), Function::named(name));
        match is_entry {
            true => sink.event(Event::Enter(&Enter {
                common,
                function,
                depth,
                ..Enter::default()
            })),
            false => sink.event(Event::Leave(&Leave {
                common,
                function,
                depth,
                ..Leave::default()
            })),
        }
    }

    /// A call without others inside.
    pub(super) fn leaf(
        &mut self,
        at: At,
        name: &[u8],
        args: &[&[u8]],
        duration: Option<i64>,
        value: Option<&[u8]>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let retval = value.and_then(integer);
        sink.event(Event::Call(&Call {
            common: at.common(),
            function: Function::named(name),
            caller: Function::Unknown,
            depth: Some(at.depth),
            context: None,
            args,
            duration,
            retval,
            may_nest: false,
        }))?;
        match value.filter(|_| retval.is_none()) {
            Some(value) => self.returned(at, name, value, sink),
            None => Ok(()),
        }
    }

    fn returned(
        &mut self,
        at: At,
        name: &[u8],
        value: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let fields = || {
            let columns = ["function", "value"];
            columns
                .map(|column| field(column, FieldType::Text))
                .to_vec()
        };
        let event = self.declared(b"uftrace:return_value", EventKind::Recorder, fields, sink)?;
        let values = [Value::Bytes(name), Value::Bytes(value)];
        event.map_or(Ok(()), |event| hit(event, at, &values, sink))
    }

    /// An event: `linux:sched-out`, `read:page-fault` with its data `major=0 minor=807`.
    pub(super) fn event(
        &mut self,
        at: At,
        name: &[u8],
        data: &[u8],
        duration: Option<i64>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        match name {
            b"linux:sched-out" => self.out(at, false, sink),
            b"linux:sched-out (pre-empted)" => self.out(at, true, sink),
            b"linux:sched-in" => self.back(at, duration, sink),
            // In replayed texts: both at once.
            SCHEDULE | PREEMPTED => self.leaf(at, name, &[], duration, None, sink),
            b"linux:task-exit" => match at.tid {
                Some(tid) => sink.event(Event::Exit(Exit {
                    time: at.time,
                    // Texts do not name the process of a thread.
                    pid: None,
                    tid,
                    code: None,
                })),
                None => Ok(()),
            },
            // The line does not say why the name is another one: no call of the program before continues after exec.
            b"linux:task-name" => {
                let thread = self.thread(at.tid);
                if thread.is_in_exec {
                    *thread = Thread::default();
                }
                Ok(())
            }
            // The lines of threads have more.
            b"linux:task-new" => Ok(()),
            _ => self.hit(at, name, data, sink),
        }
    }

    fn out(&mut self, at: At, is_preempted: bool, sink: &mut dyn Sink) -> Result<(), Error> {
        let fields = || vec![field("preempted", FieldType::Bool)];
        let event = self.declared(b"linux:sched_out", EventKind::Recorder, fields, sink)?;
        if let Some(event) = event {
            hit(event, at, &[Value::Bool(is_preempted)], sink)?;
        }
        let thread = self.thread(at.tid);
        if thread.depth == 0 {
            return Ok(());
        }
        let name = match is_preempted {
            false => SCHEDULE,
            true => PREEMPTED,
        };
        thread.waiting = Some(name);
        let depth = Some(thread.depth.saturating_add(thread.kernel_depth));
        sink.event(Event::Enter(&Enter {
            common: at.common(),
            function: Function::named(name),
            depth,
            ..Enter::default()
        }))
    }

    fn back(&mut self, at: At, duration: Option<i64>, sink: &mut dyn Sink) -> Result<(), Error> {
        let event = self.declared(b"linux:sched_in", EventKind::Recorder, Vec::new, sink)?;
        if let Some(event) = event {
            hit(event, at, &[], sink)?;
        }
        let thread = self.thread(at.tid);
        let Some(name) = thread.waiting.take() else {
            return Ok(());
        };
        let depth = Some(thread.depth.saturating_add(thread.kernel_depth));
        sink.event(Event::Leave(&Leave {
            common: at.common(),
            function: Function::named(name),
            depth,
            duration,
            ..Leave::default()
        }))
    }

    fn hit(&mut self, at: At, name: &[u8], data: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
        // Names of tables: those of the binary reader.
        let plain: Vec<u8> = name
            .iter()
            .map(|byte| match byte {
                b'-' | b'/' | b' ' => b'_',
                byte => *byte,
            })
            .collect();
        let known = columns_of(&plain);
        let fields = || match &known {
            Some(fields) => fields.clone(),
            None => vec![field("data", FieldType::Text)],
        };
        let Some(event) = self.declared(&plain, EventKind::Recorder, fields, sink)? else {
            return Ok(());
        };
        let Some(columns) = &known else {
            let data = match data {
                b"" => Value::Null,
                data => Value::Bytes(data),
            };
            return hit(event, at, &[data], sink);
        };
        let words = crate::lines::words(data);
        let numbers = words.filter_map(|word| word.split(|&byte| byte == b'=').nth(1));
        let values = numbers.zip(columns).map(|(number, column)| {
            let number = number.strip_suffix(b"KB").unwrap_or(number);
            let number = number.strip_prefix(b"+").unwrap_or(number);
            match (integer(number), column.kind) {
                (None, _) => Value::Null,
                (Some(number), FieldType::Int(_)) => Value::Int(number),
                (Some(number), _) => Value::UInt(number.cast_unsigned()),
            }
        });
        let values: Vec<Value<'_>> = values.collect();
        hit(event, at, &values, sink)
    }

    fn declared(
        &mut self,
        name: &[u8],
        kind: EventKind,
        fields: impl FnOnce() -> Vec<perfquet_events::event::Field>,
        sink: &mut dyn Sink,
    ) -> Result<Option<EventId>, Error> {
        if let Some(&id) = self.types.get(name) {
            return Ok(Some(id));
        }
        if self.types.len() >= TYPES_MAX {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(name);
        let (system, short) = text.split_once(':').unwrap_or(("uftrace", &text));
        sink.event(Event::Type(&EventType {
            system: system.to_owned(),
            name: short.to_owned(),
            kind,
            fields: fields(),
            ..EventType::default()
        }))?;
        let id = EventId(u32::try_from(self.types.len()).unwrap_or(u32::MAX));
        self.types.insert(name.to_vec(), id);
        Ok(Some(id))
    }
}

fn hit(event: EventId, at: At, values: &[Value<'_>], sink: &mut dyn Sink) -> Result<(), Error> {
    sink.event(Event::Sample(&Sample {
        time: at.time,
        cpu: at.cpu,
        tid: at.tid,
        fields: Fields::Values(values),
        ..Sample::of(event)
    }))
}

/// A decimal or hexadecimal number.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"0x") {
        Some(digits) => Some(hexadecimal(digits)?.cast_signed()),
        None => signed(text),
    }
}
