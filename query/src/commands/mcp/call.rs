//! Runs one call of a tool: a process with limits of time, lines and bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use perfquet_trace::count::counted;

/// Bytes of an answer: more would fill the context of an assistant.
const MOST_BYTES: usize = 100_000;
/// Bytes of notes and errors.
const MOST_NOTES: usize = 10_000;
/// Bytes of folded stacks, before the heaviest are chosen.
const MOST_FOLDED: usize = 64 << 20;
/// How often the limit of time is checked.
const STEP: Duration = Duration::from_millis(10);

/// The lines of stdout that are of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    All,
    First(usize),
    /// Of folded stacks, `main;work 12`, those with the largest weights, with their shares.
    Heaviest(usize),
}

/// A command line with its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) arguments: Vec<String>,
    /// Text on its stdin.
    pub(super) input: String,
    pub(super) lines: Lines,
    pub(super) time: Duration,
}

/// What a call answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// Ends the process of a call, also before it has started.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancellation(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_cancelled: bool,
    child: Option<Child>,
}

impl Cancellation {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cancel(&self) {
        let mut state = self.state();
        state.is_cancelled = true;
        if let Some(child) = &mut state.child {
            // It may have ended already.
            let _ = child.kill();
        }
    }

    fn is_cancelled(&self) -> bool {
        self.state().is_cancelled
    }

    fn kill(&self) {
        if let Some(child) = &mut self.state().child {
            let _ = child.kill();
        }
    }

    fn ended(&self) -> std::io::Result<Option<ExitStatus>> {
        match &mut self.state().child {
            Some(child) => child.try_wait(),
            None => Ok(None),
        }
    }
}

/// Runs a command line of `program`; `None` if it was canceled.
pub(super) fn run(program: &Path, run: &Run, cancellation: &Cancellation) -> Option<Answer> {
    match try_run(program, run, cancellation) {
        Ok(answer) => answer,
        Err(error) => Some(Answer {
            text: format!("cannot run {}: {error}", program.display()),
            is_error: true,
        }),
    }
}

