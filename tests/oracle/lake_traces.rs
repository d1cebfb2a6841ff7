//! A lake opened as traces answers as the traces themselves: every table, view and report.

use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, root};

use super::lake::publish;
use super::several::{hits, import, printed};

/// Inputs, below `formats/readers/src`: three kernels, two formats.
const INPUTS: [&str; 7] = [
    "perf_data/golden/mono.data",
    "perf_data/golden/open-files.data",
    "perf_data/golden/stat.data",
    "perf_data/golden/user-regs.data",
    "trace_dat/golden/events-7.3.dat",
    "trace_dat/golden/events-v7.dat",
    "trace_dat/golden/graph-events.dat",
];

/// Fields that a lake renames or widens, and kinds that differ by trace.
const FIELDS: [&str; 3] = [
    "size=-N flags=3 host=a trace=7 wall_time=N",
    "size=18446744073709551615 name=x host=N Name=y date=2",
    "size=N wall_time=x flags=t",
];

/// Reports with options, without traces.
pub(crate) const REPORTS: [&[&str]; 25] = [
    &["agg", "size", "--by", "trace"],
    &["calls"],
    &["calls", "--tree"],
    &["critical-path"],
    &["durations"],
    &["durations", "--by", "trace"],
    &["durations", "--event", "sched_switch"],
    &["findings"],
    &["flamegraph"],
    &["heatmap"],
    &["hist", "duration"],
    &["io"],
    &["locks"],
    &["plot", "SELECT time, size FROM my_event"],
    &["syscalls"],
    &["top"],
    &["top", "--by", "comm"],
    &["top", "--by", "event"],
    &["top", "--by", "module"],
    &["top", "--by", "trace"],
    &["top", "--callers"],
    &["utilization"],
    &["wakers"],
    &["waits"],
    &["waits", "--by", "comm"],
];

/// The traces, in the order in which the lake has them, and the lake.
pub(crate) fn traces_and_lake(folder: &Path) -> (Vec<String>, String) {
    let mut traces = Vec::new();
    for (number, input) in INPUTS.iter().enumerate() {
        let input = root().join("formats/readers/src").join(input);
        let input = input.display().to_string();
        let trace = folder.join(format!("{number}.pqt")).display().to_string();
        printed("perfquet-convert", &[&input, "--no-symbols", "-o", &trace]);
        traces.push(trace);
    }
    // An event of which one trace has two forms.
    for (number, fields) in FIELDS.iter().enumerate() {
        let mut texts = vec![hits(1, 400, fields)];
        if number == 2 {
            texts.push(hits(401, 300, FIELDS[0]));
        }
        traces.push(import(folder, &format!("{}", 7 + number), &texts));
    }
    let lake = folder.join("lake").display().to_string();
    for (number, trace) in traces.iter().enumerate() {
        let partition = format!("date=2026-11-2{},host=h{number}", number / 4);
        publish(trace, &lake, &partition);
    }
    (traces, format!("lake:{lake}"))
}

