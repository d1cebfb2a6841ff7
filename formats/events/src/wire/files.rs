//! Files that are open in a process: `i32 pid, u32 count`, then `i32 fd, text path` for each.

use super::{Kind, begin, put, put_text, text};
use crate::bytes::{Cursor, Short};

/// Open files; the record has the time at which the process was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesRecord<'a> {
    /// Process ID.
    pub pid: i32,
    /// Descriptor and path of each.
    pub files: Vec<(i32, &'a [u8])>,
}

impl<'a> FilesRecord<'a> {
    /// Returns the payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = begin(Kind::Files);
        payload.extend(self.pid.to_ne_bytes());
        put(&mut payload, self.files.len() as u32);
        for (fd, path) in &self.files {
            payload.extend(fd.to_ne_bytes());
            put_text(&mut payload, path);
        }
        payload
    }

    /// Decodes the part after the head.
    pub fn decode(mut body: Cursor<'a>) -> Result<FilesRecord<'a>, Short> {
        let (pid, count) = (body.i32()?, body.u32()?);
        let mut files = Vec::new();
        for _ in 0..count {
            files.push((body.i32()?, text(&mut body)?));
        }
        Ok(FilesRecord { pid, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NATIVE, open};

    #[test]
    fn encoding_round_trips() {
        let record = FilesRecord {
            pid: 42,
            files: vec![(0, b"/dev/null"), (7, b"socket:[4711]")],
        };
        let payload = record.encode();
        let (kind, body) = open(&payload, NATIVE).unwrap();
        assert_eq!(Kind::of_number(kind), Some(Kind::Files));
        assert_eq!(FilesRecord::decode(body), Ok(record));
        // A count beyond the record.
        let mut longer = payload.clone();
        longer[12..16].fill(0xff);
        for bytes in [&payload[..payload.len() - 1], &longer] {
            let (_, body) = open(bytes, NATIVE).unwrap();
            assert!(FilesRecord::decode(body).is_err());
        }
    }
}
