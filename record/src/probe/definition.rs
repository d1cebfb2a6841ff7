//! Definition of probes in tracefs; they are removed when the recorder exits.
//!
//! ```text
//! p:pq_4711_88123/malloc /usr/lib/x86_64-linux-gnu/libc.so.6:0x9d1e0 bytes=%di:u64
//! f:pq_4711_88123/vfs_read vfs_read count=$arg3:u64
//! -:pq_4711_88123/malloc
//! ```
//! The group name contains the recorder's PID and start time, so that a later recorder recognizes and removes the
//! probes of a killed one. Definitions are appended: truncating the file would remove all probes of all users
//! (Documentation/trace/kprobetrace.rst, fprobetrace.rst, uprobetracer.rst).

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use perfquet_events::event::Purpose;
use perfquet_trace::count::counted;

use super::form::{Form, Place};
use super::rejected::Rejected;
use super::tracepoint::Tracepoint;
use super::{Kind, Probe, event_attr};
use crate::failure::{Failure, failed, misuse};
use crate::sys::tracefs::{Tracefs, while_busy};
use crate::sys::{host, procfs};

const GROUP_PREFIX: &str = "pq_";
/// Since Linux 5.0 there is one file for all kinds of probes; earlier kernels have one for each.
const FILES: [&str; 3] = ["dynamic_events", "kprobe_events", "uprobe_events"];
/// Time within which exiting threads release their events, even on a busy host.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);
/// Maximum length of an event name: MAX_EVENT_NAME_LEN.
const NAME_BYTES: usize = 63;

/// Start of the system of static probes, before the provider.
pub(super) const STATIC_PROBES: &str = "sdt_";

/// A probe to define.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    /// The text from the command line, for messages.
    pub(crate) text: String,
    /// Kernel or user space.
    pub(crate) place: Place,
    /// System in the trace: "probe", "probe_libc", "sdt_python".
    pub(crate) system: String,
    /// Name of the event; made unique by the definition.
    pub(crate) name: String,
    /// Alternative forms, best first; the kernel accepts one of them or rejects them all.
    pub(crate) forms: Vec<Form>,
}

/// A definition that the kernel accepted.
struct Written {
    name: String,
    form: Form,
}

/// A rejected definition, and the kernel's error.
struct Refusal {
    line: String,
    error: io::Error,
}

impl Refusal {
    /// Whether the place is the reason: excluded, or with a name that several functions have. Another place may then
    /// work.
    fn is_of_the_place(&self) -> bool {
        let codes = [
            libc::EINVAL,
            libc::EADDRNOTAVAIL,
            libc::ENOENT,
            libc::EILSEQ,
        ];
        let code = self.error.raw_os_error();
        code.is_some_and(|code| codes.contains(&code))
    }
}

/// All definitions of the recorder. Dropping removes them; probes that are still in use then are removed by
/// the process that closes them ([`Definitions::removal`]).
pub(crate) struct Definitions {
    tracefs: Tracefs,
    group: String,
    /// Names in the recorder's group, in order of definition.
    defined: Vec<(Place, String)>,
    /// Probes at which only programs run, by their forms.
    of_programs: Vec<(Vec<Form>, Probe)>,
    /// Names of all traceable functions, about a megabyte; read only to explain a rejection.
    traceable: OnceCell<Vec<u8>>,
}

impl Definitions {
    /// Starts without definitions, and removes those of killed recorders.
    pub(crate) fn new() -> Result<Definitions, Failure> {
        let tracefs = Tracefs::open()?;
        for line in stale(&tracefs) {
            log::info!("removing {line}, left by a killed recorder");
            let _ = remove(&tracefs, &line);
        }
        Ok(Definitions {
            tracefs,
            group: own_group(),
            defined: Vec::new(),
            of_programs: Vec::new(),
            traceable: OnceCell::new(),
        })
    }

    /// Returns the existing definitions, or new ones.
    pub(crate) fn of(all: &mut Option<Definitions>) -> Result<&mut Definitions, Failure> {
        Ok(match all {
            Some(definitions) => definitions,
            none => none.insert(Definitions::new()?),
        })
    }

    /// Defines one probe, and returns its event.
    pub(crate) fn define(&mut self, definition: &Definition) -> Result<Probe, Failure> {
        match self.write_one_of(definition) {
            Ok(written) => self.defined(definition, written),
            Err(refusal) => Err(self.refused(definition, &refusal)),
        }
    }