/// Output and success of a query.
fn asked(traces: &[String], words: &[&str]) -> (bool, Vec<String>) {
    let mut command = Command::new(bin("perfquet-query"));
    command.arg(words[0]).args(traces).args(&words[1..]);
    let output = command.output().unwrap();
    let success = output.status.success();
    let text = match success {
        true => output.stdout,
        false => output.stderr,
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if success {
        // The order of rows without ORDER BY is undefined.
        lines.sort();
    } else {
        lines.retain(|line| !line.contains(".pqt") && !line.contains("lake:"));
    }
    (success, lines)
}

/// One function, because all questions compare the same lake with its traces.
#[test]
fn a_lake_answers_as_its_traces() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, lake) = traces_and_lake(folder.path());
    let lake = [lake];
    let names = "SELECT DISTINCT table_name FROM (SELECT table_schema || '.' || table_name AS table_name \
                 FROM information_schema.tables WHERE table_catalog = 'perfquet') ORDER BY 1";
    let (is_known, tables) = asked(&traces, &["sql", names, "--format", "csv"]);
    assert!(is_known, "{tables:?}");
    let (mut compared, mut rows) = (0, 0);
    let mut check = |words: &[&str]| {
        let expected = asked(&traces, words);
        let found = asked(&lake, words);
        assert!(
            found == expected,
            "{words:?}: {}",
            difference(&found.1, &expected.1)
        );
        compared += 1;
        rows += if found.0 { found.1.len() } else { 0 };
        found.0
    };
    let tables: Vec<String> = tables
        .into_iter()
        .filter(|name| name != "table_name" && !name.starts_with("information_schema."))
        .collect();
    assert!(tables.len() > 45, "{tables:?}");
    for table in &tables {
        let what = match table.as_str() {
            "main.trace_info" => "SELECT * FROM trace_info WHERE name NOT IN ('path', 'host', \
                                  'lake.date', 'lake.recorded_host')"
                .to_owned(),
            table => format!("SELECT * FROM {table}"),
        };
        check(&["sql", &what, "--format", "csv"]);
        check(&["sql", &format!("DESCRIBE {table}"), "--format", "csv"]);
    }
    for sql in [
        "SELECT trace, count(*), min(time), max(time) FROM events GROUP BY trace",
        "SELECT trace, event, count(*) FROM events GROUP BY ALL",
        "SELECT count(*), sum(size), min(size), max(size) FROM my_event",
        "SELECT host, trace, count(*) FROM my_event GROUP BY ALL",
        "SELECT count(*) FROM my_event WHERE host = 'a'",
        "SELECT count(*) FROM my_event WHERE host = '7' OR flags = '3'",
        "SELECT count(*) FROM my_event WHERE arg_trace = 7",
        "SELECT count(*) FROM my_event WHERE name LIKE '%x%'",
        "SELECT time, size FROM my_event ORDER BY time DESC LIMIT 7",
        "SELECT count(*) FROM my_event WHERE time BETWEEN 1000100000 AND 1000200000",
        "SELECT prev_comm, count(*), sum(prev_state) FROM sched_switch GROUP BY ALL",
        "SELECT stack_text(coalesce(user_stack, kernel_stack)), count(*) FROM samples GROUP BY ALL",
        "SELECT trace, function, count(*) FROM calls GROUP BY ALL",
        "SELECT count(*) FROM mappings WHERE start_address >= 9223372036854775808",
        "SELECT module, count(*) FROM frames WHERE space = 'kernel' GROUP BY ALL",
    ] {
        assert!(check(&["sql", sql, "--format", "csv"]), "{sql}");
    }
    for report in REPORTS {
        let mut words = report.to_vec();
        if !words.contains(&"--format") {
            words.extend(["--format", "csv"]);
        }
        check(&words);
    }
    assert!(
        compared > 130 && rows > 5_000,
        "{compared} answers, {rows} rows"
    );
    // One of the traces, by what selects it.
    for (select, trace) in [
        ("host=h4", 4),
        ("trace=6", 6),
        ("date=2026-11-22&host=h[89]*&trace=9", 9),
    ] {
        let alone = [format!("{}?{select}", lake[0])];
        let sql = [
            "sql",
            "SELECT event, count(*), min(time) FROM events GROUP BY 1",
            "--format",
            "csv",
        ];
        assert_eq!(
            asked(&alone, &sql),
            asked(&traces[trace..=trace], &sql),
            "{select}"
        );
    }
    // The dates of its directories, by which SQL groups traces.
    let sql = "SELECT value, count(*) FROM trace_info WHERE name = 'lake.date' GROUP BY 1";
    let (_, dates) = asked(&lake, &["sql", sql, "--format", "csv"]);
    assert_eq!(
        dates,
        [
            "2026-11-20,4",
            "2026-11-21,4",
            "2026-11-22,2",
            "value,count(*)"
        ]
    );
    // In front of other traces, behind them, and twice.
    let mixed = [
        traces[8].clone(),
        format!("{}?host=h7", lake[0]),
        format!("{}?trace=7", lake[0]),
    ];
    let both = [traces[8].clone(), traces[7].clone()];
    let sql = ["sql", "SELECT * FROM my_event", "--format", "csv"];
    assert_eq!(asked(&mixed, &sql), asked(&both, &sql));
    // Sides of a comparison.
    let sides = [
        format!("{}?host=h0", lake[0]),
        format!("{}?host=h3", lake[0]),
    ];
    let diff = ["diff", "--format", "csv"];
    assert_eq!(
        asked(&sides, &diff),
        asked(&[traces[0].clone(), traces[3].clone()], &diff)
    );
}

