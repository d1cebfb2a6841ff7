//! Stacks of a program compiled without frame pointers: copied and unwound like perf does from the same journal;
//! truncated; of one side; of one event.

mod room;

use std::collections::{BTreeMap, HashMap};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use room::{NOBODY, Room, Running, may_record, needs, users_may_record};

const WITHOUT_FRAME_POINTERS: &[&str] = &["-O2", "-g", "-fomit-frame-pointer", "-no-pie"];

/// The program in a directory; `None` if it cannot be tested here.
fn deep() -> Option<Room> {
    if !users_may_record() {
        return None;
    }
    let room = Room::new();
    room.compile("deep.c", WITHOUT_FRAME_POINTERS)?;
    Some(room)
}

/// Returns the function names of each sample's user stack, leaf first, and whether it has a kernel stack.
fn stacks_of(room: &Room, table: &str) -> Vec<(Vec<String>, bool)> {
    let frames: HashMap<String, String> = pairs(room.rows("frames", &["frame_id", "function"]));
    let nodes = room.rows("stacks", &["stack_id", "parent_id", "frame_id"]);
    let nodes: HashMap<String, (String, String)> = nodes
        .iter()
        .map(|row| {
            let cells: Vec<&str> = row.split(' ').collect();
            (cells[0].into(), (cells[1].into(), cells[2].into()))
        })
        .collect();
    let samples = room.rows(table, &["user_stack", "kernel_stack"]);
    let samples = samples.iter().map(|row| {
        let (user, kernel) = row.split_once(' ').expect("two cells");
        let mut names = Vec::new();
        let mut node = user.to_owned();
        while let Some((parent, frame)) = nodes.get(&node) {
            names.push(frames.get(frame).cloned().unwrap_or_default());
            node = parent.clone();
        }
        (names, kernel != "-" && kernel != "0")
    });
    samples.collect()
}

/// Number of aggregated stacks that are marked as cut: their outermost frame is.
fn marked_as_cut(room: &Room) -> u64 {
    fn is_cut(nodes: &HashMap<String, (String, String)>, stack: &str) -> bool {
        nodes.get(stack).is_some_and(|(parent, cut)| {
            is_cut(nodes, parent) || !nodes.contains_key(parent) && cut == "true"
        })
    }
    let nodes = room.rows("stacks", &["stack_id", "parent_id", "cut"]);
    let nodes = nodes.iter().map(|row| {
        let cells: Vec<&str> = row.split(' ').collect();
        (cells[0].into(), (cells[1].into(), cells[2].into()))
    });
    let nodes: HashMap<String, (String, String)> = nodes.collect();
    let rows = room.rows("aggregates", &["user_stack", "value"]);
    let values = rows.iter().filter_map(|row| {
        let (stack, value) = row.split_once(' ')?;
        let value = value.parse::<f64>().ok()?;
        is_cut(&nodes, stack).then_some(value)
    });
    values.sum::<f64>() as u64
}

fn pairs(rows: Vec<String>) -> HashMap<String, String> {
    let split = rows.into_iter().map(|row| {
        let (key, value) = row.split_once(' ').expect("two cells");
        (key.to_owned(), value.to_owned())
    });
    split.collect()
}

/// Complete stacks of the program.
fn expected(depth: usize) -> Vec<String> {
    let mut names = vec!["leaf".to_owned(), "middle".to_owned()];
    names.extend(vec!["down".to_owned(); depth + 1]);
    names.push("main".to_owned());
    names
}

