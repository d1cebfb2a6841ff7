//! Opens files whose paths come from an input or from another user.
//!
//! ```text
//! /srv/app/lib.so → /dev/watchdog      opening it starts the watchdog; opening a FIFO waits for a writer
//! ```
//! The path is opened without access first (O_PATH), which has no effect on devices and pipes; only a regular file is then opened for
//! reading, by its descriptor, so that nobody can replace it in between.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading, and nothing else.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open(path, 0)
}

/// Opens a regular file for reading, and nothing else; the last part of the path may not be a link.
pub fn open_regular_without_links(path: &Path) -> io::Result<File> {
    open(path, libc::O_NOFOLLOW)
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    let place = with_flags(path, flags | libc::O_PATH)?;
    check(&place)?;
    let by_descriptor = format!("/proc/self/fd/{}", place.as_raw_fd());
    match with_flags(Path::new(&by_descriptor), libc::O_NONBLOCK | libc::O_NOCTTY) {
        // Without /proc, the file can only be opened by its path.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = with_flags(path, flags | libc::O_NONBLOCK | libc::O_NOCTTY)?;
            check(&file)?;
            Ok(file)
        }
        opened => opened,
    }
}

fn with_flags(path: &Path, flags: i32) -> io::Result<File> {
    File::options().read(true).custom_flags(flags).open(path)
}

fn check(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        let fifo = std::process::Command::new("mkfifo")
            .arg(at("fifo"))
            .status();
        assert!(fifo.unwrap().success());
        let mut text = String::new();
        for name in ["file", "link"] {
            text.clear();
            open_regular(&at(name))
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            assert_eq!(text, "x", "{name}");
        }
        for name in ["device", "fifo", "."] {
            let error = open_regular(&at(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert!(open_regular_without_links(&at("file")).is_ok());
        assert!(open_regular_without_links(&at("link")).is_err());
        let absent = open_regular(&at("absent")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_device_is_not_opened_at_all() {
        // /dev/tty without a terminal fails with ENXIO if it is opened.
        let error = open_regular(Path::new("/dev/tty")).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
            ),
            "{error}"
        );
    }
}
