//! Probes that we define ourselves in tracefs, and that are gone when we are.
//!
//! ```text
//! p:pq_4711_88123/malloc /usr/lib/x86_64-linux-gnu/libc.so.6:0x9d1e0 bytes=%di:u64
//! -:pq_4711_88123/malloc
//! ```
//! The group bears our pid and the time of our start, so that a later recorder knows whose it is, and removes what a
//! killed one left. Definitions are appended: opening the file to write from its start would remove everybody's
//! (Documentation/trace/kprobetrace.rst, uprobetracer.rst).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::tracepoint::Tracepoint;
use super::{Kind, Probe};
use crate::failure::{Failure, failed, misuse};
use crate::sys::perf_event::{Attr, abi};
use crate::sys::procfs;
use crate::sys::tracefs::Tracefs;

const GROUP_PREFIX: &str = "pq_";
/// One file for all kinds since Linux 5.0; before, one for each.
const FILES: [&str; 3] = ["dynamic_events", "kprobe_events", "uprobe_events"];
/// Names that the kernel takes: MAX_EVENT_NAME_LEN.
const NAME_BYTES: usize = 63;

/// What kind of place is probed; decides about the file, and about who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The kernel.
    Kernel,
    /// A program or library.
    User,
}

/// A probe to be defined.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    /// As the user wrote it, for messages.
    pub(crate) asked: String,
    /// Where.
    pub(crate) place: Place,
    /// `p`, `r`, or `f` for functions by fprobe.
    pub(crate) letter: char,
    /// As the trace has it: "probe", "probe_libc", "sdt_python".
    pub(crate) system: String,
    /// Name of the event; made unique when it is defined.
    pub(crate) name: String,
    /// The place and the arguments, in the kernel's words.
    pub(crate) body: String,
}

/// Our definitions. Dropped, they are removed; what is still open then, by [`Definitions::leave`].
pub(crate) struct Definitions {
    tracefs: Tracefs,
    group: String,
    /// Names in our group, in the order of their definition.
    defined: Vec<(Place, String)>,
}

impl Definitions {
    /// Nothing yet. Removes what dead recorders left.
    pub(crate) fn new() -> Result<Definitions, Failure> {
        let tracefs = Tracefs::open()?;
        for line in stale(&tracefs) {
            log::info!("removing {line}, left by a recorder that died");
            let _ = remove(&tracefs, &line);
        }
        let pid = std::process::id() as i32;
        let start = procfs::start_ticks(pid).unwrap_or(0);
        Ok(Definitions {
            tracefs,
            group: format!("{GROUP_PREFIX}{pid}_{start}"),
            defined: Vec::new(),
        })
    }

    /// Defines a probe, and gives it as an event that can be recorded.
    pub(crate) fn define(&mut self, definition: &Definition) -> Result<Probe, Failure> {
        let name = self.unique(&definition.name);
        let line = format!(
            "{}:{}/{name} {}",
            definition.letter, self.group, definition.body
        );
        self.append(definition.place, &line)
            .map_err(|error| self.refused(definition, &line, &error))?;
        self.defined.push((definition.place, name.clone()));
        let unreadable = |error: io::Error| failed(format!("{}: {error}", definition.asked));
        let attr = Attr {
            type_: abi::PERF_TYPE_TRACEPOINT,
            config: self.tracefs.id(&self.group, &name).map_err(unreadable)?,
            ..Attr::default()
        };
        Ok(Probe {
            name: format!("{}:{name}", definition.system),
            attr,
            kind: Kind::Tracepoint(Tracepoint {
                system: definition.system.clone(),
                format: self
                    .tracefs
                    .format(&self.group, &name)
                    .map_err(unreadable)?,
                name,
                is_own: true,
            }),
            filter: None,
            wants_precision: false,
        })
    }

    /// `name`, or with a number where it is taken, as perf does.
    fn unique(&self, name: &str) -> String {
        let plain: String = name
            .chars()
            .map(|letter| match letter {
                letter if letter.is_ascii_alphanumeric() => letter,
                _ => '_',
            })
            .take(NAME_BYTES - 4)
            .collect();
        let plain = match plain.starts_with(|first: char| first.is_ascii_digit()) {
            true => format!("_{plain}"),
            false => plain,
        };
        let is_taken = |name: &str| self.defined.iter().any(|(_, taken)| taken == name);
        if !is_taken(&plain) {
            return plain;
        }
        let numbered = (1..).map(|number| format!("{plain}_{number}"));
        numbered
            .into_iter()
            .find(|name| !is_taken(name))
            .unwrap_or(plain)
    }

