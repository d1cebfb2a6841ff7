//! Addresses of traces in a lake: all of them, or those selected by host, date and name.
//!
//! ```text
//! lake:/srv/lake                          all
//! lake:/srv/lake?host=h0*&date=2026-11-2* those whose host and date match
//! lake:/srv/lake?host=h001&host=h002      those of either host
//! lake:/srv/lake?trace=perf-1f0c6a…       one
//! ```
//! Records of the lake have host and date; manifests are read for selected traces only.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use perfquet_events::Error;

use super::{Lake, Record};
use crate::count::counted;
use crate::remote::is_url;
use crate::store::Directory;

const SCHEME: &[u8] = b"lake:";
/// Selects by the name in the lake, or by the trace's own.
const TRACE: &str = "trace";
const KEYS: [&str; 3] = ["host", "date", TRACE];

/// Manifests that are read at once.
const AT_ONCE: usize = 256;

/// Whether a text matches a pattern with `*`, `?` and `[…]`.
pub type Matches = fn(pattern: &str, text: &str) -> bool;

/// A lake, and which of its traces.
#[derive(Debug)]
pub struct Address {
    root: PathBuf,
    /// Keys with a pattern. One pattern of each key must match.
    conditions: Vec<(&'static str, String)>,
    matches: Matches,
}

fn parse(text: &[u8], matches: Matches) -> Result<Address, String> {
    let is_directory = |path: &[u8]| Path::new(OsStr::from_bytes(path)).is_dir();
    let first = text.iter().position(|&byte| byte == b'?');
    // A directory may have a question mark in its name.
    let (root, query) = match first.filter(|_| !is_directory(text)) {
        Some(place) => {
            let (root, query) = text.split_at(place);
            (root, query.strip_prefix(b"?").unwrap_or(query))
        }
        None => (text, &[][..]),
    };
    if root.is_empty() {
        return Err("expected the directory of a lake, as in lake:/srv/lake".to_owned());
    }
    let query = std::str::from_utf8(query).map_err(|_| "expected UTF-8 after `?`".to_owned())?;
    let mut conditions = Vec::new();
    for condition in query.split('&').filter(|condition| !condition.is_empty()) {
        let (key, pattern) = condition.split_once('=').ok_or_else(|| {
            format!("expected KEY=PATTERN with host, date or trace, found {condition:?}")
        })?;
        let known = KEYS.into_iter().find(|known| *known == key);
        let key =
            known.ok_or_else(|| format!("unknown key {key:?}: expected host, date or trace"))?;
        conditions.push((key, decoded(pattern)?));
    }
    let is_remote = std::str::from_utf8(root).is_ok_and(is_url);
    let root = match is_remote {
        true => root.strip_suffix(b"/").unwrap_or(root),
        false => root,
    };
    Ok(Address {
        root: PathBuf::from(OsStr::from_bytes(root)),
        conditions,
        matches,
    })
}

/// Text with `%XX` as the bytes that they mean.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hexadecimal = after.get(..2).filter(|_| first == b'%');
        let code = hexadecimal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, code) {
            (b'%', None) => return Err(format!("expected two digits after %, found {text:?}")),
            (_, Some(code)) => {
                bytes.push(code);
                rest = after.get(2..).unwrap_or_default();
            }
            (first, None) => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("expected UTF-8, found {text:?}"))
}

impl Address {
    /// Returns the address in a path; `None` if it is none, but a path of files.
    pub fn parse(path: &Path, matches: Matches) -> Option<Result<Address, Error>> {
        let text = path.as_os_str().as_bytes().strip_prefix(SCHEME)?;
        if path.exists() {
            return None;
        }
        Some(parse(text, matches).map_err(|message| unfit(path, message)))
    }

    /// Returns the directory of the lake.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns whether all traces of the lake are meant.
    pub fn is_whole(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Returns the path that opens a trace of this lake alone.
    pub fn path_of(&self, trace: &str) -> PathBuf {
        let mut path = std::ffi::OsString::from("lake:");
        path.push(&self.root);
        path.push(format!("?{TRACE}={trace}"));
        path.into()
    }

    /// Names of the selected traces in the lake, in order.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let lake = self.lake()?;
        let (records, _) = self.records(&lake)?;
        Ok(records.into_iter().map(|record| record.trace).collect())
    }

