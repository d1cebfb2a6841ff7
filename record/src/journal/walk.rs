//! Counting the samples of a journal, where no encoder has read it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::record::kind;

/// Samples in a journal: its records' heads are read, their bodies passed over.
pub(crate) fn count_samples(path: &Path) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    skip(&mut reader, 16)?;
    let mut samples = 0;
    let mut head = [0u8; 8];
    while reader.read_exact(&mut head).is_ok() {
        let number = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let kind = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let size = u64::from(number(6));
        if size < 8 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a record of less than 8 bytes",
            ));
        }
        samples += u64::from(kind == kind::SAMPLE);
        if kind == kind::TRACING_DATA {
            let mut section = [0u8; 4];
            reader.read_exact(&mut section)?;
            skip(
                &mut reader,
                size - 12 + u64::from(u32::from_ne_bytes(section)),
            )?;
        } else {
            skip(&mut reader, size - 8)?;
        }
    }
    Ok(samples)
}

fn skip(reader: &mut BufReader<File>, bytes: u64) -> io::Result<()> {
    reader.seek_relative(bytes as i64)
}
