//! What a display counts while recording: events in, weights out.

use perfquet_events::event::*;

use super::super::tests::{at, clock, comm, mapping, send, stack};
use super::{CodeFinder, FunctionNames, Interval, SampledFunction, Tally, ThreadWeight};
use crate::symbols::{KernelSource, Object, Options};

const KERNEL: u64 = 0xffff_ffff_8100_0000;
/// Frames, and threads, that are distinguished in an interval.
const LIMIT: u64 = 1 << 16;

fn options() -> Options {
    Options {
        kernel: KernelSource::None,
        user: false,
        system: false,
        ..Options::default()
    }
}

fn tally() -> Tally {
    let mut tally = Tally::new(options());
    send(&mut tally, Event::Type(&clock()));
    let hit = EventType {
        system: "sched".into(),
        name: "sched_switch".into(),
        ..EventType::default()
    };
    send(&mut tally, Event::Type(&hit));
    send(&mut tally, comm(40, b"sh"));
    send(&mut tally, comm(41, b"sh"));
    send(&mut tally, mapping(40, 0x1000, b"/bin/sh"));
    send(&mut tally, mapping(41, 0x5000, b"/bin/sh"));
    tally
}

fn user(tid: i32, addresses: &[u64], period: u64) -> Sample<'_> {
    Sample {
        user_stack: stack(Space::User, addresses),
        period: Some(period),
        ..at(0, 100, tid)
    }
}

/// "function: weight", sorted.
fn functions(names: &mut FunctionNames, interval: &Interval) -> Vec<String> {
    let weights = names.weights(interval).unwrap().into_iter();
    let mut rows: Vec<String> = weights
        .map(|(function, weight)| format!("{}: {weight}", function.name))
        .collect();
    rows.sort();
    rows
}

/// "comm threads: weight", sorted.
fn threads(interval: &Interval) -> Vec<String> {
    let row = |of: &ThreadWeight| {
        let comm = of.comm.as_deref().unwrap_or("-");
        format!("{comm} {}: {}", of.threads, of.weight)
    };
    let mut rows: Vec<String> = interval.threads.iter().map(row).collect();
    rows.sort();
    rows
}

fn hits(interval: &Interval) -> Vec<(&str, u64)> {
    let events = interval.events.iter();
    events
        .map(|event| (event.name.as_str(), event.hits))
        .collect()
}

#[test]
fn samples_weigh_their_period_at_the_leaf() {
    let mut tally = tally();
    send(&mut tally, Event::Sample(&user(40, &[0x1010, 0x1020], 3)));
    // Another process of the program: the same code at another address.
    send(&mut tally, Event::Sample(&user(41, &[0x5010], 4)));
    let in_kernel = Sample {
        kernel_stack: stack(Space::Kernel, &[KERNEL]),
        ..user(41, &[0x5010], 1)
    };
    send(&mut tally, Event::Sample(&in_kernel));
    let ip_alone = Sample {
        ip: Some(0x9999),
        space: Space::User,
        ..at(0, 120, 0)
    };
    send(&mut tally, Event::Sample(&ip_alone));
    send(&mut tally, Event::Sample(&at(1, 130, 40)));
    let mut names = FunctionNames::new(options());
    let interval = tally.take();
    assert_eq!(interval.weighed.as_deref(), Some("cpu-clock"));
    assert_eq!(
        functions(&mut names, &interval),
        ["[sh]: 7", "[unknown]: 1", "[unknown]: 1"]
    );
    assert_eq!(threads(&interval), ["sh 2: 8", "swapper 1: 1"]);
    assert_eq!(
        hits(&interval),
        [("cpu-clock", 4), ("sched:sched_switch", 1)]
    );
    // The next interval begins at zero; names and mappings of processes are kept.
    send(&mut tally, Event::Sample(&user(40, &[0x1020], 5)));
    let interval = tally.take();
    assert_eq!(functions(&mut names, &interval), ["[sh]: 5"]);
    assert_eq!(threads(&interval), ["sh 1: 5"]);
    assert_eq!(
        hits(&interval),
        [("cpu-clock", 1), ("sched:sched_switch", 0)]
    );
}

