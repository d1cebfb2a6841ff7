//! The units of a file: which addresses each covers, and the names of their entries.
//!
//! ```text
//! unit 0x0      0x1000…0x1200, 0x1400…0x1480
//! unit 0x2f31   0x1200…0x1400
//! ```
//! `.debug_aranges` would say so too, but only some compilers write it; what the units themselves say is always there.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugInfoOffset, DebugLocListsBase, DebugRngListsBase,
    DebugStrOffsetsBase, UnitOffset,
};

use super::budget::{Budget, Failure};
use super::{NoLines, TEXT_MAX};
use crate::bytes::{Cursor, Endian};
use crate::symbols::demangle::demangle;
use crate::symbols::variables::{Dwarf, Entry, Sections, Slice, Unit};

/// A table of abbreviations takes 25 times as much memory. Compilers write some KiB.
const ABBREVIATIONS_MAX_BYTES: usize = 4 << 20;
/// An entry without bytes may have any number of attributes. Compilers write up to twenty.
const ATTRIBUTES_MAX: u32 = 256;
/// Units and tables of abbreviations that are kept read.
const KEPT_MAX: usize = 64;
/// From an inlined function to where it is declared.
const ORIGINS_MAX: usize = 8;

/// Reads units.
pub(super) struct Units<'d, 's> {
    pub(super) dwarf: &'d Dwarf<'s>,
    pub(super) sections: &'s Sections,
    abbreviations: HashMap<usize, Arc<Abbreviations>>,
    units: HashMap<usize, Rc<Unit<'s>>>,
    names: HashMap<usize, Arc<str>>,
}

/// The addresses of all units.
pub(super) struct Ranges {
    /// Begin, the largest end of this and all before, end, offset of the unit; in the order of begins.
    ranges: Vec<(u64, u64, u64, usize)>,
    /// Units that do not say.
    unsaid: Vec<usize>,
}

impl Ranges {
    /// The units that may hold some of these addresses, with the indices of those.
    pub(super) fn units_of(&self, addresses: &[u64]) -> BTreeMap<usize, Vec<usize>> {
        let mut units: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, &address) in addresses.iter().enumerate() {
            let count = self.ranges.partition_point(|range| range.0 <= address);
            let before = self.ranges.get(..count).unwrap_or_default();
            // Several units may hold a place, if functions were folded; more than a few are none of a compiler's.
            let holding = before
                .iter()
                .rev()
                .take(ORIGINS_MAX * ORIGINS_MAX)
                .take_while(|range| range.1 > address)
                .filter(|range| range.2 > address);
            let mut any = false;
            for &(.., unit) in holding.take(ORIGINS_MAX) {
                any = true;
                units.entry(unit).or_default().push(index);
            }
            if !any {
                for &unit in &self.unsaid {
                    units.entry(unit).or_default().push(index);
                }
            }
        }
        units
    }
}

