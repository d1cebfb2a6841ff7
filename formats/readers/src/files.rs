//! The files of an input that is a directory or an archive.
//!
//! ```text
//! session/kernel/metadata, kernel/ch0_0, …          uftrace.data/info, task.txt, 14212.dat, …          either in x.tar.gz
//! ```

use std::sync::Arc;

use perfquet_events::input::Map;
use perfquet_events::{Error, Input};

/// All files of an input.
pub(crate) struct Files {
    /// Names and bytes; `None`: empty.
    files: Vec<(String, Option<Arc<Map>>)>,
}

impl Files {
    /// Maps the files of all directories with a file `main`.
    pub(crate) fn of(input: &mut Input, main: &str) -> Result<Files, Error> {
        let mut files = Vec::new();
        for found in input.files_below(main)? {
            let folder = found.strip_suffix(main).unwrap_or_default().to_owned();
            for name in input.files_in(&folder)? {
                if name.starts_with('.') {
                    continue;
                }
                let name = format!("{folder}{name}");
                let map = input.map_file(&name)?;
                files.push((name, map));
            }
        }
        Ok(Files { files })
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn name(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |(name, _)| name)
    }

    pub(crate) fn bytes(&self, file: usize) -> &[u8] {
        match self.files.get(file) {
            Some((_, Some(map))) => map,
            Some((_, None)) | None => &[],
        }
    }

    /// Releases the pages of all files, which later accesses map again.
    pub(crate) fn release(&self) {
        for map in self.files.iter().filter_map(|(_, map)| map.as_ref()) {
            map.release();
        }
    }
}
