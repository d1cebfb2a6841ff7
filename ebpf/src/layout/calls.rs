//! Calls that are paired in the kernel: ebpf/src/open_calls.h, ebpf/src/measured.h, ebpf/src/calls.bpf.c.

#![expect(unsafe_code, reason = "plain structs that the kernel reads and writes")]

use aya::Pod;

use super::Fetch;

/// Maximum number of arguments that calls.bpf.c records at an entry.
pub const MOST_ARGUMENTS: usize = 6;

/// Constants of calls.bpf.c (`struct call_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallSettings {
    /// Minimum duration in nanoseconds,
    pub least: u64,
    /// and maximum duration.
    pub most: u64,
    /// Positions of the arguments in `struct pt_regs`, in words.
    pub arguments: [u32; MOST_ARGUMENTS],
    /// Position of the return value.
    pub returned: u32,
    /// 0
    pub unused: u32,
}

/// Maximum number of words saved at the beginning of a call or a latency.
pub const MOST_SAVED: usize = 6;
/// Maximum number of long strings saved at the entry of a call.
pub const MOST_TEXTS: usize = 2;

/// The way a value is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Saving {
    /// Nothing is saved.
    #[default]
    Nothing,
    /// A fetched number.
    Number,
    /// A fetched string of at most 16 bytes, in this slot and the next.
    ShortText,
    /// Comm, likewise.
    Comm,
}

/// A value to save at a beginning (`struct saved_value`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SavedValue {
    /// [`Saving`]
    pub saving: u32,
    /// 0
    pub unused: u32,
    /// The instructions to fetch it.
    pub fetch: Fetch,
}

/// The values to save at a beginning (`struct saved`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Saved {
    /// Values by slot.
    pub values: [SavedValue; MOST_SAVED],
    /// Long strings, in the following slots; for calls only.
    pub texts: [Fetch; MOST_TEXTS],
}

/// A call that is open (`struct open_call`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenCall {
    /// Time of its entry.
    pub time: u64,
    /// Nanoseconds in nested calls.
    pub inside: u64,
    /// Number of its function.
    pub function: u32,
    /// Whether a value to save could not be read.
    pub is_unreadable: u32,
    /// Saved values.
    pub saved: [u64; MOST_SAVED],
}

/// Open calls of a thread (`struct lane`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lane {
    /// Number of open calls.
    pub depth: u64,
    /// The first open call.
    pub outermost: OpenCall,
}

// SAFETY: plain integers in C layout, valid for any bits; no padding (checked below).
unsafe impl Pod for CallSettings {}
// SAFETY: as above.
unsafe impl Pod for Saved {}
// SAFETY: as above.
unsafe impl Pod for Lane {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_headers() {
        assert_eq!(size_of::<CallSettings>(), 48);
        let fetch = size_of::<Fetch>();
        assert_eq!(
            size_of::<Saved>(),
            MOST_SAVED * (8 + fetch) + MOST_TEXTS * fetch
        );
        assert_eq!(size_of::<Lane>(), 32 + MOST_SAVED * 8);
    }
}
