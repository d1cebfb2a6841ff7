//! Command lines, cgroups and open files of processes, for `threads` and `open_files`.
//!
//! ```text
//! at the start            every process of the target
//! COMM { exec, pid 42 }   42, as soon as the drain has passed the record
//! ```
//! A thread reads `/proc`, so that the drain does not wait. A process that ends before it is looked at, within a quarter of a
//! second, has no command line. Records have the time at which the look began: of an exec during it, there is a later look.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use perfquet_events::event::ProcessState;
use perfquet_trace::symbols::limits::{
    CMDLINE_BYTES_MAX, OPEN_FILES_BYTES_MAX, PROCESS_FILES_MAX, PROCESSES_PERCENT_MAX,
    WAITING_PROCESSES_MAX,
};

use crate::added_records::AddedRecords;
use crate::journal::own_records::OwnRecords;
use crate::recording::OWN_ID;
use crate::sys::child::Ended;
use crate::sys::clock;
use crate::sys::procfs;

/// Bytes of records passed to the drain together.
const PIECE_BYTES: usize = 32 << 10;
/// Bytes of paths in a record, which has at most 64 KiB.
const RECORD_BYTES: usize = 24 << 10;
/// A process is in a dozen hierarchies of cgroups.
const CGROUP_BYTES_MAX: usize = 64 << 10;
/// Time in which an executed command gets its arguments.
const ARGUMENTS: Duration = Duration::from_millis(5);
/// Time for looks that are free.
const FREE: Duration = Duration::from_millis(200);

/// Receives the processes that execute a program.
pub(crate) struct Newcomers(SyncSender<i32>);

impl Newcomers {
    /// A process has executed a program.
    pub(crate) fn executes(&self, pid: i32) {
        // If too many wait, this one has no command line.
        let _ = self.0.try_send(pid);
    }
}

/// The thread that looks at processes, before it is started.
pub(crate) struct ProcessStates(Receiver<i32>);

impl ProcessStates {
    /// Returns it, and what passes processes to it.
    pub(crate) fn new() -> (Newcomers, ProcessStates) {
        let (sender, received) = sync_channel(WAITING_PROCESSES_MAX as usize);
        (Newcomers(sender), ProcessStates(received))
    }

    /// Starts the thread; it ends with [`Newcomers`]. `existing` are the processes that run already; `has_files`: whether to
    /// look for their open files.
    pub(crate) fn start(self, existing: Vec<i32>, has_files: bool, added: AddedRecords) {
        let mut looks = Looks::new(has_files);
        // Keeps the inherited thread name: the filter that excludes the recorder matches by name.
        std::thread::spawn(move || {
            for pid in existing {
                looks.add(pid);
                looks.pass_to(&added, PIECE_BYTES);
            }
            looks.pass_to(&added, 0);
            let began = Instant::now();
            let mut spent = Duration::ZERO;
            while let Ok(pid) = self.0.recv() {
                for pid in std::iter::once(pid).chain(self.0.try_iter()) {
                    let limit = began.elapsed() * PROCESSES_PERCENT_MAX as u32 / 100;
                    if spent > limit + FREE {
                        continue;
                    }
                    let look = Instant::now();
                    looks.add(pid);
                    spent += look.elapsed();
                    looks.pass_to(&added, PIECE_BYTES);
                }
                looks.pass_to(&added, 0);
            }
        });
    }
}

