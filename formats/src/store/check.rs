//! Whether a manifest says what a trace can hold. It may have come from a stranger, or half of it from a disk that died:
//! everything that a reader relies on is asked here, once, and what does not hold is an error in a sentence.
//!
//! ```text
//! paths        inside of the trace, each part once, in the folder of its table
//! columns      named as SQL names them, no two alike; those of the fixed tables with the types that they have
//! parts        first time ≤ last time; rows that can be counted; columns of the table, with types that fit
//! ```

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path};

use super::manifest::{Manifest, Part, Table};
use super::place::JOURNAL;
use super::table::ColumnType;
use crate::tables;

/// Rows that a table can have: a row a nanosecond for three days.
const MOST_ROWS: u64 = 1 << 48;

/// The first thing that does not hold.
pub(super) fn check(manifest: &Manifest) -> Result<(), String> {
    let mut files = HashSet::new();
    let mut folders = HashSet::new();
    for (name, table) in &manifest.tables {
        let place = |message: String| format!("table {name:?}: {message}");
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(place("expected a name".to_owned()));
        }
        check_path(&table.folder).map_err(place)?;
        if !folders.insert(table.folder.as_str()) {
            return Err(place(format!(
                "expected a folder of its own, found {:?} of another table",
                table.folder
            )));
        }
        check_columns(name, table).map_err(place)?;
        let mut rows = 0_u64;
        for part in &table.parts {
            let place = |message: String| place(format!("part {:?}: {message}", part.file));
            check_path(&part.file).map_err(place)?;
            let own_folder = part.file.rsplit_once('/').map(|(folder, _)| folder);
            if own_folder != Some(table.folder.as_str()) {
                return Err(place(format!("expected it in {:?}", table.folder)));
            }
            if !files.insert(part.file.as_str()) {
                return Err(place("expected each part once, found it twice".to_owned()));
            }
            check_part(table, part).map_err(place)?;
            rows = rows.saturating_add(part.rows);
        }
        if rows > MOST_ROWS {
            return Err(place(format!("expected at most 2^48 rows, found {rows}")));
        }
    }
    Ok(())
}

/// No path may lead out of the trace, nor to what the recorder keeps there.
fn check_path(path: &str) -> Result<(), String> {
    let steps = || Path::new(path).components();
    let is_inside = steps().all(|step| matches!(step, Component::Normal(_)));
    let is_journal = steps().next() == Some(Component::Normal(JOURNAL.as_ref()));
    if path.is_empty() || !is_inside || is_journal || path.contains('\0') {
        return Err(format!("expected paths inside the trace, found {path:?}"));
    }
    Ok(())
}

fn check_columns(name: &str, table: &Table) -> Result<(), String> {
    let declared = match name.starts_with("events/") {
        true => tables::common::columns(),
        false => tables::all()
            .into_iter()
            .find(|schema| schema.name == name)
            .map_or_else(Vec::new, |schema| schema.columns),
    };
    let declared: HashMap<&str, ColumnType> = declared
        .iter()
        .map(|column| (column.name.as_str(), column.kind))
        .collect();
    if table.columns.is_empty() {
        return Err("expected columns, found none".to_owned());
    }
    let mut names = HashSet::new();
    for column in &table.columns {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if column.name.is_empty() || !column.name.bytes().all(plain) {
            return Err(format!(
                "expected names of letters, digits and _, found column {:?}",
                column.name
            ));
        }
        if !names.insert(column.name.as_str()) {
            return Err(format!("two columns are named {:?}", column.name));
        }
        match declared.get(column.name.as_str()) {
            Some(kind) if *kind != column.kind => {
                return Err(format!(
                    "column {}: expected {}, found {}",
                    column.name,
                    kind.as_str(),
                    column.kind.as_str()
                ));
            }
            _ => {}
        }
    }
    match table
        .sort
        .iter()
        .find(|sort| !names.contains(sort.as_str()))
    {
        Some(sort) => Err(format!("sorted by {sort:?}, which is none of its columns")),
        None => Ok(()),
    }
}

fn check_part(table: &Table, part: &Part) -> Result<(), String> {
    if let (Some(first), Some(last)) = (part.time_min, part.time_max)
        && first > last
    {
        return Err(format!(
            "expected the first time before the last, found {first} and {last}"
        ));
    }
    if part.time_min.is_some() != part.time_max.is_some() {
        return Err("expected a first and a last time, found one of them".to_owned());
    }
    let mut names = HashSet::new();
    for own in &part.columns {
        let Some(column) = table.columns.iter().find(|column| column.name == own.name) else {
            return Err(format!("column {:?} is none of its table", own.name));
        };
        if !names.insert(own.name.as_str()) {
            return Err(format!("two columns are named {:?}", own.name));
        }
        let is_wide_enough = matches!(column.kind, ColumnType::Text | ColumnType::TextList)
            || ColumnType::holding(&[own.kind, column.kind]) == column.kind;
        if own.kind == ColumnType::Int128 || !is_wide_enough {
            return Err(format!(
                "column {}: expected what fits into {}, found {}",
                own.name,
                column.kind.as_str(),
                own.kind.as_str()
            ));
        }
    }
    Ok(())
}
