//! Kinds of damage: garbage, a byte lost, a byte duplicated, a page never written.

/// Number of places for each kind, evenly spread over the file, including its front and its last page.
pub(crate) const PLACES: usize = 24;
const GARBAGE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;
/// Minimum size of files that lose pages.
pub(crate) const LARGE_BYTES: usize = 48 << 10;

/// A kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// 64 bytes are overwritten.
    Garbage,
    /// A byte is missing.
    Lost,
    /// A byte is duplicated.
    Doubled,
    /// A disk page is zeros.
    Zeros,
}

impl Damage {
    pub(crate) const ALL: [Damage; 4] = [
        Damage::Garbage,
        Damage::Lost,
        Damage::Doubled,
        Damage::Zeros,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Damage::Garbage => "64 garbage bytes",
            Damage::Lost => "one byte lost",
            Damage::Doubled => "one byte doubled",
            Damage::Zeros => "a page of zeros",
        }
    }

    /// Offset of the damage at one of `places` places.
    pub(crate) fn offset(self, length: usize, place: usize, places: usize) -> usize {
        // With fewer places, none is at the very front: it would count for more than its bytes.
        let place = 2 * place as u64 + u64::from(places < PLACES);
        let offset = (length as u64 * place / (2 * places as u64)) as usize;
        match self {
            // Aligned like disk pages.
            Damage::Zeros => offset / PAGE_BYTES * PAGE_BYTES,
            _ => offset,
        }
    }

    /// The damaged file.
    pub(crate) fn apply(self, bytes: &[u8], offset: usize, place: usize) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        match self {
            Damage::Garbage => {
                let end = (offset + GARBAGE_BYTES).min(damaged.len());
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ (place as u64 + 1);
                for byte in &mut damaged[offset..end] {
                    state ^= state >> 12;
                    state ^= state << 25;
                    state ^= state >> 27;
                    *byte = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8;
                }
            }
            Damage::Lost => {
                damaged.remove(offset);
            }
            Damage::Doubled => damaged.insert(offset, bytes[offset]),
            Damage::Zeros => {
                let end = (offset + PAGE_BYTES).min(damaged.len());
                damaged[offset..end].fill(0);
            }
        }
        damaged
    }
}
