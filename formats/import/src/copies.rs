//! Copies of a trace below the same directory or in the same archive: their rows would be there twice.
//!
//! ```text
//! shop/kernel/{metadata, ch0_0}      shop (copy)/kernel/{metadata, ch0_0}      equal bytes
//! a/p.data                           b/backup.data                             equal bytes
//! trace.17, trace.18                 of strace -ff, without times              two threads, even if they do the same
//! ```
//! Recordings have times, so they are never equal by chance. Texts may be: only those with equal names are copies.

use std::collections::BTreeMap;
use std::rc::Rc;

use perfquet_events::{Error, Format, Input};

/// Format, and names and sizes of the files.
type Key = (&'static str, Vec<(String, u64)>);

/// The traces found so far.
#[derive(Default)]
pub(crate) struct Copies {
    known: BTreeMap<Key, Vec<Known>>,
}

struct Known {
    tree: Rc<Input>,
    /// The file, or the directory with `/` at its end.
    place: String,
    files: Vec<String>,
}

impl Copies {
    /// Whether a trace is the copy of an earlier one, which is noted. `place` is its file, or its directory with `/` at its end;
    /// `all` are the files of the tree, or the one.
    pub(crate) fn is_copy(
        &mut self,
        tree: &Rc<Input>,
        format: &'static Format,
        place: &str,
        all: &[String],
    ) -> Result<bool, Error> {
        let is_directory = place.is_empty() || place.ends_with('/');
        let own = |file: &&String| match is_directory {
            true => file.starts_with(place),
            false => *file == place,
        };
        let files: Vec<String> = all.iter().filter(own).cloned().collect();
        let name_of = |file: &str| match (is_directory, format.has_lines) {
            (true, _) => file.get(place.len()..).unwrap_or_default().to_owned(),
            (false, true) => file.rsplit('/').next().unwrap_or_default().to_owned(),
            (false, false) => String::new(),
        };
        let sizes = files.iter().map(|file| {
            let size = tree.stored_size(file).unwrap_or(0);
            (name_of(file), size)
        });
        let known = self
            .known
            .entry((format.name, sizes.collect()))
            .or_default();
        for other in known.iter() {
            if is_equal(tree, &files, other)? {
                log::warn!(
                    "{}: a copy of {}, imported once",
                    shown(tree, place),
                    shown(&other.tree, &other.place)
                );
                return Ok(true);
            }
        }
        known.push(Known {
            tree: Rc::clone(tree),
            place: place.to_owned(),
            files,
        });
        Ok(false)
    }
}

fn is_equal(tree: &Input, files: &[String], other: &Known) -> Result<bool, Error> {
    for (file, other_file) in files.iter().zip(&other.files) {
        let (bytes, other_bytes) = (tree.stored(file)?, other.tree.stored(other_file)?);
        if bytes.as_deref() != other_bytes.as_deref() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn shown(tree: &Input, place: &str) -> String {
    match place.trim_end_matches('/') {
        "" => tree.name().to_owned(),
        place => format!("{}/{place}", tree.name()),
    }
}
