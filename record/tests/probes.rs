//! Probes in a program compiled here: functions, lines, variables, returns, static probes. No probes remain.
//!
//! The tests need root, uprobes and a C compiler, and report a missing requirement.

mod compiled;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use compiled::{Compiled, needs};

fn room(optimization: &str) -> Option<Compiled> {
    Compiled::new("probed", optimization)
}

/// Records the program; returns columns of a table.
#[track_caller]
fn record(room: &Compiled, arguments: &[&str], table: &str, columns: &[&str]) -> Vec<String> {
    room.record(arguments);
    room.rows(table, columns)
}

#[test]
fn probes_in_a_program() {
    let Some(room) = room("-O0") else { return };
    let probe = "./probed:work n item->weight item->at.y name=item->name:string";
    let expected: Vec<String> = (1..=5).map(|n| format!("{n} 123456789 -2 hello")).collect();
    let table = "events/probe_probed/work";
    assert_eq!(
        record(
            &room,
            &["--uprobe", probe],
            table,
            &["n", "weight", "y", "name"]
        ),
        expected
    );
    // A line inside the function, and a filter on a variable.
    let line = ["--uprobe", "./probed:work:4 i total", "--filter", "i == 2"];
    assert_eq!(
        record(&room, &line, "events/probe_probed/work_L4", &["i", "total"]),
        ["2 14", "2 14", "2 14"]
    );
    // Entry and return are a call.
    let both = [
        "--uprobe",
        "./probed:work n",
        "--uretprobe",
        "./probed:work",
    ];
    let calls = record(
        &room,
        &both,
        "calls",
        &["function", "retval", "entry_seen", "exit_seen"],
    );
    let expected: Vec<String> = (1..=5)
        .map(|n| format!("work {} true true", 7 * n))
        .collect();
    assert_eq!(calls, expected);
}

#[test]
fn variables_of_optimized_code() {
    // At -O1, the location after the function's first line is inside its loop.
    for optimization in ["-O1", "-O2"] {
        let Some(room) = room(optimization) else {
            return;
        };
        let expected: Vec<String> = (1..=5).map(|n| format!("{n} 7")).collect();
        let probe = ["--uprobe", "./probed:work n item->id"];
        assert_eq!(
            record(&room, &probe, "events/probe_probed/work", &["n", "id"]),
            expected,
            "{optimization}"
        );
    }
}

#[test]
fn static_probes_with_their_arguments() {
    let Some(room) = room("-O1") else { return };
    // Without a listener, the program skips the probe; the recorder increments the semaphore.
    let rows = record(
        &room,
        &["--usdt", "./probed:probed:st*"],
        "events/sdt_probed/step",
        &["arg1"],
    );
    assert_eq!(rows, ["7", "14", "21", "28", "35"]);
    let wrong = room.run(&["--usdt", "./probed:probed:stop", "--", "true"]);
    let stderr = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("use probed:step"), "{stderr}");
}

#[test]
fn sites_of_a_static_probe_are_one_event() {
    let Some(room) = Compiled::new("sites", "-O1") else {
        return;
    };
    let rows = record(
        &room,
        &["--usdt", "./sites:sites:entry"],
        "events/sdt_sites/entry",
        &["arg1"],
    );
    // Of both places, whose arguments differ in number and type.
    let rows: BTreeSet<String> = rows.into_iter().collect();
    assert_eq!(
        rows,
        ["1", "10", "2", "20", "3", "30"].map(str::to_owned).into()
    );
    let types = room.rows("event_types", &["event", "table_name"]);
    let types: Vec<&String> = types
        .iter()
        .filter(|row| row.starts_with("entry"))
        .collect();
    assert!(!types.is_empty());
    assert!(
        types.iter().all(|row| *row == "entry sdt_sites.entry"),
        "{types:?}"
    );
    if !needs::met(&["bpf"]) {
        return;
    }
    room.record(&[
        "--usdt",
        "./sites:sites:entry",
        "--agg",
        "hits = count() by probe",
    ]);
    let hits = room.rows("aggregates", &["keys", "value"]);
    assert_eq!(hits, ["[sdt_sites:entry] 6.0"]);
}

