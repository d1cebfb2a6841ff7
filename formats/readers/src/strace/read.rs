//! Lines → calls, signals, threads, aggregations.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};
use perfquet_events::event::{
    Action, AggregateValue, Call, Comm, Common, Event, EventId, Exit, Fact, Fields, Fork, Function,
    Leave, NamedFrame, Place, Problem, Sample, Sink, Space, Stack, Value,
};
use perfquet_events::{Error, Input};

use super::ahead::{Ahead, Clock, Resumption, is_fork, mended};
use super::call::{Outcome, arguments};
use super::line::{self, Body, Frame, Prefix, Time, cut};
use super::signal_type::signal_type;
use super::summary::{self, Part, Table};
use crate::lines::{Counts, Line, Lines, Meter, hexadecimal, quoted, signed, unsigned};

/// Frames kept of a stack.
const FRAMES_MAX: usize = 512;
/// The kernel's limit of thread names.
const COMM_BYTES: usize = 15;
const SIGNAL: EventId = EventId(0);

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let whole = Ahead::of(&map);
    // Most files have no torn lines.
    let text = match whole.has_torn {
        true => mended(&map),
        false => Cow::Borrowed(&map[..]),
    };
    let ahead = match &text {
        Cow::Borrowed(_) => whole,
        Cow::Owned(text) => Ahead::of(text),
    };
    let mut reader = Reader {
        tid_of_file: match ahead.has_threads {
            true => None,
            false => thread_of_file(input.name()),
        },
        live: ahead.first.into_iter().collect(),
        clock: Clock::of(ahead.time),
        ahead,
        pids: HashMap::new(),
        table: None,
        tables: 0,
        strangers: 0,
        first_stranger: 0,
        counts: Counts::default(),
    };
    reader.facts(sink)?;
    let mut meter = Meter::default();
    let mut lines = Lines::of(&text);
    while let Some(line) = lines.next() {
        reader.line(line, &lines, sink)?;
        meter.report(lines.progress(), sink)?;
    }
    if reader.counts.data == 0 {
        let first = Lines::of(&map).next().map_or(&b""[..], |line| line.text);
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Line(1),
            message: format!(
                "expected a call (read(3, \"\", 1) = 0), found {}",
                quoted(first)
            ),
        });
    }
    reader.finish(sink)
}

/// With `-ff`, files are named after their threads: `trace.15035`.
fn thread_of_file(name: &str) -> Option<i32> {
    let (_, digits) = name.rsplit_once('.')?;
    let tid = i32::try_from(unsigned(digits.as_bytes())?).ok()?;
    (tid > 0).then_some(tid)
}

struct Reader<'a> {
    ahead: Ahead<'a>,
    tid_of_file: Option<i32>,
    clock: Clock,
    /// Processes of threads, as far as known.
    pids: HashMap<i32, i32>,
    /// Attached threads that have not ended. While there is only one, lines on the standard error do not name it.
    live: HashSet<i32>,
    /// The table whose lines follow.
    table: Option<Table>,
    tables: u32,
    /// Lines that strace has not written.
    strangers: u64,
    first_stranger: u64,
    counts: Counts,
}

impl<'a> Reader<'a> {
    fn facts(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let recorder = match self.ahead.is_ltrace {
            true => "ltrace",
            false => "strace",
        };
        sink.event(Event::Fact(Fact::Recorder(recorder)))?;
        // Also without signals: its table tells the view of system calls where the arguments are.
        sink.event(Event::Type(&signal_type()))?;
        match self.ahead.time {
            Time::Wall(_) => {
                sink.event(Event::Fact(Fact::Clock("realtime")))?;
                sink.event(Event::Fact(Fact::WallOffset(0)))
            }
            Time::OfDay(_) => sink.event(Event::Fact(Fact::Clock("local time of day"))),
            Time::Delta(_) => sink.event(Event::Fact(Fact::Clock("relative"))),
            Time::None => Ok(()),
        }
    }

