//! Compresses the part of the journal that the encoder has read, and punches it out of the file.
//!
//! ```text
//! 0 ……… packed ……… | less than 32 MiB that were read | what waits for the encoder
//! ```
//! Recovery reads the original journal (`pack_journal` describes why that holds at every moment). On a full disk, or on
//! a file system without holes, the journal is left unchanged.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use perfquet_import::pack_journal;

use crate::sys::file;

/// Size of a piece in bytes.
const PIECE_BYTES: u64 = 32 << 20;

/// The packer of one journal.
pub(crate) struct Packer {
    path: PathBuf,
    /// `None` if the rest of the journal is left unchanged.
    file: Option<File>,
    /// Offset up to which it is compressed.
    packed: u64,
}

impl Packer {
    /// Creates a packer that has compressed nothing yet.
    pub(crate) fn new(journal: &Path) -> Packer {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(journal);
        Packer {
            path: journal.to_owned(),
            file: file.ok(),
            packed: 0,
        }
    }

    /// Compresses the bytes read so far, if they are enough for a piece.
    pub(crate) fn follow(&mut self, read: u64) {
        while let Some(file) = &self.file
            && self.packed + PIECE_BYTES <= read
        {
            match self.pack(file) {
                Ok(packed) => {
                    log::debug!("32 MiB of the journal packed into {} KiB", packed >> 10);
                    self.packed += PIECE_BYTES;
                }
                Err(error) => {
                    log::info!("the journal is not packed any further: {error:#}");
                    self.file = None;
                }
            }
        }
    }

    fn pack(&self, journal: &File) -> Result<u64> {
        let range = self.packed..self.packed + PIECE_BYTES;
        let packed = pack_journal(&self.path, range.clone())?;
        file::punch(journal, &range).context("cannot free the encoded part of the journal")?;
        Ok(packed)
    }
}