impl<'d, 's> Units<'d, 's> {
    pub(super) fn new(dwarf: &'d Dwarf<'s>, sections: &'s Sections) -> Units<'d, 's> {
        Units {
            dwarf,
            sections,
            abbreviations: HashMap::new(),
            units: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// The addresses of all units. What cannot be read ends the list.
    pub(super) fn ranges(&mut self, budget: &mut Budget) -> Result<Ranges, NoLines> {
        let mut ranges = Vec::new();
        let mut unsaid = Vec::new();
        let (mut count, mut split) = (0, 0);
        let mut headers = self.dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(DebugInfoOffset(offset)) = header.debug_info_offset() else {
                continue;
            };
            count += 1;
            split += u64::from(matches!(header.type_(), gimli::UnitType::Skeleton(_)));
            let found = self.ranges_of(offset, budget);
            match found {
                Ok(found) if found.is_empty() => unsaid.push(offset),
                Ok(found) => ranges.extend(found.into_iter().map(|(a, b)| (a, b, b, offset))),
                Err(Failure::Damaged) => {}
                Err(spent @ Failure::Spent) => return Err(spent.into()),
            }
        }
        if count == 0 {
            return Err(NoLines::Damaged);
        }
        if split == count {
            return Err(NoLines::Split);
        }
        ranges.sort_unstable();
        let mut largest = 0;
        for range in &mut ranges {
            largest = largest.max(range.1);
            range.1 = largest;
        }
        // A unit of types, or one that a linker emptied, has no addresses: it would be read for every missing one.
        unsaid.truncate(KEPT_MAX);
        Ok(Ranges { ranges, unsaid })
    }

    fn ranges_of(
        &mut self,
        offset: usize,
        budget: &mut Budget,
    ) -> Result<Vec<(u64, u64)>, Failure> {
        let unit = self.read(offset, budget)?;
        let mut found = Vec::new();
        let mut entries = unit.entries();
        let root = entries.next_dfs()?.ok_or(Failure::Damaged)?;
        self.each_range(&unit, root, budget, |begin, end, _| {
            found.push((begin, end));
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `each` with the ranges of addresses of an entry. (gimli's own adds without a look at what comes out.)
    pub(super) fn each_range(
        &self,
        unit: &Unit<'s>,
        entry: &Entry<'s>,
        budget: &mut Budget,
        mut each: impl FnMut(u64, u64, &mut Budget) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if let Some(value) = entry.attr_value(gimli::DW_AT_ranges) {
            let Some(mut ranges) = self.dwarf.attr_ranges(unit, value)? else {
                return Ok(());
            };
            while let Some(range) = ranges.next()? {
                budget.spend(1)?;
                if range.begin < range.end {
                    each(range.begin, range.end, budget)?;
                }
            }
            return Ok(());
        }
        let address = |name| match entry.attr_value(name) {
            Some(value) => self.dwarf.attr_address(unit, value),
            None => Ok(None),
        };
        let Some(begin) = address(gimli::DW_AT_low_pc)? else {
            return Ok(());
        };
        // An address, or since DWARF 4 mostly a length.
        let end = match entry.attr_value(gimli::DW_AT_high_pc) {
            None => None,
            Some(value) => match self.dwarf.attr_address(unit, value)? {
                Some(end) => Some(end),
                None => value
                    .udata_value()
                    .and_then(|bytes| begin.checked_add(bytes)),
            },
        };
        match end {
            Some(end) if begin < end => each(begin, end, budget),
            _ => Ok(()),
        }
    }

    /// The unit at an offset of `.debug_info`.
    pub(super) fn unit(
        &mut self,
        offset: usize,
        budget: &mut Budget,
    ) -> Result<Rc<Unit<'s>>, Failure> {
        if let Some(unit) = self.units.get(&offset) {
            return Ok(Rc::clone(unit));
        }
        let unit = Rc::new(self.read(offset, budget)?);
        if self.units.len() >= KEPT_MAX {
            self.units.clear();
        }
        self.units.insert(offset, Rc::clone(&unit));
        Ok(unit)
    }

    /// Reads a unit without its table of files, which many units may share.
    fn read(&mut self, offset: usize, budget: &mut Budget) -> Result<Unit<'s>, Failure> {
        budget.spend(1)?;
        let header = self.dwarf.unit_header(DebugInfoOffset(offset))?;
        let abbreviations = self.abbreviations(header.debug_abbrev_offset().0, budget)?;
        let (encoding, kind) = (header.encoding(), self.dwarf.file_type);
        let mut unit = Unit {
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, kind),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: DebugLocListsBase::default_for_encoding_and_file(encoding, kind),
            rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, kind),
            line_program: None,
            dwo_id: None,
            header,
        };
        let mut entries = unit.header.entries(&unit.abbreviations);
        let root = entries.next_dfs()?.ok_or(Failure::Damaged)?.clone();
        budget.spend(root.attrs.len() as u64)?;
        for attribute in &root.attrs {
            match (attribute.name(), attribute.value()) {
                (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
                (_, AttributeValue::DebugAddrBase(base)) => unit.addr_base = base,
                (_, AttributeValue::DebugLocListsBase(base)) => unit.loclists_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => unit.rnglists_base = base,
                _ => {}
            }
        }
        if let Some(low) = root.attr_value(gimli::DW_AT_low_pc) {
            unit.low_pc = self.dwarf.attr_address(&unit, low)?.unwrap_or(0);
        }
        let text = |name| {
            let value = root.attr_value(name)?;
            self.dwarf.attr_string(&unit, value).ok()
        };
        (unit.comp_dir, unit.name) = (text(gimli::DW_AT_comp_dir), text(gimli::DW_AT_name));
        Ok(unit)
    }

    fn abbreviations(
        &mut self,
        offset: usize,
        budget: &mut Budget,
    ) -> Result<Arc<Abbreviations>, Failure> {
        if let Some(known) = self.abbreviations.get(&offset) {
            return Ok(Arc::clone(known));
        }
        let section = self.sections.bytes_of(".debug_abbrev");
        let rest = section.get(offset..).ok_or(Failure::Damaged)?;
        let rest = rest.get(..ABBREVIATIONS_MAX_BYTES).unwrap_or(rest);
        let bytes = length_of_abbreviations(rest, budget)?;
        let table = gimli::DebugAbbrev::from(Slice::new(
            rest.get(..bytes).unwrap_or_default(),
            self.sections.endian(),
        ));
        let table = Arc::new(table.abbreviations(gimli::DebugAbbrevOffset(0))?);
        if self.abbreviations.len() >= KEPT_MAX {
            self.abbreviations.clear();
        }
        self.abbreviations.insert(offset, Arc::clone(&table));
        Ok(table)
    }

    /// The name of a function, as its symbol would be written.
    pub(super) fn name(
        &mut self,
        function: usize,
        unit: &Rc<Unit<'s>>,
        budget: &mut Budget,
    ) -> Result<Arc<str>, Failure> {
        if let Some(name) = self.names.get(&function) {
            return Ok(Arc::clone(name));
        }
        let name = self.read_name(function, unit, budget)?;
        let name: Arc<str> = name.unwrap_or_else(|| "[inlined]".into()).into();
        self.names.insert(function, Arc::clone(&name));
        Ok(name)
    }

    fn read_name(
        &mut self,
        function: usize,
        unit: &Rc<Unit<'s>>,
        budget: &mut Budget,
    ) -> Result<Option<String>, Failure> {
        let mut unit = Rc::clone(unit);
        let mut offset = DebugInfoOffset(function);
        let mut plain = None;
        for _ in 0..ORIGINS_MAX {
            let inside = match offset.to_unit_offset(&unit.header) {
                Some(inside) => inside,
                None => {
                    let holding = self.unit_that_holds(offset, budget)?;
                    unit = self.unit(holding, budget)?;
                    offset
                        .to_unit_offset(&unit.header)
                        .ok_or(Failure::Damaged)?
                }
            };
            let entry = unit.entry(inside)?;
            budget.spend(1 + entry.attrs.len() as u64)?;
            let linkage = [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name];
            for name in linkage {
                if let Some(name) = self.text(&unit, &entry, name, budget)? {
                    return Ok(Some(demangle(&name)));
                }
            }
            if plain.is_none() {
                plain = self.text(&unit, &entry, gimli::DW_AT_name, budget)?;
            }
            match origin(&unit, &entry) {
                Some(next) => offset = next,
                None => break,
            }
        }
        Ok(plain.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    fn text(
        &self,
        unit: &Unit<'s>,
        entry: &Entry<'s>,
        name: gimli::DwAt,
        budget: &mut Budget,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Some(value) = entry.attr_value(name) else {
            return Ok(None);
        };
        // A file that dwz made has it in another one.
        let Ok(text) = self.dwarf.attr_string(unit, value) else {
            return Ok(None);
        };
        budget.spend(text.len() as u64 / 16)?;
        let text = text.slice();
        Ok(Some(text.get(..TEXT_MAX).unwrap_or(text).to_vec()))
    }

    fn unit_that_holds(
        &self,
        offset: DebugInfoOffset,
        budget: &mut Budget,
    ) -> Result<usize, Failure> {
        let mut headers = self.dwarf.units();
        let mut holding = None;
        while let Some(header) = headers.next()? {
            budget.spend(1)?;
            match header.debug_info_offset() {
                Some(begin) if begin.0 <= offset.0 => holding = Some(begin.0),
                _ => break,
            }
        }
        holding.ok_or(Failure::Damaged)
    }
}

/// What an entry is an instance of.
pub(super) fn origin(unit: &Unit<'_>, entry: &Entry<'_>) -> Option<DebugInfoOffset> {
    let origin = entry
        .attr_value(gimli::DW_AT_abstract_origin)
        .or_else(|| entry.attr_value(gimli::DW_AT_specification));
    match origin? {
        AttributeValue::UnitRef(inside) => in_section(unit, inside),
        AttributeValue::DebugInfoRef(offset) => Some(offset),
        _ => None,
    }
}

/// Where an entry of a unit lies in `.debug_info`.
pub(super) fn in_section(unit: &Unit<'_>, inside: UnitOffset) -> Option<DebugInfoOffset> {
    inside.to_debug_info_offset(&unit.header)
}

/// The bytes of a table of abbreviations (DWARF 5, 7.5.3), which are counted before it is read.
fn length_of_abbreviations(bytes: &[u8], budget: &mut Budget) -> Result<usize, Failure> {
    const IMPLICIT_CONST: u64 = gimli::DW_FORM_implicit_const.0 as u64;
    let mut cursor = Cursor::new(bytes, 0, Endian::Little);
    let mut number = || -> Result<u64, Failure> {
        budget.spend(1)?;
        uleb128(&mut cursor)
    };
    loop {
        if number()? == 0 {
            break;
        }
        let _tag = number()?;
        let _has_children = number()?;
        let mut attributes = 0;
        loop {
            let (name, form) = (number()?, number()?);
            if form == IMPLICIT_CONST {
                number()?;
            }
            if name == 0 && form == 0 {
                break;
            }
            attributes += 1;
            if attributes > ATTRIBUTES_MAX {
                return Err(Failure::Spent);
            }
        }
    }
    Ok(bytes.len() - cursor.rest().len())
}

/// A number of 7 bits a byte; of a signed one only the length matters.
fn uleb128(cursor: &mut Cursor<'_>) -> Result<u64, Failure> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = cursor.u8().map_err(|_| Failure::Damaged)?;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Failure::Damaged)
}
