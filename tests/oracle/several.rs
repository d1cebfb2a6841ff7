//! Data in several places that is one thing: an event whose fields changed, several traces in one query.
//!
//! The inputs are generated in the layout of perf script; all results come from the programs themselves.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use perfquet_tests::bin;

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(bin(program)).args(arguments).output().unwrap()
}

/// The output of a program, which must succeed.
pub(crate) fn printed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn sql(traces: &[&str], question: &str) -> String {
    let mut arguments = vec!["sql"];
    arguments.extend(traces);
    arguments.extend([question, "--format", "csv"]);
    let text = printed("perfquet-query", &arguments);
    text.lines().skip(1).collect::<Vec<_>>().join("\n")
}

pub(crate) fn import(folder: &Path, name: &str, texts: &[String]) -> String {
    let trace = folder.join(format!("{name}.pqt")).display().to_string();
    let mut arguments = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let path = folder.join(format!("{name}{number}.txt"));
        std::fs::write(&path, text).unwrap();
        arguments.push(path.display().to_string());
    }
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.extend(["--no-symbols", "-f", "-o", &trace]);
    printed("perfquet-convert", &arguments);
    trace
}

/// Lines of one event with these fields, a microsecond apart.
pub(crate) fn hits(first: u32, count: u32, fields: &str) -> String {
    let mut text = String::new();
    for number in first..first + count {
        let (seconds, micros) = (1 + number / 1_000_000, number % 1_000_000);
        let fields = fields.replace('N', &number.to_string());
        writeln!(
            text,
            "prog   100/100   [001]     {seconds}.{micros:06}: my:my_event: {fields}"
        )
        .unwrap();
    }
    text
}

const BEFORE: &str = "size=N flags=3";
const AFTER: &str = "size=900000000N name=x";

#[test]
fn trace_dat_of_two_kernels_are_two_traces_of_one_query() {
    let golden = perfquet_tests::place::root().join("formats/readers/src/trace_dat/golden");
    // Linux 7.3 records the written string too: its sys_enter_write has fields that 6.12 lacks.
    let files = ["events-v7.dat", "events-7.3.dat"].map(|name| golden.join(name));
    let [older, newer] = files.each_ref().map(|file| file.display().to_string());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let import = |name: &str, input: &str| {
        let trace = path(name);
        printed("perfquet-convert", &[input, "--no-symbols", "-o", &trace]);
        trace
    };
    // Neither the clock nor the threads of one are those of the other.
    let both = path("both.pqt");
    let refused = run(
        "perfquet-convert",
        &[&older, &newer, "--no-symbols", "-o", &both],
    );
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && !Path::new(&both).exists());
    assert!(stderr.contains("cannot be in one trace with"), "{stderr}");
    assert!(stderr.contains("perfquet-query align"), "{stderr}");
    let apart = [import("old.pqt", &older), import("new.pqt", &newer)];
    let apart = apart.each_ref().map(String::as_str);
    for question in [
        "SELECT count(*), count(fd), count(count), sum(count) FROM sys_enter_write",
        "SELECT count(*), count(prev_comm), sum(prev_state) FROM sched_switch",
    ] {
        let alone = apart.map(|trace| sql(&[trace], question));
        let sums = |column: usize| -> i64 {
            let cell = |row: &String| row.split(',').nth(column).unwrap().parse::<i64>().unwrap();
            alone.iter().map(cell).sum()
        };
        let row = sql(&apart, question);
        for (column, cell) in row.split(',').enumerate() {
            assert_eq!(cell.parse::<i64>().unwrap(), sums(column), "{question}");
        }
    }
}

