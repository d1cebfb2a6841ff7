//! Descriptors through which another program controls the recorder.

#![expect(unsafe_code, reason = "fcntl and poll")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Takes over a descriptor that this process was started with, so that its commands do not inherit it.
pub(crate) fn adopt(fd: RawFd) -> io::Result<File> {
    // SAFETY: no memory is involved; an unknown number is an error.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // A copy, because stdin and its like have owners.
    // SAFETY: the descriptor is open, as the call above shows.
    let owned = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
    Ok(File::from(owned))
}

/// Whether reading would not wait, because there is data or the end.
pub(crate) fn may_read(file: &File) -> bool {
    is_ready(file, libc::POLLIN)
}

/// Whether writing a line would not wait.
pub(crate) fn may_write(file: &File) -> bool {
    is_ready(file, libc::POLLOUT)
}

fn is_ready(file: &File, events: libc::c_short) -> bool {
    let mut poll = libc::pollfd {
        fd: file.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: passes one pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}