#[test]
fn copied_stacks_are_unwound_as_perf_does() {
    let Some(room) = deep() else { return };
    let copies = ["--keep-raw", "-e", "cpu-clock:u", "--call-graph", "dwarf"];
    let stderr = room.record(&[&copies[..], &["--", "./deep", "5"]].concat());
    let ours = stacks_of(&room, "samples");
    assert!(ours.len() > 50, "{stderr}");
    let whole = expected(5);
    let is_whole = |names: &[String]| {
        names.starts_with(&whole) && names.last().is_some_and(|name| name == "_start")
    };
    let count = ours.iter().filter(|(names, _)| is_whole(names)).count();
    // The others are from the start and end of the process.
    assert!(
        count * 10 > ours.len() * 9,
        "{count} of {}: {ours:?}",
        ours.len()
    );
    assert!(ours.iter().all(|(_, has_kernel)| !has_kernel));
    if !needs::met(&["perf"]) {
        return;
    }
    let journal = room.path("t.pqt/journal/perf.data");
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-inline", "-F", "ip,sym", "-i"])
        .arg(journal);
    let script = perf.output().expect("perf runs").stdout;
    let script = String::from_utf8_lossy(&script).into_owned();
    let mut theirs: Vec<Vec<String>> = vec![Vec::new()];
    for line in script.lines() {
        match line.split_whitespace().nth(1) {
            Some(name) => theirs.last_mut().expect("one").push(name.to_owned()),
            None => theirs.push(Vec::new()),
        }
    }
    theirs.retain(|names| !names.is_empty());
    let count = |stacks: &mut dyn Iterator<Item = Vec<String>>| {
        let mut counts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for mut names in stacks {
            // The same address has two names in libc; a name may be followed by its version.
            names
                .iter_mut()
                .for_each(|name| name.truncate(name.find('@').unwrap_or(name.len())));
            // perf finds the caller of main in some runs of a program only.
            let main = names.iter().position(|name| name == "main");
            names.truncate(main.map_or(usize::MAX, |main| main + 1));
            *counts.entry(names).or_default() += 1;
        }
        counts
    };
    let (ours, theirs) = (
        count(&mut ours.into_iter().map(|(names, _)| names)),
        count(&mut theirs.into_iter()),
    );
    if !theirs.keys().any(|names| names.len() > 3) {
        eprintln!("skipped: needs a perf that unwinds");
        return;
    }
    // perf prints [unknown] for frames without a name, and gives up earlier in the dynamic loader, so only the
    // program's own stacks count.
    let of_program = |counts: &BTreeMap<Vec<String>, usize>| -> BTreeMap<Vec<String>, usize> {
        let own = counts
            .iter()
            .filter(|(names, _)| names.iter().any(|name| name == "main"));
        own.map(|(names, count)| (names.clone(), *count)).collect()
    };
    assert_eq!(of_program(&ours), of_program(&theirs));
}

/// A fault while the user stack is walked overwrites the kernel's buffer of the sample's kernel stack.
#[test]
fn an_event_within_a_walk_takes_nothing_from_the_sample() {
    if !may_record() || !needs::met(&["bpf"]) {
        return;
    }
    let room = Room::new();
    if room.compile("paired.c", &["-O2", "-g"]).is_none() {
        return;
    }
    let events = "cpu-clock,exceptions:page_fault_kernel";
    let options = ["-a", "-g", "-F", "2000", "-e", events];
    let stderr = room.record(&[&options[..], &["--", "./paired", "1500"]].concat());
    assert!(!stderr.contains("could not be read"), "{stderr}");
    assert_eq!(room.rows("problems", &["message"]), Vec::<String>::new());
    assert!(room.rows("samples", &["tid"]).len() > 500, "{stderr}");
}

#[test]
fn truncated_stack_copy_is_reported() {
    let Some(room) = deep() else { return };
    let short = [
        "-e",
        "cpu-clock:u",
        "--call-graph",
        "dwarf,512",
        "--",
        "./deep",
        "60",
    ];
    let stderr = room.record(&short);
    assert!(
        stderr.contains("at the end of the copy (--call-graph dwarf,BYTES copies more)"),
        "{stderr}"
    );
    let stacks = stacks_of(&room, "samples");
    let cut = stacks
        .iter()
        .filter(|(names, _)| !names.iter().any(|name| name == "main"));
    assert!(cut.count() > 20);
    let manifest = std::fs::read_to_string(room.path("t.pqt/manifest.json")).expect("a manifest");
    assert!(manifest.contains("user_stacks.unwound"), "{manifest:.2000}");
    // Deep stacks are complete at the maximum size.
    let long = [
        "-e",
        "cpu-clock:u",
        "--call-graph",
        "dwarf,64K",
        "--",
        "./deep",
        "60",
    ];
    room.record(&long);
    let whole = expected(60);
    let stacks = stacks_of(&room, "samples");
    let count = stacks
        .iter()
        .filter(|(names, _)| names.starts_with(&whole))
        .count();
    assert!(count * 10 > stacks.len() * 9, "{count} of {}", stacks.len());
}

