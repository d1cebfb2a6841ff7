//! Locations of a function's variables at an address inside it.

use std::collections::BTreeMap;

use gimli::{
    AttributeValue, BaseAddresses, CfaRule, DwTag, EndianSlice, Operation, UnwindContext,
    UnwindSection,
};

use super::types::{Member, Shape, Type, add_type};
use super::{Dwarf, Sections, Slice, Unit, attribute, function_at, text};
use crate::symbols::elf::Part;

/// The location of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In a register, with the kernel's name ("di").
    Register(&'static str),
    /// Offset in bytes from a register's value.
    Memory {
        /// The kernel's name of the register.
        register: &'static str,
        /// Bytes.
        offset: i64,
    },
}

/// A variable at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its location, or the reason for having none.
    pub location: Result<Location, String>,
    /// Its type, for [`Scope::shape`].
    pub kind: u64,
}

/// The variables in scope at an address, and their types.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    found: bool,
    is_unoptimized: bool,
    variables: Vec<Variable>,
    types: BTreeMap<u64, Type>,
}

impl Scope {
    /// Whether the function has debug info.
    pub fn has_debugging_information(&self) -> bool {
        self.found
    }

    /// Whether variables have one location throughout the function: in its frame, once that is set up.
    pub fn is_unoptimized(&self) -> bool {
        self.is_unoptimized
    }

    /// A variable by its name; of several, the innermost.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables
            .iter()
            .rev()
            .find(|variable| variable.name == name)
    }

    /// All variables, outermost first.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// All names, outermost first.
    pub fn names(&self) -> Vec<String> {
        let names = self.variables.iter();
        names.map(|variable| variable.name.clone()).collect()
    }

    /// The shape of a type.
    pub fn shape(&self, kind: u64) -> Shape {
        let found = self.types.get(&kind);
        found.map_or(Shape::Other, |found| found.shape.clone())
    }

    /// The members of a structure.
    pub fn members(&self, kind: u64) -> &[Member] {
        self.types
            .get(&kind)
            .map_or(&[], |found| found.members.as_slice())
    }
}

/// DWARF's register numbers (System V ABI for x86-64, figure 3.36) → the kernel's names.
pub(super) const X86_64: [&str; 16] = [
    "ax", "dx", "cx", "bx", "si", "di", "bp", "sp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// The same for aarch64: DWARF's register numbers → the kernel's names.
pub(super) const AARCH64: [&str; 32] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "x30", "sp",
];

/// The base of a function's frame: a register, plus this many bytes.
pub(super) type Frame = Option<(u16, i64)>;

/// The base of the function's frame at an address, from the unwind table, which every program has.
pub(super) fn frame_at(sections: &Sections, unwind: Option<&(u64, Part)>, place: u64) -> Frame {
    let mut context = UnwindContext::new();
    if let Some((address, part)) = unwind {
        let bases = BaseAddresses::default().set_eh_frame(*address);
        let table = gimli::EhFrame::from(EndianSlice::new(part, sections.endian()));
        let row = table.unwind_info_for_address(
            &bases,
            &mut context,
            place,
            gimli::EhFrame::cie_from_offset,
        );
        if let Ok(row) = row {
            return frame_of(row.cfa());
        }
    }
    let table = gimli::DebugFrame::from(sections.slice(".debug_frame"));
    let row = table.unwind_info_for_address(
        &BaseAddresses::default(),
        &mut context,
        place,
        gimli::DebugFrame::cie_from_offset,
    );
    row.ok().and_then(|row| frame_of(row.cfa()))
}

fn frame_of(rule: &CfaRule<usize>) -> Frame {
    match rule {
        CfaRule::RegisterAndOffset { register, offset } => Some((register.0, *offset)),
        CfaRule::Expression(_) => None,
    }
}

