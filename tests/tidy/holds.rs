//! docs/dev/what-holds.md: every point once, with existing tests.
//!
//! ```text
//! | what holds | the test that holds it |
//! | --- | --- |
//! | A reader sees whole parts only | `tests/cli/convert.md`, `formats/trace/tests/crash.rs::full_disk_is_an_error_and_keeps_complete_parts` |
//! ```

use std::collections::BTreeMap;

use perfquet_tests::root;

use super::{assert_none, read};

const PAGE: &str = "docs/dev/what-holds.md";

#[test]
fn every_row_of_what_holds_has_a_test() {
    assert_none(&objections(&read(&root().join(PAGE))));
}

/// Every public report in docs/dev/public-reports.md has a test.
#[test]
fn every_public_report_has_a_test() {
    const REPORTS: &str = "docs/dev/public-reports.md";
    let page = read(&root().join(REPORTS));
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| D"))
        .collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next();
        let tests = tests.unwrap_or_default();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        // F is the test of all files.
        if names.is_empty() && tests != "F" {
            wrong.push(format!("{REPORTS}: no test: {row}"));
        }
        let objections = names.into_iter().filter_map(objection);
        wrong.extend(objections.map(|objection| format!("{REPORTS}: {objection}")));
    }
    assert_none(&wrong);
}

/// The errors in the page.
fn objections(page: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut points: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in page.lines().enumerate() {
        let number = number + 1;
        let Some(row) = line.strip_prefix('|') else {
            continue;
        };
        let row = row
            .trim_end()
            .strip_suffix('|')
            .unwrap_or(row)
            .replace("\\|", "\u{0}");
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [what, tests] = cells[..] else {
            wrong.push(format!(
                "{PAGE}:{number}: expected two cells, found {}",
                cells.len()
            ));
            continue;
        };
        if what == "what holds" || what.starts_with("---") {
            continue;
        }
        if let Some(first) = points.insert(what.to_lowercase(), number) {
            wrong.push(format!("{PAGE}:{number}: the same as in line {first}"));
        }
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            wrong.push(format!("{PAGE}:{number}: no test"));
        }
        // A name alone is another test of the file before it; chores are searched in all documents.
        let mut file = "";
        for name in names
            .iter()
            .filter(|name| !name.starts_with("cargo xtask "))
        {
            let objection = match name.contains('/') || name.contains('.') {
                true => {
                    file = name.split("::").next().unwrap_or_default();
                    objection(name)
                }
                false => objection(&format!("{file}::{name}")),
            };
            wrong.extend(objection.map(|objection| format!("{PAGE}:{number}: {objection}")));
        }
    }
    wrong
}

/// `PATH::test_name`, or the path of a page or of queries, which are tests themselves.
fn objection(name: &str) -> Option<String> {
    // `PATH::module::test_name` is the same test.
    let path = name.split("::").next().unwrap_or(name);
    let test = name.rsplit_once("::").map(|(_, test)| test);
    let Ok(text) = std::fs::read_to_string(root().join(path)) else {
        return Some(format!("`{path}` does not exist"));
    };
    match test {
        Some(test) => {
            let is_there = text.split(&format!("fn {test}(")).count() > 1;
            (!is_there).then(|| format!("`{path}` has no test `{test}`"))
        }
        None => {
            let is_test = [".md", ".slt"].iter().any(|ending| path.ends_with(ending));
            (!is_test).then(|| format!("`{path}`: which test of it?"))
        }
    }
}

#[test]
fn rows_without_a_test_are_found() {
    let own = "tests/tidy/holds.rs";
    let check = |rows: &str, expected: &[&str]| {
        let page = format!("# What\n\n| what holds | test |\n| --- | --- |\n{rows}");
        let found = objections(&page);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    };
    check(
        &format!("| a | `{own}::rows_without_a_test_are_found` |\n| b | `README.md` |\n"),
        &[],
    );
    check("| a | a test |\n", &["no test"]);
    check(
        &format!("| a | `{own}::nobody_wrote_it` |\n"),
        &["has no test `nobody_wrote_it`"],
    );
    check("| a | `tests/tidy/nowhere.rs::x` |\n", &["does not exist"]);
    check(&format!("| a | `{own}` |\n"), &["which test"]);
    check(
        "| a | `README.md` |\n| A | `README.md` |\n",
        &["the same as in line 5"],
    );
    check("| a | `README.md` | more |\n", &["expected two cells"]);
}
