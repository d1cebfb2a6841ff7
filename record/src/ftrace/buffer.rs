//! An ftrace ring buffer with its settings: that of an instance, or the top-level one.
//!
//! ```text
//! /sys/kernel/tracing/instances/pq_4711_88123/…    ours: made, and removed at the end
//! /sys/kernel/tracing/…                            shared: each setting is restored
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;

use super::settings::{append, current, read, remove_instance, write};
use super::state::Saved;
use crate::failure::{Failure, failed};
use crate::probe::definition::own_group;
use crate::sys::tracefs::{Tracefs, read_at_once};

/// A ring buffer of ftrace.
pub(super) struct Buffer {
    root: PathBuf,
    kind: Kind,
}

enum Kind {
    /// An instance created by the recorder.
    Own,
    /// The top-level ring, with the settings to restore.
    Top(Saved),
    /// A ring that others set up: nothing is restored.
    Foreign,
    /// Already released.
    Released,
}

impl Buffer {
    /// Creates an instance.
    pub(super) fn own(tracefs: &Tracefs) -> io::Result<Buffer> {
        let root = tracefs.path("instances").join(own_group());
        fs::create_dir(&root)?;
        Ok(Buffer {
            root,
            kind: Kind::Own,
        })
    }

    /// The top, which was found free.
    pub(super) fn top(tracefs: &Tracefs, saved: Saved) -> Buffer {
        Buffer {
            root: tracefs.path(""),
            kind: Kind::Top(saved),
        }
    }

    /// The ring that the boot left, at the top or in an instance.
    pub(super) fn left(root: PathBuf) -> Buffer {
        Buffer {
            root,
            kind: Kind::Foreign,
        }
    }

    /// Whether it is the top.
    pub(super) fn is_top(&self) -> bool {
        matches!(self.kind, Kind::Top(_))
    }

    /// Returns the path of one of its files.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// Whether it has such a file.
    pub(super) fn has(&self, file: &str) -> bool {
        self.path(file).exists()
    }

    /// Reads a file without surrounding whitespace; empty if unreadable.
    pub(super) fn read(&self, file: &str) -> String {
        read(&self.path(file))
    }

    /// Sets a one-word setting. At the top level, it is restored at the end.
    pub(super) fn set(&mut self, file: &str, value: &str) -> io::Result<()> {
        let path = self.root.join(file);
        let Kind::Top(saved) = &mut self.kind else {
            return write(&path, value);
        };
        let before = current(&read(&path));
        saved.note_value(file, &before, value)?;
        write(&path, value)?;
        // The kernel rounds sizes and pads masks, so compare with what the file shows.
        let shown = current(&read(&path));
        match shown == value {
            true => Ok(()),
            false => saved.note_value(file, &before, &shown),
        }
    }

    /// Writes words to an empty list. At the top level, the list is emptied at the end.
    pub(super) fn fill(&mut self, file: &str, words: &[String]) -> io::Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        if let Kind::Top(saved) = &mut self.kind {
            saved.note_list(file)?;
        }
        append(&self.path(file), &format!("{}\n", words.join(" ")))
    }

    /// Writes without saving the previous value.
    pub(super) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        write(&self.path(file), value)
    }

    /// Records the expected state with this tracer, so that a later recorder can distinguish it from another user's.
    pub(super) fn note_held(&mut self, tracer: &str) -> io::Result<()> {
        match &mut self.kind {
            Kind::Top(saved) => saved.note_held(&self.root, tracer),
            Kind::Own | Kind::Foreign | Kind::Released => Ok(()),
        }
    }

    /// Returns a file that describes the layout of pages. An instance may have larger pages than the top level, in its
    /// own file; before Linux 6.8, only the top level has such files.
    pub(super) fn page_file(&self, tracefs: &Tracefs, file: &str) -> Vec<u8> {
        match read_at_once(&self.path(file)) {
            Ok(own) if !own.is_empty() => own,
            _ => tracefs.file(file),
        }
    }

    /// Opens the pages of a CPU.
    pub(super) fn open_pages(&self, cpu: u32) -> io::Result<File> {
        use std::os::unix::fs::OpenOptionsExt;
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw")))
    }

    /// Restores everything. The files of its pages must be closed.
    pub(super) fn release(&mut self) {
        let released = match std::mem::replace(&mut self.kind, Kind::Released) {
            Kind::Own => remove_instance(&self.root),
            Kind::Top(saved) => saved.put_back(&self.root),
            Kind::Foreign | Kind::Released => Ok(()),
        };
        if let Err(error) = released {
            log::warn!(
                "{} was not restored: {error}; run perfquet-record --cleanup",
                self.root.display()
            );
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.release();
    }
}

/// A setting was refused.
pub(super) fn refused(buffer: &Buffer, file: &str, value: &str, error: &io::Error) -> Failure {
    failed(format!(
        "cannot set {} to {value}: {error}",
        buffer.path(file).display()
    ))
}
