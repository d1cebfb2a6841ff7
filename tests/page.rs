//! The scripts of pictures and of the report page: they are TypeScript, and their bundles are committed, so that building
//! perfquet needs no npm. Pages are opened in headless Chromium.

#[path = "page/code.rs"]
mod code;
#[path = "page/keys.rs"]
mod keys;
#[path = "page/kinds.rs"]
mod kinds;
#[path = "page/timeline.rs"]
mod timeline;
#[path = "page/truth.rs"]
mod truth;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use perfquet_tests::{bin, needs, root, skip};

const PAGE: &str = "query/page";

/// Bundles are compared with what `npm run build` makes of their sources, and the sources are checked for types.
#[test]
fn bundles_are_what_the_sources_build() {
    if !needs::met(&["npm"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page");
    copy(&root().join(PAGE), &page);
    let committed = files(&page.join("dist"));
    std::fs::remove_dir_all(page.join("dist")).unwrap();
    let installed = npm(
        &page,
        &["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
    );
    if let Err(error) = installed {
        // Everything else about the lock file is an error of ours.
        assert!(
            [
                "ENOTFOUND",
                "EAI_AGAIN",
                "ECONNREFUSED",
                "ETIMEDOUT",
                "ECONNRESET"
            ]
            .iter()
            .any(|code| error.contains(code)),
            "{error}"
        );
        skip("needs npm's registry");
        return;
    }
    npm(&page, &["run", "check"]).unwrap();
    npm(&page, &["run", "build"]).unwrap();
    let built = files(&page.join("dist"));
    for (name, content) in &built {
        let same = committed.iter().find(|(other, _)| other == name);
        assert!(
            same.is_some_and(|(_, other)| other == content),
            "{PAGE}/dist/{name} is stale: run `npm ci && npm run build` in {PAGE}"
        );
    }
    assert_eq!(built.len(), committed.len(), "{PAGE}/dist has other files");
}

fn npm(directory: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("npm")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "npm {}: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Copies a directory without what npm has installed in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() == "node_modules" => {}
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Names and contents of a directory's files, in order.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// The sums of a page are those of `top`, for several selections, and its search finds the share that `top` prints.
#[test]
fn pages_show_the_sums_of_top() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "stacks.txt", &stacks());
    let page = report(directory.path(), &[&trace]);
    for (fragment, options) in [
        ("", &[][..]),
        ("t=0s..4ms", &["--time", "0s..4ms"]),
        ("t=2ms..6.4ms", &["--time", "2ms..6.4ms"]),
        ("tid=220", &["--tid", "220"]),
        ("t=0s..8ms&tid=221", &["--time", "0s..8ms", "--tid", "221"]),
    ] {
        let shown = opened(&page, fragment);
        let mut found = rows_of_functions(&shown);
        let mut expected = top(&trace, options);
        // Incomplete stacks have no frames of which nothing is known.
        for rows in [&mut found, &mut expected] {
            rows.retain(|(name, _, _)| name != "[unknown]");
            rows.sort();
        }
        assert!(!expected.is_empty(), "{options:?}");
        assert_eq!(found, expected, "{fragment}");
    }
    let shown = opened(&page, "q=^work_inner$");
    let weight = between(&shown, "id=\"matched\" data-value=\"", "\"").unwrap();
    let of_top = top(&trace, &[]);
    let line = of_top.iter().find(|(name, _, _)| name == "work_inner");
    assert_eq!(weight, line.unwrap().2);
    // A stack with several matching functions counts once.
    for (fragment, condition) in [
        ("q=WORK_%7C^main$", "true"),
        (
            "q=WORK_%7C^main$&t=2ms..6.4ms",
            "time - start >= 2000000 AND time - start < 6400000",
        ),
        ("q=WORK_%7C^main$&tid=221", "tid = 221"),
    ] {
        let shown = opened(&page, fragment);
        let weight = between(&shown, "id=\"matched\" data-value=\"", "\"").unwrap();
        let has = ["user_stack", "kernel_stack"].map(|stack| {
            format!("regexp_like(stack_text({stack}), '(^|;)([^;]*work_|main(;|$))')")
        });
        let sql = format!(
            "SELECT sum(period) FROM samples, (SELECT min(time) AS start FROM samples) WHERE {condition} AND ({} OR {})",
            has[0], has[1]
        );
        let mut query = Command::new(bin("perfquet-query"));
        let rows = output(
            query
                .arg("sql")
                .arg(&trace)
                .arg(sql)
                .args(["--format", "csv"]),
        );
        assert_eq!(rows.lines().nth(1), Some(weight), "{fragment}");
    }
}

/// Names with markup, of 4,000 letters, from right to left; traces without samples; two traces.
#[test]
fn pages_of_hostile_and_of_empty_traces_open() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let markup = "</script><script>alert(1)</script><img/src=x>";
    let long = "f".repeat(4000);
    let hostile =
        format!("main;{markup};{long};\u{202e}gnimusnoc 3\nmain;{markup} 2\n\u{5e9}\u{5dc};b 1\n");
    let trace = converted(directory.path(), "hostile.folded", hostile.as_bytes());
    let shown = opened(&report(directory.path(), &[&trace]), "");
    assert!(
        shown.contains("&lt;/script&gt;&lt;script&gt;alert(1)"),
        "{shown}"
    );
    assert!(!shown.contains("<img"), "{shown}");
    let one = converted(directory.path(), "one.folded", b"a;b 1\n");
    assert!(opened(&report(directory.path(), &[&one]), "").contains("id=\"functions\""));
    let shown = opened(&report(directory.path(), &[&one, &trace]), "");
    assert!(shown.contains("percentage points"), "{shown}");
    let calls = root().join("formats/readers/src/kfi/golden");
    let calls = files(&calls)
        .into_iter()
        .find(|(name, _)| name.ends_with(".txt") || name.ends_with(".kfi"));
    if let Some((name, content)) = calls {
        let trace = converted(directory.path(), &name, &content);
        let shown = opened(&report(directory.path(), &[&trace]), "");
        assert!(shown.contains("id=\"durations\""), "{shown}");
    }
}

/// Traces with one sample, with nothing, with losses alone, with calls alone, and with scheduler events alone.
#[test]
fn pages_of_small_traces_have_the_panels_of_their_tables() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sample = "work 11 [001] 100.000000: 250 cycles:\n\t    401136 work+0x6 (/bin/work)\n\n";
    let header = "# tracer: nop\n#\n";
    let lost = format!("{header}CPU:1 [LOST 3 EVENTS]\n");
    let graph = "# tracer: function_graph\n#\n 0)               |  outer() {\n 0)   1.500 us    |    inner();\n 0)   4.250 us    |  }\n";
    for (name, text, panels) in [
        (
            "sample.txt",
            sample,
            &["time", "tracks", "threads", "stacks", "functions"][..],
        ),
        ("none.trace", header, &[]),
        ("losses.trace", &lost, &[]),
        (
            "calls.trace",
            graph,
            &["stacks", "functions", "durations", "slowest"],
        ),
        (
            "switches.trace",
            &switches(),
            &["time", "tracks", "threads", "stacks", "functions"],
        ),
    ] {
        let trace = converted(directory.path(), name, text.as_bytes());
        let shown = opened(&report(directory.path(), &[&trace]), "");
        for panel in [
            "time",
            "tracks",
            "threads",
            "stacks",
            "functions",
            "durations",
            "slowest",
        ] {
            let has = shown.contains(&format!("<section id=\"{panel}\""));
            assert_eq!(has, panels.contains(&panel), "{name}: {panel}");
        }
        assert_eq!(shown.contains("Lost: 3 "), name == "losses.trace", "{name}");
    }
}