/// All traces in one partition, whose files are merged: a table has the rows of several traces in one row group.
#[test]
fn a_compacted_lake_answers_as_its_traces() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, _) = traces_and_lake(folder.path());
    let merged = folder.path().join("merged").display().to_string();
    let mut words: Vec<&str> = traces.iter().map(String::as_str).collect();
    words.extend(["--to", "lake", "-o", &merged, "--compact"]);
    words.extend(["--partition", "date=2026-11-22,host=h"]);
    printed("perfquet-convert", &words);
    let lake = [format!("lake:{merged}")];
    for sql in [
        "SELECT * FROM samples",
        "SELECT * FROM my_event",
        "SELECT * FROM event_types",
        "SELECT * FROM threads",
        "SELECT * FROM frames",
        "SELECT * FROM sched_switch ORDER BY time LIMIT 7",
        "SELECT * FROM syscalls",
        "SELECT trace, event, count(*), min(time) FROM events GROUP BY ALL",
        "SELECT count(*) FROM my_event WHERE host = '7' OR name LIKE '%x%'",
        "SELECT stack_text(coalesce(user_stack, kernel_stack)), count(*) FROM samples GROUP BY ALL",
    ] {
        let words = ["sql", sql, "--format", "csv"];
        let (expected, found) = (asked(&traces, &words), asked(&lake, &words));
        assert!(
            expected.0 && found == expected,
            "{sql}: {}",
            difference(&found.1, &expected.1)
        );
    }
}

/// The first lines that differ.
pub(crate) fn difference(found: &[String], expected: &[String]) -> String {
    let place = found.iter().zip(expected).position(|(a, b)| a != b);
    let place = place.unwrap_or(found.len().min(expected.len()));
    let some = |lines: &[String]| {
        lines
            .iter()
            .skip(place)
            .take(3)
            .cloned()
            .collect::<Vec<_>>()
    };
    format!(
        "{} and {} lines; line {place}:\nlake   {:?}\ntraces {:?}",
        found.len(),
        expected.len(),
        some(found),
        some(expected)
    )
}

/// A lake with three traces.
fn small_lake(folder: &Path) -> String {
    let lake = folder.join("lake").display().to_string();
    for (number, fields) in FIELDS.iter().enumerate() {
        let trace = import(folder, &format!("t{number}"), &[hits(1, 50, fields)]);
        let partition = format!("date=2026-11-20,host=h{number}");
        publish(&trace, &lake, &partition);
    }
    lake
}

const COUNT: &str = "SELECT count(*) AS n FROM my_event";

