//! Reports on terminals of 80, 120 and 200 columns, beside the same report without a terminal: no line is wider than the terminal, no
//! row becomes a record, no number and no name is cut, and functions keep their own names.

use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, needs, root};

/// Stacks with names of C++ and Rust, long ones of C, and paths of modules.
const LONG_NAMES: &str = "\
app;std::rt::lang_start_internal;rustc_query_impl::plumbing::execute_query::<rustc_middle::ty::TyCtxt, rustc_hir::def_id::LocalDefId>::{closure#0} 41000
app;std::rt::lang_start_internal;alloc::collections::btree::map::BTreeMap<alloc::string::String, core::option::Option<u64>>::insert 23000
app;native_queued_spin_lock_slowpath_of_a_kernel_with_long_names 17000
app;std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_replace(unsigned long, unsigned long, char const*, unsigned long) 9000
app;main 5000
";

/// Input, report and options.
const REPORTS: &[(&str, &[&str])] = &[
    ("tests/sql/sched.trace", &["waits"]),
    ("tests/sql/sched.trace", &["waits", "--sort", "max"]),
    ("tests/sql/sched.trace", &["waits", "--by", "thread,state"]),
    ("tests/sql/sched.trace", &["wakers"]),
    ("tests/sql/sched.trace", &["utilization", "--step", "50us"]),
    ("tests/sql/sched.trace", &["utilization", "--by", "thread"]),
    ("tests/sql/sched.trace", &["critical-path", "--tid", "20"]),
    (
        "tests/sql/sched.trace",
        &["critical-path", "--tid", "20", "--parts"],
    ),
    ("tests/sql/sched.trace", &["tables"]),
    ("tests/sql/locks.trace", &["locks"]),
    ("tests/sql/locks.trace", &["locks", "--by", "owner,address"]),
    ("tests/sql/system_calls.trace", &["syscalls"]),
    (
        "tests/sql/system_calls.trace",
        &["syscalls", "--by", "comm,name,error"],
    ),
    ("tests/sql/block_io.trace", &["io"]),
    (
        "tests/sql/block_io.trace",
        &["io", "--by", "comm,device,op"],
    ),
    ("tests/sql/cpus.trace", &["utilization"]),
    (
        "formats/readers/src/trace_dat/golden/graph-events.dat",
        &["durations"],
    ),
    (
        "formats/readers/src/trace_dat/golden/graph-events.dat",
        &["durations", "--by", "caller,comm"],
    ),
    (
        "formats/readers/src/trace_dat/golden/graph-events.dat",
        &["agg", "duration", "--by", "function,comm"],
    ),
    (
        "formats/readers/src/trace_dat/golden/graph-events.dat",
        &["top", "--by", "event"],
    ),
    (
        "formats/readers/src/trace_dat/golden/graph-events.dat",
        &[
            "diff",
            "--before-where",
            "cpu = 0",
            "--after-where",
            "cpu = 1",
        ],
    ),
    ("long.folded", &["top"]),
    ("long.folded", &["top", "--sort", "total"]),
    ("long.folded", &["top", "--by", "module"]),
    ("long.folded", &["diff", "--before-where", "TRUE"]),
];

/// Columns that may be shortened: not what is typed into other commands.
const SHORTENED: [&str; 8] = [
    "function",
    "caller",
    "slowest_child",
    "reason",
    "why",
    "module",
    "path",
    "timeline",
];