#[test]
fn a_sample_belongs_to_the_program_that_ran_then() {
    let mut tally = tally();
    send(&mut tally, Event::Sample(&user(40, &[0x1010], 1)));
    let exec = Comm {
        time: Some(150),
        pid: Some(40),
        tid: 40,
        comm: b"ls",
        exec: true,
    };
    send(&mut tally, Event::Comm(exec));
    send(&mut tally, mapping(40, 0x1000, b"/bin/ls"));
    send(&mut tally, Event::Sample(&user(40, &[0x1010], 1)));
    let exit = Exit {
        time: Some(200),
        pid: Some(40),
        tid: 40,
        code: Some(0),
    };
    send(&mut tally, Event::Exit(exit));
    let interval = tally.take();
    let mut names = FunctionNames::new(options());
    assert_eq!(functions(&mut names, &interval), ["[ls]: 1", "[sh]: 1"]);
    assert_eq!(threads(&interval), ["ls 1: 1", "sh 1: 1"]);
}

#[test]
fn without_samples_hits_weigh_one() {
    let mut tally = tally();
    for time in 0..3 {
        send(&mut tally, Event::Sample(&at(1, time, 40)));
    }
    let interval = tally.take();
    assert_eq!(interval.weighed, None);
    assert_eq!(threads(&interval), ["sh 1: 3"]);
    let mut names = FunctionNames::new(options());
    assert_eq!(functions(&mut names, &interval), [""; 0]);
}

#[test]
fn weights_beyond_the_limits_are_counted_together() {
    let mut tally = tally();
    let (limit, more) = (LIMIT, 10);
    for number in 0..limit + more {
        let address = [0x10_0000 + number];
        let sample = user(1000 + number as i32, &address, 2);
        send(&mut tally, Event::Sample(&sample));
    }
    let interval = tally.take();
    assert_eq!(
        interval.threads.iter().map(|of| of.threads).sum::<u64>(),
        limit
    );
    assert_eq!(
        (interval.beyond_frames, interval.beyond_threads),
        (2 * more, 2 * more)
    );
    let mut names = FunctionNames::new(options());
    assert_eq!(
        functions(&mut names, &interval),
        [format!("[unknown]: {}", 2 * limit)]
    );
    // The next interval has room again.
    send(&mut tally, Event::Sample(&user(40, &[0x1010], u64::MAX)));
    send(&mut tally, Event::Sample(&user(40, &[0x1010], 1)));
    let interval = tally.take();
    assert_eq!(
        functions(&mut names, &interval),
        [format!("[sh]: {}", u64::MAX)]
    );
    assert_eq!((interval.beyond_frames, interval.beyond_threads), (0, 0));
}

/// Generated code has the bounds of the list, of which a later line counts; a file that exists is not asked for, others are.
#[test]
fn functions_whose_code_will_be_gone_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("perf-40.map");
    std::fs::write(&list, "7000 20 hot\n7020 10 cold\n").unwrap();
    let own = std::env::current_exe().unwrap();
    let object = Object::open(&own).unwrap();
    let options = Options {
        kernel: KernelSource::None,
        directories: vec![folder.path().to_owned()],
        ..Options::default()
    };
    let mut tally = tally();
    let Event::Mapping(file) = mapping(40, 0x1000, own.as_os_str().as_encoded_bytes()) else {
        panic!("no mapping")
    };
    let file = Mapping {
        build_id: object.build_id(),
        ..file
    };
    let generated = Mapping {
        build_id: None,
        start: 0x7000,
        path: b"//anon",
        protection: Some(7),
        ..file
    };
    send(&mut tally, Event::Mapping(file));
    send(&mut tally, Event::Mapping(generated));
    for address in [0x1010, 0x7004, 0x7010, 0x7100] {
        send(&mut tally, Event::Sample(&user(40, &[address], 1)));
    }
    let mut finder = CodeFinder::new(options);
    let interval = tally.take();
    assert!(finder.add(&interval).unwrap());
    let expected = |start: u64, size: u64| SampledFunction {
        pid: Some(40),
        module: "/tmp/perf-40.map".to_owned(),
        build_id: None,
        start,
        address: start,
        size,
        code: None,
        sampled: 100,
    };
    assert_eq!(finder.generated(), [expected(0x7000, 0x20)]);
    let mut others = Vec::new();
    finder.others(&interval, &mut |function| {
        others.push(function);
        true
    });
    assert_eq!(others, []);
    // Nothing new; then a function beside it, and one that has been compiled again.
    send(&mut tally, Event::Sample(&user(40, &[0x7010], 1)));
    assert!(!finder.add(&tally.take()).unwrap());
    send(&mut tally, Event::Sample(&user(40, &[0x7024], 1)));
    assert!(finder.add(&tally.take()).unwrap());
    std::fs::write(&list, "7000 20 hot\n7020 10 cold\n7000 8 hot\n").unwrap();
    // The sample at 0x7010 is in no function any more.
    let both = [expected(0x7000, 8), expected(0x7020, 0x10)];
    assert_eq!(finder.generated(), both);
}
