//! The line of an address, from the table of lines of a unit, and the names of its files.
//!
//! ```text
//! 0x1040 file 1 line 9     0x1050 file 7 line 1377     0x1060 end of the sequence
//! ```

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use gimli::{AttributeValue, DebugLineOffset, LineProgramHeader};

use super::TEXT_MAX;
use super::budget::{Budget, Failure};
use super::functions::Call;
use super::units::Units;
use crate::bytes::{Cursor, Endian, Short};
use crate::symbols::variables::{Slice, Unit};

/// A table of files takes 50 times as much memory. Compilers write some KiB, 100 at most.
const HEADER_MAX_BYTES: u64 = 4 << 20;

/// A place in the source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    /// Number of the file.
    pub(super) file: u64,
    pub(super) line: Option<u32>,
}

type Files = HashMap<u64, Arc<str>>;

/// The line of each address, and the paths of all files that these and the calls name. `addresses` are in order.
pub(super) fn lines_at<'s>(
    units: &Units<'_, 's>,
    unit: &Unit<'s>,
    addresses: &[u64],
    chains: &[Vec<Call>],
    budget: &mut Budget,
) -> Result<(Vec<Option<Leaf>>, Files), Failure> {
    let mut leaves = vec![None; addresses.len()];
    let Some(offset) = table_of(unit)? else {
        return Ok((leaves, Files::new()));
    };
    let section = units.sections.bytes_of(".debug_line");
    let rest = section.get(offset.0..).ok_or(Failure::Damaged)?;
    let (table_bytes, header_bytes) = lengths(rest, units.sections.byte_order())?;
    if header_bytes > HEADER_MAX_BYTES {
        return Err(Failure::Spent);
    }
    budget.spend(table_bytes)?;
    let program = units.dwarf.debug_line.program(
        offset,
        unit.header.address_size(),
        unit.comp_dir,
        unit.name,
    )?;
    let mut rows = program.rows();
    let mut before: Option<(u64, Leaf)> = None;
    while let Some((_, row)) = rows.next_row()? {
        let leaf = Leaf {
            file: row.file_index(),
            line: row.line().and_then(|line| u32::try_from(line.get()).ok()),
        };
        if let Some((begin, former)) = before.filter(|(begin, _)| *begin < row.address()) {
            let first = addresses.partition_point(|&address| address < begin);
            let end = addresses.partition_point(|&address| address < row.address());
            if first < end {
                budget.spend((end - first) as u64)?;
            }
            for slot in leaves.get_mut(first..end).into_iter().flatten() {
                *slot = Some(former);
            }
        }
        before = (!row.end_sequence()).then_some((row.address(), leaf));
    }
    let calls = chains.iter().flatten().filter_map(|call| call.file);
    let wanted: BTreeSet<u64> = leaves
        .iter()
        .flatten()
        .map(|leaf| leaf.file)
        .chain(calls)
        .collect();
    let mut files = Files::new();
    for number in wanted {
        if let Some(path) = path_of(units, unit, rows.header(), number, budget)? {
            files.insert(number, path.into());
        }
    }
    Ok((leaves, files))
}

fn table_of(unit: &Unit<'_>) -> Result<Option<DebugLineOffset>, Failure> {
    let mut entries = unit.entries();
    let Some(root) = entries.next_dfs()? else {
        return Ok(None);
    };
    Ok(match root.attr_value(gimli::DW_AT_stmt_list) {
        Some(AttributeValue::DebugLineRef(offset)) => Some(offset),
        _ => None,
    })
}

/// Bytes of a table of lines, and of its header (DWARF 5, 6.2.4).
fn lengths(bytes: &[u8], endian: Endian) -> Result<(u64, u64), Failure> {
    let read = || -> Result<(u64, u64), Short> {
        let mut cursor = Cursor::new(bytes, 0, endian);
        let short = cursor.u32()?;
        let is_wide = short == u32::MAX;
        let length = match is_wide {
            true => cursor.u64()?,
            false => short.into(),
        };
        if cursor.u16()? >= 5 {
            cursor.u16()?; // sizes of addresses and of segments
        }
        let header = match is_wide {
            true => cursor.u64()?,
            false => cursor.u32()?.into(),
        };
        Ok((length, header))
    };
    read().map_err(|_| Failure::Damaged)
}

/// Folder of the compilation, folder of the file, and its name: each replaces what stands before it if it begins at
/// the root.
fn path_of<'s>(
    units: &Units<'_, 's>,
    unit: &Unit<'s>,
    header: &LineProgramHeader<Slice<'s>>,
    number: u64,
    budget: &mut Budget,
) -> Result<Option<String>, Failure> {
    let Some(entry) = header.file(number) else {
        return Ok(None);
    };
    let text = |value| units.dwarf.attr_string(unit, value).ok();
    let parts = [
        unit.comp_dir,
        entry.directory(header).and_then(text),
        text(entry.path_name()),
    ];
    let mut path = PathBuf::new();
    for part in parts.into_iter().flatten() {
        budget.spend(1 + part.len() as u64 / 16)?;
        let part = part.slice();
        let part = part.get(..TEXT_MAX).unwrap_or(part);
        path.push(String::from_utf8_lossy(part).as_ref());
    }
    Ok(Some(path.to_string_lossy().into_owned()))
}
