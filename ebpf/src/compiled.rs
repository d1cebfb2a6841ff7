//! The compiled programs. `cargo xtask bpf` builds them from the sources in this directory.

use aya::include_bytes_aligned;

/// Calls within the duration limits: calls.bpf.c.
pub const CALLS: &[u8] = include_bytes_aligned!("../objects/calls.bpf.o");
/// Time off the CPU: offcpu.bpf.c.
pub const OFF_CPU: &[u8] = include_bytes_aligned!("../objects/offcpu.bpf.o");
/// The same with user stacks by unwind tables: offcpu_walk.bpf.c.
pub const OFF_CPU_WALKED: &[u8] = include_bytes_aligned!("../objects/offcpu_walk.bpf.o");
/// Aggregations of hits, stack counts: agg.bpf.c.
pub const AGG: &[u8] = include_bytes_aligned!("../objects/agg.bpf.o");
/// The same with user stacks by unwind tables: agg_walk.bpf.c.
pub const AGG_WALKED: &[u8] = include_bytes_aligned!("../objects/agg_walk.bpf.o");
/// Aggregations of calls: agg_calls.bpf.c.
pub const AGG_CALLS: &[u8] = include_bytes_aligned!("../objects/agg_calls.bpf.o");
/// Aggregations of latencies between events: agg_latency.bpf.c.
pub const AGG_LATENCY: &[u8] = include_bytes_aligned!("../objects/agg_latency.bpf.o");
/// Walks of user stacks: walk.bpf.c.
pub const WALK: &[u8] = include_bytes_aligned!("../objects/walk.bpf.o");