    fn append(&self, place: Place, line: &str) -> io::Result<()> {
        let mut file = open(&self.tracefs, place)?;
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// The kernel's own reason is the last message in its error log.
    fn refused(&self, definition: &Definition, line: &str, error: &io::Error) -> Failure {
        let asked = &definition.asked;
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                return failed(format!("{asked}: not permitted to define probes"))
                    .hint("only root may: run as root");
            }
            Some(libc::ENOENT) if error.kind() == io::ErrorKind::NotFound => {
                let what = match definition.place {
                    Place::Kernel => "in the kernel (CONFIG_KPROBE_EVENTS)",
                    Place::User => "in programs (CONFIG_UPROBE_EVENTS)",
                };
                if !supports(&self.tracefs, definition.place) {
                    return failed(format!("{asked}: this kernel has no probes {what}"));
                }
            }
            _ => {}
        }
        let log = self.tracefs.file("error_log");
        let log = String::from_utf8_lossy(&log);
        let reason = log
            .lines()
            .rev()
            .find_map(|line| line.split_once("error: "))
            .map(|(_, reason)| reason.trim().to_owned());
        let reason = reason.unwrap_or_else(|| error.to_string());
        misuse(format!("{asked}: the kernel refused it: {reason}"))
            .hint(format!("what it was asked for: {line}"))
    }

    /// Files and the lines that remove all of ours, for whoever closes the events when we are gone.
    pub(crate) fn leave(&mut self) -> Vec<(PathBuf, String)> {
        let files = FILES.map(|file| self.tracefs.path(file));
        let file = files.into_iter().find(|path| path.exists());
        let lines = self.lines();
        file.into_iter()
            .flat_map(|file| lines.iter().map(move |line| (file.clone(), line.clone())))
            .collect()
    }

    /// Lines that remove all of ours, which are no longer ours then.
    fn lines(&mut self) -> Vec<String> {
        let group = &self.group;
        let defined = std::mem::take(&mut self.defined);
        defined
            .iter()
            .map(|(_, name)| format!("-:{group}/{name}"))
            .collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.defined.len()
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        for line in self.lines() {
            if let Err(error) = remove(&self.tracefs, &line) {
                log::warn!("cannot remove the probe {line}: {error}");
            }
        }
    }
}

/// `--cleanup`: removes what dead recorders left, and tells what it was.
pub(crate) fn clean_up() -> Result<Vec<String>, Failure> {
    let tracefs = Tracefs::open()?;
    let mut removed = Vec::new();
    for line in stale(&tracefs) {
        remove(&tracefs, &line)
            .map_err(|error| failed(format!("cannot remove the probe {line}: {error}")))?;
        removed.push(line.trim_start_matches("-:").to_owned());
    }
    Ok(removed)
}

/// Lines that remove the probes of recorders that are gone.
fn stale(tracefs: &Tracefs) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for file in FILES {
        let text = tracefs.file(file);
        for line in String::from_utf8_lossy(&text).lines() {
            let name = line.split_whitespace().next().unwrap_or_default();
            let Some((_, name)) = name.split_once(':') else {
                continue;
            };
            let group = name.split('/').next().unwrap_or_default();
            if is_stale(group) {
                lines.insert(format!("-:{name}"));
            }
        }
    }
    lines.into_iter().collect()
}

/// Whether a group is that of a recorder that no longer runs.
fn is_stale(group: &str) -> bool {
    let Some((pid, start)) = group
        .strip_prefix(GROUP_PREFIX)
        .and_then(|rest| rest.split_once('_'))
    else {
        return false;
    };
    let (Ok(pid), Ok(start)) = (pid.parse::<i32>(), start.parse::<u64>()) else {
        return false;
    };
    procfs::start_ticks(pid) != Some(start)
}

fn remove(tracefs: &Tracefs, line: &str) -> io::Result<()> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for file in FILES {
        let path = tracefs.path(file);
        if !path.exists() {
            continue;
        }
        match append_to(&path).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn supports(tracefs: &Tracefs, place: Place) -> bool {
    let own = match place {
        Place::Kernel => "kprobe_events",
        Place::User => "uprobe_events",
    };
    tracefs.path(own).exists()
}

fn open(tracefs: &Tracefs, place: Place) -> io::Result<File> {
    if !supports(tracefs, place) {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let own = match place {
        Place::Kernel => "kprobe_events",
        Place::User => "uprobe_events",
    };
    let common = tracefs.path(FILES[0]);
    match common.exists() {
        true => append_to(&common),
        false => append_to(&tracefs.path(own)),
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_dead_recorders_are_stale() {
        let own = procfs::start_ticks(std::process::id() as i32).expect("we run");
        assert!(!is_stale(&format!("pq_{}_{own}", std::process::id())));
        assert!(is_stale(&format!("pq_{}_{}", std::process::id(), own + 1)));
        assert!(is_stale("pq_999999999_1"));
        for foreign in ["probe", "pq_", "pq_1", "pq_x_1", "perf_1_2"] {
            assert!(!is_stale(foreign), "{foreign}");
        }
    }
}
