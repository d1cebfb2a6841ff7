//! Kinds of damage: bytes lost, bytes duplicated, bytes overwritten, a page never written.

/// Number of places for each kind, evenly spread over the file, including its front and its last page.
pub(crate) const PLACES: usize = 24;
const PAGE_BYTES: usize = 4096;
/// Numbers of bytes that are damaged together.
pub(crate) const SIZES: [usize; 5] = [1, 9, 64, 512, PAGE_BYTES];
/// A file has at least this many times the damaged bytes: in smaller ones, they would be most of the file.
const ROOM: usize = 48;
/// Minimum size of files that lose pages.
const LARGE_BYTES: usize = 48 << 10;

/// A kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// This many bytes are missing.
    Lost(usize),
    /// This many bytes are there twice.
    Doubled(usize),
    /// This many bytes are garbage.
    Garbage(usize),
    /// A disk page is zeros.
    Zeros,
}

impl Damage {
    /// All kinds with all sizes.
    pub(crate) fn all() -> Vec<Damage> {
        let sized = [Damage::Lost, Damage::Doubled, Damage::Garbage];
        let sized = sized.iter().flat_map(|kind| SIZES.map(kind));
        sized.chain([Damage::Zeros]).collect()
    }

    /// Whether every test run measures it.
    pub(crate) fn is_usual(self) -> bool {
        use Damage::{Doubled, Garbage, Lost, Zeros};
        matches!(
            self,
            Lost(1 | 9 | PAGE_BYTES) | Doubled(1) | Garbage(64) | Zeros
        )
    }

    pub(crate) fn name(self) -> String {
        match self {
            Damage::Lost(count) => format!("{count} lost"),
            Damage::Doubled(count) => format!("{count} doubled"),
            Damage::Garbage(count) => format!("{count} overwritten"),
            Damage::Zeros => "a page of zeros".to_owned(),
        }
    }

    /// Number of damaged bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Damage::Lost(count) | Damage::Doubled(count) | Damage::Garbage(count) => count,
            Damage::Zeros => PAGE_BYTES,
        }
    }

    /// Whether a file is large enough.
    pub(crate) fn fits(self, length: usize) -> bool {
        match self {
            Damage::Zeros => length >= LARGE_BYTES,
            _ => length >= ROOM * self.size(),
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
        let end = (offset + self.size()).min(bytes.len());
        match self {
            Damage::Garbage(_) => {
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ (place as u64 + 1);
                for byte in &mut damaged[offset..end] {
                    state ^= state >> 12;
                    state ^= state << 25;
                    state ^= state >> 27;
                    *byte = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8;
                }
            }
            Damage::Lost(_) => drop(damaged.drain(offset..end)),
            Damage::Doubled(_) => {
                damaged.splice(offset..offset, bytes[offset..end].iter().copied());
            }
            Damage::Zeros => damaged[offset..end].fill(0),
        }
        damaged
    }
}
