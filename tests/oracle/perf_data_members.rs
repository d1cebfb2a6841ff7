//! Facts and members of perf.data, compared with what perf prints of the same file.
//!
//! ```text
//! # hostname : vm                                             perf report --header-only
//! 144046275443 0x670 [0x28]: PERF_RECORD_SAMPLE(IP, 0x1): 285/285: 0xffffffff818fb95f period: 9000 addr: 0
//! ... weight: 17 . data_src: 0x68100142                       perf script -D
//! ```
//! perf is the second reader. The crate linux-perf-data would be a third, but it has none of these members, and reads
//! counters in groups wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_events::event::{Event, EventType, Fact, Sample, Sink};
use perfquet_events::{Error, Input};
use perfquet_readers::perf_data::PERF_DATA;
use perfquet_tests::{corpora, needs, root};

/// What the reader passes on.
#[derive(Default)]
struct Seen {
    facts: BTreeMap<&'static str, String>,
    types: Vec<EventType>,
    members: Vec<Members>,
    problems: Vec<String>,
}

/// Members of a sample, as perf prints them; 0 for those that it does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Members {
    time: u64,
    pid: i64,
    tid: i64,
    ip: u64,
    period: u64,
    addr: u64,
    weight: u64,
    data_src: u64,
    phys_addr: u64,
    transaction: u64,
}

impl Sink for Seen {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(declared) => self.types.push(declared.clone()),
            Event::Fact(fact) => self.fact(&fact),
            Event::Sample(sample) => self.sample(sample),
            Event::Problem(problem) => self
                .problems
                .push(format!("{}{}", problem.place, problem.message)),
            _ => {}
        }
        Ok(())
    }
}

impl Seen {
    fn of(path: &Path) -> Result<Seen, Error> {
        let mut seen = Seen::default();
        PERF_DATA.read(&mut Input::open(path)?, &mut seen)?;
        seen.members.sort();
        Ok(seen)
    }

    fn fact(&mut self, fact: &Fact<'_>) {
        let (name, value) = match *fact {
            Fact::Host(text) => ("hostname", text.to_owned()),
            Fact::OsRelease(text) => ("os release", text.to_owned()),
            Fact::Architecture(text) => ("arch", text.to_owned()),
            Fact::Recorder(text) => ("perf version", text.replace("perf ", "")),
            Fact::CommandLine(text) => ("cmdline", text.to_owned()),
            Fact::CpuModel(text) => ("cpudesc", text.to_owned()),
            Fact::Cpus(count) => ("nrcpus online", count.to_string()),
            Fact::MemoryBytes(bytes) => ("total memory", format!("{} kB", bytes / 1024)),
            Fact::Other {
                name: "perf.cpuid",
                value,
            } => ("cpuid", value.to_owned()),
            Fact::Other {
                name: "perf.sample_time",
                value,
            } => {
                let (first, last) = value.split_once(' ').unwrap_or_default();
                let seconds = |time: &str| {
                    let time: u64 = time.parse().unwrap_or(0);
                    format!("{}.{:06}", time / 1_000_000_000, time / 1000 % 1_000_000)
                };
                self.facts.insert("time of last sample", seconds(last));
                ("time of first sample", seconds(first))
            }
            _ => return,
        };
        self.facts.insert(name, value);
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let declared = &self.types[sample.event.0 as usize];
        if declared.system == "perf" || sample.time.is_none() {
            return;
        }
        let period = sample.period.or(declared.period).or(declared.frequency);
        self.members.push(Members {
            time: sample.time.unwrap_or(0) as u64,
            pid: sample.pid.unwrap_or(-1).into(),
            tid: sample.tid.unwrap_or(-1).into(),
            ip: sample.ip.unwrap_or(0),
            period: period.unwrap_or(0),
            addr: sample.addr.unwrap_or(0),
            weight: sample.weight.unwrap_or(0),
            data_src: sample.data_src.unwrap_or(0),
            phys_addr: sample.phys_addr.unwrap_or(0),
            transaction: sample.transaction.unwrap_or(0),
        });
    }
}

/// The lines `# NAME : VALUE` of perf's header.
fn header_of_perf(path: &Path) -> BTreeMap<String, String> {
    let output = Command::new("timeout")
        .args(["30", "perf", "report", "--header-only", "-i"])
        .arg(path)
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("# ")?.split_once(" : ")?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    });
    lines.collect()
}

/// The samples of `perf script -D`; `None` if perf fails.
fn members_of_perf(path: &Path) -> Option<Vec<Members>> {
    let output = Command::new("timeout")
        .args(["60", "perf", "script", "-D", "--no-itrace", "-i"])
        .arg(path)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut all: Vec<Members> = Vec::new();
    let mut is_sample = false;
    for line in text.lines() {
        if line.contains("]: PERF_RECORD_") {
            let sample = sample_line(line);
            is_sample = sample.is_some();
            all.extend(sample);
        } else if is_sample && let Some(members) = all.last_mut() {
            // "... weight: 17,0x0 . data_src: 0x68100142": weights of 32 bits have others after them.
            let number = |name: &str| {
                let (_, rest) = line.split_once(name)?;
                let text = rest.trim_start().split([' ', ',']).next()?;
                match text.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16).ok(),
                    None if name.starts_with("... tr") => u64::from_str_radix(text, 16).ok(),
                    None => text.parse().ok(),
                }
            };
            if line.starts_with('.') || line.starts_with(" .") {
                members.weight = number("... weight:").unwrap_or(members.weight);
                members.data_src = number(". data_src:").unwrap_or(members.data_src);
                members.phys_addr = number(".. phys_addr:").unwrap_or(members.phys_addr);
                members.transaction = number("... transaction:").unwrap_or(members.transaction);
            }
        }
    }
    // What the recorder notes for itself has neither thread nor period.
    let is_note = |members: &Members| members.pid == -1 && members.period == 0;
    all.retain(|members| members.time > 0 && !is_note(members));
    all.sort();
    Some(all)
}

