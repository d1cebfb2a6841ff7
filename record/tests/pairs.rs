//! Every two options together, recorded and read by others: each kind of event × stacks × target × output × one more option.
//!
//! ```text
//! -e cpu-clock,exceptions:page_fault_kernel · -g · -p · perf.data · -m 64K
//! ```
//! Of each recording, the journal has no place that cannot be read and no record twice, every event has its fields, perf prints
//! the same samples, and the tables have the rows of the journal; so of each trace of a ring, and the lake has all of them. Combinations that the recorder refuses are left out (`cases.rs`).
//! `cargo test` runs some cases; `cargo xtask pairs` all of them, with the recorder in release; `PERFQUET_PAIRS=12,40` these.

#[path = "pairs/cases.rs"]
mod cases;
mod room;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use perfquet_events::event::{Event, EventType, Fields, Sink};
use perfquet_events::{Error, Input};
use perfquet_import::journal_inputs;
use perfquet_readers::FORMATS;
use perfquet_trace::lake::Lake;
use perfquet_trace::store::{Directory, Manifest};

use cases::{Case, pairwise};
use room::{Room, Running, ended, may_record, needs, rows_of_trace};

/// In `cargo test`: one of this many cases that record a command, since naming what else runs takes time.
const ONE_OF: usize = 6;

/// Samples of a journal.
#[derive(Default)]
struct Samples {
    types: Vec<EventType>,
    rows: HashMap<usize, u64>,
    /// Time and thread.
    places: Vec<(i64, i32)>,
    seen: HashSet<u64>,
    repeated: Vec<String>,
    problems: Vec<String>,
    has_groups: bool,
}

