//! Symbolization of generated code, of programs inside containers, and of deleted files.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use perfquet_trace::reopen::name_again;
use perfquet_trace::symbols::{KernelSource, Options};

use room::{Room, may_record, needs, users_may_record};

/// Returns function and module of each sample's leaf, in order of time.
fn leaves(room: &Room) -> Vec<String> {
    let frames = room.rows("frames", &["frame_id", "function", "module"]);
    let nodes = room.rows("stacks", &["stack_id", "frame_id"]);
    let find = |rows: &[String], key: &str| {
        let mut rows = rows.iter().filter_map(|row| row.split_once(' '));
        rows.find(|(id, _)| *id == key)
            .map(|(_, rest)| rest.to_owned())
    };
    let samples = room.rows("samples", &["user_stack"]);
    let names = samples.iter().filter_map(|stack| {
        let frame = find(&nodes, stack)?;
        find(&frames, &frame)
    });
    names.collect()
}

fn count(leaves: &[String], name: &str) -> usize {
    leaves.iter().filter(|leaf| leaf.starts_with(name)).count()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn generated_code_by_a_list() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    if room.compile("generated.c", &["-O1"]).is_none() {
        return;
    }
    room.record(&["-e", "cpu-clock:u", "--", "./generated"]);
    let leaves = leaves(&room);
    // The list has no times, so the second function at the address names both.
    assert_eq!(count(&leaves, "first generated"), 0);
    assert!(
        count(&leaves, "second generated /tmp/perf-") > 120,
        "{leaves:?}"
    );
    assert!(
        count(&leaves, "third generated /tmp/perf-") > 60,
        "{leaves:?}"
    );
    let pid = room.rows("samples", &["pid"])[0].clone();
    let list = format!("/tmp/perf-{pid}.map");
    assert!(fs::remove_file(&list).is_ok(), "{list}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn generated_code_by_a_dump() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    if room.compile("generated.c", &["-O1"]).is_none() {
        return;
    }
    room.record(&["-e", "cpu-clock:u", "--keep-raw", "--", "./generated", "."]);
    let check = |found: &[String]| {
        for name in ["first", "second", "third"] {
            let named = count(found, &format!("{name} generated "));
            assert!(named > 20, "{name}: {named} of {}", found.len());
        }
        let in_dump = |leaf: &&String| leaf.contains(" generated ") && !leaf.contains("/jit-");
        assert_eq!(found.iter().filter(in_dump).count(), 0);
        let of_code: Vec<&String> = found
            .iter()
            .filter(|leaf| leaf.contains(" generated "))
            .collect();
        let place = |name: &str, last: bool| {
            let mut places = of_code
                .iter()
                .enumerate()
                .filter(|(_, leaf)| leaf.starts_with(name));
            if last {
                places.next_back()
            } else {
                places.next()
            }
            .map(|(place, _)| place)
        };
        assert!(place("first", true) < place("second", false));
        assert!(place("second", true) < place("third", false));
    };
    check(&leaves(&room));
    // The dump is missing during symbolization, and added later.
    let dumps = fs::read_dir(room.path("")).expect("a folder").flatten();
    let dump = dumps
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ending| ending == "dump"));
    let dump = dump.expect("a dump");
    fs::create_dir(room.path("kept")).expect("a folder");
    fs::rename(
        &dump,
        room.path("kept").join(dump.file_name().expect("a name")),
    )
    .expect("it moves");
    let options = Options {
        kernel: KernelSource::None,
        directories: vec![room.path("kept")],
        ..Options::default()
    };
    let report = name_again(&room.path("t.pqt"), options).expect("names");
    assert!(report.counts.named_frames > 0);
    check(&leaves(&room));
}

