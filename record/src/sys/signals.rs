//! Ctrl-C, SIGTERM, SIGQUIT, SIGHUP, SIGCHLD and the user signals, through a descriptor; there are no handlers.

#![expect(unsafe_code, reason = "signal masks")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A received signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Finish: Ctrl-C, Ctrl-\\, SIGTERM, a terminal that was closed.
    Finish,
    /// A child ended.
    Child,
    /// A signal with a meaning for the user.
    User(User),
}

/// SIGUSR1 or SIGUSR2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// SIGUSR1
    One,
    /// SIGUSR2
    Two,
}

/// The descriptor.
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals in this thread and in all threads started later. Unused user signals are blocked too: sent by
    /// mistake, one would otherwise end the recording and leave its probes defined.
    pub(crate) fn block() -> io::Result<Signals> {
        let mut numbers = vec![
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGQUIT,
            libc::SIGHUP,
            libc::SIGCHLD,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ];
        // A blocked signal arrives even if it was ignored, but nohup relies on ignoring it.
        numbers.retain(|&number| number != libc::SIGHUP || !is_ignored(number));
        // If the parent ignored SIGCHLD, this process would not be notified. SAFETY: no handler is replaced.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let set = set_of(&numbers);
        // Sent to a thread that writes beyond the limit of a file's size (`ulimit -f`); its write fails, too.
        numbers.push(libc::SIGXFSZ);
        let all = set_of(&numbers);
        // SAFETY: reads `all`; the old mask is not requested.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        // SAFETY: reads `set` and makes a descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made for us just now.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the next signal; waits at most this long.
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<Option<Signal>> {
        self.wait_or(timeout, None)
    }

    /// Returns the next signal; waits at most this long, or until another descriptor is ready for reading.
    pub(crate) fn wait_or(
        &self,
        timeout: Duration,
        other: Option<BorrowedFd<'_>>,
    ) -> io::Result<Option<Signal>> {
        let poll = |fd: RawFd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // The kernel ignores negative descriptors.
        let other = other.map_or(-1, |other| other.as_raw_fd());
        let mut polls = [poll(self.0.as_raw_fd()), poll(other)];
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: passes two pollfds.
        if unsafe { libc::poll(polls.as_mut_ptr(), 2, timeout_ms) } <= 0 || polls[0].revents == 0 {
            return Ok(None);
        }
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel writes at most `size` bytes.
        let read = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if read != size as isize {
            return Ok(None);
        }
        // SAFETY: zeroed above, and then written by the kernel; every bit pattern is valid.
        let number = unsafe { info.assume_init() }.ssi_signo as i32;
        Ok(Some(match number {
            libc::SIGCHLD => Signal::Child,
            libc::SIGUSR1 => Signal::User(User::One),
            libc::SIGUSR2 => Signal::User(User::Two),
            _ => Signal::Finish,
        }))
    }
}

/// Gives a forked child the signals that a command expects: none blocked, and SIGPIPE not ignored, as Rust's runtime
/// does.
///
/// # Safety
/// Only in a forked child before its exec.
pub(super) unsafe fn reset_in_child() {
    let none = set_of(&[]);
    // SAFETY: async-signal-safe calls on this thread's own mask.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Whether the parent process had a signal ignored.
fn is_ignored(number: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only reads the disposition; the kernel writes one sigaction, for which all-zero is valid.
    unsafe {
        libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigemptyset` initializes the set, the others change it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}
