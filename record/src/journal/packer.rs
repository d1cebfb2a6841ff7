//! Packs the part of the journal that the encoder has read, and punches it out of the file.
//!
//! ```text
//! 0 ……… packed ……… | 32 MiB and more that were read | 4 MiB | what waits for the encoder
//! ```
//! Whoever recovers the trace reads the journal as it was (`pack_journal` says how it holds at every moment). Where the disk is
//! full, or its file system has no holes, the journal stays as it is.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use perfquet_import::pack_journal;

use crate::sys::file;

/// Bytes of a piece.
const PIECE_BYTES: u64 = 32 << 20;
/// Bytes before the encoder that are left alone: a journal on a full disk is cut by 64 KiB.
const MARGIN_BYTES: u64 = 4 << 20;

/// The packer of one journal.
pub(crate) struct Packer {
    path: PathBuf,
    /// `None`: the journal stays as it is from here on.
    file: Option<File>,
    /// Up to where it is packed.
    packed: u64,
}

impl Packer {
    /// Nothing is packed yet.
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

    /// Packs those of the bytes read that are worth it.
    pub(crate) fn follow(&mut self, read: u64) {
        while let Some(file) = &self.file
            && self.packed + PIECE_BYTES + MARGIN_BYTES <= read
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
        file::punch(journal, &range).context("cannot punch a hole")?;
        Ok(packed)
    }
}
