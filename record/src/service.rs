//! `--install-service`: writes a unit of systemd that records with the given options.
//!
//! ```text
//! $ perfquet-record --install-service --preset fleet --rotate 10m --keep 24h -o /var/lib/perfquet
//! ExecStart=/usr/bin/perfquet-record --preset fleet --rotate 10m --keep 24h -o /var/lib/perfquet
//! ```
//! The rest of the unit is that of the packages. Nothing is started or enabled.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::failure::{Failure, failed, misuse};
use perfquet_cli::terminal;

/// The unit of the packages.
const PACKAGED: &str = include_str!("../perfquet.service");
/// Name of the unit's file.
const NAME: &str = "perfquet.service";
/// First line of a written unit, by which a later run knows that it may replace the file.
const MARK: &str = "# Written by perfquet-record --install-service, which replaces this file.\n";
/// The option, as in arguments.
const OPTION: &str = "--install-service";
/// Where the packaged unit's state directory is.
const STATE: &str = "/var/lib/perfquet";

/// Command-line options.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServiceOptions {
    /// Write a systemd service that records with these options, to DIR
    ///
    /// Requires --rotate or --keep, and -o with an absolute path; without other options, records like the service of the packages. Nothing
    /// is started: the commands for that are printed. A file that --install-service has not written is not replaced. [default DIR:
    /// /etc/systemd/system]
    #[arg(
        long = "install-service",
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/etc/systemd/system"
    )]
    pub(crate) folder: Option<PathBuf>,
}

/// Writes the unit for a command line with valid options. `output` is the value of -o.
pub(crate) fn install(
    folder: &Path,
    arguments: impl Iterator<Item = OsString>,
    output: Option<&Path>,
) -> Result<()> {
    let words = arguments.skip(1).filter(|word| !is_option(word));
    let words: Vec<OsString> = words.collect();
    let program = std::env::current_exe().context("cannot find this program's path")?;
    let text = match words.is_empty() {
        true => unit(&packaged_options(&program)?, true),
        false => {
            let output = output.filter(|output| output.is_absolute());
            let Some(output) = output else {
                return Err(
                    misuse(format!("{OPTION}: requires -o with an absolute path"))
                        .hint(format!("add -o {STATE}"))
                        .into(),
                );
            };
            let program = quoted(program.into_os_string(), Place::Program)?;
            let words = words.into_iter().map(|word| quoted(word, Place::Argument));
            let words: Vec<String> = words.collect::<Result<_, _>>()?;
            let line = format!("{program} {}", words.join(" "));
            unit(&line, output.starts_with(STATE))
        }
    };
    let path = folder.join(NAME);
    let replaces = check(&path, &text)?;
    write(folder, &path, &text).map_err(|error| refused(&path, &error))?;
    let mut lines = vec![
        path.display().to_string(),
        "next: systemctl daemon-reload".to_owned(),
        "      systemctl enable --now perfquet".to_owned(),
    ];
    if replaces {
        lines.push("      systemctl restart perfquet".to_owned());
    }
    terminal::print(&lines);
    Ok(())
}

fn is_option(word: &OsString) -> bool {
    let word = word.as_encoded_bytes();
    let rest = word.strip_prefix(OPTION.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
}

/// The command line of the packaged unit, with the path of this program.
fn packaged_options(program: &Path) -> Result<String, Failure> {
    let program = quoted(program.as_os_str().to_owned(), Place::Program)?;
    let mut lines = PACKAGED.lines();
    let line = lines.find_map(|line| line.strip_prefix("ExecStart=perfquet-record "));
    Ok(format!("{program} {}", line.unwrap_or_default()))
}

/// The unit with another command line. Only a recording below the state directory needs one.
fn unit(line: &str, has_state: bool) -> String {
    let mut text = MARK.to_owned();
    let kept = PACKAGED.lines().filter(|line| !line.starts_with('#'));
    for kept in kept.filter(|line| has_state || !line.starts_with("StateDirectory")) {
        match kept.starts_with("ExecStart=") {
            true => text.push_str(&format!("ExecStart={line}\n")),
            false => text.push_str(&format!("{kept}\n")),
        }
    }
    text
}

/// Position of a word in a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// systemd replaces no variables in it.
    Program,
    Argument,
}

