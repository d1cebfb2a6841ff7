//! The recorded command: why it cannot run, and its end.

use std::io;

use crate::failure::{Failure, failed};
use crate::sys::child::{self, Ended};

/// Returns the error with the exit status that a shell would use.
pub(super) fn cannot_run(command: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let failure = failed(format!("cannot run {command}: {error}")).status(127);
            match tip(command) {
                Some(tip) => failure.hint(tip),
                None => failure,
            }
        }
        _ => failed(format!("cannot run {command}: {error}")).status(126),
    }
}

/// What to type instead of a subcommand of perf, which is taken for the command to record.
fn tip(command: &str) -> Option<&'static str> {
    match command {
        "record" => Some("omit the word: perfquet-record -g -- COMMAND"),
        "stat" => Some("use perfquet-record --stat -- COMMAND"),
        "top" => Some("use perfquet-record -a --live"),
        "list" => Some("use perfquet-record --list"),
        "trace" => Some("use perfquet-record --preset syscalls -- COMMAND"),
        "probe" => Some("use --kprobe or --uprobe"),
        "report" | "script" | "annotate" => Some("use perfquet-query"),
        _ => None,
    }
}

/// Returns how the command ended; ends it if it still runs.
pub(super) fn end(command: Option<i32>, ended: Option<Ended>) {
    match (command, ended) {
        (Some(pid), None) => {
            child::terminate(pid);
            log::info!("sent SIGTERM to the command, process {pid}");
        }
        (_, Some(Ended::Exited(status))) if status != 0 => {
            log::warn!("the command ended with status {status}");
        }
        (_, Some(Ended::Killed(signal))) => {
            log::warn!("the command was killed by signal {signal}");
        }
        (_, Some(Ended::Exited(_)) | None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_of_perf_have_a_hint() {
        let error = io::Error::from(io::ErrorKind::NotFound);
        let hint = |command| cannot_run(command, &error).hint_text().map(str::to_owned);
        let expected = "omit the word: perfquet-record -g -- COMMAND";
        assert_eq!(hint("record").as_deref(), Some(expected));
        assert_eq!(hint("recorder"), None);
    }
}