fn try_run(
    program: &Path,
    run: &Run,
    cancellation: &Cancellation,
) -> std::io::Result<Option<Answer>> {
    let mut state = cancellation.state();
    if state.is_cancelled {
        return Ok(None);
    }
    let mut child = Command::new(program)
        .args(&run.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (input, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    state.child = Some(child);
    drop(state);
    let (lines, bytes) = match run.lines {
        Lines::All => (usize::MAX, MOST_BYTES),
        Lines::First(lines) => (lines, MOST_BYTES),
        Lines::Heaviest(_) => (usize::MAX, MOST_FOLDED),
    };
    let text = run.input.clone();
    // It ends with the process, which may close its stdin before.
    std::thread::spawn(move || input.map(|mut input| input.write_all(text.as_bytes())));
    let out = std::thread::spawn(move || out.map(|out| limited(out, lines, bytes)));
    let err = std::thread::spawn(move || err.map(|err| limited(err, usize::MAX, MOST_NOTES)));
    let end = Instant::now() + run.time;
    let mut is_late = false;
    // The pipes close when the process ends, or after enough lines.
    let status = loop {
        if let Some(status) = cancellation.ended()? {
            break status;
        }
        if Instant::now() > end && !is_late {
            is_late = true;
            cancellation.kill();
        }
        std::thread::sleep(STEP);
    };
    let out = out.join().ok().flatten().unwrap_or_default();
    let err = err.join().ok().flatten().unwrap_or_default();
    if cancellation.is_cancelled() {
        return Ok(None);
    }
    // A pipe that is closed after enough rows ends its writer, by a signal perhaps.
    let is_failed = !status.success() && !out.is_cut;
    let mut text = out.text;
    if is_late {
        let limit = run.time.as_secs();
        text = format!(
            "not answered within {}; ask for less, or raise timeout_seconds\n{}",
            counted(limit, "second"),
            err.text
        );
    } else if is_failed {
        text = err.text;
    } else {
        if let Lines::Heaviest(count) = run.lines {
            text = heaviest(&text, count);
        }
        if out.is_cut {
            text.push_str("[more rows or text follow; raise limit, or select less]\n");
        }
        if !err.text.is_empty() {
            text.push_str(&format!("\nnotes:\n{}", err.text));
        }
    }
    Ok(Some(Answer {
        text,
        is_error: is_late || is_failed,
    }))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    text: String,
    is_cut: bool,
}

/// Reads whole lines up to the limits. Then the pipe is closed, which ends its writer.
fn limited(from: impl Read, lines: usize, bytes: usize) -> Part {
    let mut from = BufReader::new(from);
    let mut text = Vec::new();
    let mut is_cut = false;
    for _ in 0..lines {
        let before = text.len();
        let mut line = (&mut from).take((bytes - before) as u64 + 1);
        // What was read before an error is shown.
        let read = line.read_until(b'\n', &mut text).unwrap_or(0);
        if text.len() > bytes {
            // A single line of more than all bytes is cut within.
            text.truncate(if before == 0 { bytes } else { before });
            is_cut = true;
            break;
        }
        if read == 0 {
            break;
        }
    }
    if !is_cut {
        is_cut = from.fill_buf().is_ok_and(|rest| !rest.is_empty());
    }
    Part {
        text: String::from_utf8_lossy(&text).into_owned(),
        is_cut,
    }
}

/// The heaviest of folded stacks: `weight share stack`, and how much is left out.
fn heaviest(folded: &str, count: usize) -> String {
    let mut stacks: Vec<(u128, &str)> = (folded.lines())
        .filter_map(|line| {
            let (stack, weight) = line.rsplit_once(' ')?;
            Some((weight.parse().ok()?, stack))
        })
        .collect();
    // Stable: equal weights keep their order.
    stacks.sort_by_key(|&(weight, _)| std::cmp::Reverse(weight));
    let all: u128 = stacks.iter().map(|(weight, _)| weight).sum();
    let percent = |weight: u128| 100.0 * weight as f64 / all.max(1) as f64;
    let mut text = format!("total {all}\n");
    for (weight, stack) in stacks.iter().take(count) {
        text.push_str(&format!("{weight} {:.1}% {stack}\n", percent(*weight)));
        if text.len() > MOST_BYTES {
            break;
        }
    }
    let shown = text.lines().count() - 1;
    if let Some(rest) = stacks.get(shown..).filter(|rest| !rest.is_empty()) {
        let weight: u128 = rest.iter().map(|(weight, _)| weight).sum();
        text.push_str(&format!(
            "[{} more: {weight} {:.1}%; raise limit, or use where]\n",
            counted(rest.len() as u64, "stack"),
            percent(weight)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, lines: Lines, time: Duration) -> Option<Answer> {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        let wanted = Run {
            arguments,
            input: String::new(),
            lines,
            time,
        };
        run(Path::new("/bin/sh"), &wanted, &Cancellation::default())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn answers_have_limits() {
        let text = |answer: Option<Answer>| answer.map(|answer| (answer.text, answer.is_error));
        let whole = shell("echo a; echo b >&2", Lines::All, LONG);
        assert_eq!(text(whole), Some(("a\n\nnotes:\nb\n".into(), false)));
        let wrong = shell("echo a; echo 'no table x' >&2; exit 1", Lines::All, LONG);
        assert_eq!(text(wrong), Some(("no table x\n".into(), true)));
        let cut = text(shell("seq 3", Lines::First(2), LONG)).unwrap();
        assert!(cut.0.starts_with("1\n2\n[more rows"), "{cut:?}");
        let fits = text(shell("seq 2", Lines::First(2), LONG)).unwrap();
        assert_eq!(fits.0, "1\n2\n");
        let endless = text(shell("yes", Lines::All, LONG)).unwrap();
        assert!(endless.0.len() < MOST_BYTES + 100 && endless.0.contains("[more"));
        let late = text(shell(
            "exec sleep 60",
            Lines::All,
            Duration::from_millis(50),
        ))
        .unwrap();
        assert!(
            late.0.starts_with("not answered within ") && late.1,
            "{late:?}"
        );
    }

    #[test]
    fn the_heaviest_stacks_come_first() {
        let folded = "a;b 1\na;c d 98\n# a comment\na 1\n";
        let expected = "total 100\n98 98.0% a;c d\n1 1.0% a;b\n[1 stack more: 1 1.0%; raise limit, or use where]\n";
        assert_eq!(heaviest(folded, 2), expected);
        assert_eq!(heaviest("", 2), "total 0\n");
    }

    #[test]
    fn canceled_calls_have_no_answer() {
        let cancellation = Cancellation::default();
        let wanted = Run {
            arguments: vec!["-c".into(), "exec sleep 60".into()],
            input: String::new(),
            lines: Lines::All,
            time: LONG,
        };
        let other = cancellation.clone();
        let running = std::thread::spawn(move || run(Path::new("/bin/sh"), &wanted, &other));
        std::thread::sleep(Duration::from_millis(100));
        cancellation.cancel();
        assert_eq!(running.join().unwrap(), None);
        let before = Run {
            arguments: Vec::new(),
            input: String::new(),
            lines: Lines::All,
            time: LONG,
        };
        assert_eq!(run(Path::new("/bin/true"), &before, &cancellation), None);
    }
}
