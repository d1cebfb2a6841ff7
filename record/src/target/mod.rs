//! The target of a recording: the whole system, a command, processes, threads, users, cgroups, on which CPUs.

pub(crate) mod containers;
mod runtime_names;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

use clap::Args;
use perfquet_cli::nearest;

use crate::failure::{Failure, failed, misuse};
use crate::sys::privileges::Scope;
use crate::sys::{host, procfs};

/// Maximum number of cgroups named in a hint, and searched for it.
const MOST_NAMED: usize = 12;
const MOST_LOOKED_AT: usize = 10_000;

/// Target options other than `-a`, `-p` and `-t`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TargetOptions {
    /// Record processes of USER (name or UID) and their children
    ///
    /// Excludes the recorder itself.
    #[arg(short = 'u', long = "uid", value_name = "USER")]
    user: Option<String>,
    /// Record these cgroups; comma-separated
    ///
    /// CGROUP is a path below the cgroup mount point, such as system.slice/cron.service.
    #[arg(
        short = 'G',
        long = "cgroup",
        value_name = "CGROUP",
        value_delimiter = ','
    )]
    cgroups: Vec<String>,
    /// Record these containers or systemd units; comma-separated
    ///
    /// NAME is a container's name or the beginning of its ID (docker, podman, containerd, CRI-O, LXC, systemd-nspawn), or a unit, such as
    /// nginx.service. Includes processes that start later.
    #[arg(long = "container", value_name = "NAME|ID", value_delimiter = ',')]
    containers: Vec<String>,
    /// Exclude the recorder's own activity, including samples
    ///
    /// By default, the recorder is excluded only from the events that it causes.
    #[arg(long = "exclude-self", alias = "exclude-perf")]
    pub(crate) excludes_self: bool,
    /// Record only the target's own threads, not what they start
    ///
    /// Of a command, records its first thread; of processes, the threads that run when the recording starts.
    #[arg(short = 'i', long = "no-inherit")]
    pub(crate) excludes_children: bool,
}

/// The target of a recording.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Everything on the selected CPUs.
    System,
    /// The command after `--` and its children.
    Command,
    /// These processes and their children.
    Processes(Vec<i32>),
    /// These processes of a ring of traces, and the children that they have started since the ring began.
    Family(Family),
    /// These threads and their children.
    Threads(Vec<i32>),
    /// Processes of the user with this UID, and their children.
    User(u32),
    /// Tasks of these cgroups, on the selected CPUs.
    Cgroups(Vec<Cgroup>),
}

/// Processes, and those that they have started since a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) roots: Vec<i32>,
    /// Earlier descendants, also those whose parents have ended.
    pub(crate) known: Vec<i32>,
    /// In ticks since boot.
    pub(crate) since: u64,
}

impl Family {
    /// The processes that there are now, without this one and the one that started it.
    pub(crate) fn members(&self) -> Vec<i32> {
        let own = [std::process::id(), parent_id()].map(|pid| pid as i32);
        let is_new = |pid: i32| procfs::start_ticks(pid).is_some_and(|start| start >= self.since);
        let known = self.known.iter().copied().filter(|&pid| is_new(pid));
        let mut pids: Vec<i32> = self.roots.iter().copied().chain(known).collect();
        procfs::add_descendants_if(&mut pids, |pid| is_new(pid) && !own.contains(&pid));
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// A group of processes.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    folder: File,
}

/// Where an event is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The tasks.
    pub(crate) tasks: Tasks,
    /// The CPU. Required even for threads: the kernel rejects mmap of a ring that threads inherit unless it belongs to
    /// one CPU.
    pub(crate) cpu: u32,
}

/// The tasks that an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tasks {
    /// All tasks.
    All,
    /// One thread.
    Thread(i32),
    /// The tasks of a cgroup, by its directory's descriptor.
    Cgroup(i32),
}

impl TargetOptions {
    /// Whether the command line names a user or cgroups.
    pub(crate) fn are_given(&self) -> bool {
        self.user.is_some() || !self.cgroups.is_empty() || !self.containers.is_empty()
    }

