//! Where the members of CRuby's structs are.
//!
//! ```text
//! 3.1   a control frame has 64 bytes, the first line is an object
//! 3.3   a control frame has 56 bytes, the first line is a number
//! ```
//! (ruby/ruby: `vm_core.h`, `iseq.h`, `include/ruby/internal/core/rstring.h`)

/// In an instruction sequence: its body; the program in the kernel reads it, too.
pub(super) const BODY: u64 = 16;
/// In a body: number of instructions and operands, their address, path, label.
pub(super) const WORDS: usize = 4;
pub(super) const INSTRUCTIONS: usize = 8;
pub(super) const PATH: usize = 64;
pub(super) const LABEL: usize = 80;
pub(super) const FIRST_LINE: usize = 88;
/// Bytes of a body that are read.
pub(super) const BODY_BYTES: u64 = 160;
/// In an object: its flags, with the type in the lowest bits.
pub(super) const TYPE_MASK: u64 = 0x1f;
pub(super) const TYPE_STRING: u64 = 5;
pub(super) const TYPE_ARRAY: u64 = 7;
/// Flag of a string whose text is elsewhere, and of an array whose elements are not.
pub(super) const FLAG: u64 = 1 << 13;
/// In a string: length, and address of the text.
pub(super) const STRING_LENGTH: usize = 16;
pub(super) const STRING_TEXT: usize = 24;
/// In an array: first element, or the address of the elements.
pub(super) const ARRAY_ELEMENT: usize = 16;
pub(super) const ARRAY_ELEMENTS: usize = 32;
/// Bytes of an object's header.
pub(super) const OBJECT_BYTES: u64 = 40;

/// Offsets of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) frame_bytes: u32,
    /// In a body: entries of the line table; their number and the index follow.
    pub(super) lines: usize,
    /// Whether the first line is an object (twice the number, plus 1).
    pub(super) has_line_object: bool,
    /// In a string: text that is in the string itself.
    pub(super) embedded: u64,
    /// Whether the length of such a text is in the flags.
    pub(super) has_length_in_flags: bool,
}

const RUBY_3_1: Offsets = Offsets {
    frame_bytes: 64,
    lines: 120,
    has_line_object: true,
    embedded: 16,
    has_length_in_flags: true,
};

const RUBY_3_3: Offsets = Offsets {
    frame_bytes: 56,
    lines: 112,
    has_line_object: false,
    embedded: 24,
    has_length_in_flags: false,
};

impl Offsets {
    /// Returns the offsets of a version; otherwise the reason.
    pub(super) fn of(version: &str) -> Result<Offsets, String> {
        let mut numbers = version.split('.');
        match (numbers.next(), numbers.next()) {
            (Some("3"), Some("1")) => Ok(RUBY_3_1),
            (Some("3"), Some("3")) => Ok(RUBY_3_3),
            _ => Err(format!("Ruby {version} is not supported")),
        }
    }
}
