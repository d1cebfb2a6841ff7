//! `sql`: runs SQL statements and prints their results.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, Args};

use perfquet::failure::Misuse;
use perfquet::sql::scoping::Restriction;
use perfquet::sql::statements::statements;
use perfquet::{Options, Session};

use super::{Subcommand, arguments};
use crate::filter::Scope;
use crate::limits::Limits;
use crate::losses;
use crate::render;
use crate::settings::Output;
use crate::wakeups;

pub(super) const COMMAND: Subcommand = Subcommand::new::<Sql>("sql", run);

/// Run SQL queries
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Count samples by thread name
  perfquet-query sql a.pqt 'SELECT comm, count(*) FROM samples GROUP BY 1 ORDER BY 2 DESC LIMIT 10'
  # Compare several traces
  perfquet-query sql 'runs/*.pqt' 'SELECT trace, count(*) FROM sched_switch GROUP BY 1'
  # Query one second of one program
  perfquet-query sql a.pqt --time 3s..4s --comm postgres 'SELECT * FROM syscalls'
  # Read the SQL from a file, write CSV
  perfquet-query sql a.pqt -f query.sql --format csv > result.csv
  # Read the SQL from stdin
  echo 'SELECT * FROM losses' | perfquet-query sql a.pqt
  # Pass rows to a script
  perfquet-query sql a.pqt 'SELECT * FROM samples' --format arrow | python3 analyze.py

Separate several statements by semicolons; they run in order.")]
struct Sql {
    /// Trace directories or patterns, such as 'runs/*.pqt'; then the SQL
    ///
    /// Without -f and the last argument, the SQL is read from stdin.
    #[arg(value_name = "TRACE... [SQL]", required = true)]
    words: Vec<OsString>,
    /// Read the SQL from a file; - for stdin
    #[arg(short = 'f', long = "file", value_name = "PATH")]
    file: Option<PathBuf>,
    /// Refuse statements other than queries, such as CREATE
    #[arg(long)]
    queries_only: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

fn run(matches: &ArgMatches) -> Result<()> {
    let mut sql: Sql = arguments(matches)?;
    let text = sql_text(&mut sql)?;
    let traces: Vec<PathBuf> = sql.words.iter().map(PathBuf::from).collect();
    let session = Session::open(
        &traces,
        &Options {
            queries_only: sql.queries_only,
            ..sql.limits.options()
        },
    )?;
    // Who asks for losses knows of them.
    let lost = match text.to_lowercase().contains("losses") {
        true => None,
        false => losses::note(&session)?,
    };
    let unseen = wakeups::note(&session, &text)?;
    session.restrict(Restriction {
        conditions: sql.scope.conditions(&session)?,
        must_fit: true,
    });
    let statements = statements(&text);
    if statements.is_empty() {
        bail!(Misuse("expected SQL, found nothing".to_owned()));
    }
    if statements.len() > 1 && !sql.output.format.may_follow() {
        bail!(Misuse(format!(
            "{} statements, but a file of this format has only one result\nhint: use --format csv, or run the statements one by one",
            statements.len()
        )));
    }
    for statement in statements {
        let mut answer = session.query(statement)?;
        if answer.schema().fields().is_empty() {
            // CREATE VIEW and similar statements have no result.
            while answer.next_batch()?.is_some() {}
            continue;
        }
        let rows = render::answer(sql.output.format, &mut answer)?;
        if rows == 0 {
            say!("no rows");
        }
    }
    for line in lost.into_iter().chain(unseen) {
        say!("{line}");
    }
    Ok(())
}

/// Returns the SQL from the file, the last argument or stdin.
fn sql_text(sql: &mut Sql) -> Result<String> {
    if let Some(file) = &sql.file {
        return match file.as_os_str() == "-" {
            true => from_stdin(),
            false => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display())),
        };
    }
    let last = sql.words.last().map(OsString::as_os_str);
    let last = last.unwrap_or(OsStr::new(""));
    let text = last.to_string_lossy();
    let is_trace = text.starts_with("lake:")
        || perfquet_trace::remote::is_url(&text)
        || Path::new(last).exists();
    match (sql.words.len(), is_trace) {
        (2.., false) => (sql.words.pop().unwrap_or_default().into_string())
            .map_err(|_| Misuse("the SQL is not valid UTF-8".to_owned()).into()),
        _ if !std::io::stdin().is_terminal() => from_stdin(),
        _ => bail!(Misuse(
            "expected SQL after the traces\nhint: perfquet-query sql TRACE 'SELECT …', or: perfquet-query shell TRACE".to_owned()
        )),
    }
}

fn from_stdin() -> Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("cannot read the SQL from stdin")?;
    Ok(text)
}
