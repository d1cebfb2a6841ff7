//! The files of an input that is a directory or an archive.
//!
//! ```text
//! session/kernel/metadata, kernel/ch0_0, …          uftrace.data/info, task.txt, 14212.dat, …          either in x.tar.gz
//! ```

use std::ops::Range;
use std::sync::Arc;

use perfquet_events::input::Map;
use perfquet_events::{Error, Input};

use crate::tar;

/// All files of an input.
pub(crate) struct Files {
    files: Vec<(String, Bytes)>,
    /// Offset at which an archive ends too early.
    pub(crate) cut: Option<usize>,
}

enum Bytes {
    Empty,
    File(Arc<Map>),
    Member(Arc<Map>, Range<usize>),
}

impl Files {
    /// Maps the files of all directories with a file `main`; of an archive, all members.
    pub(crate) fn of(input: &mut Input, main: &str) -> Result<Files, Error> {
        let below = input.files_below(main)?;
        if input.path().is_some_and(std::path::Path::is_dir) {
            let mut files = Vec::new();
            for found in below {
                let folder = found.strip_suffix(main).unwrap_or_default().to_owned();
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

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn name(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |(name, _)| name)
    }

    pub(crate) fn bytes(&self, file: usize) -> &[u8] {
        match self.files.get(file) {
            Some((_, Bytes::File(map))) => map,
            Some((_, Bytes::Member(map, range))) => map.get(range.clone()).unwrap_or_default(),
            Some((_, Bytes::Empty)) | None => &[],
        }
    }

    /// Releases the pages of all files, which later accesses map again.
    pub(crate) fn release(&self) {
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
}
