//! Every event of the recorded corpus, compared with the output of `trace-cmd report`.
//!
//! Next to each trace.dat of corpus/trace-cmd is the output of trace-cmd 3.1.6 on the recording host (`X.report`, and
//! for some `X.VARIANT.report`). The reader's events are printed here in trace-cmd's layout, and both texts are
//! compared line by line: buffer order, time, CPU, thread, its name, event, payload, stack, lost events. Differences
//! are explained in docs/compatibility.md, and listed here.
//!
//! For the downloaded files (corpus/trace-dat-public), README-binary.md has the number of events of each kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_events::event::{
    Common, Event, EventType, Fact, Fields, Function, Sample, Sink, Stack, Value,
};
use perfquet_events::event_format::print::{PrintFormat, Record};
use perfquet_events::{Error, Input};
use perfquet_readers::trace_dat::TRACE_DAT;
use perfquet_tests::{corpora, foreign_corpus, needs, root};

use crate::trace_cmd_report::{Line, duration, report, retval, seconds, state_letters};

/// The reader's events.
#[derive(Default)]
struct Ours {
    types: Vec<EventType>,
    prints: Vec<PrintFormat>,
    comms: BTreeMap<i32, String>,
    symbols: BTreeMap<u64, String>,
    lines: Vec<Line>,
    /// Nanoseconds, and function and duration of calls, for each of `lines`.
    details: Vec<Detail>,
    wall_offset: i64,
    instances: Vec<String>,
    dropped: Option<String>,
    problems: Vec<String>,
    counts: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default)]
struct Detail {
    time: Option<i64>,
    function: String,
    caller: String,
    depth: u32,
    duration: Option<i64>,
    retval: Option<i64>,
}

fn name_of(function: Function<'_>) -> String {
    match function {
        Function::Unknown => String::new(),
        Function::Named { name, .. } => String::from_utf8_lossy(name).into_owned(),
        Function::Address { address, .. } => format!("0x{address:x}"),
    }
}

fn addresses(stack: Stack<'_>) -> Vec<u64> {
    match stack {
        Stack::Addresses { addresses, .. } => addresses.to_vec(),
        _ => Vec::new(),
    }
}

impl Ours {
    fn of(path: &Path) -> Result<Ours, Error> {
        let mut ours = Ours::default();
        let mut input = Input::open(path)?;
        TRACE_DAT.read(&mut input, &mut ours)?;
        Ok(ours)
    }

    fn push(&mut self, common: &Common<'_>, event: &str, payload: String, mut detail: Detail) {
        *self.counts.entry(event.to_owned()).or_default() += 1;
        let kernel_stack = addresses(common.kernel_stack);
        let user_stack = addresses(common.user_stack);
        if !matches!(common.kernel_stack, Stack::None) && event != "kernel_stack" {
            *self.counts.entry("kernel_stack".into()).or_default() += 1;
        }
        if !matches!(common.user_stack, Stack::None) && event != "user_stack" {
            *self.counts.entry("user_stack".into()).or_default() += 1;
        }
        detail.time = common.time;
        let tid = common.tid.unwrap_or(-1);
        let comm = self.comms.get(&tid);
        self.lines.push(Line {
            time: String::new(),
            cpu: common.cpu,
            tid,
            comm: comm.map_or("<...>".into(), Clone::clone),
            event: event.to_owned(),
            payload,
            kernel_stack,
            user_stack,
            dropped: self.dropped.take(),
        });
        self.details.push(detail);
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let index = sample.event.0 as usize;
        let declared = &self.types[index];
        let name = declared.name.clone();
        let payload = match self.as_plugins_print(index, sample) {
            Some(payload) => payload,
            None => {
                let record = Record {
                    fields: &declared.fields,
                    values: sample.fields,
                    big_endian: declared.big_endian,
                };
                let symbols = &self.symbols;
                let names = |address: u64| {
                    let (start, name) = symbols.range(..=address).next_back()?;
                    Some((name.clone(), address - start))
                };
                let mut text = Vec::new();
                self.prints[index].print(&record, Some(&names), &mut text);
                String::from_utf8_lossy(&text).trim().to_owned()
            }
        };
        let common = Common {
            time: sample.time,
            cpu: sample.cpu,
            pid: sample.pid,
            tid: sample.tid,
            comm: None,
            kernel_stack: sample.kernel_stack,
            user_stack: sample.user_stack,
        };
        self.push(&common, &name, payload, Detail::default());
    }