    /// A user or cgroups, if the command line names them.
    pub(crate) fn target(&self) -> Result<Option<Target>, Failure> {
        let has_cgroups = !self.cgroups.is_empty() || !self.containers.is_empty();
        match (&self.user, has_cgroups) {
            (None, false) => Ok(None),
            (Some(user), false) => user_number(user).map(|user| Some(Target::User(user))),
            (None, true) => self.cgroups().map(|cgroups| Some(Target::Cgroups(cgroups))),
            (Some(_), true) => Err(misuse("choose one of -u, -G and --container")),
        }
    }

    /// Opens the cgroups and those of the containers.
    fn cgroups(&self) -> Result<Vec<Cgroup>, Failure> {
        let root = cgroup_root()?;
        let mut names = self.cgroups.clone();
        if !self.containers.is_empty() {
            let all = cgroups_in(&root);
            for name in &self.containers {
                names.push(runtime_names::cgroup_of(name, &all, Path::new("/"))?);
            }
        }
        names.iter().map(|name| Cgroup::open(&root, name)).collect()
    }
}

impl Target {
    /// Threads times CPUs, or cgroups times CPUs. `command` is the pid of the waiting command.
    pub(crate) fn places(&self, command: Option<i32>, cpus: &[u32]) -> Result<Vec<Place>, Failure> {
        let tasks = match self {
            Target::System => vec![Tasks::All],
            Target::Command => Vec::from_iter(command.map(Tasks::Thread)),
            Target::Processes(pids) => {
                if let Some(gone) = pids.iter().find(|pid| procfs::threads(**pid).is_empty()) {
                    return Err(misuse(format!("no process {gone}")));
                }
                self.threads()
            }
            Target::Family(family) => {
                let threads = self.threads();
                if threads.is_empty() {
                    let gone = family.roots.first().copied().unwrap_or_default();
                    return Err(misuse(format!("no process {gone}")));
                }
                threads
            }
            Target::Threads(tids) => {
                if let Some(gone) = tids.iter().find(|tid| procfs::process_of(**tid).is_none()) {
                    return Err(misuse(format!("no thread {gone}")));
                }
                self.threads()
            }
            Target::User(user) => {
                let threads = self.threads();
                if threads.is_empty() {
                    return Err(failed(format!("no process of user {user} runs")));
                }
                threads
            }
            Target::Cgroups(cgroups) => {
                let folders = cgroups.iter().map(|cgroup| cgroup.folder.as_raw_fd());
                folders.map(Tasks::Cgroup).collect()
            }
        };
        let on_cpus = |tasks| cpus.iter().map(move |&cpu| Place { tasks, cpu });
        Ok(tasks.into_iter().flat_map(on_cpus).collect())
    }

    /// The threads that there are now, of targets that are made of threads.
    pub(crate) fn threads(&self) -> Vec<Tasks> {
        let mut tids: Vec<i32> = match self {
            Target::System | Target::Command | Target::Cgroups(_) => Vec::new(),
            Target::Processes(pids) => pids.iter().flat_map(|&pid| procfs::threads(pid)).collect(),
            Target::Family(family) => {
                let pids = family.members().into_iter();
                pids.flat_map(procfs::threads).collect()
            }
            Target::Threads(tids) => tids.clone(),
            Target::User(user) => {
                let pids = processes_of(*user).into_iter();
                pids.flat_map(procfs::threads).collect()
            }
        };
        // A thread selected twice is recorded once.
        tids.sort_unstable();
        tids.dedup();
        tids.into_iter().map(Tasks::Thread).collect()
    }

    /// Paths of the cgroups, in their order; empty for other targets.
    pub(crate) fn cgroup_paths(&self) -> Vec<String> {
        match self {
            Target::Cgroups(cgroups) => {
                let paths = cgroups
                    .iter()
                    .map(|cgroup| cgroup.path.display().to_string());
                paths.collect()
            }
            Target::System
            | Target::Command
            | Target::Processes(_)
            | Target::Family(_)
            | Target::Threads(_)
            | Target::User(_) => Vec::new(),
        }
    }

