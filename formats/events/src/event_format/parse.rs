//! Parser of the kernel's `format` files: fields with their types and positions.
//!
//! ```text
//!     field:__data_loc char[] filename; offset:8; size:4; signed:0;
//! ```
//! The declaration is C, with array lengths that may be macros or expressions: `offset:` and `size:` give the position,
//! and the declaration only the type (string, bytes, pointer, list). The kernel writes these files in `f_show`
//! (kernel/trace/trace_events.c).

use crate::event::{EventKind, Field, FieldPlace, FieldType, Flags, Layout};

/// One event, as described by its `format` file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventFormat {
    /// `name:`
    pub name: String,
    /// `ID:`, the value of `common_type` and of a perf tracepoint's `config`.
    pub id: u64,
    /// `common_type`, `common_flags`, …
    pub common: Vec<Field>,
    /// The event's own fields.
    pub fields: Vec<Field>,
    /// `print fmt:`, as written.
    pub print_format: Option<String>,
}

impl EventFormat {
    /// Parses a `format` file. `long_size` is the size of the kernel's `long` in bytes, for lists whose declaration
    /// lacks the element size. The error states what was expected and found.
    pub fn parse(text: &[u8], long_size: u8) -> Result<EventFormat, String> {
        let text = String::from_utf8_lossy(text);
        let mut format = EventFormat::default();
        let mut has_id = false;
        // The common fields end at the first blank line after them.
        let mut in_common = true;
        let mut rest: &str = &text;
        while !rest.is_empty() {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            let line = line.trim();
            if let Some(name) = line.strip_prefix("name:") {
                format.name = name.trim().to_owned();
            } else if let Some(id) = line.strip_prefix("ID:") {
                let id = id.trim();
                format.id = id
                    .parse()
                    .map_err(|_| format!("expected a number after \"ID:\", found {id:?}"))?;
                has_id = true;
            } else if line.starts_with("print fmt:") {
                // The last entry of the file; its expression may span several lines.
                let text = rest.trim_start();
                let text = text.strip_prefix("print fmt:").unwrap_or(text);
                format.print_format = Some(text.trim().to_owned());
                break;
            } else if line.is_empty() {
                in_common &= format.common.is_empty();
            } else if line.starts_with("field") {
                let field = parse_field(line, long_size)?;
                if in_common && field.name.starts_with("common_") {
                    format.common.push(field);
                } else {
                    format.fields.push(field);
                }
            }
            rest = after;
        }
        if format.name.is_empty() || !has_id {
            return Err("expected \"name:\" and \"ID:\", found at most one of them".into());
        }
        Ok(format)
    }

    /// Returns the common fields with interrupt context and scheduling state, which the event's table has after its own.
    pub fn flags(&self) -> impl Iterator<Item = Field> {
        let fields = self.common.iter();
        fields
            .filter(|field| Flags::has_field(&field.name))
            .cloned()
    }

    /// Returns the kind of event that has this format in `system`. perf names the groups of its probes "probe",
    /// "probe_FILE" and "sdt_PROVIDER"; the kernel's default groups are "kprobes" and "uprobes"; perfquet-record adds
    /// "call_FILE" and "trigger_FILE". In any other group, the fields identify a probe, and distinguish entry from
    /// return.
    pub fn kind(&self, system: &str) -> EventKind {
        let has = |name| self.fields.iter().any(|field| field.name == name);
        let at_return = has("__probe_ret_ip");
        if !at_return && !has("__probe_ip") {
            return EventKind::Tracepoint;
        }
        let in_user = system.starts_with("probe_")
            || system.starts_with("uprobe")
            || system.starts_with("call_")
            || system.starts_with("trigger_")
            || system.starts_with("sdt_")
            || system.ends_with("_user");
        match (in_user, at_return) {
            _ if system.starts_with("sdt_") => EventKind::Usdt,
            (true, false) => EventKind::Uprobe,
            (true, true) => EventKind::Uretprobe,
            (false, false) => EventKind::Kprobe,
            (false, true) => EventKind::Kretprobe,
        }
    }
}

/// Returns the name of a declaration stored without its position ("__data_loc u16[] ports"), and the size of one
/// element in bytes; 0 if unknown. `None` if it is not a declaration.
pub fn declared(declaration: &str) -> Option<(&str, u8)> {
    let parsed = Declaration::parse(declaration)?;
    let width = match parsed.is_pointer {
        true => 8,
        false => parsed.known_size(8),
    };
    Some((parsed.name, width))
}