/// Quotes a word of a command line (systemd.service(5), "Command lines"; systemd.syntax(7), "Quoting").
fn quoted(word: OsString, place: Place) -> Result<String, Failure> {
    let word = word.into_string().map_err(|word| {
        misuse(format!(
            "{OPTION}: expected UTF-8, found \"{}\"",
            word.display()
        ))
    })?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_-.,:=+@%$".contains(c);
    let needs_quotes = word.is_empty() || !word.chars().all(is_plain);
    let mut text = String::with_capacity(word.len() + 2);
    for c in word.chars() {
        match c {
            '%' => text.push_str("%%"),
            '$' if place == Place::Argument => text.push_str("$$"),
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            c if c.is_ascii_control() => text.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => text.push(c),
        }
    }
    Ok(match needs_quotes {
        true => format!("\"{text}\""),
        false => text,
    })
}

/// Fails if another program or person wrote the file. Returns whether an earlier unit with other options is replaced.
fn check(path: &Path, text: &str) -> Result<bool, Failure> {
    let is_file = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(refused(path, &error)),
        Ok(metadata) => metadata.is_file(),
    };
    // A link may be that of a masked unit.
    if is_file {
        let found = fs::read(path).map_err(|error| refused(path, &error))?;
        if found == text.as_bytes() {
            return Ok(false);
        }
        if found.starts_with(MARK.as_bytes()) {
            return Ok(true);
        }
    }
    let message = format!("{} exists, and is not from {OPTION}", path.display());
    Err(failed(message).hint("remove it, or change its options with: systemctl edit perfquet"))
}

/// Writes the file in one step.
fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    let unfinished = folder.join(format!(".{NAME}.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).open(&unfinished)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.set_permissions(Permissions::from_mode(0o644)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let failure = failed(format!("cannot write {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            failure.hint(format!("run as root, or use {OPTION}=DIR"))
        }
        io::ErrorKind::NotFound => failure.hint(format!("create it, or use {OPTION}=DIR")),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted() {
        let check = |word: &str, expected: &str| {
            assert_eq!(quoted(word.into(), Place::Argument).unwrap(), expected);
        };
        check("--rotate=10m,1G", "--rotate=10m,1G");
        check("", "\"\"");
        check("a b", "\"a b\"");
        check(";", "\";\"");
        check("100%", "100%%");
        check("$retval", "$$retval");
        check("di=%di ${x}", "\"di=%%di $${x}\"");
        check(r#"comm == "a\b""#, r#""comm == \"a\\b\"""#);
        check("it's", "\"it's\"");
        check("a\n\tb\x1b", "\"a\\n\\tb\\x1b\"");
        check("größe", "\"größe\"");
        let program = quoted("/opt/a $b%/r".into(), Place::Program).unwrap();
        assert_eq!(program, "\"/opt/a $b%%/r\"");
    }

    #[test]
    fn a_unit_differs_from_that_of_the_packages_in_its_command_line() {
        let line = packaged_options(Path::new("perfquet-record")).unwrap();
        let packaged = PACKAGED.lines().filter(|line| !line.starts_with('#'));
        let packaged: Vec<&str> = packaged.collect();
        let written = unit(&line, true);
        let written: Vec<&str> = written.lines().skip(1).collect();
        assert_eq!(written, packaged);
        let elsewhere = unit("x -o /srv/traces", false);
        assert!(!elsewhere.contains("StateDirectory"), "{elsewhere}");
        assert!(elsewhere.contains("\nExecStart=x -o /srv/traces\n"));
    }
}
