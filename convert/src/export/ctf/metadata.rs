//! The `metadata` of a CTF trace: the layout of packets and events, in CTF's own language (TSDL, version 1.8).

use std::collections::HashSet;
use std::fmt::Write as _;

use perfquet_trace::store::{ColumnSchema, ColumnType, Facts};

/// The types, the packets, and the fields of all events. `u8`, `u32`, … are aligned to bytes.
const HEAD: &str = r#"/* CTF 1.8 */

typealias integer { size = 8; align = 8; signed = false; } := u8;
typealias integer { size = 16; align = 8; signed = false; } := u16;
typealias integer { size = 32; align = 8; signed = false; } := u32;
typealias integer { size = 64; align = 8; signed = false; } := u64;
typealias integer { size = 64; align = 8; signed = false; base = 16; } := address;
typealias integer { size = 8; align = 8; signed = true; } := s8;
typealias integer { size = 16; align = 8; signed = true; } := s16;
typealias integer { size = 32; align = 8; signed = true; } := s32;
typealias integer { size = 64; align = 8; signed = true; } := s64;
typealias floating_point { exp_dig = 11; mant_dig = 53; align = 8; } := f64;

trace {
	major = 1;
	minor = 8;
	byte_order = le;
	packet.header := struct { u32 magic; u32 stream_id; };
};
"#;

const STREAM: &str = r"
stream {
	id = 0;
	packet.context := struct {
		clock_time timestamp_begin;
		clock_time timestamp_end;
		u64 content_size;
		u64 packet_size;
		u64 events_discarded;
		u32 cpu_id;
	};
	event.header := struct { u32 id; clock_time timestamp; };
	event.context := struct { s32 pid; s32 tid; string procname; string callchain; };
};
";

/// Returns everything before the events.
pub(super) fn head(facts: &Facts) -> String {
    let mut text = HEAD.to_owned();
    text += "\nenv {\n\tdomain = \"kernel\";\n\ttracer_name = \"perfquet\";\n";
    for (name, value) in [
        ("hostname", &facts.host),
        ("kernel_release", &facts.os_release),
        ("architecture", &facts.architecture),
        ("recorder", &facts.recorder),
        ("command_line", &facts.command_line),
        ("scope", &facts.other.get("scope").cloned()),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "\t{name} = \"{}\";", escaped(value));
        }
    }
    let name = facts
        .clock
        .as_deref()
        .map_or("unknown".to_owned(), identifier);
    let (offset, absolute) = match facts.wall_offset {
        Some(offset) => (offset, "TRUE"),
        None => (0, "FALSE"),
    };
    let _ = write!(
        text,
        "}};\n\nclock {{\n\tname = \"{name}\";\n\tfreq = 1000000000;\n\toffset_s = {};\n\toffset = {};\n\tabsolute = {absolute};\n}};\n\n\
         typealias integer {{ size = 64; align = 8; signed = false; map = clock.{name}.value; }} := clock_time;\n",
        offset.div_euclid(1_000_000_000),
        offset.rem_euclid(1_000_000_000),
    );
    text + STREAM
}

/// Returns the declaration of an event.
pub(super) fn event(id: u32, name: &str, fields: &[CtfField]) -> String {
    let mut text = format!(
        "\nevent {{\n\tid = {id};\n\tname = \"{}\";\n\tstream_id = 0;\n\tfields := struct {{\n",
        escaped(name)
    );
    for field in fields {
        let name = &field.name;
        let _ = match field.kind {
            CtfKind::Plain(kind) => writeln!(text, "\t\t{kind} {name};"),
            CtfKind::List(kind) => writeln!(
                text,
                "\t\tu32 _{name}_length; {kind} {name}[_{name}_length];"
            ),
        };
    }
    text + "\t};\n};\n"
}

/// A field of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CtfField {
    /// Name of the column.
    pub(super) column: String,
    /// Name in CTF.
    pub(super) name: String,
    pub(super) kind: CtfKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CtfKind {
    Plain(&'static str),
    /// A list, after its length.
    List(&'static str),
}

/// Returns the fields of these columns. For Trace Compass, those of scheduler events have LTTng's names: `prev_tid`,
/// `comm`, `tid`.
pub(super) fn fields(event: &str, columns: &[ColumnSchema]) -> Vec<CtfField> {
    let is_scheduler = event.starts_with("sched_");
    let mut taken = HashSet::new();
    columns
        .iter()
        .map(|column| {
            let name = match column.name.as_str() {
                "prev_pid" if is_scheduler => "prev_tid",
                "next_pid" if is_scheduler => "next_tid",
                "arg_pid" if is_scheduler => "tid",
                "arg_comm" if is_scheduler => "comm",
                name => name,
            };
            let mut name = identifier(name);
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            CtfField {
                column: column.name.clone(),
                name,
                kind: kind_of(column),
            }
        })
        .collect()
}

fn kind_of(column: &ColumnSchema) -> CtfKind {
    CtfKind::Plain(match column.kind {
        ColumnType::Bool | ColumnType::UInt8 => "u8",
        ColumnType::Int8 => "s8",
        ColumnType::Int16 => "s16",
        ColumnType::Int32 => "s32",
        ColumnType::Int64 | ColumnType::Int128 => "s64",
        ColumnType::UInt16 => "u16",
        ColumnType::UInt32 => "u32",
        ColumnType::UInt64 => "u64",
        ColumnType::Bits => "address",
        ColumnType::Float64 => "f64",
        ColumnType::Text | ColumnType::TextList => "string",
        ColumnType::Binary => return CtfKind::List("u8"),
        ColumnType::Int64List => return CtfKind::List("s64"),
        ColumnType::UInt64List => return CtfKind::List("u64"),
        ColumnType::BitsList => return CtfKind::List("address"),
    })
}

/// Keywords of the language, and the types that it or [`HEAD`] define, which cannot be names.
const KEYWORDS: [&str; 39] = [
    "address",
    "align",
    "callsite",
    "char",
    "clock",
    "clock_time",
    "const",
    "double",
    "enum",
    "env",
    "event",
    "f64",
    "float",
    "floating_point",
    "int",
    "integer",
    "long",
    "s16",
    "s32",
    "s64",
    "s8",
    "short",
    "signed",
    "stream",
    "string",
    "struct",
    "trace",
    "typealias",
    "typedef",
    "u16",
    "u32",
    "u64",
    "u8",
    "unsigned",
    "variant",
    "void",
    "_Bool",
    "_Complex",
    "_Imaginary",
];

/// Replaces all characters of a name other than letters, digits and `_`.
fn identifier(name: &str) -> String {
    let plain = name
        .chars()
        .map(|letter| match letter.is_ascii_alphanumeric() {
            true => letter,
            false => '_',
        });
    let mut name: String = plain.collect();
    if name.is_empty()
        || name.starts_with(|first: char| first.is_ascii_digit())
        || KEYWORDS.contains(&name.as_str())
    {
        name.insert(0, '_');
    }
    // Readers drop a leading underscore, so `_x` and `x` must not both occur: the check in the caller sees `x`.
    name
}

/// Escapes text for quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '"' | '\\' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            letter if letter.is_control() => escaped.push('?'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_has_the_name_of_a_type() {
        let head = head(&Facts::default());
        let types = head.split(":= ").skip(1);
        let types: Vec<&str> = types.map(|rest| rest.split(';').next().unwrap()).collect();
        let types: Vec<&str> = types
            .into_iter()
            .filter(|name| !name.contains(' '))
            .collect();
        assert_eq!(types.len(), 11, "{types:?}");
        for name in types {
            assert_eq!(identifier(name), format!("_{name}"));
        }
    }
}