#[test]
fn reports_fit_terminals_without_cut_numbers_and_names() {
    if !needs::met(&["script"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let folded = directory.path().join("long.folded");
    std::fs::write(&folded, LONG_NAMES).unwrap();
    let mut wrong = Vec::new();
    for (input, arguments) in REPORTS {
        let path = match *input {
            "long.folded" => folded.clone(),
            input => root().join(input),
        };
        let name = path.file_stem().unwrap().to_str().unwrap();
        let trace = directory.path().join(format!("{name}.pqt"));
        if !trace.exists() {
            super::import(&path, &trace).unwrap();
        }
        let whole = Table::parse(&printed(&trace, arguments, None));
        for columns in [80, 120, 200] {
            let text = printed(&trace, arguments, Some(columns));
            let report = format!("{} of {input} at {columns}", arguments.join(" "));
            let faults = faults(&text, &whole, columns);
            wrong.extend(faults.into_iter().map(|fault| format!("{report}: {fault}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Findings on terminals: no line is wider, and nothing is missing beside what is printed without a terminal.
#[test]
fn findings_fit_the_terminal() {
    if !needs::met(&["script"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for input in [
        "formats/readers/src/folded/golden/dd.folded",
        "tests/sql/sched.trace",
        "tests/sql/failures_of_one_process.strace",
    ] {
        let input = root().join(input);
        let name = input.file_stem().unwrap().to_str().unwrap();
        let trace = directory.path().join(format!("{name}.pqt"));
        super::import(&input, &trace).unwrap();
        let letters = |text: &str| -> String {
            let letters = text.chars().filter(|letter| !letter.is_whitespace());
            letters.filter(|letter| *letter != '\\').collect()
        };
        let whole = printed(&trace, &["findings"], None);
        for width in [80, 120] {
            let text = printed(&trace, &["findings"], Some(width));
            // A path is a word of its own, which stays whole.
            let wide = text.lines().filter(|line| {
                let has_words = line.split_whitespace().nth(1).is_some();
                line.chars().count() > width && has_words && !line.ends_with(".pqt \\")
            });
            let wide: Vec<&str> = wide.collect();
            assert!(wide.is_empty(), "{name} at {width}: {wide:?}");
            assert_eq!(letters(&text), letters(&whole), "{name} at {width}");
        }
    }
}

/// Twenty levels of calls on 80 columns: columns and indentation go, names do not.
#[test]
fn trees_of_calls_keep_the_names_of_functions() {
    if !needs::met(&["script"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut text, mut ends) = ("# tracer: function_graph\n#\n".to_owned(), String::new());
    let name = |depth: usize| format!("a_function_of_the_kernel_with_number_{depth}");
    for depth in 0..20 {
        let indentation = "  ".repeat(depth);
        text.push_str(&format!(
            " 0)               |  {indentation}{}() {{\n",
            name(depth)
        ));
        ends.insert_str(
            0,
            &format!(" 0)   {:8.3} us |  {indentation}}}\n", 900.0 - depth as f64),
        );
    }
    let input = directory.path().join("deep.trace");
    std::fs::write(&input, text + &ends).unwrap();
    let trace = directory.path().join("deep.pqt");
    super::import(&input, &trace).unwrap();
    let tree = printed(&trace, &["calls", "--tree", "--min-percent", "0"], Some(80));
    for depth in 0..20 {
        let name = name(depth);
        let is_whole = |line: &str| line.trim_end().ends_with(&name);
        assert!(tree.lines().any(is_whole), "{tree}");
    }
    for line in tree.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// Facts, findings, notes on stderr, and calls: no line is wider than the terminal, and no letter is lost.
#[test]
fn facts_notes_and_calls_fit_terminals() {
    if !needs::met(&["script"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (input, arguments) in [
        ("tests/sql/sched.trace", &["info"][..]),
        (
            "formats/readers/src/trace_dat/golden/graph-events.dat",
            &["info"],
        ),
        (
            "formats/readers/src/trace_dat/golden/graph-events.dat",
            &["calls", "-n", "30"],
        ),
        (
            "formats/readers/src/trace_dat/golden/graph-events.dat",
            &["top", "--by", "event"],
        ),
        ("tests/sql/sched.trace", &["findings"]),
        ("tests/sql/system_calls.trace", &["findings"]),
        ("tests/sql/sched.trace", &["top"]),
        ("tests/sql/sched.trace", &["utilization"]),
        ("tests/sql/sched.trace", &["diff", "--before-where", "TRUE"]),
    ] {
        let path = root().join(input);
        let name = path.file_stem().unwrap().to_str().unwrap();
        let trace = directory.path().join(format!("{name}.pqt"));
        if !trace.exists() {
            super::import(&path, &trace).unwrap();
        }
        let whole = with_notes(&trace, arguments, None);
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        for columns in [80, 120, 200] {
            let text = with_notes(&trace, arguments, Some(columns));
            let report = format!("{} of {input} at {columns}", arguments.join(" "));
            // A command of findings stays on one line, to be copied.
            let wide = text.lines().filter(|line| {
                line.chars().count() > columns && !line.trim_start().starts_with("perfquet-query ")
            });
            wrong.extend(wide.map(|line| format!("{report}: too wide: {line}")));
            let is_whole = ["info", "findings"].contains(&arguments[0]);
            if is_whole && letters(&text) != letters(&whole) {
                wrong.push(format!("{report}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Traces that perf and trace-cmd recorded.
const RECORDED: [&str; 8] = [
    "tests/corpus/perf-data/6.12/cpu-clock-a.data",
    "tests/corpus/perf-data/6.12/cpu-clock-dwarf.data",
    "tests/corpus/perf-data/6.12/page-faults.data",
    "tests/corpus/perf-data/6.12/tracepoints.data",
    "tests/corpus/perf-data/6.12/uprobe-g.data",
    "tests/corpus/trace-cmd/6.12/events-v7.dat",
    "tests/corpus/trace-cmd/6.12/graph-deep.dat",
    "tests/corpus/trace-cmd/6.12/irq-timer.dat",
];

const EVERY: [&[&str]; 14] = [
    &["top"],
    &["top", "--by", "thread"],
    &["top", "--by", "module"],
    &["top", "--by", "event"],
    &["durations"],
    &["diff", "--before-where", "cpu = 0"],
    &["waits"],
    &["wakers"],
    &["syscalls"],
    &["locks"],
    &["io"],
    &["utilization"],
    &["utilization", "--by", "thread"],
    &["tables"],
];

/// Every report of recorded traces that have its events.
#[test]
fn every_report_of_recorded_traces_fits_terminals() {
    if !needs::met(&["script"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for input in RECORDED {
        let trace = directory.path().join("t.pqt");
        if trace.exists() {
            std::fs::remove_dir_all(&trace).unwrap();
        }
        super::import(&root().join(input), &trace).unwrap();
        for arguments in EVERY {
            // Many reports have fewer rows than these.
            let arguments = match arguments[0] {
                "tables" => arguments.to_vec(),
                _ => [arguments, &["-n", "200"]].concat(),
            };
            let Some(whole) = attempt(&trace, &arguments, None, "2>/dev/null") else {
                continue;
            };
            let whole = Table::parse(&whole);
            if whole.rows.is_empty() {
                continue;
            }
            count += 1;
            for columns in [80, 120, 200] {
                let text = printed(&trace, &arguments, Some(columns));
                let report = format!("{} of {input} at {columns}", arguments.join(" "));
                let faults = faults(&text, &whole, columns);
                wrong.extend(faults.into_iter().map(|fault| format!("{report}: {fault}")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    // Events differ, so that no trace has all reports.
    assert!(count >= 40, "{count} reports");
}

/// The percentage that does not order the rows is omitted before the module.
#[test]
fn top_names_modules_at_80_columns() {
    if !needs::met(&["script"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (input, trace) = (
        directory.path().join("modules.txt"),
        directory.path().join("modules.pqt"),
    );
    let sample = "work 77 [000] 50.000000: 10000000 cpu-clock: \n\
        \t401000 a_function_of_a_library_whose_name_has_48_letters+0x4 (/usr/lib/x86_64-linux-gnu/libc.so.6)\n\n";
    std::fs::write(&input, sample).unwrap();
    super::import(&input, &trace).unwrap();
    for (sort, shown) in [("self", "self_percent"), ("total", "total_percent")] {
        let text = printed(&trace, &["top", "--sort", sort], Some(80));
        let table = Table::parse(&text);
        assert_eq!(table.headings, [shown, "function", "module"], "{text}");
    }
}

#[test]
fn columns_without_values_are_hidden() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("sched.pqt");
    super::import(&root().join("tests/sql/sched.trace"), &trace).unwrap();
    let options = ["critical-path", "--tid", "20", "--time", "..100us"];
    let text = printed(&trace, &[&options[..], &["--parts"]].concat(), None);
    let expected = ["seconds", "duration", "depth", "comm", "tid", "state"];
    assert_eq!(Table::parse(&text).headings, expected, "{text}");
}

/// The report, on a terminal of so many columns or without one.
fn printed(trace: &Path, arguments: &[&str], columns: Option<usize>) -> String {
    run(trace, arguments, columns, "2>/dev/null")
}

/// The report with its notes.
fn with_notes(trace: &Path, arguments: &[&str], columns: Option<usize>) -> String {
    run(trace, arguments, columns, "2>&1")
}

fn run(trace: &Path, arguments: &[&str], columns: Option<usize>, stderr: &str) -> String {
    let text = attempt(trace, arguments, columns, stderr);
    text.unwrap_or_else(|| panic!("{} fails", arguments.join(" ")))
}

/// The same; `None` for a report that fails.
fn attempt(
    trace: &Path,
    arguments: &[&str],
    columns: Option<usize>,
    stderr: &str,
) -> Option<String> {
    let mut words = vec![bin("perfquet-query").display().to_string()];
    words.push(arguments[0].to_owned());
    words.push(trace.display().to_string());
    words.extend(arguments[1..].iter().map(|&word| word.to_owned()));
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let mut line = quoted.join(" ");
    line.push_str(&format!(" {stderr}"));
    let mut command = match columns {
        // `script` runs it on a terminal.
        Some(columns) => {
            let mut command = Command::new("script");
            command.args(["-qec", &line, "/dev/null"]);
            command.env("COLUMNS", columns.to_string());
            command
        }
        None => {
            let mut command = Command::new("sh");
            command.args(["-c", &line]);
            command
        }
    };
    let environment = [
        ("LC_ALL", "C.UTF-8"),
        ("NO_COLOR", "1"),
        ("SHELL", "/bin/sh"),
    ];
    let output = command
        .envs(environment)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| text.replace('\r', ""))
}

/// Cells by row, and headings.
#[derive(Debug, Default)]
struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn parse(text: &str) -> Table {
        let mut lines = text.lines();
        let (Some(headings), Some(rule)) = (lines.next(), lines.next()) else {
            return Table::default();
        };
        let mut spans = Vec::new();
        let mut start = None;
        for (place, letter) in rule.chars().chain([' ']).enumerate() {
            match (letter, start) {
                ('─', None) => start = Some(place),
                (' ', Some(from)) => {
                    spans.push((from, place));
                    start = None;
                }
                _ => {}
            }
        }
        let last = spans.len().saturating_sub(1);
        let cells = |line: &str| -> Vec<String> {
            let letters: Vec<char> = line.chars().collect();
            let cell = |(column, &(from, to)): (usize, &(usize, usize))| {
                // Texts in the last column may be wider than the rows that determined the width.
                let to = if column == last { letters.len() } else { to };
                let to = to.min(letters.len());
                let cell: String = letters[from.min(to)..to].iter().collect();
                cell.trim().to_owned()
            };
            spans.iter().enumerate().map(cell).collect()
        };
        let mut table = Table {
            headings: cells(headings),
            rows: Vec::new(),
        };
        let is_described = table.headings.last().is_some_and(|last| last == "doc");
        for line in lines {
            let row = cells(line);
            match (row.first(), table.rows.last_mut()) {
                // The next line of a description.
                (Some(first), Some(before)) if first.is_empty() && is_described => {
                    let more = row.last().unwrap();
                    let text = before.last_mut().unwrap();
                    *text = format!("{text} {more}");
                }
                _ => table.rows.push(row),
            }
        }
        table
    }
}

/// What is wrong with a report, compared with the whole one.
fn faults(text: &str, whole: &Table, columns: usize) -> Vec<String> {
    let mut faults = Vec::new();
    if text.contains("─[ 1 ]─") {
        return vec!["records instead of rows".to_owned()];
    }
    let wide = text.lines().find(|line| line.chars().count() > columns);
    faults.extend(wide.map(|line| format!("too wide: {line}")));
    let table = Table::parse(text);
    if table.rows.is_empty() || table.rows.len() != whole.rows.len() {
        faults.push(format!("{} rows of {}", table.rows.len(), whole.rows.len()));
        return faults;
    }
    for (column, heading) in table.headings.iter().enumerate() {
        let Some(place) = whole.headings.iter().position(|known| known == heading) else {
            faults.push(format!("cut heading {heading}"));
            continue;
        };
        for (row, all) in table.rows.iter().zip(&whole.rows) {
            let (cell, all) = (&row[column], &all[place]);
            let is_fine = match SHORTENED.contains(&heading.as_str()) {
                true => {
                    // A home directory is `~`.
                    let end = cell.trim_start_matches('~');
                    cell.contains('…') || all.ends_with(end) || heading == "timeline"
                }
                false => all == cell,
            };
            if !is_fine || heading == "function" && !has_own_name(cell, all) {
                faults.push(format!("{heading}: {cell:?} for {all:?}"));
            }
        }
    }
    faults
}

/// Whether a shortened name still has the last part of the whole name, or its first letters.
fn has_own_name(cell: &str, whole: &str) -> bool {
    let end = cell.trim_start_matches('…');
    let start = cell.trim_end_matches('…');
    whole.ends_with(end) || start.chars().count() >= 12 && whole.contains(start)
}