/// Processes that run and end in parallel, which the kernel confuses unless it is prevented from exchanging their events.
#[test]
fn processes_in_parallel_lose_no_hit() {
    let Some(room) = Compiled::new("forks", "-O1") else {
        return;
    };
    if !needs::met(&["Linux 6.12"]) {
        return;
    }
    let hits = |arguments: &[&str], table: &str| {
        let command = ["--", "./forks", "400"];
        record(&room, &[arguments, &command[..]].concat(), table, &["tid"]).len()
    };
    let uprobe = ["--uprobe", "./forks:work"];
    assert_eq!(hits(&uprobe, "events/probe_forks/work"), 8_000);
    assert_eq!(hits(&["--call", "./forks:work"], "calls"), 8_000);
    // Counted in the kernel.
    for arguments in [
        &["--uprobe", "./forks:work", "--agg", "count() by comm"][..],
        &["--call", "./forks:work", "--agg", "count() by comm"],
    ] {
        let command = ["--", "./forks", "400"];
        let all = [arguments, &command[..]].concat();
        let counted = record(&room, &all, "aggregates", &["value"]);
        assert_eq!(counted, ["8000.0"], "{arguments:?}");
    }
}

/// The same with a probe that another tool defined, recorded and counted.
#[test]
fn processes_in_parallel_lose_no_hit_of_a_foreign_probe() {
    let Some(room) = Compiled::new("forks", "-O1") else {
        return;
    };
    if !needs::met(&["Linux 6.12"]) {
        return;
    }
    let foreign = Foreign::define(&room.folder.path().join("forks"), "work");
    let event = &format!("{}:work", foreign.group);
    let run = |option: &str| {
        let output = room.run(&[option, event, "--", "./forks", "400"]);
        assert!(output.status.success(), "{output:?}");
    };
    run("-e");
    let table = format!("events/{}/work", foreign.group);
    assert_eq!(room.rows(&table, &["tid"]).len(), 8_000);
    run("--stat");
    assert_eq!(room.rows("counts", &["count"]), ["8000"]);
}

/// A probe in a program, defined as by other tools.
struct Foreign {
    group: String,
}

const UPROBE_EVENTS: &str = "/sys/kernel/tracing/uprobe_events";

impl Foreign {
    fn define(program: &Path, function: &str) -> Foreign {
        let output = Command::new("nm").arg(program).output();
        let symbols = String::from_utf8(output.expect("nm runs").stdout).expect("text");
        let line = symbols
            .lines()
            .find(|line| line.ends_with(&format!(" T {function}")));
        let address = line
            .and_then(|line| line.split(' ').next())
            .expect("a symbol");
        let address = u64::from_str_radix(address, 16).expect("an address");
        // Linked at 0x400000, without holes before the code.
        let offset = address - 0x40_0000;
        let group = format!("foreign_{}", std::process::id());
        let line = format!("p:{group}/{function} {}:{offset:#x}\n", program.display());
        append(&line);
        Foreign { group }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        append(&format!("-:{}/work\n", self.group));
    }
}

fn append(line: &str) {
    let file = fs::OpenOptions::new().append(true).open(UPROBE_EVENTS);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the kernel takes the probe");
}

#[test]
fn targets_are_listed_and_invalid_probes_explained() {
    let Some(room) = room("-O0") else { return };
    let shown = |arguments: &[&str]| {
        let output = room.run(arguments);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(shown(&["--functions", "./probed:wo*"]), "work\n");
    let lines = shown(&["--lines", "./probed:work"]);
    assert!(
        lines.contains("     4  \t\ttotal += item->id;\n"),
        "{lines}"
    );
    let vars = shown(&["--vars", "./probed:work"]);
    assert!(vars.contains("item   *{id, weight, name, at}"), "{vars}");
    for (probe, expected) in [
        ("./probed:wrok", "use work,"),
        ("./probed:work missing", "use one of: n, item, total"),
        ("./probed:work item->missing", "it has id, weight, name, at"),
        ("./probed:work item->at", "use one of its members: x, y"),
        ("./probed:work:99", "use one of the lines"),
        ("./probed:work x=%nothing", "Invalid register name"),
        ("./nothing:work", "No such file"),
        ("work", "expected OBJECT:FUNC"),
    ] {
        let output = room.run(&["--uprobe", probe, "--", "./probed"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{probe}");
        assert!(stderr.contains(expected), "{probe}: {stderr}");
        assert_eq!(room.leftovers(), Vec::<String>::new(), "{probe}");
    }
}

#[test]
fn probes_of_a_killed_recorder_are_removed() {
    let Some(room) = room("-O0") else { return };
    // The recorder is killed while its command runs.
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_perfquet-record"))
        .args(["--force", "-o", "killed.pqt", "--uprobe", "./probed:main"])
        .args(["--", "cat"])
        .stdin(Stdio::piped())
        .current_dir(room.folder.path())
        .spawn()
        .expect("the recorder runs");
    for _ in 0..3000 {
        if !room.leftovers().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    assert_eq!(room.leftovers().len(), 1);
    let removed = room.run(&["--cleanup"]);
    assert!(removed.status.success());
    assert_eq!(room.leftovers(), Vec::<String>::new());
}
