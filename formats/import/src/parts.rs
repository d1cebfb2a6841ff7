//! The traces in an input: a file is one; a directory or an archive may hold several, each read as an input of its own.
//!
//! ```text
//! a.data                                         a.data
//! session/kernel/metadata, ust/…/metadata        one trace of LTTng, if the clock is the same
//! x.zip: a.data, b/uftrace.data/…, c.tar.gz      a.data, b/uftrace.data, the traces in c.tar.gz
//! ```
//! A directory with the main file of a format ([`Format::main_file`]) is a trace with all files below it. Every other file is a trace if a
//! format recognizes it. The rest is counted in a note: an archive may have a README. A copy of another one is imported once, with a note.

use std::collections::BTreeMap;
use std::rc::Rc;

use perfquet_events::archive::{self, Flaw};
use perfquet_events::{Error, Format, Guess, Input};
use perfquet_readers::{FORMATS, ctf};

use crate::copies::Copies;
use crate::{nearest, sniff_file};

/// Files of a directory or an archive that are looked at.
const FILES_MAX: usize = 1 << 16;
/// Traces in one input.
const PARTS_MAX: usize = 4096;
/// Of a trace directory of perfquet: its list of tables, and how that begins.
const MANIFEST: &str = "manifest.json";
const MANIFEST_HEAD: &[u8] = b"{\n  \"version\": ";
/// Archives in archives.
const DEPTH_MAX: u32 = 3;

/// A trace of an input, opened when its turn comes: each has buffers.
pub(crate) struct Part {
    pub(crate) format: &'static Format,
    place: Place,
    /// It is one of several of a directory or archive: the others are read, too, if it is damaged.
    pub(crate) is_one_of_several: bool,
    /// Size of the archive, if this is all of it.
    archive_bytes: Option<u64>,
    /// What of the input cannot be read, reported with this trace.
    flaws: Vec<Flaw>,
}

enum Place {
    Whole(Box<Input>),
    File(Rc<Input>, String),
    Folder(Rc<Input>, String),
    Folders(Rc<Input>, Vec<String>),
}

impl Part {
    fn of(format: &'static Format, place: Place) -> Part {
        Part {
            format,
            place,
            is_one_of_several: false,
            archive_bytes: None,
            flaws: Vec::new(),
        }
    }

    pub(crate) fn open(self) -> Result<Input, Error> {
        let mut input = match self.place {
            Place::Whole(input) => *input,
            Place::File(tree, file) => tree.member(&file)?.ok_or_else(|| Error::Unsupported {
                input: format!("{}/{file}", tree.name()),
                message: "expected the file that was there before".to_owned(),
            })?,
            Place::Folder(tree, folder) => tree.below(&folder)?,
            Place::Folders(tree, folders) => tree.of_folders(folders),
        };
        if let Some(bytes) = self.archive_bytes {
            input.set_archive_bytes(bytes);
        }
        input.add_flaws(self.flaws);
        Ok(input)
    }
}

/// Finds the traces of all inputs.
pub(crate) fn parts_of(
    inputs: Vec<Input>,
    from: Option<&'static Format>,
) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    for input in inputs {
        let max = input.temporary_bytes_max();
        let mut search = Search {
            from,
            parts: Vec::new(),
            temporary_bytes: max,
            others: 0,
            other: None,
            own: None,
            copies: Copies::default(),
        };
        search.input(input)?;
        parts.extend(search.parts);
    }
    Ok(parts)
}

/// The format of a directory or an archive: that of its first trace.
pub(crate) fn format_of(input: &Input) -> Result<&'static Format, Error> {
    for &format in FORMATS {
        if format.guess(input)? == Guess::Certain {
            return Ok(format);
        }
    }
    let (files, _) = input.all_files(FILES_MAX)?;
    for file in &files {
        let member = input.member(file)?;
        if let Some(Ok(format)) = member.as_ref().map(sniff_file) {
            return Ok(format);
        }
    }
    Err(Error::UnknownFormat {
        input: input.name().to_owned(),
        nearest: nearest(input),
    })
}

struct Search {
    from: Option<&'static Format>,
    parts: Vec<Part>,
    /// What archives in archives may still take in temporary files.
    temporary_bytes: u64,
    /// Files that are no traces, and the first of them.
    others: u64,
    other: Option<String>,
    /// The first trace of perfquet itself, which is not imported, and the number of others.
    own: Option<(String, u64)>,
    copies: Copies,
}

