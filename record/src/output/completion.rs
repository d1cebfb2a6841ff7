//! The wait for the tables of a recording that has ended.

use anyhow::{Context, Result};

use crate::output::Output;
use crate::output::closing_line;
use crate::output::encoder::{Encoder, no_tables};
use crate::output::progress::{Progress, TICK};
use crate::sys::signals::{Signal, Signals};
use perfquet_cli::terminal;

/// Waits until the journal is encoded, and returns whether it is; a second Ctrl-C leaves the rest to
/// `perfquet-convert`.
pub(crate) fn complete_trace(
    output: &Output,
    encoder: Encoder,
    signals: &Signals,
    (keeps_journal, has_all): (bool, bool),
    next: closing_line::Next,
) -> Result<bool> {
    encoder.hurry();
    let progress = Progress::start(false);
    let journal_bytes = closing_line::size_of(&output.journal_path()).unwrap_or(0);
    let path = output.path();
    while !encoder.has_ended() {
        let signal = signals.wait(TICK / 10).context("cannot wait for signals")?;
        if signal == Some(Signal::Finish) {
            progress.clear();
            output.give_to_caller();
            let journal = match has_all {
                true => "the journal is complete",
                false => "the journal has the records that could be written",
            };
            terminal::say(format_args!(
                "{0}: {journal}, its tables are not; next: perfquet-convert {0}",
                path.display()
            ));
            return Ok(false);
        }
        progress.encoding(encoder.done_bytes(), journal_bytes);
    }
    progress.clear();
    let report = encoder.finish().with_context(|| no_tables(path));
    closing_line::trace(output, report, keeps_journal, next)?;
    Ok(true)
}
