//! Every field of every event of the recorded corpus, compared with the output of `perf script`.
//!
//! Next to each perf.data of corpus/perf-data is the output of `perf script --no-inline --ns -F
//! comm,pid,tid,cpu,time,event, ip,sym,period,trace` on the recording host (`X.script`; without `-F` if the file lacks
//! a field). The file is imported with the symbols of that host, exported by `--to perf-script`, and both texts are
//! compared field by field. Differences are explained in docs/compatibility.md, and listed here.
//!
//! Names are compared if the symbols are available: of kernels with a `kallsyms.part`, and of `programs/`. Names of
//! system libraries depend on the test host; they are counted separately.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use perfquet_tests::{bin, corpora, needs, root};

/// One event as text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Printed {
    /// Nanoseconds; or microseconds if the text has no more.
    time: Option<i64>,
    tid: Option<i32>,
    event: String,
    period: Option<u64>,
    payload: String,
    comm: String,
    pid: Option<i32>,
    cpu: Option<u32>,
    addresses: Vec<u64>,
    symbols: Vec<String>,
}

/// Maximum number of unexplained differences printed per file.
const EXAMPLES: usize = 3;

/// Expected differences, explained in docs/compatibility.md. An unlisted difference fails the test, and so
/// does a listed one that no longer occurs.
struct Difference {
    file: &'static str,
    field: &'static str,
    /// Events of the file that differ.
    count: usize,
    /// Ours and perf's.
    is_of_kind: fn(&Printed, &Printed) -> bool,
    cause: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        file: "perf-data/6.12/cpu-clock-a.data",
        field: "addresses",
        count: 1,
        is_of_kind: is_left_by_exec,
        cause: "inside execve: perf still knows the mappings before it",
    },
    Difference {
        file: "tests/corpus/perf-data/6.12/cpu-clock-dwarf.data",
        field: "addresses",
        count: 83,
        is_of_kind: are_callers_one_higher,
        cause: "perf prints unwound return addresses less 1",
    },
    Difference {
        file: "tests/corpus/perf-data/host/cpu-clock-dwarf.data",
        field: "addresses",
        count: 73,
        is_of_kind: are_callers_one_higher,
        cause: "perf prints unwound return addresses less 1",
    },
    Difference {
        file: "perf-data/6.12/cpu-clock-dwarf.data",
        field: "addresses",
        count: 73,
        is_of_kind: is_one_higher,
        cause: "perf prints unwound return addresses less 1",
    },
    Difference {
        file: "perf-data/host-6.18/cpu-clock-dwarf.data",
        field: "addresses",
        count: 95,
        is_of_kind: is_one_higher,
        cause: "perf prints unwound return addresses less 1",
    },
];

/// All but the first address are one higher than perf's. A host without the recorded libc unwinds only the frames of
/// the program.
fn is_one_higher(our: &Printed, their: &Printed) -> bool {
    let shifted = their.addresses.iter().enumerate();
    let shifted = shifted.map(|(index, address)| address + u64::from(index > 0));
    let count = our.addresses.len();
    count >= 3 && shifted.take(count).eq(our.addresses.iter().copied())
}

/// Addresses of the kernel and the innermost user address equal perf's; those of its callers are one higher, up to the
/// last.
fn are_callers_one_higher(our: &Printed, their: &Printed) -> bool {
    let of_kernel = their
        .addresses
        .iter()
        .take_while(|address| **address >> 63 == 1);
    let first_caller = of_kernel.count() + 1;
    let numbered = their.addresses.iter().enumerate();
    let expected = numbered.map(|(index, address)| address + u64::from(index >= first_caller));
    expected.eq(our.addresses.iter().copied())
}

/// perf prints what the frame pointer leads to, perfquet nothing from the first address outside of all code on. If that leaves no stack
/// of more than one frame, the export prints addresses, not offsets in files.
fn is_cut_before_false_frame(our: &Printed, their: &Printed) -> bool {
    let count = our.addresses.len();
    let inner = their.addresses.get(..count).unwrap_or_default();
    let is_same = inner == our.addresses
        || count == 1
            && inner
                .iter()
                .all(|address| address & 0xfff == our.addresses[0] & 0xfff);
    let outer = their.symbols.get(count);
    is_same && count > 0 && outer.is_none_or(|symbol| symbol == "[unknown]")
}

