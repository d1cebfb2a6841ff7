//! Backslash commands of the shell, as in psql.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use perfquet::functions::FUNCTIONS;
use perfquet::views::definitions;

use super::{Next, State, pieces};
use crate::commands::tables;
use crate::render::{self, Destination, Format};
use crate::text::{harmless, wrapped};

/// A command: its letters, its argument, its effect.
pub(super) struct Meta {
    pub(super) name: &'static str,
    argument: &'static str,
    about: &'static str,
    run: fn(&mut State, &str) -> Result<Next>,
}

pub(super) const COMMANDS: &[Meta] = &[
    Meta {
        name: "dt",
        argument: "",
        about: "list the tables",
        run: list,
    },
    Meta {
        name: "d",
        argument: "[TABLE]",
        about: "describe the columns of a table",
        run: describe,
    },
    Meta {
        name: "df",
        argument: "",
        about: "list perfquet's own SQL functions, and macros",
        run: functions,
    },
    Meta {
        name: "i",
        argument: "FILE",
        about: "run the commands and queries of a file",
        run: include,
    },
    Meta {
        name: "save",
        argument: "NAME",
        about: "keep a view or macro of this session for all sessions",
        run: save,
    },
    Meta {
        name: "o",
        argument: "[FILE]",
        about: "write results to a file instead, until \\o without one",
        run: output,
    },
    Meta {
        name: "x",
        argument: "",
        about: "switch between rows and one line per column",
        run: expanded,
    },
    Meta {
        name: "pager",
        argument: "",
        about: "switch the pager for long results on or off",
        run: pager,
    },
    Meta {
        name: "timing",
        argument: "",
        about: "switch the display of query times on or off",
        run: timing,
    },
    Meta {
        name: "format",
        argument: "[FORMAT]",
        about: "set the output format: table, records, csv, json, ndjson, parquet or arrow",
        run: format,
    },
    Meta {
        name: "?",
        argument: "",
        about: "show this help",
        run: help,
    },
    Meta {
        name: "q",
        argument: "",
        about: "quit",
        run: |_, _| Ok(Next::Quit),
    },
];

/// Runs a command, given without its backslash.
pub(super) fn run(state: &mut State, command: &str) -> Result<Next> {
    let (name, argument) = command
        .split_once(char::is_whitespace)
        .unwrap_or((command, ""));
    match COMMANDS.iter().find(|meta| meta.name == name) {
        Some(meta) => (meta.run)(state, argument.trim().trim_end_matches(';').trim()),
        None => bail!("no command \\{name}\nhint: \\? lists the commands"),
    }
}

fn list(state: &mut State, _: &str) -> Result<Next> {
    render::batch(state.format, &tables::list(&state.session)?)?;
    Ok(Next::Ask)
}

fn describe(state: &mut State, table: &str) -> Result<Next> {
    if table.is_empty() {
        return list(state, table);
    }
    render::batch(state.format, &tables::describe(&state.session, table)?)?;
    Ok(Next::Ask)
}

fn functions(state: &mut State, _: &str) -> Result<Next> {
    let own = FUNCTIONS.iter();
    let own = own.map(|function| (function.usage.to_owned(), function.about.to_owned()));
    let rows: Vec<(String, String)> = own.chain(state.session.macros()).collect();
    say(&described(&rows, render::width()))
}

/// Usages with their descriptions: beside each other, or below where these would get less than half of the terminal.
fn described(rows: &[(String, String)], terminal: Option<usize>) -> String {
    let widest = rows.iter().map(|(usage, _)| usage.len()).max().unwrap_or(0) + 2;
    let terminal = terminal.unwrap_or(usize::MAX);
    let is_beside = widest <= terminal / 2;
    let indent = if is_beside { widest } else { 4 };
    let mut text = String::new();
    for (usage, about) in rows {
        let lines = wrapped(&harmless(about), terminal.saturating_sub(indent));
        let about = lines.join(&format!("\n{}", " ".repeat(indent)));
        let _ = match is_beside {
            true => writeln!(text, "{usage:<indent$}{about}"),
            false => writeln!(text, "{usage}\n{}{about}", " ".repeat(indent)),
        };
    }
    text
}

/// Files that include each other would never end.
const INCLUDED_DEEPEST: usize = 16;