    /// Events printed by plugins of libtraceevent (plugin_sched_switch.c, plugin_hrtimer.c) instead of their print
    /// format.
    fn as_plugins_print(&self, index: usize, sample: &Sample<'_>) -> Option<String> {
        let declared = &self.types[index];
        let field = |name: &str| {
            let at = declared
                .fields
                .iter()
                .position(|field| field.name == name)?;
            if let Fields::None = sample.fields {
                return None;
            }
            match sample.fields.value(at) {
                Value::Int(value) => Some(value.to_string()),
                Value::UInt(value) => Some(value.to_string()),
                Value::Bytes(text) => Some(String::from_utf8_lossy(text).into_owned()),
                other => panic!("{name}: {other:?}"),
            }
        };
        match declared.name.as_str() {
            "sched_switch" => {
                let state = state_letters(field("prev_state")?.parse().unwrap());
                Some(format!(
                    "{}:{} [{}] {state} ==> {}:{} [{}]",
                    field("prev_comm")?,
                    field("prev_pid")?,
                    field("prev_prio")?,
                    field("next_comm")?,
                    field("next_pid")?,
                    field("next_prio")?
                ))
            }
            "sched_wakeup" => {
                let cpu: u32 = field("target_cpu")?.parse().unwrap();
                Some(format!(
                    "{}:{} [{}] CPU:{cpu:03}",
                    field("comm")?,
                    field("pid")?,
                    field("prio")?
                ))
            }
            "hrtimer_expire_entry" => {
                let address = |name: &str| Some(field(name)?.parse::<u64>().unwrap());
                let function = address("function")?;
                let (start, name) = self.symbols.range(..=function).next_back()?;
                // Negative where the plugin means positive: the difference has the wrong sign.
                Some(format!(
                    "hrtimer=0x{:x} now={} function={name}/0x{:x}",
                    address("hrtimer")?,
                    field("now")?,
                    start.wrapping_sub(function)
                ))
            }
            _ => None,
        }
    }

    /// The lines, with their times and functions as trace-cmd prints them.
    fn printed(mut self, nanoseconds: bool, callers: bool) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut index = 0;
        while let Some(line) = self.lines.get_mut(index) {
            let mut line = std::mem::take(line);
            let detail = &self.details[index];
            line.time = detail.time.map_or(String::new(), |time| {
                seconds(time + self.wall_offset, nanoseconds)
            });
            let following = self.lines.get(index + 1).zip(self.details.get(index + 1));
            match line.event.as_str() {
                "function" if callers => {
                    line.payload = format!("{} <-- {}", detail.function, detail.caller);
                }
                "function" => line.payload = detail.function.clone(),
                "funcgraph_entry" => {
                    let leaf = following.filter(|(next, other)| {
                        next.event == "funcgraph_exit"
                            && (next.cpu, next.tid) == (line.cpu, line.tid)
                            && other.function == detail.function
                            && next.dropped.is_none()
                    });
                    let indent = "  ".repeat(detail.depth as usize);
                    line.payload = match leaf {
                        Some((_, exit)) => {
                            index += 1;
                            let duration = duration(exit.duration.unwrap());
                            let retval = retval(exit.retval);
                            format!("{duration}|  {indent}{}();{retval}", detail.function)
                        }
                        None => format!("|  {indent}{}() {{", detail.function),
                    };
                }
                "funcgraph_exit" => {
                    let indent = "  ".repeat(detail.depth as usize);
                    let duration = duration(detail.duration.unwrap());
                    line.payload = format!("{duration}|  {indent}}}{}", retval(detail.retval));
                }
                _ => {}
            }
            line.payload = line.payload.trim().to_owned();
            lines.push(line);
            index += 1;
        }
        lines
    }
}

impl Sink for Ours {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(declared) => {
                let source = declared.print_format.clone().unwrap_or_default();
                self.prints
                    .push(PrintFormat::new(&source, &declared.fields));
                self.types.push(declared.clone());
            }
            Event::Sample(sample) => self.sample(sample),
            Event::Call(call) => {
                let detail = Detail {
                    function: name_of(call.function),
                    caller: name_of(call.caller),
                    ..Detail::default()
                };
                self.push(&call.common, "function", String::new(), detail);
            }
            Event::Enter(enter) => {
                let detail = Detail {
                    function: name_of(enter.function),
                    depth: enter.depth.unwrap(),
                    ..Detail::default()
                };
                self.push(&enter.common, "funcgraph_entry", String::new(), detail);
            }
            Event::Leave(leave) => {
                let detail = Detail {
                    function: name_of(leave.function),
                    depth: leave.depth.unwrap(),
                    duration: leave.duration,
                    retval: leave.retval,
                    ..Detail::default()
                };
                self.push(&leave.common, "funcgraph_exit", String::new(), detail);
            }
            Event::Comm(comm) => {
                let name = String::from_utf8_lossy(comm.comm).into_owned();
                self.comms.insert(comm.tid, name);
            }
            Event::Symbol(symbol) => {
                let name = String::from_utf8_lossy(symbol.name).into_owned();
                self.symbols.insert(symbol.start, name);
            }
            Event::Fact(Fact::WallOffset(offset)) => self.wall_offset = offset,
            Event::Fact(Fact::Other {
                name: "trace_cmd.instances",
                value,
            }) => {
                self.instances = value.split(' ').map(str::to_owned).collect();
            }
            Event::Loss(loss) if loss.time.is_some() => {
                let cpu = loss.cpu.unwrap();
                self.dropped = Some(match loss.count {
                    Some(count) => format!("CPU:{cpu} [{count} EVENTS DROPPED]"),
                    None => format!("CPU:{cpu} [EVENTS DROPPED]"),
                });
            }
            Event::Problem(problem) => self.problems.push(problem.message.to_owned()),
            _ => {}
        }
        Ok(())
    }
}

