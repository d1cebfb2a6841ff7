//! Paths on the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

/// Parses a path to write. `s3://bucket/a` would become directories of that name, and the user would look for it in the bucket.
pub fn written() -> impl TypedValueParser<Value = PathBuf> {
    parser("the programs write files and directories only")
}

/// Parses a path to write, or the URL of a place in an object store.
pub fn written_or_stored() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text: OsString| {
        let shown = text.to_string_lossy().into_owned();
        match STORES.iter().any(|scheme| shown.starts_with(scheme)) || !is_url(&text) {
            true => Ok(PathBuf::from(text)),
            false => Err(
                "expected a path or the URL of an object store, s3://, gs:// or az://".to_owned(),
            ),
        }
    })
}

/// Begin the URLs of object stores.
const STORES: [&str; 6] = ["s3://", "s3a://", "gs://", "az://", "azure://", "abfss://"];

/// Parses a path to read, for a program that opens no URLs.
pub fn read() -> impl TypedValueParser<Value = PathBuf> {
    parser("perfquet-query opens traces at URLs; download other files first")
}

fn parser(hint: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(move |text: OsString| match is_url(&text) {
        true => Err(format!("expected a path, found a URL: {hint}")),
        false => Ok(PathBuf::from(text)),
    })
}

/// `scheme://…`; a path of that form is written `./scheme://…`.
fn is_url(text: &OsString) -> bool {
    let text = text.to_string_lossy();
    let Some((scheme, _)) = text.split_once("://") else {
        return false;
    };
    scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "+.-".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_no_paths() {
        let is = |text: &str| is_url(&OsString::from(text));
        assert!(is("s3://bucket/a.pqt") && is("https://host/a"));
        assert!(!is("./s3://bucket/a.pqt") && !is("a:b") && !is("lake:s3://bucket/lake"));
        assert!(!is("://a") && !is("a b://c"));
    }
}
