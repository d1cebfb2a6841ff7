//! The documents: they exist, refer to existing files, and every table and column has a description.

use std::path::PathBuf;

use perfquet_tests::{root, site};

use super::{assert_none, read, tracked};

#[test]
fn the_changelog_has_a_section_for_unreleased_changes() {
    assert!(read(&root().join("CHANGELOG.md")).contains("\n## Unreleased\n"));
}

/// Every chore named in a document is listed by `cargo xtask help`.
#[test]
fn chores_named_in_documents_exist() {
    let usage = read(&root().join("tests/src/bin/xtask.rs"));
    let mut wrong = Vec::new();
    for path in documents() {
        for (number, line) in read(&root().join(&path)).lines().enumerate() {
            for after in line.split("cargo xtask ").skip(1) {
                let chore: String = after
                    .chars()
                    .take_while(|letter| letter.is_ascii_lowercase())
                    .collect();
                if !chore.is_empty() && !usage.contains(&format!("\n  {chore}")) {
                    wrong.push(format!(
                        "{}:{}: no chore `cargo xtask {chore}`",
                        path.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert_none(&wrong);
}

/// Files that documents and comments name in backticks with a directory exist: `formats/events/src/bytes.rs`.
#[test]
fn files_named_in_documents_exist() {
    let tops = [
        "formats/", "record/", "convert/", "query/", "ebpf/", "tests/", "schemas/", "docs/",
        "shared/",
    ];
    let mut wrong = Vec::new();
    let is_source = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "rs");
    let sources = tracked().into_iter().filter(is_source);
    for path in documents().into_iter().chain(sources) {
        let is_source = is_source(&path);
        for (number, line) in read(&root().join(&path)).lines().enumerate() {
            if is_source && !line.trim_start().starts_with("//") {
                continue;
            }
            for quoted in line.split('`').skip(1).step_by(2) {
                let plain = quoted
                    .chars()
                    .all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
                // NAME is a placeholder, so such paths are patterns.
                let pattern = quoted.split(['/', '.']).any(|part| {
                    part.len() > 1 && part.chars().all(|letter| letter.is_ascii_uppercase())
                });
                if plain
                    && !pattern
                    && tops.iter().any(|top| quoted.starts_with(top))
                    && !root().join(quoted).exists()
                {
                    wrong.push(format!(
                        "{}:{}: `{quoted}` does not exist",
                        path.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert_none(&wrong);
}

/// Pages that comments cite are in the tree: `docs/recording.md`, with or without backticks.
#[test]
fn pages_cited_in_comments_exist() {
    let mut wrong = Vec::new();
    let sources = tracked().into_iter().filter(|path| {
        path.extension()
            .is_some_and(|ending| ending == "rs" || ending == "h" || ending == "c")
    });
    for path in sources {
        for (number, line) in read(&root().join(&path)).lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else {
                continue;
            };
            let is_path = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
            for cited in comment.split(|letter: char| !is_path(letter)) {
                let is_page = cited.ends_with(".md") && cited.contains('/');
                // NAME stands for any name.
                if is_page && !cited.contains("NAME") && !root().join(cited).exists() {
                    wrong.push(format!(
                        "{}:{}: {cited} does not exist",
                        path.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert_none(&wrong);
}

/// Files and headings that a page links to exist; so they do in the site, where the pages of the top level are beside those of docs/. Every
/// page of docs/ is in the index by task.
#[test]
fn links_lead_to_files_and_headings() {
    let folder = tempfile::tempdir().unwrap();
    site::stage(folder.path()).unwrap();
    let mut wrong = site::broken_in_pages(&folder.path().join("src")).unwrap();
    // Pages that are not in the site.
    let others = documents().into_iter().filter(|path| {
        let is_top = path
            .parent()
            .is_some_and(|folder| folder.as_os_str().is_empty());
        !is_top && !path.starts_with("docs")
    });
    for path in others {
        wrong.extend(site::broken_in_page(&root().join(&path), root()).unwrap());
    }
    assert_none(&wrong);
}

/// Tables are documented in their declarations; the shell and the reference print these descriptions.
#[test]
fn every_table_and_column_has_a_description() {
    let mut wrong = Vec::new();
    for path in tracked().iter().filter(|path| path.starts_with("schemas")) {
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let table: toml::Table = read(&root().join(path)).parse().unwrap();
        let described = |value: &toml::Table| {
            value
                .get("doc")
                .and_then(|doc| doc.as_str())
                .is_some_and(|doc| !doc.trim().is_empty())
        };
        if !described(&table) {
            wrong.push(format!("{}: the table has no `doc`", path.display()));
        }
        for column in table
            .get("column")
            .and_then(|columns| columns.as_array())
            .into_iter()
            .flatten()
        {
            if !column.as_table().is_some_and(described) {
                wrong.push(format!(
                    "{}: column {} has no `doc`",
                    path.display(),
                    column["name"]
                ));
            }
        }
    }
    assert_none(&wrong);
}

/// Every dependency has a reason.
#[test]
fn every_dependency_has_a_reason() {
    let reasons = read(&root().join("CONTRIBUTING.md"));
    let manifest: toml::Table = read(&root().join("Cargo.toml")).parse().unwrap();
    let named = |name: &str| {
        reasons
            .lines()
            .filter(|line| line.starts_with("| "))
            .any(|line| {
                let cell = line
                    .trim_start_matches("| ")
                    .split(" | ")
                    .next()
                    .unwrap_or_default();
                cell.split([',', ';', ' ']).any(|word| word == name)
            })
    };
    let wrong: Vec<String> = manifest["workspace"]["dependencies"]
        .as_table()
        .unwrap()
        .keys()
        .filter(|name| !name.starts_with("perfquet") && !named(name))
        .map(|name| format!("CONTRIBUTING.md: no reason for the dependency {name}"))
        .collect();
    assert_none(&wrong);
}

#[test]
fn licenses_are_present() {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(!read(&root().join(name)).is_empty());
    }
}

/// Output that was recorded where a program was not installed.
#[test]
fn no_page_shows_a_missing_program() {
    let mut wrong = Vec::new();
    for path in documents() {
        for (number, line) in read(&root().join(&path)).lines().enumerate() {
            if line.ends_with(": command not found") {
                wrong.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert_none(&wrong);
}

fn documents() -> Vec<PathBuf> {
    tracked()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}
