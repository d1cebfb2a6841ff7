//! Perf maps of runtimes with a just-in-time compiler.

mod room;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use room::{Room, needs, users_may_record};

/// Functions of frames in perf maps.
fn compiled(room: &Room) -> Vec<String> {
    let frames = room.rows("frames", &["module", "function"]);
    let mut names: Vec<String> = frames
        .iter()
        .filter_map(|row| row.strip_prefix("/tmp/perf-")?.split_once(".map "))
        .map(|(_, function)| function.to_owned())
        .collect();
    names.sort_unstable();
    names
}

/// Compiles Spin.java.
fn java(room: &Room) -> bool {
    if !users_may_record() || !needs::met(&["a Java compiler"]) {
        return false;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/Spin.java");
    let mut compiler = Command::new("javac");
    compiler.arg("-d").arg(room.path("")).arg(source);
    assert!(compiler.status().is_ok_and(|status| status.success()));
    true
}

/// Runs the recorder on a command, whose stdout is returned before stderr.
fn recorded(room: &Room, arguments: &[&str]) -> (String, String) {
    let mut recorder = room.recorder();
    recorder.args([
        "--force",
        "-o",
        "t.pqt",
        "-e",
        "cpu-clock:u",
        "-F",
        "499",
        "-g",
    ]);
    let output = recorder.args(arguments).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn java_writes_a_perf_map() {
    let room = Room::new();
    if !java(&room) {
        return;
    }
    let (stdout, stderr) = recorded(&room, &["--", "java", "-cp", ".", "Spin", "4"]);
    assert_eq!(stdout, "spun true\n");
    let names = compiled(&room);
    let has = |name: &str| names.iter().any(|known| known.contains(name));
    assert!(
        has("Spin.middle(double)") || has("Spin.inner(double)"),
        "{names:?}"
    );
    assert!(has("Interpreter"), "{names:?}");
    // Without rules of its code.
    let needs_an_option = stderr.contains("run java with -XX:+PreserveFramePointer");
    let is_walked = cfg!(target_arch = "x86_64") && needs::met(&["root"]);
    assert_eq!(needs_an_option, !is_walked, "{stderr}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn java_stacks_are_whole_without_an_option() {
    let room = Room::new();
    if !java(&room) || !needs::met(&["root"]) {
        return;
    }
    for options in [
        &[][..],
        &["-Xint"],
        &["-XX:-TieredCompilation"],
        &["-XX:TieredStopAtLevel=1"],
    ] {
        let run = ["-v", "--", "java"];
        let (_, stderr) = recorded(
            &room,
            &[&run[..], options, &["-cp", ".", "Spin", "4"]].concat(),
        );
        let stacks = stacks_of_samples(&room);
        let is_of = |stack: &&Vec<Frame>, name: &str| {
            stack.iter().any(|(function, _)| function.contains(name))
        };
        let is_java = |stack: &&Vec<Frame>| is_of(stack, "Spin.") || is_of(stack, "Interpreter");
        let of_java: Vec<&Vec<Frame>> = stacks.iter().filter(is_java).collect();
        let whole = of_java
            .iter()
            .filter(|stack| is_of(stack, "JavaMain"))
            .count();
        // The others are from before the compiled code was seen.
        assert!(
            of_java.len() > 300 && whole * 10 >= of_java.len() * 6,
            "{options:?}: {whole} of {}: {stderr}",
            of_java.len()
        );
    }
}

#[test]
fn java_that_keeps_frame_pointers_needs_no_hint() {
    let room = Room::new();
    if !java(&room) {
        return;
    }
    let flag = "-XX:+PreserveFramePointer";
    let (_, stderr) = recorded(&room, &["--", "java", flag, "-cp", ".", "Spin", "3"]);
    assert!(!stderr.contains(flag), "{stderr}");
}

/// Neither a thread dump nor a map, and no dead process.
#[test]
fn java_without_attach_mechanism_gets_no_signal() {
    let room = Room::new();
    if !java(&room) {
        return;
    }
    let flag = "-XX:+DisableAttachMechanism";
    for other in ["-XX:+UsePerfData", "-XX:-UsePerfData"] {
        let (stdout, stderr) =
            recorded(&room, &["--", "java", flag, other, "-cp", ".", "Spin", "3"]);
        assert_eq!(stdout, "spun true\n");
        assert!(
            stderr.contains("the JVM was started with -XX:+DisableAttachMechanism"),
            "{stderr}"
        );
    }
}

#[test]
fn no_runtime_maps_sends_no_request() {
    let room = Room::new();
    if !java(&room) {
        return;
    }
    let arguments = ["--no-runtime-maps", "--", "java", "-cp", ".", "Spin", "2"];
    let (stdout, stderr) = recorded(&room, &arguments);
    assert_eq!(stdout, "spun true\n");
    assert!(!stderr.contains("java"), "{stderr}");
    assert!(compiled(&room).iter().all(|name| name == "-"));
}

/// A running process gets a request at the end.
#[test]
fn attached_java_gets_a_request_at_the_end() {
    let room = Room::new();
    if !java(&room) {
        return;
    }
    let mut spin = Command::new("java");
    spin.args(["-cp", ".", "Spin", "100"])
        .current_dir(room.path(""));
    let mut spin = spin.stdout(Stdio::null()).spawn().expect("java runs");
    // By then, its functions are compiled.
    room::wait_for_cpu_time(spin.id(), Duration::from_secs(2));
    let pid = spin.id().to_string();
    recorded(&room, &["-p", &pid, "--duration", "500ms"]);
    let is_running = spin.try_wait().expect("our child").is_none();
    spin.kill().and_then(|()| spin.wait()).expect("our child");
    assert!(is_running, "it did not survive");
    let names = compiled(&room);
    assert!(names.iter().any(|name| name.contains("Spin.")), "{names:?}");
}

#[test]
fn node_without_a_perf_map_gets_a_hint() {
    if !users_may_record() || !needs::met(&["node"]) {
        return;
    }
    let room = Room::new();
    let script = "function spin(x) { let s = 0; for (let i = 0; i < 1e4; i++) s += Math.sqrt(x + i); return s }\n\
        let end = Date.now() + 1500, s = 0; while (Date.now() < end) s += spin(s % 7)";
    fs::write(room.path("spin.js"), script).expect("written");
    let unread = "--no-interpreter-frames";
    let (_, stderr) = recorded(&room, &[unread, "--", "node", "spin.js"]);
    let hint = "run node with --perf-basic-prof --interpreted-frames-native-stack";
    assert!(stderr.contains(hint), "{stderr}");
    let flags = [
        unread,
        "--",
        "node",
        "--perf-basic-prof",
        "--interpreted-frames-native-stack",
        "spin.js",
    ];
    let (_, stderr) = recorded(&room, &flags);
    assert!(!stderr.contains(hint), "{stderr}");
    let names = compiled(&room);
    assert!(names.iter().any(|name| name.contains("spin ")), "{names:?}");
}

/// All versions of Node.js here that are supported.
fn nodes() -> Vec<String> {
    let named = std::env::var("PERFQUET_NODES").unwrap_or_default();
    let named = named.split_whitespace().map(str::to_owned);
    let check = "process.exit(process.versions.node.split('.')[0] < 18)";
    let is_supported = |node: &String| {
        let status = Command::new(node).args(["-e", check]).status();
        status.is_ok_and(|status| status.success())
    };
    let all = std::iter::once("node".to_owned()).chain(named);
    all.filter(is_supported).collect()
}

const NODE_FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/functions.js");

/// What functions.js calls below its outermost function: names and the lines where they start.
const NODE_CALLS: [&str; 10] = [
    "plain:18",
    "construct:30;Shop:11",
    "method:31;order:12",
    "getter:32;get price:13",
    "callback:33;(anonymous):33",
    "sorted:34;(anonymous):34",
    "recursion:35;recursive:20;recursive:20;recursive:20;recursive:20",
    "generate:36;generator:24",
    "evaluated:37;(anonymous):-",
    "straßeÜber:38",
];

#[cfg(target_arch = "x86_64")]
#[test]
fn javascript_functions_replace_frames_without_names() {
    if !users_may_record() || !needs::met(&["root", "Node.js 18"]) {
        return;
    }
    for node in nodes() {
        let room = Room::new();
        // The compiler merges functions into their callers.
        let arguments = ["-v", "--", &node, "--no-opt", NODE_FUNCTIONS, "3"];
        let (_, stderr) = recorded(&room, &arguments);
        assert!(!stderr.contains("have no names"), "{node}: {stderr}");
        let places = room.rows("frames", &["module", "function", "line"]);
        let is_javascript =
            |(function, line): &&Frame| places.contains(&format!("[javascript] {function} {line}"));
        let mut found: HashMap<String, usize> = HashMap::new();
        let mut spins = 0;
        for stack in stacks_of_samples(&room) {
            let names: Vec<String> = stack
                .iter()
                .filter(is_javascript)
                .map(|(function, line)| format!("{function}:{line}"))
                .collect();
            if names.last().is_none_or(|last| last != "spin:4") {
                continue;
            }
            spins += 1;
            let of_program = names.iter().rposition(|name| name == "(anonymous):1");
            let calls = names.get(of_program.map_or(0, |at| at + 1)..names.len() - 1);
            *found
                .entry(calls.unwrap_or_default().join(";"))
                .or_default() += 1;
        }
        assert!(spins > 300, "{node}: {spins} samples in spin: {stderr}");
        let known: usize = NODE_CALLS
            .iter()
            .filter_map(|calls| found.get(*calls))
            .sum();
        assert!(
            known * 100 >= spins * 98,
            "{node}: {known} of {spins}: {found:?}"
        );
        for calls in NODE_CALLS {
            let count = found.get(calls).copied().unwrap_or(0);
            assert!(
                count > 5,
                "{node}: {count} of {spins} in {calls}: {found:?}"
            );
        }
    }
}

/// Runs dotnet.py.
fn dotnet(how: &str, seconds: &str) -> Option<(Room, String, String)> {
    if !users_may_record() || !needs::met(&["python3"]) {
        return None;
    }
    let room = Room::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/dotnet.py");
    let folder = room.path("").display().to_string();
    let arguments = ["--", "python3", script, &folder, how, seconds];
    let (stdout, stderr) = recorded(&room, &arguments);
    Some((room, stdout, stderr))
}

#[test]
fn dotnet_writes_a_perf_map() {
    let Some((room, stdout, stderr)) = dotnet("map", "3") else {
        return;
    };
    // Enabled without a jitdump, and disabled again.
    assert!(
        stdout.starts_with("asked 0405 03000000\nasked 0406\n"),
        "{stdout}; {stderr}"
    );
    let names = compiled(&room);
    let spin = "void [App] Program::Spin()[OptimizedTier1]";
    assert!(names.iter().any(|name| name == spin), "{names:?}");
}

#[test]
fn dotnet_before_8_is_reported() {
    let Some((_, stdout, stderr)) = dotnet("old", "2") else {
        return;
    };
    assert!(stdout.contains("asked 0405 03000000\n"), "{stdout}");
    assert!(!stdout.contains("asked 0406"), "{stdout}");
    assert!(stderr.contains(".NET 8 or later is required"), "{stderr}");
}

#[test]
fn silent_runtime_does_not_hold_the_recorder() {
    let began = Instant::now();
    if dotnet("silent", "2").is_some() {
        let took = began.elapsed();
        assert!(took < Duration::from_secs(12), "{took:?}");
    }
}

/// A socket of another process gets no command.
#[test]
fn another_listener_gets_no_command() {
    if let Some((_, stdout, stderr)) = dotnet("foreign", "2") {
        assert!(!stdout.contains("asked"), "{stdout}");
        assert!(
            stderr.contains("another process listens on its socket"),
            "{stderr}"
        );
    }
}

/// A function and a line.
type Frame = (String, String);

/// Runs functions.py with an interpreter. Returns the stacks of its samples, outermost first, as functions and lines; no line
/// without a file.
fn python_stacks(room: &Room, python: &str, options: &[&str]) -> Vec<Vec<Frame>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/functions.py");
    let arguments = [options, &["--", python, script, "3"]].concat();
    recorded(room, &arguments);
    stacks_of_samples(room)
}

/// Returns the stacks of all samples, outermost first; no line without a file.
fn stacks_of_samples(room: &Room) -> Vec<Vec<Frame>> {
    let frames: HashMap<String, (String, String)> = room
        .rows("frames", &["frame_id", "function", "line"])
        .iter()
        .filter_map(|row| {
            let (id, rest) = row.split_once(' ')?;
            let (function, line) = rest.rsplit_once(' ')?;
            Some((id.to_owned(), (function.to_owned(), line.to_owned())))
        })
        .collect();
    let nodes: HashMap<String, (String, String)> = room
        .rows("stacks", &["stack_id", "parent_id", "frame_id"])
        .iter()
        .filter_map(|row| {
            let mut words = row.split(' ').map(str::to_owned);
            Some((words.next()?, (words.next()?, words.next()?)))
        })
        .collect();
    let stacks = room.rows("samples", &["user_stack"]);
    let stack = |id: &String| {
        let mut stack = Vec::new();
        let mut id = id.clone();
        while let Some((parent, frame)) = nodes.get(&id) {
            stack.push(frames.get(frame).cloned().unwrap_or_default());
            id.clone_from(parent);
        }
        stack.reverse();
        stack
    };
    stacks.iter().map(stack).collect()
}

/// All interpreters here that are supported.
fn pythons() -> Vec<String> {
    let home = std::env::var("HOME").unwrap_or_default();
    let installed = fs::read_dir(format!("{home}/.pyenv/versions"))
        .into_iter()
        .flatten();
    let installed = installed
        .flatten()
        .map(|entry| entry.path().join("bin/python3"));
    let system = ["3.11", "3.12", "3.13", "3.14"].map(|minor| format!("/usr/bin/python{minor}"));
    let all = system
        .into_iter()
        .chain(installed.map(|path| path.display().to_string()));
    let is_supported = |python: &String| {
        let check = "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))";
        let status = Command::new(python).args(["-c", check]).status();
        status.is_ok_and(|status| status.success())
    };
    all.filter(is_supported).collect()
}

#[test]
fn python_functions_replace_the_interpreter() {
    let pythons = pythons();
    if !users_may_record() || !needs::met(&["root", "Python 3.11"]) {
        return;
    }
    for python in &pythons {
        let room = Room::new();
        let stacks = python_stacks(&room, python, &[]);
        let functions = |stack: &[(String, String)]| -> Vec<String> {
            stack.iter().map(|(function, _)| function.clone()).collect()
        };
        let all: Vec<Vec<String>> = stacks.iter().map(|stack| functions(stack)).collect();
        let with = |wanted: &[&str]| {
            let has = |stack: &&Vec<String>| {
                let mut found = stack.iter();
                wanted
                    .iter()
                    .all(|name| found.any(|function| function == name))
            };
            all.iter().filter(has).count()
        };
        let count = all.len();
        // Called from Python, from C, as a generator from C, in a thread.
        let key = with(&[
            "<module>",
            "main",
            "work",
            "list_sort_impl",
            "Keys.key",
            "Keys.spin",
        ]) + with(&[
            "<module>",
            "main",
            "work",
            "builtin_sorted",
            "Keys.key",
            "Keys.spin",
        ]) + with(&["<module>", "main", "work", "Keys.key", "Keys.spin"]);
        assert!(key > 20, "{python}: {key} of {count}");
        let generator = with(&["<module>", "main", "work", "produce", "Keys.spin"]);
        assert!(generator > 20, "{python}: {generator} of {count}");
        let thread = with(&["Thread._bootstrap", "in_thread", "Keys.spin"]);
        assert!(thread > 20, "{python}: {thread} of {count}");
        // Each function is below its caller. Only Python functions have lines.
        let callers = [
            ("Keys.spin", &["Keys.key", "produce", "in_thread"][..]),
            ("Keys.key", &["work"]),
            ("produce", &["work"]),
            ("main", &["<module>"]),
            ("work", &["main"]),
            ("in_thread", &["Thread.run"]),
        ];
        for stack in &stacks {
            let of_python = stack.iter().filter(|(_, line)| line != "-");
            let names: Vec<&str> = of_python.map(|(name, _)| name.as_str()).collect();
            for (function, callers) in callers {
                let Some(index) = names.iter().position(|found| *found == function) else {
                    continue;
                };
                let caller = index.checked_sub(1).map(|before| names[before]);
                assert!(
                    caller.is_some_and(|found| callers.contains(&found)),
                    "{stack:?}"
                );
            }
        }
        // The interpreter itself is in the first samples only, before its frames are known, and at the start and end.
        let interpreted = with(&["_PyEval_EvalFrameDefault"]);
        assert!(
            interpreted * 4 < count,
            "{python}: {interpreted} of {count}"
        );
        let lines_of = |wanted: &str| {
            let lines = stacks.iter().flatten();
            let lines = lines.filter(|(function, _)| function == wanted);
            lines
                .map(|(_, line)| line.clone())
                .collect::<BTreeSet<String>>()
        };
        // Line 9 while it is entered.
        let expected = ["9", "10", "11", "12", "13"].map(str::to_owned);
        let spin = lines_of("Keys.spin");
        assert!(
            spin.contains("12") && spin.iter().all(|line| expected.contains(line)),
            "{spin:?}"
        );
        // Line 15 while it is entered.
        let key = lines_of("Keys.key");
        assert!(
            key.contains("16") && key.iter().all(|line| line == "15" || line == "16"),
            "{key:?}"
        );
        assert!(lines_of("<module>").contains("44"));
    }
}

#[test]
fn python_frames_are_not_read_on_request() {
    if !users_may_record() || !needs::met(&["root", "Python 3.11"]) {
        return;
    }
    let room = Room::new();
    let stacks = python_stacks(&room, "python3", &["--no-python-frames"]);
    let has = |wanted: &str| {
        stacks
            .iter()
            .flatten()
            .any(|(function, _)| function == wanted)
    };
    assert!(has("_PyEval_EvalFrameDefault"));
    assert!(!has("Keys.spin"));
}

const RUBY_FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/functions.rb");

/// All interpreters of Ruby here that are supported, and have the symbols that it takes.
fn rubies() -> Vec<String> {
    let all = [
        "/usr/bin/ruby3.1",
        "/usr/bin/ruby3.3",
        "/usr/local/bin/ruby",
    ];
    let named = std::env::var("PERFQUET_RUBIES").unwrap_or_default();
    let named = named.split_whitespace().map(str::to_owned);
    let check = r"exit %w[3.1 3.3].include?(RUBY_VERSION[/^\d+\.\d+/])";
    let is_supported = |ruby: &String| {
        let status = Command::new(ruby).args(["-e", check]).status();
        status.is_ok_and(|status| status.success())
    };
    let all = all.into_iter().map(str::to_owned);
    all.chain(named).filter(is_supported).collect()
}

/// Functions in C, which Ruby lists among the callers with the lines of their callers.
const IN_C: [&str; 6] = ["each", "map", "times", "sort_by", "loop", "resume"];

#[test]
fn ruby_functions_replace_the_interpreter() {
    if !users_may_record() || !needs::met(&["root", "Ruby 3.1 or 3.3"]) {
        return;
    }
    for ruby in rubies() {
        let room = Room::new();
        let arguments = ["-v", "--", &ruby, RUBY_FUNCTIONS, "3", "report"];
        let (stdout, stderr) = recorded(&room, &arguments);
        // What Ruby says about each kind of call, but the lines of the first and last: the program is called from another line
        // when it reports, and the innermost method runs all of its lines.
        let said: BTreeSet<Vec<String>> = stdout
            .lines()
            .filter_map(|line| line.strip_prefix("calls: "))
            .map(|calls| {
                let calls = calls.split(';');
                let of_ruby =
                    calls.filter(|call| !IN_C.contains(&call.split(':').next().unwrap_or("")));
                let without_last = of_ruby.map(|call| match call.starts_with("spin:") {
                    true => "spin".to_owned(),
                    false => call.to_owned(),
                });
                let of_program = without_last.skip_while(|call| call.starts_with("<main>"));
                of_program.collect()
            })
            .collect();
        assert_eq!(said.len(), 5, "{stdout}");
        let stacks = stacks_of_samples(&room);
        let places = room.rows("frames", &["module", "file", "line", "function"]);
        let is_of_ruby = |(function, line): &&Frame| {
            let is_it = |row: &String| row.ends_with(&format!("functions.rb {line} {function}"));
            line != "-" && places.iter().any(is_it)
        };
        let mut found: HashMap<Vec<String>, usize> = HashMap::new();
        for stack in &stacks {
            let of_ruby: Vec<&Frame> = stack.iter().filter(is_of_ruby).collect();
            let Some(("spin", line)) = of_ruby.last().map(|(name, line)| (name.as_str(), line))
            else {
                continue;
            };
            let line: u32 = line.parse().expect("a number");
            assert!((5..=13).contains(&line), "{ruby}: line {line} of spin");
            let names = of_ruby.iter().map(|(name, line)| match name.as_str() {
                "spin" => name.clone(),
                _ => format!("{name}:{line}"),
            });
            let names = names.skip_while(|name| {
                let mut all = ["<main>:", "main:"].into_iter();
                all.any(|outermost| name.starts_with(outermost))
            });
            *found.entry(names.collect()).or_default() += 1;
        }
        let all: usize = found.values().sum();
        assert!(all > 300, "{ruby}: {all} samples in spin: {stderr}");
        // In a method that is being entered, a caller's counter may not have moved.
        let said_of = |calls: &Vec<String>| said.contains(calls);
        let known: usize = found
            .iter()
            .filter(|(calls, _)| said_of(calls))
            .map(|(_, count)| count)
            .sum();
        let unknown: Vec<_> = found.iter().filter(|(calls, _)| !said_of(calls)).collect();
        assert!(
            known * 100 >= all * 98,
            "{ruby}: {known} of {all}, not {unknown:?}"
        );
        for calls in &said {
            let count = found.get(calls).copied().unwrap_or(0);
            assert!(count > 5, "{ruby}: {count} of {all} in {calls:?}");
        }
        // The interpreter itself is in the first samples only, and at the start and end.
        let is_interpreted = |stack: &&Vec<Frame>| {
            let names = stack.iter().map(|(name, _)| name.as_str());
            { names }.any(|name| name == "rb_vm_exec" || name == "vm_exec")
        };
        let interpreted = stacks.iter().filter(is_interpreted).count();
        assert!(
            interpreted * 4 < stacks.len(),
            "{ruby}: {interpreted} of {}",
            stacks.len()
        );
    }
}

#[test]
fn interpreter_frames_are_not_read_on_request() {
    if !users_may_record() || !needs::met(&["root", "Ruby 3.1 or 3.3"]) {
        return;
    }
    for option in ["--no-interpreter-frames", "--no-python-frames"] {
        let room = Room::new();
        recorded(&room, &[option, "--", "ruby", RUBY_FUNCTIONS, "0.5"]);
        let stacks = stacks_of_samples(&room);
        assert!(
            !stacks
                .iter()
                .flatten()
                .any(|(function, _)| function == "spin")
        );
    }
}