impl Sink for Samples {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(declared) => self.types.push(declared.clone()),
            Event::Problem(problem) => self.problems.push(problem.message.to_owned()),
            Event::Sample(sample) => {
                let number = sample.event.0 as usize;
                // Records of the kernel without a sample, such as exits.
                if self.kind(number) == "recorder" {
                    return Ok(());
                }
                *self.rows.entry(number).or_default() += 1;
                self.places
                    .push((sample.time.unwrap_or(-1), sample.tid.unwrap_or(-1)));
                self.has_groups |= sample.read.len() > 1;
                let payload = match sample.fields {
                    Fields::Raw(payload) => payload.bytes,
                    _ => &[],
                };
                let mut hasher = DefaultHasher::new();
                (number, sample.time, sample.tid, sample.cpu, payload).hash(&mut hasher);
                format!("{:?}", (sample.ip, sample.addr, sample.user_stack)).hash(&mut hasher);
                if !self.seen.insert(hasher.finish()) {
                    self.repeated.push(format!(
                        "{} at {:?} in thread {:?}",
                        self.name(number),
                        sample.time,
                        sample.tid
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Samples {
    fn kind(&self, number: usize) -> &str {
        self.types
            .get(number)
            .map_or("", |event| event.kind.as_str())
    }

    fn name(&self, number: usize) -> String {
        self.types
            .get(number)
            .map_or_else(String::new, |event| event.name.clone())
    }

    /// Rows by event, without those that only the recorder writes.
    fn by_event(&self) -> BTreeMap<String, u64> {
        let mut rows = BTreeMap::new();
        for (number, count) in &self.rows {
            *rows.entry(self.name(*number)).or_default() += count;
        }
        rows
    }
}

fn read(mut input: Input) -> Result<Samples, String> {
    let mut samples = Samples::default();
    let format = FORMATS.iter().find(|format| format.name == "perf.data");
    let format = format.ok_or("perf.data is not read")?;
    let done = format.read(&mut input, &mut samples);
    done.map_err(|error| error.to_string())?;
    Ok(samples)
}

/// Records a case.
fn record(room: &Room, case: Case) -> Result<(), String> {
    let (_, events) = case.events();
    let (stack, target, output, other) = (case.stack(), case.target(), case.output(), case.other());
    let mut running = None;
    let mut command = match std::env::var_os("PERFQUET_PAIRS_RECORDER") {
        None => room.recorder(),
        Some(path) => {
            let mut command = Command::new(path);
            command
                .current_dir(room.path(""))
                .env("HOME", room.path(""));
            command
        }
    };
    let is_ring = output.name == "publish";
    if is_ring {
        command.env("PATH", path_with_converter(room));
    } else {
        command.arg("--force");
    }
    command.args(events).args(stack.options);
    command.args(other.options).args(output.options);
    command.args(target.options);
    match target.name {
        "-p" | "-t" | "-u" | "-C" | "-a" if is_ring || target.name != "-a" => {
            let child = Command::new(room.path("paired"))
                .arg("5000")
                .stdout(Stdio::null())
                .spawn()
                .map_err(|error| error.to_string())?;
            if ["-p", "-t"].contains(&target.name) {
                command.arg(child.id().to_string());
            }
            running = Some(Running(child));
        }
        _ => {
            command.args(["--", "./paired", "150"]);
        }
    }
    if is_ring {
        command.args(["--duration", "1500ms"]);
    } else if running.is_some() {
        command.args(["--duration", "200ms"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    drop(running);
    let (status, stderr) = ended(output);
    match status {
        Some(0) => Ok(()),
        status => Err(format!("status {status:?}: {stderr}")),
    }
}

/// PATH with the converter, which publishes: beside the recorder or in PATH, or else a script that copies the trace.
fn path_with_converter(room: &Room) -> OsString {
    const NAME: &str = "perfquet-convert";
    const COPY: &str =
        "#!/bin/sh\n# TRACE --to lake --quiet -o LAKE\nmkdir -p \"$6\" && cp -a \"$1\" \"$6\"\n";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let recorder = std::env::var_os("PERFQUET_PAIRS_RECORDER").map(PathBuf::from);
    let recorder = recorder.unwrap_or_else(|| env!("CARGO_BIN_EXE_perfquet-record").into());
    let mut folders: Vec<PathBuf> = recorder.parent().map(Path::to_owned).into_iter().collect();
    folders.extend(std::env::split_paths(&path));
    if folders.iter().any(|folder| folder.join(NAME).is_file()) {
        return path;
    }
    let script = room.path("converter");
    let _ = fs::create_dir(&script);
    let file = fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o700)
        .open(script.join(NAME));
    file.and_then(|mut file| file.write_all(COPY.as_bytes()))
        .expect("a script");
    folders.push(script);
    std::env::join_paths(folders).expect("a PATH")
}

/// The traces of a case, with their journals.
fn traces(room: &Room, case: Case) -> Result<Vec<(PathBuf, Option<PathBuf>)>, String> {
    let with_journal = |trace: PathBuf| (trace.join("journal/perf.data"), Some(trace));
    match case.output().name {
        "perf.data" => Ok(vec![(room.path("t.data"), None)]),
        "publish" => {
            let traces = published(room)?;
            Ok(traces.into_iter().map(with_journal).collect())
        }
        _ => Ok(vec![with_journal(room.path("t.pqt"))]),
    }
}

/// The traces of the ring, if the lake has each of them with all rows.
fn published(room: &Room) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(room.path("ring")).map_err(|error| error.to_string())?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut ring: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "pqt"))
        .collect();
    ring.sort();
    // A busy host may have no time for several.
    if ring.is_empty() {
        return Err("no trace in the ring".to_owned());
    }
    let mut expected: Vec<_> = Vec::new();
    for path in &ring {
        let trace = Directory::open(path).map_err(|error| error.to_string())?;
        expected.push(rows_of_tables(trace.manifest()));
    }
    let mut found = in_lake(&room.path("lake"))?;
    expected.sort();
    found.sort();
    match found == expected {
        true => Ok(ring),
        false => Err(format!(
            "{} traces with other rows in the lake than the {} of the ring: {found:?} {expected:?}",
            found.len(),
            ring.len()
        )),
    }
}

/// Rows by table of each trace of the lake.
fn in_lake(lake: &Path) -> Result<Vec<BTreeMap<String, u64>>, String> {
    let text = |error: Error| error.to_string();
    if lake.read_dir().is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.path().join("manifest.json").exists()))
    }) {
        let copies = fs::read_dir(lake)
            .map_err(|error| error.to_string())?
            .flatten();
        let rows =
            |path: PathBuf| Directory::open(&path).map(|trace| rows_of_tables(trace.manifest()));
        return copies
            .map(|entry| rows(entry.path()).map_err(text))
            .collect();
    }
    let lake = Lake::open(lake).map_err(text)?;
    let mut all = Vec::new();
    for record in lake.records().map_err(text)? {
        let trace = lake.trace(&record).map_err(text)?.ok_or("no manifest")?;
        all.push(rows_of_tables(trace.manifest()));
    }
    Ok(all)
}