    /// The processes that exist and may be met. `command` is the pid of the waiting command.
    pub(crate) fn processes(&self, command: Option<i32>) -> Vec<i32> {
        match self {
            // A process may come into a cgroup later.
            Target::System | Target::Cgroups(_) => procfs::processes(),
            Target::Command => Vec::from_iter(command),
            Target::Processes(pids) => pids.clone(),
            Target::Family(family) => family.members(),
            Target::Threads(tids) => {
                let processes = tids.iter().filter_map(|tid| procfs::process_of(*tid));
                let mut pids: Vec<i32> = processes.collect();
                pids.sort_unstable();
                pids.dedup();
                pids
            }
            Target::User(user) => processes_of(*user),
        }
    }

    /// Whether events are opened for whole CPUs, which include new threads.
    pub(crate) fn is_of_cpus(&self) -> bool {
        matches!(self, Target::System | Target::Cgroups(_))
    }

    /// Describes the recording for the manifest: "processes 12, 13", "system". `cpus` is set if they were selected.
    pub(crate) fn describe(&self, cpus: Option<&[u32]>) -> String {
        let list = |numbers: &[i32]| {
            let numbers: Vec<String> = numbers.iter().map(i32::to_string).collect();
            numbers.join(", ")
        };
        let named = |what: &str, numbers: &[i32]| match numbers {
            [number] => format!("{what} {number}"),
            numbers => format!(
                "{what}{} {}",
                if what.ends_with('s') { "es" } else { "s" },
                list(numbers)
            ),
        };
        let description = match self {
            Target::System => "system".to_owned(),
            Target::Command => "command".to_owned(),
            Target::Processes(pids) => named("process", pids),
            Target::Family(family) => named("process", &family.roots),
            Target::Threads(tids) => named("thread", tids),
            Target::User(user) => format!("user {user}"),
            Target::Cgroups(cgroups) => {
                let paths: Vec<String> = cgroups
                    .iter()
                    .map(|cgroup| cgroup.path.display().to_string())
                    .collect();
                format!(
                    "cgroup{} {}",
                    if paths.len() > 1 { "s" } else { "" },
                    paths.join(", ")
                )
            }
        };
        match cpus {
            None => description,
            Some(cpus) => {
                let numbers: Vec<i32> = cpus.iter().map(|&cpu| cpu as i32).collect();
                format!("{description}, {}", named("CPU", &numbers))
            }
        }
    }

    /// Returns the scope for the message of a rejected event.
    pub(crate) fn scope(&self) -> Scope {
        match self {
            Target::System => Scope::System,
            Target::Cgroups(_) => Scope::Cgroup,
            Target::Command => Scope::Command,
            Target::Family(family) => Scope::Task(family.roots.first().copied().unwrap_or(0)),
            Target::Processes(ids) | Target::Threads(ids) => {
                Scope::Task(ids.first().copied().unwrap_or(0))
            }
            Target::User(user) => Scope::User(*user),
        }
    }

    /// Whether all of the target has ended. Commands are handled elsewhere.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Target::System | Target::Command | Target::User(_) | Target::Cgroups(_) => false,
            Target::Processes(pids) => !pids.iter().any(|&pid| procfs::is_process_alive(pid)),
            Target::Family(family) => {
                !(family.roots.iter()).any(|&pid| procfs::is_process_alive(pid))
            }
            Target::Threads(tids) => !tids.iter().any(|&tid| procfs::is_alive(tid)),
        }
    }
}

