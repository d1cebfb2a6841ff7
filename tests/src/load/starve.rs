//! `cargo xtask starve`: attaching to a process that starts a thread every half millisecond, with a recorder at the
//! lowest priority next to a busy process. Each thread writes an increasing count, so missing and duplicated rows are
//! detected.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{Busy, number_of, require};
use crate::{place, say};

/// Rows, distinct rows, threads with gaps in their counts, threads.
const QUESTION: &str = "\
    SELECT sum(n) AS n, sum(distinct_n) AS distinct_n, sum(CASE WHEN n <> span THEN 1 ELSE 0 END) AS gaps, count(*) AS threads \
    FROM (SELECT count(*) AS n, count(DISTINCT count) AS distinct_n, max(count) - min(count) + 1 AS span \
    FROM sys_enter_write GROUP BY tid)";

/// The result of one run.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    rows: u64,
    distinct: u64,
    gaps: u64,
    threads: u64,
}

/// Runs it this many times.
pub fn run(arguments: &[&str]) -> Result<()> {
    let runs = number_of(arguments, "--runs", 200)?;
    require(&["root", "tracefs", "cc"])?;
    let folder = place::target_directory().join("starve");
    std::fs::create_dir_all(&folder).context("cannot create a folder")?;
    let program = folder.join("starter");
    let source = place::root().join("record/tests/programs/starter.c");
    let compiled = Command::new("cc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .arg("-lpthread")
        .status();
    ensure!(
        compiled.is_ok_and(|status| status.success()),
        "starter.c does not compile"
    );
    let (recorder, query) = (place::bin("perfquet-record"), place::bin("perfquet-query"));
    let _busy = Busy::start(1)?;
    say::step(&format!("{runs} starved attaches"));
    let mut wrong = 0;
    for number in 1..=runs {
        let trace = folder.join("t.pqt");
        attach(&recorder, &program, &trace)?;
        let outcome = ask(&query, &trace)?;
        let is_wrong = outcome.rows != outcome.distinct || outcome.gaps > 0;
        wrong += u64::from(is_wrong);
        let Outcome {
            rows,
            distinct,
            gaps,
            threads,
        } = outcome;
        say::note(&format!(
            "{number}: {rows} rows, {distinct} hits, {gaps} of {threads} threads with gaps{}",
            if is_wrong { ": wrong" } else { "" }
        ));
    }
    ensure!(wrong == 0, "{wrong} of {runs} runs were wrong");
    println!("{runs} runs, none wrong");
    Ok(())
}

fn attach(recorder: &Path, program: &Path, trace: &Path) -> Result<()> {
    let mut starter = Command::new(program).stdout(Stdio::piped()).spawn()?;
    let output = starter.stdout.take().context("no pipe")?;
    let mut line = String::new();
    // Stays open: the starter writes once more.
    let mut output = BufReader::new(output);
    output.read_line(&mut line)?;
    let recorded = Command::new("nice")
        .args(["-n", "19"])
        .arg(recorder)
        .args([
            "--force",
            "-e",
            "syscalls:sys_enter_write",
            "--duration",
            "2s",
        ])
        .args(["-p", &starter.id().to_string(), "-o"])
        .arg(trace)
        .output();
    starter.kill()?;
    starter.wait()?;
    let recorded = recorded.context("cannot run the recorder")?;
    let stderr = String::from_utf8_lossy(&recorded.stderr).into_owned();
    ensure!(recorded.status.success(), "the recorder failed: {stderr}");
    ensure!(stderr.contains(" 0 lost"), "events were lost: {stderr}");
    Ok(())
}

fn ask(query: &Path, trace: &Path) -> Result<Outcome> {
    let answer = Command::new(query)
        .arg("sql")
        .arg(trace)
        .args([QUESTION, "--format", "csv"])
        .output()?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let row = text
        .lines()
        .nth(1)
        .with_context(|| format!("no answer: {text:?}"))?;
    let numbers: Vec<u64> = row
        .split(',')
        .filter_map(|cell| cell.parse().ok())
        .collect();
    let [rows, distinct, gaps, threads] = numbers[..] else {
        anyhow::bail!("expected four numbers, found {row:?}");
    };
    Ok(Outcome {
        rows,
        distinct,
        gaps,
        threads,
    })
}