/// `field:unsigned short common_type; offset:0; size:2; signed:0;`
fn parse_field(line: &str, long_size: u8) -> Result<Field, String> {
    let (_, text) = line
        .split_once(':')
        .ok_or_else(|| format!("expected \"field:\", found {line:?}"))?;
    let (declaration, attributes) = text
        .split_once(';')
        .ok_or_else(|| format!("expected a declaration and \";\", found {line:?}"))?;
    let mut offset = None;
    let mut size = None;
    let mut signed = None;
    for attribute in attributes.split(';') {
        let Some((name, value)) = attribute.trim().split_once(':') else {
            continue;
        };
        let number = value.trim().parse::<u32>();
        match name {
            "offset" => offset = number.ok(),
            "size" => size = number.ok(),
            "signed" => signed = number.ok().map(|number| number != 0),
            _ => {}
        }
    }
    let (Some(offset), Some(size)) = (offset, size) else {
        return Err(format!("expected offset and size, found {line:?}"));
    };
    let declaration = declaration.trim();
    let parsed = Declaration::parse(declaration)
        .ok_or_else(|| format!("expected a declaration, found {declaration:?}"))?;
    let place = match (parsed.location, parsed.array) {
        (Some(place), _) => place,
        (None, Some(_)) if size == 0 => FieldPlace::Rest,
        _ => FieldPlace::Inline,
    };
    Ok(Field {
        name: parsed.name.to_owned(),
        kind: parsed.kind(place, size, signed, long_size),
        layout: Some(Layout {
            offset,
            size,
            place,
        }),
        declaration: declaration.to_owned(),
    })
}

/// A parsed C declaration.
struct Declaration<'a> {
    /// `__data_loc`, `__rel_loc`
    location: Option<FieldPlace>,
    /// Words of the type, without qualifiers, attributes and stars.
    words: Vec<&'a str>,
    is_pointer: bool,
    /// The expression between the brackets.
    array: Option<&'a str>,
    name: &'a str,
}