impl Cgroup {
    fn open(root: &Path, name: &str) -> Result<Cgroup, Failure> {
        let path = root.join(name.trim_start_matches('/'));
        match File::open(&path) {
            Ok(folder) if path.is_dir() => Ok(Cgroup { path, folder }),
            Ok(_) => Err(misuse(format!(
                "-G {name}: {} is not a cgroup",
                path.display()
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let all = cgroups_in(root);
                let near = nearest(name, all.iter().cloned());
                let hint = match (near.is_empty(), all.is_empty()) {
                    (false, _) => format!("use {}", near.join(", ")),
                    (true, true) => format!(
                        "check the cgroup mount {}; it has no cgroups",
                        root.display()
                    ),
                    (true, false) => {
                        let more = if all.len() > MOST_NAMED { ", …" } else { "" };
                        let all = &all[..all.len().min(MOST_NAMED)];
                        format!("choose from the cgroups: {}{more}", all.join(", "))
                    }
                };
                let root = root.display();
                Err(misuse(format!("-G {name}: no such cgroup below {root}")).hint(hint))
            }
            Err(error) => Err(failed(format!("-G {name}: {}: {error}", path.display()))),
        }
    }
}

impl PartialEq for Cgroup {
    fn eq(&self, other: &Cgroup) -> bool {
        self.path == other.path
    }
}

impl Eq for Cgroup {}

/// Returns all processes of an effective user, except the recorder.
fn processes_of(user: u32) -> Vec<i32> {
    let own = std::process::id() as i32;
    let mut pids = procfs::processes();
    pids.retain(|&pid| pid != own && procfs::user_of(pid) == Some(user));
    pids
}

fn user_number(name: &str) -> Result<u32, Failure> {
    match name.parse() {
        Ok(number) => Ok(number),
        Err(_) => host::user_number(name).ok_or_else(|| misuse(format!("-u {name}: no such user"))),
    }
}

/// Returns the cgroup mount point to which events can be bound: that of version 1 if it has the perf_event controller,
/// otherwise of version 2.
fn cgroup_root() -> Result<PathBuf, Failure> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    cgroup_root_in(&mounts).ok_or_else(|| {
        failed("no cgroups are mounted").hint("as root: mount -t cgroup2 none /sys/fs/cgroup")
    })
}

fn cgroup_root_in(mounts: &str) -> Option<PathBuf> {
    let mut second = None;
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[_, folder, kind, options, ..] = &words[..] else {
            continue;
        };
        let is_first = kind == "cgroup" && options.split(',').any(|option| option == "perf_event");
        if is_first {
            return Some(folder.into());
        }
        if kind == "cgroup2" {
            second = second.or(Some(folder.into()));
        }
    }
    second
}

/// Paths below the root, sorted, those near it first.
fn cgroups_in(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut level = vec![PathBuf::new()];
    while !level.is_empty() && found.len() < MOST_LOOKED_AT {
        let mut below = Vec::new();
        for path in &level {
            let entries = fs::read_dir(root.join(path))
                .into_iter()
                .flatten()
                .flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            below.extend(folders.map(|entry| path.join(entry.file_name())));
        }
        below.sort();
        found.extend(below.iter().map(|path| path.display().to_string()));
        level = below;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_described() {
        assert_eq!(Target::System.describe(None), "system");
        assert_eq!(Target::System.describe(Some(&[0, 2])), "system, CPUs 0, 2");
        assert_eq!(Target::Processes(vec![7]).describe(None), "process 7");
        let two = Target::Processes(vec![7, 8]);
        assert_eq!(two.describe(Some(&[1])), "processes 7, 8, CPU 1");
        assert_eq!(Target::Threads(vec![7, 8]).describe(None), "threads 7, 8");
    }

    #[test]
    fn missing_cgroup_gets_the_nearest_name() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("system.slice/cron.service")).unwrap();
        let said = |name: &str| {
            let failure = Cgroup::open(root.path(), name).unwrap_err();
            format!("{failure}; {}", failure.hint_text().unwrap_or_default())
        };
        let text = said("system.slice/crom.service");
        assert!(text.contains("no such cgroup below"), "{text}");
        assert!(text.ends_with("use system.slice/cron.service"), "{text}");
        let text = said("zzzzz");
        assert!(
            text.ends_with("choose from the cgroups: system.slice, system.slice/cron.service"),
            "{text}"
        );
        assert!(Cgroup::open(root.path(), "/system.slice").is_ok());
    }

    #[test]
    fn where_cgroups_are() {
        let both = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
            cgroup /sys/fs/cgroup/perf_event cgroup rw,nosuid,perf_event 0 0\n";
        let first = cgroup_root_in(both);
        assert_eq!(first, Some("/sys/fs/cgroup/perf_event".into()));
        let second = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(cgroup_root_in(second), Some("/sys/fs/cgroup".into()));
        assert_eq!(cgroup_root_in("proc /proc proc rw 0 0"), None);
    }
}
