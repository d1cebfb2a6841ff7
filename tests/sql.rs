//! SQL semantics, as text: a trace, a query, the rows. `sql/*.slt`, in the format of sqllogictest.
//!
//! ```text
//! # trace: formats/readers/src/folded/golden/small.folded
//! query TI rowsort
//! SELECT comm, count(*) FROM samples GROUP BY comm
//! ----
//! java 3
//! ```
//! `report top --by comm` in place of a query runs that report on the trace.
//! The first line names the input in the repository; it is imported in every run, without symbolization, which would
//! differ between hosts. Rows come from `perfquet-query sql` itself, so its rendering is tested too. NULL reads `NULL`,
//! an empty string `(empty)`. `PERFQUET_UPDATE=1` fills in the rows; review them before you commit.

#[path = "sql/findings.rs"]
mod findings;
#[path = "sql/functions.rs"]
mod functions;
#[path = "sql/overlap.rs"]
mod overlap;
#[path = "sql/widths.rs"]
mod widths;

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, root};
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};

#[test]
fn queries_return_the_expected_rows() {
    check_files(run_file);
}

/// The same rows, where the trace is one of a lake: its files have other types and more columns.
#[test]
fn queries_of_a_lake_return_the_expected_rows() {
    if std::env::var_os("PERFQUET_UPDATE").is_none() {
        check_files(run_file_in_lake);
    }
}

/// The same rows, where the trace is one file.
#[test]
fn queries_of_an_archive_return_the_expected_rows() {
    if std::env::var_os("PERFQUET_UPDATE").is_none() {
        check_files(run_file_in_archive);
    }
}

