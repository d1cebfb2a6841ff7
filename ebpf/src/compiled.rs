//! The compiled programs. `cargo xtask bpf` makes them of the sources beside this file.

use aya::include_bytes_aligned;

/// Calls that last as long as was asked for: calls.bpf.c.
pub const CALLS: &[u8] = include_bytes_aligned!("../objects/calls.bpf.o");
/// Time off the CPU: offcpu.bpf.c.
pub const OFF_CPU: &[u8] = include_bytes_aligned!("../objects/offcpu.bpf.o");
/// Aggregations and counts of stacks: agg.bpf.c.
pub const AGG: &[u8] = include_bytes_aligned!("../objects/agg.bpf.o");
