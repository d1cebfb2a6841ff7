//! Compresses the part of the journal that the encoder has read, and punches it out of the file.
//!
//! ```text
//! 0 ……… packed ……… | up to 128 MiB of the last 10 s that were read | what waits for the encoder
//! ```
//! The kernel writes a modified page to the disk after about 30 s. A part that is punched out earlier is never written. The
//! journal is removed at the end of the recording, so a short recording packs nothing.
//! Recovery reads the original journal (`pack_journal` describes why that holds at every moment). On a full disk, or on
//! a file system without holes, the journal is left unchanged.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use perfquet_import::pack_journal;

use crate::sys::file;

/// Size of a piece in bytes.
const PIECE_BYTES: u64 = 32 << 20;
/// Maximum size of what was read but is not packed.
const WAITING_BYTES_MAX: u64 = 128 << 20;
/// A piece is packed at this age.
const AGE: Duration = Duration::from_secs(10);
/// With less free space than this, pieces are packed at once.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// When the encoded part of a journal is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Never,
    /// As soon as it is large enough for a piece, for a ring of traces, whose size is limited.
    Soon,
    /// When it is old or large, or the disk is nearly full.
    Late,
}

/// The packer of one journal.
pub(crate) struct Packer {
    path: PathBuf,
    packing: Packing,
    /// `None` if the rest of the journal is left unchanged.
    file: Option<File>,
    /// Offset up to which it is compressed.
    packed: u64,
    /// When each of the pieces that follow was read.
    waiting: VecDeque<Instant>,
}

impl Packer {
    /// Creates a packer that has compressed nothing yet; `None` for [`Packing::Never`].
    pub(crate) fn new(journal: &Path, packing: Packing) -> Option<Packer> {
        if packing == Packing::Never {
            return None;
        }
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(journal);
        Some(Packer {
            path: journal.to_owned(),
            packing,
            file: file.ok(),
            packed: 0,
            waiting: VecDeque::new(),
        })
    }

    /// Compresses the pieces of the bytes read so far that are due.
    pub(crate) fn follow(&mut self, read: u64) {
        while self.packed + (self.waiting.len() as u64 + 1) * PIECE_BYTES <= read {
            self.waiting.push_back(Instant::now());
        }
        while let Some(file) = &self.file
            && self.is_due(file)
        {
            match self.pack(file) {
                Ok(packed) => {
                    log::debug!("32 MiB of the journal packed into {} KiB", packed >> 10);
                    self.packed += PIECE_BYTES;
                    self.waiting.pop_front();
                }
                Err(error) => {
                    log::info!("the journal is not packed any further: {error:#}");
                    self.file = None;
                }
            }
        }
    }

    /// Whether the next piece is to be compressed now.
    fn is_due(&self, journal: &File) -> bool {
        let Some(first) = self.waiting.front() else {
            return false;
        };
        self.packing == Packing::Soon
            || self.waiting.len() as u64 * PIECE_BYTES > WAITING_BYTES_MAX
            || first.elapsed() >= AGE
            || file::free_bytes(journal).is_ok_and(|free| free < FREE_BYTES_MIN)
    }

    fn pack(&self, journal: &File) -> Result<u64> {
        let range = self.packed..self.packed + PIECE_BYTES;
        let packed = pack_journal(&self.path, range.clone())?;
        file::punch(journal, &range).context("cannot free the encoded part of the journal")?;
        Ok(packed)
    }
}