/// The times of states in tracks are those of the view, also in a selection.
#[test]
fn tracks_have_the_times_of_thread_states() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", switches().as_bytes());
    let page = report(directory.path(), &[&trace]);
    for (fragment, from, to) in [
        ("", 0, i64::from(u32::MAX)),
        ("t=1ms..3ms", 1_000_000, 3_000_000),
        ("t=1ms..3ms&span=1.234567ms..2.5ms", 1_234_567, 2_500_000),
        ("span=0.4us..0.1s", 400, 100_000_000),
    ] {
        let shown = opened(&page, fragment);
        let table = between(&shown, "<section id=\"tracks\"", "</table>").unwrap();
        let mut found = Vec::new();
        for row in table.split_once("<tbody>").unwrap().1.split("<tr").skip(1) {
            let values = row.split("data-value=\"").skip(1);
            let values: Vec<&str> = values.map(|rest| rest.split('"').next().unwrap()).collect();
            found.push(format!("{},{}", values[5], values[..5].join(",")));
        }
        found.sort();
        let inside = format!(
            "greatest(0, least(time + duration, start + {to}) - greatest(time, start + {from}))"
        );
        let of =
            |states: &str| format!("coalesce(sum({inside}) FILTER (WHERE state IN ({states})), 0)");
        let sql = format!(
            "SELECT concat(comm, ' (', tid, ')') AS thread, {}, {}, {}, {}, {} FROM thread_states, (SELECT min(time) AS start FROM sched.sched_switch) \
             WHERE duration IS NOT NULL \
             GROUP BY 1 HAVING sum(duration) FILTER (WHERE state IN ('running', 'runnable', 'preempted', 'uninterruptible')) > 0 ORDER BY 1",
            of("'running'"),
            of("'runnable', 'preempted'"),
            of("'uninterruptible'"),
            of("'interruptible'"),
            of("'stopped', 'idle', 'parked', 'dead'")
        );
        let mut query = Command::new(bin("perfquet-query"));
        let rows = output(
            query
                .arg("sql")
                .arg(&trace)
                .arg(sql)
                .args(["--format", "csv"]),
        );
        let mut expected: Vec<&str> = rows.lines().skip(1).collect();
        // A thread without a state in this time has no row.
        expected.retain(|line| !line.ends_with(",0,0,0,0,0"));
        expected.sort_unstable();
        assert!(expected.len() > 3, "{rows}");
        assert_eq!(found, expected, "{fragment}");
    }
}

