//! Lines and variables of a function, from DWARF: where they are while it runs, and what types they have.
//!
//! ```text
//! work (prog.c:10)   line 12 at 0x11a3   total: -20 from the frame → 12 bytes behind the stack pointer, int
//! ```
//! DWARF 2 to 5 (<https://dwarfstd.org>), read by gimli. Only places that a probe can follow are told: a register, or
//! memory at a fixed distance from one. A variable that is computed, split or optimized out there says so.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gimli::{
    AttributeValue, BaseAddresses, CfaRule, DwAt, DwTag, EndianSlice, Operation, RunTimeEndian,
    UnitOffset, UnwindContext, UnwindSection,
};

use super::elf::{EM_AARCH64, EM_X86_64, Elf, Part};
use super::object::{CodeSymbol, Object};
use crate::Error;
use crate::bytes::Endian;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// Types that one lookup follows: those of a whole kernel structure, and something more.
const TYPES: usize = 20_000;

/// The lines of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceLines {
    /// Its source file.
    pub file: String,
    /// The line that declares it; `None`: no debugging information.
    pub first_line: Option<u32>,
    /// Where the code of each line begins, in the order of lines.
    pub places: Vec<LinePlace>,
    /// Where the frame is set up, in the file: from there on parameters are in memory, if the code is not optimized.
    pub after_prologue: Option<u64>,
}

/// Where the code of a line begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinePlace {
    /// Line of the source file.
    pub line: u32,
    /// Offset in the object's file.
    pub offset: u64,
}

/// Where a variable is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In a register, by the kernel's name of it ("di").
    Register(&'static str),
    /// So many bytes behind what a register holds.
    Memory {
        /// The kernel's name of the register.
        register: &'static str,
        /// Bytes.
        offset: i64,
    },
}

/// A variable at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where it is, or why that cannot be told.
    pub location: Result<Location, String>,
    /// Its type, to be asked with [`Scope::shape`].
    pub kind: u64,
}

/// What a type is, as far as fetching a value needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// A number of so many bytes.
    Integer {
        /// 1, 2, 4 or 8
        bytes: u8,
        /// Below zero, too.
        signed: bool,
    },
    /// An address, and what is there (0: nothing known).
    Pointer(u64),
    /// A structure or union of so many bytes.
    Structure(u64),
    /// Elements of a type, so many.
    Array(u64, u64),
    /// Floating point, void, functions.
    Other,
}

/// A member of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Empty: its own members count as those of the structure around it.
    pub name: String,
    /// Bytes from the start of the structure.
    pub offset: u64,
    /// Its type.
    pub kind: u64,
    /// It shares its bytes with others.
    pub is_bit_field: bool,
}

/// The variables that are in scope at a place, and their types.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    found: bool,
    is_unoptimized: bool,
    variables: Vec<Variable>,
    types: BTreeMap<u64, Type>,
}

#[derive(Debug, Clone)]
struct Type {
    shape: Shape,
    members: Vec<Member>,
}

impl Scope {
    /// Whether the function is described at all.
    pub fn has_debugging_information(&self) -> bool {
        self.found
    }

    /// Whether variables have one place throughout the function: in its frame, once that is set up.
    pub fn is_unoptimized(&self) -> bool {
        self.is_unoptimized
    }

    /// A variable by its name; of several the innermost.
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

    /// What a type is.
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

/// The sections that DWARF is read from; they outlive what borrows from them.
struct Sections {
    parts: BTreeMap<&'static str, Part>,
    endian: RunTimeEndian,
}

impl Sections {
    fn of(elf: &Elf) -> Sections {
        const NAMES: [&str; 13] = [
            ".debug_abbrev",
            ".debug_addr",
            ".debug_aranges",
            ".debug_frame",
            ".debug_info",
            ".debug_line",
            ".debug_line_str",
            ".debug_loc",
            ".debug_loclists",
            ".debug_ranges",
            ".debug_rnglists",
            ".debug_str",
            ".debug_str_offsets",
        ];
        let parts = NAMES
            .iter()
            .filter_map(|name| Some((*name, elf.contents(name.as_bytes())?)))
            .collect();
        Sections {
            parts,
            endian: match elf.endian() {
                Endian::Little => RunTimeEndian::Little,
                Endian::Big => RunTimeEndian::Big,
            },
        }
    }

    fn slice(&self, name: &str) -> Slice<'_> {
        let part = self.parts.get(name).map_or(&[][..], |part| part);
        EndianSlice::new(part, self.endian)
    }

    fn dwarf(&self) -> Dwarf<'_> {
        let load = |id: gimli::SectionId| Ok::<_, gimli::Error>(self.slice(id.name()));
        gimli::Dwarf::load(load).unwrap_or_default()
    }
}

impl Object {
    /// The lines of a function.
    pub fn lines_of(&self, symbol: &CodeSymbol) -> Result<SourceLines, Error> {
        let sections = Sections::of(self.with_debugging_information());
        let found = self.address_of(symbol.offset).map(|address| {
            let dwarf = sections.dwarf();
            lines_of(&dwarf, address, symbol.bytes, |address| {
                self.offset_of(address)
            })
        });
        match found {
            Some(Ok(lines)) => Ok(lines),
            Some(Err(error)) => Err(self.damaged(&error)),
            None => Ok(SourceLines::default()),
        }
    }

