//! What statements for DuckDB of a trace and of a lake share: names of schemas, a macro, paths.
//!
//! ```text
//! /srv/it's [1]/samples/*.parquet     '/srv/it''s [[]1]/samples/*.parquet'
//! ```

use anyhow::Result;

use crate::misuse::misuse;

/// Schema of the tables that only views use.
pub(super) const PARTS: &str = "parts_of_views";

/// The schema of fixed tables and views.
pub(super) const MAIN: &str = "main";

/// A macro by which signed addresses sort as unsigned ones.
pub(super) const UNSIGNED_ORDER: &str =
    "CREATE OR REPLACE MACRO unsigned_order(x) AS xor(x, -9223372036854775808);";

/// In a pattern, a backslash separates directories.
pub(super) fn refuse_backslash(path: &str) -> Result<()> {
    match path.contains('\\') {
        true => Err(misuse(
            format!(
                "{path}: --to ddl=duckdb: expected a path without a backslash, which DuckDB cannot quote"
            ),
            "use a symbolic link in another directory",
        )),
        false => Ok(()),
    }
}

/// A path in which DuckDB expands no pattern.
pub(super) fn without_patterns(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for letter in path.chars() {
        match letter {
            '*' | '?' | '[' => {
                text.push('[');
                text.push(letter);
                text.push(']');
            }
            letter => text.push(letter),
        }
    }
    text
}
