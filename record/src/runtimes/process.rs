//! A process with a just-in-time compiler, and the files that it shares with tools.
//!
//! ```text
//! /proc/4711/maps            …/libjvm.so        Java
//! /proc/4711/root/tmp        .java_pid7         socket, named after the PID in the container
//! ```

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::sys::process::{self, Handle};
use crate::sys::procfs;

/// Names read of a directory that anybody may write to.
const MOST_NAMES: usize = 1 << 16;
/// The kernel takes a timeout of 0 as none.
const LEAST_TIMEOUT: Duration = Duration::from_millis(1);

/// Runtimes that can write a perf map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Runtime {
    /// HotSpot.
    Java,
    /// CoreCLR.
    DotNet,
    /// V8 in Node.js.
    Node,
}

impl Runtime {
    /// Returns the runtime that a process has mapped.
    fn of(maps: &[u8], executable: &OsStr) -> Option<Runtime> {
        let mut found = None;
        for map in procfs::parse_maps(maps) {
            match Clue::of(map.path) {
                Some(Clue::Runs(Runtime::Node)) => found = found.or(Some(Runtime::Node)),
                Some(Clue::Runs(runtime)) => found = Some(runtime),
                Some(Clue::NoPerfMap) => return None,
                None => {}
            }
        }
        let is_node = executable == "node" || executable == "nodejs";
        found.or(is_node.then_some(Runtime::Node))
    }

    /// The name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Runtime::Java => "java",
            Runtime::DotNet => ".NET",
            Runtime::Node => "node",
        }
    }
}

/// What the name of a mapped file says about its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Clue {
    Runs(Runtime),
    /// OpenJ9, which has a libjvm.so too, but answers SIGQUIT with a dump.
    NoPerfMap,
}

impl Clue {
    /// Returns the clue of a mapped file.
    pub(super) fn of(path: &[u8]) -> Option<Clue> {
        match path.rsplit(|&byte| byte == b'/').next()? {
            b"libjvm.so" => Some(Clue::Runs(Runtime::Java)),
            b"libcoreclr.so" => Some(Clue::Runs(Runtime::DotNet)),
            b"node" | b"nodejs" => Some(Clue::Runs(Runtime::Node)),
            name if name.starts_with(b"libnode.so") => Some(Clue::Runs(Runtime::Node)),
            name if name.starts_with(b"libj9vm") => Some(Clue::NoPerfMap),
            _ => None,
        }
    }
}

/// A process with a runtime.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// Its PID in its own namespace, by which its files are named.
    pub(super) inside: i32,
    pub(super) runtime: Runtime,
    handle: Handle,
    user: u32,
}

impl Process {
    /// Returns the process, unless it has ended or has no such runtime. `start` is its start time.
    pub(super) fn find(pid: i32, start: u64) -> Option<Process> {
        let handle = Handle::open(pid).ok()?;
        // From here on, the handle is of the process with this start time, or of none.
        if procfs::start_ticks(pid) != Some(start) {
            return None;
        }
        let executable = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let mut maps = Vec::new();
        procfs::read_maps(pid, &mut maps);
        Some(Process {
            pid,
            inside: procfs::number_inside(pid)?,
            runtime: Runtime::of(&maps, executable.file_name()?)?,
            handle,
            user: procfs::user_of(pid)?,
        })
    }

    /// Whether the recorder may send requests: root to all processes, other users to their own.
    pub(super) fn is_permitted(&self) -> bool {
        let own = procfs::user_of(std::process::id() as i32);
        own == Some(0) || own == Some(self.user)
    }

    /// Whether it still runs.
    pub(super) fn is_running(&self) -> bool {
        self.handle.send(0).is_ok() && procfs::is_process_alive(self.pid)
    }

    /// Sends a signal.
    pub(super) fn send(&self, signal: i32) -> io::Result<()> {
        self.handle.send(signal)
    }

    /// The process's directory for temporary files. Links in a container lead to files of the container.
    pub(super) fn temporary(&self) -> io::Result<Folder> {
        let root = File::open(format!("/proc/{}/root", self.pid))?;
        let path: &CStr = c"tmp";
        process::open_in_root(&root, path, libc::O_PATH | libc::O_DIRECTORY).map(Folder)
    }