#[test]
fn traces_with_names_that_are_not_utf8() {
    use std::os::unix::ffi::OsStrExt as _;
    let directory = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"a\xff.pqt");
    let trace = directory.path().join(name);
    let input = root().join("formats/readers/src/folded/golden/dd.folded");
    import(&input, &trace).unwrap();
    let sql = |sql: &std::ffi::OsStr| {
        let mut command = Command::new(bin("perfquet-query"));
        command.arg("sql").arg(&trace).arg(sql).output().unwrap()
    };
    let output = sql("SELECT count(*) > 0 AS found FROM samples".as_ref());
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("true"));
    let output = sql(std::ffi::OsStr::from_bytes(b"SELECT '\xff'"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the SQL is not valid UTF-8"));
}

fn check_files(run: fn(&Path) -> Result<(), String>) {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join("tests/sql"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .collect();
    files.sort();
    let wrong: Vec<String> = files.iter().filter_map(|file| run(file).err()).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n\n"));
}

fn run_file(file: &Path) -> Result<(), String> {
    run_with(file, |trace| Ok(trace.to_owned()))
}

fn run_file_in_archive(file: &Path) -> Result<(), String> {
    run_with(file, |trace| {
        let archive = trace.with_extension("pqtz");
        let output = Command::new(bin("perfquet-convert"))
            .arg(trace)
            .args(["--to", "pqtz", "-o"])
            .arg(&archive)
            .output()
            .unwrap();
        std::fs::remove_dir_all(trace).unwrap();
        match output.status.success() {
            true => Ok(archive),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    })
}

fn run_file_in_lake(file: &Path) -> Result<(), String> {
    run_with(file, |trace| {
        let lake = trace.with_extension("lake");
        let output = Command::new(bin("perfquet-convert"))
            .arg(trace)
            .args(["--partition", "date=2026-11-22", "--to", "lake", "-o"])
            .arg(&lake)
            .output()
            .unwrap();
        std::fs::remove_dir_all(trace).unwrap();
        match output.status.success() {
            true => Ok(format!("lake:{}?date=2026-11-*", lake.display()).into()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    })
}

/// Runs the queries of a file on what `open` makes of its trace.
fn run_with(
    file: &Path,
    open: impl FnOnce(&Path) -> Result<PathBuf, String>,
) -> Result<(), String> {
    let text = std::fs::read_to_string(file).unwrap();
    let first = text.lines().next().unwrap_or_default();
    let input = first
        .strip_prefix("# trace: ")
        .unwrap_or_else(|| panic!("{}: begin with `# trace: PATH`", file.display()));
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.pqt");
    import(&root().join(input.trim()), &trace)?;
    let trace = open(&trace).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut runner = Runner::new(|| async {
        Ok(Query {
            trace: trace.clone(),
        })
    });
    if std::env::var_os("PERFQUET_UPDATE").is_some() {
        let updated = runner.update_test_file(
            file,
            " ",
            sqllogictest::default_validator,
            sqllogictest::default_normalizer,
            sqllogictest::default_column_validator,
        );
        return block_on(updated).map_err(|error| format!("{}: {error}", file.display()));
    }
    runner
        .run_file(file)
        .map_err(|error| error.display(false).to_string())
}

fn import(input: &Path, trace: &Path) -> Result<(), String> {
    let output = Command::new(bin("perfquet-convert"))
        .arg(input)
        .args(["--no-symbols", "-o"])
        .arg(trace)
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{}: {}",
        input.display(),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// The query tool as a database: every statement runs it once.
struct Query {
    trace: PathBuf,
}

#[derive(Debug)]
struct QueryError(String);

impl std::fmt::Display for QueryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for QueryError {}

impl DB for Query {
    type Error = QueryError;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, QueryError> {
        let mut command = Command::new(bin("perfquet-query"));
        match sql.strip_prefix("report ") {
            Some(report) => {
                let mut words = words(report).into_iter();
                command.args(words.next()).arg(&self.trace).args(words);
            }
            None => {
                command.arg("sql").arg(&self.trace).arg(sql);
            }
        }
        let output = command.args(["--format", "csv"]).output().unwrap();
        if !output.status.success() {
            return Err(QueryError(
                String::from_utf8_lossy(&output.stderr).into_owned(),
            ));
        }
        let mut rows = parse_csv(&String::from_utf8_lossy(&output.stdout));
        let columns = if rows.is_empty() {
            0
        } else {
            rows.remove(0).len()
        };
        Ok(DBOutput::Rows {
            types: vec![DefaultColumnType::Any; columns],
            rows,
        })
    }

    fn engine_name(&self) -> &str {
        "perfquet"
    }
}

/// Splits a command line at blanks, except between quotes of either kind.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (quote, words.last_mut()) {
            (None, _) if letter == '\'' || letter == '"' => quote = Some(letter),
            (Some(open), _) if letter == open => quote = None,
            (None, _) if letter.is_whitespace() => words.push(String::new()),
            (_, Some(word)) => word.push(letter),
            (_, None) => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// RFC 4180; an empty field is NULL, and `""` an empty string.
fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut cell = String::new();
    let mut is_quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                is_quoted = true;
                while let Some(letter) = letters.next() {
                    if letter != '"' {
                        cell.push(letter);
                    } else if letters.next_if_eq(&'"').is_some() {
                        cell.push('"');
                    } else {
                        break;
                    }
                }
            }
            ',' | '\n' => {
                row.push(shown(&cell, is_quoted));
                cell.clear();
                is_quoted = false;
                if letter == '\n' {
                    rows.push(std::mem::take(&mut row));
                }
            }
            _ => cell.push(letter),
        }
    }
    rows
}

fn shown(cell: &str, is_quoted: bool) -> String {
    match (cell, is_quoted) {
        ("", false) => "NULL".to_owned(),
        ("", true) => "(empty)".to_owned(),
        _ => cell.to_owned(),
    }
}

#[test]
fn null_and_empty_strings_differ() {
    let rows = parse_csv("a,b,c\n1,,\"\"\n\"x,\"\"y\"\"\",2,3\n");
    assert_eq!(rows[1], ["1", "NULL", "(empty)"]);
    assert_eq!(rows[2], ["x,\"y\"", "2", "3"]);
}

/// Runs a future that never waits: these only start processes.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}
