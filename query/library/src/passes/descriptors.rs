//! Paths of file descriptors, by process.

use hashbrown::HashMap;

use super::names::Name;

/// The descriptors whose paths are known.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    processes: HashMap<i32, HashMap<i32, File>>,
    count: usize,
}

#[derive(Debug, Clone, Copy)]
struct File {
    path: Name,
    closes_on_exec: bool,
}

/// Values of asm-generic.
const O_CLOEXEC: i64 = 0o2_000_000;
const F_DUPFD: i64 = 0;
const F_SETFD: i64 = 2;
const F_DUPFD_CLOEXEC: i64 = 1030;
const FD_CLOEXEC: i64 = 1;
const CLOSE_RANGE_CLOEXEC: i64 = 4;

/// What a system call does to descriptors.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    /// Opens a file; the place of its flags, if they are an argument.
    Open(Option<usize>),
    /// Opens a file without flags.
    Create,
    Close,
    CloseRange,
    Copy,
    /// Copies, with flags.
    CopyWith,
    Control,
    Exec,
    /// Returns a new descriptor, whose path is not that of an earlier one.
    Other,
}

impl Effect {
    /// The effect of a call; `None` if it has none.
    pub(super) fn of(call: &str) -> Option<Effect> {
        Some(match call {
            "open" => Effect::Open(Some(1)),
            "openat" => Effect::Open(Some(2)),
            // Its flags are in memory.
            "openat2" => Effect::Open(None),
            "creat" => Effect::Create,
            "close" => Effect::Close,
            "close_range" => Effect::CloseRange,
            "dup" | "dup2" => Effect::Copy,
            "dup3" => Effect::CopyWith,
            "fcntl" => Effect::Control,
            "execve" | "execveat" => Effect::Exec,
            "socket" | "accept" | "accept4" | "eventfd" | "eventfd2" | "epoll_create"
            | "epoll_create1" | "timerfd_create" | "signalfd" | "signalfd4" | "inotify_init"
            | "inotify_init1" | "memfd_create" | "pidfd_open" | "userfaultfd"
            | "perf_event_open" | "bpf" | "fanotify_init" | "io_uring_setup" => Effect::Other,
            _ => return None,
        })
    }
}

impl Descriptors {
    /// The path of a descriptor; `None` if unknown.
    pub(super) fn path(&self, pid: i32, fd: i32) -> Option<Name> {
        self.processes.get(&pid)?.get(&fd).map(|file| file.path)
    }

    /// Handles the creation of a process.
    pub(super) fn fork(&mut self, parent: i32, child: i32) {
        if parent == child {
            return;
        }
        let files = self.processes.get(&parent).cloned().unwrap_or_default();
        self.count += files.len();
        let before = self.processes.insert(child, files);
        self.count -= before.map_or(0, |files| files.len());
    }

    /// A descriptor was found open. Whether it closes on exec is unknown, so that its path after an exec is unknown, too.
    pub(super) fn found(&mut self, pid: i32, fd: i32, path: Name) {
        let file = File {
            path,
            closes_on_exec: true,
        };
        self.set(pid, fd, Some(file));
    }

    /// Handles the return of a system call. `path` is its path argument.
    pub(super) fn call(
        &mut self,
        pid: i32,
        effect: Effect,
        values: &[Option<i64>],
        ret: i64,
        path: Option<Name>,
    ) {
        if ret < 0 {
            return;
        }
        let value = |place: usize| values.get(place).copied().flatten();
        let fd = |place: usize| value(place).map(|value| value as i32);
        match effect {
            Effect::Open(_) | Effect::Create => {
                let flags = match effect {
                    Effect::Open(place) => place.and_then(value),
                    _ => Some(0),
                };
                // If unknown, the path after exec is unknown.
                let closes_on_exec = flags.is_none_or(|flags| flags & O_CLOEXEC != 0);
                let file = path.map(|path| File {
                    path,
                    closes_on_exec,
                });
                self.set(pid, ret as i32, file);
            }
            Effect::Close => self.set(pid, fd(0).unwrap_or(-1), None),
            Effect::CloseRange => {
                let (first, last) = (value(0).unwrap_or(0), value(1).unwrap_or(0));
                let (first, last) = (first as u32, last as u32);
                let is_in_range = |fd: i32| (first..=last).contains(&fd.cast_unsigned());
                let Some(files) = self.processes.get_mut(&pid) else {
                    return;
                };
                // With this flag, it only marks the descriptors; CLOSE_RANGE_UNSHARE closes them.
                if value(2).unwrap_or_default() & CLOSE_RANGE_CLOEXEC != 0 {
                    let marked = files.iter_mut().filter(|(fd, _)| is_in_range(**fd));
                    marked.for_each(|(_, file)| file.closes_on_exec = true);
                } else {
                    let before = files.len();
                    files.retain(|&fd, _| !is_in_range(fd));
                    self.count -= before - files.len();
                }
            }
            Effect::Copy => self.copy(pid, fd(0), ret, false),
            Effect::CopyWith => {
                let closes = value(2).unwrap_or_default() & O_CLOEXEC != 0;
                self.copy(pid, fd(0), ret, closes);
            }
            Effect::Control => match value(1) {
                Some(F_DUPFD) => self.copy(pid, fd(0), ret, false),
                Some(F_DUPFD_CLOEXEC) => self.copy(pid, fd(0), ret, true),
                Some(F_SETFD) => {
                    let files = self.processes.get_mut(&pid);
                    let file = files.zip(fd(0)).and_then(|(files, fd)| files.get_mut(&fd));
                    if let Some(file) = file {
                        file.closes_on_exec = value(2).unwrap_or_default() & FD_CLOEXEC != 0;
                    }
                }
                _ => {}
            },
            Effect::Exec => {
                if let Some(files) = self.processes.get_mut(&pid) {
                    let before = files.len();
                    files.retain(|_, file| !file.closes_on_exec);
                    self.count -= before - files.len();
                }
            }
            Effect::Other => self.set(pid, ret as i32, None),
        }
    }

