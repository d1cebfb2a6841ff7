//! BTF: the kernel's own description of its functions and types (Documentation/bpf/btf.rst).
//!
//! ```text
//! header   9f eb 01 00, length of the header, where types and names are
//! FUNC     name "tcp_sendmsg", type → FUNC_PROTO: sk → PTR → STRUCT sock, msg → …, size → INT 8 bytes
//! ```

use std::collections::HashMap;
use std::fs;

use perfquet_events::bytes::{Cursor, Endian, Short, before_nul};
use perfquet_trace::symbols::{Member, Shape};

use super::fetch::Types;

const FOLDER: &str = "/sys/kernel/btf";
const MAGIC: u16 = 0xeb9f;

/// Kinds of types (include/uapi/linux/btf.h).
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// All types of a kernel, optionally with those of a module, whose type IDs and names continue after the kernel's.
pub(crate) struct Btf {
    endian: Endian,
    files: Vec<Described>,
    /// File index and offset of each type; type 0 is void.
    types: Vec<(usize, usize)>,
    /// Functions by name.
    functions: HashMap<Vec<u8>, u32>,
}

/// The contents of one file.
struct Described {
    bytes: Vec<u8>,
    /// Offset and size of the string section.
    names: usize,
    names_bytes: usize,
}

/// The common header of all types.
#[derive(Debug, Clone, Copy)]
struct Head {
    name: u32,
    kind: u32,
    count: u32,
    /// Member offsets are in bits, with the size of bit fields in the upper byte.
    has_bit_fields: bool,
    /// Size in bytes, or the ID of another type.
    size_or_type: u32,
}

impl Btf {
    #[cfg(test)]
    fn of_the_kernel() -> Option<Btf> {
        Btf::of(None)
    }

    /// Reads the BTF of the running kernel, and that of a module if given; `None` if there is none.
    pub(crate) fn of(module: Option<&str>) -> Option<Btf> {
        let mut btf = Btf {
            endian: Endian::Little,
            files: Vec::new(),
            types: vec![(0, 0)],
            functions: HashMap::new(),
        };
        let module = module.map(|name| name.replace('-', "_"));
        for name in ["vmlinux"].into_iter().chain(module.as_deref()) {
            let path = format!("{FOLDER}/{name}");
            let bytes = fs::read(&path).ok()?;
            if let Err(short) = btf.add(bytes) {
                log::warn!("{path}: offset {:#x}: {short}", short.offset);
                return None;
            }
        }
        Some(btf)
    }

    #[cfg(test)]
    fn parse(bytes: Vec<u8>) -> Result<Btf, Short> {
        let mut btf = Btf {
            endian: Endian::Little,
            files: Vec::new(),
            types: vec![(0, 0)],
            functions: HashMap::new(),
        };
        btf.add(bytes).map(|()| btf)
    }

    fn add(&mut self, bytes: Vec<u8>) -> Result<(), Short> {
        self.endian = match bytes.first_chunk() {
            Some(magic) if u16::from_be_bytes(*magic) == MAGIC => Endian::Big,
            _ => Endian::Little,
        };
        let mut header = Cursor::new(&bytes, 0, self.endian);
        header.bytes(4)?;
        let header_bytes = header.u32()? as usize;
        let (types_at, types_bytes) = (header.u32()? as usize, header.u32()? as usize);
        let names = header_bytes.saturating_add(header.u32()? as usize);
        let names_bytes = header.u32()? as usize;
        let start = header_bytes.saturating_add(types_at);
        let end = start.saturating_add(types_bytes).min(bytes.len());
        let types = bytes.get(start..end).unwrap_or_default();
        let mut cursor = Cursor::new(types, start as u64, self.endian);
        let mut functions = Vec::new();
        let file = self.files.len();
        while !cursor.is_empty() {
            let number = self.types.len() as u32;
            self.types.push((file, cursor.offset() as usize));
            let head = head(&mut cursor)?;
            let count = u64::from(head.count);
            cursor.bytes(match head.kind {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * count,
                kind::ENUM | kind::FUNC_PROTO => 8 * count,
                _ => 0,
            })?;
            if head.kind == kind::FUNC {
                functions.push((head.name, number));
            }
        }
        self.files.push(Described {
            bytes,
            names,
            names_bytes,
        });
        for (name, number) in functions {
            let name = self.name(name).to_vec();
            self.functions.insert(name, number);
        }
        Ok(())
    }