impl Search {
    fn input(&mut self, mut input: Input) -> Result<(), Error> {
        input.open_archive()?;
        if !input.is_directory() {
            let format = self.from.map_or_else(|| sniff_file(&input), Ok)?;
            let place = Place::Whole(Box::new(input));
            self.parts.push(Part::of(format, place));
            return Ok(());
        }
        // The usual case: the directory itself is the trace.
        if let Some(format) = self.itself(&input)? {
            let place = Place::Whole(Box::new(input));
            self.parts.push(Part::of(format, place));
            return Ok(());
        }
        let name = input.name().to_owned();
        let unknown = nearest(&input);
        let is_archive = input.is_archive();
        let archive_bytes = input.size_bytes().filter(|_| input.is_archive());
        self.directory(input, 0)?;
        match self.parts.as_mut_slice() {
            [part] => part.archive_bytes = archive_bytes,
            parts => parts
                .iter_mut()
                .for_each(|part| part.is_one_of_several = true),
        }
        if let Some((own, others)) = &self.own {
            let own = match others {
                0 => format!("{own} is a trace of perfquet"),
                others => format!("{own} and {others} more are traces of perfquet"),
            };
            let extract = match is_archive {
                true => "extract it, then use perfquet-query",
                false => "use perfquet-query",
            };
            if self.parts.is_empty() {
                return Err(Error::Unsupported {
                    input: name,
                    message: format!("{own}, which needs no import\nhint: {extract}"),
                });
            }
            log::warn!("{own}, and not imported: {extract}");
        }
        match (self.parts.len(), &self.other) {
            (0, _) if let Some(from) = self.from => Err(Error::Unsupported {
                input: name,
                message: format!("expected a file of format {}, found a directory", from.name),
            }),
            (0, None) => Err(Error::UnknownFormat {
                input: name,
                nearest: unknown,
            }),
            (0, Some(other)) => Err(Error::UnknownFormat {
                input: name,
                nearest: format!(
                    ": none of its {} is a trace, such as {other}",
                    files(self.others)
                ),
            }),
            (_, Some(other)) => {
                log::warn!(
                    "{name}: {} no trace, such as {other}",
                    match self.others {
                        1 => "1 file is".to_owned(),
                        others => format!("{} are", files(others)),
                    }
                );
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    /// The format of a directory that has its main file itself.
    fn itself(&self, input: &Input) -> Result<Option<&'static Format>, Error> {
        if input.is_archive() {
            return Ok(None);
        }
        for format in self.formats() {
            let base = format.main_file.map(base_of).unwrap_or_default();
            if input.files().iter().any(|file| file == base)
                && let Some(head) = input.head_of(base)?
                && (self.from.is_some() || (format.sniff)(&head) == Guess::Certain)
            {
                return Ok(Some(format));
            }
        }
        Ok(None)
    }

    fn formats(&self) -> Vec<&'static Format> {
        self.from
            .map_or_else(|| FORMATS.to_vec(), |from| vec![from])
    }

    fn directory(&mut self, mut input: Input, depth: u32) -> Result<(), Error> {
        let (files, has_more) = input.all_files(FILES_MAX)?;
        if has_more {
            return Err(Error::Unsupported {
                input: input.name().to_owned(),
                message: format!("it has more than {FILES_MAX} files\nhint: name the trace in it"),
            });
        }
        let first = self.parts.len();
        let flaws = input.take_flaws();
        let tree = Rc::new(input);
        let claimed = self.folders(&tree, &files)?;
        for file in &files {
            let is_claimed = claimed
                .iter()
                .any(|folder| file.starts_with(folder.as_str()));
            if is_claimed || base_of(file).starts_with('.') {
                continue;
            }
            self.file(&tree, file, depth)?;
        }
        match self.parts.get_mut(first) {
            Some(part) => part.flaws.extend(flaws),
            None => {
                if let Some(flaw) = flaws.first() {
                    return Err(Error::Damaged {
                        input: tree.name().to_owned(),
                        place: perfquet_events::event::Place::Offset(flaw.offset),
                        message: flaw.message.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Finds the directories that are traces; returns their names.
    fn folders(&mut self, tree: &Rc<Input>, files: &[String]) -> Result<Vec<String>, Error> {
        let mut claimed: Vec<String> = Vec::new();
        for file in files.iter().filter(|file| base_of(file) == MANIFEST) {
            let head = tree.head_of(file)?.unwrap_or_default();
            if head.starts_with(MANIFEST_HEAD) {
                let folder = file.strip_suffix(MANIFEST).unwrap_or_default();
                let folder_name = folder.trim_end_matches('/');
                match &mut self.own {
                    Some((_, others)) => *others += 1,
                    // A `.pqtz` has the file at its top.
                    own if folder_name.is_empty() => *own = Some((tree.name().to_owned(), 0)),
                    own => *own = Some((format!("{}/{folder_name}", tree.name()), 0)),
                }
                claimed.push(folder.to_owned());
            }
        }
        for format in self.formats() {
            let Some(main) = format.main_file.map(base_of) else {
                continue;
            };
            let mut found = Vec::new();
            for file in files.iter().filter(|file| base_of(file) == main) {
                let folder = file.strip_suffix(main).unwrap_or_default();
                if claimed
                    .iter()
                    .any(|other| folder.starts_with(other.as_str()))
                {
                    continue;
                }
                if let Some(head) = tree.head_of(file)?
                    && (format.sniff)(&head) == Guess::Certain
                {
                    found.push(folder.to_owned());
                }
            }
            claimed.extend(found.iter().cloned());
            let mut originals = Vec::new();
            for folder in found {
                if !self.copies.is_copy(tree, format, &folder, files)? {
                    originals.push(folder);
                }
            }
            let found = originals;
            let groups = match format.name == ctf::CTF.name {
                true => clocks(tree, found)?,
                false => found.into_iter().map(|folder| vec![folder]).collect(),
            };
            for group in groups {
                let place = match <[String; 1]>::try_from(group) {
                    Ok([folder]) => Place::Folder(Rc::clone(tree), folder),
                    Err(folders) => Place::Folders(Rc::clone(tree), folders),
                };
                self.push(tree, format, place)?;
            }
        }
        Ok(claimed)
    }

    fn push(&mut self, tree: &Input, format: &'static Format, place: Place) -> Result<(), Error> {
        if self.parts.len() >= PARTS_MAX {
            return Err(Error::Unsupported {
                input: tree.name().to_owned(),
                message: format!("it has more than {PARTS_MAX} traces\nhint: name some of them"),
            });
        }
        self.parts.push(Part::of(format, place));
        Ok(())
    }

    fn file(&mut self, tree: &Rc<Input>, file: &String, depth: u32) -> Result<(), Error> {
        let opened = match tree.member(file) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(()),
            // It is compressed, and damaged at its begin.
            Err(error) => {
                log::warn!("{error}");
                return Ok(());
            }
        };
        if archive::is_archive(opened.head()) && depth < DEPTH_MAX {
            return self.nested(opened, depth + 1);
        }
        let format = match self.from {
            Some(from) => ((from.sniff)(opened.head()) != Guess::No).then_some(from),
            None => sniff_file(&opened).ok(),
        };
        match format {
            Some(format) => {
                let own = std::slice::from_ref(file);
                if self.copies.is_copy(tree, format, file, own)? {
                    return Ok(());
                }
                self.push(tree, format, Place::File(Rc::clone(tree), file.clone()))
            }
            None => {
                if !opened.head().is_empty() {
                    self.others += 1;
                    self.other.get_or_insert_with(|| file.to_owned());
                }
                Ok(())
            }
        }
    }

    /// An archive in an archive: it stays open, so all of them share the limit of temporary files.
    fn nested(&mut self, mut input: Input, depth: u32) -> Result<(), Error> {
        input.set_temporary_bytes_max(self.temporary_bytes);
        let is_mapped = input.mapped().is_some();
        input.open_archive()?;
        if !is_mapped {
            self.temporary_bytes = self.temporary_bytes.saturating_sub(input.consumed_bytes());
        }
        self.directory(input, depth)
    }
}

/// Traces of CTF by the clock of their times.
fn clocks(tree: &Input, folders: Vec<String>) -> Result<Vec<Vec<String>>, Error> {
    let main = ctf::CTF.main_file.map(base_of).unwrap_or_default();
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut unreadable = Vec::new();
    for folder in folders {
        let mut metadata = tree.member(&format!("{folder}{main}"))?;
        let bytes = metadata.as_mut().map(Input::whole).transpose()?.flatten();
        match bytes.and_then(|bytes| ctf::clock_name(&bytes)) {
            Some(clock) => groups.entry(clock).or_default().push(folder),
            None => unreadable.push(folder),
        }
    }
    let mut groups: Vec<Vec<String>> = groups.into_values().collect();
    // A reader of several reports those that it cannot read.
    match groups.first_mut() {
        Some(group) => group.extend(unreadable),
        None if unreadable.is_empty() => {}
        None => groups.push(unreadable),
    }
    Ok(groups)
}

fn base_of(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn files(count: u64) -> String {
    match count {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    }
}
