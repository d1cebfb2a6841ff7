//! For tests of readers: golden files, and their expected events as text.
//!
//! ```text
//! golden/diff.folded        a small input
//! golden/diff.folded.snap   its events as printed by `as_text`, one per line; managed by insta
//! ```
//! Each reader has a directory `golden/`, whose README.md describes the origin of every file.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use perfquet_events::event::{
    Aggregate, AggregateValue, Call, Common, Enter, Event, EventType, Fact, Fields, Function,
    Leave, NamedFrame, Sample, Sink, Stack, Value,
};
use perfquet_events::{Error, Format, Guess, Input};

/// All golden files of `reader` (a directory of `formats/readers/src`), sorted: everything but README.md and *.snap.
pub(crate) fn golden_files(reader: &str) -> Vec<PathBuf> {
    let folder = golden_folder(reader);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name() != Some("README.md".as_ref())
                && !path.to_string_lossy().contains(".snap")
        })
        .collect();
    files.sort();
    files
}

fn golden_folder(reader: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src")
        .join(reader)
        .join("golden")
}

/// Compares `text` with the snapshot of the golden file `path`.
pub(crate) fn assert_golden(path: &Path, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(path.parent().unwrap());
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_input_file(path.file_name().unwrap());
    let name = path.file_name().unwrap().to_str().unwrap();
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The events of a golden file, as text.
pub(crate) fn read_golden(format: &Format, path: &Path) -> String {
    let mut input = Input::open(path).unwrap();
    as_text(format, &mut input)
}

/// The events of `bytes`, as text.
pub(crate) fn read_bytes(format: &Format, bytes: &[u8]) -> String {
    match Input::from_bytes("test", bytes) {
        Ok(mut input) => as_text(format, &mut input),
        // Random bytes may begin like those of a compressed file.
        Err(error) => format!("error {error}\n"),
    }
}

/// One event per line, with its known fields; the last line is the error, if the reader failed.
pub(crate) fn as_text(format: &Format, input: &mut Input) -> String {
    let mut lines = Lines::default();
    if let Err(error) = format.read(input, &mut lines) {
        let name = input.name().to_owned();
        let file = Path::new(&name).file_name().unwrap_or_default();
        let error = error.to_string().replace(&name, &file.to_string_lossy());
        writeln!(lines.text, "error {error}").unwrap();
    }
    lines.text
}

/// Checks that no other sniffer is more certain of a golden file than its own format's.
pub(crate) fn assert_recognized(format: &Format, path: &Path) {
    let mut input = Input::open(path).unwrap();
    input.open_archive().unwrap();
    let own = format.guess(&input).unwrap();
    assert_ne!(
        own,
        Guess::No,
        "{} recognizes {}",
        format.name,
        path.display()
    );
    for other in crate::FORMATS {
        let guess = other.guess(&input).unwrap();
        assert!(
            other.name == format.name || guess < own,
            "{} claims {}",
            other.name,
            path.display()
        );
    }
}

/// The files of a golden archive, unpacked; and their paths.
pub(crate) fn unpacked(archive: &Path) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let mut input = Input::open(archive).unwrap();
    input.open_archive().unwrap();
    let mut paths = Vec::new();
    for name in input.all_files(100).unwrap().0 {
        let mut bytes = Vec::new();
        let mut member = input.member(&name).unwrap().unwrap();
        std::io::Read::read_to_end(&mut member, &mut bytes).unwrap();
        let path = folder.path().join(&name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        paths.push(path);
    }
    (folder, paths)
}

/// A sink that prints events.
#[derive(Default)]
struct Lines {
    text: String,
    types: Vec<EventType>,
    kernel_texts: usize,
}

impl Sink for Lines {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(event_type) => {
                self.types.push(event_type.clone());
                let id = self.types.len() - 1;
                writeln!(self.text, "type {id} {}", type_text(event_type)).unwrap();
            }
            Event::Sample(sample) => {
                let line = self.sample_text(sample);
                writeln!(self.text, "{line}").unwrap();
            }
            Event::Problem(problem) => {
                let (place, count) = (problem.place, problem.count);
                writeln!(self.text, "problem {place}{count} × {}", problem.message).unwrap();
            }
            // A number of the kernel, or an ID: it differs between recordings.
            Event::Progress(_) | Event::Fact(Fact::Recording(_)) => {}
            // A kernel has hundreds of them.
            Event::KernelText(kernel_text) => {
                self.kernel_texts += 1;
                if self.kernel_texts <= 3 {
                    let text = kernel_text.text.escape_ascii();
                    writeln!(self.text, "kernel text {:#x} {text}", kernel_text.address).unwrap();
                }
            }
            Event::Enter(enter) => writeln!(self.text, "enter{}", enter_text(enter)).unwrap(),
            Event::Leave(leave) => writeln!(self.text, "leave{}", leave_text(leave)).unwrap(),
            Event::Call(call) => writeln!(self.text, "call{}", call_text(call)).unwrap(),
            Event::Stack(stack) => {
                let (id, pid, stack) = (stack.id, stack.pid, stack_text(stack.stack));
                writeln!(
                    self.text,
                    "stack {id:#x} pid={pid:?} {}",
                    stack.unwrap_or_default()
                )
                .unwrap();
            }
            Event::Aggregate(aggregate) => {
                writeln!(self.text, "aggregate{}", aggregate_text(aggregate)).unwrap();
            }
            other => writeln!(self.text, "{}", readable(&format!("{other:?}"))).unwrap(),
        }
        Ok(())
    }
}