/// Expected differences, explained in docs/compatibility.md.
struct Difference {
    file: &'static str,
    field: &'static str,
    count: usize,
    is_of_kind: fn(&Line, &Line) -> bool,
    cause: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        file: "6.12/clock-boot.report",
        field: "time",
        count: 7,
        is_of_kind: |our, their| number(their).is_some_and(|ns| seconds(ns, false) == our.time),
        cause: "trace-cmd 3.1.6 does not know that boot counts nanoseconds",
    },
    Difference {
        file: "6.12/clock-counter.report",
        field: "time",
        count: 7,
        is_of_kind: |our, their| our.time.is_empty() && number(their).is_some(),
        cause: "a counter has no time",
    },
    Difference {
        file: "6.12/clock-x86-tsc.report",
        field: "time",
        count: 7,
        is_of_kind: |our, their| our.time.is_empty() && number(their).is_some(),
        cause: "cycles without a rate have no time",
    },
    Difference {
        file: "6.12/clock-uptime.report",
        field: "time",
        count: 7,
        is_of_kind: |our, their| {
            // Ticks of 10 ms, printed as nanoseconds.
            let ticks = nanoseconds(&our.time) / 10_000_000;
            seconds(ticks, false) == their.time
        },
        cause: "trace-cmd takes ticks of 10 ms for nanoseconds",
    },
    Difference {
        file: "6.12/tsc2nsec.report",
        field: "time",
        count: 7,
        is_of_kind: |our, their| {
            // The multiplier is 2^31 and a millionth more; as a negative number it is a millionth less.
            let sum = i128::from(nanoseconds(&our.time)) + their_nanoseconds(&their.time);
            (0..100_000).contains(&(sum - (1 << 64) - (1 << 33)))
        },
        cause: "trace-cmd takes the multiplier for a signed number: its time runs backwards",
    },
    Difference {
        file: "7.3/events.report",
        field: "payload",
        count: 1,
        is_of_kind: |our, their| {
            our.payload.contains("__buf_val=") && their.payload.starts_with(&our.payload)
        },
        cause: "trace-cmd prints bytes after a string without NUL",
    },
];

/// A time without a unit.
fn number(line: &Line) -> Option<i64> {
    line.time.parse().ok()
}

/// "5.608275" as nanoseconds.
fn nanoseconds(time: &str) -> i64 {
    their_nanoseconds(time) as i64
}

fn their_nanoseconds(time: &str) -> i128 {
    let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
    format!("{whole}{fraction:0<9}").parse().unwrap_or(0)
}

#[derive(Default)]
struct Comparison {
    ours: usize,
    theirs: usize,
    fields: usize,
    differing: BTreeMap<&'static str, usize>,
    unexplained: Vec<String>,
}

impl Comparison {
    fn field(&mut self, file: &str, name: &'static str, equal: bool, our: &Line, their: &Line) {
        self.fields += 1;
        if equal {
            return;
        }
        *self.differing.entry(name).or_default() += 1;
        let known = DIFFERENCES.iter().any(|known| {
            known.file == file && known.field == name && (known.is_of_kind)(our, their)
        });
        if !known {
            self.unexplained.push(format!(
                "{file}: {name}\n  ours  {our:?}\n  their {their:?}"
            ));
        }
    }
}

