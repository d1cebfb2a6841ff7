//! Where the members of HotSpot's structs are: tables for debuggers in libjvm (JDK 17 to 25).
//!
//! ```text
//! gHotSpotVMStructs   { "CodeBlob", "_frame_size", "int", static no, offset 28 }, …, { NULL, … }
//! gHotSpotVMTypes     { "HeapBlock", …, size 16 }, …, { NULL, … }
//! ```
//! The members of these entries are at offsets that other variables have. (openjdk/jdk: `runtime/vmStructs.cpp`,
//! `code/codeBlob.hpp`, `memory/heap.hpp`)

use std::collections::HashMap;

use perfquet_events::bytes::{Endian, before_nul};

use super::super::interpreters::{Mapped, Memory};

const PREFIX: &str = "gHotSpotVM";
/// Entries of a table: 788 and 768 in JDK 17.
const ENTRIES_MAX: u64 = 1 << 14;
/// Bytes of a table.
const TABLE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a name.
const NAME_MAX: u64 = 64;
/// Types whose members or size are wanted.
const TYPES: [&str; 9] = [
    "CodeBlob",
    "CodeCache",
    "CodeHeap",
    "GrowableArray<int>",
    "GrowableArrayBase",
    "HeapBlock",
    "HeapBlock::Header",
    "JVMFlag",
    "VirtualSpace",
];

/// The addresses of libjvm's variables for debuggers in a process.
pub(super) struct Variables(HashMap<String, u64>);

impl Variables {
    /// Those of a libjvm that a process has mapped.
    pub(super) fn of(file: &Mapped<'_>) -> Variables {
        let symbols = file.object.symbols_with_prefix(PREFIX).into_iter();
        let relocated = symbols.filter_map(|(name, address)| {
            let name = name.strip_prefix(PREFIX)?.to_owned();
            Some((name, file.relocated(address)?))
        });
        Variables(relocated.collect())
    }
}

/// A number in a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// Where the code of a blob begins and ends: pointers (JDK 17 to 22), or offsets in the blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Pointers(Field, Field),
    Offsets(Field, Field),
}

/// Offsets in structs; `heaps` is the address of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) heaps: u64,
    pub(super) array_length: u64,
    pub(super) array_data: u64,
    /// In a heap: its memory, and the size of a segment as a power of two.
    pub(super) memory: u64,
    pub(super) segment: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) low_boundary: u64,
    pub(super) high_boundary: u64,
    pub(super) block: Block,
    pub(super) blob: Blob,
    /// The options of the JVM.
    pub(super) flags: Option<Flags>,
}

/// Head of a block: number of segments, whether it is used, and the size of this head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) length: Field,
    pub(super) used: u64,
    pub(super) bytes: u64,
}

/// A blob, behind the head of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) name: Field,
    pub(super) frame_complete: Field,
    pub(super) frame_words: Field,
    pub(super) code: Code,
}

/// Where the options of the JVM are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags {
    /// Address of the pointer to the first one, and of their number.
    first: u64,
    count: u64,
    /// Of an option: its size, its name, and where its value is.
    bytes: u64,
    name: u64,
    value: u64,
}

/// What the tables say of the types above.
struct Known {
    /// Offset, type and address by type and member.
    members: HashMap<(String, String), (u64, String, u64)>,
    sizes: HashMap<String, u64>,
}

impl Layout {
    /// Reads the tables that variables of a process lead to. Otherwise returns the reason.
    pub(super) fn of(variables: &Variables, memory: &Memory) -> Result<Layout, String> {
        let variable = |name: &str| {
            let address = variables.0.get(name);
            let value = address.and_then(|&address| memory.u64_at(address));
            value.ok_or_else(|| format!("no variable {PREFIX}{name}"))
        };
        // A name is the same text wherever it occurs.
        let mut texts: HashMap<u64, Option<String>> = HashMap::new();
        let mut text = |at: u64| {
            let read = || {
                let bytes = memory.read_up_to(at, NAME_MAX)?;
                Some(String::from_utf8_lossy(before_nul(&bytes)).into_owned())
            };
            texts.entry(at).or_insert_with(read).clone()
        };
        let mut known = Known {
            members: HashMap::new(),
            sizes: HashMap::new(),
        };
        let in_entry = |name: &str| variable(&format!("StructEntry{name}Offset"));
        let (of_type, of_field) = (in_entry("TypeName")?, in_entry("FieldName")?);
        let (of_kind, of_offset) = (in_entry("TypeString")?, in_entry("Offset")?);
        let of_address = in_entry("Address")?;
        let table = (variable("Structs")?, variable("StructEntryArrayStride")?);
        each(memory, table, of_type, |word| {
            let name = text(word(of_type)?)?;
            if TYPES.contains(&name.as_str()) {
                let kind = match word(of_kind)? {
                    0 => String::new(),
                    kind => text(kind)?,
                };
                let member = (word(of_offset)?, kind, word(of_address)?);
                known.members.insert((name, text(word(of_field)?)?), member);
            }
            Some(())
        });
        let of_size = variable("TypeEntrySizeOffset")?;
        let of_type = variable("TypeEntryTypeNameOffset")?;
        let table = (variable("Types")?, variable("TypeEntryArrayStride")?);
        each(memory, table, of_type, |word| {
            let name = text(word(of_type)?)?;
            if TYPES.contains(&name.as_str()) {
                known.sizes.insert(name, word(of_size)?);
            }
            Some(())
        });
        known.layout()
    }
}