    fn line(
        &mut self,
        line: Line<'a>,
        after: &Lines<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let text = line.text;
        if text.trim_ascii().is_empty() {
            self.counts.blank += 1;
            return Ok(());
        }
        let mut next = after.clone();
        if summary::is_head(text, || next.next().map_or(&b""[..], |line| line.text)) {
            self.table = Some(Table::of(text));
            self.tables += 1;
            self.counts.header += 1;
            return Ok(());
        }
        if let Some(mut table) = self.table.take() {
            match table.line(text) {
                Some(Part::Ruler) => self.counts.header += 1,
                Some(Part::Total) => {
                    self.counts.header += 1;
                    return Ok(());
                }
                Some(Part::Row(row)) => self.row(&row, sink)?,
                None => return self.line(line, after, sink),
            }
            self.table = Some(table);
            return Ok(());
        }
        let Some((prefix, body)) = line::parse_anywhere(text) else {
            if self.strangers == 0 {
                self.first_stranger = line.number;
            }
            self.strangers += 1;
            self.counts.problem += 1;
            return Ok(());
        };
        if let Body::Message(tid) = body {
            self.live.extend(tid);
            self.counts.header += 1;
            return Ok(());
        }
        self.counts.data += 1;
        // With -q, no message says that a thread is attached.
        self.live.extend(prefix.tid);
        let time = match body {
            // Belongs to the call above.
            Body::Frame(_) | Body::Dump => return Ok(()),
            _ => self.clock.at(prefix.time),
        };
        let common = self.common(&prefix, time);
        match body {
            Body::Call { name, args, result } => {
                let outcome = Outcome::parse(result);
                self.call(common, name, args, outcome, after.clone(), sink)
            }
            Body::Unfinished { name, args } => {
                let resumption = self.ahead.resumptions.get(&line.number).cloned();
                self.unfinished(common, name, args, resumption, sink)
            }
            Body::Resumed { name, result, .. } if !self.ahead.is_joined(line.number) => {
                let outcome = Outcome::parse(result);
                let mut text = Vec::new();
                sink.event(Event::Leave(&Leave {
                    common,
                    function: self.function(name, &mut text),
                    duration: outcome.duration,
                    retval: outcome.value,
                    ..Leave::default()
                }))
            }
            Body::Signal(text) => self.signal(&common, text, sink),
            Body::Exited(code) => self.exited(&common, code, sink),
            Body::Superseded(by) => {
                // The thread that called execve goes on as this one.
                by.map(|by| self.live.remove(&by));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn common(&self, prefix: &Prefix<'a>, time: Option<i64>) -> Common<'a> {
        let mut live = self.live.iter();
        let only = live.next().filter(|_| live.next().is_none());
        let tid = prefix.tid.or(self.tid_of_file).or(only.copied());
        Common {
            time,
            pid: tid.and_then(|tid| self.pids.get(&tid).copied()),
            tid,
            comm: prefix.comm,
            ..Common::default()
        }
    }

    /// The function of a call; `text` holds its name.
    fn function<'t>(&self, name: &'t [u8], text: &'t mut Vec<u8>) -> Function<'t> {
        let name = name.trim_ascii();
        let system_call = match name.strip_prefix(b"SYS_") {
            Some(system_call) => system_call,
            None if self.ahead.is_ltrace => {
                // The module that calls it precedes the function: `libc.so.6->malloc`.
                return Function::named(cut(name, b"->").map_or(name, |(_, name)| name));
            }
            None => name,
        };
        // strace does not know the name: `syscall_0x1d5`.
        let number = system_call
            .strip_prefix(b"syscall_0x")
            .and_then(hexadecimal);
        match number {
            Some(number) => text.extend_from_slice(format!("syscall:{number}").as_bytes()),
            None => {
                text.extend_from_slice(b"sys_");
                text.extend_from_slice(system_call);
            }
        }
        Function::named(text)
    }

    fn call(
        &mut self,
        mut common: Common<'a>,
        name: &'a [u8],
        args: &[u8],
        outcome: Outcome<'_>,
        after: Lines<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let mut args = arguments(args);
        let is_execve = matches!(name, b"execve" | b"execveat") && outcome.value == Some(0);
        if let (true, Some(tid)) = (is_execve, common.tid) {
            // After execve, a thread is the leader of its process.
            self.pids.insert(tid, tid);
            common.pid = Some(tid);
        }
        let error = outcome.error.map(|error| [b"error=", error].concat());
        let text_of_program = args.iter().copied().find(|arg| arg.starts_with(b"\""));
        let flags = args.iter().any(|arg| contains(arg, b"CLONE_THREAD"));
        let is_naming = name == b"prctl" && args.first() == Some(&&b"PR_SET_NAME"[..]);
        if let Some(error) = &error {
            args.push(error);
        }
        let frames = frames(after);
        let mut text = Vec::new();
        sink.event(Event::Call(&Call {
            common: Common {
                user_stack: match frames.as_slice() {
                    [] => Stack::None,
                    frames => Stack::Named(frames),
                },
                ..common
            },
            function: self.function(name, &mut text),
            caller: Function::Unknown,
            depth: None,
            context: None,
            args: &args,
            duration: outcome.duration,
            retval: outcome.value,
            may_nest: self.ahead.is_ltrace,
        }))?;
        if is_execve {
            return self.renamed(&common, text_of_program.unwrap_or_default(), true, sink);
        }
        if is_naming && outcome.value == Some(0) {
            return self.renamed(&common, text_of_program.unwrap_or_default(), false, sink);
        }
        match outcome.value.and_then(|value| i32::try_from(value).ok()) {
            Some(child) if is_fork(name) && child > 0 => self.forked(&common, child, flags, sink),
            _ => Ok(()),
        }
    }

    /// Emits a call whose line ends before its result, with the line that resumes it.
    fn unfinished(
        &mut self,
        common: Common<'a>,
        name: &'a [u8],
        args: &'a [u8],
        resumption: Option<Resumption<'a>>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let resumed = resumption.as_ref().map(|resumption| resumption.body);
        match (resumption, resumed) {
            (
                Some(resumption),
                Some(Body::Resumed {
                    args: rest, result, ..
                }),
            ) => {
                let args = [args, rest].concat();
                let mut outcome = Outcome::parse(result);
                let waited = resumption.time.zip(common.time);
                let waited = waited.and_then(|(end, start)| end.checked_sub(start));
                outcome.duration = outcome.duration.or(waited.filter(|waited| *waited >= 0));
                self.call(common, name, &args, outcome, resumption.after, sink)
            }
            _ => {
                let nothing = Lines::of(b"");
                self.call(common, name, args, Outcome::default(), nothing, sink)
            }
        }
    }

    /// Names a thread: by its program at `execve`, as it calls itself with `prctl`.
    fn renamed(
        &self,
        common: &Common<'_>,
        text: &[u8],
        exec: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        // A shortened string ends with `"...`.
        let text = text
            .strip_prefix(b"\"")
            .and_then(|text| text.strip_suffix(b"\""));
        let name = text.and_then(|text| match exec {
            true => text.rsplit(|&byte| byte == b'/').next(),
            false => Some(text),
        });
        match (name, common.tid) {
            (Some(name), Some(tid)) if !name.is_empty() && !name.contains(&b'\\') => {
                sink.event(Event::Comm(Comm {
                    time: common.time,
                    pid: common.pid,
                    tid,
                    comm: name.get(..COMM_BYTES).unwrap_or(name),
                    exec,
                }))
            }
            _ => Ok(()),
        }
    }

    fn forked(
        &mut self,
        common: &Common<'_>,
        child: i32,
        is_thread: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(parent) = common.tid else {
            return Ok(());
        };
        // The process of an attached thread is unknown, and so is that of threads that it creates.
        let pid = match is_thread {
            true => common.pid,
            false => Some(child),
        };
        let (Some(pid), Some(parent_pid)) = (pid, common.pid.or(pid)) else {
            return Ok(());
        };
        self.pids.insert(child, pid);
        if common.pid.is_none() {
            return Ok(());
        }
        sink.event(Event::Fork(Fork {
            time: common.time,
            pid,
            tid: child,
            parent_pid,
            parent_tid: parent,
        }))
    }

    fn exited(
        &mut self,
        common: &Common<'_>,
        code: Option<i32>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(tid) = common.tid else {
            return Ok(());
        };
        self.live.remove(&tid);
        self.pids.remove(&tid);
        sink.event(Event::Exit(Exit {
            time: common.time,
            pid: common.pid,
            tid,
            code,
        }))
    }

    /// Emits `SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=7, …}`, `stopped by SIGSTOP`, or ltrace's
    /// `SIGCHLD (Child exited)`.
    fn signal(&self, common: &Common<'_>, text: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
        let (name, code, info) = match text.strip_prefix(b"stopped by ") {
            Some(name) => (name, Some(&b"stopped"[..]), &b""[..]),
            None => match cut(text, b" ") {
                Some((name, info)) => (name, member(info, b"si_code="), info),
                None => (text, None, &b""[..]),
            },
        };
        // With -Y, the name follows: `si_pid=7<sh>`.
        let digits = |text: &[u8]| signed(text.split(|&byte| byte == b'<').next()?);
        let number = |key| {
            let number = member(info, key).and_then(digits);
            number.map_or(Value::Null, Value::Int)
        };
        let values = [
            Value::Bytes(name),
            code.map_or(Value::Null, Value::Bytes),
            number(b"si_pid="),
            number(b"si_uid="),
            member(info, b"si_status=").map_or(Value::Null, Value::Bytes),
        ];
        sink.event(Event::Sample(&Sample {
            time: common.time,
            pid: common.pid,
            tid: common.tid,
            comm: common.comm,
            fields: Fields::Values(&values),
            ..Sample::of(SIGNAL)
        }))
    }

    /// Emits a row of the table of `-c`.
    fn row(&mut self, row: &summary::Row<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        self.counts.data += 1;
        // Follow from the others, unless these are not in the table.
        let is_derived = row.calls.is_some() && row.seconds.is_some();
        let microseconds = row.average.map(AggregateValue::of_unsigned);
        let percent = row.percent.map(AggregateValue::Float);
        let sums = [
            (
                &b"calls"[..],
                Action::Count,
                row.calls.map(AggregateValue::of_unsigned),
            ),
            (
                b"errors",
                Action::Count,
                row.errors.map(AggregateValue::of_unsigned),
            ),
            (
                b"seconds",
                Action::Sum,
                row.seconds.map(AggregateValue::Float),
            ),
            (
                b"shortest",
                Action::Min,
                row.shortest.map(AggregateValue::Float),
            ),
            (
                b"longest",
                Action::Max,
                row.longest.map(AggregateValue::Float),
            ),
            (
                b"usecs/call",
                Action::Avg,
                microseconds.filter(|_| !is_derived),
            ),
            (
                b"% time",
                Action::Sum,
                percent.filter(|_| row.seconds.is_none()),
            ),
        ];
        summary::emit(&sums, &[row.name], self.tables.saturating_sub(1), sink)
    }

    fn finish(self, sink: &mut dyn Sink) -> Result<(), Error> {
        if self.strangers > 0 {
            sink.event(Event::Problem(Problem {
                place: Place::Line(self.first_stranger),
                count: self.strangers,
                message: "lines that strace did not write, such as the output of the program",
            }))?;
        }
        self.counts.report("strace.lines", sink)
    }
}

/// The value of a member: `si_pid=7` in `{si_signo=SIGCHLD, si_pid=7}`.
fn member<'t>(info: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    let (_, rest) = cut(info, key)?;
    let end = rest.iter().position(|byte| matches!(byte, b',' | b'}'));
    Some(rest.get(..end?)?.trim_ascii())
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(text, word).is_some()
}

/// The frames on the following lines, leaf first.
fn frames<'a>(lines: Lines<'a>) -> Vec<NamedFrame<'a>> {
    let lines = lines.skip_while(|line| line::is_dump(line.text));
    let frames = lines.map_while(|line| line::frame(line.text).map(named));
    frames.take(FRAMES_MAX).collect()
}

fn named(frame: Frame<'_>) -> NamedFrame<'_> {
    NamedFrame {
        function: match frame.function {
            b"" => b"[unknown]",
            function => function,
        },
        function_offset: frame.offset,
        module: frame.module,
        address: None,
        space: Space::User,
        inlined: false,
        ..NamedFrame::default()
    }
}