    /// Like [`Definitions::define`], for programs: equal forms share an event.
    pub(crate) fn define_for_programs(
        &mut self,
        definition: &Definition,
    ) -> Result<Probe, Failure> {
        let is_it = |(forms, _): &&(Vec<Form>, Probe)| *forms == definition.forms;
        if let Some((_, probe)) = self.of_programs.iter().find(is_it) {
            return Ok(probe.clone());
        }
        let probe = self.define(definition)?;
        self.of_programs
            .push((definition.forms.clone(), probe.clone()));
        Ok(probe)
    }

    /// Defines all probes of one option. Of several, from wildcards, those that the kernel rejects are skipped and
    /// reported.
    pub(crate) fn define_all(&mut self, wanted: &[Definition]) -> Result<Vec<Probe>, Failure> {
        let mut probes = Vec::with_capacity(wanted.len());
        let mut rejected = Rejected::default();
        for definition in wanted {
            match self.write_one_of(definition) {
                Ok(written) => probes.push(self.defined(definition, written)?),
                Err(refusal) => {
                    let may_go = wanted.len() > 1 && refusal.is_of_the_place();
                    let failure = self.refused(definition, &refusal);
                    if !may_go {
                        return Err(failure);
                    }
                    rejected.add(&definition.name, failure);
                }
            }
        }
        let text = wanted.first().map_or("", |definition| &definition.text);
        rejected.report(text, probes.len(), "cannot be probed")?;
        Ok(probes)
    }

    /// Writes the first form that the kernel accepts.
    fn write_one_of(&mut self, definition: &Definition) -> Result<Written, Refusal> {
        let name = self.unique(&definition.name);
        let mut refusal = None;
        for form in &definition.forms {
            let line = format!("{}:{}/{name} {}", form.head, self.group, form.body);
            match self.append(definition.place, &line) {
                Ok(()) => {
                    self.defined.push((definition.place, name.clone()));
                    return Ok(Written {
                        name,
                        form: form.clone(),
                    });
                }
                Err(error) => {
                    log::debug!("{line}: {error}");
                    let is_last = error.kind() == io::ErrorKind::PermissionDenied;
                    refusal = Some(Refusal { line, error });
                    if is_last {
                        break;
                    }
                }
            }
        }
        Err(refusal.unwrap_or_else(|| Refusal {
            line: String::new(),
            error: io::Error::from(io::ErrorKind::InvalidInput),
        }))
    }

    /// Returns the event of a defined probe.
    fn defined(&self, definition: &Definition, written: Written) -> Result<Probe, Failure> {
        let name = written.name;
        let unreadable = |error: io::Error| failed(format!("{}: {error}", definition.text));
        let id = self.tracefs.id(&self.group, &name).map_err(unreadable)?;
        let format = self
            .tracefs
            .format(&self.group, &name)
            .map_err(unreadable)?;
        // The sites of a static probe are one event.
        let name = match definition.system.starts_with(STATIC_PROBES) {
            true => plain(&definition.name),
            false => name,
        };
        Ok(Probe {
            name: format!("{}:{name}", definition.system),
            attr: event_attr::tracepoint(id),
            kind: Kind::Tracepoint(Tracepoint {
                system: definition.system.clone(),
                format,
                name,
                is_own: true,
                is_of_program: definition.place == Place::User,
                purpose: Purpose::Rows,
                definition: Some((definition.place, written.form)),
            }),
            filter: None,
            wants_precision: false,
            pattern: None,
            members: Vec::new(),
        })
    }

    /// Returns `name`, with a number appended if it is in use, as in perf.
    fn unique(&self, name: &str) -> String {
        let plain = plain(name);
        let is_taken = |name: &str| self.defined.iter().any(|(_, taken)| taken == name);
        if !is_taken(&plain) {
            return plain;
        }
        let mut numbered = (1..).map(|number| format!("{plain}_{number}"));
        numbered.find(|name| !is_taken(name)).unwrap_or(plain)
    }

