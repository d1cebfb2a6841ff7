//! Counting the samples of a journal, where no encoder has read it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::record::kind;

/// Samples in a journal.
pub(crate) fn count_samples(path: &Path) -> io::Result<u64> {
    Ok(samples_by_id(path)?.values().sum())
}

/// Samples of each event in a journal: the heads of its records are read, their bodies passed over.
pub(crate) fn samples_by_id(path: &Path) -> io::Result<HashMap<u64, u64>> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    skip(&mut reader, 16)?;
    let mut samples = HashMap::new();
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
        let mut left = size - 8;
        match kind {
            // With our sample_type the identifier stands in front.
            kind::SAMPLE if left >= 8 => {
                let mut id = [0u8; 8];
                reader.read_exact(&mut id)?;
                *samples.entry(u64::from_ne_bytes(id)).or_default() += 1;
                left -= 8;
            }
            kind::TRACING_DATA if left >= 4 => {
                let mut section = [0u8; 4];
                reader.read_exact(&mut section)?;
                left = left - 4 + u64::from(u32::from_ne_bytes(section));
            }
            _ => {}
        }
        skip(&mut reader, left)?;
    }
    Ok(samples)
}

fn skip(reader: &mut BufReader<File>, bytes: u64) -> io::Result<()> {
    reader.seek_relative(bytes as i64)
}