/// Debug prints byte strings as lists of numbers; strings are easier to read.
fn readable(debug: &str) -> String {
    let mut text = String::new();
    let mut rest = debug;
    while let Some(start) = rest.find('[') {
        let (before, list) = rest.split_at(start);
        text.push_str(before);
        let Some(end) = list.find(']') else {
            break;
        };
        let bytes: Option<Vec<u8>> = list[1..end]
            .split(", ")
            .map(|number| number.parse().ok())
            .collect();
        match bytes {
            Some(bytes) if bytes.iter().all(|byte| (32..127).contains(byte)) => {
                write!(text, "{:?}", String::from_utf8(bytes).unwrap()).unwrap();
            }
            Some(bytes) => {
                let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                write!(text, "<{}>", digits.concat()).unwrap();
            }
            None => text.push_str(&list[..=end]),
        }
        rest = &list[end + 1..];
    }
    text + rest
}

fn type_text(event_type: &EventType) -> String {
    let mut text = format!(
        "{}:{} {}",
        event_type.system,
        event_type.name,
        event_type.kind.as_str()
    );
    let optional = [
        event_type.period.map(|period| format!(" period={period}")),
        event_type
            .frequency
            .map(|rate| format!(" frequency={rate}")),
        event_type
            .filter
            .as_ref()
            .map(|filter| format!(" filter={filter:?}")),
    ];
    text.extend(optional.into_iter().flatten());
    for field in &event_type.fields {
        write!(text, " {}:{:?}", field.name, field.kind).unwrap();
    }
    text
}

