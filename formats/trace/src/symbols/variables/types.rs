//! Types of variables, to the extent needed for fetching a value.

use std::collections::BTreeMap;

use gimli::{AttributeValue, Encoding, Expression, Operation, UnitOffset};

use super::{Dwarf, Slice, Unit, text};

/// Maximum number of types visited by one lookup: enough for a whole kernel structure.
const TYPES: usize = 20_000;

/// The kind of a type, to the extent needed for fetching a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// A number of this many bytes.
    Integer {
        /// 1, 2, 4 or 8
        bytes: u8,
        /// Whether it may be negative.
        signed: bool,
    },
    /// An address, and the type of its target (0 if unknown).
    Pointer(u64),
    /// A structure or union of this many bytes.
    Structure(u64),
    /// This many elements of a type.
    Array(u64, u64),
    /// Floating point, void, functions.
    Other,
}

/// A member of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Empty if its own members count as those of the enclosing structure.
    pub name: String,
    /// Bytes from the start of the structure.
    pub offset: u64,
    /// Its type.
    pub kind: u64,
    /// Whether it shares its bytes with others.
    pub is_bit_field: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Type {
    pub(super) shape: Shape,
    pub(super) members: Vec<Member>,
}

/// Adds a type and all types reachable from it.
pub(super) fn add_type<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    first: UnitOffset,
    types: &mut BTreeMap<u64, Type>,
) -> Result<(), gimli::Error> {
    let mut waiting = vec![first];
    while let Some(offset) = waiting.pop() {
        let key = offset.0 as u64;
        if types.contains_key(&key) || types.len() >= TYPES {
            continue;
        }
        let entry = unit.entry(plain(unit, offset)?)?;
        let number = |name| {
            entry
                .attr_value(name)
                .and_then(|value: AttributeValue<_>| value.udata_value())
        };
        let inner = match entry.attr_value(gimli::DW_AT_type) {
            Some(AttributeValue::UnitRef(inner)) => Some(inner),
            _ => None,
        };
        let bytes = number(gimli::DW_AT_byte_size);
        let mut members = Vec::new();
        let shape = match entry.tag() {
            gimli::DW_TAG_base_type => {
                let encoding = entry.attr_value(gimli::DW_AT_encoding);
                integer(encoding, bytes)
            }
            gimli::DW_TAG_enumeration_type => match bytes {
                Some(bytes @ (1 | 2 | 4 | 8)) => Shape::Integer {
                    bytes: bytes as u8,
                    signed: true,
                },
                _ => Shape::Other,
            },
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                waiting.extend(inner);
                Shape::Pointer(inner.map_or(0, |inner| inner.0 as u64))
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type | gimli::DW_TAG_class_type => {
                members = members_of(dwarf, unit, entry.offset())?;
                waiting.extend(
                    members
                        .iter()
                        .map(|member| UnitOffset(member.kind as usize)),
                );
                Shape::Structure(bytes.unwrap_or(0))
            }
            gimli::DW_TAG_array_type => {
                waiting.extend(inner);
                let count = count_of(unit, entry.offset())?;
                Shape::Array(inner.map_or(0, |inner| inner.0 as u64), count)
            }
            _ => Shape::Other,
        };
        types.insert(key, Type { shape, members });
    }
    Ok(())
}

/// The size in bytes and the sign of a type that is an integer, through typedefs.
pub(super) fn integer_of(
    unit: &Unit<'_>,
    offset: UnitOffset,
) -> Result<Option<(u8, bool)>, gimli::Error> {
    let entry = unit.entry(plain(unit, offset)?)?;
    let bytes = entry
        .attr_value(gimli::DW_AT_byte_size)
        .and_then(|value: AttributeValue<_>| value.udata_value());
    let shape = match entry.tag() {
        gimli::DW_TAG_base_type => integer(entry.attr_value(gimli::DW_AT_encoding), bytes),
        _ => Shape::Other,
    };
    Ok(match shape {
        Shape::Integer { bytes, signed } => Some((bytes, signed)),
        Shape::Pointer(_) | Shape::Structure(_) | Shape::Array(..) | Shape::Other => None,
    })
}