fn compare(file: &str, ours: &[Line], theirs: &[Line]) -> Comparison {
    let mut comparison = Comparison {
        ours: ours.len(),
        theirs: theirs.len(),
        ..Comparison::default()
    };
    for (our, their) in ours.iter().zip(theirs) {
        let mut field = |name, equal| comparison.field(file, name, equal, our, their);
        field("time", our.time == their.time);
        field("cpu", our.cpu == their.cpu);
        field("tid", our.tid == their.tid);
        field("comm", our.comm == their.comm);
        field("event", our.event == their.event);
        field("payload", our.payload == their.payload);
        field("kernel_stack", our.kernel_stack == their.kernel_stack);
        field("user_stack", our.user_stack == their.user_stack);
        field("dropped", our.dropped == their.dropped);
    }
    comparison
}

/// Examples of a difference.
const EXAMPLES: usize = 3;

#[test]
fn corpus_trace_cmd_report() {
    let mut table = String::new();
    let mut wrong = Vec::new();
    let mut totals = (0, 0);
    let folders = corpora().into_iter().map(|corpus| corpus.join("trace-cmd"));
    let pairs = folders.flat_map(|folder| {
        let pairs = pairs(&folder).into_iter();
        pairs.map(move |(file, oracle)| (folder.clone(), file, oracle))
    });
    for (folder, file, oracle) in pairs {
        let name = oracle.strip_prefix(&folder).unwrap().display().to_string();
        let ours = match Ours::of(&file) {
            Ok(ours) => ours,
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        let problems = ours.problems.join("; ");
        let theirs = std::fs::read(&oracle).unwrap();
        let theirs = String::from_utf8_lossy(&theirs);
        let mut theirs = report(&theirs, &ours.instances);
        if name == "6.12/tsc2nsec.report" {
            theirs.sort_by(|one, other| other.time.cmp(&one.time));
        }
        let ours = ours.printed(name.contains(".t."), name.contains(".Oparent."));
        let result = compare(&name, &ours, &theirs);
        totals.0 += result.fields;
        totals.1 += result.differing.values().sum::<usize>();
        if result.ours != result.theirs {
            wrong.push(format!(
                "{name}: {} events, trace-cmd has {}",
                result.ours, result.theirs
            ));
        }
        let mut causes = vec![problems];
        for known in DIFFERENCES.iter().filter(|known| known.file == name) {
            let found = result.differing.get(known.field).copied().unwrap_or(0);
            causes.push(format!("{}: {}", known.field, known.cause));
            if found != known.count {
                wrong.push(format!(
                    "{name}: {} differs {found} times, expected {}",
                    known.field, known.count
                ));
            }
        }
        if !result.unexplained.is_empty() {
            causes.push(format!("{} UNEXPLAINED", result.unexplained.len()));
            wrong.extend(result.unexplained.iter().take(EXAMPLES).cloned());
        }
        causes.retain(|cause| !cause.is_empty());
        let differing: usize = result.differing.values().sum();
        let _ = writeln!(
            table,
            "{name:<36} {:>6} {:>6} {:>7} {differing:>9}  {}",
            result.ours,
            result.theirs,
            result.fields,
            causes.join("; ")
        );
    }
    println!(
        "{:<36} {:>6} {:>6} {:>7} {:>9}  difference\n{table}{} of {} fields equal",
        "report",
        "events",
        "theirs",
        "fields",
        "differing",
        totals.0 - totals.1,
        totals.0
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(totals.0 > 10_000, "only {} fields were compared", totals.0);
}

/// Every trace.dat with its report, and the variants of it that print the same lines.
fn pairs(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut pairs = Vec::new();
    for machine in ["6.1", "6.12", "7.3"] {
        let Ok(entries) = std::fs::read_dir(folder.join(machine)) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "dat") {
                continue;
            }
            for suffix in ["report", "t.report", "Oparent.report"] {
                let oracle = path.with_extension(suffix);
                if oracle.is_file() {
                    pairs.push((path.clone(), oracle));
                }
            }
        }
    }
    pairs.sort();
    assert!(pairs.len() >= 25, "{} reports", pairs.len());
    pairs
}

/// A row of README-binary.md: the file, its events, the number of each kind.
struct Known {
    file: String,
    events: u64,
    kinds: Vec<(String, u64)>,
}

fn known(corpus: &Path) -> Vec<Known> {
    let text = std::fs::read_to_string(corpus.join("README-binary.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let file = cells
            .get(1)
            .filter(|file| file.starts_with("trace-dat-public/"))?;
        let events = cells.get(8)?.split(' ').next()?.parse().ok()?;
        let kinds = cells.get(9)?.split(" (+").next()?.split("; ");
        let kinds = kinds.filter_map(|kind| {
            let (name, count) = kind.rsplit_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        });
        Some(Known {
            file: (*file).to_owned(),
            events,
            kinds: kinds.collect(),
        })
    });
    rows.collect()
}