fn rows_of_tables(manifest: &Manifest) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (name, table) in &manifest.tables {
        let rows = table.parts.iter().map(|part| part.rows).sum();
        all.insert(name.clone(), rows);
    }
    all
}

/// Checks what was recorded; returns the number of samples.
fn check(room: &Room, case: Case) -> Result<u64, String> {
    let (mut places, mut wrong) = (0, Vec::new());
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for (path, trace) in traces(room, case)? {
        let input = match &trace {
            None => Input::open(&path).map_err(|error| error.to_string())?,
            Some(trace) => {
                let inputs = journal_inputs(trace).map_err(|error| error.to_string())?;
                inputs.into_iter().next().ok_or("no journal")?
            }
        };
        let samples = read(input)?;
        wrong.extend(faults(&samples));
        let rows = samples.by_event();
        if let Some(trace) = &trace {
            // Rows of a journal that are no rows of the trace: before its beginning in a ring, or outside of triggers.
            let is_cut = ["--max-events", "--stop-on", "--start-on"].contains(&case.other().name);
            let selects = is_cut || case.output().name == "publish" || samples.has_groups;
            wrong.extend(table_differences(trace, &rows, selects));
        }
        if !samples.has_groups {
            wrong.extend(perf_difference(room, &path, &samples));
        }
        places += samples.places.len() as u64;
        for (name, count) in rows {
            *all.entry(name).or_default() += count;
        }
    }
    wrong.extend(missing(case, &all));
    match wrong.is_empty() {
        true => Ok(places),
        false => Err(wrong.join("\n      ")),
    }
}

/// What cannot be read, is repeated, or has no fields.
fn faults(samples: &Samples) -> Vec<String> {
    let mut wrong: Vec<String> = samples.problems.iter().take(3).cloned().collect();
    let repeated = &samples.repeated;
    if let Some(first) = repeated.first() {
        wrong.push(format!(
            "{} records are repeated, as {first}",
            repeated.len()
        ));
    }
    let is_tracepoint = |event: &&EventType| event.kind.as_str() == "tracepoint";
    let bare = samples.types.iter().filter(is_tracepoint);
    wrong.extend(
        bare.filter(|event| event.fields.is_empty())
            .map(|event| format!("{} has no fields", event.name)),
    );
    wrong
}

/// Events without a row.
fn missing(case: Case, rows: &BTreeMap<String, u64>) -> Vec<String> {
    let may_be_cut = [
        "--filter",
        "--max-events",
        "--stop-on",
        "--start-on",
        "--delay",
        "-c",
        "--no-inherit",
    ];
    if may_be_cut.contains(&case.other().name) || case.target().name == "-C" {
        return Vec::new();
    }
    let is_missing = |event: &&&str| {
        let mut names = rows.keys();
        !names.any(|name| name.trim_end_matches(":u") == **event)
    };
    let (expected, _) = case.events();
    let missing = expected.iter().filter(is_missing);
    missing
        .map(|event| format!("no row of {event}: {rows:?}"))
        .collect()
}

