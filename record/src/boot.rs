//! `--boot` and `--collect-boot`: the kernel's own start, traced by parameters of its command line.
//!
//! ```text
//! perfquet-record --boot --function-graph '*' --min-duration 500us
//! perfquet-record --collect-boot -o boot.pqt
//! ```

use anyhow::{Context, Result};
use perfquet_events::event::Selection;
use perfquet_trace::symbols::Roots;

use crate::cli::Cli;
use crate::failure::{Failure, failed, misuse};
use crate::ftrace::{BootBuffer, BootRequest, boot_line};
use crate::output::Output;
use crate::output::closing_line::Next;
use crate::output::completion::complete_trace;
use crate::output::encoder::{Encoder, Source};
use crate::sys::signals::Signals;
use perfquet_cli::terminal;

/// Options that may accompany `--boot`, and those that may accompany `--collect-boot`.
const OF_THE_LINE: [&str; 10] = [
    "boot",
    "function-graph",
    "max-depth",
    "min-duration",
    "function",
    "event",
    "kprobe",
    "kretprobe",
    "ring-size",
    "vmlinux",
];
const OF_COLLECTING: [&str; 5] = ["collect-boot", "output", "force", "mode", "keep-raw"];
/// Options that may accompany anything.
const OF_ALL: [&str; 4] = ["verbose", "quiet", "ssh", "ssh-output"];

/// Returns the kernel parameters for `--boot`.
pub(crate) fn line(cli: &Cli) -> Result<String, Failure> {
    check_options(cli, "boot", &OF_THE_LINE)?;
    let line = boot_line(&BootRequest {
        functions: &cli.functions_traced,
        selection: cli.calls.selection()?,
        events: &cli.events.names,
        kprobes: &cli.events.kprobes,
        kretprobes: &cli.events.kretprobes,
        ring_bytes: cli.output.ring_bytes,
    })?;
    terminal::say(
        "add these parameters to the kernel command line, reboot, then: perfquet-record --collect-boot",
    );
    Ok(format!("{line}\n"))
}

/// Takes the ring buffer of the boot into a trace. Returns whether its tables are complete.
pub(crate) fn collect(cli: &Cli, instance: &str) -> Result<bool> {
    check_options(cli, "collect-boot", &OF_COLLECTING)?;
    let signals = Signals::block().context("cannot wait for signals")?;
    let boot = BootBuffer::find(Some(instance).filter(|name| !name.is_empty()))?;
    let path = cli.output_path();
    let output = match Output::create_folders(&path, cli.output.form(), cli.output.force) {
        Ok(output) => output,
        Err(error) => {
            boot.let_go();
            return Err(error);
        }
    };
    if let Err(error) = boot.collect(&output.journal_path().with_file_name("")) {
        boot.let_go();
        output.give_to_caller();
        return Err(error.context(
            failed(format!(
                "the boot trace is only partly in {}; the rest is still in the kernel",
                path.display()
            ))
            .hint(format!(
                "complete the part: perfquet-convert {}; then collect the rest with another -o PATH",
                path.display()
            )),
        ));
    }
    boot.reset();
    let source = Source::Whole(path.clone());
    let encoder = Encoder::start(source, path, &Selection::default(), Roots::default());
    complete_trace(
        &output,
        encoder,
        &signals,
        (cli.output.keep_raw, true),
        Next::Durations,
    )
}

/// Fails for options that would have no effect.
fn check_options(cli: &Cli, option: &str, allowed: &[&str]) -> Result<(), Failure> {
    let is_allowed =
        |name: &&String| allowed.contains(&name.as_str()) || OF_ALL.contains(&name.as_str());
    let excluded = cli.placed.given.iter().find(|name| !is_allowed(name));
    let excluded = match excluded {
        Some(name) => format!("--{name}"),
        None if !cli.command.is_empty() => "a command".to_owned(),
        None => return Ok(()),
    };
    Err(misuse(format!("--{option} cannot be combined with {excluded}")).hint("drop one"))
}
