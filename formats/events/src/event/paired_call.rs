//! Calls paired by a BPF program of the recorder, and the descriptions of their functions, which come first.
//!
//! ```text
//! 7\nvfs_read\n\ncount 2 u64\nret - s64        function 7, recorded with its third argument and its return value
//! ```

use super::Call;

/// Limits per function. Names are the kernel's for fetched arguments (`MAX_ARG_NAME_LEN` is 32), there are six registers,
/// and some arguments have two types. Each call has all of them as strings.
const ARGUMENTS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

/// The description of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallFunction {
    /// ID of the function in the call records.
    pub number: u32,
    /// Name of the function.
    pub function: String,
    /// File that contains the function; empty for the kernel.
    pub module: String,
    /// The recorded arguments.
    pub arguments: Vec<CallArgument>,
    /// The return value, if recorded.
    pub returned: Option<CallArgument>,
}

/// An argument in a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallArgument {
    /// Name of the argument.
    pub name: String,
    /// Index among the record's arguments.
    pub place: usize,
    /// `u8` to `u64`, `s8` to `s64`, `x8` to `x64`.
    pub kind: String,
}

impl CallArgument {
    /// Whether `kind` is a valid type.
    pub fn is_kind(kind: &str) -> bool {
        let size = kind.strip_prefix(['u', 's', 'x']);
        size.is_some_and(|size| ["8", "16", "32", "64"].contains(&size))
    }

    /// Converts a register to the argument's type.
    #[inline]
    pub fn value(&self, register: u64) -> i64 {
        let bits = self.kind.get(1..).and_then(|bits| bits.parse().ok());
        let unused = 64u32.saturating_sub(bits.unwrap_or(64)).min(63);
        match self.kind.starts_with('s') {
            true => (register << unused) as i64 >> unused,
            false => (register << unused >> unused) as i64,
        }
    }

    /// Formats the argument: `count=4096`, `flags=0x8000`.
    pub fn text(&self, register: u64) -> String {
        let value = self.value(register);
        match self.kind.get(..1) {
            Some("s") => format!("{}={value}", self.name),
            Some("x") => format!("{}={:#x}", self.name, value as u64),
            _ => format!("{}={}", self.name, value as u64),
        }
    }
}

impl CallFunction {
    /// Returns the description as stored in the journal.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}\n{}", self.number, self.function, self.module);
        for argument in &self.arguments {
            let CallArgument { name, place, kind } = argument;
            text.push_str(&format!("\n{name} {place} {kind}"));
        }
        if let Some(returned) = &self.returned {
            text.push_str(&format!("\n{} - {}", returned.name, returned.kind));
        }
        text
    }

    /// Parses a description; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<CallFunction> {
        let mut lines = text.split('\n');
        let mut function = CallFunction {
            number: lines.next()?.parse().ok()?,
            function: lines.next()?.to_owned(),
            module: lines.next()?.to_owned(),
            ..CallFunction::default()
        };
        for line in lines {
            let mut words = line.split(' ');
            let (name, place, kind) = (words.next()?, words.next()?, words.next()?);
            let has_room = function.arguments.len() < ARGUMENTS_MAX || place == "-";
            if !CallArgument::is_kind(kind) || name.len() > NAME_BYTES_MAX || !has_room {
                return None;
            }
            let argument = |place| CallArgument {
                name: name.to_owned(),
                place,
                kind: kind.to_owned(),
            };
            match place {
                "-" => function.returned = Some(argument(0)),
                place => function.arguments.push(argument(place.parse().ok()?)),
            }
        }
        Some(function)
    }
}

/// A call paired in the kernel. These calls come in the order of their ends.
#[derive(Debug, Clone, Copy)]
pub struct PairedCall<'a> {
    /// The call.
    pub call: Call<'a>,
    /// Entry time of the enclosing call of the same thread. That call itself comes later, if it is recorded.
    pub parent_entry: Option<i64>,
    /// Nanoseconds in nested calls, recorded or not.
    pub inside: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let argument = |name: &str, place, kind: &str| CallArgument {
            name: name.to_owned(),
            place,
            kind: kind.to_owned(),
        };
        let function = CallFunction {
            number: 7,
            function: "f".to_owned(),
            module: "/a b".to_owned(),
            arguments: vec![argument("n", 2, "s32"), argument("p", 0, "x64")],
            returned: Some(argument("ret", 0, "u8")),
        };
        assert_eq!(CallFunction::parse(&function.text()), Some(function));
        for wrong in ["", "x\nf\n", "1\nf", "1\nf\n\nn 2", "1\nf\n\nn 2 string"] {
            assert_eq!(CallFunction::parse(wrong), None, "{wrong:?}");
        }
        let many = |count| format!("1\nf\n{}", "\nn 2 u8".repeat(count));
        assert!(CallFunction::parse(&many(ARGUMENTS_MAX)).is_some());
        assert_eq!(CallFunction::parse(&many(ARGUMENTS_MAX + 1)), None);
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(CallFunction::parse(&format!("1\nf\n\n{long} 2 u8")), None);
        let text = |kind, register| argument("a", 0, kind).text(register);
        assert_eq!(text("s32", 0x1_ffff_ffff), "a=-1");
        assert_eq!(text("u8", 0x1ff), "a=255");
        assert_eq!(text("u64", u64::MAX), "a=18446744073709551615");
        assert_eq!(text("x16", 0x1_1234), "a=0x1234");
    }
}
