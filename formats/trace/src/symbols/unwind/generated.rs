//! Unwind rules of generated code that its runtime describes, in the form of a file's table.
//!
//! ```text
//! 0x0      Interpreter   caller's rsp at rbp-8, return address at rbp+8, its rbp at rbp
//! 0x17e50  nothing known
//! 0x18000  Entry         return address at rsp
//! 0x1801c  Frame(4)      return address at rsp+24, the caller's rbp at rsp+16
//! ```

use super::rule::{
    FLAG_AT_RBP, FLAG_INDIRECT, FLAG_RETURN_AT_RBP, Frame, RBP, RSP, Rbp, Row, Rule, Wide,
};

/// How code leads to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GeneratedRule {
    /// It has no frame: the return address is at rsp.
    Entry,
    /// A frame of so many words, with the return address and the caller's rbp in the outermost ones.
    Frame(u16),
    /// It keeps frame pointers.
    FramePointer,
    /// A frame pointer, and below it the caller's rsp, since an adapter may have pushed arguments in between (HotSpot).
    Interpreter,
}

/// The rules of an area of generated code.
pub struct GeneratedCode {
    /// By address in the area.
    pub rows: Vec<Row>,
    /// Rules that do not fit into a row.
    pub wide: Vec<Wide>,
}

/// The rule of an interpreter.
const INTERPRETER: Wide = Wide {
    base: RBP,
    flags: FLAG_INDIRECT | FLAG_AT_RBP | FLAG_RETURN_AT_RBP,
    return_address: 0,
    offset: -8,
    indirect: 0,
    rbp: 0,
};

impl GeneratedCode {
    /// Takes rules with the start and end of their code, by start. In other code, which was generated later, stacks end, or follow
    /// frame pointers if all code keeps them.
    pub fn of(rules: &[(u32, u32, GeneratedRule)], keeps_frame_pointers: bool) -> GeneratedCode {
        let mut rows: Vec<Row> = Vec::new();
        let mut known_to = 0;
        let other = match keeps_frame_pointers {
            true => Rule::Gap,
            false => Rule::Opaque,
        };
        let unknown = |address| other.row(address, |_| None);
        for &(start, end, rule) in rules {
            if start > known_to || rows.is_empty() {
                rows.push(unknown(known_to));
            }
            // Of two rules for the same code, the later one is taken.
            rows.pop_if(|last| last.address == start);
            let frame = |words: u16| {
                let rbp = Rbp::AtCfa(-16);
                Rule::Frame(Frame::at(RSP, i32::from(words) * 8, rbp))
            };
            let rule = match rule {
                GeneratedRule::Entry => Rule::Frame(Frame::ENTRY),
                GeneratedRule::Frame(words) => frame(words),
                GeneratedRule::FramePointer => Rule::Gap,
                GeneratedRule::Interpreter => Rule::Frame(Frame::of_wide(&INTERPRETER)),
            };
            rows.push(rule.row(start, |_| Some(0)));
            known_to = end.max(known_to);
        }
        rows.push(unknown(known_to));
        GeneratedCode {
            rows,
            wide: vec![INTERPRETER],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_between_blobs_is_unknown() {
        let blobs = [
            (0, 0x100, GeneratedRule::Interpreter),
            (0x100, 0x110, GeneratedRule::Entry),
            (0x110, 0x180, GeneratedRule::Frame(4)),
            (0x200, 0x280, GeneratedRule::FramePointer),
        ];
        let code = GeneratedCode::of(&blobs, false);
        let rules = code
            .rows
            .iter()
            .map(|row| (row.address, Rule::of_row(*row, &code.wide)));
        let rules: Vec<(u32, Rule)> = rules.collect();
        assert_eq!(
            rules,
            [
                (0, Rule::Frame(Frame::of_wide(&INTERPRETER))),
                (0x100, Rule::Frame(Frame::ENTRY)),
                (0x110, Rule::Frame(Frame::at(RSP, 32, Rbp::AtCfa(-16)))),
                (0x180, Rule::Opaque),
                (0x200, Rule::Gap),
                (0x280, Rule::Opaque),
            ]
        );
        let kept = GeneratedCode::of(&blobs, true);
        assert_eq!(Rule::of_row(kept.rows[3], &kept.wide), Rule::Gap);
    }
}