fn include(state: &mut State, path: &str) -> Result<Next> {
    if path.is_empty() {
        bail!("\\i: expected a file");
    }
    if state.depth == INCLUDED_DEEPEST {
        bail!("{path}: files include each other {INCLUDED_DEEPEST} deep");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    state.depth += 1;
    let done = pieces(&text)
        .into_iter()
        .try_fold(Next::Ask, |next, piece| match next {
            Next::Ask => state.answer(piece),
            Next::Quit => Ok(Next::Quit),
        });
    state.depth -= 1;
    match state.depth {
        // Files in between add nothing.
        0 => done.with_context(|| path.to_owned()),
        _ => done,
    }
}

fn save(state: &mut State, name: &str) -> Result<Next> {
    let Some(definition) = state.definitions.get(name) else {
        let known: Vec<&str> = state.definitions.keys().map(String::as_str).collect();
        match known.is_empty() {
            true => bail!("\\save: no view or macro was created in this session"),
            false => bail!("\\save: expected one of: {}", known.join(", ")),
        }
    };
    let path = definitions::save(name, definition)?;
    say(&format!("saved to {}\n", path.display()))
}

fn output(state: &mut State, path: &str) -> Result<Next> {
    if let Some(file) = state.output.take() {
        file.finish()?;
    }
    if !path.is_empty() {
        if Path::new(path).exists() {
            bail!("{path} exists\nhint: choose another file");
        }
        state.output = Some(Destination::open(Some(Path::new(path)), false)?);
    }
    Ok(Next::Ask)
}

fn expanded(state: &mut State, _: &str) -> Result<Next> {
    let name = match state.format {
        Format::Records => "table",
        _ => "records",
    };
    format(state, name)
}

fn pager(state: &mut State, _: &str) -> Result<Next> {
    state.pager = !state.pager;
    say(match state.pager {
        true => "the pager is on\n",
        false => "the pager is off\n",
    })
}

fn timing(state: &mut State, _: &str) -> Result<Next> {
    state.timing = !state.timing;
    say(if state.timing {
        "timing is on\n"
    } else {
        "timing is off\n"
    })
}

fn format(state: &mut State, name: &str) -> Result<Next> {
    if !name.is_empty() {
        state.format = Format::from_str(name, true).map_err(|_| {
            anyhow::anyhow!(
                "no format {name}\nhint: use one of: table, records, csv, json, ndjson, parquet, arrow"
            )
        })?;
    }
    let name = state
        .format
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    say(&format!("format is {name}\n"))
}

/// Columns before the descriptions of commands.
const INDENT: usize = 18;
const KEYS: &str = "A query may span several lines and ends with a semicolon. Tab completes names, Ctrl-R searches the history, Ctrl-C discards the line or stops a query, Ctrl-D quits.";

fn help(_: &mut State, _: &str) -> Result<Next> {
    let width = render::width().unwrap_or(100).min(100);
    let mut text = String::new();
    for meta in COMMANDS {
        let command = format!("\\{} {}", meta.name, meta.argument);
        let about = wrapped(meta.about, width.saturating_sub(INDENT));
        let about = about.join(&format!("\n{}", " ".repeat(INDENT)));
        let _ = writeln!(text, "{command:<INDENT$}{about}");
    }
    for line in wrapped(KEYS, width) {
        let _ = writeln!(text, "{line}");
    }
    say(&text)
}

fn say(text: &str) -> Result<Next> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Next::Ask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_fit_the_terminal() {
        let rows = [
            ("f(x)".to_owned(), "one two three".to_owned()),
            ("longer(x, y)".to_owned(), "four".to_owned()),
        ];
        assert_eq!(
            described(&rows, None),
            "f(x)          one two three\nlonger(x, y)  four\n"
        );
        assert_eq!(
            described(&rows, Some(28)),
            "f(x)          one two three\nlonger(x, y)  four\n"
        );
        assert_eq!(
            described(&rows, Some(12)),
            "f(x)\n    one two\n    three\nlonger(x, y)\n    four\n"
        );
        let longest = COMMANDS
            .iter()
            .map(|meta| meta.name.len() + meta.argument.len() + 2);
        assert!(longest.max() < Some(INDENT));
    }
}
