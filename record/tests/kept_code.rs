//! `--keep-code`: the code of generated functions, of programs that are gone, and what processes cannot make of it.

mod room;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use room::{Room, needs, users_may_record};

/// `dec %rdi; jne; ret`, and the same with a nop.
const BEFORE: &str = "48ffcf75fbc3";
const AFTER: &str = "48ffcf9075fac3";

/// Module, size, machine, and the code in hexadecimal.
fn kept(room: &Room) -> Vec<[String; 4]> {
    if !room.path("t.pqt/code").exists() {
        return Vec::new();
    }
    let rows = room.rows("code", &["size", "machine", "code", "module"]);
    let rows = rows.into_iter().map(|row| {
        let mut cells = row.splitn(4, ' ').map(str::to_owned);
        let mut next = || cells.next().expect("four columns");
        let (size, machine, code, module) = (next(), next(), next(), next());
        [module, size, machine, code]
    });
    rows.collect()
}

fn remove_list(room: &Room) -> String {
    let pid = room.rows("samples", &["pid"])[0].clone();
    let list = format!("/tmp/perf-{pid}.map");
    assert!(fs::remove_file(&list).is_ok(), "{list}");
    list
}

#[cfg(target_arch = "x86_64")]
#[test]
fn each_version_of_generated_code_is_kept() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    if room.compile("kept.c", &["-O1"]).is_none() {
        return;
    }
    let stderr = room.record(&["--keep-code", "-e", "cpu-clock:u", "--", "./kept"]);
    assert!(
        stderr.contains("code of 1 function kept (1 KiB)"),
        "{stderr}"
    );
    let list = remove_list(&room);
    let rows = kept(&room);
    let versions: Vec<&str> = rows.iter().map(|row| &row[3][..]).collect();
    // The list says that it has 16 bytes.
    assert!(versions[0].starts_with(BEFORE), "{rows:?}");
    assert!(versions[1].starts_with(AFTER), "{rows:?}");
    assert_eq!(rows.len(), 2, "{rows:?}");
    for [module, size, machine, code] in &rows {
        assert_eq!((module, &size[..], &machine[..]), (&list, "16", "x86_64"));
        assert_eq!(code.len(), 32);
    }
    // It is the function of the frames.
    let starts: BTreeSet<String> = room.rows("code", &["function_start"]).into_iter().collect();
    let frames = room.rows("frames", &["address", "function_offset", "function"]);
    let of_function = frames.iter().filter_map(|row| {
        let mut cells = row.splitn(3, ' ');
        let (address, offset) = (cells.next()?, cells.next()?);
        let is_it = cells.next()? == "counts down";
        is_it
            .then(|| (address.parse::<u64>().unwrap() - offset.parse::<u64>().unwrap()).to_string())
    });
    let of_function: BTreeSet<String> = of_function.collect();
    assert_eq!(of_function, starts);
    // Its times are those of the recording.
    let times = room.rows("code", &["time"]);
    let samples = room.rows("samples", &["time"]);
    assert!(samples[0] < times[0] && times[0] < times[1], "{times:?}");

    // Without the option there is no table.
    room.record(&["-e", "cpu-clock:u", "--", "./kept"]);
    remove_list(&room);
    assert_eq!(kept(&room), [[""; 4]; 0]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_process_that_lies_about_its_functions_costs_little() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    if room.compile("kept.c", &["-O1"]).is_none() {
        return;
    }
    room.record(&["--keep-code", "-e", "cpu-clock:u", "--", "./kept", "lie"]);
    remove_list(&room);
    let rows = kept(&room);
    assert!(!rows.is_empty());
    for [_, size, _, code] in &rows {
        // Two gigabytes, of which the page of code was executable.
        assert_eq!(size, "2147483648");
        assert_eq!(code.len(), 2 * (4096 - 64));
    }
}