#[test]
fn stacks_of_one_side_and_of_one_event() {
    if !may_record() {
        return;
    }
    let Some(room) = deep() else { return };
    let write = "syscalls:sys_enter_write";
    let table = "events/syscalls/sys_enter_write";
    let sides = |options: &[&str]| {
        room.record(
            &[
                options,
                &["--", "sh", "-c", "for i in 1 2 3 4 5; do echo; done"],
            ]
            .concat(),
        );
        let stacks = stacks_of(&room, table);
        assert!(stacks.len() >= 5, "{options:?}: {}", stacks.len());
        let user = stacks.iter().all(|(names, _)| !names.is_empty());
        let no_user = stacks.iter().all(|(names, _)| names.is_empty());
        assert!(user || no_user, "{options:?}: {stacks:?}");
        (user, stacks.iter().all(|(_, has_kernel)| *has_kernel))
    };
    // System call events have user-space registers, so they have no kernel stack.
    assert_eq!(sides(&["-e", write]), (false, false));
    assert_eq!(sides(&["-e", write, "-g"]), (true, false));
    assert_eq!(sides(&["-e", write, "--user-stacks"]), (true, false));
    assert_eq!(sides(&["-e", write, "--kernel-stacks"]), (false, false));
    let own = format!("{write}/call-graph=dwarf,stack-size=4096/");
    assert_eq!(sides(&["-e", &own]), (true, false));
    let none = format!("{write}/call-graph=no/");
    assert_eq!(sides(&["-e", &none, "-g"]), (false, false));
    // Inside the kernel, both sides have frames.
    let exit = ["-e", "sched:sched_process_exit", "--", "./deep"];
    for (option, user, kernel) in [
        ("-g", true, true),
        ("--user-stacks", true, false),
        ("--kernel-stacks", false, true),
    ] {
        room.record(&[&[option][..], &exit].concat());
        let stacks = stacks_of(&room, "events/sched/sched_process_exit");
        let found = (!stacks[0].0.is_empty(), stacks[0].1);
        assert_eq!(found, (user, kernel), "{option}");
    }
    // Maximum depth.
    room.record(&[
        "-e",
        "cpu-clock:u",
        "--call-graph",
        "dwarf",
        "-e",
        "sched:sched_process_exit/max-stack=3/",
        "--",
        "./deep",
    ]);
    let depths = room.rows("stacks", &["depth"]);
    assert!(
        depths.iter().any(|depth| depth == "9"),
        "the clock's are whole"
    );
    room.record(&[
        "-g",
        "--max-stack",
        "3",
        "-e",
        "sched:sched_process_exit",
        "--",
        "./deep",
    ]);
    let depths = room.rows("stacks", &["depth"]);
    assert!(
        depths
            .iter()
            .all(|depth| depth.parse::<u32>().is_ok_and(|depth| depth <= 3)),
        "{depths:?}"
    );
}

