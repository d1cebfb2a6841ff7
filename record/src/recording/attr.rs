//! Attributes of events for the kernel: contents of each record, and when to wake up the reader.

use std::sync::Once;

use perfquet_events::event::Purpose;

use super::Settings;
use crate::probe::tracepoint::Tracepoint;
use crate::probe::{Kind, Probe, counter, event_attr, stacks};
use crate::sys::perf_event::{Attr, abi};

/// Not a round number, so that sampling does not run in lockstep with timers.
pub(crate) const DEFAULT_FREQUENCY_HZ: u64 = 997;

/// Every record carries these, so that any record can be distinguished from its neighbors in the ring.
const COMMON: u32 = abi::PERF_SAMPLE_IDENTIFIER
    | abi::PERF_SAMPLE_TID
    | abi::PERF_SAMPLE_TIME
    | abi::PERF_SAMPLE_CPU;

/// Whether the kernel counts lost records per event (PERF_FORMAT_LOST, Linux 6.0).
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub(super) has_lost: bool,
}

impl Kernel {
    /// Settings shared by all events.
    pub(super) fn base(self, attr: Attr, inherits: bool) -> Attr {
        let mut attr = attr;
        let lost = if self.has_lost {
            abi::PERF_FORMAT_LOST
        } else {
            0
        };
        attr.sample_type = COMMON.into();
        attr.read_format = (abi::PERF_FORMAT_ID | lost).into();
        attr.set_disabled(1);
        attr.set_inherit(inherits.into());
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.set_watermark(1);
        attr
    }

    /// An event requested by the user.
    pub(super) fn probe(self, probe: &Probe, settings: &Settings, inherits: bool) -> Attr {
        let mut attr = self.base(probe.attr, inherits);
        let mut sample_type = COMMON;
        match &probe.kind {
            Kind::Tracepoint(tracepoint) => {
                sample_type |= abi::PERF_SAMPLE_RAW;
                attr.sample_period = 1;
                if may_count_more(tracepoint) {
                    sample_type |= abi::PERF_SAMPLE_PERIOD;
                }
            }
            Kind::Output { .. } => {
                sample_type |= abi::PERF_SAMPLE_RAW;
                attr.sample_period = 1;
            }
            Kind::Sampled => {
                sample_type |= abi::PERF_SAMPLE_IP;
                set_rate(&mut attr, settings);
                // With a fixed period, the kernel would take a sample of every software event, and report 1 as its period
                // (kernel/events/core.c, perf_swevent_event).
                if attr.freq() == 1 {
                    sample_type |= abi::PERF_SAMPLE_PERIOD;
                }
            }
        }
        if !probe.members.is_empty() {
            sample_type |= abi::PERF_SAMPLE_READ;
            attr.read_format |= u64::from(abi::PERF_FORMAT_GROUP);
        }
        attr.sample_type = sample_type.into();
        if may_have_stacks(&probe.kind) {
            let cause = settings.stacks.cause(probe);
            settings.stacks.add_to(&mut attr, &probe.attr, cause);
        }
        if probe.is_sampled() {
            settings.extras.add_to(&mut attr);
        }
        // Hits of tracepoints have no registers, so branches could not be joined to them.
        if matches!(probe.kind, Kind::Tracepoint(_)) && stacks::are_branches(&attr) {
            stacks::without_branches(&mut attr);
        }
        attr
    }

    /// An event of a group that is not its first: counted, and read with the samples of the first.
    pub(super) fn member(self, probe: &Probe, inherits: bool) -> Attr {
        let mut attr = self.base(probe.attr, inherits);
        attr.sample_period = 0;
        attr.set_freq(0);
        attr.set_precise_ip(0);
        // The first starts it.
        attr.set_disabled(0);
        attr
    }

    /// The owner of a ring, which counts and writes nothing.
    pub(super) fn owner(self, ring_bytes: usize) -> Attr {
        let mut attr = self.base(event_attr::dummy(), false);
        // A quarter of the ring: three quarters remain until the drain runs.
        attr.wakeup_watermark = u32::try_from(ring_bytes / 4).unwrap_or(u32::MAX);
        attr
    }

    /// Every switch to and from a task.
    pub(super) fn switches(self, inherits: bool) -> Attr {
        let mut attr = self.base(event_attr::dummy(), inherits);
        attr.set_context_switch(1);
        attr
    }