/// Resolves typedefs and qualifiers.
fn plain(unit: &Unit<'_>, mut offset: UnitOffset) -> Result<UnitOffset, gimli::Error> {
    for _ in 0..32 {
        let entry = unit.entry(offset)?;
        let passes = matches!(
            entry.tag(),
            gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type
        );
        match (passes, entry.attr_value(gimli::DW_AT_type)) {
            (true, Some(AttributeValue::UnitRef(inner))) => offset = inner,
            _ => break,
        }
    }
    Ok(offset)
}

fn integer(encoding: Option<AttributeValue<Slice<'_>>>, bytes: Option<u64>) -> Shape {
    let Some(AttributeValue::Encoding(encoding)) = encoding else {
        return Shape::Other;
    };
    let signed = match encoding {
        gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => true,
        gimli::DW_ATE_unsigned
        | gimli::DW_ATE_unsigned_char
        | gimli::DW_ATE_boolean
        | gimli::DW_ATE_UTF => false,
        _ => return Shape::Other,
    };
    match bytes {
        Some(bytes @ (1 | 2 | 4 | 8)) => Shape::Integer {
            bytes: bytes as u8,
            signed,
        },
        _ => Shape::Other,
    }
}

fn members_of<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    structure: UnitOffset,
) -> Result<Vec<Member>, gimli::Error> {
    let mut tree = unit.entries_tree(Some(structure))?;
    let mut children = tree.root()?.children();
    let mut members = Vec::new();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        if entry.tag() != gimli::DW_TAG_member {
            continue;
        }
        let offset = match entry.attr_value(gimli::DW_AT_data_member_location) {
            None => Some(0),
            Some(AttributeValue::Exprloc(place)) => constant_offset(place, unit.encoding()),
            Some(place) => place.udata_value(),
        };
        // A virtual base has a computed offset; as a constant it would be wrong.
        let Some(offset) = offset else {
            continue;
        };
        let kind = match entry.attr_value(gimli::DW_AT_type) {
            Some(AttributeValue::UnitRef(kind)) => plain(unit, kind)?.0 as u64,
            _ => 0,
        };
        members.push(Member {
            name: text(dwarf, unit, entry.attr_value(gimli::DW_AT_name)).unwrap_or_default(),
            offset,
            kind,
            is_bit_field: entry.attr_value(gimli::DW_AT_bit_size).is_some(),
        });
    }
    Ok(members)
}

/// Up to DWARF 3, a member's offset is an expression that adds a number to the structure's address.
fn constant_offset(place: Expression<Slice<'_>>, encoding: Encoding) -> Option<u64> {
    let mut operations = place.operations(encoding);
    match (operations.next().ok()?, operations.next().ok()?) {
        (Some(Operation::PlusConstant { value }), None) => Some(value),
        _ => None,
    }
}

fn count_of(unit: &Unit<'_>, array: UnitOffset) -> Result<u64, gimli::Error> {
    let mut tree = unit.entries_tree(Some(array))?;
    let mut children = tree.root()?.children();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        let number = |name| {
            entry
                .attr_value(name)
                .and_then(|value: AttributeValue<_>| value.udata_value())
        };
        if let Some(count) = number(gimli::DW_AT_count) {
            return Ok(count);
        }
        if let Some(last) = number(gimli::DW_AT_upper_bound) {
            return Ok(last.saturating_add(1));
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use gimli::{EndianSlice, Format, RunTimeEndian};

    use super::*;

    #[test]
    fn offsets_that_are_programs() {
        let encoding = Encoding {
            address_size: 8,
            format: Format::Dwarf32,
            version: 2,
        };
        let check = |bytes: &[u8], expected| {
            let place = Expression(EndianSlice::new(bytes, RunTimeEndian::Little));
            assert_eq!(constant_offset(place, encoding), expected);
        };
        let (add, plus) = (gimli::DW_OP_plus_uconst.0, gimli::DW_OP_plus.0);
        check(&[add, 0x88, 0x01], Some(0x88));
        check(&[add, 8, plus], None);
        check(&[plus], None);
        check(&[], None);
    }
}