#[test]
fn an_event_whose_fields_changed_keeps_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (hits(1, 20_000, BEFORE), hits(20_001, 30_000, AFTER));
    // The fields change within one input, between two, and between two traces.
    let one = import(folder.path(), "one", &[before.clone() + &after]);
    let two = import(folder.path(), "two", &[before.clone(), after.clone()]);
    let (first, second) = (
        import(folder.path(), "first", &[before]),
        import(folder.path(), "second", &[after]),
    );
    let both = [first.as_str(), second.as_str()];
    for traces in [&[one.as_str()][..], &[two.as_str()], &both] {
        let ask = |question: &str| sql(traces, question);
        assert_eq!(
            ask(
                "SELECT count(*), count(size), count(flags), count(name), count(DISTINCT size) FROM my_event"
            ),
            "50000,50000,20000,30000,50000",
            "{traces:?}"
        );
        assert_eq!(
            ask("SELECT count(*) FROM events WHERE event = 'my_event'"),
            "50000"
        );
        assert_eq!(
            ask("SELECT sum(rows) FROM event_types WHERE event = 'my_event'"),
            "50000"
        );
        assert_eq!(
            ask("SELECT max(size), min(size) FROM my_event"),
            "90000000050000,1"
        );
        assert_eq!(
            ask("SELECT count(*) FROM my_event WHERE size > 20000"),
            "30000"
        );
        assert_eq!(
            ask("SELECT count(*) FROM my_event WHERE flags = 3 AND name IS NULL"),
            "20000"
        );
        assert_eq!(
            ask(
                "SELECT count(*) FROM (SELECT time, lag(time) OVER (ORDER BY time) AS last FROM my_event) WHERE last > time"
            ),
            "0"
        );
        let report = |name: &str, more: &[&str]| {
            let mut arguments = vec![name];
            arguments.extend(traces);
            arguments.extend(more);
            printed("perfquet-query", &arguments)
        };
        let counted = report("agg", &["-e", "my:my_event", "--format", "csv"]);
        assert!(counted.contains("50000"), "{counted}");
        let top = report(
            "top",
            &["--by", "comm", "-e", "my:my_event", "--format", "csv"],
        );
        assert!(top.contains("50000"), "{top}");
        let distribution = report("hist", &["size", "-e", "my:my_event", "--format", "csv"]);
        let counts = distribution.lines().skip(1).map(|line| {
            let count = line.rsplit(',').next().unwrap();
            count.parse::<u64>().unwrap()
        });
        assert_eq!(counts.sum::<u64>(), 50_000, "{distribution}");
    }
    for trace in [&one, &two] {
        let tables = printed("perfquet-query", &["tables", trace, "--format", "csv"]);
        assert_eq!(
            tables
                .lines()
                .filter(|line| line.contains("my_event"))
                .count(),
            1,
            "{tables}"
        );
        let script = printed("perfquet-convert", &[trace, "--to", "perf-script"]);
        let lines: Vec<&str> = script
            .lines()
            .filter(|line| line.contains("my:my_event"))
            .collect();
        assert_eq!(lines.len(), 50_000);
        assert_eq!(
            lines.iter().filter(|line| line.contains("flags=3")).count(),
            20_000
        );
        assert_eq!(
            lines.iter().filter(|line| line.contains("name=x")).count(),
            30_000
        );
        let folded = printed("perfquet-convert", &[trace, "--to", "folded"]);
        assert_eq!(folded, "prog 50000\n");
        duckdb(trace);
    }
}

/// DuckDB unites the parts by itself.
fn duckdb(trace: &str) {
    let known = Command::new("python3")
        .args(["-c", "import duckdb"])
        .output();
    if !known.is_ok_and(|output| output.status.success()) {
        perfquet_tests::skip("needs duckdb for Python (pip install duckdb)");
        return;
    }
    let program = "import duckdb, sys\n\
        parts = sys.argv[1] + '/events/my/my_event/*.parquet'\n\
        print(duckdb.sql(f\"select count(*), count(size), count(flags), count(name), count(distinct size) from read_parquet('{parts}', union_by_name=true)\").fetchall())";
    let output = Command::new("python3")
        .args(["-c", program, trace])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let rows = String::from_utf8_lossy(&output.stdout);
    assert_eq!(rows.trim(), "[(50000, 50000, 20000, 30000, 50000)]");
}

/// Samples with stacks of three frames, the leaf one of `leaves`.
fn samples(count: u32, leaves: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        let leaf = number % leaves;
        write!(
            text,
            "prog   100/100   [001]     1.{number:06}:     250000 cycles:u: \n\
             \t    {:x} leaf{leaf}+0x1 (/bin/prog)\n\t    2000 middle+0x1 (/bin/prog)\n\t    1000 main+0x1 (/bin/prog)\n\n",
            0x3000 + leaf
        )
        .unwrap();
    }
    text
}