    /// The variables in scope at an offset in the file, inside of a function.
    pub fn variables_at(&self, symbol: &CodeSymbol, offset: u64) -> Result<Scope, Error> {
        let elf = self.with_debugging_information();
        let sections = Sections::of(elf);
        let (Some(function), Some(place)) =
            (self.address_of(symbol.offset), self.address_of(offset))
        else {
            return Ok(Scope::default());
        };
        let registers = match elf.machine {
            EM_X86_64 => &X86_64[..],
            EM_AARCH64 => &AARCH64[..],
            _ => &[][..],
        };
        let unwind = self.unwind_section();
        let frame = frame_at(&sections, unwind.as_ref(), place);
        let dwarf = sections.dwarf();
        scope_at(&dwarf, function, place, frame, registers).map_err(|error| self.damaged(&error))
    }

    fn damaged(&self, error: &gimli::Error) -> Error {
        Error::Symbols {
            path: self.path().to_owned(),
            message: format!("its debugging information is damaged: {error}"),
        }
    }
}

/// DWARF's numbers of registers (System V ABI for x86-64, figure 3.36) → the kernel's names.
const X86_64: [&str; 16] = [
    "ax", "dx", "cx", "bx", "si", "di", "bp", "sp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];
/// The same for aarch64.
const AARCH64: [&str; 32] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "x30", "sp",
];

/// What the frame of a function begins at: a register, and so many bytes behind it.
type Frame = Option<(u16, i64)>;

/// The unit and the entry of the function that begins at an address.
fn function_at<'a>(
    dwarf: &Dwarf<'a>,
    address: u64,
) -> Result<Option<(Unit<'a>, UnitOffset)>, gimli::Error> {
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let mut ranges = dwarf.unit_ranges(&unit)?;
        let (mut holds, mut any) = (false, false);
        while let Some(range) = ranges.next()? {
            any = true;
            holds |= (range.begin..range.end).contains(&address);
        }
        if any && !holds {
            continue;
        }
        let mut entries = unit.entries();
        let mut found = None;
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() == gimli::DW_TAG_subprogram
                && low_address(dwarf, &unit, entry)? == Some(address)
            {
                found = Some(entry.offset());
                break;
            }
        }
        if let Some(offset) = found {
            return Ok(Some((unit, offset)));
        }
    }
    Ok(None)
}

fn low_address<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    entry: &Entry<'a>,
) -> Result<Option<u64>, gimli::Error> {
    match entry.attr_value(gimli::DW_AT_low_pc) {
        Some(value) => dwarf.attr_address(unit, value),
        None => Ok(None),
    }
}

/// An attribute of an entry, or of what it is an instance of.
fn attribute<'a>(
    unit: &Unit<'a>,
    entry: &Entry<'a>,
    name: DwAt,
) -> Result<Option<AttributeValue<Slice<'a>>>, gimli::Error> {
    let mut entry = entry.clone();
    for _ in 0..4 {
        if let Some(value) = entry.attr_value(name) {
            return Ok(Some(value));
        }
        let origin = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification));
        match origin {
            Some(AttributeValue::UnitRef(offset)) => entry = unit.entry(offset)?,
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn text<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    value: Option<AttributeValue<Slice<'a>>>,
) -> Option<String> {
    let text = dwarf.attr_string(unit, value?).ok()?;
    Some(text.to_string_lossy().into_owned())
}

fn lines_of(
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
            // Each replaces what is before it if it begins at the root.
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
        // The second row begins behind the prologue, as gdb and perf have it; some compilers say so.
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

/// Where the frame of the function begins at a place: the unwind table knows, in every program.
fn frame_at(sections: &Sections, unwind: Option<&(u64, Part)>, place: u64) -> Frame {
    let mut context = UnwindContext::new();
    if let Some((address, part)) = unwind {
        let bases = BaseAddresses::default().set_eh_frame(*address);
        let table = gimli::EhFrame::from(EndianSlice::new(part, sections.endian));
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

fn scope_at(
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
    for (name, location, kind) in waiting {
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
                        scope.is_unoptimized = true;
                        location_of(&unit, expression, base, frame, registers)?
                    }
                    _ => Err("its place is not told".to_owned()),
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
    Ok(scope)
}

type Found<'a> = (
    String,
    Option<AttributeValue<Slice<'a>>>,
    Option<AttributeValue<Slice<'a>>>,
);

/// Parameters and variables of a function and of the blocks around a place.
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

/// The outer error is the file's, the inner one the variable's.
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
                _ => Err("where its frame begins is not told".to_owned()),
            }
        }
        [] => Err("it is optimized out".to_owned()),
        _ => Err("it is computed at that place, and a probe can only fetch".to_owned()),
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

/// Adds a type and all that it leads to.
fn add_type<'a>(
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

/// Through typedefs and qualifiers.
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
        let offset = entry
            .attr_value(gimli::DW_AT_data_member_location)
            .and_then(|value| value.udata_value());
        let kind = match entry.attr_value(gimli::DW_AT_type) {
            Some(AttributeValue::UnitRef(kind)) => plain(unit, kind)?.0 as u64,
            _ => 0,
        };
        members.push(Member {
            name: text(dwarf, unit, entry.attr_value(gimli::DW_AT_name)).unwrap_or_default(),
            offset: offset.unwrap_or(0),
            kind,
            is_bit_field: entry.attr_value(gimli::DW_AT_bit_size).is_some(),
        });
    }
    Ok(members)
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
