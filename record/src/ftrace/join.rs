//! Joins the head and the pages into one file, for a kept journal that trace-cmd can open.
//!
//! ```text
//! the head                                   as it is, up to the end of its options
//! "flyrecord\0" { u64 offset, u64 size }     for each CPU
//! u64 size, text                             the clock
//! pages                                      of each CPU, from a multiple of the page size on
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{HEAD, head, pages};
use crate::sys::host;
use crate::sys::ring::page_bytes;

/// Joins the pages in a journal's directory, if there are any. Changes nothing after an error.
pub(crate) fn join(journal: &Path) -> io::Result<()> {
    let path = journal.join(HEAD);
    if !path.exists() {
        return Ok(());
    }
    let written = fs::read(&path)?;
    let mut file = OpenOptions::new().write(true).open(&path)?;
    let length = file.seek(SeekFrom::End(0))?;
    let cpus = host::present_cpus().len() as u32;
    let parts: Vec<PathBuf> = (0..cpus)
        .map(|cpu| journal.join(pages::name(cpu)))
        .collect();
    match append(&mut file, length, head::clock_in(&written), &parts) {
        Ok(()) => {
            for part in parts.iter().filter(|part| part.exists()) {
                fs::remove_file(part)?;
            }
            Ok(())
        }
        Err(error) => {
            file.set_len(length)?;
            Err(error)
        }
    }
}

fn append(head: &mut File, length: u64, clock: &[u8], parts: &[PathBuf]) -> io::Result<()> {
    let page_bytes = page_bytes() as u64;
    let sizes = parts
        .iter()
        .map(|part| match part.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        })
        .collect::<io::Result<Vec<u64>>>()?;
    let mut table = b"flyrecord\0".to_vec();
    let table_bytes = table.len() + 16 * parts.len() + 8 + clock.len();
    let mut offset = (length + table_bytes as u64).next_multiple_of(page_bytes);
    let mut places = Vec::new();
    for size in &sizes {
        table.extend(offset.to_ne_bytes());
        table.extend(size.to_ne_bytes());
        places.push(offset);
        offset = (offset + size).next_multiple_of(page_bytes);
    }
    table.extend((clock.len() as u64).to_ne_bytes());
    table.extend(clock);
    head.write_all(&table)?;
    for ((part, place), size) in parts.iter().zip(places).zip(sizes) {
        if size > 0 {
            head.seek(SeekFrom::Start(place))?;
            io::copy(&mut File::open(part)?, head)?;
        }
    }
    Ok(())
}
