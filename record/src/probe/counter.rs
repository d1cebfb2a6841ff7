//! Counters and clocks with fixed numbers in the kernel: hardware, hardware caches, software, raw `rNNN`.
//!
//! The names are perf's (`perf list hw sw cache`; include/uapi/linux/perf_event.h, enum perf_hw_id).

use perfquet_events::counters;

use super::{Kind, Probe, event_attr, modifiers};
use crate::failure::Failure;
use crate::sys::perf_event::{Attr, abi};

/// Software events that never count anything by themselves.
const WITHOUT_SAMPLES: [u64; 2] = [
    abi::PERF_COUNT_SW_DUMMY as u64,
    abi::PERF_COUNT_SW_BPF_OUTPUT as u64,
];

const CACHES: &[&str] = &[
    "L1-dcache",
    "L1-icache",
    "LLC",
    "dTLB",
    "iTLB",
    "branch",
    "node",
];
/// Operations of caches: each cache has a load and a store per operation, and its misses.
const CACHE_OPERATIONS: &[(&str, &str)] = &[
    ("loads", "load-misses"),
    ("stores", "store-misses"),
    ("prefetches", "prefetch-misses"),
];

/// Parses the name of a counter; `None` if it is not one.
pub(crate) fn parse(name: &str, modifiers: &str) -> Result<Option<Probe>, Failure> {
    let Some((kind, config)) = number_of(name) else {
        return Ok(None);
    };
    new(name, kind, config, modifiers).map(Some)
}

/// Returns the default event: cycles at the highest precision.
pub(crate) fn default() -> Result<Probe, Failure> {
    new(
        "cycles",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_CPU_CYCLES.into(),
        "P",
    )
    .map(|probe| Probe {
        name: "cycles".into(),
        ..probe
    })
}

/// Returns cpu-clock with the exclusions of `instead_of`, for hosts without a counter of cycles.
pub(crate) fn clock(instead_of: &Probe) -> Probe {
    let modifiers = instead_of
        .name
        .split_once(':')
        .map_or("", |(_, modifiers)| modifiers);
    let modifiers: String = modifiers
        .chars()
        .filter(|m| "ukhGHI".contains(*m))
        .collect();
    let mut attr = instead_of.attr;
    attr.type_ = abi::PERF_TYPE_SOFTWARE;
    attr.config = abi::PERF_COUNT_SW_CPU_CLOCK.into();
    attr.set_precise_ip(0);
    Probe {
        name: named("cpu-clock", &modifiers),
        attr,
        wants_precision: false,
        pattern: None,
        ..instead_of.clone()
    }
}

/// Whether it is the hardware counter of cycles, which a clock can replace.
pub(crate) fn is_cycles(attr: &Attr) -> bool {
    attr.type_ == abi::PERF_TYPE_HARDWARE && attr.config == u64::from(abi::PERF_COUNT_HW_CPU_CYCLES)
}

/// Whether it is a software event that the kernel counts in its own code, so that it never occurs in user space.
pub(crate) fn occurs_in_kernel(attr: &Attr) -> bool {
    let switches = [
        abi::PERF_COUNT_SW_CONTEXT_SWITCHES,
        abi::PERF_COUNT_SW_CPU_MIGRATIONS,
        abi::PERF_COUNT_SW_CGROUP_SWITCHES,
    ];
    attr.type_ == abi::PERF_TYPE_SOFTWARE
        && switches
            .iter()
            .any(|&event| attr.config == u64::from(event))
}

/// Whether it counts nanoseconds.
pub(crate) fn is_clock(attr: &Attr) -> bool {
    let clocks = [abi::PERF_COUNT_SW_CPU_CLOCK, abi::PERF_COUNT_SW_TASK_CLOCK];
    attr.type_ == abi::PERF_TYPE_SOFTWARE
        && clocks.iter().any(|&clock| attr.config == u64::from(clock))
}

/// Whether the count of a tracepoint is a sum of nanoseconds: the kernel adds the time of each hit (`__perf_count` in trace/events/sched.h).
pub(crate) fn adds_times(name: &str, attr: &Attr) -> bool {
    let name = name.strip_prefix("sched:sched_stat_");
    attr.type_ == abi::PERF_TYPE_TRACEPOINT
        && name
            .is_some_and(|name| ["runtime", "wait", "sleep", "iowait", "blocked"].contains(&name))
}

/// Whether an event without the kernel would count something: it is neither one of the kernel's own, nor asked for in the kernel only.
pub(crate) fn occurs_without_kernel(attr: &Attr) -> bool {
    !occurs_in_kernel(attr) && attr.exclude_user() == 0
}

/// Returns all names, for `--list` and for hints.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let tables = counters::HARDWARE.iter().chain(&counters::SOFTWARE);
    let numbered = tables.flatten().copied();
    let caches = CACHES.iter().flat_map(|cache| {
        let operations = CACHE_OPERATIONS.iter();
        operations
            .flat_map(move |(hit, miss)| [format!("{cache}-{hit}"), format!("{cache}-{miss}")])
    });
    numbered
        .filter(|name| number_of(name).is_some())
        .map(String::from)
        .chain(caches)
}

fn new(name: &str, kind: u32, config: u64, modifiers: &str) -> Result<Probe, Failure> {
    let mut attr = event_attr::counter(kind, config);
    let wants_precision = modifiers::apply(name, modifiers, &mut attr)?;
    Ok(Probe {
        name: named(name, modifiers),
        attr,
        kind: Kind::Sampled,
        filter: None,
        wants_precision,
        pattern: None,
        members: Vec::new(),
    })
}

fn named(name: &str, modifiers: &str) -> String {
    match modifiers {
        "" => name.to_owned(),
        _ => format!("{name}:{modifiers}"),
    }
}

/// Returns type and config.
fn number_of(name: &str) -> Option<(u32, u64)> {
    let find = |names| counters::number(names, name).map(|number| number as u64);
    if let Some(config) = find(&counters::HARDWARE) {
        return Some((abi::PERF_TYPE_HARDWARE, config));
    }
    if let Some(config) = find(&counters::SOFTWARE)
        && !WITHOUT_SAMPLES.contains(&config)
    {
        return Some((abi::PERF_TYPE_SOFTWARE, config));
    }
    cache(name).or_else(|| raw(name))
}

/// `L1-dcache-load-misses`: cache | operation << 8 | result << 16.
fn cache(name: &str) -> Option<(u32, u64)> {
    for (cache, cache_name) in CACHES.iter().enumerate() {
        let Some(rest) = name
            .strip_prefix(cache_name)
            .and_then(|rest| rest.strip_prefix('-'))
        else {
            continue;
        };
        for (operation, (hit, miss)) in CACHE_OPERATIONS.iter().enumerate() {
            let result = match rest {
                _ if rest == *hit => 0,
                _ if rest == *miss => 1,
                _ => continue,
            };
            let config = cache as u64 | (operation as u64) << 8 | result << 16;
            return Some((abi::PERF_TYPE_HW_CACHE, config));
        }
    }
    None
}

/// `r1a8`: a raw event code of the CPU.
fn raw(name: &str) -> Option<(u32, u64)> {
    let digits = name.strip_prefix('r')?;
    let config = u64::from_str_radix(digits, 16).ok()?;
    Some((abi::PERF_TYPE_RAW, config))
}