/// Without frame pointers, and each with the callers of the function in which it happens.
#[test]
fn stacks_of_hits_are_whole() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    if room
        .compile("deep_hits.c", WITHOUT_FRAME_POINTERS)
        .is_none()
    {
        return;
    }
    for (options, table) in [
        (
            &["-e", "syscalls:sys_enter_getppid"][..],
            "events/syscalls/sys_enter_getppid",
        ),
        (
            &["-e", "syscalls:sys_exit_getppid"],
            "events/syscalls/sys_exit_getppid",
        ),
        (
            &["-e", "raw_syscalls:sys_enter"],
            "events/raw_syscalls/sys_enter",
        ),
        (
            &["-e", "exceptions:page_fault_user"],
            "events/exceptions/page_fault_user",
        ),
        (&["-e", "page-faults", "-c", "1"], "samples"),
        (
            &["--uprobe", "./deep_hits:leaf"],
            "events/probe_deep_hits/leaf",
        ),
        (
            &["--uretprobe", "./deep_hits:leaf"],
            "events/probe_deep_hits/leaf__return",
        ),
    ] {
        // Copies of all of them have room in a ring, however late it is read.
        let command = ["-g", "--", "./deep_hits", "20", "400"];
        let stderr = room.record(&[options, &command].concat());
        let hits = stacks_of(&room, table);
        // Others are from the start and end of the process.
        let hits = hits.iter().map(|(names, _)| names);
        let of_depth: Vec<_> = hits
            .filter(|names| names.iter().any(|name| name == "leaf" || name == "down"))
            .collect();
        assert!(
            of_depth.len() >= 360,
            "{options:?}: {}: {stderr}",
            of_depth.len()
        );
        let callers = [vec!["down"; 21], vec!["main"]].concat();
        let is_whole = |names: &[String]| {
            let callers_at = names.iter().position(|name| name == "down").unwrap_or(0);
            let found = names.get(callers_at..callers_at + callers.len());
            found.is_some_and(|found| found == callers)
                && names.last().is_some_and(|name| name == "_start")
        };
        let whole = of_depth.iter().filter(|names| is_whole(names)).count();
        assert!(
            whole * 100 >= of_depth.len() * 98,
            "{options:?}: {whole}: {stderr}"
        );
        assert!(!stderr.contains("frame pointers"), "{stderr}");
    }
}

/// Those of switches, of which the kernel stack tells more.
#[test]
fn stacks_by_frame_pointers_are_whole_or_marked() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    if room
        .compile("deep_sleep.c", WITHOUT_FRAME_POINTERS)
        .is_none()
    {
        return;
    }
    let command = ["--", "./deep_sleep", "20", "100"];
    let record = |options: &[&str]| {
        let switches = ["-e", "sched:sched_switch"];
        let stderr = room.record(&[options, &switches, &command].concat());
        let is_cut = cut_stacks(&room);
        let rows = room.rows("events/sched/sched_switch", &["user_stack"]);
        let marked = rows.iter().filter(|stack| is_cut(stack)).count();
        // A stack whose only frame is no code has no row.
        let without = rows.iter().filter(|stack| *stack == "-").count();
        let printed = stderr.lines().find_map(|line| {
            let (counts, _) = line.split_once(" by frame pointers cut;")?;
            counts.split(' ').next()?.parse().ok()
        });
        let counts = (marked, without, rows.len());
        (counts, printed, stderr)
    };
    let ((marked, without, all), printed, stderr) = record(&["-g"]);
    assert!(marked >= 90, "{marked} of {all}: {stderr}");
    let printed: usize = printed.unwrap_or(0);
    assert!(
        (marked..=marked + without).contains(&printed),
        "{marked} marked, {without} without: {stderr}"
    );
    // They are what was asked for: a layout of memory in which they end early is no fault of the recorder.
    let (_, printed, stderr) = record(&["--call-graph", "fp"]);
    assert_eq!(printed, None, "{stderr}");
    let ((marked, _, all), _, stderr) = record(&["--call-graph", "dwarf"]);
    assert!(marked * 50 <= all, "{marked} of {all}: {stderr}");
}

/// Whether a stack is marked as cut, which its outermost frame is.
fn cut_stacks(room: &Room) -> impl Fn(&str) -> bool {
    let parents = pairs(room.rows("stacks", &["stack_id", "parent_id"]));
    let cut = pairs(room.rows("stacks", &["stack_id", "cut"]));
    move |stack| {
        let mut outermost = stack;
        while let Some(parent) = parents.get(outermost).filter(|parent| *parent != "0") {
            outermost = parent;
        }
        cut.get(outermost).is_some_and(|cut| cut == "true")
    }
}

/// The share of the aggregates' sum, in percent, with the stack of a function at a depth, up to the start of the thread. Fails if a
/// stack is neither whole nor marked as cut.
fn whole_share(room: &Room, leaf: &str, depth: usize) -> f64 {
    let is_cut = cut_stacks(room);
    let rows = room.rows("aggregates", &["value", "user_stack"]);
    let (mut all, mut whole) = (0.0, 0.0);
    for (row, (names, _)) in rows.iter().zip(stacks_of(room, "aggregates")) {
        let (value, stack) = row.split_once(' ').expect("two cells");
        let value: f64 = value.parse().expect("a number");
        let start = names.last().is_some_and(|name| name == "_start");
        assert!(start || names.is_empty() || is_cut(stack), "{names:?}");
        let place = names.iter().position(|name| name == leaf);
        let callers = place.map_or(&[][..], |place| &names[place + 1..]);
        let expected = [vec!["down"; depth + 1], vec!["main"]].concat();
        let is_whole = start
            && callers
                .get(..depth + 2)
                .is_some_and(|found| found == expected);
        all += value;
        whole += if is_whole { value } else { 0.0 };
    }
    100.0 * whole / all
}