    /// Variants of the side-band, most complete first: each omits another feature that a kernel or an unprivileged user
    /// may lack. With `is_of_one_task`, each comes first as in [`of_one_task`].
    ///
    /// None requests build IDs, which the recorder reads from the files: the kernel marks the record of a mapping for the first
    /// session that wants its build ID, and does not remove the mark (PERF_RECORD_MISC_MMAP_BUILD_ID) before it writes the record for
    /// the next session, where it is wrong (perf_event_mmap_output in kernel/events/core.c, 5.12 to 6.18). perf then takes the device
    /// for the length of a build ID, and aborts.
    pub(super) fn side_bands(self, inherits: bool, is_of_one_task: bool) -> Vec<Attr> {
        let mut least = self.base(event_attr::dummy(), inherits);
        least.set_mmap(1);
        least.set_mmap2(1);
        least.set_comm(1);
        least.set_comm_exec(1);
        least.set_task(1);
        let mut namespaces = least;
        namespaces.set_namespaces(1);
        let mut all = namespaces;
        all.set_exclude_kernel(0);
        all.set_ksymbol(1);
        all.set_bpf_event(1);
        let variants = [all, namespaces, least].into_iter();
        variants
            .flat_map(|attr| [is_of_one_task.then(|| of_one_task(attr)), Some(attr)])
            .flatten()
            .collect()
    }
}

/// Keeps the events of a task at this task, from Linux 6.12 on, as one of its inherited events.
///
/// At a switch between tasks that inherited the same events, the kernel exchanges these instead of stopping and starting them. An event
/// of a uprobe, however, is of the memory of the task that inherited it: when either task ends, the kernel removes the breakpoints of the
/// other one, whose further hits are missing (kernel/events/core.c, perf_event_context_sched_out; kernel/trace/trace_uprobe.c). Of 1,000
/// processes of 20 hits, 35 lost some. The kernel does not exchange inherited events that are read with their samples.
///
/// It requires the thread in samples, also for events without any.
pub(crate) fn of_one_task(attr: Attr) -> Attr {
    let mut attr = attr;
    attr.sample_type |= u64::from(abi::PERF_SAMPLE_READ | abi::PERF_SAMPLE_TID);
    attr
}

/// Says, once, that the kernel cannot do so.
pub(super) fn warn_of_exchanged_events() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        log::warn!(
            "this kernel loses hits of uprobes in processes and threads that run at the same time (Linux before 6.12); -a records them all"
        );
    });
}

/// Whether it is such an event.
pub(crate) fn is_of_one_task(attr: &Attr) -> bool {
    attr.sample_type & u64::from(abi::PERF_SAMPLE_READ) != 0
}

/// The records that the recorder itself writes about pauses and counts.
pub(crate) fn attr_of_own_records() -> Attr {
    let mut attr = Kernel { has_lost: false }.base(event_attr::output(), false);
    attr.sample_type |= u64::from(abi::PERF_SAMPLE_RAW);
    attr
}

/// Whether a hit may count more than one, as nanoseconds do (`__perf_count` in include/trace/events/sched.h; modules can have it, too).
/// With a period of 1 the kernel repeats the record of such a hit for each, until it throttles the event, unless the record has the count
/// (kernel/events/core.c, perf_swevent_event). Probes, and entries and exits of system calls, count one.
fn may_count_more(tracepoint: &Tracepoint) -> bool {
    !tracepoint.is_own && tracepoint.system != "syscalls"
}

/// Whether its records have stacks. Trigger hits are no rows and have none; without stacks, their time has a fixed
/// position.
fn may_have_stacks(kind: &Kind) -> bool {
    match kind {
        Kind::Sampled => true,
        Kind::Output {
            may_have_stacks, ..
        } => *may_have_stacks,
        Kind::Tracepoint(tracepoint) => {
            !matches!(tracepoint.purpose, Purpose::Start(_) | Purpose::Stop(_))
        }
    }
}

/// How often a counter, clock or breakpoint makes a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rate {
    /// Once in this many events.
    Every(u64),
    /// This many times per second.
    PerSecond(u64),
}

/// The kernel samples clocks at most this often, in nanoseconds, whatever the period (`perf_swevent_start_hrtimer`); samples would keep a shorter
/// period, and their sum would be too small.
const CLOCK_PERIOD_MIN: u64 = 10_000;

