//! Numbers of an expression, as C has them.

/// A number, and whether its C type is unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Number {
    pub(super) bits: u64,
    pub(super) unsigned: bool,
}

impl Number {
    pub(super) fn signed(bits: u64) -> Number {
        Number {
            bits,
            unsigned: false,
        }
    }

    pub(super) fn unsigned(bits: u64) -> Number {
        Number {
            bits,
            unsigned: true,
        }
    }

    pub(super) fn truth(self) -> bool {
        self.bits != 0
    }
}
