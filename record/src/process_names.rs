//! The values of `-p`: PIDs, and names of processes that run now.
//!
//! ```text
//! -p 1234,nginx      1234, and each process whose comm or executable is nginx
//! ```

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use perfquet_cli::nearest;

use crate::failure::{Failure, misuse};
use crate::sys::procfs;

/// The kernel keeps this many bytes of a thread's name (TASK_COMM_LEN - 1).
const COMM_BYTES: usize = 15;
/// Maximum number of PIDs in a message.
const MOST_LISTED: usize = 8;

/// Returns the PIDs that the words stand for, each once. Fails if a name matches no process.
pub(crate) fn pids_of(words: &[String]) -> Result<Vec<i32>, Failure> {
    let mut pids = Vec::new();
    let mut running = None;
    for word in words {
        match word.parse::<i32>() {
            Ok(pid) => pids.push(pid),
            Err(_) => pids.extend(matching(word, running.get_or_insert_with(running_now))?),
        }
    }
    let mut seen = BTreeSet::new();
    pids.retain(|pid| seen.insert(*pid));
    Ok(pids)
}

/// A process, with its name and the name of its executable.
struct Process {
    pid: i32,
    comm: Vec<u8>,
    executable: Option<Vec<u8>>,
}

impl Process {
    fn read(pid: i32) -> Option<Process> {
        let task = procfs::task(pid, pid)?;
        // A process whose first thread has ended may run on in others.
        if !procfs::is_process_alive(pid) {
            return None;
        }
        // Only root may see the executables of others.
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok();
        Some(Process {
            pid,
            comm: task.comm,
            executable: path.as_deref().and_then(executable_name),
        })
    }

    fn is_named(&self, name: &[u8]) -> bool {
        let is_comm = self.comm == name[..name.len().min(COMM_BYTES)];
        is_comm || self.executable.as_deref() == Some(name)
    }
}

/// Returns the name of a file that may have been replaced since: the kernel marks its path.
fn executable_name(path: &Path) -> Option<Vec<u8>> {
    let name = path.file_name()?.as_bytes();
    Some(name.strip_suffix(b" (deleted)").unwrap_or(name).to_owned())
}

/// All processes except the recorder.
fn running_now() -> Vec<Process> {
    let own = std::process::id() as i32;
    let pids = procfs::processes().into_iter().filter(|&pid| pid != own);
    pids.filter_map(Process::read).collect()
}

fn matching(name: &str, running: &[Process]) -> Result<Vec<i32>, Failure> {
    let of_name = |process: &&Process| process.is_named(name.as_bytes());
    let pids: Vec<i32> = running
        .iter()
        .filter(of_name)
        .map(|process| process.pid)
        .collect();
    match pids.len() {
        0 => Err(unknown(name, running)),
        1 => Ok(pids),
        count => {
            let mut listed: Vec<String> = pids.iter().map(i32::to_string).collect();
            if count > MOST_LISTED {
                listed.truncate(MOST_LISTED);
                listed.push("…".to_owned());
            }
            log::warn!(
                "-p {name}: recording {count} processes: {}",
                listed.join(", ")
            );
            Ok(pids)
        }
    }
}

fn unknown(name: &str, running: &[Process]) -> Failure {
    if name.is_empty() {
        return misuse("-p: expected a PID or the name of a process, found nothing");
    }
    let names = running.iter().flat_map(|process| {
        let text = |bytes: &Vec<u8>| OsStr::from_bytes(bytes).to_string_lossy().into_owned();
        let executable = process.executable.as_ref().map(text);
        std::iter::once(text(&process.comm)).chain(executable)
    });
    let names: BTreeSet<String> = names.collect();
    let near = nearest(name, names);
    let hint = match near.is_empty() {
        true => "list the names of processes: ps -eo pid,comm".to_owned(),
        false => format!("use {}", near.join(", ")),
    };
    misuse(format!("-p {name}: no running process has this name")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, comm: &str, path: &str) -> Process {
        Process {
            pid,
            comm: comm.into(),
            executable: executable_name(Path::new(path)),
        }
    }

    #[test]
    fn names_of_threads_and_executables() {
        let running = [
            process(1, "init", "/sbin/systemd"),
            process(2, "a-long-name-of-", "/usr/bin/python3.11"),
            process(3, "worker", "/opt/server (deleted)"),
            process(4, "worker", "/opt/server"),
        ];
        let check = |name: &str, expected: &[i32]| {
            assert_eq!(matching(name, &running).unwrap(), expected, "{name}");
        };
        check("init", &[1]);
        check("systemd", &[1]);
        check("a-long-name-of-a-script.py", &[2]);
        check("server", &[3, 4]);
        let failure = matching("wroker", &running).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "-p wroker: no running process has this name"
        );
        assert_eq!(failure.hint_text(), Some("use worker"));
        assert!(matching("", &running).is_err());
    }

    #[test]
    fn pids_are_named_once() {
        let words = ["7", "9", "7"].map(str::to_owned);
        assert_eq!(pids_of(&words).unwrap(), [7, 9]);
    }
}
