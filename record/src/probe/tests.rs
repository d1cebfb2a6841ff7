//! Accepted and rejected arguments of `-e`.

use super::*;
use crate::sys::perf_event::abi;

fn one(event: &str) -> Probe {
    let mut probes = parse(event).unwrap_or_else(|failure| panic!("{event}: {failure}"));
    assert_eq!(probes.len(), 1, "{event}");
    probes.remove(0)
}

fn fails(event: &str) -> String {
    match parse(event) {
        Ok(_) => panic!("{event} was accepted"),
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn names_are_spelled_like_perfs() {
    for (event, kind, config) in [
        ("cycles", abi::PERF_TYPE_HARDWARE, 0),
        ("cpu-cycles", abi::PERF_TYPE_HARDWARE, 0),
        ("branch-instructions", abi::PERF_TYPE_HARDWARE, 4),
        ("branch-misses", abi::PERF_TYPE_HARDWARE, 5),
        ("cpu-clock", abi::PERF_TYPE_SOFTWARE, 0),
        ("cs", abi::PERF_TYPE_SOFTWARE, 3),
        ("L1-dcache-loads", abi::PERF_TYPE_HW_CACHE, 0),
        ("LLC-store-misses", abi::PERF_TYPE_HW_CACHE, 0x1_0102),
        ("r1a8", abi::PERF_TYPE_RAW, 0x1a8),
    ] {
        let probe = one(event);
        assert_eq!(
            (probe.attr.type_, probe.attr.config),
            (kind, config),
            "{event}"
        );
        assert_eq!(probe.name, event);
    }
}

#[test]
fn modifiers_exclude_the_others() {
    let excluded = |event: &str| {
        let attr = one(event).attr;
        (
            attr.exclude_user(),
            attr.exclude_kernel(),
            attr.exclude_hv(),
        )
    };
    assert_eq!(excluded("cycles"), (0, 0, 0));
    assert_eq!(excluded("cycles:u"), (0, 1, 1));
    assert_eq!(excluded("cycles:k"), (1, 0, 1));
    assert_eq!(excluded("cycles:uk"), (0, 0, 1));
    assert_eq!(one("cycles:pp").attr.precise_ip(), 2);
    assert!(one("cycles:P").wants_precision);
    assert_eq!(one("cycles:G").attr.exclude_host(), 1);
    assert_eq!(fails("cycles:z"), "cycles: unknown modifier 'z'");
    assert_eq!(fails("cycles:pppp"), "cycles: at most three p");
}

#[test]
fn lists() {
    assert_eq!(split("a,b/x=1,y=2/u,c"), ["a", "b/x=1,y=2/u", "c"]);
    assert_eq!(parse("cycles:u, cpu-clock").unwrap().len(), 2);
    assert_eq!(
        fails("{cycles,instructions}"),
        "{cycles,instructions}: a group that is recorded needs :S, which reads all of its events with each sample of the first"
    );
    assert_eq!(fails("cycles,"), "expected an event, found an empty name");
    assert_eq!(fails("cycels"), "no event cycels");
    // The command, taken for the value of the option before it.
    let failure = parse("ls").err().unwrap();
    assert_eq!(
        failure.hint_text(),
        Some("put -- before the command: -- ls")
    );
    assert_eq!(without_prefix("tracepoint:sched:*"), "sched:*");
    assert_eq!(without_prefix("tracepoint:name"), "tracepoint:name");
    assert!(fails("nopmu/event=1/").contains("no PMU nopmu"));
    assert!(fails("nopmu/event=1").contains("second '/'"));
}

#[test]
fn a_clock_stands_in_for_cycles() {
    let clock = clock_of("cycles:ukP");
    assert_eq!(clock.name, "cpu-clock:uk");
    assert_eq!(
        (
            clock.attr.type_,
            clock.attr.precise_ip(),
            clock.attr.exclude_hv()
        ),
        (1, 0, 1)
    );
    assert_eq!(clock_of("cycles").name, "cpu-clock");
}

fn clock_of(event: &str) -> Probe {
    let cycles = one(event);
    assert!(counter::is_cycles(&cycles.attr));
    counter::clock(&cycles)
}