#[test]
fn stacks_in_aggregates_are_whole() {
    if !may_record() {
        return;
    }
    let Some(room) = deep() else { return };
    if !needs::met(&["bpf", "BTF"]) {
        return;
    }
    room.compile("deep_sleep.c", WITHOUT_FRAME_POINTERS)
        .expect("a compiler");
    let sleep = "syscalls:sys_enter_clock_nanosleep";
    let deep = ["./deep", "20", "20000"];
    let deep_sleep = ["./deep_sleep", "20", "600"];
    for (options, command, leaf) in [
        (&["--profile", "-F", "499"][..], deep, "middle"),
        (&["--off-cpu"], deep_sleep, "leaf"),
        (
            &["-e", sleep, "--agg", "count() by ustack"],
            deep_sleep,
            "leaf",
        ),
        (
            &["-e", sleep, "--agg", "sum(flags), count() by ustack, comm"],
            deep_sleep,
            "leaf",
        ),
    ] {
        let stderr = room.record(&[options, &["-v", "--"], &command].concat());
        let share = whole_share(&room, leaf, 20);
        assert!(share > 80.0, "{options:?}: {share}: {stderr}");
        // The closing lines count the stacks before tables were loaded.
        assert!(
            stderr.contains("walked for aggregates"),
            "{options:?}: {stderr}"
        );
        let cut = stderr
            .lines()
            .find_map(|line| line.split_once("aggregated user stacks cut: "));
        let (count, reason) = cut.unwrap_or(("0 of all ", ""));
        assert!(!reason.contains(" at "), "{options:?}: {stderr}");
        // Where the values are numbers of stacks, as many are marked as cut.
        if options[0] == "--profile" || options.contains(&"count() by ustack") {
            let count = count.split(' ').next().unwrap_or_default();
            let count = count.replace(',', "").parse();
            assert_eq!(Ok(marked_as_cut(&room)), count, "{options:?}: {stderr}");
        }
        room.record(&[options, &["--call-graph", "fp", "--"], &command].concat());
        let by_frame_pointers = stacks_of(&room, "aggregates");
        // A sample may hit main itself, or the first instruction of what it calls.
        let mut callers = by_frame_pointers
            .iter()
            .flat_map(|(names, _)| names.iter().skip(20));
        assert!(!callers.any(|name| name == "main"), "{options:?}");
    }
}

