//! Unwind rules of x86-64 code: where the caller's stack pointer, return address and rbp are.
//!
//! ```text
//! 0x11a7  CFA = rsp+32, rbp at CFA-16        (CFA: the caller's rsp; the return address is at CFA-8)
//! 0x11c0  CFA = rbp+16, rbp at CFA-16
//! 0x1020  PLT: CFA = rsp+8, after its push rsp+16
//! 0x3c04f signal frame: registers in the ucontext at rsp
//! ```
//! In a table, a rule is 4 bytes after the address from which it applies ([`Row`]), so that a BPF program can search
//! it. Other rules are [`Wide`]; a file has few distinct ones.

/// Register numbers of DWARF (System V ABI for x86-64, figure 3.36).
pub(super) const RBP: u8 = 6;
pub(super) const RSP: u8 = 7;
pub(super) const RA: u8 = 16;

/// Maximum number of different wide rules of a table.
pub const WIDE_RULES_MAX: usize = 1024;

/// The way from a frame to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// No table covers this code.
    Gap,
    /// The outermost frame of a thread.
    Root,
    /// A rule of the table that this type cannot express.
    Opaque,
    /// A stub of the procedure linkage table: it pushes one word before the offset `pushed_from` of its 16 bytes.
    Plt {
        pushed_from: u8,
    },
    /// The frame that the kernel makes for a signal handler (`struct ucontext`).
    Signal,
    /// The caller's frame is on another stack, and rbp points to it.
    Switch,
    Frame(Frame),
}

/// The rule of ordinary code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    /// DWARF number of the base register of the CFA.
    pub(super) base: u8,
    pub(super) offset: i32,
    /// The CFA is not `base + offset`, but the word there plus this.
    pub(super) indirect: Option<i32>,
    /// Where the return address is, relative to the CFA.
    pub(super) return_address: i32,
    pub(super) rbp: Rbp,
}

/// The caller's rbp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rbp {
    /// Still in the register.
    Same,
    /// Not known.
    Unknown,
    /// In memory, relative to the CFA,
    AtCfa(i32),
    /// or to this frame's rbp.
    AtFrame(i32),
}

/// A rule and the first address that it applies to, up to the next row.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Row {
    /// Relative to [`UnwindTable::base`](super::UnwindTable::base).
    pub address: u32,
    /// Kind of the rule in the lower three bits; its words or the index of a wide rule in the others.
    pub cfa: u16,
    /// Words from the CFA to the saved rbp, or [`RBP_SAME`], [`RBP_UNKNOWN`].
    pub rbp: i16,
}

/// A rule that does not fit into a row.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Wide {
    /// DWARF number of the base register of the CFA.
    pub base: u8,
    /// Bit 0: the CFA is in memory. Bit 1: rbp is saved relative to rbp, not to the CFA. Bit 2: the return address is at rbp+8,
    /// wherever the CFA is (generated code).
    pub flags: u8,
    /// Words from the CFA to the return address.
    pub return_address: i16,
    /// Added to the base.
    pub offset: i32,
    /// Added to the word in memory.
    pub indirect: i32,
    /// Bytes to the saved rbp, or [`RBP_SAME`], [`RBP_UNKNOWN`].
    pub rbp: i32,
}

/// rbp is unchanged.
pub const RBP_SAME: i16 = i16::MAX;
/// rbp is lost.
pub const RBP_UNKNOWN: i16 = i16::MIN;

const KIND_BITS: u32 = 3;
const WORDS_MAX: u16 = u16::MAX >> KIND_BITS;

const GAP: u16 = 0;
const RSP_WORDS: u16 = 1;
const RBP_WORDS: u16 = 2;
const ROOT: u16 = 3;
const PLT: u16 = 4;
const SIGNAL: u16 = 5;
/// The kind of a signal with another number.
const SWITCH: u16 = SIGNAL | 1 << KIND_BITS;
const WIDE: u16 = 6;
const OPAQUE: u16 = 7;

pub(super) const FLAG_INDIRECT: u8 = 1;
pub(super) const FLAG_AT_RBP: u8 = 2;
pub(super) const FLAG_RETURN_AT_RBP: u8 = 4;