/// Switches between threads on two CPUs, with short and long stretches in every state.
fn switches() -> String {
    let mut text = "# tracer: nop\n#\n".to_owned();
    let mut running = [(0, "R"); 2];
    let mut time = 100_000_000u64;
    for step in 0..400u64 {
        let cpu = (step % 2) as usize;
        time += 3 + step * 7 % 41;
        let (before, _) = running[cpu];
        let next = match step % 5 {
            0 => 0,
            more => 10 + 2 * more + cpu as u64,
        };
        let state = ["S", "R", "D", "S", "R"][(step % 5) as usize];
        let name = |tid: u64| match tid {
            0 => format!("swapper/{cpu}"),
            tid => format!("work{tid}"),
        };
        text.push_str(&format!(
            "{:>16}-{before} [{cpu:03}] d..2. {}.{:06}: sched_switch: prev_comm={} prev_pid={before} prev_prio=120 prev_state={} ==> next_comm={} next_pid={next} next_prio=120\n",
            if before == 0 { "<idle>".to_owned() } else { name(before) },
            time / 1_000_000,
            time % 1_000_000,
            name(before),
            if before == 0 { "R" } else { state },
            name(next)
        ));
        running[cpu] = (next, state);
    }
    text
}

/// Samples of two threads.
fn stacks() -> Vec<u8> {
    let golden = root().join("formats/readers/src/perf_script/golden/stacks.txt");
    let text = std::fs::read_to_string(golden).unwrap();
    let mut samples: Vec<String> = text.split("\n\n").map(str::to_owned).collect();
    for sample in samples.iter_mut().step_by(3) {
        *sample = sample.replacen("workload   220 ", "workload   221 ", 1);
    }
    samples.join("\n\n").into_bytes()
}

fn converted(directory: &Path, name: &str, content: &[u8]) -> PathBuf {
    let input = directory.join(name);
    std::fs::write(&input, content).unwrap();
    let trace = input.with_extension("pqt");
    let mut convert = Command::new(bin("perfquet-convert"));
    convert.arg(&input).arg("-o").arg(&trace);
    output(convert.args(["--no-symbols", "--force"]));
    trace
}

fn report(directory: &Path, traces: &[&Path]) -> PathBuf {
    let page = directory.join("page.html");
    let mut query = Command::new(bin("perfquet-query"));
    output(
        query
            .arg("report")
            .args(traces)
            .arg("--force")
            .arg("-o")
            .arg(&page),
    );
    page
}

/// Name, self and total of every function.
fn top(trace: &Path, options: &[&str]) -> Vec<(String, String, String)> {
    let mut query = Command::new(bin("perfquet-query"));
    query
        .arg("top")
        .arg(trace)
        .args(["-n", "0", "--format", "csv"])
        .args(options);
    let text = output(&mut query);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (
            cells[4].to_owned(),
            cells[2].to_owned(),
            cells[3].to_owned(),
        )
    };
    text.lines().skip(1).map(row).collect()
}

/// The same, of the table in a page.
fn rows_of_functions(page: &str) -> Vec<(String, String, String)> {
    let table = between(page, "<section id=\"functions\"", "</table>").unwrap();
    let body = table.split_once("<tbody>").unwrap().1;
    let row = |row: &str| {
        let values: Vec<&str> = row
            .split("data-value=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap_or_default())
            .collect();
        (
            values[4].to_owned(),
            values[0].to_owned(),
            values[2].to_owned(),
        )
    };
    body.split("<tr").skip(1).map(row).collect()
}

/// Opens a page from disk and returns its document. Anything written to the console is a failure: a request would be
/// refused there.
fn opened(page: &Path, fragment: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut chromium = Command::new("chromium");
    chromium
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-extensions",
        ])
        .args([
            "--enable-logging=stderr",
            "--v=0",
            "--virtual-time-budget=3000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}#{fragment}", page.display()));
    let output = chromium.stdin(Stdio::null()).output().unwrap();
    let console: Vec<String> = String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .map(str::to_owned)
        .collect();
    assert!(console.is_empty(), "{console:?}");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("<footer"), "{shown}");
    shown
}

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    text.split_once(begin)?
        .1
        .split_once(end)
        .map(|(part, _)| part)
}
