//! Interrupt context and scheduling state at an event: `common_flags` and `common_preempt_count` of every kernel payload.
//!
//! ```text
//! dNh2.   irqs off, need-resched, hard interrupt, preempt-depth 2, migration enabled     in ftrace's text
//! 2d 02   the same, as bytes 2 and 3 of the payload
//! ```
//! The text has the columns of `trace_print_lat_fmt` (kernel/trace/trace_output.c); RT kernels print two more.

use super::{Context, Field, FieldType};

/// The two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `common_flags`
    pub bits: u8,
    /// `common_preempt_count`: the depth in the lower half, that of disabled migration in the upper half.
    pub preempt_count: u8,
}

/// Bits of `common_flags` (include/linux/trace_events.h, `enum trace_flag_type`).
mod bit {
    pub(super) const IRQS_OFF: u8 = 0x01;
    /// Before Linux 6.13: the architecture does not report whether interrupts are off.
    pub(super) const NEED_RESCHED_LAZY: u8 = 0x02;
    pub(super) const NEED_RESCHED: u8 = 0x04;
    pub(super) const HARD_INTERRUPT: u8 = 0x08;
    pub(super) const SOFT_INTERRUPT: u8 = 0x10;
    pub(super) const PREEMPT_RESCHED: u8 = 0x20;
    pub(super) const NMI: u8 = 0x40;
    pub(super) const SOFTIRQS_OFF: u8 = 0x80;
}

/// Length of the flags of RT kernels, which have a column for lazy rescheduling and one for its depth.
const RT_LENGTH: usize = 6;

impl Flags {
    /// Name of the field with the bits.
    pub const BITS: &'static str = "common_flags";
    /// Name of the field with the depths.
    pub const PREEMPT_COUNT: &'static str = "common_preempt_count";

    /// Whether a field of this name is one of the two.
    pub fn has_field(name: &str) -> bool {
        name == Self::BITS || name == Self::PREEMPT_COUNT
    }

    /// The two fields of an event that has them as values, not in a payload.
    pub fn fields() -> [Field; 2] {
        [Self::BITS, Self::PREEMPT_COUNT].map(|name| Field {
            name: name.to_owned(),
            kind: FieldType::UInt(1),
            layout: None,
            declaration: format!("unsigned char {name}"),
        })
    }

    /// Returns the context in which the event occurred.
    #[inline]
    pub fn context(self) -> Context {
        match self.bits {
            bits if bits & bit::NMI != 0 => Context::Nmi,
            bits if bits & bit::HARD_INTERRUPT != 0 => Context::Irq,
            bits if bits & bit::SOFT_INTERRUPT != 0 => Context::Softirq,
            _ => Context::Task,
        }
    }

    /// Reads the characters that ftrace prints between CPU and time. `None` if one of them is unknown.
    pub fn from_text(text: &[u8]) -> Option<Flags> {
        let &[irqs, resched, ref rest @ ..] = text else {
            return None;
        };
        let (lazy, rest) = match (text.len() >= RT_LENGTH, rest) {
            (true, [lazy, rest @ ..]) => (*lazy, rest),
            _ => (b'.', rest),
        };
        let (&interrupt, rest) = rest.split_first()?;
        let (depth, migration) = match (text.len() >= RT_LENGTH, rest) {
            (_, []) => (b'.', b'.'),
            (false, [depth, rest @ ..]) => (*depth, rest.first().copied().unwrap_or(b'.')),
            // The second is the depth of lazy preemption.
            (true, [depth, rest @ ..]) => (*depth, rest.get(1).copied().unwrap_or(b'.')),
        };
        let irqs = match irqs {
            b'd' => bit::IRQS_OFF,
            b'D' => bit::IRQS_OFF | bit::SOFTIRQS_OFF,
            b'b' => bit::SOFTIRQS_OFF,
            b'X' => bit::NEED_RESCHED_LAZY,
            b'.' => 0,
            _ => return None,
        };
        Some(Flags {
            bits: irqs | resched_bits(resched)? | resched_bits(lazy)? | interrupt_bits(interrupt)?,
            preempt_count: depth_of(depth)? | depth_of(migration)? << 4,
        })
    }
}

fn resched_bits(letter: u8) -> Option<u8> {
    const NEED: u8 = bit::NEED_RESCHED;
    const PREEMPT: u8 = bit::PREEMPT_RESCHED;
    const LAZY: u8 = bit::NEED_RESCHED_LAZY;
    Some(match letter {
        b'B' => NEED | PREEMPT | LAZY,
        b'N' => NEED | PREEMPT,
        b'L' => PREEMPT | LAZY,
        b'b' => NEED | LAZY,
        b'n' => NEED,
        b'l' => LAZY,
        b'p' => PREEMPT,
        b'.' => 0,
        _ => return None,
    })
}

fn interrupt_bits(letter: u8) -> Option<u8> {
    Some(match letter {
        b'Z' => bit::NMI | bit::HARD_INTERRUPT,
        b'z' => bit::NMI,
        b'H' => bit::HARD_INTERRUPT | bit::SOFT_INTERRUPT,
        b'h' => bit::HARD_INTERRUPT,
        b's' => bit::SOFT_INTERRUPT,
        b'.' => 0,
        _ => return None,
    })
}

/// A depth in hexadecimal; a dot for none.
fn depth_of(digit: u8) -> Option<u8> {
    match digit {
        b'.' => Some(0),
        digit => char::from(digit).to_digit(16).map(|digit| digit as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_texts() {
        let flags = |text: &str| {
            let flags = Flags::from_text(text.as_bytes())?;
            Some((flags.bits, flags.preempt_count))
        };
        assert_eq!(flags("....."), Some((0, 0)));
        assert_eq!(flags("d..2."), Some((0x01, 0x02)));
        assert_eq!(flags("dNh2."), Some((0x2d, 0x02)));
        assert_eq!(flags("Dns31"), Some((0x95, 0x13)));
        assert_eq!(flags("d.Z."), Some((0x49, 0)));
        assert_eq!(flags("dBH4"), Some((0x3f, 0x04)));
        // RT: need-resched-lazy after need-resched, the depth of lazy preemption after the depth.
        assert_eq!(flags("dn.h21."), Some((0x0d, 0x02)));
        assert_eq!(flags("d.Ls1.2"), Some((0x33, 0x21)));
        assert_eq!(flags("d?.2."), None);
        assert_eq!(flags("dN"), None);
        assert_eq!(flags(""), None);
    }

    #[test]
    fn contexts_of_bits() {
        let contexts = [0x00, 0x11, 0x18, 0x49].map(|bits| {
            let flags = Flags {
                bits,
                preempt_count: 0,
            };
            flags.context()
        });
        let expected = [Context::Task, Context::Softirq, Context::Irq, Context::Nmi];
        assert_eq!(contexts, expected);
    }
}