    /// Opens the selected traces, by date, host and name. Returns notes about what is left out.
    pub fn open(&self, mut opened: impl FnMut(Record, Directory)) -> Result<Vec<String>, Error> {
        let lake = self.lake()?;
        let (records, mut notes) = self.records(&lake)?;
        let shown = self.root.display();
        let (mut count, mut earlier) = (0u64, 0u64);
        for records in records.chunks(AT_ONCE) {
            for (record, trace) in records.iter().zip(lake.traces(records)?) {
                let Some(trace) = trace else {
                    earlier += 1;
                    continue;
                };
                if let Some(omitted) = trace.manifest().facts.other.get("lake.omitted_tables") {
                    let name = &record.trace;
                    notes.push(format!("{shown}: {name}: the lake lacks {omitted}"));
                }
                opened(record.clone(), trace);
                count += 1;
            }
        }
        if earlier > 0 {
            let message = format!(
                "{} of an earlier version of the lake, without manifests\nhint: publish them again",
                counted(earlier, "trace")
            );
            if count == 0 {
                return Err(unfit(&self.root, message));
            }
            notes.push(format!("{shown}: {message}"));
        }
        Ok(notes)
    }

    /// Opens the lake.
    pub fn lake(&self) -> Result<Lake, Error> {
        if !is_url(&self.root.to_string_lossy()) && !self.root.exists() {
            return Err(unfit(&self.root, "no such lake".to_owned()));
        }
        Lake::open(&self.root)
    }

    /// The records of the selected traces, and notes about those that are left out.
    fn records(&self, lake: &Lake) -> Result<(Vec<Record>, Vec<String>), Error> {
        let mut notes = Vec::new();
        let changing = lake.changing().iter().map(String::as_str);
        // Their host and date may be changing, too.
        let changing: Vec<&str> = changing.filter(|name| self.may_select(name)).collect();
        if !changing.is_empty() {
            notes.push(format!(
                "{}: {} left out, half published: {}\nhint: the next perfquet-convert --to lake completes {}",
                self.root.display(),
                counted(changing.len() as u64, "trace"),
                few(&changing),
                if changing.len() == 1 { "it" } else { "them" },
            ));
        }
        let all = match self.exact() {
            Some(name) => lake.record(name)?.into_iter().collect(),
            None => match self.partitions(lake)? {
                Some(names) => lake.records_of(&names)?,
                None => lake.records()?,
            },
        };
        let count = all.len();
        let (mut records, others): (Vec<Record>, Vec<Record>) =
            all.into_iter().partition(|record| self.selects(record));
        if records.is_empty() {
            let host = |record: &Record| record.host.clone();
            let date = |record: &Record| record.date.clone();
            let hosts: BTreeSet<String> = others.iter().filter_map(host).collect();
            let dates: BTreeSet<String> = others.iter().filter_map(date).collect();
            let mut found = String::new();
            for (key, values) in [("hosts", hosts), ("dates", dates)] {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                if !values.is_empty() {
                    found.push_str(&format!("; {key}: {}", few(&values)));
                }
            }
            let notes: String = notes.iter().map(|note| format!("\n{note}")).collect();
            let message = format!(
                "no matching traces among {}{found}{notes}",
                counted(count as u64, "trace"),
            );
            return Err(unfit(&self.root, message));
        }
        records.sort_by(|a, b| {
            let key = |record: &Record| (record.date.clone(), record.host.clone());
            key(a)
                .cmp(&key(b))
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| a.trace.cmp(&b.trace))
        });
        Ok((records, notes))
    }

    /// The names of the traces whose directories match, if there are conditions of directories.
    fn partitions(&self, lake: &Lake) -> Result<Option<Vec<String>>, Error> {
        if self.conditions.iter().all(|(key, _)| *key == TRACE) {
            return Ok(None);
        }
        let selects = |key: &str, value: &str| {
            let mut patterns = self
                .conditions
                .iter()
                .filter(|(of, _)| *of == key)
                .peekable();
            patterns.peek().is_none()
                || decoded(value)
                    .is_ok_and(|value| patterns.any(|(_, pattern)| (self.matches)(pattern, &value)))
        };
        // Without any, the error says what there is.
        Ok(lake.names_in(&selects)?.filter(|names| !names.is_empty()))
    }

    /// The only name that can match.
    fn exact(&self) -> Option<&str> {
        let mut names = self.conditions.iter().filter(|(key, _)| *key == TRACE);
        let (Some((_, name)), None) = (names.next(), names.next()) else {
            return None;
        };
        // Only names in the lake have a checksum.
        let (_, checksum) = name.rsplit_once('-')?;
        let is_checksum = checksum.len() == 16 && checksum.bytes().all(|c| c.is_ascii_hexdigit());
        (is_checksum && !name.contains(['*', '?', '['])).then_some(name)
    }

    /// Whether a trace may be selected of which only the name in the lake is known.
    fn may_select(&self, trace: &str) -> bool {
        let names = self.conditions.iter().filter(|(key, _)| *key == TRACE);
        let mut patterns = names.map(|(_, pattern)| pattern.as_str()).peekable();
        let own = trace.rsplit_once('-').map_or(trace, |(name, _)| name);
        patterns.peek().is_none()
            || patterns
                .any(|pattern| (self.matches)(pattern, trace) || (self.matches)(pattern, own))
    }

    fn selects(&self, record: &Record) -> bool {
        KEYS.iter().all(|key| {
            let mut patterns = self
                .conditions
                .iter()
                .filter(|(of, _)| of == key)
                .peekable();
            patterns.peek().is_none()
                || patterns.any(|(_, pattern)| {
                    let matches = |value: &str| (self.matches)(pattern, value);
                    match *key {
                        "host" => record.host.as_deref().is_some_and(matches),
                        "date" => record.date.as_deref().is_some_and(matches),
                        _ => matches(&record.trace) || matches(&record.name),
                    }
                })
        })
    }
}