#[test]
fn programs_inside_containers() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let Some(program) = room.compile("deep.c", &["-O2", "-Wl,--build-id"]) else {
        return;
    };
    if !needs::met(&["a private mount namespace"]) {
        return;
    }
    fs::create_dir(room.path("inner")).expect("a folder");
    let inner = room.path("inner/hidden");
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {2} && {2} 5 40000",
        room.path("inner").display(),
        program.display(),
        inner.display()
    );
    let options = [
        "-e",
        "cpu-clock:u",
        "--call-graph",
        "dwarf",
        "--",
        "unshare",
        "-m",
        "sh",
        "-c",
        &script,
    ];
    let stderr = room.record(&options);
    assert!(!inner.exists(), "the mount is of nobody else");
    let found = leaves(&room);
    let named = format!("leaf {}", inner.display());
    assert!(count(&found, &named) > 100, "{stderr}: {:?}", found.last());
    // Unwound with the file inside the container too.
    let depths = room.rows("stacks", &["depth"]);
    assert!(
        depths
            .iter()
            .any(|depth| depth.parse::<u32>().is_ok_and(|depth| depth >= 9))
    );
    // The container runs already, and the host has another file at the same path.
    let script = format!(
        "mount --bind {} /bin/true && exec /bin/true 5 100000",
        program.display()
    );
    let mut running = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .spawn()
        .expect("it runs");
    let pid = running.id().to_string();
    let has_begun =
        || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "true\n");
    for _ in 0..600 {
        if has_begun() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    room.record(&["-e", "cpu-clock:u", "-p", &pid, "--duration", "2s"]);
    let _ = running.kill();
    let _ = running.wait();
    let found = leaves(&room);
    assert!(count(&found, "leaf ") > 20, "{}", found.len());
}

/// A host with the file adds the names later, by build ID, regardless of the directory layout.
#[test]
fn names_added_later() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let Some(program) = room.compile("deep.c", &["-O2", "-Wl,--build-id"]) else {
        return;
    };
    fs::copy(&program, room.path("gone")).expect("a copy");
    // The recorder holds the file.
    let stripped = Command::new("strip").arg(room.path("gone")).status();
    assert!(stripped.is_ok_and(|status| status.success()));
    let script = "./gone 5 20000 & sleep 0.3; rm gone; wait";
    room.record(&["-e", "cpu-clock:u", "--", "sh", "-c", script]);
    let trace = room.path("t.pqt");
    let own = |room: &Room| {
        let rows = room.rows("frames", &["module", "build_id", "function"]);
        let mut rows = rows.into_iter().filter(|row| row.contains("/gone "));
        rows.next().expect("a frame of it")
    };
    let row = own(&room);
    assert!(row.ends_with(" -"), "not named yet: {row}");
    let build_id = row.split(' ').nth(1).expect("a build id").to_owned();
    let (first, rest) = build_id.split_at(2);
    let layouts = [
        format!(".build-id/{first}/{rest}"),
        format!(".build-id/{first}/{rest}.debug"),
        format!("{build_id}/executable"),
        "bin/some/other name".to_owned(),
        "gone".to_owned(),
    ];
    let saved = fs::read_dir(trace.join("frames")).expect("parts").count();
    assert!(saved > 0);
    for layout in layouts {
        let folder = room.path("symbols");
        let place = folder.join(&layout);
        fs::create_dir_all(place.parent().expect("a folder")).expect("folders");
        fs::copy(&program, &place).expect("a copy");
        let copy = room.path("copy.pqt");
        let copied = Command::new("cp").arg("-r").args([&trace, &copy]).status();
        assert!(copied.is_ok_and(|status| status.success()));
        let options = Options {
            kernel: KernelSource::None,
            directories: vec![folder.clone()],
            system: false,
            ..Options::default()
        };
        name_again(&copy, options).expect("names");
        fs::remove_dir_all(&folder).expect("it goes");
        let named = functions(&copy);
        assert!(
            named.iter().any(|name| name == "leaf"),
            "{layout}: {named:?}"
        );
        fs::remove_dir_all(&copy).expect("it goes");
    }
}

/// Two builds of a program, `served` and `successor`; `None`, with a message, if there is no compiler.
fn two_builds(room: &Room, build_id: &str) -> Option<()> {
    for (name, function, step) in [
        ("successor", "-DWORK=of_the_new", "-DSTEP=3"),
        ("served", "-DWORK=of_the_old", "-DSTEP=5"),
    ] {
        let program = room.compile("served.c", &["-O1", function, step, build_id])?;
        if name != "served" {
            fs::rename(program, room.path(name)).expect("it moves");
        }
    }
    Some(())
}