/// The programs take stacks themselves, whatever the options say about those of samples; each side that is not wanted is missing.
#[test]
fn options_about_stacks_apply_to_aggregates() {
    if !may_record() {
        return;
    }
    let Some(room) = deep() else { return };
    if !needs::met(&["bpf", "BTF"]) {
        return;
    }
    let profile = &["--profile", "-F", "499"][..];
    let clock = &["-e", "cpu-clock", "-F", "499", "--agg", "count() by stack"][..];
    for (events, options, has_kernel, has_user) in [
        (profile, &["-g"][..], true, true),
        (profile, &["--call-graph", "dwarf"], true, true),
        (profile, &["--max-stack", "2"], true, true),
        (profile, &["--user-stacks"], false, true),
        (profile, &["--call-graph", "fp"], true, true),
        (profile, &["--kernel-stacks"], true, false),
        (clock, &["--call-graph", "dwarf"], true, true),
        (clock, &["--kernel-stacks"], true, false),
        (&["--off-cpu"], &["--user-stacks"], false, true),
        (&["--off-cpu"], &["--kernel-stacks"], true, false),
    ] {
        let program = match events[0] {
            "--off-cpu" => "i=0; while [ $i -lt 20 ]; do sleep 0.001; i=$((i+1)); done",
            _ => "dd if=/dev/zero of=/dev/null bs=4M count=400 status=none; ./deep 20 5000",
        };
        room.record(&[events, options, &["--", "sh", "-c", program]].concat());
        let stacks = room.rows("aggregates", &["kernel_stack", "user_stack"]);
        let has = |side: usize| {
            let mut sides = stacks.iter().map(|row| row.split(' ').nth(side));
            sides.any(|stack| stack.is_some_and(|stack| stack != "-"))
        };
        assert_eq!(
            (has(0), has(1)),
            (has_kernel, has_user),
            "{events:?} {options:?}: {stacks:?}"
        );
        // A side that is not recorded is not read, either. Frames in files have no address.
        let frames = room.rows("frames", &["address", "module"]);
        let is_of = |module: &str| frames.iter().any(|row| row.ends_with(module));
        let places = (
            is_of("[kernel.kallsyms]"),
            is_of("/libc.so.6") || is_of("/deep"),
        );
        assert_eq!(
            places,
            (has_kernel, has_user),
            "{events:?} {options:?}: {frames:?}"
        );
        // Not PERF_CONTEXT_USER and others.
        let markers = frames.iter().filter(|row| {
            let address = row.split(' ').next().map(str::parse::<u64>);
            address.is_some_and(|address| address.is_ok_and(|address| address > u64::MAX - 4096))
        });
        let markers: Vec<&String> = markers.collect();
        assert!(markers.is_empty(), "{events:?} {options:?}: {markers:?}");
        let losses = room.rows("losses", &["reason"]);
        let is_lost = |reason: &String| reason.contains("a stack");
        assert!(
            !losses.iter().any(is_lost),
            "{events:?} {options:?}: {losses:?}"
        );
    }
}

#[test]
fn invalid_stack_options_are_explained() {
    let room = Room::new();
    for (options, status, expected) in [
        (
            &["--call-graph", "dwarf,70000"][..],
            2,
            "at most 65528 bytes",
        ),
        (
            &["--call-graph", "dwarf", "--kernel-stacks"],
            2,
            "dwarf and lbr apply only to user stacks",
        ),
        (&["--max-stack", "60000"], 2, "kernel.perf_event_max_stack"),
        (
            &["-e", "cpu-clock/call-graph=orc/"],
            2,
            "expected auto, auto,check, fp, fp,defer, dwarf",
        ),
        (
            &["-e", "cpu-clock", "--call-graph", "lbr"],
            1,
            "provides no branch records",
        ),
        (
            &[
                "-e",
                "cpu-clock",
                "--call-graph",
                "auto,check",
                "--kernel-stacks",
            ],
            1,
            "no stacks are walked in the kernel",
        ),
    ] {
        let (found, stderr) = room.run(&[options, &["--", "true"]].concat());
        assert_eq!(found, Some(status), "{options:?}: {stderr}");
        assert!(stderr.contains(expected), "{options:?}: {stderr}");
    }
}

#[test]
fn unprivileged_user_can_copy_stacks() {
    if !may_record() {
        return;
    }
    let Some(room) = deep() else { return };
    let program = room.give_to(NOBODY);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
        .arg(program)
        .args(["-o", "t.pqt", "-e", "cpu-clock", "--call-graph", "dwarf"]);
    command.args(["--", "./deep"]).current_dir(room.path(""));
    if !needs::met(&["setpriv"]) {
        return;
    }
    let output = command.output().expect("setpriv runs");
    let (status, stderr) = room::ended(output);
    assert_eq!(status, Some(0), "{stderr}");
    let whole = expected(5);
    let stacks = stacks_of(&room, "samples");
    assert!(
        stacks
            .iter()
            .filter(|(names, _)| names.starts_with(&whole))
            .count()
            > 20,
        "{stderr}"
    );
}

