//! Patterns of URLs: `s3://bucket/runs/*.pqt`.
//!
//! Directories of object stores are listed one level after the other, as those of a file system; those behind HTTP cannot be.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use perfquet_cli::glob_matches;
use perfquet_trace::remote::Remote;
use perfquet_trace::store::{ARCHIVE_ENDING, FILE_NAME};

const LARGEST_MANIFEST: u64 = 1 << 28;

/// The traces that a URL names, in order, without password and query, which the process remembers.
pub(crate) fn matching(url: &Path) -> Result<Vec<PathBuf>> {
    let text = url.to_string_lossy();
    let is_web = text.starts_with("http");
    let (place, path) = text.split_once("://").unwrap_or(("", &text));
    let is_pattern = |part: &str| part.contains(['*', '?', '[']);
    let steps: Vec<&str> = path.split('/').collect();
    // A bucket has no pattern.
    let first = steps.iter().skip(1).position(|part| is_pattern(part));
    let Some(first) = first.filter(|_| !is_web) else {
        if is_web
            && path
                .split('?')
                .next()
                .is_some_and(|path| path.contains(['*', '[']))
        {
            bail!(
                "{text}: patterns need a list of the directory, which HTTP does not have\nhint: give each trace, or use an object store"
            );
        }
        let place = Remote::at(url).transpose()?;
        return Ok(vec![
            place.map_or(url.to_owned(), |place| place.url().to_owned()),
        ]);
    };
    let (fixed, rest) = steps.split_at(first + 1);
    let base = format!("{place}://{}", fixed.join("/"));
    let Some(remote) = Remote::at(Path::new(&base)) else {
        return Ok(vec![url.to_owned()]);
    };
    let remote = remote?;
    let mut found = vec![String::new()];
    for step in rest.iter().filter(|step| !step.is_empty()) {
        let mut next = Vec::new();
        for folder in &found {
            let below = |name: &str| match folder.is_empty() {
                true => name.to_owned(),
                false => format!("{folder}/{name}"),
            };
            if !is_pattern(step) {
                next.push(below(step));
                continue;
            }
            let names = remote.place().names(folder)?;
            let names = names.iter().filter(|name| is_match(step, name));
            next.extend(names.map(|name| below(name)));
        }
        found = next;
    }
    // Other directories may be beside traces.
    let (mut traces, others): (Vec<String>, Vec<String>) = (found.into_iter())
        .partition(|path| path.ends_with(".pqt") || path.ends_with(ARCHIVE_ENDING));
    let manifests: Vec<String> = others
        .iter()
        .map(|path| format!("{path}/{FILE_NAME}"))
        .collect();
    let read = remote.place().read_all(&manifests, LARGEST_MANIFEST)?;
    let others = others.into_iter().zip(read);
    traces.extend(others.filter_map(|(path, manifest)| manifest.map(|_| path)));
    traces.sort();
    if traces.is_empty() {
        bail!("{text}: no matching traces");
    }
    let whole = |path: String| PathBuf::from(format!("{base}/{path}"));
    Ok(traces.into_iter().map(whole).collect())
}

/// Whether a file name matches; a leading dot must be literal, as in the shell.
pub(crate) fn is_match(pattern: &str, name: &str) -> bool {
    (!name.starts_with('.') || pattern.starts_with('.')) && glob_matches(pattern, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_files_match_only_literally() {
        assert!(is_match("*.pqt", "a.pqt"));
        assert!(!is_match("*.pqt", "a.pqt.old"));
        assert!(!is_match("*.pqt", ".hidden.pqt"));
        assert!(is_match(".*.pqt", ".hidden.pqt"));
    }
}