    /// Returns names and types of a function's parameters.
    pub(crate) fn parameters(&self, function: &str) -> Option<Vec<(String, u64)>> {
        let (head, mut cursor) = self.prototype(function)?;
        let mut parameters = Vec::new();
        for _ in 0..head.count {
            let (name, kind) = (cursor.u32().ok()?, cursor.u32().ok()?);
            let name = String::from_utf8_lossy(self.name(name)).into_owned();
            parameters.push((name, u64::from(kind)));
        }
        Some(parameters)
    }

    /// Returns the return type of a function; `None` if it is unknown or void.
    pub(crate) fn return_type(&self, function: &str) -> Option<(&Btf, u64)> {
        let (head, _) = self.prototype(function)?;
        (head.size_or_type != 0).then_some((self, u64::from(head.size_or_type)))
    }

    /// Returns the number of arguments of a kernel tracepoint, without the pointer that comes first.
    pub(crate) fn tracepoint_arguments(&self, name: &str) -> Option<u32> {
        let name = format!("btf_trace_{name}");
        let is_it =
            |head: &Head| head.kind == kind::TYPEDEF && self.name(head.name) == name.as_bytes();
        let mut heads = (1..self.types.len() as u64).filter_map(|number| Some(self.at(number)?.0));
        let (pointer, _) = self.at(heads.find(is_it)?.size_or_type.into())?;
        let (function, _) = self.at(pointer.size_or_type.into())?;
        let is_function = pointer.kind == kind::PTR && function.kind == kind::FUNC_PROTO;
        is_function.then(|| function.count.saturating_sub(1))
    }

    fn prototype(&self, function: &str) -> Option<(Head, Cursor<'_>)> {
        let number = *self.functions.get(function.as_bytes())?;
        let (function, _) = self.at(number.into())?;
        let found = self.at(function.size_or_type.into())?;
        (found.0.kind == kind::FUNC_PROTO).then_some(found)
    }

    /// Returns a type's header and the data after it.
    fn at(&self, number: u64) -> Option<(Head, Cursor<'_>)> {
        let (file, place) = *self.types.get(usize::try_from(number).ok()?)?;
        let bytes = &self.files.get(file)?.bytes;
        let bytes = bytes.get(place..).filter(|_| number != 0)?;
        let mut cursor = Cursor::new(bytes, place as u64, self.endian);
        let head = head(&mut cursor).ok()?;
        Some((head, cursor))
    }

    /// Resolves typedefs and qualifiers.
    fn plain(&self, mut number: u64) -> u64 {
        for _ in 0..32 {
            match self.at(number) {
                Some((head, _))
                    if matches!(
                        head.kind,
                        kind::TYPEDEF
                            | kind::VOLATILE
                            | kind::CONST
                            | kind::RESTRICT
                            | kind::TYPE_TAG
                    ) =>
                {
                    number = head.size_or_type.into();
                }
                _ => break,
            }
        }
        number
    }

    fn name(&self, offset: u32) -> &[u8] {
        let mut offset = offset as usize;
        for file in &self.files {
            if offset < file.names_bytes {
                let place = file.names.saturating_add(offset);
                return before_nul(file.bytes.get(place..).unwrap_or_default());
            }
            offset -= file.names_bytes;
        }
        &[]
    }
}