/// Returns the rate of an event. One in the event's own terms (`cpu/…,period=N/`) takes precedence over the command line.
pub(crate) fn rate(attr: &Attr, period: Option<u64>, frequency_hz: Option<u64>) -> Rate {
    match asked(attr, period, frequency_hz) {
        Rate::Every(period) if counter::is_clock(attr) => Rate::Every(period.max(CLOCK_PERIOD_MIN)),
        rate => rate,
    }
}

/// Says that a clock is not sampled as often as asked for.
pub(crate) fn warn_of_period(probe: &Probe, period: Option<u64>) {
    let is_clock = probe.is_sampled() && counter::is_clock(&probe.attr);
    if is_clock
        && let Rate::Every(period) = asked(&probe.attr, period, None)
        && period < CLOCK_PERIOD_MIN
    {
        log::warn!(
            "{}: sampled every 10 us, not every {period} ns, which the kernel does not do",
            probe.name
        );
    }
}

/// The rate of an event as it was asked for.
fn asked(attr: &Attr, period: Option<u64>, frequency_hz: Option<u64>) -> Rate {
    if attr.sample_period != 0 {
        return match attr.freq() {
            1 => Rate::PerSecond(attr.sample_freq),
            _ => Rate::Every(attr.sample_period),
        };
    }
    match (period, frequency_hz) {
        (Some(period), _) => Rate::Every(period),
        // As in perf, every hit.
        (None, None) if attr.type_ == abi::PERF_TYPE_BREAKPOINT => Rate::Every(1),
        (None, frequency) => Rate::PerSecond(frequency.unwrap_or(DEFAULT_FREQUENCY_HZ)),
    }
}

fn set_rate(attr: &mut Attr, settings: &Settings) {
    match rate(attr, settings.period, settings.frequency_hz) {
        Rate::Every(period) => attr.sample_period = period,
        Rate::PerSecond(frequency) => {
            attr.set_freq(1);
            attr.sample_freq = frequency;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_have_the_period_that_the_kernel_keeps() {
        let clock = Attr {
            type_: abi::PERF_TYPE_SOFTWARE,
            config: abi::PERF_COUNT_SW_CPU_CLOCK.into(),
            ..Attr::default()
        };
        let faults = Attr {
            config: abi::PERF_COUNT_SW_PAGE_FAULTS.into(),
            ..clock
        };
        let period = |attr: &Attr, asked| match rate(attr, Some(asked), None) {
            Rate::Every(period) => period,
            Rate::PerSecond(_) => 0,
        };
        assert_eq!(
            [1, 9_999, 10_000, 1_000_000].map(|asked| period(&clock, asked)),
            [10_000, 10_000, 10_000, 1_000_000]
        );
        assert_eq!(period(&faults, 1), 1);
    }

    #[test]
    fn a_hit_that_counts_more_is_one_record() {
        let sample_type = |system: &str, is_own| {
            let tracepoint = Tracepoint {
                system: system.to_owned(),
                name: "any".to_owned(),
                format: Vec::new(),
                is_own,
                is_of_program: false,
                purpose: Purpose::Rows,
                definition: None,
            };
            let mut probe = Probe::output("any", false);
            probe.kind = Kind::Tracepoint(tracepoint);
            let attr = Kernel { has_lost: false }.probe(&probe, &Settings::default(), false);
            assert_eq!((attr.sample_period, attr.freq()), (1, 0));
            attr.sample_type
        };
        let plain = u64::from(COMMON | abi::PERF_SAMPLE_RAW);
        let period = u64::from(abi::PERF_SAMPLE_PERIOD);
        assert_eq!(sample_type("sched", false), plain | period);
        assert_eq!(sample_type("of_a_module", false), plain | period);
        assert_eq!(sample_type("syscalls", false), plain);
        assert_eq!(sample_type("pq_1_1", true), plain);
    }

    #[test]
    fn no_session_requests_build_ids_of_the_kernel() {
        let kernel = Kernel { has_lost: true };
        for inherits in [false, true] {
            let variants = kernel.side_bands(inherits, inherits);
            assert!(variants.iter().all(|attr| attr.build_id() == 0));
            assert!(variants.iter().all(|attr| attr.mmap2() == 1));
        }
    }
}