/// `[CPU ]TIME OFFSET [SIZE]: PERF_RECORD_SAMPLE(IP, 0x1): PID/TID: IP period: PERIOD addr: ADDR`
fn sample_line(line: &str) -> Option<Members> {
    let (head, rest) = line.split_once(": PERF_RECORD_SAMPLE(")?;
    let mut head = head.split_whitespace().rev().skip(2);
    let time = head.next()?.parse().ok()?;
    let (_, rest) = rest.split_once("): ")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (pid, tid) = words.first()?.trim_end_matches(':').split_once('/')?;
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let after = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        number(words.get(place + 1)?)
    };
    Some(Members {
        time,
        pid: pid.parse().ok()?,
        tid: tid.parse().ok()?,
        ip: number(words.get(1)?)?,
        period: after("period:")?,
        addr: after("addr:")?,
        ..Members::default()
    })
}

/// Every perf.data below a directory.
fn perf_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let kind = entry.file_type().ok();
        if kind.is_some_and(|kind| kind.is_dir()) && !path.join("data").exists() {
            perf_files(&path, found);
        } else if kind.is_some_and(|kind| kind.is_file()) {
            let mut begin = [0; 8];
            let file = std::fs::File::open(&path);
            let read = file.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut begin));
            if read.is_ok() && matches!(&begin, b"PERFILE2" | b"2ELIFREP") {
                found.push(path);
            }
        }
    }
}

fn all_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    perf_files(
        &root().join("formats/readers/src/perf_data/golden"),
        &mut files,
    );
    for corpus in corpora() {
        perf_files(&corpus, &mut files);
    }
    // Deliberately damaged.
    files.retain(|path| {
        let text = path.to_string_lossy();
        !["garbage", "/fuzz/", "cut"]
            .iter()
            .any(|word| text.contains(word))
    });
    files.sort();
    files
}

#[test]
fn facts_are_those_of_perf() {
    if !needs::met(&["perf"]) {
        return;
    }
    let mut compared = 0;
    let mut wrong = Vec::new();
    for path in all_files() {
        let theirs = header_of_perf(&path);
        let Ok(ours) = Seen::of(&path) else {
            continue;
        };
        let names = [
            "hostname",
            "os release",
            "perf version",
            "arch",
            "cpudesc",
            "cpuid",
        ];
        let names = names.iter().chain(&[
            "nrcpus online",
            "total memory",
            "cmdline",
            "time of first sample",
            "time of last sample",
        ]);
        for name in names {
            let Some(their) = theirs.get(*name) else {
                continue;
            };
            let our = ours.facts.get(name).map_or("", String::as_str);
            // Quotes are escaped; zeros mean that perf did not know.
            let their = their.replace('\\', "");
            if our.trim() != their && !(our.is_empty() && is_unknown(&their)) {
                wrong.push(format!(
                    "{}: {name}: {their:?}, ours {our:?}",
                    path.display()
                ));
            }
            compared += 1;
        }
    }
    println!("{compared} facts");
    assert!(compared > 300, "{compared} facts");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_unknown(text: &str) -> bool {
    matches!(text, "" | "0.000000" | "0 kB" | "(null)" | "unknown")
}

#[test]
fn members_are_those_of_perf() {
    if !needs::met(&["perf"]) {
        return;
    }
    let (mut files, mut compared, mut special) = (0, 0, 0);
    let mut wrong = Vec::new();
    for path in all_files() {
        // Samples of groups are printed once for each member.
        let name = path.to_string_lossy().into_owned();
        let is_group = ["group", "PerfFormatLost", "add_counter"];
        if is_group.iter().any(|word| name.contains(word)) {
            continue;
        }
        let (Ok(ours), Some(theirs)) = (Seen::of(&path), members_of_perf(&path)) else {
            continue;
        };
        if theirs.is_empty() {
            continue;
        }
        files += 1;
        compared += theirs.len();
        special += theirs
            .iter()
            .filter(|their| their.addr | their.weight | their.data_src | their.phys_addr != 0)
            .count();
        let same_weight = |our: &Members, their: &Members| {
            let mut our = our.clone();
            if our.weight & 0xffff_ffff == their.weight {
                our.weight = their.weight;
            }
            our == *their
        };
        let is_same = ours.members.len() == theirs.len()
            && ours
                .members
                .iter()
                .zip(&theirs)
                .all(|(our, their)| same_weight(our, their));
        if !is_same {
            let differing = ours.members.iter().zip(&theirs);
            let first = differing
                .into_iter()
                .find(|(our, their)| !same_weight(our, their));
            wrong.push(format!(
                "{name}: {} samples, perf {}: {first:?}; {:?}",
                ours.members.len(),
                theirs.len(),
                ours.problems.first()
            ));
        }
    }
    println!("{compared} samples of {files} files, {special} with addresses or sources of data");
    assert!(
        files >= 30 && compared > 5_000,
        "{compared} samples of {files} files"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
