//! Conditions for hits: ebpf/src/predicate.h.

#![expect(unsafe_code, reason = "plain structs that the kernel reads and writes")]

use aya::Pod;

use super::Fetch;

/// Maximum number of conditions of a [`Predicate`].
pub const MOST_CONDITIONS: usize = 6;
/// Words of a string in a comparison; it ends with a NUL.
pub const CONDITION_WORDS: usize = 8;

/// Comparison of a value with a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Test {
    /// No condition.
    #[default]
    None,
    /// Equal.
    Equal,
    /// Less.
    Less,
    /// Greater.
    Greater,
    /// Any common bit.
    Bits,
    /// A string comparison: equal bytes where the mask has ones.
    Text,
}

/// The compared value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subject {
    /// The fetched value.
    #[default]
    Field,
    /// Comm.
    Comm,
    /// CPU.
    Cpu,
    /// TID.
    Thread,
    /// Nanoseconds from the beginning to the end.
    Duration,
    /// Saved at the beginning, in [`Condition::place`].
    Saved,
}

/// One comparison (`struct condition`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Condition {
    /// [`Test`]
    pub test: u32,
    /// [`Subject`]
    pub subject: u32,
    /// Where a saved value is.
    pub place: u32,
    /// 0
    pub unused: u32,
    /// The constant, if it is a number.
    pub constant: u64,
    /// The constant, if it is a string.
    pub text: [u64; CONDITION_WORDS],
    /// Mask of the bytes to compare.
    pub mask: [u64; CONDITION_WORDS],
    /// The field.
    pub fetch: Fetch,
}

/// Filter for hits (`struct predicate`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicate {
    /// Truth table: bit N is the result if exactly the conditions with bits set in N hold.
    pub truth: u64,
    /// The conditions.
    pub conditions: [Condition; MOST_CONDITIONS],
}

impl Default for Predicate {
    /// Matches every hit.
    fn default() -> Predicate {
        Predicate {
            truth: u64::MAX,
            conditions: [Condition::default(); MOST_CONDITIONS],
        }
    }
}

// SAFETY: plain integers in C layout, valid for any bits; no padding (checked below).
unsafe impl Pod for Predicate {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(
            size_of::<Predicate>(),
            8 + MOST_CONDITIONS * (24 + CONDITION_WORDS * 16 + size_of::<Fetch>())
        );
    }
}