/// Output and messages.
fn counted(lake: &str) -> (String, String) {
    let mut command = Command::new(bin("perfquet-query"));
    command.args(["sql", lake, COUNT, "--format", "csv"]);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// One function, because its cases damage one lake, one after the other.
#[test]
fn what_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let lake = small_lake(folder.path());
    let error = |select: &str| counted(&format!("lake:{lake}{select}")).1;
    let expect = |select: &str, words: &[&str]| {
        let found = error(select);
        for word in words {
            assert!(found.contains(word), "{select}: {found}");
        }
    };
    expect("x", &["no such lake"]);
    let others = ["no matching traces among 3 traces; hosts: h0, h1, h2; dates: 2026-11-20"];
    expect("?host=x*", &others);
    expect("?date=2026-12-*&host=h1", &others);
    expect(
        "?rack=1",
        &["unknown key \"rack\": expected host, date or trace"],
    );
    expect("?trace=t0-0000000000000000", &["no matching traces"]);
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let found = counted(&format!("lake:{}", empty.display())).1;
    assert!(
        found.contains("expected a lake, found no _perfquet/lake.json"),
        "{found}"
    );
    assert_eq!(
        counted(&format!("lake:{lake}")),
        ("n\n150\n".to_owned(), String::new())
    );

    let own = Path::new(&lake).join("_perfquet");
    let mut records: Vec<_> = std::fs::read_dir(own.join("traces"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    records.sort();
    let name = |record: &Path| record.file_stem().unwrap().to_str().unwrap().to_owned();
    // A writer was killed while the second trace got its files.
    let record = std::fs::read_to_string(&records[1]).unwrap();
    let change = format!("{{\"moves\":[],\"deletes\":[],\"records\":[{record}],\"forget\":[]}}");
    std::fs::write(own.join("pending.json"), change).unwrap();
    let (rows, notes) = counted(&format!("lake:{lake}"));
    assert_eq!(rows, "n\n100\n");
    let left = format!("1 trace left out, half published: {}", name(&records[1]));
    assert!(notes.contains(&left), "{notes}");
    expect("?trace=t1", &["no matching traces", &left]);
    assert_eq!(
        counted(&format!("lake:{lake}?trace=t2")),
        ("n\n50\n".to_owned(), String::new())
    );
    std::fs::remove_file(own.join("pending.json")).unwrap();

    // A manifest that is damaged, that lies, that is a link, and none.
    let manifest = own
        .join("manifests")
        .join(format!("{}.json", name(&records[1])));
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    expect("", &["manifests/t1-", "damaged"]);
    std::fs::write(
        &manifest,
        text.replace("\"file_rows\":50", "\"file_rows\":49"),
    )
    .unwrap();
    expect("", &["expected 50 rows of 49, found them from row 0"]);
    std::fs::write(
        &manifest,
        text.replace("\"first_row\":0", "\"first_row\":7"),
    )
    .unwrap();
    expect("", &[", found them from row 7"]);
    std::fs::write(
        &manifest,
        text.replace("\"file\":\"threads/", "\"file\":\"../threads/"),
    )
    .unwrap();
    expect("", &["expected paths inside the trace"]);
    let elsewhere = folder.path().join("manifest");
    std::fs::write(&elsewhere, &text).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    let (rows, notes) = counted(&format!("lake:{lake}"));
    assert_eq!(rows, "n\n100\n");
    assert!(
        notes.contains("1 trace of an earlier version of the lake"),
        "{notes}"
    );
    std::os::unix::fs::symlink(&elsewhere, &manifest).unwrap();
    expect("", &["expected no symbolic link in a lake"]);
    std::fs::remove_file(&manifest).unwrap();
    std::fs::write(&manifest, &text).unwrap();

    // A file of the lake that is gone, or a link.
    let file = format!(
        "{lake}/events/my/my_event/date=2026-11-20/host=h1/{}.parquet",
        name(&records[1])
    );
    let moved = folder.path().join("moved");
    std::fs::rename(&file, &moved).unwrap();
    expect(
        "",
        &[
            "expected a file of the lake, found none",
            "open the lake again",
        ],
    );
    std::os::unix::fs::symlink(&moved, &file).unwrap();
    expect("", &["found a symbolic link"]);
    std::fs::remove_file(&file).unwrap();
    std::fs::copy(&moved, &file).unwrap();
    assert_eq!(counted(&format!("lake:{lake}")).0, "n\n150\n");
    // A later version.
    let head = own.join("lake.json");
    std::fs::write(&head, "{\"version\":9,\"partition\":[\"host\"]}").unwrap();
    expect("", &["unsupported version 9 of a lake"]);
}

#[test]
fn a_lake_that_is_written_at_the_same_time_has_whole_traces() {
    let folder = tempfile::tempdir().unwrap();
    let lake = small_lake(folder.path());
    let more = import(folder.path(), "more", &[hits(1, 7, FIELDS[0])]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The same trace at other places.
            for number in 0.. {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let partition = format!("date=2026-11-20,host=x{}", number % 2);
                publish(&more, &lake, &partition);
            }
        });
        let mut answers = std::collections::BTreeMap::<String, u32>::new();
        for _ in 0..40 {
            let (rows, notes) = counted(&format!("lake:{lake}"));
            let is_changed = notes.contains("open the lake again");
            assert!(
                rows == "n\n150\n" || rows == "n\n157\n" || is_changed,
                "{rows}{notes}"
            );
            *answers.entry(rows).or_default() += 1;
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(answers.contains_key("n\n157\n"), "{answers:?}");
    });
}