    /// Connects to a socket of the process in this directory, until a time. Fails if another process listens there.
    pub(super) fn connect(
        &self,
        folder: &Folder,
        name: &str,
        until: Instant,
    ) -> io::Result<Connection> {
        let socket = folder.open(name, libc::O_PATH)?;
        let about = socket.metadata()?;
        if !about.file_type().is_socket() || about.uid() != self.user && about.uid() != 0 {
            return Err(other("the socket does not belong to the process"));
        }
        // Not by its name, which may have become a link.
        let stream = UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))?;
        if process::peer_of(&stream) != Some(self.pid) {
            return Err(other("another process listens on its socket"));
        }
        Ok(Connection { stream, until })
    }

    /// Opens a file of the process in this directory.
    pub(super) fn open(&self, folder: &Folder, name: &str) -> io::Result<File> {
        let file = folder.open(name, libc::O_NONBLOCK)?;
        let about = file.metadata()?;
        match about.is_file() && (about.uid() == self.user || about.uid() == 0) {
            true => Ok(file),
            false => Err(other("the file does not belong to the process")),
        }
    }

    /// Checks that the process has a perf map or writes a jitdump.
    pub(super) fn has_map(&self) -> io::Result<()> {
        let folder = self.temporary()?;
        let map = format!("perf-{}.map", self.inside);
        if self.open(&folder, &map).is_ok() {
            return Ok(());
        }
        let dump = format!("/jit-{}.dump", self.inside);
        let mut maps = Vec::new();
        procfs::read_maps(self.pid, &mut maps);
        let mut paths = procfs::parse_maps(&maps).map(|map| map.path);
        match paths.any(|path| path.ends_with(dump.as_bytes())) {
            true => Ok(()),
            false => Err(other("it was started without --perf-basic-prof")),
        }
    }

    /// CPU time so far, in ticks.
    pub(super) fn cpu_ticks(&self) -> Option<u64> {
        procfs::cpu_ticks(self.pid)
    }
}

/// A connection that ends at a time, however slowly the other side answers.
pub(super) struct Connection {
    stream: UnixStream,
    until: Instant,
}

impl Connection {
    /// Returns the time left as a timeout.
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left.max(LEAST_TIMEOUT)),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// An open directory.
#[derive(Debug)]
pub(super) struct Folder(File);

impl Folder {
    /// The path of an entry; it cannot lead elsewhere unless the entry is a link.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name)
    }

    /// Opens a directory in it.
    pub(super) fn below(&self, name: &str) -> io::Result<Folder> {
        self.open(name, libc::O_PATH | libc::O_DIRECTORY)
            .map(Folder)
    }

    /// Names of all entries.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.take(MOST_NAMES).collect()
    }

    fn open(&self, name: &str, flags: i32) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).custom_flags(flags | libc::O_NOFOLLOW);
        options.open(self.path(name))
    }
}

/// An error without a number.
pub(super) fn other(message: &'static str) -> io::Error {
    io::Error::other(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_at_a_time_does_not_prolong_a_connection() {
        let (own, mut other) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            while other.write_all(b"0").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        let mut connection = Connection {
            stream: own,
            until: began + Duration::from_millis(200),
        };
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).unwrap_err();
        assert!(!answer.is_empty());
        assert!(began.elapsed() >= Duration::from_millis(190));
        assert!(connection.write(b"1").is_err());
    }

    #[test]
    fn runtimes_by_what_is_mapped() {
        let of = |path: &str, executable: &str| {
            let maps = format!(
                "7f00-8f00 r-xp 00000000 fd:00 1 /usr/lib/libc.so.6\n\
                 8f00-9f00 r-xp 00000000 fd:00 2 {path}\n"
            );
            Runtime::of(maps.as_bytes(), OsStr::new(executable))
        };
        let java = Some(Runtime::Java);
        assert_eq!(of("/usr/lib/jvm/17/lib/server/libjvm.so", "java"), java);
        assert_eq!(of("/opt/app/lib/libjvm.so", "hadoop"), java);
        assert_eq!(of("/opt/j9/default/libj9vm29.so", "java"), None);
        let net = Some(Runtime::DotNet);
        assert_eq!(of("/usr/share/dotnet/libcoreclr.so", "dotnet"), net);
        assert_eq!(of("/usr/lib/libz.so.1", "node"), Some(Runtime::Node));
        assert_eq!(of("/usr/lib/libnode.so.108", "app"), Some(Runtime::Node));
        assert_eq!(of("/usr/lib/libz.so.1", "nodes"), None);
    }
}