impl Wide {
    /// As two words of memory.
    pub fn words(&self) -> [u64; 2] {
        let Wide {
            base,
            flags,
            return_address,
            offset,
            indirect,
            rbp,
        } = *self;
        let half = |number: i32| u64::from(number as u32);
        let head = u64::from(base) | u64::from(flags) << 8;
        let head = head | u64::from(return_address as u16) << 16 | half(offset) << 32;
        [head, half(indirect) | half(rbp) << 32]
    }
}

impl Rule {
    /// Returns the row for this rule. `wide` returns the index of a wide rule, if there is room for it.
    pub(super) fn row(self, address: u32, wide: impl FnOnce(Wide) -> Option<u16>) -> Row {
        let (cfa, rbp) = match self {
            Rule::Gap => (GAP, RBP_SAME),
            Rule::Root => (ROOT, RBP_SAME),
            Rule::Opaque => (OPAQUE, RBP_SAME),
            Rule::Plt { pushed_from } => (PLT | u16::from(pushed_from) << KIND_BITS, RBP_SAME),
            Rule::Signal => (SIGNAL, RBP_SAME),
            Rule::Switch => (SWITCH, RBP_SAME),
            Rule::Frame(frame) => match frame.narrow() {
                Some(narrow) => narrow,
                None => match frame.wide().and_then(wide) {
                    Some(index) => (WIDE | index << KIND_BITS, RBP_SAME),
                    None => (OPAQUE, RBP_SAME),
                },
            },
        };
        Row { address, cfa, rbp }
    }

    /// The rule of a row.
    pub(super) fn of_row(row: Row, wide: &[Wide]) -> Rule {
        let number = row.cfa >> KIND_BITS;
        let base = match row.cfa & ((1 << KIND_BITS) - 1) {
            GAP => return Rule::Gap,
            ROOT => return Rule::Root,
            PLT => {
                return Rule::Plt {
                    pushed_from: number as u8,
                };
            }
            SIGNAL if row.cfa == SWITCH => return Rule::Switch,
            SIGNAL => return Rule::Signal,
            WIDE => {
                let rule = wide.get(usize::from(number));
                return rule.map_or(Rule::Opaque, |wide| Rule::Frame(Frame::of_wide(wide)));
            }
            RSP_WORDS => RSP,
            RBP_WORDS => RBP,
            _ => return Rule::Opaque,
        };
        let rbp = match row.rbp {
            RBP_SAME => Rbp::Same,
            RBP_UNKNOWN => Rbp::Unknown,
            words => Rbp::AtCfa(i32::from(words) * 8),
        };
        Rule::Frame(Frame::at(base, i32::from(number) * 8, rbp))
    }
}

impl Frame {
    /// The frame at an entry of a function, and at its return.
    pub(super) const ENTRY: Frame = Frame::at(RSP, 8, Rbp::Same);

    /// The CFA is at a register plus bytes, the return address directly below it.
    pub(super) const fn at(base: u8, offset: i32, rbp: Rbp) -> Frame {
        Frame {
            base,
            offset,
            indirect: None,
            return_address: -8,
            rbp,
        }
    }

    /// `cfa` and `rbp` of a row, if the rule fits.
    fn narrow(self) -> Option<(u16, i16)> {
        let kind = match self.base {
            RSP => RSP_WORDS,
            RBP => RBP_WORDS,
            _ => return None,
        };
        if self.indirect.is_some() || self.return_address != -8 {
            return None;
        }
        let words = u16::try_from(words(self.offset)?).ok();
        let words = words.filter(|&words| words <= WORDS_MAX)?;
        let rbp = match self.rbp {
            Rbp::Same => RBP_SAME,
            Rbp::Unknown => RBP_UNKNOWN,
            Rbp::AtFrame(_) => return None,
            Rbp::AtCfa(bytes) => {
                let words = i16::try_from(self::words(bytes)?).ok()?;
                (words != RBP_SAME && words != RBP_UNKNOWN).then_some(words)?
            }
        };
        Some((kind | words << KIND_BITS, rbp))
    }

