//! Manual pages and completions, for packages.
//!
//! ```text
//! perfquet-query --generate share
//! share/man/man1/perfquet-query.1, perfquet-query-top.1, …
//! share/bash-completion/completions/perfquet-query
//! share/zsh/site-functions/_perfquet-query
//! share/fish/vendor_completions.d/perfquet-query.fish
//! ```

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

/// Writes the documents of a program started with `--generate DIR`; `None` with any other arguments.
///
/// The option is meant for packagers, so it is not part of the command line that the documents describe.
pub fn write_documents(command: impl FnOnce() -> Command) -> Option<ExitCode> {
    let share = directory(std::env::args_os())?;
    Some(match write(command(), &share) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let place = share.display();
            let _ = writeln!(io::stderr(), "cannot write to {place}: {error}");
            ExitCode::FAILURE
        }
    })
}

fn directory(arguments: impl IntoIterator<Item = OsString>) -> Option<PathBuf> {
    let mut arguments = arguments.into_iter().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(option), Some(path), None) if option == "--generate" => Some(path.into()),
        _ => None,
    }
}

fn write(mut command: Command, share: &Path) -> io::Result<()> {
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command.clone().disable_help_subcommand(true), pages)?;
    let name = command.get_name().to_owned();
    for (shell, path) in [
        (Shell::Bash, format!("bash-completion/completions/{name}")),
        (Shell::Zsh, format!("zsh/site-functions/_{name}")),
        (
            Shell::Fish,
            format!("fish/vendor_completions.d/{name}.fish"),
        ),
    ] {
        let path = share.join(path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        clap_complete::generate(shell, &mut command, &name, &mut File::create(path)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn every_subcommand_and_shell_has_its_file() {
        let command = Command::new("prog")
            .about("Does it")
            .arg(Arg::new("hidden").long("hidden").hide(true))
            .subcommand(
                Command::new("top")
                    .about("Lists it")
                    .arg(Arg::new("limit").long("limit")),
            );
        let directory = tempfile::tempdir().unwrap();
        let share = directory.path().join("share");
        write(command, &share).unwrap();
        let text = |path: &str| fs::read_to_string(share.join(path)).unwrap();
        assert!(text("man/man1/prog.1").contains("Does it"));
        assert!(!text("man/man1/prog.1").contains("hidden"));
        assert!(text("man/man1/prog-top.1").contains("limit"));
        for path in [
            "bash-completion/completions/prog",
            "zsh/site-functions/_prog",
            "fish/vendor_completions.d/prog.fish",
        ] {
            assert!(text(path).contains("limit"), "{path}");
        }
    }

    #[test]
    fn only_a_complete_command_line_generates_documents() {
        let words = |words: &[&str]| directory(words.iter().map(OsString::from));
        assert_eq!(words(&["prog", "--generate", "d"]), Some("d".into()));
        assert_eq!(words(&["prog", "--generate"]), None);
        assert_eq!(words(&["prog", "-o", "--generate", "d"]), None);
        assert_eq!(words(&["prog", "--generate", "d", "x"]), None);
    }
}
