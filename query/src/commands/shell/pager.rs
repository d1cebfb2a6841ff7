//! A pager for results longer than the terminal: `$PERFQUET_PAGER`, `$PAGER` or less.
//!
//! Unless LESS is set, less ends at once if the result fits the screen, keeps colors, and does not wrap lines.

use std::io::{BufWriter, ErrorKind, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use arrow::error::ArrowError;

/// The pager's command line; `None` for none.
fn command() -> Option<String> {
    let from = |name| std::env::var(name).ok();
    let command = from("PERFQUET_PAGER")
        .or_else(|| from("PAGER"))
        .unwrap_or_else(|| "less".to_owned());
    let is_none = command.trim().is_empty() || command.trim() == "cat";
    (!is_none).then_some(command)
}

/// Writes a result through the pager, or to stdout without one. Returns the number of rows; those that were written if the
/// reader quits the pager before the end.
pub(super) fn through(
    mut write: impl FnMut(&mut (dyn Write + Send)) -> Result<u64>,
) -> Result<u64> {
    let started = command().map(|command| {
        let mut pager = Command::new("sh");
        pager.arg("-c").arg(command).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            pager.env("LESS", "FRSX");
        }
        pager.spawn()
    });
    let Some(Ok(mut pager)) = started else {
        return write(&mut std::io::stdout());
    };
    let input = pager.stdin.take().context("the pager has no input")?;
    let mut counted = Counting {
        out: BufWriter::new(input),
        lines: 0,
    };
    let written = write(&mut counted);
    let flushed = counted.out.flush();
    let lines = counted.lines;
    drop(counted);
    let _ = pager.wait();
    match (written, flushed) {
        (Err(error), _) if is_quit(&error) => Ok(lines),
        (Ok(rows), Ok(())) => Ok(rows),
        (Ok(_), Err(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(lines),
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(error), _) => Err(error),
    }
}

/// Whether the reader has quit the pager.
fn is_quit(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        let arrow = match cause.downcast_ref::<ArrowError>() {
            Some(ArrowError::IoError(_, error)) => Some(error),
            _ => None,
        };
        io.or(arrow)
            .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    })
}

/// Counts lines on their way to the pager.
struct Counting<W: Write> {
    out: W,
    lines: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.lines += bytes[..written]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count() as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