/// Only the outermost address differs: perfquet's is absolute.
fn is_left_by_exec(our: &Printed, their: &Printed) -> bool {
    let (Some((ours, our_inner)), Some((theirs, their_inner))) =
        (our.addresses.split_last(), their.addresses.split_last())
    else {
        return false;
    };
    our_inner == their_inner && ours & 0xfff == theirs & 0xfff
}

#[test]
fn corpus_perf_script() {
    let mut table = String::new();
    let mut wrong = Vec::new();
    let mut totals = (0, 0);
    for corpus in corpora() {
        for input in inputs(&corpus.join("perf-data")) {
            // Paths of the corpus are relative to the clone, those of downloaded files to their directory.
            let top = match corpus.starts_with(root().join("tests")) {
                true => root(),
                false => &corpus,
            };
            let name = input.strip_prefix(top).unwrap().display().to_string();
            let result = compare(&corpus, &input, &name);
            totals.0 += result.compared;
            totals.1 += result.differing.values().sum::<usize>();
            result.judge(&name, &mut table, &mut wrong);
        }
    }
    println!(
        "{:<44} {:>6} {:>6} {:>8} {:>9}  difference\n{table}{} of {} fields equal",
        "file (perf.data)",
        "events",
        "perf's",
        "fields",
        "differing",
        totals.0 - totals.1,
        totals.0
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(totals.0 > 10_000, "only {} fields were compared", totals.0);
}

/// Every perf.data, file or directory, with an adjacent `.script`.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let mut inputs = Vec::new();
    for machine in ["6.12", "host", "host-6.18"] {
        let Ok(entries) = std::fs::read_dir(folder.join(machine)) else {
            continue;
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        inputs.extend(paths.filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "data")
                && path.with_extension("script").is_file()
        }));
    }
    inputs.sort();
    assert!(inputs.len() >= 30, "{} recordings", inputs.len());
    inputs
}

#[derive(Default)]
struct Comparison {
    known: Vec<&'static Difference>,
    ours: usize,
    theirs: usize,
    compared: usize,
    differing: BTreeMap<&'static str, usize>,
    /// Unexplained differences, and some of them as examples.
    unexplained: usize,
    examples: Vec<String>,
    has_kallsyms: bool,
    /// Names of code whose symbols the corpus lacks.
    foreign_names: usize,
}

impl Comparison {
    fn judge(&self, name: &str, table: &mut String, wrong: &mut Vec<String>) {
        let mut causes = Vec::new();
        for known in &self.known {
            let found = self.differing.get(known.field).copied().unwrap_or(0);
            causes.push(format!("{}: {}", known.field, known.cause));
            if found != known.count {
                let (field, count) = (known.field, known.count);
                wrong.push(format!(
                    "{name}: {field} differs {found} times, expected {count}"
                ));
            }
        }
        if self.foreign_names > 0 {
            causes.push(format!("{} names of libraries", self.foreign_names));
        }
        if self.ours != self.theirs {
            wrong.push(format!(
                "{name}: {} events, perf has {}",
                self.ours, self.theirs
            ));
        }
        if self.unexplained > 0 {
            causes.push(format!(
                "{} UNEXPLAINED: {:?}",
                self.unexplained, self.differing
            ));
            wrong.push(format!(
                "{name}: {} differences not explained",
                self.unexplained
            ));
            wrong.extend(self.examples.iter().cloned());
        }
        let differing: usize = self.differing.values().sum();
        let _ = writeln!(
            table,
            "{name:<44} {:>6} {:>6} {:>8} {differing:>9}  {}",
            self.ours,
            self.theirs,
            self.compared,
            causes.join("; ")
        );
    }
}

