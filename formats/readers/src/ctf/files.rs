//! The directories of traces in an input: a trace, a session of LTTng with several below it, or an archive of either.
//!
//! ```text
//! session/kernel/metadata, kernel/ch0_0, …          session/ust/uid/0/64-bit/metadata, …
//! session/archives/1-20260101T1/kernel/metadata     session/snapshot-1-20260101-0/ust/pid/shop-1/metadata
//! ```

use std::ops::Range;
use std::sync::Arc;

use perfquet_events::input::Map;
use perfquet_events::{Error, Input};

use super::metadata;
use crate::tar;

pub(super) const METADATA: &str = "metadata";

/// All files of an input.
pub(super) struct Files {
    files: Vec<(String, Bytes)>,
    /// Offset at which an archive ends too early.
    pub(super) cut: Option<usize>,
}

enum Bytes {
    Empty,
    File(Arc<Map>),
    Member(Arc<Map>, Range<usize>),
}

/// A directory with metadata.
#[derive(Debug)]
pub(super) struct Folder {
    /// Relative to the input; empty: the input itself.
    pub(super) name: String,
    pub(super) metadata: usize,
    pub(super) streams: Vec<usize>,
}

impl Files {
    /// Maps all files of traces.
    pub(super) fn of(input: &mut Input) -> Result<Files, Error> {
        let below = input.files_below(METADATA)?;
        if input.path().is_some_and(std::path::Path::is_dir) {
            let mut files = Vec::new();
            for metadata in below {
                let folder = metadata
                    .strip_suffix(METADATA)
                    .unwrap_or_default()
                    .to_owned();
                for name in input.files_in(&folder)? {
                    if name.starts_with('.') {
                        continue;
                    }
                    let name = format!("{folder}{name}");
                    let map = input.map_file(&name)?;
                    files.push((name, map.map_or(Bytes::Empty, Bytes::File)));
                }
            }
            return Ok(Files { files, cut: None });
        }
        let Some(map) = input.whole()? else {
            return Ok(Files {
                files: Vec::new(),
                cut: None,
            });
        };
        let (members, cut) = tar::members(&map);
        let files = members.into_iter().map(|member| {
            let name = member.name.strip_prefix("./").unwrap_or(&member.name);
            let bytes = Bytes::Member(Arc::clone(&map), member.bytes);
            (name.to_owned(), bytes)
        });
        let mut files: Vec<_> = files.collect();
        files.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Files { files, cut })
    }

    pub(super) fn name(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |(name, _)| name)
    }

    pub(super) fn bytes(&self, file: usize) -> &[u8] {
        match self.files.get(file) {
            Some((_, Bytes::File(map))) => map,
            Some((_, Bytes::Member(map, range))) => map.get(range.clone()).unwrap_or_default(),
            Some((_, Bytes::Empty)) | None => &[],
        }
    }

    /// Releases the pages of all files, which later accesses map again.
    pub(super) fn release(&self) {
        let mut before: Option<&Arc<Map>> = None;
        for (_, bytes) in &self.files {
            let (Bytes::File(map) | Bytes::Member(map, _)) = bytes else {
                continue;
            };
            // All members of an archive are in one.
            if before.is_none_or(|before| !Arc::ptr_eq(before, map)) {
                map.release();
            }
            before = Some(map);
        }
    }

    /// The directories of traces, sorted.
    pub(super) fn folders(&self) -> Vec<Folder> {
        let split = |name: &str| match name.rsplit_once('/') {
            Some((folder, file)) => (folder.to_owned(), file.to_owned()),
            None => (String::new(), name.to_owned()),
        };
        let mut folders: Vec<Folder> = Vec::new();
        for file in 0..self.files.len() {
            let (name, base) = split(self.name(file));
            let head = self.bytes(file);
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
        for file in 0..self.files.len() {
            let (name, base) = split(self.name(file));
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