impl Types for Btf {
    fn shape(&self, number: u64) -> Shape {
        let Some((head, mut cursor)) = self.at(self.plain(number)) else {
            return Shape::Other;
        };
        match head.kind {
            kind::INT => {
                let encoding = cursor.u32().unwrap_or(0);
                Shape::Integer {
                    bytes: head.size_or_type as u8,
                    signed: encoding >> 24 & 1 != 0,
                }
            }
            kind::ENUM | kind::ENUM64 => Shape::Integer {
                bytes: head.size_or_type as u8,
                signed: head.has_bit_fields,
            },
            kind::PTR => Shape::Pointer(self.plain(head.size_or_type.into())),
            kind::STRUCT | kind::UNION => Shape::Structure(head.size_or_type.into()),
            kind::ARRAY => {
                let element = cursor.u32().unwrap_or(0);
                let _index = cursor.u32();
                let count = cursor.u32().unwrap_or(0);
                Shape::Array(self.plain(element.into()), count.into())
            }
            kind::FWD | kind::FUNC | kind::FLOAT => Shape::Other,
            _ => Shape::Other,
        }
    }

    fn members(&self, number: u64) -> Vec<Member> {
        let Some((head, mut cursor)) = self.at(self.plain(number)) else {
            return Vec::new();
        };
        if !matches!(head.kind, kind::STRUCT | kind::UNION) {
            return Vec::new();
        }
        let mut members = Vec::new();
        for _ in 0..head.count {
            let (Ok(name), Ok(kind), Ok(offset)) = (cursor.u32(), cursor.u32(), cursor.u32())
            else {
                break;
            };
            let (bits, size) = match head.has_bit_fields {
                true => (offset & 0xff_ffff, offset >> 24),
                false => (offset, 0),
            };
            members.push(Member {
                name: String::from_utf8_lossy(self.name(name)).into_owned(),
                offset: u64::from(bits / 8),
                kind: self.plain(kind.into()),
                is_bit_field: size != 0,
            });
        }
        members
    }
}

fn head(cursor: &mut Cursor<'_>) -> Result<Head, Short> {
    let (name, info, size_or_type) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
    Ok(Head {
        name,
        kind: info >> 24 & 0x1f,
        count: info & 0xffff,
        has_bit_fields: info >> 31 != 0,
        size_or_type,
    })
}

#[cfg(test)]
mod tests {
    use super::super::argument;
    use super::super::fetch::{Expression, walk};
    use super::*;