/// Compares the tables with the journal.
fn table_differences(trace: &Path, rows: &BTreeMap<String, u64>, selects: bool) -> Vec<String> {
    let mut wrong = rows_of_trace(trace, "problems", &["message"]);
    if selects {
        return wrong;
    }
    let mut of_tables: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows_of_trace(trace, "event_types", &["event", "kind", "rows"]) {
        let cells: Vec<&str> = row.split(' ').collect();
        if let [event, kind, count] = cells[..]
            && kind != "recorder"
        {
            *of_tables.entry(event.to_owned()).or_default() += count.parse().unwrap_or(0);
        }
    }
    for (event, count) in rows {
        match of_tables.get(event) {
            Some(written) if written != count => {
                wrong.push(format!(
                    "{event}: {count} in the journal, {written} in its table"
                ));
            }
            _ => {}
        }
    }
    wrong
}

/// Compares the samples with perf's.
fn perf_difference(room: &Room, path: &Path, samples: &Samples) -> Option<String> {
    if !needs::met(&["perf"]) {
        return None;
    }
    let script = Command::new("perf")
        .args(["script", "--ns", "-F", "tid,time,event", "-i"])
        .arg(path)
        .current_dir(room.path(""))
        .stdin(Stdio::null())
        .output()
        .ok()?;
    if script.status.code().is_none() {
        println!("    a signal ended perf");
        return None;
    }
    let text = String::from_utf8_lossy(&script.stdout);
    let mut theirs: Vec<(i64, i32)> = text.lines().filter_map(place_of).collect();
    let mut ours = samples.places.clone();
    theirs.sort_unstable();
    ours.sort_unstable();
    (ours != theirs).then(|| {
        let first = ours
            .iter()
            .zip(&theirs)
            .find(|(ours, theirs)| ours != theirs);
        let complaint = String::from_utf8_lossy(&script.stderr).into_owned();
        format!(
            "{} samples, {} of perf; first difference {first:?}; {complaint}",
            ours.len(),
            theirs.len()
        )
    })
}

/// Parses "  1234 5678.123456789: cpu-clock:"; `None` for records that the recorder itself writes.
fn place_of(line: &str) -> Option<(i64, i32)> {
    let mut words = line.split_whitespace();
    if line.contains(" perfquet:") {
        return None;
    }
    let tid = words.next()?.parse().ok()?;
    let (seconds, nanoseconds) = words.next()?.trim_end_matches(':').split_once('.')?;
    let seconds: i64 = seconds.parse().ok()?;
    let nanoseconds: i64 = nanoseconds.parse().ok()?;
    Some((seconds * 1_000_000_000 + nanoseconds, tid))
}

/// Numbers of the cases to run.
fn chosen(cases: &[Case]) -> Vec<usize> {
    let is_short = |number: &usize| {
        let (target, output) = (cases[*number].target().name, cases[*number].output().name);
        target == "command" || (target, output) == ("-p", "publish")
    };
    let all = 0..cases.len();
    match std::env::var("PERFQUET_PAIRS").as_deref() {
        Err(_) => all.filter(is_short).step_by(ONE_OF).collect(),
        Ok("all") => all.collect(),
        Ok(numbers) => numbers
            .split(',')
            .map(|number| number.parse().expect("a number"))
            .collect(),
    }
}

#[test]
fn options_in_pairs() {
    if !may_record() || !needs::met(&["bpf", "uprobes"]) {
        return;
    }
    let room = Room::new();
    if room.compile("paired.c", &["-O2", "-g"]).is_none() {
        return;
    }
    let cases = pairwise();
    let numbers = chosen(&cases);
    let (mut samples, mut failures) = (0, Vec::new());
    for &number in &numbers {
        let case = cases[number];
        let text = format!(
            "{number}: {} · {} · {} · {} · {}",
            case.events().1.join(" "),
            case.stack().name,
            case.target().name,
            case.output().name,
            case.other().options.join(" ")
        );
        println!("  {text}");
        for trace in ["t.pqt", "t.data", "ring", "lake"] {
            let _ = fs::remove_dir_all(room.path(trace));
            let _ = fs::remove_file(room.path(trace));
        }
        match record(&room, case).and_then(|()| check(&room, case)) {
            Ok(count) => samples += count,
            Err(wrong) => {
                println!("    WRONG: {wrong}");
                failures.push(format!("{text}\n      {wrong}"));
            }
        }
    }
    println!(
        "{} recordings, {samples} samples, {} wrong",
        numbers.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(samples > 0);
}
