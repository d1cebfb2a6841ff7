//! Width of help texts.

use std::io::{self, IsTerminal};

use clap::Command;

/// Columns of help that goes to a pipe or a file.
const COLUMNS: usize = 80;

/// Makes help as wide as the terminal, or as COLUMNS says, and otherwise 80 columns wide, as terminals are that read it later.
pub fn with_width(command: Command) -> Command {
    let has_terminal =
        io::stdout().is_terminal() || io::stderr().is_terminal() || io::stdin().is_terminal();
    match has_terminal || std::env::var_os("COLUMNS").is_some() {
        true => command,
        false => command.term_width(COLUMNS),
    }
}

/// Returns the lines of the help of a command and its subcommands that are wider than 80 columns.
pub fn wide_lines(command: Command) -> Vec<String> {
    let mut command = command.term_width(COLUMNS);
    command.build();
    let mut wide = Vec::new();
    add_wide_lines(&mut command, &mut wide);
    wide
}

fn add_wide_lines(command: &mut Command, wide: &mut Vec<String>) {
    for help in [command.render_help(), command.render_long_help()] {
        let text = help.to_string();
        let lines = text.lines().filter(|line| line.chars().count() > COLUMNS);
        wide.extend(lines.map(str::to_owned));
    }
    for subcommand in command.get_subcommands_mut() {
        add_wide_lines(subcommand, wide);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn wide_lines_are_found_in_subcommands() {
        let words = |number: usize| "word ".repeat(number);
        let arg = |help: String| Arg::new("a").long("a").help(help);
        let narrow = Command::new("p").arg(arg(words(99)));
        assert_eq!(wide_lines(narrow.clone()), [""; 0]);
        let wide = Command::new("q").arg(arg("x".repeat(99)));
        assert_eq!(wide_lines(narrow.subcommand(wide)).len(), 2);
    }
}
