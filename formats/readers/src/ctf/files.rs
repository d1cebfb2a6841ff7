//! The directories of traces in an input: a trace, a session of LTTng with several below it, or an archive of either.
//!
//! ```text
//! session/kernel/metadata, kernel/ch0_0, …          session/ust/uid/0/64-bit/metadata, …
//! session/archives/1-20260101T1/kernel/metadata     session/snapshot-1-20260101-0/ust/pid/shop-1/metadata
//! ```

use super::metadata;
use crate::files::Files;

pub(super) const METADATA: &str = "metadata";

/// A directory with metadata.
#[derive(Debug)]
pub(super) struct Folder {
    /// Relative to the input; empty: the input itself.
    pub(super) name: String,
    pub(super) metadata: usize,
    pub(super) streams: Vec<usize>,
}

impl Folder {
    /// The directories of traces, sorted.
    pub(super) fn all(files: &Files) -> Vec<Folder> {
        let split = |name: &str| match name.rsplit_once('/') {
            Some((folder, file)) => (folder.to_owned(), file.to_owned()),
            None => (String::new(), name.to_owned()),
        };
        let mut folders: Vec<Folder> = Vec::new();
        for file in 0..files.len() {
            let (name, base) = split(files.name(file));
            let head = files.bytes(file);
            if base == METADATA
                && (metadata::is_packets(head)
                    || metadata::is_plain(head)
                    || metadata::is_json(head))
            {
                folders.push(Folder {
                    name,
                    metadata: file,
                    streams: Vec::new(),
                });
            }
        }
        folders.sort_by(|one, other| one.name.cmp(&other.name));
        for file in 0..files.len() {
            let (name, base) = split(files.name(file));
            if base == METADATA || base.starts_with('.') {
                continue;
            }
            let found = folders.binary_search_by(|folder| folder.name.as_str().cmp(&name));
            if let Some(folder) = found.ok().and_then(|place| folders.get_mut(place)) {
                folder.streams.push(file);
            }
        }
        folders
    }
}
