//! The size of a pipe.

use std::os::fd::AsRawFd;

/// Bytes that a pipe holds: 16 times as many as by default, so that reader and writer wake each other less often.
const BYTES: libc::c_int = 1 << 20;

/// Enlarges a pipe. Nothing happens to other files, or if the user's pipes have reached the limit in
/// `/proc/sys/fs/pipe-user-pages-soft`.
#[expect(unsafe_code, reason = "std has no fcntl")]
pub(super) fn widen(pipe: &impl AsRawFd) {
    // SAFETY: no memory is involved; if the descriptor is not that of a pipe, the call fails and changes nothing.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, BYTES) };
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_wide_pipe_takes_a_megabyte_before_it_is_read() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        widen(&reader);
        writer.write_all(&vec![1; 1 << 20]).unwrap();
        drop(reader);
        // Not a pipe.
        widen(&std::fs::File::open("/dev/null").unwrap());
    }
}
