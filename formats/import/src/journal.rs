//! The recorder's journal: the files imported into a trace, and again if the recorder was killed.
//!
//! ```text
//! a.pqt/journal/perf.data          data of the kernel's ring buffers; of a flight recorder, only processes and mappings
//! a.pqt/journal/ring.0000000017    pieces of a flight recorder, the oldest first; one stream with perf.data
//! a.pqt/journal/packed.0000…-0000…  a part of perf.data that was encoded and then compressed (`packed.rs`)
//! a.pqt/journal/trace.dat          other files of the recorder: separate inputs; of a traced boot, the only one
//! ```

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use perfquet_events::{Error, Input};
use perfquet_trace::store::JOURNAL;

use super::packed::{Piece, Unpacked};

/// Prefix of a flight recorder's pieces, followed by ten digits.
pub const RING_PREFIX: &str = "ring.";

/// The files of the journal in `directory`, in the order in which they must be read: the contents of the kernel's ring
/// buffers, then the recorder's other files by name. Excluded are names with a leading dot, compressed parts of the
/// first file, and the pieces of a flight recorder, which continue that file. Only other files alone need no first file.
pub fn journal_files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let first = journal_of(directory);
    let mut files = files_in(directory)?;
    let count = files.len();
    files.retain(|file| *file != first && !is_piece(file) && Piece::at(file).is_none());
    if files.len() < count || files.is_empty() {
        files.insert(0, first);
    }
    Ok(files)
}

/// Whether `directory` has a journal.
pub(super) fn has_journal(directory: &Path) -> bool {
    let files = journal_files(directory).unwrap_or_default();
    files.first().is_some_and(|first| first.is_file())
}

/// Returns the inputs of the journal in `directory`.
pub fn journal_inputs(directory: &Path) -> Result<Vec<Input>, Error> {
    let files = journal_files(directory)?;
    let mut pieces = files_in(directory)?;
    let packed: Vec<Piece> = pieces.iter().filter_map(|file| Piece::at(file)).collect();
    pieces.retain(|file| is_piece(file));
    let open = |(index, file): (usize, &PathBuf)| match index {
        0 if !pieces.is_empty() => chained(file, &pieces),
        0 if !packed.is_empty() => {
            let unpacked = Unpacked::of(file, packed.clone()).map_err(Error::io(file.clone()))?;
            Input::of_journal(file, Box::new(unpacked))
        }
        _ => Input::open(file),
    };
    files.iter().enumerate().map(open).collect()
}

/// Removes the journal of a complete trace.
pub fn remove_journal(directory: &Path) -> Result<(), Error> {
    let journal = directory.join(JOURNAL);
    std::fs::remove_dir_all(&journal).map_err(Error::io(journal))
}

fn journal_of(directory: &Path) -> PathBuf {
    directory.join(JOURNAL).join("perf.data")
}

/// Returns plain files without a leading dot, by name.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let journal = directory.join(JOURNAL);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&journal).map_err(Error::io(journal.clone()))? {
        let entry = entry.map_err(Error::io(journal.clone()))?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if entry.file_type().is_ok_and(|kind| kind.is_file()) && !is_hidden {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn is_piece(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix(RING_PREFIX));
    number.is_some_and(|number| {
        number.len() == 10 && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Files read as one stream.
fn chained(first: &Path, pieces: &[PathBuf]) -> Result<Input, Error> {
    let open = |path: &PathBuf| File::open(path).map_err(Error::io(path.clone()));
    let mut stream: Box<dyn Read + Send> = Box::new(open(&first.to_owned())?);
    for piece in pieces {
        stream = Box::new(stream.chain(open(piece)?));
    }
    Input::from_reader(&first.display().to_string(), stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_file_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join(JOURNAL);
        std::fs::create_dir(&journal).unwrap();
        assert!(!has_journal(folder.path()));
        std::fs::write(journal.join("trace.dat"), "t").unwrap();
        assert_eq!(
            journal_files(folder.path()).unwrap(),
            [journal.join("trace.dat")]
        );
        assert!(has_journal(folder.path()));
        // The pieces continue a file that is lost.
        std::fs::write(journal.join("ring.0000000010"), "c").unwrap();
        assert!(journal_inputs(folder.path()).is_err());
        assert!(!has_journal(folder.path()));
    }

    #[test]
    fn ring_pieces_continue_the_first_file() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join(JOURNAL);
        std::fs::create_dir(&journal).unwrap();
        for (name, text) in [
            ("perf.data", "a"),
            ("ring.0000000010", "c"),
            ("ring.0000000009", "b"),
            ("ring.new", "x"),
            (".ring.0000000011", "y"),
        ] {
            std::fs::write(journal.join(name), text).unwrap();
        }
        let mut inputs = journal_inputs(folder.path()).unwrap();
        assert_eq!(inputs.len(), 2);
        let mut text = String::new();
        inputs[0].read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        assert!(inputs[1].name().ends_with("ring.new"));
    }
}