/// A program that was replaced before the recording is still read, through the kernel.
#[test]
fn replaced_program_keeps_its_own_names() {
    if !users_may_record() {
        return;
    }
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let room = Room::new();
        if two_builds(&room, build_id).is_none() {
            return;
        }
        let mut running = Command::new(room.path("served")).spawn().expect("it runs");
        let pid = running.id().to_string();
        let began =
            || fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("served"));
        while !began() {
            std::thread::yield_now();
        }
        fs::rename(room.path("successor"), room.path("served")).expect("it moves");
        let stderr = room.record(&["-e", "cpu-clock:u", "-g", "-p", &pid, "--duration", "1s"]);
        let _ = running.kill();
        let _ = running.wait();
        let found = leaves(&room);
        assert!(
            count(&found, "of_the_old ") > 20,
            "{build_id}: {stderr}: {found:?}"
        );
        assert_eq!(count(&found, "of_the_new "), 0, "{build_id}: {found:?}");
        let names = functions(&room.path("t.pqt"));
        assert!(!names.iter().any(|name| name == "of_the_new"), "{names:?}");
        // Symbolizing again, without access to the old file, does not use it either.
        name_again(&room.path("t.pqt"), Options::default()).expect("names");
        assert_eq!(count(&leaves(&room), "of_the_new "), 0);
    }
}

/// A program replaced during the recording is named by its own file, which the recorder holds, and never by the file present at the
/// end.
#[test]
fn program_replaced_while_recorded_is_not_named_by_its_successor() {
    if !users_may_record() {
        return;
    }
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let room = Room::new();
        if two_builds(&room, build_id).is_none() {
            return;
        }
        let script = "start() { ./served & while [ $(cat /proc/$!/comm) != served ]; do :; done; sleep 0.7; }
            start; mv successor served; start; kill %1 %2; wait";
        room.record(&["-e", "cpu-clock:u", "--", "bash", "-c", script]);
        // By module, build ID and offset.
        let own = || {
            let columns = ["module", "build_id", "module_offset", "function"];
            let rows = room.rows("frames", &columns).into_iter();
            let mut functions = BTreeMap::<String, BTreeSet<String>>::new();
            for row in rows.filter(|row| row.contains("/served ")) {
                let (place, function) = row.rsplit_once(' ').expect("columns");
                let place = functions.entry(place.to_owned()).or_default();
                place.insert(function.to_owned());
            }
            functions
        };
        let first = own();
        let has = |name: &str| first.values().any(|functions| functions.contains(name));
        assert!(has("of_the_old") && has("of_the_new"), "{first:?}");
        if build_id == "-Wl,--build-id" {
            assert!(
                first.values().all(|functions| functions.len() == 1),
                "{first:?}"
            );
        }
        let options = Options {
            kernel: KernelSource::None,
            ..Options::default()
        };
        name_again(&room.path("t.pqt"), options).expect("names");
        // The old file is gone: its frames keep their names, or lose them.
        for (place, functions) in own() {
            let before = &first[&place];
            let is_known = |function: &String| function == "-" || before.contains(function);
            assert!(
                functions.iter().all(is_known),
                "{place}: {before:?}, {functions:?}"
            );
        }
    }
}

/// Programs that were never in a file system, or are gone when the recording ends, have names.
#[test]
fn programs_in_memory_and_deleted_ones_have_names() {
    if !users_may_record() {
        return;
    }
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let room = Room::new();
        let Some(program) = room.compile("deep.c", &["-O2", build_id]) else {
            return;
        };
        fs::rename(&program, room.path("gone")).expect("it moves");
        if room.compile("in_memory.c", &[]).is_none() {
            return;
        }
        let script = "./gone 5 60000 & pid=$!
            ./in_memory gone 5 60000 &
            sleep 0.6; rm gone; wait";
        room.record(&["-g", "-e", "cpu-clock:u", "--", "bash", "-c", script]);
        let rows = room.rows("frames", &["module", "function"]);
        for module in ["/gone", "/memfd:my_program (deleted)"] {
            let leaf = format!("{module} leaf");
            let is_named = rows.iter().any(|row| row.ends_with(&leaf));
            assert!(is_named, "{build_id}: {module}: {rows:?}");
        }
        assert!(
            !rows.iter().any(|row| row.contains("/tmp/perf-")),
            "{rows:?}"
        );
    }
}

fn functions(trace: &Path) -> Vec<String> {
    use arrow::array::{Array, AsArray};
    let trace = perfquet_trace::store::Directory::open(trace).expect("a trace");
    let mut names = Vec::new();
    for batch in trace.read("frames").expect("frames") {
        let batch = batch.expect("a batch");
        let column = batch.column_by_name("function").expect("functions");
        let column = column.as_string::<i32>();
        names.extend(
            (0..column.len())
                .filter(|&row| column.is_valid(row))
                .map(|row| column.value(row).to_owned()),
        );
    }
    names
}