    fn append(&self, place: Place, line: &str) -> io::Result<()> {
        let mut file = open(&self.tracefs, place)?;
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// Returns the error of a rejected probe. The kernel's reason is the last message in its error log.
    fn refused(&self, definition: &Definition, refusal: &Refusal) -> Failure {
        let Refusal { line, error } = refusal;
        let text = &definition.text;
        match error.raw_os_error() {
            Some(libc::EPERM) if host::is_root() && definition.place == Place::Kernel => {
                return failed(format!("{text}: the kernel does not allow probe definitions"))
                    .hint("use tracepoints or uprobes; the kernel is locked down (/sys/kernel/security/lockdown)");
            }
            Some(libc::EACCES | libc::EPERM) => {
                return failed(format!("{text}: not permitted to define probes"))
                    .hint("run as root");
            }
            Some(libc::ENOENT) if !supports(&self.tracefs, definition.place) => {
                return unsupported(definition);
            }
            _ => {}
        }
        if let Some(function) = self.excluded(definition) {
            return misuse(format!(
                "{text}: the kernel does not allow probing {function}"
            ))
            .hint("probe a caller; the function is marked notrace or noinstr, or handles probes");
        }
        let log = self.tracefs.file("error_log");
        let log = String::from_utf8_lossy(&log);
        let reason = log
            .lines()
            .rev()
            .find_map(|line| line.split_once("error: "))
            .map(|(_, reason)| reason.trim().to_owned());
        let reason = reason.unwrap_or_else(|| error.to_string());
        misuse(format!("{text}: the kernel rejected the probe: {reason}"))
            .hint(format!("check the definition: {line}"))
    }

    /// Returns the function of a rejected kernel probe, if it is not traceable.
    fn excluded<'a>(&self, definition: &'a Definition) -> Option<&'a str> {
        if definition.place != Place::Kernel {
            return None;
        }
        let place = definition.forms.last()?.body.split_whitespace().next()?;
        let function = place.split('+').next()?;
        let traceable = self
            .traceable
            .get_or_init(|| self.tracefs.file("available_filter_functions"));
        let is_it =
            |line: &[u8]| line.split(|&byte| byte == b' ').next() == Some(function.as_bytes());
        let is_known = !traceable.is_empty() && !traceable.split(|&byte| byte == b'\n').any(is_it);
        is_known.then_some(function)
    }

    /// Returns the files, and the lines to write to them, that remove all probes, for the process that closes the
    /// events after the recorder has exited.
    pub(crate) fn removal(&self) -> Vec<(PathBuf, String)> {
        let files = FILES.map(|file| self.tracefs.path(file));
        let file = files.into_iter().find(|path| path.exists());
        let lines = self.lines();
        file.into_iter()
            .flat_map(|file| lines.iter().map(move |line| (file.clone(), line.clone())))
            .collect()
    }

    /// Leaves the removal to another process.
    pub(crate) fn forget(&mut self) {
        self.defined.clear();
    }

    /// Returns the lines that remove all probes.
    fn lines(&self) -> Vec<String> {
        let group = &self.group;
        let names = self.defined.iter().map(|(_, name)| name);
        names.map(|name| format!("-:{group}/{name}")).collect()
    }

    /// Returns the number of hits that the kernel noticed but could not record, with the names of their events: too
    /// many calls waited for their return, or a probe was hit inside another one. Only available for kprobes.
    pub(crate) fn missed(&self) -> Vec<(String, u64)> {
        let text = |name| String::from_utf8_lossy(&self.tracefs.file(name)).into_owned();
        let missed = missed(&text("kprobe_events"), &text("kprobe_profile"), &self.group);
        for (name, count) in &missed {
            log::warn!("{name}: the kernel missed {}", counted(*count, "hit"));
        }
        missed
    }

    /// Returns the number of definitions.
    pub(crate) fn len(&self) -> usize {
        self.defined.len()
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        let deadline = Instant::now() + RELEASED_WITHIN;
        for line in self.lines() {
            // A thread that is exiting releases the events that it inherited by itself, and may do so after the recorder has
            // closed its own.
            let removed = while_busy(deadline, Duration::from_millis(1), || {
                remove(&self.tracefs, &line)
            });
            if let Err(error) = removed {
                log::warn!("cannot remove the probe {line}: {error}");
            }
        }
    }
}

/// Returns a name that the kernel accepts.
fn plain(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|letter| match letter {
            letter if letter.is_ascii_alphanumeric() => letter,
            _ => '_',
        })
        .take(NAME_BYTES - 4)
        .collect();
    match plain.starts_with(|first: char| first.is_ascii_digit()) {
        true => format!("_{plain}"),
        false => plain,
    }
}