impl<'a> Declaration<'a> {
    fn parse(text: &'a str) -> Option<Declaration<'a>> {
        let (location, text) = if let Some(rest) = text.strip_prefix("__data_loc ") {
            (Some(FieldPlace::DataLoc), rest)
        } else if let Some(rest) = text.strip_prefix("__rel_loc ") {
            (Some(FieldPlace::RelLoc), rest)
        } else {
            (None, text)
        };
        let mut text = text.trim();
        let mut array = None;
        if let Some(inner) = text.strip_suffix(']') {
            let open = matching_open(inner)?;
            array = inner.get(open + 1..);
            text = text.get(..open)?.trim_end();
        }
        let name_start = text
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$' || c == '.'))
            .map_or(0, |index| index + 1);
        let (mut type_text, name) = text.split_at_checked(name_start)?;
        if name.is_empty() {
            return None;
        }
        // In `char[] name`, the brackets follow the type.
        type_text = type_text.trim();
        if let Some(inner) = type_text.strip_suffix(']') {
            let open = matching_open(inner)?;
            array = inner.get(open + 1..);
            type_text = type_text.get(..open)?;
        }
        // Kernels built with clang write `char __attribute__((btf_type_tag("user"))) *`.
        let is_pointer = type_text.contains('*');
        let words = type_text
            .split("__attribute__")
            .enumerate()
            .flat_map(|(index, part)| {
                let part = match index {
                    0 => part,
                    _ => part.rsplit(')').next().unwrap_or(""),
                };
                part.split(|c: char| c.is_whitespace() || c == '*')
            })
            .filter(|word| !matches!(*word, "" | "const" | "volatile" | "__user" | "__rcu"))
            .collect();
        Some(Declaration {
            location,
            words,
            is_pointer,
            array,
            name,
        })
    }

    fn kind(&self, place: FieldPlace, size: u32, signed: Option<bool>, long_size: u8) -> FieldType {
        let in_place = place == FieldPlace::Inline;
        if in_place && self.array.is_none() {
            return self.scalar(size, signed);
        }
        if self.is_pointer {
            return FieldType::UIntList(self.element_size(place, size, long_size));
        }
        if matches!(self.words.as_slice(), ["char"]) {
            return FieldType::Text;
        }
        let is_bytes = matches!(
            self.words.as_slice(),
            ["unsigned" | "signed", "char"]
                | ["u8" | "__u8" | "s8" | "__s8" | "uint8_t" | "int8_t" | "bool" | "_Bool"]
        );
        let is_struct = matches!(self.words.first(), Some(&("struct" | "union")));
        let width = self.element_size(place, size, long_size);
        if is_bytes || is_struct || width == 0 {
            return FieldType::Binary;
        }
        match self.is_signed().or(signed) {
            Some(true) => FieldType::IntList(width),
            _ => FieldType::UIntList(width),
        }
    }

    fn scalar(&self, size: u32, signed: Option<bool>) -> FieldType {
        let is_struct = matches!(self.words.first(), Some(&("struct" | "union")));
        if matches!(self.words.as_slice(), ["bool" | "_Bool"]) && size == 1 {
            return FieldType::Bool;
        }
        match (size, u8::try_from(size)) {
            (1 | 2 | 4 | 8, Ok(width)) if self.is_pointer => FieldType::UInt(width),
            (1 | 2 | 4 | 8, Ok(width)) if !is_struct => {
                // Kernels before 2.6.33 do not write `signed:`.
                match signed.or_else(|| self.is_signed()) {
                    Some(true) => FieldType::Int(width),
                    _ => FieldType::UInt(width),
                }
            }
            _ => FieldType::Binary,
        }
    }

    /// Returns the size of one list element in bytes; 0 if unknown.
    fn element_size(&self, place: FieldPlace, size: u32, long_size: u8) -> u8 {
        let count = self
            .array
            .and_then(|text| text.trim().parse::<u32>().ok())
            .filter(|_| place == FieldPlace::Inline);
        if let Some(count) = count
            && let Some(element) = size.checked_div(count)
            && matches!(element, 1 | 2 | 4 | 8)
        {
            return element as u8;
        }
        let known = if self.is_pointer {
            long_size
        } else {
            self.known_size(long_size)
        };
        if place == FieldPlace::Inline && known > 0 && !size.is_multiple_of(known.into()) {
            return 0;
        }
        known
    }

    fn known_size(&self, long_size: u8) -> u8 {
        match self.words.as_slice() {
            ["unsigned" | "signed", rest @ ..] if !rest.is_empty() => {
                size_of_words(rest, long_size)
            }
            words => size_of_words(words, long_size),
        }
    }

    fn is_signed(&self) -> Option<bool> {
        match self.words.as_slice() {
            ["unsigned", ..] => Some(false),
            ["signed" | "short" | "int" | "long" | "char", ..] => Some(true),
            [word] => match *word {
                "s8" | "s16" | "s32" | "s64" | "__s8" | "__s16" | "__s32" | "__s64" | "int8_t"
                | "int16_t" | "int32_t" | "int64_t" | "pid_t" | "ssize_t" | "loff_t"
                | "ktime_t" => Some(true),
                "u8" | "u16" | "u32" | "u64" | "__u8" | "__u16" | "__u32" | "__u64" | "uint8_t"
                | "uint16_t" | "uint32_t" | "uint64_t" | "size_t" | "cpumask_t" | "__be16"
                | "__be32" | "__be64" | "__le16" | "__le32" | "__le64" | "dev_t" | "uid_t"
                | "gid_t" | "gfp_t" | "sector_t" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }
}

fn size_of_words(words: &[&str], long_size: u8) -> u8 {
    match words {
        ["char"] => 1,
        ["short"] | ["short", "int"] => 2,
        ["int" | "unsigned" | "signed"] | ["enum", _] => 4,
        ["long", "long", ..] => 8,
        ["long"] | ["long", "int"] => long_size,
        [word] => match *word {
            "u8" | "s8" | "__u8" | "__s8" | "uint8_t" | "int8_t" | "bool" | "_Bool" => 1,
            "u16" | "s16" | "__u16" | "__s16" | "uint16_t" | "int16_t" | "__be16" | "__le16" => 2,
            "u32" | "s32" | "__u32" | "__s32" | "uint32_t" | "int32_t" | "__be32" | "__le32"
            | "pid_t" | "dev_t" | "uid_t" | "gid_t" | "gfp_t" | "xen_mfn32_t" => 4,
            "u64" | "s64" | "__u64" | "__s64" | "uint64_t" | "int64_t" | "__be64" | "__le64"
            | "sector_t" | "loff_t" | "ktime_t" => 8,
            "size_t" | "ssize_t" | "cpumask_t" => long_size,
            _ => 0,
        },
        _ => 0,
    }
}

/// Finds the bracket that matches a `]` following `text`.
fn matching_open(text: &str) -> Option<usize> {
    let mut depth = 0u32;
    for (index, byte) in text.bytes().enumerate().rev() {
        match byte {
            b']' => depth += 1,
            b'[' if depth == 0 => return Some(index),
            b'[' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, name: &str, kind: FieldType, place: FieldPlace) {
        let field = parse_field(line, 8).unwrap();
        assert_eq!(
            (field.name.as_str(), field.kind, field.layout.unwrap().place),
            (name, kind, place)
        );
    }

    /// One function, because it is a table of declarations.
    #[test]
    fn declarations() {
        use FieldPlace::*;
        use FieldType::*;
        check(
            "field:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;",
            "prev_comm",
            Text,
            Inline,
        );
        check(
            "field:char c[TASK_COMM_LEN];\toffset:8;\tsize:16;\tsigned:1;",
            "c",
            Text,
            Inline,
        );
        check(
            "field:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;",
            "filename",
            Text,
            DataLoc,
        );
        check(
            "field:__rel_loc u64[] v;\toffset:8;\tsize:4;\tsigned:0;",
            "v",
            UIntList(8),
            RelLoc,
        );
        check(
            "field:const char * filename;\toffset:24;\tsize:8;\tsigned:0;",
            "filename",
            UInt(8),
            Inline,
        );
        check(
            "field:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;",
            "args",
            UIntList(8),
            Inline,
        );
        check(
            "field:unsigned long args[];\toffset:24;\tsize:0;\tsigned:0;",
            "args",
            UIntList(8),
            Rest,
        );
        check(
            "field:char buf[];\toffset:16;\tsize:0;\tsigned:0;",
            "buf",
            Text,
            Rest,
        );
        check(
            "field:__u8 saddr[sizeof(struct sockaddr_in6)];\toffset:8;\tsize:28;\tsigned:0;",
            "saddr",
            Binary,
            Inline,
        );
        check(
            "field:bool success;\toffset:8;\tsize:1;\tsigned:0;",
            "success",
            Bool,
            Inline,
        );
        check(
            "field:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;",
            "pid",
            Int(4),
            Inline,
        );
        check(
            "field special:unsigned long ip;\toffset:8;\tsize:8;",
            "ip",
            UInt(8),
            Inline,
        );
        check("field:long x;\toffset:8;\tsize:4;", "x", Int(4), Inline);
        check(
            "field:struct x y;\toffset:8;\tsize:24;\tsigned:0;",
            "y",
            Binary,
            Inline,
        );
        check(
            "field:__data_loc cpumask_t cpus;\toffset:8;\tsize:4;\tsigned:0;",
            "cpus",
            UIntList(8),
            DataLoc,
        );
        check(
            "field:char __attribute__((btf_type_tag(\"user\"))) * p;\toffset:8;\tsize:8;\tsigned:0;",
            "p",
            UInt(8),
            Inline,
        );
        check(
            "field:int v[2 + 1];\toffset:8;\tsize:12;\tsigned:1;",
            "v",
            IntList(4),
            Inline,
        );
    }

    const SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \n\
        print fmt: \"prev_comm=%s\", REC->prev_comm\n";

    #[test]
    fn whole_file() {
        let format = EventFormat::parse(SWITCH.as_bytes(), 8).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("sched_switch", 316));
        assert_eq!(format.common.len(), 2);
        assert_eq!(format.fields.len(), 2);
        assert_eq!(
            format.print_format.as_deref(),
            Some("\"prev_comm=%s\", REC->prev_comm")
        );
        assert_eq!(format.kind("sched"), EventKind::Tracepoint);
    }

    #[test]
    fn damaged_files_are_rejected_with_a_reason() {
        for text in ["", "name: x\n", "ID: 5\n", "name: x\nID: y\n"] {
            EventFormat::parse(text.as_bytes(), 8).unwrap_err();
        }
        let error = EventFormat::parse(b"name: x\nID: 1\n\tfield:int x;\n", 8).unwrap_err();
        assert!(error.contains("offset and size"), "{error}");
        for length in 0..SWITCH.len() {
            let _ = EventFormat::parse(&SWITCH.as_bytes()[..length], 8); // must not panic
        }
    }
}
