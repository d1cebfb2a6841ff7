//! Lines of source files, where they are readable.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use perfquet_events::input::Map;

/// More than any source file that is not generated.
const FILE_BYTES_MAX: usize = 32 << 20;
/// Characters of a line.
const LINE_MAX: usize = 400;

/// Source files, read on first use.
pub(super) struct SourceText {
    /// Directories with sources; the longest part of a recorded path that is below one of them is the file.
    directories: Vec<PathBuf>,
    files: HashMap<String, Option<File>>,
}

struct File {
    map: Map,
    /// Where lines begin.
    starts: Vec<usize>,
    changed: Option<SystemTime>,
}

impl SourceText {
    pub(super) fn new(directories: Vec<PathBuf>) -> SourceText {
        SourceText {
            directories,
            files: HashMap::new(),
        }
    }

    /// A line of a file, from 1; `None` if the file was not found or has fewer lines.
    pub(super) fn line(&mut self, path: &str, line: u32) -> Option<String> {
        let file = self.file(path)?;
        let index = (line as usize).checked_sub(1)?;
        let start = *file.starts.get(index)?;
        let rest = file.map.get(start..)?;
        let end = rest.iter().position(|byte| *byte == b'\n');
        let end = end.unwrap_or(rest.len());
        let text = String::from_utf8_lossy(rest.get(..end)?);
        let text = text.trim_end().replace('\t', "    ");
        Some(text.chars().take(LINE_MAX).collect())
    }

    /// Whether a file was found.
    pub(super) fn is_found(&mut self, path: &str) -> bool {
        self.file(path).is_some()
    }

    /// Whether a file has changed after a moment.
    pub(super) fn is_newer(&mut self, path: &str, than: SystemTime) -> bool {
        let changed = self.file(path).and_then(|file| file.changed);
        changed.is_some_and(|changed| changed > than)
    }

    fn file(&mut self, path: &str) -> Option<&File> {
        if !self.files.contains_key(path) {
            let places = places(Path::new(path), &self.directories);
            let file = places.into_iter().find_map(|place| read(&place));
            self.files.insert(path.to_owned(), file);
        }
        self.files.get(path)?.as_ref()
    }
}

/// Where a file may be: below the given directories, by as much of its path as possible; where it was compiled.
fn places(path: &Path, directories: &[PathBuf]) -> Vec<PathBuf> {
    let names: Vec<&std::ffi::OsStr> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let is_plain = !path
        .components()
        .any(|part| matches!(part, Component::ParentDir));
    let below = directories.iter().flat_map(|directory| {
        let ends = (0..names.len()).filter(move |_| is_plain);
        let names = &names;
        ends.map(move |skipped| directory.join(names[skipped..].iter().collect::<PathBuf>()))
    });
    let mut places: Vec<PathBuf> = below.collect();
    if path.is_absolute() {
        places.push(path.to_owned());
    }
    places
}

/// Reads a regular file; paths come from debug info, which may be hostile.
fn read(path: &Path) -> Option<File> {
    let map = Map::foreign(path).ok()?;
    if map.len() > FILE_BYTES_MAX {
        return None;
    }
    let ends = map.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let starts = std::iter::once(0)
        .chain(ends.map(|(end, _)| end + 1))
        .collect();
    let changed = map.file().and_then(|file| file.metadata().ok());
    let changed = changed.and_then(|metadata| metadata.modified().ok());
    Some(File {
        map,
        starts,
        changed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_files_below_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("src");
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("a.c"), "first\n\tsecond  \nlast").unwrap();
        let mut text = SourceText::new(vec![directory.path().to_owned()]);
        let path = "/build/package-1/src/a.c";
        assert_eq!(text.line(path, 1).as_deref(), Some("first"));
        assert_eq!(text.line(path, 2).as_deref(), Some("    second"));
        assert_eq!(text.line(path, 3).as_deref(), Some("last"));
        assert_eq!(text.line(path, 4), None);
        assert_eq!(text.line(path, 0), None);
        assert!(text.is_newer(path, SystemTime::UNIX_EPOCH));
        assert!(!text.is_found("/build/src/b.c"));
        // Neither a device nor a path that climbs.
        assert!(!text.is_found("/dev/zero"));
        assert!(!text.is_found("../src/a.c"));
    }
}
