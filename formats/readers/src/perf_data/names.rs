//! Names of events that the file does not name, equal to perf's.
//!
//! `cycles:u`, `L1-dcache-load-misses`, `cpu-clock`, `mem:0x1000:w`, `raw 0x1a8`, with the modifiers that perf's
//! `evsel__add_modifiers` (tools/perf/util/evsel.c) derives from the exclude bits.

use perfquet_events::counters;
use perfquet_events::event::EventKind;

use crate::perf_data::attr::{Attr, event_type};

const CACHES: [&str; 7] = [
    "L1-dcache",
    "L1-icache",
    "LLC",
    "dTLB",
    "iTLB",
    "branch",
    "node",
];
/// Singular with "-misses", otherwise plural.
const CACHE_OPERATIONS: [(&str, &str); 3] = [
    ("load", "loads"),
    ("store", "stores"),
    ("prefetch", "prefetches"),
];

/// Returns the name with modifiers, as printed by `perf script`.
pub(super) fn synthesize(attr: &Attr, pmu: Option<&str>) -> String {
    let plain = match attr.kind {
        event_type::HARDWARE => hardware(attr.config),
        event_type::SOFTWARE => software(attr.config),
        event_type::HW_CACHE => cache(attr.config),
        event_type::BREAKPOINT => return breakpoint(attr),
        event_type::RAW => format!("raw 0x{:x}", attr.config),
        event_type::TRACEPOINT => return format!("tracepoint-{}", attr.config),
        _ => match pmu {
            Some(pmu) => return format!("{pmu}/config=0x{:x}/{}", attr.config, modifiers(attr)),
            None => format!("unknown attr type: {}", attr.kind),
        },
    };
    plain + &modifiers(attr)
}

/// Returns the system, as in `event_types`, of an event that is not a tracepoint.
pub(super) fn system(attr: &Attr, pmu: Option<&str>) -> String {
    let known = match attr.kind {
        event_type::HARDWARE => "hardware",
        event_type::SOFTWARE => "software",
        event_type::HW_CACHE => "cache",
        event_type::RAW => "raw",
        event_type::BREAKPOINT => "breakpoint",
        event_type::TRACEPOINT => "",
        _ => pmu.unwrap_or_default(),
    };
    known.to_owned()
}

/// Returns the kind of an event that is not a tracepoint. kprobes and uprobes can also be opened through a PMU of that
/// name, without tracefs; bit 0 of the config then means "at return".
pub(super) fn kind(attr: &Attr, pmu: Option<&str>) -> EventKind {
    match (attr.kind, pmu) {
        (event_type::SOFTWARE, _) => EventKind::Software,
        (event_type::TRACEPOINT, _) => EventKind::Tracepoint,
        (6.., Some("kprobe")) if attr.config & 1 == 1 => EventKind::Kretprobe,
        (6.., Some("kprobe")) => EventKind::Kprobe,
        (6.., Some("uprobe")) if attr.config & 1 == 1 => EventKind::Uretprobe,
        (6.., Some("uprobe")) => EventKind::Uprobe,
        _ => EventKind::Counter,
    }
}

fn hardware(config: u64) -> String {
    // On hybrid hosts, the upper half is the ID of the PMU.
    let name = counters::name(&counters::HARDWARE, config & 0xffff_ffff);
    name.unwrap_or("unknown-hardware").to_owned()
}

fn software(config: u64) -> String {
    let name = counters::name(&counters::SOFTWARE, config);
    name.unwrap_or("unknown-software").to_owned()
}

fn cache(config: u64) -> String {
    let part = |shift: u32| usize::try_from(config >> shift & 0xff).unwrap_or(usize::MAX);
    let (Some(cache), Some((singular, plural))) =
        (CACHES.get(part(0)), CACHE_OPERATIONS.get(part(8)))
    else {
        return "invalid-cache".into();
    };
    match part(16) {
        0 => format!("{cache}-{plural}"),
        1 => format!("{cache}-{singular}-misses"),
        _ => "invalid-cache".into(),
    }
}

/// `mem:ADDRESS:rwx`: config1 is the address, `bp_type` has bit 0 read, 1 write, 2 execute.
fn breakpoint(attr: &Attr) -> String {
    let mut name = format!("mem:0x{:x}:", attr.config1);
    for (bit, letter) in ['r', 'w', 'x'].into_iter().enumerate() {
        if attr.breakpoint_kind >> bit & 1 == 1 {
            name.push(letter);
        }
    }
    name + &modifiers(attr)
}

fn modifiers(attr: &Attr) -> String {
    let mut text = String::new();
    let mut guest_excluded_by_default = false;
    if attr.exclude_kernel() || attr.exclude_user() || attr.exclude_hv() {
        let modes = [
            (attr.exclude_kernel(), 'k'),
            (attr.exclude_user(), 'u'),
            (attr.exclude_hv(), 'h'),
        ];
        text.extend(modes.iter().filter(|mode| !mode.0).map(|mode| mode.1));
        guest_excluded_by_default = true;
    }
    if attr.precise_ip() > 0 {
        text.extend(std::iter::repeat_n('p', attr.precise_ip()));
        guest_excluded_by_default = true;
    }
    if attr.exclude_host() || attr.exclude_guest() == guest_excluded_by_default {
        let hosts = [(attr.exclude_host(), 'H'), (attr.exclude_guest(), 'G')];
        text.extend(hosts.iter().filter(|host| !host.0).map(|host| host.1));
    }
    if text.is_empty() {
        text
    } else {
        format!(":{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: u32, config: u64, flags: u64, expected: &str) {
        let attr = Attr {
            kind,
            config,
            flags,
            config1: 0x1000,
            breakpoint_kind: 2,
            ..Attr::default()
        };
        assert_eq!(synthesize(&attr, None), expected);
    }

    #[test]
    fn names_equal_perfs() {
        const EXCLUDE_GUEST: u64 = 1 << 20;
        const USER_ONLY: u64 = 1 << 5 | 1 << 6;
        check(0, 0, 0, "cycles:HG");
        check(0, 0, EXCLUDE_GUEST, "cycles");
        check(0, 0, EXCLUDE_GUEST | USER_ONLY, "cycles:uH");
        check(0, 0, USER_ONLY, "cycles:u");
        check(0, 1, 2 << 15, "instructions:pp");
        check(0, 0x4_0000_0000, EXCLUDE_GUEST, "cycles");
        check(1, 0, EXCLUDE_GUEST, "cpu-clock");
        check(1, 99, EXCLUDE_GUEST, "unknown-software");
        check(3, 0x1_0000, EXCLUDE_GUEST, "L1-dcache-load-misses");
        check(3, 0x0_0103, EXCLUDE_GUEST, "dTLB-stores");
        check(4, 0x1a8, EXCLUDE_GUEST, "raw 0x1a8");
        check(5, 0, EXCLUDE_GUEST, "mem:0x1000:w");
    }
}
