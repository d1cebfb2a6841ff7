//! The event that a `perf_event_attr` selects. What its records contain is decided once, when it is opened (`recording::attr`); how
//! it is counted, in `stat`.

use crate::sys::perf_event::{Attr, abi};

/// A tracepoint, by its number in tracefs.
pub(crate) fn tracepoint(id: u64) -> Attr {
    of(abi::PERF_TYPE_TRACEPOINT, id)
}

/// A counter or clock. As in perf, those of hardware exclude guests unless they are requested.
pub(crate) fn counter(kind: u32, config: u64) -> Attr {
    let mut attr = of(kind, config);
    if kind != abi::PERF_TYPE_SOFTWARE {
        attr.set_exclude_guest(1);
    }
    attr
}

/// An event of a PMU, whose terms are set one by one.
pub(crate) fn of_pmu(kind: u32) -> Attr {
    of(kind, 0)
}

/// Accesses to memory.
pub(crate) fn breakpoint(accesses: u32, address: u64, bytes: u64) -> Attr {
    let mut attr = Attr {
        bp_type: accesses,
        ..of(abi::PERF_TYPE_BREAKPOINT, 0)
    };
    // bp_addr and bp_len, by their other names.
    attr.config1 = address;
    attr.config2 = bytes;
    attr
}

/// Records that BPF programs and the recorder itself write.
pub(crate) fn output() -> Attr {
    of(
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_BPF_OUTPUT.into(),
    )
}

/// An event that never occurs, for rings and side-band records.
pub(crate) fn dummy() -> Attr {
    let mut attr = of(abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_DUMMY.into());
    // It samples nothing, and without this an unprivileged user would be rejected.
    attr.set_exclude_kernel(1);
    attr
}

fn of(kind: u32, config: u64) -> Attr {
    Attr {
        type_: kind,
        config,
        ..Attr::default()
    }
}