/// ```text
/// r4096:pq_4711_88123/vfs_read__return vfs_read ret=$retval:s64       kprobe_events
///   vfs_read__return                          9               3       kprobe_profile: name, hits, misses
/// ```
/// Parses the missed hits. The profile has no groups, but the same order as the other file.
fn missed(events: &str, profile: &str, group: &str) -> Vec<(String, u64)> {
    if events.lines().count() != profile.lines().count() {
        return Vec::new(); // somebody defined or removed one between the two
    }
    let lines = events.lines().zip(profile.lines());
    lines
        .filter_map(|(event, counts)| {
            let (_, event) = event.split_whitespace().next()?.split_once(':')?;
            let (of, name) = event.split_once('/')?;
            let count = counts.split_whitespace().next_back()?.parse::<u64>().ok()?;
            let is_it = of == group && counts.split_whitespace().next() == Some(name);
            (is_it && count > 0).then(|| (name.to_owned(), count))
        })
        .collect()
}

/// `--cleanup`: removes the probes of killed recorders, and returns them.
pub(crate) fn clean_up() -> Result<Vec<String>, Failure> {
    let tracefs = Tracefs::open()?;
    let mut removed = Vec::new();
    for line in stale(&tracefs) {
        let name = line.trim_start_matches("-:");
        match remove(&tracefs, &line) {
            Ok(()) => removed.push(name.to_owned()),
            Err(error) => log::warn!("cannot remove the probe {name}: {error}"),
        }
    }
    Ok(removed)
}

/// Returns the lines that remove the probes of killed recorders.
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

/// Returns the group of this recorder in the kernel: its PID and start time.
pub(crate) fn own_group() -> String {
    let pid = std::process::id() as i32;
    let start = procfs::start_ticks(pid).unwrap_or(0);
    format!("{GROUP_PREFIX}{pid}_{start}")
}

/// Whether the recorder of a group no longer runs.
pub(crate) fn is_stale(group: &str) -> bool {
    owner_of(group).is_some_and(|(pid, start)| procfs::start_ticks(pid) != Some(start))
}

/// Returns the PID of a group's recorder.
pub(crate) fn pid_of(group: &str) -> Option<i32> {
    owner_of(group).map(|(pid, _)| pid)
}

fn owner_of(group: &str) -> Option<(i32, u64)> {
    let (pid, start) = group.strip_prefix(GROUP_PREFIX)?.split_once('_')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
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

/// Fails if the kernel has no such probes. Without access to tracefs, the definition fails.
pub(super) fn check_support(wanted: &[Definition]) -> Result<(), Failure> {
    let Ok(tracefs) = Tracefs::open() else {
        return Ok(());
    };
    let missing = wanted
        .iter()
        .find(|definition| !supports(&tracefs, definition.place));
    missing.map_or(Ok(()), |definition| Err(unsupported(definition)))
}

fn unsupported(definition: &Definition) -> Failure {
    let what = match definition.place {
        Place::Kernel => "in the kernel (CONFIG_KPROBE_EVENTS)",
        Place::User => "in programs (CONFIG_UPROBE_EVENTS)",
    };
    failed(format!(
        "{}: this kernel has no probes {what}",
        definition.text
    ))
}

fn supports(tracefs: &Tracefs, place: Place) -> bool {
    tracefs.path(own_file(place)).exists()
}

/// Returns the file for probes of one kind only.
fn own_file(place: Place) -> &'static str {
    match place {
        Place::Kernel => "kprobe_events",
        Place::User => "uprobe_events",
    }
}

fn open(tracefs: &Tracefs, place: Place) -> io::Result<File> {
    if !supports(tracefs, place) {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let common = tracefs.path(FILES[0]);
    match common.exists() {
        true => append_to(&common),
        false => append_to(&tracefs.path(own_file(place))),
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_misses_of_the_own_group_are_reported() {
        let events = "p:other/read vfs_read\nr4096:pq_1_2/read vfs_read ret=$retval:s64\np:pq_1_2/write vfs_write\n";
        let profile = "  read  9 5\n  read   9   3\n  write  7  0\n";
        assert_eq!(missed(events, profile, "pq_1_2"), [("read".to_owned(), 3)]);
        assert!(missed(events, "  read  9 5\n", "pq_1_2").is_empty());
        assert!(missed("p:pq_1_2/other x\n", "  read  9 5\n", "pq_1_2").is_empty());
    }

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
