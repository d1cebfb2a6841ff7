//! Safe access to other processes: by pidfd instead of PID, to files below their root, over sockets whose peer is checked.
//! (pidfd_open(2), openat2(2), unix(7))

#![expect(unsafe_code, reason = "pidfd_open, openat2, SO_PEERCRED")]

use std::ffi::{CStr, c_int};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// The process that had a PID when this was opened; a later process with the same PID is not it.
#[derive(Debug)]
pub(crate) struct Handle(OwnedFd);

impl Handle {
    /// Opens the process. Requires Linux 5.3.
    pub(crate) fn open(pid: i32) -> io::Result<Handle> {
        // SAFETY: plain system call.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        owned(fd).map(Handle)
    }

    /// Sends a signal.
    pub(crate) fn send(&self, signal: c_int) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: plain system call, without a siginfo.
        match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, 0usize, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Opens a path as a process with this root would: neither `..` nor a link leads out of it. Requires Linux 5.6.
pub(crate) fn open_in_root(root: &File, path: &CStr, flags: c_int) -> io::Result<File> {
    // SAFETY: all members are numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path and the struct live during the call, and the size is the struct's.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    owned(fd).map(File::from)
}

/// Returns the PID of the process that listens at the other end.
pub(crate) fn peer_of(stream: &UnixStream) -> Option<i32> {
    // SAFETY: all members are numbers, for which zero is valid.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = stream.as_raw_fd();
    // SAFETY: the kernel writes at most `bytes`, the size of the struct.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    (result == 0).then_some(peer.pid)
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel returned a new descriptor just now.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn links_stay_below_the_root() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        symlink("/etc", folder.path().join("tmp")).unwrap();
        symlink("../../..", folder.path().join("up")).unwrap();
        let root = File::open(folder.path()).unwrap();
        for path in [c"tmp", c"up/etc", c"/etc"] {
            let opened = open_in_root(&root, path, libc::O_PATH).unwrap();
            let seen = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()));
            assert_eq!(seen.unwrap(), folder.path().join("etc"), "{path:?}");
        }
    }

    #[test]
    fn peers_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        assert_eq!(peer_of(&stream), Some(std::process::id() as i32));
    }

    #[test]
    fn handles_reach_only_running_processes() {
        let handle = Handle::open(std::process::id() as i32).unwrap();
        handle.send(0).unwrap();
        assert!(Handle::open(i32::MAX).is_err());
    }
}