/// The content of the corpus: the names of the events in their reports, counted by simple means.
///
/// ```text
///               dd-294   [000]    45.252375: function:             vfs_read <-- ksys_read
/// ```
fn counted() -> Vec<(PathBuf, Known)> {
    let folder = root().join("tests/corpus/trace-cmd");
    let mut all = Vec::new();
    for (file, oracle) in pairs(&folder) {
        // Only the plain report, without entry and exit on one line, or the buffer before the task.
        if oracle != file.with_extension("report")
            || ["graph", "buffers"]
                .iter()
                .any(|word| file.to_string_lossy().contains(word))
        {
            continue;
        }
        let bytes = std::fs::read(&oracle).unwrap();
        let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
        for line in String::from_utf8_lossy(&bytes).lines() {
            let Some((_, rest)) = line.split_once("] ") else {
                continue;
            };
            let mut words = rest.split_whitespace().filter(|word| word.ends_with(':'));
            if let (true, Some(name)) = (line.starts_with(' '), words.nth(1)) {
                let name = name.trim_end_matches(':').to_owned();
                *kinds.entry(name).or_default() += 1;
            }
        }
        let known = Known {
            file: file.strip_prefix(&folder).unwrap().display().to_string(),
            events: kinds.values().sum(),
            kinds: kinds.into_iter().collect(),
        };
        all.push((file, known));
    }
    assert!(all.len() >= 15, "{} files", all.len());
    all
}

#[test]
fn corpus_trace_dat_public() {
    let mut rows = counted();
    if let Some(corpus) = foreign_corpus() {
        let listed = known(&corpus);
        assert!(listed.len() >= 12, "{} rows", listed.len());
        rows.extend(listed.into_iter().map(|row| (corpus.join(&row.file), row)));
    }
    let mut wrong = Vec::new();
    for (path, row) in rows {
        let ours = Ours::of(&path);
        let (events, counts, problems) = match ours {
            Ok(ours) => {
                let events: u64 = ours.counts.values().sum();
                (events, ours.counts, ours.problems.join("; "))
            }
            Err(error) => (0, BTreeMap::new(), error.to_string()),
        };
        println!("{:<52} {events:>6} {:>6}  {problems}", row.file, row.events);
        if events != row.events {
            wrong.push(format!(
                "{}: {events} events, expected {}",
                row.file, row.events
            ));
        }
        for (kind, count) in row.kinds {
            let ours = counts.get(&kind).copied().unwrap_or(0);
            if ours != count {
                wrong.push(format!("{}: {ours} {kind}, expected {count}", row.file));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The output of the installed trace-cmd for the corpus and the downloaded files. Payloads are not compared: it prints
/// many by plugins.
#[test]
fn corpus_trace_dat_public_report() {
    if !needs::met(&["trace-cmd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    let mut rows = counted();
    if let Some(corpus) = foreign_corpus() {
        rows.extend(
            known(&corpus)
                .into_iter()
                .map(|row| (corpus.join(&row.file), row)),
        );
    }
    for (path, row) in rows {
        // trace-cmd reads nothing from a truncated file.
        if row.events == 0 {
            continue;
        }
        let unpacked = folder.path().join("trace.dat");
        let mut input = Input::open(&path).unwrap();
        std::fs::write(&unpacked, &input.whole().unwrap().unwrap()[..]).unwrap();
        let output = Command::new("trace-cmd")
            .args(["report", "-t", "-i"])
            .arg(&unpacked)
            .output()
            .unwrap();
        let theirs = String::from_utf8_lossy(&output.stdout);
        let ours = Ours::of(&path).unwrap();
        let theirs = report(&theirs, &ours.instances);
        let mut ours = ours.printed(true, false);
        let mut payloads = 0;
        for (our, their) in ours.iter_mut().zip(&theirs) {
            if our.payload != their.payload {
                payloads += 1;
                if payloads <= EXAMPLES {
                    println!(
                        "  {}: {:?}\n  trace-cmd: {:?}",
                        our.event, our.payload, their.payload
                    );
                }
                our.payload = their.payload.clone();
            }
        }
        let name = Path::new(&row.file).with_extension("report");
        let result = compare(&name.to_string_lossy(), &ours, &theirs);
        println!(
            "{:<52} {:>6} {:>6} {:>7} {payloads:>9}  {:?}",
            row.file, result.ours, result.theirs, result.fields, result.differing
        );
        if result.ours != result.theirs {
            wrong.push(format!(
                "{}: {} events, trace-cmd has {}",
                row.file, result.ours, result.theirs
            ));
        }
        wrong.extend(result.unexplained.into_iter().take(EXAMPLES));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
