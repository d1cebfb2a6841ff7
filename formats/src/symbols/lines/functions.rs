//! Which functions are inlined at an address, from the entries of a unit.
//!
//! ```text
//! DW_TAG_subprogram main                0x1000…0x1200
//!   DW_TAG_inlined_subroutine push      0x1040…0x1080, called in line 9
//!     DW_TAG_inlined_subroutine write   0x1050…0x1060, called in line 2442
//! ```

use std::rc::Rc;

use gimli::AttributeValue;

use super::budget::{Budget, Failure};
use super::units::{Units, in_section, origin};
use crate::symbols::variables::{Entry, Unit};

/// Deeper nesting is none of a compiler's.
const DEPTH_MAX: usize = 64;

/// A function that is inlined somewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// Its entry in `.debug_info`.
    pub(super) function: usize,
    /// Number of the file with its call.
    pub(super) file: Option<u64>,
    /// Line of its call.
    pub(super) line: Option<u32>,
}

/// For each address what is inlined there, the outermost first. `addresses` are in order.
pub(super) fn inlined_at<'s>(
    units: &Units<'_, 's>,
    unit: &Rc<Unit<'s>>,
    addresses: &[u64],
    budget: &mut Budget,
) -> Result<Vec<Vec<Call>>, Failure> {
    let mut chains = vec![Vec::new(); addresses.len()];
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        budget.spend(1 + entry.attrs.len() as u64)?;
        let is_inlined = entry.tag == gimli::DW_TAG_inlined_subroutine;
        if !is_inlined && entry.tag != gimli::DW_TAG_subprogram {
            continue;
        }
        let mut call = None;
        units.each_range(unit, entry, budget, |begin, end, budget| {
            let first = addresses.partition_point(|&address| address < begin);
            let end = addresses.partition_point(|&address| address < end);
            if first >= end {
                return Ok(());
            }
            budget.spend((end - first) as u64)?;
            if is_inlined && call.is_none() {
                call = Some(call_of(unit, entry));
            }
            for chain in chains.get_mut(first..end).into_iter().flatten() {
                match call {
                    // A function within another, as lambdas are, has a place of its own.
                    None => chain.clear(),
                    Some(call) if chain.len() < DEPTH_MAX => chain.push(call),
                    Some(_) => {}
                }
            }
            Ok(())
        })?;
    }
    Ok(chains)
}

fn call_of(unit: &Unit<'_>, entry: &Entry<'_>) -> Call {
    let number = |name| match entry.attr_value(name)? {
        AttributeValue::FileIndex(index) => Some(index),
        other => other.udata_value(),
    };
    let own = in_section(unit, entry.offset);
    let function = origin(unit, entry).or(own);
    Call {
        function: function.map_or(0, |offset| offset.0),
        file: number(gimli::DW_AT_call_file),
        line: number(gimli::DW_AT_call_line).and_then(|line| u32::try_from(line).ok()),
    }
}
