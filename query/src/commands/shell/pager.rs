//! A pager for results longer than the terminal: `$PERFQUET_PAGER`, `$PAGER` or less.
//!
//! The pager starts when a result exceeds the first screen: until then Ctrl-C is for the query alone, and a short result stays on the
//! terminal. Unless LESS is set, less keeps colors, and does not wrap lines.

use std::io::{BufWriter, ErrorKind, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::Result;
use arrow::error::ArrowError;

use crate::render;

/// The pager's command line; `None` for none.
fn command() -> Option<String> {
    let from = |name| std::env::var(name).ok();
    let command = from("PERFQUET_PAGER")
        .or_else(|| from("PAGER"))
        .unwrap_or_else(|| "less".to_owned());
    let is_none = command.trim().is_empty() || command.trim() == "cat";
    (!is_none).then_some(command)
}

/// Writes a result to stdout or, if it is longer than the screen, through the pager. Returns the number of rows; those that were
/// written if the reader quits the pager before the end.
pub(super) fn through(write: impl FnOnce(&mut (dyn Write + Send)) -> Result<u64>) -> Result<u64> {
    let Some(command) = command() else {
        return write(&mut std::io::stdout());
    };
    let mut screen = Screen {
        command,
        height: render::height(),
        held: Vec::new(),
        lines: 0,
        out: None,
    };
    let written = write(&mut screen);
    let flushed = screen.finish();
    let lines = screen.lines;
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

/// Where a result goes that does not fit the screen.
enum Out {
    Pager(Child, BufWriter<ChildStdin>),
    /// The pager could not be started.
    Terminal,
}

/// The first screen of a result, then the rest in the pager.
struct Screen {
    command: String,
    /// Lines that the terminal shows.
    height: usize,
    held: Vec<u8>,
    lines: u64,
    out: Option<Out>,
}

impl Screen {
    /// Starts the pager with what was held back.
    fn open(&mut self) -> Out {
        let mut pager = Command::new("sh");
        pager.arg("-c").arg(&self.command).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            pager.env("LESS", "FRSX");
        }
        let started = pager.spawn().ok();
        let with_input = started.and_then(|mut pager| {
            let input = pager.stdin.take()?;
            Some((pager, input))
        });
        match with_input {
            Some((pager, input)) => Out::Pager(pager, BufWriter::new(input)),
            None => Out::Terminal,
        }
    }

    fn pass(&mut self) -> std::io::Result<()> {
        let held = std::mem::take(&mut self.held);
        match &mut self.out {
            Some(Out::Pager(_, input)) => input.write_all(&held),
            Some(Out::Terminal) | None => std::io::stdout().write_all(&held),
        }
    }

    /// Writes the rest, and waits until the reader has quit the pager.
    fn finish(&mut self) -> std::io::Result<()> {
        let passed = self.pass();
        match self.out.take() {
            Some(Out::Pager(mut pager, mut input)) => {
                let flushed = input.flush();
                drop(input);
                let _ = pager.wait();
                passed.and(flushed)
            }
            Some(Out::Terminal) | None => passed,
        }
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
        self.lines += lines as u64;
        self.held.extend_from_slice(bytes);
        // The prompt and the number of rows take two lines.
        if self.out.is_none() && self.lines as usize + 2 > self.height {
            self.out = Some(self.open());
        }
        if self.out.is_some() {
            self.pass()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match &mut self.out {
            Some(Out::Pager(_, input)) => input.flush(),
            Some(Out::Terminal) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pager_starts_after_the_first_screen() {
        let mut screen = Screen {
            command: "cat > /dev/null".to_owned(),
            height: 5,
            held: Vec::new(),
            lines: 0,
            out: None,
        };
        screen.write_all(b"1\n2\n3\n").unwrap();
        assert!(screen.out.is_none());
        assert_eq!(screen.held, b"1\n2\n3\n");
        screen.write_all(b"4\n").unwrap();
        assert!(matches!(screen.out, Some(Out::Pager(..))));
        assert!(screen.held.is_empty());
        screen.finish().unwrap();
        assert_eq!(screen.lines, 4);
    }
}
