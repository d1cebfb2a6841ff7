//! The template of a `print fmt`: C's printf with the kernel's extensions of `%p`
//! (Documentation/core-api/printk-formats.rst).
//!
//! ```text
//! "%-8s 0x%08lx %pI4"   →   Text left in 8, " 0x", hex of 8 bytes with zeros in 8, " ", an IPv4 address
//! ```

/// Maximum width. No kernel format uses more; a hostile one must not fill memory with padding.
const MAX_WIDTH: usize = 1024;

/// A piece of a template.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// Literal text.
    Text(Vec<u8>),
    /// A conversion, filled from the next argument.
    Conversion(Conversion),
}

/// `%-08.3lx`
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Conversion {
    pub(super) left: bool,
    pub(super) zeros: bool,
    pub(super) plus: bool,
    pub(super) blank: bool,
    pub(super) prefix: bool,
    pub(super) width: Size,
    pub(super) precision: Size,
    /// Size of the printed number in bytes.
    pub(super) bytes: u8,
    pub(super) kind: Kind,
}

/// A width or precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Size {
    None,
    Given(usize),
    /// `*`: from a separate argument.
    Argument,
}

/// Kind of output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Signed,
    Unsigned,
    Hex,
    UpperHex,
    Octal,
    Character,
    Text,
    Pointer(Pointer),
}

/// The letters after `%p`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pointer {
    /// The address.
    Plain,
    /// The function at the address; `offset`: with the offset in it.
    Symbol { offset: bool },
    /// A MAC address with this separator, optionally in reverse.
    Mac {
        between: &'static str,
        reverse: bool,
    },
    /// IPv4 with (`%pi4`) or without leading zeros.
    Ip4 { zeros: bool, reverse: bool },
    /// IPv6 in full, without colons (`%pi6`), or shortened (`%pI6c`).
    Ip6 { colons: bool, short: bool },
    /// A socket address, optionally with its port.
    Socket { port: bool, short: bool },
    /// A UUID; little-endian in the first three fields if `swapped`.
    Uuid { swapped: bool, upper: bool },
    /// Bytes with this separator; the width is their number.
    Bytes { between: &'static str },
    /// A bitmap as numbers, or as ranges (`%*pbl`).
    Bitmap { list: bool },
}

/// Splits a template. The error names an unknown conversion.
pub(super) fn parts(template: &[u8]) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = Vec::new();
    let mut rest = template;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            text.push(byte);
            continue;
        }
        if let Some(after) = rest.strip_prefix(b"%") {
            text.push(b'%');
            rest = after;
            continue;
        }
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text)));
        }
        parts.push(Part::Conversion(conversion(&mut rest)?));
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

