//! The archive that the kernel unpacks as its first file system: cpio in the "new" ASCII format.
//!
//! ```text
//! 070701 00000001 000041ED 00000000 …   thirteen fields of eight hexadecimal digits, then the name with its NUL
//! ```
//! Header with name, and content, each end at a multiple of four bytes (Documentation/driver-api/early-userspace/
//! buffer-format.rst). Everything belongs to root, and times are zero: the same files give the same archive.

use std::io::{self, Write};

/// Type bits of a directory.
const DIRECTORY: u32 = 0o040_000;
/// Type bits of a file.
const FILE: u32 = 0o100_000;
/// Type bits of a symbolic link.
const LINK: u32 = 0o120_000;

/// Writes entries; [`Archive::end`] completes the archive.
pub(crate) struct Archive<W> {
    output: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(output: W) -> Archive<W> {
        Archive { output, entries: 0 }
    }

    /// Parents precede their contents; names have no leading slash.
    pub(crate) fn directory(&mut self, name: &str, permissions: u32) -> io::Result<()> {
        self.entry(name, DIRECTORY | permissions, &[])
    }

    pub(crate) fn file(&mut self, name: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, FILE | permissions, content)
    }

    pub(crate) fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.entry(name, LINK | 0o777, target.as_bytes())
    }

    pub(crate) fn end(mut self) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.output.flush()
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let too_large = |_| io::Error::other(format!("{name}: too large for a cpio archive"));
        let size = u32::try_from(content.len()).map_err(too_large)?;
        self.entries += 1;
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        // inode, mode, uid, gid, links, mtime, size, four device numbers, length of the name, checksum (unused)
        let name_size = name.len() as u32 + 1;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header += &format!("{field:08X}");
        }
        header += name;
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(content)
    }

    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        let rest = bytes.len().next_multiple_of(4) - bytes.len();
        self.output.write_all(&[0; 3][..rest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_readable_by_cpio() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.directory("etc", 0o755).unwrap();
        archive.file("etc/five", 0o644, b"12345").unwrap();
        archive.link("bin", "usr/bin").unwrap();
        archive.end().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert_eq!(text.matches("070701").count(), 4);
        assert!(
            text.contains("etc/five\0\x0012345\0\0\x00070701"),
            "{text:?}"
        );
        if !crate::say::has("cpio") {
            crate::skip("needs cpio");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive");
        std::fs::write(&path, &bytes).unwrap();
        let listed = std::process::Command::new("cpio")
            .args(["-tv", "--quiet"])
            .stdin(std::fs::File::open(&path).unwrap())
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let shown: Vec<(&str, &str)> = listed
            .lines()
            .map(|line| (&line[..10], line.rsplit("1970 ").next().unwrap()))
            .collect();
        assert_eq!(
            shown,
            [
                ("drwxr-xr-x", "etc"),
                ("-rw-r--r--", "etc/five"),
                ("lrwxrwxrwx", "bin -> usr/bin")
            ]
        );
    }
}