    fn wide(self) -> Option<Wide> {
        let (at_rbp, rbp) = match self.rbp {
            Rbp::Same => (0, i32::from(RBP_SAME)),
            Rbp::Unknown => (0, i32::from(RBP_UNKNOWN)),
            Rbp::AtCfa(bytes) => (0, bytes),
            Rbp::AtFrame(bytes) => (FLAG_AT_RBP, bytes),
        };
        let is_mark = |bytes| bytes == i32::from(RBP_SAME) || bytes == i32::from(RBP_UNKNOWN);
        if matches!(self.rbp, Rbp::AtCfa(bytes) | Rbp::AtFrame(bytes) if is_mark(bytes)) {
            return None;
        }
        let indirect = self.indirect.map_or(0, |_| FLAG_INDIRECT);
        Some(Wide {
            base: self.base,
            flags: indirect | at_rbp,
            return_address: i16::try_from(words(self.return_address)?).ok()?,
            offset: self.offset,
            indirect: self.indirect.unwrap_or(0),
            rbp,
        })
    }

    pub(super) fn of_wide(wide: &Wide) -> Frame {
        const SAME: i32 = RBP_SAME as i32;
        const UNKNOWN: i32 = RBP_UNKNOWN as i32;
        Frame {
            base: wide.base,
            offset: wide.offset,
            indirect: (wide.flags & FLAG_INDIRECT != 0).then_some(wide.indirect),
            return_address: i32::from(wide.return_address) * 8,
            rbp: match (wide.rbp, wide.flags & FLAG_AT_RBP) {
                (SAME, _) => Rbp::Same,
                (UNKNOWN, _) => Rbp::Unknown,
                (bytes, 0) => Rbp::AtCfa(bytes),
                (bytes, _) => Rbp::AtFrame(bytes),
            },
        }
    }
}

/// A multiple of 8 in words.
fn words(bytes: i32) -> Option<i32> {
    (bytes % 8 == 0).then_some(bytes / 8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rbp() -> impl Strategy<Value = Rbp> {
        prop_oneof![
            Just(Rbp::Same),
            Just(Rbp::Unknown),
            (-40_000i32..40_000).prop_map(|words| Rbp::AtCfa(words * 8)),
            any::<i16>().prop_map(|bytes| Rbp::AtCfa(bytes.into())),
            any::<i16>().prop_map(|bytes| Rbp::AtFrame(bytes.into())),
        ]
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let frame = (
            prop_oneof![4 => Just(RSP), 4 => Just(RBP), 1 => 0u8..17],
            prop_oneof![(0i32..20_000).prop_map(|words| words * 8), any::<i32>()],
            prop_oneof![4 => Just(None), 1 => any::<i32>().prop_map(Some)],
            prop_oneof![4 => Just(-8), 1 => (-9i32..9).prop_map(|words| words * 8)],
            rbp(),
        );
        let frame = frame.prop_map(|(base, offset, indirect, return_address, rbp)| {
            Rule::Frame(Frame {
                base,
                offset,
                indirect,
                return_address,
                rbp,
            })
        });
        let others = [
            Rule::Gap,
            Rule::Root,
            Rule::Opaque,
            Rule::Plt { pushed_from: 11 },
            Rule::Signal,
            Rule::Switch,
        ];
        prop_oneof![1 => prop::sample::select(others.to_vec()), 4 => frame]
    }

    proptest! {
        #[test]
        fn rules_read_back(rule in rule()) {
            let mut wide = Vec::new();
            let row = rule.row(7, |rule| {
                wide.push(rule);
                Some(0)
            });
            let back = Rule::of_row(row, &wide);
            // A distance that equals a mark cannot be a row.
            let marks = [RBP_SAME, RBP_UNKNOWN].map(i32::from);
            let is_mark = matches!(
                rule,
                Rule::Frame(Frame { rbp: Rbp::AtCfa(bytes) | Rbp::AtFrame(bytes), .. })
                    if marks.contains(&bytes) || marks.contains(&(bytes / 8))
            );
            prop_assert!(back == rule || is_mark && back == Rule::Opaque);
        }
    }

    #[test]
    fn common_rules_fit_in_a_row() {
        let frame = Frame::at(RSP, 32, Rbp::AtCfa(-16));
        let row = Rule::Frame(frame).row(0x11a7, |_| unreachable!());
        let expected = Row {
            address: 0x11a7,
            cfa: 4 << 3 | 1,
            rbp: -2,
        };
        assert_eq!(row, expected);
        assert_eq!(size_of::<Row>(), 8);
        assert_eq!(size_of::<Wide>(), 16);
    }
}