impl Lines {
    fn sample_text(&self, sample: &Sample<'_>) -> String {
        let mut text = format!("sample {}", sample.event.0);
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                write!(text, " {name}={value}").unwrap();
            }
        };
        let hex = |value: u64| format!("{value:#x}");
        put("time", sample.time.map(|value| value.to_string()));
        put("cpu", sample.cpu.map(|value| value.to_string()));
        put("pid", sample.pid.map(|value| value.to_string()));
        put("tid", sample.tid.map(|value| value.to_string()));
        put(
            "comm",
            sample
                .comm
                .map(|value| format!("{:?}", String::from_utf8_lossy(value))),
        );
        put("ip", sample.ip.map(hex));
        put("space", sample.space.as_str().map(str::to_owned));
        put("period", sample.period.map(|value| value.to_string()));
        put("addr", sample.addr.map(hex));
        put("weight", sample.weight.map(|value| value.to_string()));
        put("data_src", sample.data_src.map(hex));
        put("transaction", sample.transaction.map(hex));
        put("phys_addr", sample.phys_addr.map(hex));
        put("cgroup", sample.cgroup.map(|value| value.to_string()));
        put(
            "data_page_size",
            sample.data_page_size.map(|value| value.to_string()),
        );
        put(
            "code_page_size",
            sample.code_page_size.map(|value| value.to_string()),
        );
        put("stream_id", sample.stream_id.map(|value| value.to_string()));
        let branches = sample.branches.iter();
        let branches: Vec<String> = branches
            .map(|branch| format!("{:#x}→{:#x}/{:#x}", branch.from, branch.to, branch.flags))
            .collect();
        put(
            "branches",
            (!branches.is_empty()).then(|| branches.join(" ")),
        );
        put(
            "user_registers",
            sample.user_registers.map(|value| format!("{value:x?}")),
        );
        put(
            "interrupt_registers",
            sample
                .interrupt_registers
                .map(|value| format!("{value:x?}")),
        );
        let memory = sample.user_memory.len();
        put(
            "user_memory",
            (memory > 0).then(|| format!("{memory} bytes")),
        );
        put(
            "read",
            (!sample.read.is_empty()).then(|| format!("{:?}", sample.read)),
        );
        put("kernel_stack", stack_text(sample.kernel_stack));
        put("user_stack", stack_text(sample.user_stack));
        put("fields", self.fields_text(sample));
        text
    }

    fn fields_text(&self, sample: &Sample<'_>) -> Option<String> {
        match sample.fields {
            Fields::None => None,
            Fields::Raw(payload) => {
                let fields = self.types[sample.event.0 as usize].fields.iter();
                let fields: Vec<String> = fields
                    .enumerate()
                    .map(|(place, field)| {
                        readable(&format!("{}={:?}", field.name, payload.value(place)))
                    })
                    .collect();
                Some(format!("{{{}}}", fields.join(" ")))
            }
            Fields::Values(values) => {
                let values: Vec<String> = values.iter().map(value_text).collect();
                Some(format!("[{}]", values.join(", ")))
            }
        }
    }
}

/// Strings as strings, numbers as numbers.
fn value_text(value: &Value<'_>) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::UInt(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Bytes(text) => quoted(text),
        Value::IntList(values) => format!("{values:?}"),
        Value::UIntList(values) => format!("{values:?}"),
        Value::TextList(texts) => quoted_list(texts),
        Value::Array(array) => format!("{:?}", array.unsigned().collect::<Vec<_>>()),
    }
}

/// ` name=value` for each known value.
fn known(values: &[(&str, Option<String>)]) -> String {
    let values = values.iter();
    values
        .filter_map(|(name, value)| Some(format!(" {name}={}", value.as_ref()?)))
        .collect()
}

