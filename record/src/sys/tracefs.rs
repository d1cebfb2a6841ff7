//! tracefs: which tracepoints the kernel has, their ids and the formats of their payloads.
//!
//! ```text
//! /sys/kernel/tracing/events/sched/sched_switch/id       316
//! /sys/kernel/tracing/events/sched/sched_switch/format   name: sched_switch …
//! ```

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, failed};
use crate::sys::host;

const USUAL: &str = "/sys/kernel/tracing";

/// A mounted tracefs.
#[derive(Debug, Clone)]
pub(crate) struct Tracefs {
    root: PathBuf,
}

impl Tracefs {
    /// Finds it, or mounts it as root.
    pub(crate) fn open() -> Result<Tracefs, Failure> {
        let root = match mounted() {
            Some(root) => root,
            None if host::is_root() && host::mount_tracefs(Path::new(USUAL)).is_ok() => {
                log::info!("mounted tracefs at {USUAL}");
                PathBuf::from(USUAL)
            }
            None => {
                return Err(failed(format!("cannot read {USUAL}: not mounted"))
                    .hint(format!("as root: mount -t tracefs tracefs {USUAL}")));
            }
        };
        match fs::read_dir(root.join("events")) {
            Ok(_) => Ok(Tracefs { root }),
            Err(error) => Err(
                failed(format!("cannot read {}: {error}", root.display())).hint(format!(
                    "run as root, or mount it with -o gid=GROUP,mode=750 for one of your groups \
                     (mount -o remount,gid=GROUP,mode=750 {})",
                    root.display()
                )),
            ),
        }
    }

    /// Names of the systems, sorted.
    pub(crate) fn systems(&self) -> Vec<String> {
        folders(&self.root.join("events"))
    }

    /// Names of a system's tracepoints, sorted.
    pub(crate) fn tracepoints(&self, system: &str) -> Vec<String> {
        // "ftrace" holds formats of ftrace's own entries, without an id to open.
        let folder = self.root.join("events").join(system);
        let mut names = folders(&folder);
        names.retain(|name| folder.join(name).join("id").exists());
        names
    }

    /// Id of a tracepoint: the `config` of its event.
    pub(crate) fn id(&self, system: &str, name: &str) -> io::Result<u64> {
        let id = fs::read_to_string(self.event_file(system, name, "id"))?;
        id.trim()
            .parse()
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("id {:?}", id.trim())))
    }

    /// Format of a tracepoint's payload.
    pub(crate) fn format(&self, system: &str, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.event_file(system, name, "format"))
    }

    /// Returns the path of one of its files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Any other file, by its path from the root; empty if it cannot be read.
    pub(crate) fn file(&self, path: &str) -> Vec<u8> {
        read_at_once(&self.root.join(path)).unwrap_or_default()
    }

    fn event_file(&self, system: &str, name: &str, file: &str) -> PathBuf {
        self.root.join("events").join(system).join(name).join(file)
    }
}

/// Returns the mount point: that of tracefs, or inside debugfs before Linux 4.1.
fn mounted() -> Option<PathBuf> {
    if Path::new(USUAL).join("events").exists() {
        return Some(USUAL.into());
    }
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = |kind: &str| {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let place = words.nth(1)?;
            (words.next()? == kind).then(|| PathBuf::from(place))
        })
    };
    mount("tracefs").or_else(|| {
        let inside = mount("debugfs")?.join("tracing");
        inside.join("events").exists().then_some(inside)
    })
}

/// Reads a file with one call. Some files (events/header_page) return as much as the first read requests and nothing to
/// the second, so `fs::read`, which begins with 32 bytes, would truncate them.
pub(crate) fn read_at_once(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut text = vec![0; 64 << 10];
    let count = file.read(&mut text)?;
    text.truncate(count);
    file.read_to_end(&mut text)?;
    Ok(text)
}

fn folders(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// Repeats an attempt for as long as the kernel answers EBUSY, until `deadline`.
pub(crate) fn while_busy<T>(
    deadline: Instant,
    pause: Duration,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline =>
            {
                thread::sleep(pause);
            }
            result => return result,
        }
    }
}
