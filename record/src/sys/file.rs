//! Space for files: fallocate(2), fstatvfs(3); generations of inodes: ioctl_iflags(2).

#![expect(unsafe_code, reason = "fallocate, fstatvfs and ioctl")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Frees the disk's blocks of a range, which then reads as zeros; the file stays as long as it is. File systems without
/// holes refuse.
pub(crate) fn punch(file: &File, range: &Range<u64>) -> io::Result<()> {
    let number = |value: u64| libc::off_t::try_from(value).map_err(io::Error::other);
    let start = number(range.start)?;
    let length = number(range.end.saturating_sub(range.start))?;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    fallocate(file, mode, start, length)
}

/// Allocates the disk's blocks of the first bytes of a file.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    fallocate(file, 0, 0, length)
}

/// Returns the number of bytes that the file system of a file can take.
pub(crate) fn free_bytes(file: &File) -> io::Result<u64> {
    let mut system = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the memory is writable, and the descriptor is that of an open file.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), system.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled by the call, which succeeded.
    let system = unsafe { system.assume_init() };
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Returns the generation of a file's inode, which differs between files that have the same inode one after the other; `None` if
/// the file system does not tell.
pub(crate) fn generation(file: &File) -> Option<u64> {
    // Declared with a long, but file systems write an int (fs/ext4/ioctl.c).
    let mut generation: libc::c_long = 0;
    // SAFETY: the kernel writes at most a long, and the descriptor is that of an open file.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, &mut generation) };
    (result == 0).then(|| u64::from(generation as u32))
}

fn fallocate(
    file: &File,
    mode: libc::c_int,
    start: libc::off_t,
    length: libc::off_t,
) -> io::Result<()> {
    // SAFETY: no memory is involved, and the descriptor is that of an open file.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, start, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn free_space_is_that_of_the_file_system() {
        let file = tempfile::tempfile().unwrap();
        assert!(free_bytes(&file).unwrap() > 0);
        let full = File::open("/proc/self/maps").unwrap();
        assert_eq!(free_bytes(&full).unwrap(), 0);
    }

    #[test]
    fn punched_hole_frees_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.sync_all().unwrap();
        let before = file.metadata().unwrap().blocks();
        punch(&file, &(4096..1 << 19)).unwrap();
        let after = file.metadata().unwrap();
        assert!(
            after.blocks() <= before - 900,
            "{before}, {}",
            after.blocks()
        );
        assert_eq!(after.len(), 1 << 20);
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[4096..1 << 19].iter().all(|&byte| byte == 0));
        assert!(
            bytes[..4096]
                .iter()
                .chain(&bytes[1 << 19..])
                .all(|&byte| byte == 7)
        );
    }
}