/// Live events of this host, as printed by perf: payloads of many formats, evaluated from typed columns.
#[test]
fn live_tracepoints() {
    if !needs::met(&["perf", "tracefs", "root"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-o"]).arg(&data);
    for event in LIVE_EVENTS {
        record.args(["-e", event]);
    }
    let script =
        "ls -l / >/dev/null; dd if=/dev/zero of=/dev/null bs=4k count=20 2>/dev/null; sleep 0.01";
    let recorded = record.args(["--", "sh", "-c", script]).output().unwrap();
    if has_crashed(&recorded) {
        return;
    }
    assert!(
        recorded.status.success(),
        "{}",
        String::from_utf8_lossy(&recorded.stderr)
    );
    let fields = "comm,pid,tid,cpu,time,event,ip,sym,period,trace";
    let theirs = Command::new("perf")
        .args(["script", "--no-inline", "--ns", "-F", fields, "-i"])
        .arg(&data)
        .output()
        .unwrap();
    if has_crashed(&theirs) {
        return;
    }
    let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
    let ours = export(Command::new(bin("perfquet-convert")).arg(&data));
    let comparison = compare_texts(&ours, &theirs, "live", false);
    let (mut table, mut wrong) = (String::new(), Vec::new());
    comparison.judge("live tracepoints", &mut table, &mut wrong);
    println!("{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(comparison.theirs > 300, "only {} events", comparison.theirs);
}

/// Whether a signal ended perf, which is reported: perf 6.1 aborts on build IDs while a recorder runs.
fn has_crashed(output: &Output) -> bool {
    let crashed = output.status.signal().is_some();
    if crashed {
        eprintln!("skipped: needs a perf that does not crash");
    }
    crashed
}

/// Without payloads that libtraceevent prints wrongly (docs/compatibility.md).
const LIVE_EVENTS: [&str; 10] = [
    "sched:sched_switch",
    "sched:sched_wak*",
    "sched:sched_process_*",
    "sched:sched_stat_runtime",
    "irq:*",
    "signal:*",
    "task:*",
    "syscalls:sys_enter_*",
    "syscalls:sys_exit_*",
    "kmem:k*",
];

fn compare(corpus: &Path, input: &Path, name: &str) -> Comparison {
    let theirs = std::fs::read_to_string(input.with_extension("script")).unwrap();
    let has_kallsyms = input.with_file_name("kallsyms.part").is_file();
    compare_texts(&exported(corpus, input), &theirs, name, has_kallsyms)
}

fn compare_texts(ours: &str, theirs: &str, name: &str, has_kallsyms: bool) -> Comparison {
    let (ours, theirs) = (events(ours), events(theirs));
    let micros = theirs.iter().all(|(_, digits)| *digits == 6) && !theirs.is_empty();
    let known = DIFFERENCES.iter().filter(|known| name == known.file);
    let mut comparison = Comparison {
        known: known.collect(),
        ours: ours.len(),
        theirs: theirs.len(),
        has_kallsyms,
        ..Comparison::default()
    };
    let by_time = |events: Vec<(Printed, usize)>, cut: bool| {
        let mut times: BTreeMap<Option<i64>, Vec<Printed>> = BTreeMap::new();
        for (mut event, _) in events {
            if cut {
                event.time = event.time.map(|time| time / 1000 * 1000);
            }
            times.entry(event.time).or_default().push(event);
        }
        times.values_mut().for_each(|events| events.sort());
        times
    };
    let (mut ours, theirs) = (by_time(ours, micros), by_time(theirs, false));
    for (time, theirs) in theirs {
        let ours = ours.remove(&time).unwrap_or_default();
        for (index, their) in theirs.iter().enumerate() {
            match ours.get(index) {
                Some(our) => comparison.event(our, their),
                None => comparison.field("time", false, &Printed::default(), their),
            }
        }
    }
    comparison
}

impl Comparison {
    fn event(&mut self, our: &Printed, their: &Printed) {
        self.field("time", our.time == their.time, our, their);
        if their.cpu.is_some() {
            self.field("cpu", our.cpu == their.cpu, our, their);
        }
        if their.pid.is_some() {
            self.field("pid", our.pid == their.pid, our, their);
        }
        self.field("tid", our.tid == their.tid, our, their);
        self.field("comm", our.comm == their.comm, our, their);
        self.field("event", our.event == their.event, our, their);
        self.field("period", our.period == their.period, our, their);
        self.field("payload", our.payload == their.payload, our, their);
        self.field("addresses", our.addresses == their.addresses, our, their);
        for (address, names) in their
            .addresses
            .iter()
            .zip(our.symbols.iter().zip(&their.symbols))
        {
            if self.has_symbols_of(*address) {
                self.field("symbols", names.0 == names.1, our, their);
            } else {
                self.foreign_names += usize::from(names.0 != names.1);
            }
        }
    }

    /// Whether the corpus has the symbols for an address: of the kernel, or of `programs/`, which are mapped at 4 MiB
    /// with their code after the first page.
    fn has_symbols_of(&self, address: u64) -> bool {
        match address >> 63 {
            1 => self.has_kallsyms,
            _ => (0x40_1000..0x40_2000).contains(&address) || (0x1000..0x2000).contains(&address),
        }
    }

    fn field(&mut self, name: &'static str, equal: bool, our: &Printed, their: &Printed) {
        self.compared += 1;
        if equal {
            return;
        }
        *self.differing.entry(name).or_default() += 1;
        let mut known = self.known.iter().filter(|known| known.field == name);
        let is_known = known.any(|known| (known.is_of_kind)(our, their))
            || name == "addresses" && is_cut_before_false_frame(our, their);
        if !is_known {
            self.unexplained += 1;
            if self.examples.len() < EXAMPLES {
                let example = format!("{name}:\n  ours {our:?}\n  perf {their:?}");
                self.examples.push(example);
            }
        }
    }
}

/// Imports `input` with the symbols of its host and exports it as text.
fn exported(corpus: &Path, input: &Path) -> String {
    let folder = corpus.join("perf-data");
    let mut command = Command::new(bin("perfquet-convert"));
    command.arg(input);
    let kallsyms = input.with_file_name("kallsyms.part");
    if kallsyms.is_file() {
        command.arg("--symbols").arg(kallsyms);
    }
    export(command.arg("--symbols").arg(folder.join("programs")))
}

fn export(command: &mut Command) -> String {
    let output = command.args(["--to", "perf-script"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The events of a text, each with the number of digits of its time.
fn events(text: &str) -> Vec<(Printed, usize)> {
    let mut events: Vec<(Printed, usize)> = Vec::new();
    for line in text.lines() {
        if line.starts_with('\t') {
            let (event, _) = events.last_mut().expect("a frame follows an event");
            let (address, symbol) = place(line.trim()).expect("an address and a symbol");
            event.addresses.push(address);
            event.symbols.push(symbol);
        } else if !line.is_empty() {
            events.push(event(line).unwrap_or_else(|| panic!("no event: {line:?}")));
        }
    }
    events
}

/// `comm pid/tid [cpu] time: period event: payload [ip sym]`
fn event(line: &str) -> Option<(Printed, usize)> {
    let (head, time, rest) = split_at_time(line)?;
    let mut event = Printed::default();
    let (mut head, last) = head.trim_end().rsplit_once(' ')?;
    let mut ids = last;
    if let Some(cpu) = last.strip_prefix('[') {
        event.cpu = cpu.trim_end_matches(']').parse().ok();
        (head, ids) = head.trim_end().rsplit_once(' ')?;
    }
    match ids.split_once('/') {
        Some((pid, tid)) => {
            event.pid = Some(pid.parse().ok()?);
            event.tid = Some(tid.parse().ok()?);
        }
        None => event.tid = Some(ids.parse().ok()?),
    }
    event.comm = head.trim().to_owned();
    let (seconds, fraction) = time.split_once('.')?;
    let nanoseconds: i64 = format!("{fraction:0<9}").parse().ok()?;
    event.time = Some(seconds.parse::<i64>().ok()? * 1_000_000_000 + nanoseconds);
    let (period, rest) = rest.trim_start().split_once(' ')?;
    event.period = Some(period.parse().ok()?);
    // The name ends at a colon followed by a blank or the end.
    let rest = rest.trim_start();
    let (name, rest) = rest
        .split_once(": ")
        .or_else(|| Some((rest.strip_suffix(':')?, "")))?;
    event.event = name.to_owned();
    event.payload = rest.trim().to_owned();
    if let Some((payload, address, symbol)) = payload_and_place(rest) {
        event.payload = payload.trim().to_owned();
        event.addresses.push(address);
        event.symbols.push(symbol);
    }
    Some((event, fraction.len()))
}

/// The text before the time, the time, and the text after its colon.
fn split_at_time(line: &str) -> Option<(&str, &str, &str)> {
    for (start, _) in line.match_indices(' ') {
        let word = line[start + 1..].split(' ').next().unwrap_or_default();
        let Some(time) = word.strip_suffix(':') else {
            continue;
        };
        let is_time = time.split_once('.').is_some_and(|(seconds, fraction)| {
            matches!(fraction.len(), 6 | 9)
                && seconds
                    .bytes()
                    .chain(fraction.bytes())
                    .all(|byte| byte.is_ascii_digit())
        });
        if is_time {
            return Some((&line[..start], time, &line[start + 1 + word.len()..]));
        }
    }
    None
}

/// `payload ffffffff81114a38 ttwu_do_activate`, possibly with an offset and a module: an address has 16 columns.
fn payload_and_place(rest: &str) -> Option<(&str, u64, String)> {
    let symbol_start = match rest.strip_suffix(')') {
        // "sym+0x1f (dso)"
        Some(inside) => inside.rfind(" (").and_then(|end| rest[..end].rfind(' '))?,
        None => rest.trim_end().rfind(' ')?,
    };
    let before = &rest[..symbol_start];
    let address = before.rsplit(' ').next()?;
    if address.len() < 4 || !before.ends_with(&format!("{address:>16}")) {
        return None;
    }
    let (value, symbol) = place(&rest[symbol_start - address.len()..])?;
    let width = address.len().max(16);
    Some((&before[..before.len() - width], value, symbol))
}

/// `ffffffff81c95a7f __memset+0xf ([kernel.kallsyms])`: address and symbol.
fn place(text: &str) -> Option<(u64, String)> {
    let (address, symbol) = text.trim().split_once(' ')?;
    let symbol = match symbol.strip_suffix(')') {
        Some(inside) => &inside[..inside.rfind(" (")?],
        None => symbol,
    };
    let symbol = match symbol.rsplit_once("+0x") {
        Some((name, offset)) if u64::from_str_radix(offset, 16).is_ok() => name,
        _ => symbol,
    };
    Some((u64::from_str_radix(address, 16).ok()?, symbol.to_owned()))
}

#[test]
fn events_are_split_into_fields() {
    let line = "     migration/0    21/21    [000]     4.720362668:          1       sched:sched_switch: \
                prev_comm=a b prev_state=S ==> next_comm=swapper/0 ffffffff81c9a7fc __schedule";
    let (event, digits) = event(line).unwrap();
    assert_eq!(digits, 9);
    assert_eq!(event.comm, "migration/0");
    assert_eq!(
        (event.pid, event.tid, event.cpu),
        (Some(21), Some(21), Some(0))
    );
    assert_eq!((event.time, event.period), (Some(4_720_362_668), Some(1)));
    assert_eq!(event.event, "sched:sched_switch");
    assert_eq!(
        event.payload,
        "prev_comm=a b prev_state=S ==> next_comm=swapper/0"
    );
    assert_eq!(event.addresses, [0xffff_ffff_81c9_a7fc]);
    assert_eq!(event.symbols, ["__schedule"]);
    let text = "sh   450   229.617093100:    1001001 cpu-clock:u: \n\
                \tffffffff81456ad7 getname_flags.part.0+0x87 ([kernel.kallsyms])\n\
                \t           20b1d [unknown] (/usr/lib64/ld-linux-x86-64.so.2)\n\n\
                workload   212    42.789919877:    1001001 cpu-clock:            4011b7 work_inner+0x31 (/w/workload)\n";
    let events = events(text);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].0.event, "cpu-clock:u");
    assert_eq!(events[0].0.addresses, [0xffff_ffff_8145_6ad7, 0x20b1d]);
    assert_eq!(events[0].0.symbols, ["getname_flags.part.0", "[unknown]"]);
    assert_eq!(events[1].0.addresses, [0x4011b7]);
    assert_eq!(events[1].0.symbols, ["work_inner"]);
    assert_eq!(events[1].0.payload, "");
}
