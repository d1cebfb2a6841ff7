//! An alignment in a file, which is opened like its traces.
//!
//! ```text
//! {"perfquet_alignment": 1,
//!  "traces": [{"trace": "host.pqt", "method": "reference"},
//!             {"trace": "guest.pqt", "method": "events", "origin": 81234500000000, "shift": -31200, "drift": 1200, "error": 900, "pairs": 412}]}
//! ```
//! Paths are relative to the directory of the file, unless they are absolute or addresses of a lake.

use std::io::Read;
use std::path::{Path, PathBuf};

use perfquet_events::Error;
use perfquet_events::event::Place;
use serde_json::{Map, Value};

use super::{DRIFT_MAX, Method, Placement};
use crate::remote::is_url;

/// Ending of file names.
pub const ENDING: &str = ".align.json";

const VERSION: u64 = 1;
const KEY: &str = "perfquet_alignment";

/// Larger files are not read.
const SIZE_MAX: u64 = 64 << 20;

/// Whether a path is an alignment.
pub fn is_alignment(path: &Path) -> bool {
    path.to_string_lossy().ends_with(ENDING) && path.is_file()
}

/// Reads the paths of the traces, with their placements; `None` for those without a place.
///
/// # Errors
///
/// The file is unreadable, damaged, or of a newer version.
pub fn read(path: &Path) -> Result<Vec<(PathBuf, Option<Placement>)>, Error> {
    let wrong = |what: &str| Error::Damaged {
        input: path.display().to_string(),
        place: Place::Whole,
        message: what.to_owned(),
    };
    let failed = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.take(SIZE_MAX + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > SIZE_MAX {
        return Err(wrong(
            "expected an alignment, found a file of more than 64 MiB",
        ));
    }
    let content: Value = serde_json::from_str(&text)
        .map_err(|error| wrong(&format!("expected an alignment: {error}")))?;
    match content.get(KEY).and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(version) => {
            return Err(wrong(&format!(
                "version {version} is newer than this program"
            )));
        }
        None => return Err(wrong("expected an alignment, found other JSON")),
    }
    let traces = content.get("traces").and_then(Value::as_array);
    let traces = traces.ok_or_else(|| wrong("no traces"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let entry = |value: &Value| entry(value, folder);
    let entries: Option<Vec<_>> = traces.iter().map(entry).collect();
    let entries = entries.ok_or_else(|| wrong("damaged"))?;
    match entries.first() {
        Some((_, Some(first)))
            if first.method == Method::Reference && first.place(0) == Some(0) =>
        {
            Ok(entries)
        }
        Some(_) => Err(wrong("its first trace is not the reference")),
        None => Err(wrong("no traces")),
    }
}

fn entry(value: &Value, folder: &Path) -> Option<(PathBuf, Option<Placement>)> {
    let name = value.get("trace")?.as_str()?;
    let path = match name.starts_with("lake:") || is_url(name) {
        true => PathBuf::from(name),
        false => folder.join(name),
    };
    let number = |key: &str| match value.get(key) {
        None => Some(0),
        Some(number) => number.as_i64(),
    };
    let Some(method) = value.get("method") else {
        return Some((path, None));
    };
    let placement = Placement {
        origin: number("origin")?,
        shift: number("shift")?,
        drift: number("drift").filter(|drift| (-DRIFT_MAX..=DRIFT_MAX).contains(drift))?,
        method: Method::of(method.as_str()?)?,
        error: match value.get("error") {
            None => None,
            Some(error) => Some(error.as_i64().filter(|&error| error >= 0)?),
        },
        pairs: number("pairs")?.try_into().ok()?,
    };
    Some((path, Some(placement)))
}

/// Returns the text of a file in the directory `folder`.
///
/// # Errors
///
/// A path is not UTF-8.
pub fn text<'t>(
    traces: impl IntoIterator<Item = (&'t Path, Option<Placement>)>,
    folder: &Path,
) -> Result<String, Error> {
    let folder = folder.canonicalize().map_err(|source| Error::Io {
        path: folder.to_owned(),
        source,
    })?;
    let mut entries = Vec::new();
    for (path, placement) in traces {
        let utf8 = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| Error::Unsupported {
                input: path.display().to_string(),
                message: "a path that is not UTF-8 cannot be written to an alignment".to_owned(),
            })
        };
        let name = utf8(path)?;
        let name = match path.canonicalize() {
            Ok(whole) => utf8(whole.strip_prefix(&folder).unwrap_or(&whole))?,
            // The address of a trace in a lake.
            Err(_) => name,
        };
        let mut entry = Map::new();
        entry.insert("trace".to_owned(), name.into());
        if let Some(placement) = placement {
            entry.insert("method".to_owned(), placement.method.name().into());
            let numbers = [
                ("origin", placement.origin),
                ("shift", placement.shift),
                ("drift", placement.drift),
            ];
            for (key, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
                entry.insert(key.to_owned(), number.into());
            }
            if let Some(error) = placement.error {
                entry.insert("error".to_owned(), error.into());
            }
            if placement.pairs > 0 {
                entry.insert("pairs".to_owned(), placement.pairs.into());
            }
        }
        entries.push(format!("  {}", Value::Object(entry)));
    }
    let entries = entries.join(",\n");
    Ok(format!(
        "{{\"{KEY}\": {VERSION}, \"traces\": [\n{entries}\n]}}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("x{ENDING}"));
        let [inside, outside] = ["a.pqt", "b.pqt"].map(|name| folder.path().join(name));
        std::fs::create_dir(&inside).unwrap();
        let first = Placement::shifted(0, Method::Reference, Some(0));
        let second = Placement {
            origin: i64::MAX,
            drift: -7,
            pairs: 3,
            ..Placement::shifted(i64::MIN, Method::Events, None)
        };
        let lake = Path::new("lake:/x?trace=c");
        let traces = [
            (inside.as_path(), Some(first)),
            (outside.as_path(), Some(second)),
            (lake, None),
        ];
        let text = text(traces, folder.path()).unwrap();
        assert!(text.contains("\"trace\":\"a.pqt\""), "{text}");
        std::fs::write(&path, &text).unwrap();
        assert!(is_alignment(&path) && !is_alignment(&inside));
        let read = read(&path).unwrap();
        let expected = traces.map(|(path, placement)| (path.to_owned(), placement));
        assert_eq!(read, expected);
    }

    #[test]
    fn damaged_alignments_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("x{ENDING}"));
        let head = format!("{{\"{KEY}\": 1, \"traces\": ");
        let wrong = [
            "",
            "[]",
            "{\"a\": 1}",
            &format!("{{\"{KEY}\": 2}}"),
            &format!("{head}[]}}"),
            &format!("{head}[{{\"trace\": \"a\"}}]}}"),
            &format!("{head}[{{\"trace\": \"a\", \"method\": \"reference\", \"shift\": 1}}]}}"),
            &format!("{head}[{{\"trace\": \"a\", \"method\": \"magic\"}}]}}"),
            &format!(
                "{head}[{{\"trace\": \"a\", \"method\": \"reference\"}}, {{\"trace\": \"b\", \"method\": \"given\", \"drift\": 1000000000}}]}}"
            ),
            &format!(
                "{head}[{{\"trace\": \"a\", \"method\": \"reference\"}}, {{\"trace\": \"b\", \"method\": \"given\", \"shift\": 1e99}}]}}"
            ),
        ];
        for text in wrong {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path).is_err(), "{text}");
        }
    }
}
