//! The fields of a tracepoint's record, parsed from its format file.
//!
//! ```text
//!     field:unsigned short common_type;    offset:0;    size:2;    signed:0;
//!     field:char comm[16];    offset:8;    size:16;    signed:0;
//!     field:__data_loc char[] filename;    offset:24;    size:4;    signed:0;
//! ```

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) offset: u32,
    pub(super) size: u32,
    pub(super) is_signed: bool,
}

/// Type of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number or a pointer.
    Number,
    /// A string in a fixed array.
    Text,
    /// `__data_loc`: offset of a string from the start of the record.
    DataLoc,
    /// `__rel_loc`: offset of a string from the end of this field.
    RelLoc,
    /// A list, or bytes of unknown meaning.
    Other,
}

/// Returns size and sign of a number's type in probe definitions: u32, s64, x8.
pub(super) fn number_of(kind: &str) -> Option<(u32, bool)> {
    let bits: u32 = kind.get(1..)?.parse().ok()?;
    let is_size = matches!(bits, 8 | 16 | 32 | 64);
    let is_signed = match kind.get(..1)? {
        "s" => true,
        "u" | "x" => false,
        _ => return None,
    };
    is_size.then_some((bits / 8, is_signed))
}

/// Parses the fields after the common ones of all tracepoints.
pub(super) fn of(format: &[u8]) -> Vec<Field> {
    let text = String::from_utf8_lossy(format);
    let fields = text.lines().filter_map(|line| field(line.trim()));
    fields
        .filter(|field| !field.name.starts_with("common_"))
        .collect()
}

fn field(line: &str) -> Option<Field> {
    let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
    let declaration = parts.next()?;
    let (mut offset, mut size, mut is_signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => offset = number.parse().ok(),
            Some(("size", number)) => size = number.parse().ok(),
            Some(("signed", number)) => is_signed = number == "1",
            _ => {}
        }
    }
    let (kind, name) = declaration.rsplit_once(char::is_whitespace)?;
    let (name, has_brackets) = match name.split_once('[') {
        Some((name, _)) => (name, true),
        None => (name, kind.ends_with("[]")),
    };
    let is_char = kind.contains("char") && !kind.contains('*');
    let size: u32 = size?;
    Some(Field {
        name: name.to_owned(),
        kind: match (kind.split_whitespace().next()?, has_brackets) {
            ("__data_loc", _) if is_char => Kind::DataLoc,
            ("__rel_loc", _) if is_char => Kind::RelLoc,
            ("__data_loc" | "__rel_loc", _) => Kind::Other,
            (_, true) if is_char => Kind::Text,
            (_, false) if matches!(size, 1 | 2 | 4 | 8) => Kind::Number,
            _ => Kind::Other,
        },
        offset: offset?,
        size,
        is_signed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_their_types() {
        assert_eq!(number_of("s32"), Some((4, true)));
        assert_eq!(number_of("x8"), Some((1, false)));
        for other in ["", "u", "u24", "string", "b4@3/32", "s64[3]"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }

    #[test]
    fn fields_of_all_kinds() {
        let format = "name: x\nID: 1\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:__data_loc char[] filename;\toffset:24;\tsize:4;\tsigned:0;\n\
            \tfield:__rel_loc char[] more;\toffset:28;\tsize:4;\tsigned:0;\n\
            \tfield:const char * buf;\toffset:32;\tsize:8;\tsigned:0;\n\
            \tfield:pid_t pid;\toffset:40;\tsize:4;\tsigned:1;\n\
            \tfield:u8 list[4];\toffset:44;\tsize:4;\tsigned:0;\n\
            \nprint fmt: \"%d\", REC->pid\n";
        let found = of(format.as_bytes());
        let shown: Vec<_> = found
            .iter()
            .map(|field| {
                (
                    field.name.as_str(),
                    field.kind,
                    field.offset,
                    field.is_signed,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("comm", Kind::Text, 8, false),
                ("filename", Kind::DataLoc, 24, false),
                ("more", Kind::RelLoc, 28, false),
                ("buf", Kind::Number, 32, false),
                ("pid", Kind::Number, 40, true),
                ("list", Kind::Other, 44, false),
            ]
        );
    }
}
