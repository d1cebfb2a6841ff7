//! Paths on the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

/// Parses a path to write. `s3://bucket/a` would become directories of that name, and the user would look for it in the bucket.
pub fn written() -> impl TypedValueParser<Value = PathBuf> {
    parser("the programs write files and directories only")
}

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
