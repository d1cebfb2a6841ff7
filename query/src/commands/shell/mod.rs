//! `shell`: an interactive SQL shell with history and completion.

mod complete;
mod meta;
mod pager;

use perfquet_cli::terminal;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, Args};
use perfquet::Session;
use perfquet::failure::Interrupted;
use perfquet::sql::statements;
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::counted;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use super::{Subcommand, arguments};
use crate::limits::Limits;
use crate::render::{self, Destination, Format};
use crate::settings::{Output, Traces};
use complete::Completer;

pub(super) const COMMAND: Subcommand = Subcommand::new::<Shell>("shell", run);

/// Start an interactive SQL shell with history and completion
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Query one trace
  perfquet-query shell a.pqt
  # Query several traces
  perfquet-query shell 'runs/*.pqt'

End each query with a semicolon; \\? lists the commands.")]
struct Shell {
    #[command(flatten)]
    traces: Traces,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

/// The settings that backslash commands change.
struct State {
    session: Session,
    format: Format,
    timing: bool,
    /// The file of `\o`; results are appended.
    output: Option<Destination>,
    /// Whether long results go through a pager.
    pager: bool,
    /// Files of `\i` that are being run.
    depth: usize,
    /// The statements that defined views and macros, by name, for `\save`.
    definitions: BTreeMap<String, String>,
}

/// Whether to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Ask,
    Quit,
}

fn run(matches: &ArgMatches) -> Result<()> {
    let shell: Shell = arguments(matches)?;
    let mut state = State {
        session: Session::open(&shell.traces.traces, &shell.limits.options())?,
        format: shell.output.format,
        timing: false,
        output: None,
        pager: false,
        depth: 0,
        definitions: BTreeMap::new(),
    };
    if std::io::stdin().is_terminal() {
        crate::signals::outlive_questions();
        state.pager = render::is_terminal();
        interactive(&mut state)?;
        return state.finish();
    }
    // A script on stdin: the first failure ends it.
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("cannot read stdin")?;
    for piece in pieces(&text) {
        if state.answer(piece)? == Next::Quit {
            break;
        }
    }
    state.finish()
}

fn interactive(state: &mut State) -> Result<()> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .history_ignore_space(true)
        .build();
    let mut editor: Editor<Completer, FileHistory> = Editor::with_config(config)?;
    editor.set_helper(Some(Completer::new(&state.session)));
    let history = history_file();
    if let Some(path) = &history {
        // Missing before the first use.
        let _ = editor.load_history(path);
    }
    say!("End each query with ;   \\? for help, \\q to quit.");
    loop {
        match editor.readline("perfquet> ") {
            Ok(line) => {
                editor.add_history_entry(line.trim())?;
                let mut next = Next::Ask;
                for piece in pieces(&line) {
                    next = state.answer(piece).unwrap_or_else(|error| {
                        say!("{}", terminal::sentence(error.chain()));
                        Next::Ask
                    });
                }
                if let Some(helper) = editor.helper_mut() {
                    helper.learn(&state.session);
                }
                if next == Next::Quit {
                    break;
                }
            }
            // Ctrl-C discards the line, Ctrl-D quits.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("cannot read from the terminal"),
        }
    }
    if let Some(path) = &history
        && let Err(error) = save_history(&mut editor, path)
    {
        say!("cannot save the history to {}: {error}", path.display());
    }
    Ok(())
}

/// Splits input into backslash commands and statements. A command ends with its line.
fn pieces(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let length = if rest.starts_with('\\') {
            rest.find('\n').unwrap_or(rest.len())
        } else {
            statements::ends(rest)
                .first()
                .map_or(rest.len(), |end| end + 1)
        };
        let piece = rest[..length].trim();
        found.push(if piece.starts_with('\\') {
            piece
        } else {
            piece.trim_end_matches(';')
        });
        rest = rest[length..].trim_start();
    }
    found.retain(|piece| !statements::statements(piece).is_empty() || piece.starts_with('\\'));
    found
}

impl State {
    /// Runs one command or query.
    fn answer(&mut self, piece: &str) -> Result<Next> {
        if let Some(command) = piece.strip_prefix('\\') {
            return meta::run(self, command);
        }
        match piece.to_lowercase().as_str() {
            "quit" | "exit" => return Ok(Next::Quit),
            "help" => return meta::run(self, "?"),
            _ => {}
        }
        let start = Instant::now();
        let outcome = self.ask(piece);
        std::io::stdout().flush()?;
        match outcome {
            Ok(()) => {}
            // Only the query was interrupted, not the shell.
            Err(error) if error.is::<Interrupted>() => say!("interrupted"),
            Err(error) => return Err(error),
        }
        if self.timing {
            say!("{}", in_fitting_unit(start.elapsed().as_nanos() as f64));
        }
        Ok(Next::Ask)
    }

    /// Completes the file of `\o`.
    fn finish(self) -> Result<()> {
        self.output.map_or(Ok(()), Destination::finish)
    }

    fn ask(&mut self, sql: &str) -> Result<()> {
        let mut answer = self.session.query(sql)?;
        if answer.schema().fields().is_empty() {
            // CREATE VIEW and similar statements have no result.
            while answer.next_batch()?.is_some() {}
            drop(answer);
            if let Some(name) = self.session.defined_name(sql) {
                self.definitions.insert(name, sql.to_owned());
            }
            return Ok(());
        }
        let rows = match &mut self.output {
            Some(file) if self.format.may_follow() => {
                render::stream(self.format, &mut answer, file, false)?
            }
            Some(_) => bail!(
                "\\o: a file of this format has only one result\nhint: \\format csv, or: perfquet-query sql --format … > PATH"
            ),
            None if self.pager && matches!(self.format, Format::Table | Format::Records) => {
                let format = self.format;
                // The query ends with its rows, or with Ctrl-C, not with the pager.
                pager::through(move |out| {
                    let mut answer = answer;
                    render::stream(format, &mut answer, out, true)
                })?
            }
            None => render::answer(self.format, &mut answer)?,
        };
        match rows {
            0 => say!("no rows"),
            rows => say!("{}", counted(rows, "row")),
        }
        Ok(())
    }
}

/// Returns `$XDG_STATE_HOME/perfquet/history`.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    Some(state.or_else(home)?.join("perfquet/history"))
}

fn save_history(editor: &mut Editor<Completer, FileHistory>, path: &PathBuf) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(editor.save_history(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_statements() {
        assert_eq!(
            pieces("\\d samples\nSELECT 1; SELECT ';';\n\\q"),
            ["\\d samples", "SELECT 1", "SELECT ';'", "\\q"]
        );
        assert_eq!(pieces(" ; -- nothing\n"), [""; 0]);
    }
}