    /// Types for three functions, in the kernel's layout.
    fn small() -> Vec<u8> {
        let names = b"\0int\0sock\0len\0data\0send\0sk\0size\0btf_trace_sent\0";
        let offset = |name: &[u8]| {
            let place = names.windows(name.len()).position(|part| part == name);
            place.expect("a name") as u32
        };
        let head = |name: &[u8], kind: u32, count: u32, size: u32| {
            [
                if name.is_empty() { 0 } else { offset(name) },
                kind << 24 | count,
                size,
            ]
        };
        let mut words: Vec<u32> = Vec::new();
        words.extend(head(b"int", kind::INT, 0, 4)); // 1
        words.push(1 << 24 | 32);
        words.extend(head(b"sock", kind::STRUCT, 2, 16)); // 2
        words.extend([offset(b"len"), 1, 32, offset(b"data"), 3, 64]);
        words.extend(head(b"", kind::PTR, 0, 1)); // 3
        words.extend(head(b"", kind::PTR, 0, 2)); // 4
        words.extend(head(b"", kind::FUNC_PROTO, 2, 1)); // 5
        words.extend([offset(b"sk"), 4, offset(b"size"), 1]);
        words.extend(head(b"send", kind::FUNC, 0, 5)); // 6
        words.extend(head(b"btf_trace_sent", kind::TYPEDEF, 0, 8)); // 7
        words.extend(head(b"", kind::PTR, 0, 5)); // 8
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            names.len() as u32,
        ] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(types);
        bytes.extend(names);
        bytes
    }

    fn fetched(text: &str) -> Result<(String, Option<String>), String> {
        let btf = Btf::parse(small()).unwrap();
        let spec = argument::parse(&format!("send {text}"), false).unwrap();
        let argument::Value::Variable(variable) = &spec.arguments[0].value else {
            panic!("{text}");
        };
        let parameters = btf.parameters("send").unwrap();
        let place = parameters
            .iter()
            .position(|(name, _)| *name == variable.name);
        let place = place.expect("a parameter");
        let start = Expression::value(format!("$arg{}", place + 1));
        let wanted = spec.arguments[0].kind.clone();
        let found = walk(
            &btf,
            start,
            parameters[place].1,
            variable,
            wanted.as_deref(),
        )?;
        Ok((found.expression, found.kind.or(wanted)))
    }

    #[test]
    fn parameters_and_members() {
        let some = |kind: &str| Some(kind.to_owned());
        assert_eq!(fetched("size"), Ok(("$arg2".into(), some("s32"))));
        assert_eq!(fetched("sk"), Ok(("$arg1".into(), some("x64"))));
        assert_eq!(fetched("sk->len"), Ok(("+4($arg1)".into(), some("s32"))));
        assert_eq!(
            fetched("*sk->data"),
            Ok(("+0(+8($arg1))".into(), some("s32")))
        );
        assert_eq!(
            fetched("sk->data[2]"),
            Ok(("+8(+8($arg1))".into(), some("s32")))
        );
        assert_eq!(
            fetched("sk->data:string"),
            Ok(("+0(+8($arg1))".into(), some("string")))
        );
        assert!(fetched("sk->none").unwrap_err().contains("len, data"));
        assert!(fetched("size->x").is_err());
    }

    #[test]
    fn arguments_of_tracepoints() {
        let btf = Btf::parse(small()).unwrap();
        assert_eq!(btf.tracepoint_arguments("sent"), Some(1));
        assert_eq!(btf.tracepoint_arguments("send"), None);
    }

    /// A module's file continues after the kernel's: type 9, and names after those of the kernel.
    #[test]
    fn module_types_continue_after_the_kernels() {
        let names = b"open\0mode\0";
        let base = b"\0int\0sock\0len\0data\0send\0sk\0size\0btf_trace_sent\0".len() as u32;
        let sk = 24;
        let mut words: Vec<u32> = vec![0, kind::FUNC_PROTO << 24 | 2, 1]; // 9
        words.extend([sk, 4, base + 5, 1]);
        words.extend([base, kind::FUNC << 24, 9]); // 10
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let (types_bytes, names_bytes) = (types.len() as u32, names.len() as u32);
        for word in [24, 0, types_bytes, types_bytes, names_bytes] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(types);
        bytes.extend(names);
        let mut btf = Btf::parse(small()).unwrap();
        btf.add(bytes).unwrap();
        let parameters = btf.parameters("open").unwrap();
        assert_eq!(parameters, [("sk".to_owned(), 4), ("mode".to_owned(), 1)]);
        assert!(matches!(btf.shape(4), Shape::Pointer(2)));
        assert!(btf.parameters("send").is_some());
    }

    #[test]
    fn damaged_descriptions_are_refused() {
        let whole = small();
        for end in 0..whole.len() {
            if let Ok(btf) = Btf::parse(whole[..end].to_vec()) {
                btf.parameters("send");
            }
        }
    }

    #[test]
    fn btf_of_the_running_kernel() {
        let Some(btf) = Btf::of_the_kernel() else {
            println!("skipped: needs BTF");
            return;
        };
        let parameters = btf.parameters("vfs_read").expect("every kernel has it");
        let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["file", "buf", "count", "pos"]);
        let arguments = btf.tracepoint_arguments("sched_process_fork");
        assert_eq!(arguments, Some(2));
        assert_eq!(
            btf.shape(parameters[2].1),
            Shape::Integer {
                bytes: 8,
                signed: false
            }
        );
    }
}
