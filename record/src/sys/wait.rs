//! Waiting for rings: epoll over their events, and an eventfd to be woken by another thread.

#![expect(unsafe_code, reason = "epoll and eventfd")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::perf_event::Event;

/// Wakes up the draining thread.
pub(crate) struct Waiter {
    epoll: OwnedFd,
    bell: Arc<Bell>,
}

/// Wakes a [`Waiter`] from another thread.
pub(crate) struct Bell(OwnedFd);

impl Waiter {
    /// Creates a waiter that only its bell wakes up.
    pub(crate) fn new() -> io::Result<Waiter> {
        // SAFETY: makes a descriptor.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: makes a descriptor.
        let bell = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let waiter = Waiter {
            epoll,
            bell: Arc::new(Bell(bell)),
        };
        waiter.add(waiter.bell.0.as_raw_fd())?;
        Ok(waiter)
    }

    /// Adds the ring of `event`, which wakes up at its watermark.
    pub(crate) fn add_ring(&self, event: &Event) -> io::Result<()> {
        self.add(event.as_raw_fd())
    }

    /// Adds a file that supports polling.
    pub(crate) fn add_file(&self, file: &impl AsRawFd) -> io::Result<()> {
        self.add(file.as_raw_fd())
    }

    /// Returns the bell, which wakes up the thread.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Sleeps until something happened or the time is over.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: there is room for the given number of events. An interruption counts as a wake-up.
        unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as i32,
                timeout_ms,
            )
        };
    }

    /// Edge-triggered: the hang-up of a task that ended stays up for ever and would spin us otherwise.
    fn add(&self, fd: i32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: 0,
        };
        // SAFETY: the kernel reads `event`.
        let added =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if added < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Bell {
    /// Rings the bell.
    pub(crate) fn ring(&self) {
        let one = 1u64;
        // SAFETY: writes 8 bytes from `one`. Fails only if the bell already rings.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made for us just now.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