    fn copy(&mut self, pid: i32, from: Option<i32>, to: i64, closes_on_exec: bool) {
        let path = from.and_then(|fd| self.path(pid, fd));
        let file = path.map(|path| File {
            path,
            closes_on_exec,
        });
        self.set(pid, to as i32, file);
    }

    fn set(&mut self, pid: i32, fd: i32, file: Option<File>) {
        match file {
            Some(file) => {
                let files = self.processes.entry(pid).or_default();
                self.count += usize::from(files.insert(fd, file).is_none());
            }
            None => {
                let files = self.processes.get_mut(&pid);
                let removed = files.and_then(|files| files.remove(&fd));
                self.count -= usize::from(removed.is_some());
            }
        }
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.count * 2 * size_of::<(i32, File)>() + self.processes.len() * 64
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Names;
    use super::*;

    #[test]
    fn descriptors_follow_their_files() {
        let mut names = Names::default();
        let path = |names: &mut Names, text| Some(names.of(Some(text), Name::default()));
        let (a, b) = (path(&mut names, "/a"), path(&mut names, "/b"));
        let mut known = Descriptors::default();
        let call = |known: &mut Descriptors, pid, name, values: &[Option<i64>], ret, path| {
            known.call(pid, Effect::of(name).unwrap(), values, ret, path);
        };
        let some = |values: &[i64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        call(&mut known, 1, "openat", &some(&[-100, 0, 0]), 3, a);
        call(&mut known, 1, "openat", &some(&[-100, 0, O_CLOEXEC]), 4, b);
        call(&mut known, 1, "dup2", &some(&[3, 1]), 1, None);
        assert_eq!(
            (known.path(1, 3), known.path(1, 4), known.path(1, 1)),
            (a, b, a)
        );
        known.fork(1, 2);
        call(
            &mut known,
            2,
            "execve",
            &some(&[0, 0, 0]),
            0,
            path(&mut names, "/bin/x"),
        );
        assert_eq!((known.path(2, 3), known.path(2, 4)), (a, None));
        call(&mut known, 1, "close", &some(&[3]), 0, None);
        assert_eq!((known.path(1, 3), known.path(2, 3)), (None, a));
        // Failed calls change nothing; unknown paths are unknown.
        call(&mut known, 1, "close", &some(&[4]), -9, None);
        assert_eq!(known.path(1, 4), b);
        call(&mut known, 1, "socket", &some(&[2, 1, 0]), 4, None);
        assert_eq!(known.path(1, 4), None);
        let open = known.path(2, 1);
        call(
            &mut known,
            2,
            "close_range",
            &some(&[1, 0xffff_ffff, 4]),
            0,
            None,
        );
        assert!(open.is_some() && known.path(2, 1) == open);
        call(&mut known, 2, "execve", &some(&[0, 0, 0]), 0, None);
        assert_eq!(known.path(2, 1), None);
        call(
            &mut known,
            1,
            "close_range",
            &some(&[1, 0xffff_ffff, 2]),
            0,
            None,
        );
        assert_eq!((known.path(1, 1), known.bytes() > 0), (None, true));
        // Found open by the recorder; then closed, and its number used again without a recorded path.
        let found = a.unwrap();
        known.found(7, 5, found);
        known.fork(7, 8);
        assert_eq!((known.path(7, 5), known.path(8, 5)), (a, a));
        call(&mut known, 7, "openat", &some(&[-100, 0, 0]), 5, None);
        assert_eq!((known.path(7, 5), known.path(8, 5)), (None, a));
        call(&mut known, 8, "execve", &some(&[0, 0, 0]), 0, None);
        assert_eq!(known.path(8, 5), None);
        // The flags of openat2 are not recorded.
        call(&mut known, 1, "openat2", &some(&[-100, 0, 0, 24]), 5, a);
        assert_eq!(known.path(1, 5), a);
        call(&mut known, 1, "execve", &some(&[0, 0, 0]), 0, None);
        assert_eq!(known.path(1, 5), None);
    }
}
