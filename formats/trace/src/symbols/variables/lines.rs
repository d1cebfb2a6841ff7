//! Start addresses of the lines of a function.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gimli::AttributeValue;

use super::{Dwarf, attribute, function_at, text};

/// The lines of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceLines {
    /// Its source file.
    pub file: String,
    /// The line that declares it; `None` without debug info.
    pub first_line: Option<u32>,
    /// Start of the code of each line, in line order.
    pub places: Vec<LinePlace>,
    /// File offset where the frame has been set up: from there on, parameters are in memory if the code is not
    /// optimized.
    pub after_prologue: Option<u64>,
}

/// Start of the code of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinePlace {
    /// Line of the source file.
    pub line: u32,
    /// Offset in the object's file.
    pub offset: u64,
}

pub(super) fn lines_of(
    dwarf: &Dwarf<'_>,
    address: u64,
    bytes: u64,
    offset_of: impl Fn(u64) -> Option<u64>,
) -> Result<SourceLines, gimli::Error> {
    let Some((unit, offset)) = function_at(dwarf, address)? else {
        return Ok(SourceLines::default());
    };
    let function = unit.entry(offset)?;
    let first_line = attribute(&unit, &function, gimli::DW_AT_decl_line)?
        .and_then(|value| value.udata_value())
        .and_then(|line| u32::try_from(line).ok());
    let file = attribute(&unit, &function, gimli::DW_AT_decl_file)?.and_then(|value| match value {
        AttributeValue::FileIndex(index) => Some(index),
        other => other.udata_value(),
    });
    let mut lines = SourceLines {
        first_line,
        ..SourceLines::default()
    };
    let Some(program) = unit.line_program.clone() else {
        return Ok(lines);
    };
    let mut rows = program.rows();
    let mut places: BTreeMap<u32, u64> = BTreeMap::new();
    let mut after_prologue: Option<u64> = None;
    while let Some((header, row)) = rows.next_row()? {
        if lines.file.is_empty()
            && let Some(entry) = file.and_then(|file| header.file(file))
        {
            let parts = [
                unit.comp_dir
                    .map(|folder| folder.to_string_lossy().into_owned()),
                text(dwarf, &unit, entry.directory(header)),
                text(dwarf, &unit, Some(entry.path_name())),
            ];
            // A part that begins at the root replaces the parts before it.
            let path: PathBuf = parts.into_iter().flatten().collect();
            lines.file = path.to_string_lossy().into_owned();
        }
        let is_inside = row
            .address()
            .checked_sub(address)
            .is_some_and(|at| at < bytes.max(1));
        let is_own = file.is_none_or(|file| row.file_index() == file);
        if !is_inside || !is_own || !row.is_stmt() || row.end_sequence() {
            continue;
        }
        // The second row begins after the prologue, as in gdb and perf; some compilers mark it.
        let is_first = row.address() == address;
        if !is_first && (row.prologue_end() || after_prologue.is_none_or(|at| row.address() < at)) {
            after_prologue = Some(row.address());
        }
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
        if let (Some(line), Some(offset)) = (line, offset_of(row.address())) {
            let place = places.entry(line).or_insert(offset);
            *place = (*place).min(offset);
        }
    }
    lines.after_prologue = after_prologue.and_then(&offset_of);
    lines.places = places
        .into_iter()
        .map(|(line, offset)| LinePlace { line, offset })
        .collect();
    Ok(lines)
}
