//! Latencies from one event to another: ebpf/src/agg_latency.bpf.c.

#![expect(unsafe_code, reason = "plain structs that the kernel reads and writes")]

use aya::Pod;

use super::{Fetch, Predicate, Saved};

/// Maximum number of events that can begin a latency.
pub const MOST_STARTS: usize = 4;
/// Maximum number of parts of the key that start and end share.
pub const MOST_LATENCY_KEYS: usize = 3;

/// An event that begins latencies (`struct latency_start`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencyStart {
    /// Its key.
    pub key: [Fetch; MOST_LATENCY_KEYS],
    /// The values to save.
    pub saved: Saved,
    /// The hits that count.
    pub predicate: Predicate,
}

/// Constants of agg_latency.bpf.c (`struct latency_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencySettings {
    /// Whether the first part of the key is a TID, which selects the recorded latencies.
    pub is_by_thread: u32,
    /// 0
    pub unused: u32,
    /// The key at the end.
    pub end_key: [Fetch; MOST_LATENCY_KEYS],
    /// The events that begin.
    pub starts: [LatencyStart; MOST_STARTS],
}

// SAFETY: plain integers in C layout, valid for any bits; no padding (checked below).
unsafe impl Pod for LatencySettings {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_program() {
        let key = MOST_LATENCY_KEYS * size_of::<Fetch>();
        let start = key + size_of::<Saved>() + size_of::<Predicate>();
        assert_eq!(size_of::<LatencyStart>(), start);
        assert_eq!(size_of::<LatencySettings>(), 8 + key + MOST_STARTS * start);
    }
}