fn take(rest: &mut &[u8], prefix: &[u8]) -> bool {
    match rest.strip_prefix(prefix) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

/// Parses a conversion from after its `%`.
fn conversion(rest: &mut &[u8]) -> Result<Conversion, String> {
    let mut conversion = Conversion {
        left: false,
        zeros: false,
        plus: false,
        blank: false,
        prefix: false,
        width: Size::None,
        precision: Size::None,
        bytes: 4,
        kind: Kind::Signed,
    };
    loop {
        match rest.first() {
            Some(b'-') => conversion.left = true,
            Some(b'0') => conversion.zeros = true,
            Some(b'+') => conversion.plus = true,
            Some(b' ') => conversion.blank = true,
            Some(b'#') => conversion.prefix = true,
            _ => break,
        }
        *rest = rest.get(1..).unwrap_or_default();
    }
    conversion.width = size(rest);
    if take(rest, b".") {
        conversion.precision = match size(rest) {
            Size::None => Size::Given(0),
            size => size,
        };
    }
    conversion.bytes = length(rest);
    let Some((&letter, after)) = rest.split_first() else {
        return Err("expected a conversion after %, found the end".into());
    };
    *rest = after;
    conversion.kind = match letter {
        b'd' | b'i' => Kind::Signed,
        b'u' => Kind::Unsigned,
        b'x' => Kind::Hex,
        b'X' => Kind::UpperHex,
        b'o' => Kind::Octal,
        b'c' => Kind::Character,
        b's' => Kind::Text,
        b'p' => Kind::Pointer(pointer(rest)),
        other => {
            return Err(format!(
                "expected a conversion after %, found {:?}",
                char::from(other)
            ));
        }
    };
    Ok(conversion)
}

fn size(rest: &mut &[u8]) -> Size {
    if take(rest, b"*") {
        return Size::Argument;
    }
    let mut size = None;
    while let Some((digit @ b'0'..=b'9', after)) = rest.split_first() {
        let value = size.unwrap_or(0) * 10 + usize::from(digit - b'0');
        size = Some(value.min(MAX_WIDTH));
        *rest = after;
    }
    size.map_or(Size::None, Size::Given)
}

/// Parses the length modifier into bytes; `long` has 64 bits, as on nearly all recording hosts.
fn length(rest: &mut &[u8]) -> u8 {
    for (letters, bytes) in [("hh", 1), ("h", 2), ("ll", 8)] {
        if take(rest, letters.as_bytes()) {
            return bytes;
        }
    }
    for letter in [b"l", b"L", b"z", b"Z", b"j", b"t"] {
        if take(rest, letter) {
            return 8;
        }
    }
    4
}

/// The letters after `%p`, the longer of two that begin alike first.
const LETTERS: &[(&[u8], Pointer)] = &[
    (b"S", Pointer::Symbol { offset: true }),
    (b"F", Pointer::Symbol { offset: true }),
    (b"B", Pointer::Symbol { offset: true }),
    (b"s", Pointer::Symbol { offset: false }),
    (b"f", Pointer::Symbol { offset: false }),
    (
        b"MR",
        Pointer::Mac {
            between: ":",
            reverse: true,
        },
    ),
    (
        b"MF",
        Pointer::Mac {
            between: "-",
            reverse: false,
        },
    ),
    (
        b"M",
        Pointer::Mac {
            between: ":",
            reverse: false,
        },
    ),
    (
        b"mR",
        Pointer::Mac {
            between: "",
            reverse: true,
        },
    ),
    (
        b"m",
        Pointer::Mac {
            between: "",
            reverse: false,
        },
    ),
    (
        b"I4h",
        Pointer::Ip4 {
            zeros: false,
            reverse: true,
        },
    ),
    (
        b"I4l",
        Pointer::Ip4 {
            zeros: false,
            reverse: true,
        },
    ),
    (
        b"I4n",
        Pointer::Ip4 {
            zeros: false,
            reverse: false,
        },
    ),
    (
        b"I4b",
        Pointer::Ip4 {
            zeros: false,
            reverse: false,
        },
    ),
    (
        b"I4",
        Pointer::Ip4 {
            zeros: false,
            reverse: false,
        },
    ),
    (
        b"i4",
        Pointer::Ip4 {
            zeros: true,
            reverse: false,
        },
    ),
    (
        b"I6c",
        Pointer::Ip6 {
            colons: true,
            short: true,
        },
    ),
    (
        b"I6",
        Pointer::Ip6 {
            colons: true,
            short: false,
        },
    ),
    (
        b"i6",
        Pointer::Ip6 {
            colons: false,
            short: false,
        },
    ),
    (
        b"ISpc",
        Pointer::Socket {
            port: true,
            short: true,
        },
    ),
    (
        b"ISp",
        Pointer::Socket {
            port: true,
            short: false,
        },
    ),
    (
        b"ISc",
        Pointer::Socket {
            port: false,
            short: true,
        },
    ),
    (
        b"IS",
        Pointer::Socket {
            port: false,
            short: false,
        },
    ),
    (
        b"UL",
        Pointer::Uuid {
            swapped: true,
            upper: true,
        },
    ),
    (
        b"Ul",
        Pointer::Uuid {
            swapped: true,
            upper: false,
        },
    ),
    (
        b"UB",
        Pointer::Uuid {
            swapped: false,
            upper: true,
        },
    ),
    (
        b"Ub",
        Pointer::Uuid {
            swapped: false,
            upper: false,
        },
    ),
    (
        b"U",
        Pointer::Uuid {
            swapped: false,
            upper: false,
        },
    ),
    (b"hC", Pointer::Bytes { between: ":" }),
    (b"hD", Pointer::Bytes { between: "-" }),
    (b"hN", Pointer::Bytes { between: "" }),
    (b"h", Pointer::Bytes { between: " " }),
    (b"bl", Pointer::Bitmap { list: true }),
    (b"b", Pointer::Bitmap { list: false }),
    (b"x", Pointer::Plain),
    (b"K", Pointer::Plain),
    (b"a", Pointer::Plain),
];

/// Parses the letters after `%p`, the longest match first; unknown letters are literal text.
fn pointer(rest: &mut &[u8]) -> Pointer {
    for (letters, pointer) in LETTERS {
        if take(rest, letters) {
            return *pointer;
        }
    }
    Pointer::Plain
}

impl Conversion {
    /// Prints the lowest bytes of an integer.
    pub(super) fn integer(
        &self,
        bits: u64,
        width: Option<usize>,
        digits: Option<usize>,
        out: &mut Vec<u8>,
    ) {
        let unused = 64 - 8 * u32::from(self.bytes.clamp(1, 8));
        let unsigned = bits << unused >> unused;
        let mut sign = "";
        let body = match self.kind {
            Kind::Signed => {
                let signed = (bits << unused) as i64 >> unused;
                sign = match signed {
                    i64::MIN..=-1 => "-",
                    _ if self.plus => "+",
                    _ if self.blank => " ",
                    _ => "",
                };
                signed.unsigned_abs().to_string()
            }
            Kind::Hex => {
                if self.prefix && unsigned != 0 {
                    sign = "0x";
                }
                format!("{unsigned:x}")
            }
            Kind::UpperHex => {
                if self.prefix && unsigned != 0 {
                    sign = "0X";
                }
                format!("{unsigned:X}")
            }
            Kind::Octal if self.prefix => format!("0{unsigned:o}"),
            Kind::Octal => format!("{unsigned:o}"),
            Kind::Unsigned | Kind::Character | Kind::Text | Kind::Pointer(_) => {
                unsigned.to_string()
            }
        };
        let zeros = match (digits, width) {
            (Some(digits), _) => digits.saturating_sub(body.len()),
            (None, Some(width)) if self.zeros && !self.left => {
                width.saturating_sub(sign.len() + body.len())
            }
            _ => 0,
        };
        let number = format!("{sign}{:0>1$}", body, body.len() + zeros);
        self.pad(number.as_bytes(), width, out);
    }

    /// Pads `body` to `width` bytes.
    pub(super) fn pad(&self, body: &[u8], width: Option<usize>, out: &mut Vec<u8>) {
        let blanks = width.unwrap_or(0).min(MAX_WIDTH).saturating_sub(body.len());
        if !self.left {
            out.resize(out.len() + blanks, b' ');
        }
        out.extend_from_slice(body);
        if self.left {
            out.resize(out.len() + blanks, b' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, bits: u64, expected: &str) {
        let parts = parts(template.as_bytes()).unwrap();
        let mut out = Vec::new();
        for part in parts {
            match part {
                Part::Text(text) => out.extend(text),
                Part::Conversion(conversion) => {
                    let size = |size| match size {
                        Size::Given(size) => Some(size),
                        Size::None | Size::Argument => None,
                    };
                    let (width, digits) = (size(conversion.width), size(conversion.precision));
                    conversion.integer(bits, width, digits, &mut out);
                }
            }
        }
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{template}");
    }

    #[test]
    fn integers_as_c_prints_them() {
        check("a%db", 42, "a42b");
        check("%d", u64::MAX, "-1");
        check("%hhd|", 0x80, "-128|");
        check("%u", u64::MAX, "4294967295");
        check("%llu", u64::MAX, "18446744073709551615");
        check("%5d|", 42, "   42|");
        check("%-5d|", 42, "42   |");
        check("%05d|", (-42i64) as u64, "-0042|");
        check("%.3d|", 7, "007|");
        check("%#x", 255, "0xff");
        check("%#x", 0, "0");
        check("%#010x", 255, "0x000000ff");
        check("%08lx", 0xffff_ff9c, "ffffff9c");
        check("%+d", 1, "+1");
        check("%o", 8, "10");
        check("100%%", 0, "100%");
        check("%zu", 1 << 40, "1099511627776");
    }

    #[test]
    fn rejects_unknown_conversions() {
        assert!(parts(b"%n").is_err());
        assert!(parts(b"%").is_err());
        assert!(parts(b"%-08.").is_err());
        let [Part::Conversion(wide)] = &parts(b"%99999999999999999999d").unwrap()[..] else {
            panic!("one conversion");
        };
        assert_eq!(wide.width, Size::Given(MAX_WIDTH));
    }
}