#[test]
fn ids_of_several_traces_do_not_collide() {
    let folder = tempfile::tempdir().unwrap();
    let traces = [(300, 5), (200, 7), (100, 3)].map(|(count, leaves)| {
        import(
            folder.path(),
            &format!("s{count}"),
            &[samples(count, leaves)],
        )
    });
    let all: Vec<&str> = traces.iter().map(String::as_str).collect();
    let number = |traces: &[&str], question: &str| sql(traces, question).parse::<u64>().unwrap();
    for question in [
        "SELECT count(*) FROM samples s JOIN stack_frames() f ON f.stack_id = s.user_stack",
        "SELECT count(*) FROM samples s JOIN stacks k ON k.stack_id = s.user_stack JOIN frames f ON f.frame_id = k.frame_id",
        "SELECT count(*) FROM stacks a JOIN stacks b ON a.parent_id = b.stack_id",
        "SELECT count(*) FROM stacks WHERE parent_id = 0",
        "SELECT count(*) FROM events e JOIN stacks k ON k.stack_id = e.user_stack",
        "SELECT count(*) FROM samples WHERE stack_text(user_stack) LIKE 'main;middle;leaf%'",
        "SELECT count(DISTINCT user_stack) FROM samples",
        "WITH RECURSIVE up AS (SELECT user_stack AS id FROM samples UNION ALL SELECT s.parent_id FROM up JOIN stacks s ON s.stack_id = up.id WHERE s.parent_id > 0) SELECT count(*) FROM up",
    ] {
        let each: u64 = all.iter().map(|trace| number(&[trace], question)).sum();
        assert_eq!(number(&all, question), each, "{question}");
        assert!(each > 0);
    }
    // IDs of the first trace are unchanged; those of the others are found by their own IDs only.
    assert_eq!(
        sql(
            &all[..1],
            "SELECT min(user_stack), max(user_stack) FROM samples"
        ),
        sql(
            &all,
            "SELECT min(user_stack), max(user_stack) FROM samples WHERE trace = 's300'"
        ),
    );
    let last = sql(&all, "SELECT max(user_stack) FROM samples");
    for (table, condition) in [
        ("samples", format!("user_stack = {last}")),
        ("stacks", format!("stack_id = {last}")),
        (
            "stack_frames()",
            format!("stack_id = {last} AND position = 0"),
        ),
        (&format!("stack_frames({last})"), "position = 0".to_owned()),
    ] {
        let question = format!("SELECT DISTINCT trace FROM {table} WHERE {condition}");
        assert_eq!(sql(&all, &question), "s100", "{question}");
    }
    let plan = printed(
        "perfquet-query",
        &[
            &["sql"],
            &all[..],
            &["EXPLAIN SELECT time FROM samples WHERE user_stack = 3 AND time > 1000000100"],
        ]
        .concat(),
    );
    assert!(
        plan.contains("predicate="),
        "conditions go to the parts: {plan}"
    );
    let top = |traces: &[&str]| {
        printed(
            "perfquet-query",
            &[&["top"], traces, &["-n", "0", "--format", "csv"]].concat(),
        )
    };
    assert!(top(&all).contains("leaf6"), "{}", top(&all));
}

#[test]
fn reports_on_an_incomplete_trace_print_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let trace = import(folder.path(), "a", &[samples(10, 2)]);
    // The state left by a recorder killed early.
    let manifest = Path::new(&trace).join("manifest.json");
    let empty = r#"{ "version": 1, "state": "recording", "tables": {} }"#;
    std::fs::write(manifest, empty).unwrap();
    for arguments in [
        &["info", &trace][..],
        &["sql", &trace, "SELECT count(*) FROM samples"],
        &["sql", &trace, "SELECT count(*) FROM events"],
        &["tables", &trace],
    ] {
        let output = run("perfquet-query", arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        assert!(stderr.contains("incomplete"), "{arguments:?}: {stderr}");
        assert!(stderr.contains("samples"), "{arguments:?}: {stderr}");
    }
    for report in ["top", "calls", "durations", "hist", "agg"] {
        let output = run("perfquet-query", &[report, &trace]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("incomplete"), "{report}: {stderr}");
        assert!(!stderr.contains("no table"), "{report}: {stderr}");
    }
}

#[test]
fn images_follow_the_rule_of_all_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = import(folder.path(), "a", &[samples(10, 2)]);
    let picture = folder.path().join("a.svg").display().to_string();
    let draw = |more: &[&str]| {
        run(
            "perfquet-query",
            &[&["flamegraph", &trace, "-o", &picture], more].concat(),
        )
    };
    assert!(draw(&[]).status.success());
    let refused = draw(&[]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && stderr.contains("hint: use --force"),
        "{stderr}"
    );
    assert!(draw(&["--force"]).status.success());
    let kept = folder.path().join("kept");
    std::fs::rename(&picture, &kept).unwrap();
    std::os::unix::fs::symlink(&kept, &picture).unwrap();
    let before = std::fs::read(&kept).unwrap();
    let refused = draw(&["--force", "--title", "other"]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && stderr.contains("symbolic link"),
        "{stderr}"
    );
    assert_eq!(std::fs::read(&kept).unwrap(), before);
}