fn unfit(path: &Path, message: String) -> Error {
    Error::Unsupported {
        input: path.display().to_string(),
        message,
    }
}

/// Some of the names.
pub fn few(names: &[&str]) -> String {
    const MOST: usize = 5;
    let first: Vec<&str> = names.iter().copied().take(MOST).collect();
    let mut text = first.join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(path: &Path) -> Option<Result<Address, Error>> {
        Address::parse(path, |pattern, text| pattern == text)
    }

    #[test]
    fn addresses_have_a_directory_and_patterns() {
        let check = |text: &str, root: &str, conditions: &[(&'static str, &str)]| {
            let found = address(Path::new(text)).unwrap().unwrap();
            let owned = |(key, pattern): &(&'static str, &str)| (*key, (*pattern).to_owned());
            assert_eq!(found.root, Path::new(root));
            assert_eq!(
                found.conditions,
                conditions.iter().map(owned).collect::<Vec<_>>()
            );
        };
        check("lake:/srv/lake", "/srv/lake", &[]);
        check("lake:/srv/lake?", "/srv/lake", &[]);
        check(
            "lake:l?host=h?0*&date=2026-11-2*",
            "l",
            &[("host", "h?0*"), ("date", "2026-11-2*")],
        );
        check(
            "lake:l?host=a%26b%3f&host=c",
            "l",
            &[("host", "a&b?"), ("host", "c")],
        );
        assert!(address(Path::new("/srv/lake")).is_none());
        let error = |text: &str| address(Path::new(text)).unwrap().unwrap_err().to_string();
        assert!(error("lake:").contains("expected the directory of a lake"));
        assert!(
            error("lake:l?rack=1").contains("unknown key \"rack\": expected host, date or trace")
        );
        assert!(error("lake:l?host").contains("expected KEY=PATTERN"));
        assert!(error("lake:l?host=%2").contains("expected two digits"));
        assert!(error("lake:l?host=%ff").contains("expected UTF-8"));
    }
}