/// Returns records of a command that was just executed with these words.
pub(crate) fn of_command(pid: i32, words: &[OsString], has_files: bool) -> Vec<u8> {
    let until = Instant::now() + ARGUMENTS;
    let mut looks = Looks::new(has_files);
    loop {
        let time = clock::monotonic();
        let cmdline = cmdline_of(pid);
        if cmdline.is_some() {
            looks.add_with(pid, time, cmdline);
            return looks.take();
        }
        // It has its arguments shortly after the exec, unless it has ended by then.
        let task = procfs::task(pid, pid);
        let has_ended = task.as_ref().is_none_or(|task| task.state == b'Z');
        if has_ended || Instant::now() >= until {
            // It may have executed another program.
            let is_it = task.is_some_and(|task| has_name(&task.comm, words));
            let joined = words.join(OsStr::new(" "));
            let cmdline = is_it.then(|| cut(joined.as_bytes()));
            looks.add_with(pid, time, cmdline);
            return looks.take();
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Returns the record of how a command has ended.
pub(crate) fn of_ended(pid: i32, ended: Ended) -> Vec<u8> {
    let mut records = OwnRecords::new(OWN_ID, clock::monotonic(), 0);
    records.process(&ProcessState {
        pid,
        exit_code: Some(ended.status().into()),
        ..ProcessState::default()
    });
    records.into_bytes()
}

/// Whether a thread has the name of a program: its last 15 bytes of it.
fn has_name(comm: &[u8], words: &[OsString]) -> bool {
    const COMM_BYTES: usize = 15;
    let name = words.first().and_then(|word| Path::new(word).file_name());
    let name = name.map(OsStrExt::as_bytes).unwrap_or_default();
    comm == name.get(..COMM_BYTES).unwrap_or(name)
}

/// Records of the processes that were looked at.
struct Looks {
    has_files: bool,
    /// Bytes of paths so far.
    path_bytes: u64,
    records: Vec<u8>,
}

impl Looks {
    fn new(has_files: bool) -> Looks {
        Looks {
            has_files,
            path_bytes: 0,
            records: Vec::new(),
        }
    }

    fn add(&mut self, pid: i32) {
        let time = clock::monotonic();
        self.add_with(pid, time, cmdline_of(pid));
    }

    /// `time` is when its command line was looked at.
    fn add_with(&mut self, pid: i32, time: u64, cmdline: Option<Vec<u8>>) {
        let cgroup = procfs::read_file(&format!("/proc/{pid}/cgroup"), CGROUP_BYTES_MAX);
        let cgroup = cgroup.as_deref().and_then(cgroup_in);
        let mut records = OwnRecords::new(OWN_ID, time, 0);
        if cmdline.is_some() || cgroup.is_some() {
            records.process(&ProcessState {
                pid,
                cmdline: cmdline.as_deref(),
                cgroup,
                ..ProcessState::default()
            });
        }
        if self.has_files {
            let files = self.files_of(pid);
            let mut rest = &files[..];
            while !rest.is_empty() {
                let mut bytes = 0;
                let fits = |(_, path): &&(i32, Vec<u8>)| {
                    bytes += path.len() + 8;
                    bytes <= RECORD_BYTES
                };
                let count = rest.iter().take_while(fits).count().max(1);
                let (now, later) = rest.split_at(count);
                records.files(pid, now);
                rest = later;
            }
        }
        self.records.extend(records.into_bytes());
    }

    /// Returns the descriptors of a process with their paths.
    fn files_of(&mut self, pid: i32) -> Vec<(i32, Vec<u8>)> {
        let mut files = Vec::new();
        let entries = fs::read_dir(format!("/proc/{pid}/fd"));
        let entries = entries.into_iter().flatten().flatten();
        for entry in entries.take(PROCESS_FILES_MAX as usize) {
            if self.path_bytes >= OPEN_FILES_BYTES_MAX {
                log::info!("open files of process {pid} and later ones are not recorded");
                break;
            }
            let fd = entry.file_name().to_str().and_then(|fd| fd.parse().ok());
            let path = fs::read_link(entry.path());
            if let (Some(fd), Ok(path)) = (fd, path) {
                let path = path.into_os_string().into_encoded_bytes();
                self.path_bytes += path.len() as u64;
                files.push((fd, path));
            }
        }
        files.sort_unstable();
        files
    }

    /// Passes the records on if there are more bytes of them.
    fn pass_to(&mut self, added: &AddedRecords, more_than: usize) {
        if self.records.len() > more_than {
            added.add(&self.take());
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records)
    }
}

/// Returns the command line of a process; `None` for a kernel thread, and for one that has ended.
fn cmdline_of(pid: i32) -> Option<Vec<u8>> {
    let path = format!("/proc/{pid}/cmdline");
    joined(procfs::read_file(&path, CMDLINE_BYTES_MAX as usize)?)
}

/// `sh\0-c\0make\0` is `sh -c make`. A program that sets its title may leave any number of NUL at the end.
fn joined(mut text: Vec<u8>) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|&byte| byte != 0)? + 1;
    text.truncate(end);
    for byte in &mut text {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    Some(text)
}

fn cut(text: &[u8]) -> Vec<u8> {
    let most = text.len().min(CMDLINE_BYTES_MAX as usize);
    text[..most].to_vec()
}

/// Returns the path of version 2, or else of the hierarchy in which systemd has processes.
fn cgroup_in(text: &[u8]) -> Option<&[u8]> {
    let lines = || text.split(|&byte| byte == b'\n');
    let of = |controllers: &[u8]| {
        lines().find_map(|line| {
            let mut words = line.splitn(3, |&byte| byte == b':');
            let (number, found, path) = (words.next()?, words.next()?, words.next()?);
            let is_it = found == controllers && (!found.is_empty() || number == b"0");
            is_it.then_some(path)
        })
    };
    // With both versions, controllers are those of the first.
    let second = of(b"").filter(|path| *path != b"/");
    second.or_else(|| of(b"name=systemd")).or_else(|| of(b""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::{Command, Stdio};

    #[test]
    fn words_are_joined() {
        let check = |text: &[u8], expected: Option<&[u8]>| {
            assert_eq!(joined(text.to_vec()).as_deref(), expected);
        };
        check(b"sh\0-c\0make all\0", Some(b"sh -c make all"));
        check(b"postgres: writer\0\0\0\0", Some(b"postgres: writer"));
        check(b"cc\0\0-c\0", Some(b"cc  -c"));
        check(b"", None);
        check(b"\0\0", None);
    }

    #[test]
    fn cgroups_of_both_versions() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(cgroup_in(text.as_bytes()), expected.map(str::as_bytes));
        };
        check("0::/user.slice/a:b\n", Some("/user.slice/a:b"));
        check("0::/\n", Some("/"));
        let first = "12:cpuset:/\n3:perf_event:/p\n1:name=systemd:/init.scope\n";
        check(first, Some("/init.scope"));
        check(&format!("{first}0::/\n"), Some("/init.scope"));
        check(&format!("{first}0::/new\n"), Some("/new"));
        check("5:cpu:/a\n", None);
        check("", None);
    }

    #[test]
    fn open_files_of_a_process() {
        let mut command = Command::new("sleep");
        let mut child = command
            .arg("60")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let mut looks = Looks::new(true);
        let files = looks.files_of(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(files[0], (0, b"/dev/null".to_vec()));
        assert!(files[1].1.starts_with(b"pipe:["), "{files:?}");
        assert!(looks.path_bytes > 10);
        assert_eq!(looks.files_of(pid), []);
        looks.path_bytes = OPEN_FILES_BYTES_MAX;
        assert_eq!(looks.files_of(std::process::id() as i32), []);
    }

    #[test]
    fn many_files_become_several_records() {
        let files: Vec<File> = (0..300).map(|_| File::open("/dev/null").unwrap()).collect();
        let mut looks = Looks::new(true);
        looks.add(std::process::id() as i32);
        assert!(looks.records.len() > files.len() * 16);
        let mut records = &looks.records[..];
        let mut count = 0;
        while !records.is_empty() {
            let size = usize::from(u16::from_ne_bytes([records[6], records[7]]));
            records = &records[size..];
            count += 1;
        }
        assert!(count >= 2, "{count}");
    }

    #[test]
    fn a_command_that_has_ended_has_its_words() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(has_name(b"ls", &words("/bin/ls -l")));
        assert!(has_name(b"a-name-of-fifte", &words("a-name-of-fifteen")));
        assert!(!has_name(b"ls", &words("sh -c exec:ls")));
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        while procfs::task(pid, pid).is_none_or(|task| task.state != b'Z') {
            std::thread::sleep(Duration::from_millis(1));
        }
        let records = of_command(pid, &words("true of it"), true);
        child.wait().unwrap();
        let has = |text: &[u8]| records.windows(text.len()).any(|found| found == text);
        assert!(has(b"true of it"));
    }
}