/// Calls a function with each entry of a table, which ends at one without a name.
fn each(
    memory: &Memory,
    (table, stride): (u64, u64),
    of_name: u64,
    mut see: impl FnMut(&dyn Fn(u64) -> Option<u64>) -> Option<()>,
) {
    let bytes = stride.saturating_mul(ENTRIES_MAX).min(TABLE_BYTES_MAX);
    let entries = memory.read_up_to(table, bytes).unwrap_or_default();
    let stride = usize::try_from(stride).unwrap_or(usize::MAX).max(1);
    for entry in entries.chunks_exact(stride) {
        let word = |offset: u64| Endian::Little.u64_at(entry, usize::try_from(offset).ok()?);
        if matches!(word(of_name), None | Some(0)) || see(&word).is_none() {
            return;
        }
    }
}

impl Known {
    fn member(&self, kind: &str, name: &str) -> Result<&(u64, String, u64), String> {
        let key = (kind.to_owned(), name.to_owned());
        let found = self.members.get(&key);
        found.ok_or_else(|| format!("its tables have no {kind}.{name}"))
    }

    fn offset(&self, kind: &str, name: &str) -> Result<u64, String> {
        let (offset, ..) = self.member(kind, name)?;
        match offset {
            0..4096 => Ok(*offset),
            _ => Err(format!("{kind}.{name} is at {offset}")),
        }
    }

    fn field(&self, kind: &str, name: &str) -> Result<Field, String> {
        let offset = self.offset(kind, name)?;
        let (_, number, _) = self.member(kind, name)?;
        let bytes = match number.as_str() {
            "int" | "uint32_t" | "int32_t" => 4,
            "int16_t" | "uint16_t" | "u2" | "short" => 2,
            _ => 8,
        };
        Ok(Field { offset, bytes })
    }

    fn flags(&self) -> Option<Flags> {
        let (_, _, first) = self.member("JVMFlag", "flags").ok()?;
        let (_, _, count) = self.member("JVMFlag", "numFlags").ok()?;
        Some(Flags {
            first: *first,
            count: *count,
            bytes: *self.sizes.get("JVMFlag")?,
            name: self.offset("JVMFlag", "_name").ok()?,
            value: self.offset("JVMFlag", "_addr").ok()?,
        })
    }

    fn layout(&self) -> Result<Layout, String> {
        let (_, _, heaps) = self.member("CodeCache", "_heaps")?;
        let blob = |name: &str| self.field("CodeBlob", name);
        let code = match (blob("_code_begin"), blob("_code_end")) {
            (Ok(begin), Ok(end)) => Code::Pointers(begin, end),
            _ => Code::Offsets(blob("_code_offset")?, blob("_data_offset")?),
        };
        let header = self.offset("HeapBlock", "_header")?;
        let block_bytes = self.sizes.get("HeapBlock").copied();
        let block_bytes = block_bytes.ok_or("its tables have no size of HeapBlock")?;
        let mut length = self.field("HeapBlock::Header", "_length")?;
        length.offset += header;
        Ok(Layout {
            heaps: *heaps,
            array_length: self.offset("GrowableArrayBase", "_len")?,
            array_data: self.offset("GrowableArray<int>", "_data")?,
            memory: self.offset("CodeHeap", "_memory")?,
            segment: self.offset("CodeHeap", "_log2_segment_size")?,
            low: self.offset("VirtualSpace", "_low")?,
            high: self.offset("VirtualSpace", "_high")?,
            low_boundary: self.offset("VirtualSpace", "_low_boundary")?,
            high_boundary: self.offset("VirtualSpace", "_high_boundary")?,
            block: Block {
                length,
                used: header + self.offset("HeapBlock::Header", "_used")?,
                bytes: block_bytes,
            },
            blob: Blob {
                name: blob("_name")?,
                frame_complete: blob("_frame_complete_offset")?,
                frame_words: blob("_frame_size")?,
                code,
            },
            flags: self.flags(),
        })
    }
}

impl Flags {
    /// Whether an option is set.
    pub(super) fn is_set(&self, wanted: &str, memory: &Memory) -> Option<bool> {
        let first = memory.u64_at(self.first)?;
        let count = memory.u64_at(self.count)?.min(ENTRIES_MAX);
        for number in 0..count {
            let flag = first.checked_add(self.bytes.checked_mul(number)?)?;
            let word = |offset: u64| memory.u64_at(flag.checked_add(offset)?);
            let name = memory.read_up_to(word(self.name)?, NAME_MAX)?;
            if before_nul(&name) == wanted.as_bytes() {
                return Some(memory.read(word(self.value)?, 1)? != [0]);
            }
        }
        None
    }
}

impl Field {
    /// The number, sign-extended.
    pub(super) fn of(self, bytes: &[u8]) -> Option<i64> {
        let at = usize::try_from(self.offset).ok()?;
        match self.bytes {
            2 => Endian::Little
                .u16_at(bytes, at)
                .map(|number| i64::from(number as i16)),
            4 => Endian::Little
                .u32_at(bytes, at)
                .map(|number| i64::from(number as i32)),
            _ => Endian::Little.u64_at(bytes, at).map(|number| number as i64),
        }
    }
}
