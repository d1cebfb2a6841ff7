//! Circumstances of public bug reports about other profilers, recorded here. Files of such reports are in tests/oracle/odd_inputs.rs;
//! docs/dev/public-reports.md has the list of all.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use room::{Room, may_record, needs, users_may_record};

/// Each user stack of the samples as its frames, outermost first, with the thread's name.
fn stacks(room: &Room) -> Vec<(String, Vec<String>)> {
    let pairs = |table: &str, columns: &[&str]| -> BTreeMap<String, String> {
        let rows = room.rows(table, columns).into_iter();
        let pairs = rows.filter_map(|row| {
            let (id, rest) = row.split_once(' ')?;
            Some((id.to_owned(), rest.to_owned()))
        });
        pairs.collect()
    };
    let frames = pairs("frames", &["frame_id", "function"]);
    let nodes = pairs("stacks", &["stack_id", "parent_id", "frame_id"]);
    let samples = room.rows("samples", &["user_stack", "comm"]);
    let stack = |row: &String| {
        let (mut id, comm) = row.split_once(' ').expect("two columns");
        let mut functions = Vec::new();
        while let Some((parent, frame)) = nodes.get(id).and_then(|node| node.split_once(' ')) {
            functions.push(frames.get(frame).cloned().unwrap_or_default());
            id = parent;
        }
        functions.reverse();
        (comm.to_owned(), functions)
    };
    samples.iter().map(stack).collect()
}

/// Number of samples of a thread name whose stack ends in these functions.
fn count(stacks: &[(String, Vec<String>)], name: &str, end: &[&str]) -> usize {
    let is_it = |(comm, functions): &&(String, Vec<String>)| {
        comm == name
            && functions.len() >= end.len()
            && functions[functions.len() - end.len()..] == *end
    };
    stacks.iter().filter(is_it).count()
}

/// `iovisor/bcc#2231`, `cilium/ebpf#399`: the offset in the file is not the address in memory, or no build ID is there.
#[test]
fn probes_have_their_arguments_in_every_layout() {
    if !needs::met(&["root", "uprobes", "cc"]) {
        return;
    }
    let layouts: [&[&str]; 11] = [
        &["-fPIE", "-pie"],
        &["-no-pie"],
        &["-static"],
        &["-static-pie"],
        &["-no-pie", "-Wl,-Ttext-segment=0x10000000"],
        &["-Wl,-z,noseparate-code"],
        &["-no-pie", "-Wl,-z,noseparate-code"],
        &["-Wl,-z,max-page-size=0x200000"],
        &["-no-pie", "-Wl,-z,max-page-size=0x200000"],
        &["-Wl,--build-id=none"],
        &["-Wl,--build-id"],
    ];
    for layout in layouts {
        let room = Room::new();
        let Some(program) = room.compile("circumstances.c", &[&["-O1", "-g"], layout].concat())
        else {
            return;
        };
        let object = program.display().to_string();
        room.record(&[
            "--uprobe",
            &format!("{object}:probed number text:string"),
            "--uretprobe",
            &format!("{object}:probed result=$retval:s32"),
            "--",
            &object,
            "work",
        ]);
        let columns = ["number", "text"];
        let hits = room.rows("events/probe_circumstances/probed", &columns);
        let expected: Vec<String> = (0..5).map(|number| format!("{number} abc")).collect();
        assert_eq!(hits, expected, "{layout:?}");
        let returns = room.rows("events/probe_circumstances/probed__return", &["result"]);
        assert_eq!(returns, ["-3", "-1", "1", "3", "5"], "{layout:?}");
    }
}