fn quoted(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

fn quoted_list(texts: &[&[u8]]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

fn common_text(common: &Common<'_>) -> String {
    known(&[
        ("time", common.time.map(|value| value.to_string())),
        ("cpu", common.cpu.map(|value| value.to_string())),
        ("pid", common.pid.map(|value| value.to_string())),
        ("tid", common.tid.map(|value| value.to_string())),
        ("comm", common.comm.map(quoted)),
        ("kernel_stack", stack_text(common.kernel_stack)),
        ("user_stack", stack_text(common.user_stack)),
    ])
}

fn function_text(function: Function<'_>) -> Option<String> {
    match function {
        Function::Unknown => None,
        Function::Named { name, module: b"" } => Some(quoted(name)),
        Function::Named { name, module } => Some(format!("{} in {}", quoted(name), quoted(module))),
        Function::Address { space, address } => Some(format!("{space:?} {address:#x}")),
    }
}

fn enter_text(enter: &Enter<'_>) -> String {
    let has_args = !enter.args.is_empty();
    common_text(&enter.common)
        + &known(&[
            ("function", function_text(enter.function)),
            ("caller", function_text(enter.caller)),
            ("depth", enter.depth.map(|value| value.to_string())),
            ("context", enter.context.map(|c| c.as_str().to_owned())),
            ("args", has_args.then(|| quoted_list(enter.args))),
        ])
}

fn leave_text(leave: &Leave<'_>) -> String {
    common_text(&leave.common)
        + &known(&[
            ("function", function_text(leave.function)),
            ("depth", leave.depth.map(|value| value.to_string())),
            ("context", leave.context.map(|c| c.as_str().to_owned())),
            ("duration", leave.duration.map(|value| value.to_string())),
            ("retval", leave.retval.map(|value| value.to_string())),
        ])
}

fn call_text(call: &Call<'_>) -> String {
    let has_args = !call.args.is_empty();
    common_text(&call.common)
        + &known(&[
            ("function", function_text(call.function)),
            ("caller", function_text(call.caller)),
            ("depth", call.depth.map(|value| value.to_string())),
            ("context", call.context.map(|c| c.as_str().to_owned())),
            ("args", has_args.then(|| quoted_list(call.args))),
            ("duration", call.duration.map(|value| value.to_string())),
            ("retval", call.retval.map(|value| value.to_string())),
            ("leaf", (!call.may_nest).then(|| "true".to_owned())),
        ])
}

fn aggregate_text(aggregate: &Aggregate<'_>) -> String {
    let mut text = known(&[
        (
            "name",
            (!aggregate.name.is_empty()).then(|| quoted(aggregate.name)),
        ),
        ("action", aggregate.action.map(|a| a.as_str().to_owned())),
        ("keys", Some(quoted_list(aggregate.keys))),
        (
            "value",
            aggregate.value.map(|value| match value {
                AggregateValue::Int(value) => value.to_string(),
                AggregateValue::Float(value) => value.to_string(),
            }),
        ),
        ("kernel_stack", stack_text(aggregate.kernel_stack)),
        ("user_stack", stack_text(aggregate.user_stack)),
        ("snapshot", Some(aggregate.snapshot.to_string())),
        ("since", aggregate.since.map(|value| value.to_string())),
        ("time", aggregate.time.map(|value| value.to_string())),
    ]);
    for bucket in aggregate.buckets {
        let end = |value: Option<i64>| value.map_or("…".to_owned(), |value| value.to_string());
        let (low, high) = (end(bucket.low), end(bucket.high));
        write!(text, " [{low}, {high})×{}", bucket.count).unwrap();
    }
    text
}

/// Leaf first, as received; empty: `[]`.
fn stack_text(stack: Stack<'_>) -> Option<String> {
    match stack {
        Stack::None => None,
        Stack::Id(id) => Some(format!("id {id:#x}")),
        Stack::Addresses {
            space,
            addresses,
            is_cut,
            ..
        } => {
            let space = space.as_str().unwrap_or("unknown");
            let cut = if is_cut { " cut" } else { "" };
            Some(format!("{space} {addresses:#x?}{cut}").replace('\n', ""))
        }
        Stack::Named(frames) => {
            let frames: Vec<String> = frames.iter().map(frame_text).collect();
            Some(format!("[{}]", frames.join(", ")))
        }
    }
}

fn frame_text(frame: &NamedFrame<'_>) -> String {
    let mut text = format!("{:?}", String::from_utf8_lossy(frame.function));
    if let Some(offset) = frame.function_offset {
        write!(text, "+{offset:#x}").unwrap();
    }
    if !frame.module.is_empty() {
        write!(text, " in {:?}", String::from_utf8_lossy(frame.module)).unwrap();
    }
    if !frame.build_id.is_empty() {
        write!(text, " {}", String::from_utf8_lossy(frame.build_id)).unwrap();
    }
    if let Some(offset) = frame.module_offset {
        write!(text, " offset {offset:#x}").unwrap();
    }
    if let Some(address) = frame.address {
        write!(text, " at {address:#x}").unwrap();
    }
    if !frame.file.is_empty() {
        write!(text, " {}", String::from_utf8_lossy(frame.file)).unwrap();
    }
    if let Some(line) = frame.line {
        write!(text, ":{line}").unwrap();
    }
    if let Some(space) = frame.space.as_str() {
        write!(text, " ({space})").unwrap();
    }
    if frame.inlined {
        text.push_str(" inlined");
    }
    text
}
