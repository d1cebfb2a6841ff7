//! The command after `--`: forked first, started only when everything is ready; and the closer.
//!
//! Closing the last event of a tracepoint waits for the kernel's grace period, 20 to 40 ms each: with all
//! syscalls half a minute. A forked child holds the descriptors and does the waiting ([`close_elsewhere`]).

#![expect(unsafe_code, reason = "fork and exec")]

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::sys::signals;

/// A command that waits for its start.
pub(crate) struct Waiting {
    words: Vec<OsString>,
    name: String,
    pid: i32,
    start: File,
    failure: File,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Ended {
    /// Returns the status in `$?`, as a shell reports it.
    pub(crate) fn status(self) -> u8 {
        let status = match self {
            Ended::Exited(status) => status,
            Ended::Killed(signal) => 128 + signal,
        };
        u8::try_from(status).unwrap_or(u8::MAX)
    }
}

/// Forks; the child waits before its exec. Must be called while the process has one thread.
pub(crate) fn fork(command: &[OsString]) -> io::Result<Waiting> {
    let arguments = command
        .iter()
        .map(|argument| CString::new(argument.clone().into_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL in the command"))?;
    let mut pointers: Vec<*const libc::c_char> =
        arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let (start_read, start_write) = pipe()?;
    let (failure_read, failure_write) = pipe()?;
    // SAFETY: the child only makes async-signal-safe calls until exec or _exit.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => child(&pointers, &start_read, start_write, &failure_write),
        pid => Ok(Waiting {
            words: command.to_vec(),
            name: command
                .first()
                .map_or(String::new(), |name| name.display().to_string()),
            pid,
            start: File::from(start_write),
            failure: File::from(failure_read),
        }),
    }
}

/// The child's path: wait, exec, or report the error. Allocates nothing.
fn child(
    arguments: &[*const libc::c_char],
    start: &OwnedFd,
    parents_end: OwnedFd,
    failure: &OwnedFd,
) -> ! {
    drop(parents_end); // otherwise the read below would not end when the parent does
    let mut byte = 0u8;
    // SAFETY: plain system calls; `byte` and `error` live on this stack, `arguments` ends with NULL, and its strings
    // are the parent's, copied by fork.
    unsafe {
        if libc::read(start.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127); // the recorder gave up
        }
        signals::reset_in_child();
        libc::execvp(arguments[0], arguments.as_ptr());
        let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        libc::write(failure.as_raw_fd(), (&raw const error).cast(), 4);
        libc::_exit(127)
    }
}

impl Waiting {
    /// Returns its PID, which stays the same after the exec.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the command and its arguments.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Returns the name of the command.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Starts the command; fails if it cannot be executed.
    pub(crate) fn start(&mut self) -> io::Result<i32> {
        self.start.write_all(&[1])?;
        let mut error = [0u8; 4];
        // The exec closes the pipe: end of file is success.
        match self.failure.read(&mut error)? {
            4 => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
            _ => Ok(self.pid),
        }
    }
}

/// Returns how the child ended, without waiting; `None` if it still runs.
pub(crate) fn ended(pid: i32) -> Option<Ended> {
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    let found = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    if found != pid {
        return None;
    }
    Some(if libc::WIFSIGNALED(status) {
        Ended::Killed(libc::WTERMSIG(status))
    } else {
        Ended::Exited(libc::WEXITSTATUS(status))
    })
}

/// Gives a program the signals that it expects: [`signals::Signals`] blocks them, which programs inherit.
pub(crate) fn unblock_signals(command: &mut Command) {
    let reset = || {
        // SAFETY: this runs in the forked child, before its exec.
        unsafe { signals::reset_in_child() };
        Ok(())
    };
    // SAFETY: the closure only makes async-signal-safe calls.
    unsafe { command.pre_exec(reset) };
}

/// Sends SIGTERM to the child.
pub(crate) fn terminate(pid: i32) {
    // SAFETY: no address is passed; the PID is that of a child that has not been waited for.
    unsafe { libc::kill(pid, libc::SIGTERM) };
}

/// Forks a child that keeps and closes these descriptors, so that only the child waits for the kernel; it then writes
/// each line to its file. The caller closes its own descriptors afterward; they are then not the last ones. Returns a
/// guard to drop after that; `None` if there is no child.
pub(crate) fn close_elsewhere(slow: &[RawFd], then: &[(PathBuf, String)]) -> Option<PipeWriter> {
    let (closed, closing) = io::pipe().ok()?;
    let others = gaps(&[slow, &[closed.as_raw_fd()]].concat());
    let then: Vec<(CString, &str)> = then
        .iter()
        .filter_map(|(path, line)| {
            let path = CString::new(path.as_os_str().as_bytes()).ok()?;
            Some((path, line.as_str()))
        })
        .collect();
    // SAFETY: the child only makes async-signal-safe calls and leaves by _exit.
    unsafe {
        let child = libc::fork();
        if child != 0 {
            return (child > 0).then_some(closing);
        }
        // In its own session, Ctrl-C does not reach the child. Everything else is closed: readers of the recorder's
        // output then see its end when the recorder exits, and the lock of the trace directory is released.
        libc::setsid();
        for &(first, last) in &others {
            close_range(first, last);
        }
        // Wait until the parent has closed its descriptors: the last one to close waits for the kernel.
        let mut byte = 0u8;
        libc::read(closed.as_raw_fd(), (&raw mut byte).cast(), 1);
        if !then.is_empty() {
            for &fd in slow {
                libc::close(fd);
            }
        }
        for (path, line) in &then {
            let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_APPEND);
            libc::write(fd, line.as_ptr().cast(), line.len());
            libc::close(fd);
        }
        libc::_exit(0)
    }
}

/// Ranges of all descriptors but these.
fn gaps(kept: &[RawFd]) -> Vec<(u32, u32)> {
    let mut kept: Vec<u32> = kept.iter().filter_map(|&fd| fd.try_into().ok()).collect();
    kept.sort_unstable();
    let mut gaps = Vec::with_capacity(kept.len() + 1);
    let mut next = 0;
    for fd in kept {
        if next < fd {
            gaps.push((next, fd - 1));
        }
        next = fd + 1;
    }
    gaps.push((next, u32::MAX));
    gaps
}

/// # Safety
/// Only for a forked child: the owners of these descriptors must not run.
unsafe fn close_range(first: u32, last: u32) {
    // SAFETY: plain system calls.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
            // Linux before 5.9.
            let highest = libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, 1 << 20) as u32;
            for fd in first..=last.min(highest) {
                libc::close(fd as RawFd);
            }
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    // SAFETY: the kernel writes two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were made for us just now.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

#[cfg(test)]
mod tests {
    use super::gaps;

    #[test]
    fn other_descriptors_are_closed() {
        assert_eq!(gaps(&[]), [(0, u32::MAX)]);
        assert_eq!(gaps(&[5, 3, 4, 9]), [(0, 2), (6, 8), (10, u32::MAX)]);
        assert_eq!(gaps(&[0]), [(1, u32::MAX)]);
    }
}
