//! Tracepoints of which perf recorded a rate.

use super::*;

/// `perf record -F 99 -e sched:sched_switch`: a sample stands for the hits since the one before.
#[test]
fn hits_of_a_tracepoint_that_were_not_sampled_are_losses() {
    const FREQ: u64 = 1 << 10;
    let kinds = sample_type::TID | sample_type::TIME | sample_type::CPU | sample_type::PERIOD;
    let read = |kind: u32, flags: u64| {
        let mut pipe = Pipe::of_event(kind, &[7, 99, kinds, 0, SAMPLE_ID_ALL | flags, 0, 0]);
        for (time, period) in [(10, 1), (20, 40), (30, 3)] {
            pipe.words(9, &[7 | 8 << 32, time, 0, period]);
        }
        see(&pipe.bytes)
    };
    let seen = read(2, FREQ);
    assert_eq!(times(&seen), [10, 20, 30]);
    assert_eq!(seen.losses.len(), 1, "{:?}", seen.losses);
    assert_eq!((seen.losses[0].0, seen.losses[0].1), (None, Some(39 + 2)));
    // A fixed period, and a counter.
    assert_eq!(read(2, 0).losses, []);
    assert_eq!(read(0, FREQ).losses, []);
}
