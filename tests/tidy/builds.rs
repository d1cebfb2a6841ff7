//! Build settings of the programs.

use std::collections::BTreeMap;
use std::process::Stdio;

use perfquet_tests::{place, root};

use super::{assert_none, read};

/// Cargo builds a crate again for each set of features: the demo builds the programs one by one.
#[test]
fn recorder_and_converter_share_their_dependencies() {
    let recorder = features("perfquet-record");
    let converter = features("perfquet-convert");
    let wrong: Vec<String> = recorder
        .iter()
        .filter_map(|(package, own)| {
            let other = converter.get(package)?;
            (own != other).then(|| {
                format!("{package}: features {own:?} for the recorder, {other:?} for the converter: unite them in Cargo.toml")
            })
        })
        .collect();
    assert!(recorder.len() > 20, "cargo tree lists {recorder:?}");
    assert_none(&wrong);
}

/// Name and version of each crate that a program is built of, with its features.
fn features(program: &str) -> BTreeMap<String, String> {
    let output = place::cargo()
        .args(["tree", "--locked", "--package", program])
        .args([
            "--edges", "normal", "--prefix", "none", "--format", "{p}\t{f}",
        ])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(package, features)| {
            let features = features.trim_end_matches("(*)").trim();
            (package.to_owned(), features.to_owned())
        })
        .collect()
}

/// The section of a package resets `strip` of the profile, so each program's section must say it.
#[test]
fn released_programs_are_stripped() {
    let manifest: toml::Table = toml::from_str(&read(&root().join("Cargo.toml"))).unwrap();
    let packages = &manifest["profile"]["release"]["package"];
    // Recordings of the whole system show the recorder, whose symbols stay.
    let strips = [
        ("perfquet-record", "debuginfo".into()),
        ("perfquet-convert", true.into()),
        ("perfquet-query", true.into()),
    ];
    for (program, expected) in strips {
        let strip: Option<&toml::Value> = packages[program].get("strip");
        assert_eq!(strip, Some(&expected), "{program}");
    }
}