/// A memfd, and a file that is removed while it runs; a file that exists is not kept.
#[test]
fn code_of_files_that_are_gone_is_kept() {
    if !users_may_record() {
        return;
    }
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let room = Room::new();
        let Some(program) = room.compile("deep.c", &["-O2", build_id]) else {
            return;
        };
        fs::copy(&program, room.path("gone")).expect("a copy");
        if room.compile("in_memory.c", &[]).is_none() {
            return;
        }
        let script =
            "./gone 5 60000 & ./in_memory deep 5 60000 & ./deep 5 60000 & sleep 0.6; rm gone; wait";
        let words = [
            "--keep-code",
            "-e",
            "cpu-clock:u",
            "--",
            "bash",
            "-c",
            script,
        ];
        room.record(&words);
        let rows = kept(&room);
        let code_in = |module: &str| {
            let of_module = rows.iter().filter(|row| row[0].ends_with(module));
            let code: BTreeSet<&str> = of_module.map(|row| &row[3][..]).collect();
            code
        };
        let gone = code_in("/gone");
        assert!(!gone.is_empty(), "{build_id}: {rows:?}");
        // The same program, in which samples hit the same functions, but perhaps not all.
        let in_memory = code_in("/memfd:my_program (deleted)");
        let both = gone.intersection(&in_memory).count();
        assert!(both > 0, "{build_id}: {rows:?}");
        assert!(code_in("/deep").is_empty(), "{build_id}: {rows:?}");
        // Bytes are those of the file.
        let file = fs::read(&program).expect("the program");
        for code in gone {
            let bytes: Vec<u8> = (0..code.len() / 2)
                .map(|at| u8::from_str_radix(&code[2 * at..2 * at + 2], 16).expect("hexadecimal"))
                .collect();
            assert!(file.windows(bytes.len()).any(|found| found == bytes));
        }
    }
}

/// Functions that Node's compiler has optimized.
#[test]
fn code_of_javascript_functions_is_kept() {
    if !users_may_record() || !needs::met(&["node"]) {
        return;
    }
    let room = Room::new();
    let script = "function spin(x) { let s = 0; for (let i = 0; i < 1e4; i++) s += Math.sqrt(x + i); return s }\n\
        let end = Date.now() + 2500, s = 0; while (Date.now() < end) s += spin(s % 7)";
    fs::write(room.path("spin.js"), script).expect("written");
    let words = ["--keep-code", "-e", "cpu-clock:u", "--"];
    let node = ["node", "--perf-basic-prof", "spin.js"];
    room.record(&[&words[..], &node].concat());
    remove_list(&room);
    let rows = kept(&room);
    let is_generated = |row: &&[String; 4]| row[0].starts_with("/tmp/perf-");
    assert!(rows.iter().any(|row| is_generated(&row)), "{rows:?}");
    let frames = room.rows("frames", &["function"]);
    assert!(
        frames.iter().any(|name| name.contains("spin ")),
        "{frames:?}"
    );
}

/// Methods that a running JVM has compiled.
#[test]
fn code_of_java_methods_is_kept() {
    if !users_may_record() || !needs::met(&["a Java compiler"]) {
        return;
    }
    let room = Room::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/Spin.java");
    let compiled = Command::new("javac")
        .args(["-d", ".", source])
        .current_dir(room.path(""))
        .status();
    assert!(compiled.is_ok_and(|status| status.success()));
    let java = ["java", "-cp", ".", "Spin", "4"];
    room.record(&[&["--keep-code", "-e", "cpu-clock:u", "--"][..], &java].concat());
    let starts = room.rows("code", &["function_start", "module"]);
    let frames = room.rows(
        "frames",
        &["address", "function_offset", "module", "function"],
    );
    let sampled = frames.iter().filter_map(|row| {
        let mut cells = row.splitn(4, ' ');
        let (address, offset) = (
            cells.next()?.parse::<u64>().ok()?,
            cells.next()?.parse::<u64>().ok()?,
        );
        let module = cells.next()?;
        cells
            .next()?
            .contains("Spin.")
            .then(|| format!("{} {module}", address - offset))
    });
    assert!(
        sampled.into_iter().any(|start| starts.contains(&start)),
        "{frames:?}"
    );
}

#[test]
fn a_flight_recorder_keeps_no_code() {
    let room = Room::new();
    for other in [&["--ring", "5s"][..], &["--format", "perf.data"]] {
        let (status, stderr) = room.run(&[other, &["--keep-code", "-a"]].concat());
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains("--keep-code"), "{stderr}");
    }
    let (status, stderr) = room.run(&["--keep-code", "--dry-run", "--", "true"]);
    assert_eq!(status, Some(0), "{stderr}");
}