/// Until the table of a new program is loaded, its stacks are copied: 36 KiB each, with which a program on one CPU fills a ring of
/// 4 MiB in 120 ms.
#[test]
fn copies_do_not_fill_the_rings_while_the_recorder_gets_no_time() {
    if !may_record() {
        return;
    }
    let Some(room) = deep() else { return };
    let mut recorder = room.recorder();
    recorder.args(["-v", "-o", "t.pqt", "-a", "-g", "-e", "cpu-clock"]);
    recorder.args(["-F", "997", "-m", "4M"]);
    let recorder = recorder.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut recorder = recorder.spawn().expect("the recorder runs");
    room.wait_for_journal(&mut recorder, 20_000);
    let send = |signal: &str| {
        let sent = Command::new("kill")
            .args([signal, &recorder.id().to_string()])
            .status();
        assert!(sent.is_ok_and(|status| status.success()));
    };
    std::thread::sleep(Duration::from_millis(500));
    send("-STOP");
    let mut program = Command::new(room.path("deep"));
    let mut program = program.args(["5", "1000000"]).spawn().expect("it runs");
    room::wait_for_cpu_time(program.id(), Duration::from_secs(1));
    send("-CONT");
    program.kill().expect("a child");
    program.wait().expect("a child");
    send("-INT");
    let output = recorder.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !stderr.contains("walked in the kernel") {
        println!("skipped: stacks are not walked in the kernel: {stderr}");
        return;
    }
    assert!(stderr.contains(" 0 lost"), "{stderr}");
    let sentence = "cut before unwind tables were loaded";
    assert!(stderr.contains(sentence), "{stderr}");
}

/// More copies come while stacks are unwound than may wait. Events that come later are recorded nevertheless, and not only at the end.
#[test]
fn the_recorder_goes_on_after_a_burst_of_copies() {
    // The records about the processes that hit are fewer.
    const LATER_BYTES: u64 = 4 << 20;
    if !may_record() {
        return;
    }
    let room = Room::new();
    if room
        .compile("deep_hits.c", WITHOUT_FRAME_POINTERS)
        .is_none()
    {
        return;
    }
    let hits = |depth: &str, count: &str| {
        let mut program = Command::new(room.path("deep_hits"));
        let status = program.args([depth, count]).status();
        assert!(status.is_ok_and(|status| status.success()));
    };
    let mut recorder = room.fast_recorder();
    recorder.args(["-o", "t.pqt", "-a", "-m", "128M"]);
    recorder.args(["--call-graph", "dwarf,24K", "-e", "raw_syscalls:sys_enter"]);
    let mut recorder = Running::start(recorder.stdin(Stdio::null()).stderr(Stdio::null()));
    room.wait_for_journal(&mut recorder.0, 20_000);
    hits("150", "60000");
    let (before, begin) = (room.journal_bytes(), Instant::now());
    while room.journal_bytes() < before + LATER_BYTES {
        assert!(begin.elapsed() < Duration::from_secs(60), "{before} bytes");
        hits("1", "20000");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Its hits come before the recorder has read of the mapping: their stacks are copied, and a copy takes the room that it needs.
#[test]
fn stacks_in_a_library_that_was_just_loaded_are_whole() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let library = ["-shared", "-fPIC", "-fno-optimize-sibling-calls"];
    let library = [&library, WITHOUT_FRAME_POINTERS].concat();
    let library: Vec<&str> = library
        .into_iter()
        .filter(|word| *word != "-no-pie")
        .collect();
    if room.compile("late_library.c", &library).is_none() {
        return;
    }
    room.compile("late.c", WITHOUT_FRAME_POINTERS);
    let stderr = room.record(&[
        "-v",
        "-g",
        "-e",
        "page-faults",
        "-c",
        "1",
        "--",
        "./late",
        "1000",
    ]);
    if !stderr.contains("user stacks walked in the kernel") {
        println!("skipped: stacks are not walked in the kernel: {stderr}");
        return;
    }
    assert!(stderr.contains(" 0 lost"), "{stderr}");
    assert!(!stderr.contains("cut before"), "{stderr}");
    let hits = stacks_of(&room, "samples");
    let in_library: Vec<_> = hits
        .iter()
        .filter(|(names, _)| names.iter().filter(|name| *name == "down").count() == 21)
        .collect();
    assert!(in_library.len() >= 1000, "{}: {stderr}", in_library.len());
    let is_whole = |names: &[String]| names.last().is_some_and(|name| name == "_start");
    let whole = in_library.iter().filter(|(names, _)| is_whole(names));
    assert_eq!(whole.count(), in_library.len(), "{stderr}");
}