/// firefox-devtools/profiler#3351: three programs, one PID.
#[test]
fn programs_that_reuse_a_pid_stay_apart() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let Some(program) = room.compile("circumstances.c", &["-O1"]) else {
        return;
    };
    for name in ["first", "second", "third"] {
        fs::copy(&program, room.path(name)).expect("a copy");
    }
    let (status, stderr) = room.run(&[
        "-g",
        "-e",
        "cpu-clock:u",
        "--",
        "./circumstances",
        "reuse",
        "./first",
        "./second",
        "./third",
    ]);
    assert_eq!(status, Some(0), "{stderr}");
    let threads = room.rows("threads", &["comm", "pid", "start_time", "end_time"]);
    let mut ends = Vec::new();
    for name in ["first", "second", "third"] {
        let rows: Vec<Vec<&str>> = threads
            .iter()
            .map(|row| row.split(' ').collect())
            .filter(|row: &Vec<&str>| row[0] == name)
            .collect();
        assert_eq!(rows.len(), 1, "{threads:?}");
        ends.push((rows[0][1], rows[0][2].to_owned(), rows[0][3].to_owned()));
    }
    assert!(ends.windows(2).all(|two| two[0].0 == two[1].0), "{ends:?}");
    assert!(ends.windows(2).all(|two| two[0].2 <= two[1].1), "{ends:?}");
    let found = stacks(&room);
    let modules = room.rows("frames", &["module", "function"]);
    for name in ["first", "second", "third"] {
        assert!(count(&found, name, &["middle", "hot"]) > 50, "{name}");
        let own = format!("/{name} hot");
        assert!(modules.iter().any(|row| row.ends_with(&own)), "{modules:?}");
    }
}

/// KDAB/perfparser#43: the return address is the start of the next function.
#[test]
fn a_call_that_never_returns_has_its_caller() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    if room.compile("circumstances.c", &["-O1"]).is_none() {
        return;
    }
    room.record(&[
        "-g",
        "-e",
        "cpu-clock:u",
        "--",
        "./circumstances",
        "noreturn",
    ]);
    let found = stacks(&room);
    let whole = ["main", "caller_at_its_end", "never_returns"];
    let right = count(&found, "circumstances", &whole);
    assert!(right > 50, "{right} of {}", found.len());
    let others: BTreeSet<&String> = found.iter().flat_map(|(_, functions)| functions).collect();
    assert!(
        !others.iter().any(|name| *name == "next_function"),
        "{others:?}"
    );
}

/// KDAB/perfparser#10: a child without exec has its parent's mappings, and loses them by its exec.
#[test]
fn children_have_names_with_and_without_exec() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let Some(program) = room.compile("circumstances.c", &["-O1"]) else {
        return;
    };
    fs::copy(&program, room.path("executed")).expect("a copy");
    for fixed in [&[][..], &["setarch", "-R"]] {
        let forks = ["./circumstances", "forks", "./executed"];
        let options = ["-g", "-e", "cpu-clock:u", "--"];
        room.record(&[&options, fixed, &forks].concat());
        let found = stacks(&room);
        for (name, leaf) in [
            ("kid (one) 2", "child_work"),
            ("kid (one) 2", "grandchild_work"),
            ("executed", "hot"),
        ] {
            let right = count(&found, name, &[leaf]);
            assert!(right > 20, "{fixed:?} {name} {leaf}: {right}");
        }
    }
}

/// mstange/samply#683: the file at the recorded path is stripped, and perf's cache has the whole one by its build ID.
#[test]
fn a_stripped_program_has_the_names_of_perfs_cache() {
    if !users_may_record() || !needs::met(&["cc"]) {
        return;
    }
    let room = Room::new();
    let id = "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567";
    let Some(program) = room.compile("circumstances.c", &["-O1", id]) else {
        return;
    };
    // The recorder's home directory is the room.
    let cache = room.path(".debug/.build-id/01/23456789abcdef0123456789abcdef01234567");
    fs::create_dir_all(&cache).expect("a folder");
    fs::copy(&program, cache.join("elf")).expect("a copy");
    let stripped = Command::new("strip").arg(&program).status();
    assert!(stripped.is_ok_and(|status| status.success()), "strip");
    room.record(&["-g", "-e", "cpu-clock:u", "--", "./circumstances", "work"]);
    let found = stacks(&room);
    let right = count(&found, "circumstances", &["middle", "hot"]);
    assert!(right > 50, "{right} of {}", found.len());
}