pub(super) fn scope_at(
    dwarf: &Dwarf<'_>,
    function: u64,
    place: u64,
    frame: Frame,
    registers: &[&'static str],
) -> Result<Scope, gimli::Error> {
    let Some((unit, offset)) = function_at(dwarf, function)? else {
        return Ok(Scope::default());
    };
    let mut scope = Scope {
        found: true,
        ..Scope::default()
    };
    let own = unit.entry(offset)?;
    let base = match own.attr_value(gimli::DW_AT_frame_base) {
        Some(AttributeValue::Exprloc(expression)) => Some(expression),
        _ => None,
    };
    let mut tree = unit.entries_tree(Some(offset))?;
    let mut waiting = Vec::new();
    collect(dwarf, &unit, tree.root()?, place, 0, &mut waiting)?;
    let (mut in_frame, mut elsewhere) = (0, 0);
    for (name, location, kind) in waiting {
        match location {
            Some(AttributeValue::Exprloc(expression)) if is_in_frame(&unit, expression)? => {
                in_frame += 1;
            }
            _ => elsewhere += 1,
        }
        let location = match location {
            None => Err("it is optimized out".to_owned()),
            Some(value) => match dwarf.attr_locations(&unit, value)? {
                Some(mut list) => {
                    let mut found = None;
                    while let Some(entry) = list.next()? {
                        if (entry.range.begin..entry.range.end).contains(&place) {
                            found = Some(entry.data);
                        }
                    }
                    match found {
                        Some(expression) => location_of(&unit, expression, base, frame, registers)?,
                        None => Err("it is optimized out at that place".to_owned()),
                    }
                }
                None => match value {
                    AttributeValue::Exprloc(expression) => {
                        location_of(&unit, expression, base, frame, registers)?
                    }
                    _ => Err("its location is not described".to_owned()),
                },
            },
        };
        let kind = match kind {
            Some(AttributeValue::UnitRef(offset)) => {
                add_type(dwarf, &unit, offset, &mut scope.types)?;
                offset.0 as u64
            }
            _ => 0,
        };
        scope.variables.push(Variable {
            name,
            location,
            kind,
        });
    }
    // Optimized code has variables in the frame too, if their address is used.
    scope.is_unoptimized = in_frame > 0 && elsewhere == 0;
    Ok(scope)
}

/// Whether a variable is only in the frame, as shown by a lone DW_OP_fbreg.
fn is_in_frame<'a>(
    unit: &Unit<'a>,
    expression: gimli::Expression<Slice<'a>>,
) -> Result<bool, gimli::Error> {
    let operations = operations(unit, expression)?;
    Ok(matches!(operations[..], [Operation::FrameOffset { .. }]))
}

type Found<'a> = (
    String,
    Option<AttributeValue<Slice<'a>>>,
    Option<AttributeValue<Slice<'a>>>,
);

/// Parameters and variables of a function and of the blocks around an address.
fn collect<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    node: gimli::EntriesTreeNode<'_, '_, Slice<'a>>,
    place: u64,
    depth: usize,
    found: &mut Vec<Found<'a>>,
) -> Result<(), gimli::Error> {
    let mut children = node.children();
    while let Some(child) = children.next()? {
        let entry = child.entry().clone();
        let tag: DwTag = entry.tag();
        if tag == gimli::DW_TAG_formal_parameter || tag == gimli::DW_TAG_variable {
            let name = text(dwarf, unit, attribute(unit, &entry, gimli::DW_AT_name)?);
            let Some(name) = name else { continue };
            let kind = attribute(unit, &entry, gimli::DW_AT_type)?;
            found.push((name, entry.attr_value(gimli::DW_AT_location), kind));
        } else if tag == gimli::DW_TAG_lexical_block && depth < 64 {
            let mut ranges = dwarf.die_ranges(unit, &entry)?;
            let mut holds = false;
            while let Some(range) = ranges.next()? {
                holds |= (range.begin..range.end).contains(&place);
            }
            if holds {
                collect(dwarf, unit, child, place, depth + 1, found)?;
            }
        }
    }
    Ok(())
}

/// Returns the location of a variable. The outer error concerns the file, the inner one the variable.
fn location_of<'a>(
    unit: &Unit<'a>,
    expression: gimli::Expression<Slice<'a>>,
    base: Option<gimli::Expression<Slice<'a>>>,
    frame: Frame,
    registers: &[&'static str],
) -> Result<Result<Location, String>, gimli::Error> {
    let name = |register: u16| {
        registers
            .get(usize::from(register))
            .copied()
            .ok_or_else(|| "it is in a register that probes cannot read".to_owned())
    };
    let memory = |register: u16, offset: i64| {
        name(register).map(|register| Location::Memory { register, offset })
    };
    let operations = operations(unit, expression)?;
    Ok(match operations.as_slice() {
        [Operation::Register { register }] => name(register.0).map(Location::Register),
        [
            Operation::RegisterOffset {
                register, offset, ..
            },
        ] => memory(register.0, *offset),
        [Operation::FrameOffset { offset }] => {
            let base = match base {
                Some(base) => self::operations(unit, base)?,
                None => Vec::new(),
            };
            match (base.as_slice(), frame) {
                ([Operation::CallFrameCFA], Some((register, start))) => {
                    memory(register, start.saturating_add(*offset))
                }
                ([Operation::Register { register }], _) => memory(register.0, *offset),
                (
                    [
                        Operation::RegisterOffset {
                            register,
                            offset: start,
                            ..
                        },
                    ],
                    _,
                ) => memory(register.0, start.saturating_add(*offset)),
                _ => Err("its frame base is not described".to_owned()),
            }
        }
        [] => Err("it is optimized out".to_owned()),
        _ => Err("it is computed at that address, and a probe can only fetch".to_owned()),
    })
}

fn operations<'a>(
    unit: &Unit<'a>,
    expression: gimli::Expression<Slice<'a>>,
) -> Result<Vec<Operation<Slice<'a>>>, gimli::Error> {
    let mut iterator = expression.operations(unit.encoding());
    let mut operations = Vec::new();
    while let Some(operation) = iterator.next()? {
        operations.push(operation);
        if operations.len() > 8 {
            break;
        }
    }
    Ok(operations)
}
