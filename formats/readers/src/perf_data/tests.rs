//! Golden files, intact and damaged; synthetic files for records that no available recorder writes; random damage.

mod growing;
mod thinned;

use std::io::Read;

use perfquet_events::bytes::Endian;
use perfquet_events::event::{Event, Sink, Stack};
use perfquet_events::{Error, Guess, Input, wire};
use proptest::prelude::*;

use super::PERF_DATA;
use super::attr::sample_type;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("perf_data") {
        assert_golden(&path, &read_golden(&PERF_DATA, &path));
        assert_recognized(&PERF_DATA, &path);
    }
}

#[test]
fn version_1_and_other_files_are_rejected() {
    assert_eq!((PERF_DATA.sniff)(b"PERFFILE\x68"), Guess::Certain);
    assert_eq!((PERF_DATA.sniff)(b"PERFILE"), Guess::No);
    let error = read_bytes(&PERF_DATA, b"PERFFILE\x68\0\0\0\0\0\0\0");
    assert!(error.contains("version 1"), "{error}");
    let error = read_bytes(&PERF_DATA, b"PERFILE2\x68\0\0\0\0\0\0\0");
    assert!(error.contains("truncated header"), "{error}");
}

/// Samples of one event with time and stack, in a pipe.
struct Pipe {
    bytes: Vec<u8>,
}

const SAMPLE_TYPE: u64 = sample_type::IP
    | sample_type::TID
    | sample_type::TIME
    | sample_type::CALLCHAIN
    | sample_type::CPU;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USER_DEFERRED: u64 = -640i64 as u64;

impl Pipe {
    fn new() -> Pipe {
        Pipe::of_event(1, &[0, 1000, SAMPLE_TYPE, 0, SAMPLE_ID_ALL, 0, 0])
    }

    /// Samples without time.
    fn without_times() -> Pipe {
        let kinds = SAMPLE_TYPE & !sample_type::TIME;
        Pipe::of_event(1, &[0, 1000, kinds, 0, SAMPLE_ID_ALL, 0, 0])
    }

    /// Samples with a call record of the CPU instead of user stacks.
    fn of_branches() -> Pipe {
        let kinds = SAMPLE_TYPE | sample_type::BRANCH_STACK;
        // USER | CALL_STACK
        let branches = 1 | 1 << 11;
        Pipe::of_event(0, &[0, 1000, kinds, 0, SAMPLE_ID_ALL, 0, 0, 0, branches])
    }

    /// An event with this type of `perf_event_attr`, and the words after its size.
    fn of_event(kind: u32, words: &[u64]) -> Pipe {
        let mut pipe = Pipe {
            bytes: b"PERFILE2\x10\0\0\0\0\0\0\0".to_vec(),
        };
        let mut attr = Vec::new();
        attr.extend(kind.to_le_bytes());
        attr.extend((8 + 8 * words.len() as u32).to_le_bytes());
        for word in words {
            attr.extend(word.to_le_bytes());
        }
        pipe.record(64, &attr);
        pipe
    }

    fn record(&mut self, kind: u32, body: &[u8]) {
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(2u16.to_le_bytes());
        self.bytes.extend((body.len() as u16 + 8).to_le_bytes());
        self.bytes.extend(body);
    }

    fn words(&mut self, kind: u32, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.record(kind, &bytes);
    }

    fn sample(&mut self, time: u64, chain: &[u64]) {
        let mut words = vec![0x1000, 7 | 8 << 32, time, 0, chain.len() as u64];
        words.extend(chain);
        self.words(9, &words);
    }

    /// Adds the selection of perfquet-record.
    fn selection(&mut self, text: &str) {
        let mut body = [wire::update::SELECTION, 0].map(u64::to_le_bytes).concat();
        body.extend(text.as_bytes());
        body.resize(body.len().next_multiple_of(8) + 8, 0);
        self.record(78, &body);
    }

    fn round(&mut self) {
        self.words(68, &[]);
    }
}

/// Times of the samples, and their user stacks.
#[derive(Default)]
struct Seen {
    samples: Vec<(i64, Vec<u64>)>,
    problems: Vec<String>,
    /// Time, number, reason.
    losses: Vec<(Option<i64>, Option<u64>, String)>,
}

impl Sink for Seen {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Sample(sample) => {
                let stack = match sample.user_stack {
                    Stack::Addresses { addresses, .. } => addresses.to_vec(),
                    _ => Vec::new(),
                };
                self.samples.push((sample.time.unwrap_or(-1), stack));
            }
            Event::Problem(problem) => self.problems.push(problem.message.to_owned()),
            Event::Loss(loss) => {
                let reason = loss.reason.to_owned();
                self.losses.push((loss.time, loss.count, reason));
            }
            _ => {}
        }
        Ok(())
    }
}

fn see(bytes: &[u8]) -> Seen {
    let mut seen = Seen::default();
    let mut input = Input::from_bytes("test", bytes).unwrap();
    PERF_DATA.read(&mut input, &mut seen).unwrap();
    seen
}

fn times(seen: &Seen) -> Vec<i64> {
    seen.samples.iter().map(|(time, _)| *time).collect()
}

#[test]
fn a_sample_that_cannot_be_read_is_a_loss() {
    let mut pipe = Pipe::new();
    pipe.sample(10, &[1, 2]);
    // More addresses than the record has.
    pipe.words(9, &[0x1000, 7 | 8 << 32, 20, 0, 22, 1, 2, 3]);
    // No time, or no plausible thread.
    pipe.words(9, &[0x1000, 7 | 8 << 32]);
    pipe.words(9, &[0x1000, u64::MAX / 3, 25, 0, 22]);
    pipe.sample(30, &[1, 2]);
    pipe.round();
    let seen = see(&pipe.bytes);
    assert_eq!(times(&seen), [10, 30]);
    // Records without a time come first.
    let sizes = [
        "byte 8: expected 32 bytes, found 16",
        "expected 176 bytes, found 24",
        "expected 176 bytes, found 0",
    ];
    for (problem, size) in seen.problems.iter().zip(sizes) {
        assert!(problem.contains(size), "{:?}", seen.problems);
    }
    assert_eq!(seen.problems.len(), sizes.len(), "{:?}", seen.problems);
    let lost = (
        Some(20),
        Some(1),
        "unreadable record of thread 8".to_owned(),
    );
    assert_eq!(seen.losses, [lost]);
}

#[test]
fn rounds_come_out_in_order() {
    let mut pipe = Pipe::new();
    for times in [[30, 10], [20, 40], [35, 60]] {
        for time in times {
            pipe.sample(time, &[]);
        }
        pipe.round();
    }
    let seen = see(&pipe.bytes);
    assert_eq!(times(&seen), [10, 20, 30, 35, 40, 60]);
    assert_eq!(seen.problems, [""; 0]);
}

/// A thread lost its CPU before it committed its record, while perf wrote a hundred rounds.
#[test]
fn record_that_misses_its_round_is_emitted_in_order() {
    let mut pipe = Pipe::new();
    for time in (1..=13_000).filter(|&time| time != 5000) {
        pipe.sample(time, &[]);
        if time == 6300 {
            pipe.sample(5000, &[]);
        }
        if time.is_multiple_of(13) {
            pipe.round();
        }
    }
    let in_order: Vec<i64> = (1..=13_000).collect();
    let seen = see(&pipe.bytes);
    assert!(times(&seen) == in_order);
    assert_eq!(seen.problems, [""; 0]);
    // In a hurry, perf's guarantee is relied on, and its violation reported.
    let mut hurried = Pipe::new();
    hurried.selection("max_events=100000");
    let head = Pipe::new().bytes.len();
    hurried.bytes.extend(&pipe.bytes[head..]);
    let seen = see(&hurried.bytes);
    assert!(times(&seen) != in_order);
    assert!(
        seen.problems[0].contains("out of order"),
        "{:?}",
        seen.problems
    );
}

/// Two events with IDs 7 and 8 that share a ring.
fn pipe_of_two() -> Pipe {
    const TYPE: u64 = sample_type::TID | sample_type::TIME | sample_type::ID | sample_type::CPU;
    let mut pipe = Pipe {
        bytes: b"PERFILE2\x10\0\0\0\0\0\0\0".to_vec(),
    };
    for (config, id) in [(0u64, 7u64), (2, 8)] {
        let mut attr = [1u32, 64].map(u32::to_le_bytes).concat();
        for word in [config, 1000, TYPE, 0, SAMPLE_ID_ALL, 0, 0, id] {
            attr.extend(word.to_le_bytes());
        }
        pipe.record(64, &attr);
    }
    pipe
}

/// Any of the 16 bytes before the first record, which declares the event.
#[test]
fn a_pipe_without_some_of_its_first_bytes_is_whole() {
    let mut pipe = Pipe::new();
    (0..200).for_each(|time| pipe.sample(time + 1000, &[]));
    let whole = times(&see(&pipe.bytes));
    assert_eq!(whole.len(), 200);
    for lost in 1..=16 {
        let seen = see(&pipe.bytes[lost..]);
        assert_eq!(times(&seen), whole, "{lost} bytes lost");
        assert!(!seen.problems.is_empty(), "{lost} bytes lost");
    }
}

/// The kernel makes these records longer for each event that receives them, and leaves stale bytes after the trailer.
#[test]
fn time_of_a_kernel_symbol_follows_its_name() {
    let mut pipe = Pipe::new();
    let mut times_wanted = Vec::new();
    for step in 0..20_000i64 {
        // Two CPUs, each in order.
        for time in [10 * step + 1000, 10 * step] {
            pipe.sample(time as u64, &[]);
            times_wanted.push(time);
        }
        if step == 5000 {
            // u64 address, u32 length, u16 type, u16 flags, name, then pid and tid, time, cpu; the rest is stale.
            let mut body = [0xffff_ffff_c000_0000u64, 64]
                .map(u64::to_le_bytes)
                .concat();
            body.extend(b"bpf_prog_1234567\0\0\0\0\0\0\0\0");
            for word in [7 | 8 << 32, 50_000, 0, u64::MAX, u64::MAX / 2, 9] {
                body.extend(u64::to_le_bytes(word));
            }
            pipe.record(17, &body);
        }
        if step % 50 == 0 {
            pipe.round();
        }
    }
    times_wanted.sort_unstable();
    let seen = see(&pipe.bytes);
    assert_eq!(seen.problems, [""; 0]);
    assert!(times(&seen) == times_wanted);
}

/// perf inject -s moves the final counts to the front.
#[test]
fn losses_add_up_in_any_order() {
    #[derive(Default)]
    struct Losses(Vec<(Option<u32>, u64, Option<u64>)>);
    impl Sink for Losses {
        fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
            if let Event::Loss(loss) = event {
                let event = loss.event.map(|event| event.0);
                self.0.push((event, loss.count.unwrap(), loss.in_all));
            }
            Ok(())
        }
    }
    // Body, then the trailer: pid and tid, time, id, cpu.
    let reported_in_ring = |pipe: &mut Pipe| pipe.words(2, &[7, 2321, 7 | 8 << 32, 50, 7, 0]);
    let at_the_end = |pipe: &mut Pipe| {
        pipe.words(13, &[310, 0, 0, 7, 0]);
        pipe.words(13, &[2030, 0, 0, 8, 0]);
    };
    let mut usual = pipe_of_two();
    reported_in_ring(&mut usual);
    at_the_end(&mut usual);
    let mut injected = pipe_of_two();
    at_the_end(&mut injected);
    reported_in_ring(&mut injected);
    for pipe in [usual, injected] {
        let mut losses = Losses::default();
        let mut input = Input::from_bytes("test", &pipe.bytes).unwrap();
        PERF_DATA.read(&mut input, &mut losses).unwrap();
        let counts: u64 = losses.0.iter().map(|(_, count, _)| count).sum();
        assert_eq!(counts, 310 + 2030, "{:?}", losses.0);
        // The events of the remaining losses are unknown, but the total per event is known.
        let in_all = |event| {
            losses
                .0
                .iter()
                .find(|loss| loss.0 == Some(event))
                .unwrap()
                .2
        };
        assert_eq!(
            [in_all(0), in_all(1)],
            [Some(310), Some(2030)],
            "{:?}",
            losses.0
        );
        assert!(losses.0.contains(&(None, 2321, None)), "{:?}", losses.0);
        assert!(losses.0.iter().any(|loss| (loss.0, loss.1) == (None, 19)));
    }
}

/// The kernel's counts in the last file of `--switch-output` are those of all files.
#[test]
fn files_of_one_recording_have_each_loss_once() {
    #[derive(Default)]
    struct Losses(Vec<Option<u64>>);
    impl Sink for Losses {
        fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
            if let Event::Loss(loss) = event {
                self.0.push(loss.count);
            }
            Ok(())
        }
    }
    let losses = |name: &str| {
        let mut losses = Losses::default();
        let mut input = Input::from_bytes(name, &golden_file(name)).unwrap();
        PERF_DATA.read(&mut input, &mut losses).unwrap();
        losses.0
    };
    assert_eq!(losses("switched-1.data"), [Some(205)]);
    // perf counted 378: those of the first file, and these.
    assert_eq!(losses("switched-2.data"), [Some(173), None]);
}

#[test]
fn a_file_that_follows_another_is_reported() {
    let one = golden_file("group.data");
    let both = [&one[..], &one].concat();
    let rest = format!(
        "{} bytes after the last section are not read: another",
        one.len()
    );
    let text = read_bytes(&PERF_DATA, &both);
    assert!(text.contains(&rest), "{text}");
    assert_eq!(samples(&text), samples(&read_bytes(&PERF_DATA, &one)));
}

#[test]
fn damage_in_the_middle_loses_only_what_it_covers() {
    let mut pipe = Pipe::new();
    pipe.sample(1, &[0x10]);
    let damaged = pipe.bytes.len();
    for time in 2..8 {
        pipe.sample(time, &[0x10, 0x20]);
    }
    pipe.bytes[damaged..damaged + 40].fill(0xff);
    let seen = see(&pipe.bytes);
    assert_eq!(times(&seen), [1, 3, 4, 5, 6, 7]);
    assert_eq!(seen.problems.len(), 1);
    assert!(
        seen.problems[0].contains("skipped 64 bytes"),
        "{:?}",
        seen.problems
    );
}

#[test]
fn deferred_user_stacks_are_joined_with_their_samples() {
    let mut pipe = Pipe::new();
    pipe.sample(10, &[USER_DEFERRED, 77]);
    pipe.round();
    pipe.sample(20, &[0x5000]);
    pipe.sample(25, &[USER_DEFERRED, 77]);
    pipe.round();
    // cookie, two addresses after a marker; then the trailer: pid and tid, time, cpu
    pipe.words(
        22,
        &[77, 3, -512i64 as u64, 0x1111, 0x2222, 7 | 8 << 32, 30, 0],
    );
    pipe.sample(40, &[USER_DEFERRED, 78]);
    pipe.round();
    pipe.round();
    let seen = see(&pipe.bytes);
    let expected = [
        (10, vec![0x1111, 0x2222]),
        (20, vec![0x5000]),
        (25, vec![0x1111, 0x2222]),
        (40, vec![]),
    ];
    assert_eq!(seen.samples, expected);
    assert_eq!(seen.problems.len(), 1);
    assert!(seen.problems[0].contains("deferred user stacks are missing"));
}

#[test]
fn samples_without_a_time_wait_for_their_user_stack_too() {
    let mut pipe = Pipe::without_times();
    let sample = |pipe: &mut Pipe, ip: u64, chain: &[u64]| {
        let head = [ip, 7 | 8 << 32, 0, chain.len() as u64];
        pipe.words(9, &[&head, chain].concat());
    };
    sample(&mut pipe, 1, &[USER_DEFERRED, 77]);
    sample(&mut pipe, 2, &[0x5000]);
    sample(&mut pipe, 3, &[USER_DEFERRED, 77]);
    pipe.round();
    pipe.words(22, &[77, 3, -512i64 as u64, 0x1111, 0x2222, 7 | 8 << 32, 0]);
    sample(&mut pipe, 4, &[USER_DEFERRED, 78]);
    pipe.round();
    let mut seen = see(&pipe.bytes);
    seen.samples.sort_by_key(|(_, stack)| stack.clone());
    let stacks: Vec<&[u64]> = seen.samples.iter().map(|(_, stack)| &stack[..]).collect();
    let whole = &[0x1111, 0x2222][..];
    assert_eq!(stacks, [&[][..], whole, whole, &[0x5000]]);
    assert_eq!(seen.problems, ["deferred user stacks are missing"]);
}

/// The queue would use the 16-bit size of a kernel record, and truncate it.
#[test]
fn pieces_of_other_records_are_reported() {
    let piece = |pipe: &mut Pipe, kind: u32, body: &[u8]| {
        pipe.bytes.extend(kind.to_le_bytes());
        let size = body.len() as u32 + 8;
        pipe.bytes.extend(((size >> 16) as u16).to_le_bytes());
        pipe.bytes.extend((size as u16).to_le_bytes());
        pipe.bytes.extend(body);
    };
    let reported = |parts: &[(u32, &[u8])], expected: &str| {
        let mut pipe = Pipe::new();
        pipe.sample(1, &[]);
        for (kind, body) in parts {
            piece(&mut pipe, *kind, body);
        }
        pipe.sample(2, &[]);
        let seen = see(&pipe.bytes);
        assert_eq!(times(&seen), [1, 2]);
        assert_eq!(seen.problems.len(), 1, "{:?}", seen.problems);
        assert!(seen.problems[0].contains(expected), "{:?}", seen.problems);
    };
    // COMM of 70,000 bytes: its size field contains 4,464.
    let mut comm = [3u32.to_le_bytes(), [0, 0, 0x70, 0x11]].concat();
    comm.resize(70_000, b'x');
    let (front, back) = comm.split_at(40_000);
    reported(
        &[(32772, front), (32772, back), (32773, &[])],
        "found 70000 bytes of type 3",
    );
    reported(
        &[(32773, &[])],
        "expected the pieces of a record, found 0 bytes",
    );
    reported(&[(32772, front)], "found 40000 bytes of it and the end");
}

#[test]
fn call_records_of_the_cpu_become_user_stacks() {
    const KERNEL: u64 = -128i64 as u64;
    let mut pipe = Pipe::of_branches();
    let branches = [2, 0x2010, 0x3000, 0, 0x1010, 0x2000, 0];
    // In user space: the sample's IP. (The chain has no user address.)
    let head = [0x3004, 7 | 8 << 32, 10, 0, 0];
    pipe.words(9, &[&head[..], &branches].concat());
    // In the kernel: the target of the last call.
    let kernel_ip = 0xffff_ffff_8100_0000;
    let head = [kernel_ip, 7 | 8 << 32, 20, 0, 2, KERNEL, kernel_ip];
    pipe.words(9, &[&head[..], &branches].concat());
    let last = pipe.bytes.len() - 8 * (7 + 7) - 8;
    // misc: kernel
    pipe.bytes[last + 4] = 1;
    let seen = see(&pipe.bytes);
    let stacks: Vec<&[u64]> = seen.samples.iter().map(|(_, stack)| &stack[..]).collect();
    assert_eq!(
        stacks,
        [&[0x3004, 0x2010, 0x1010][..], &[0x3000, 0x2010, 0x1010]]
    );
}

#[test]
fn a_directory_is_merged_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut main = Pipe::new();
    main.sample(5, &[]);
    main.round();
    main.round();
    std::fs::write(folder.path().join("data"), &main.bytes).unwrap();
    for (number, times) in [(0, [4, 6]), (1, [1, 9]), (10, [2, 3])] {
        let mut part = Pipe { bytes: Vec::new() };
        times.into_iter().for_each(|time| part.sample(time, &[]));
        std::fs::write(folder.path().join(format!("data.{number}")), &part.bytes).unwrap();
    }
    std::fs::write(folder.path().join("data.2"), b"").unwrap();
    let mut seen = Seen::default();
    let mut input = Input::open(folder.path()).unwrap();
    PERF_DATA.read(&mut input, &mut seen).unwrap();
    assert_eq!(times(&seen), [1, 2, 3, 4, 5, 6, 9]);
    let empty = tempfile::tempdir().unwrap();
    let mut input = Input::open(empty.path()).unwrap();
    assert!(PERF_DATA.read(&mut input, &mut seen).is_err());
}

/// A pipe and a file with the same bytes give the same events.
#[test]
fn files_and_streams_agree() {
    for path in golden_files("perf_data") {
        let bytes = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut stream = Input::from_bytes(name, &bytes).unwrap();
        let streamed = as_text(&PERF_DATA, &mut stream);
        let mapped = read_golden(&PERF_DATA, &path);
        // A waiting record of a pipe has lost its offset.
        let plain = |text: &str| -> Vec<String> {
            let lines = text
                .lines()
                .map(|line| match line.strip_prefix("problem ") {
                    Some(_) => "problem".to_owned(),
                    None => line.to_owned(),
                });
            lines.collect()
        };
        assert_eq!(plain(&streamed), plain(&mapped), "{name}");
    }
}

/// Bytes that come in pieces of irregular size, as from a pipe.
struct Pieces(std::io::Cursor<Vec<u8>>, usize);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 * 75 % 65_537;
        let count = buffer.len().min(self.1);
        self.0.read(&mut buffer[..count])
    }
}

/// 37 MB, more than the buffers of a stream: without rounds, all records wait for the end; with them, records of the
/// future wait.
#[test]
fn waiting_records_of_a_stream_keep_their_bytes() {
    const USER: u64 = -512i64 as u64;
    for round in [u64::MAX, 40_000, 100] {
        let mut pipe = Pipe::new();
        for number in 0..100_000 {
            let ahead = if number % 9973 == 0 { 70_000 } else { 0 };
            let frames = (0..number % 80).map(|frame| number << 8 | frame);
            let chain: Vec<u64> = std::iter::once(USER).chain(frames).collect();
            pipe.sample(1 + (number ^ 5) + ahead, &chain);
            if (number + 1) % round == 0 {
                pipe.round();
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &pipe.bytes).unwrap();
        let pieces = Pieces(std::io::Cursor::new(pipe.bytes), 1);
        let stream = Input::from_reader("test", Box::new(pieces)).unwrap();
        let mapped = Input::open(file.path()).unwrap();
        let [streamed, mapped] = [stream, mapped].map(|mut input| {
            let mut seen = Seen::default();
            PERF_DATA.read(&mut input, &mut seen).unwrap();
            seen
        });
        assert_eq!(streamed.samples.len(), 100_000);
        assert!(streamed.samples == mapped.samples, "{round}");
        assert_eq!(streamed.problems, mapped.problems);
    }
}

fn golden_bytes() -> Vec<Vec<u8>> {
    let files = golden_files("perf_data");
    files
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// The sorted lines of samples, without event numbers: names and facts may be missing from a part of a file.
fn samples(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with("sample "));
    let mut lines: Vec<String> = lines
        .map(|line| {
            let end = line.find(" fields=").unwrap_or(line.len());
            let start = line.find(" time=").unwrap_or(0);
            line[start.min(end)..end].to_owned()
        })
        .collect();
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A part of a file gives a part of its samples, and a report of the truncation.
    #[test]
    fn prefixes(part in 0.0..1.0f64) {
        for path in golden_files("perf_data") {
            let name = path.to_string_lossy();
            // Counts of `perf stat` get their round when it ends; truncation may repair a damaged file.
            // The records of perfquet-record before its sections lack members without these.
            if ["garbage", "stat", "quiet"].iter().any(|skipped| name.contains(skipped)) {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let cut = &bytes[..(bytes.len() as f64 * part) as usize];
            let whole = samples(&read_bytes(&PERF_DATA, &bytes));
            let some = samples(&read_bytes(&PERF_DATA, cut));
            let mut rest = whole.iter();
            for line in &some {
                prop_assert!(rest.any(|other| other == line), "{}: {}", name, line);
            }
        }
    }

    /// Damaged bytes affect only what they cover, never the reader.
    #[test]
    fn flips(places in prop::collection::vec((0.0..1.0f64, any::<u8>()), 1..40)) {
        for mut bytes in golden_bytes() {
            let length = bytes.len() as f64;
            for (place, value) in &places {
                let index = (length * place) as usize;
                bytes[index] = *value;
            }
            read_bytes(&PERF_DATA, &bytes);
        }
    }
}

/// An aggregate record read as a call: the action of one is the function of the other.
#[test]
fn call_of_an_undeclared_function_is_a_problem() {
    let golden = golden_files("perf_data");
    let programs = golden.iter().find(|path| path.ends_with("programs.data"));
    let bytes = std::fs::read(programs.unwrap()).unwrap();
    let head = |kind: u8| [kind, 0, 0, 0, 0, 0, 0, 0];
    let texts = (0..bytes.len() - 8)
        .filter(|&at| bytes[at..at + 8] == head(2))
        .map(|at| {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].copy_from_slice(&head(4));
            read_bytes(&PERF_DATA, &bytes)
        });
    let expected = "expected a declared function, found number";
    assert!(texts.filter(|text| text.contains(expected)).count() > 0);
}

fn golden_file(name: &str) -> Vec<u8> {
    let golden = golden_files("perf_data");
    let path = golden.iter().find(|path| path.ends_with(name));
    std::fs::read(path.unwrap()).unwrap()
}

/// A file whose index has more entries than features, as perf 3.4 and 5.13 to 5.19 leave it if the last feature that they
/// try fails.
fn with_reserved_entries(bytes: &[u8], reserved: &[Option<u64>]) -> Vec<u8> {
    let word = |at: usize| Endian::Little.u64_at(bytes, at).unwrap();
    let index = (word(40) + word(48)) as usize;
    let count: u32 = (0..4)
        .map(|word_of| word(72 + 8 * word_of).count_ones())
        .sum();
    let first = index + 16 * count as usize;
    let moved = 16 * reserved.len() as u64;
    let mut made = bytes[..index].to_vec();
    let mut end = 0;
    for entry in (index..first).step_by(16) {
        let (offset, size) = (word(entry) + moved, word(entry + 8));
        made.extend([offset, size].map(u64::to_le_bytes).concat());
        end = offset + size;
    }
    for size in reserved {
        let entry = [if size.is_some() { end } else { 0 }, size.unwrap_or(0)];
        made.extend(entry.map(u64::to_le_bytes).concat());
    }
    made.extend(&bytes[first..]);
    made
}

#[test]
fn a_feature_that_could_not_be_written_costs_no_other() {
    for name in ["mono.data", "usdt.data", "stat.data", "group.data"] {
        let bytes = golden_file(name);
        let whole = read_bytes(&PERF_DATA, &bytes);
        assert!(whole.contains("Host("), "{name}");
        for reserved in [
            &[None][..],
            &[Some(0)],
            &[Some(0), None],
            &[Some(0), None, None],
        ] {
            let made = with_reserved_entries(&bytes, reserved);
            assert_eq!(read_bytes(&PERF_DATA, &made), whole, "{name} {reserved:?}");
        }
        // An entry that is none: its content is unknown.
        let made = with_reserved_entries(&bytes, &[Some(8)]);
        assert!(read_bytes(&PERF_DATA, &made).contains("expected"), "{name}");
    }
}

/// Linux sets the flag in the records of all sessions while one of them requests build IDs.
#[test]
fn a_leaked_flag_makes_no_build_ids() {
    let bytes = golden_file("mono.data");
    let whole = read_bytes(&PERF_DATA, &bytes);
    assert!(whole.contains("inode"), "{whole}");
    let word = |at: usize| Endian::Little.u64_at(&bytes, at).unwrap();
    let (mut at, end) = (word(40) as usize, (word(40) + word(48)) as usize);
    let mut leaked = bytes.clone();
    let mut flagged = 0;
    while at < end {
        if bytes[at] == 10 {
            leaked[at + 5] |= 1 << 6;
            flagged += 1;
        }
        at += usize::from(Endian::Little.u16_at(&bytes, at + 6).unwrap());
    }
    assert!(flagged > 3);
    assert_eq!(read_bytes(&PERF_DATA, &leaked), whole);
}

/// `perf stat record -I 20`: counts since the start, of which each round has the growth.
#[test]
fn counts_of_perf_stat_grow_in_each_round() {
    let text = read_bytes(&PERF_DATA, &golden_file("stat.data"));
    let counts: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("Count("))
        .collect();
    let of = |name: &str| {
        counts
            .iter()
            .filter(|line| line.contains(name))
            .collect::<Vec<_>>()
    };
    let faults = of("page-faults");
    for (line, expected) in [
        (
            faults[0],
            "since: Some(0), time: Some(20107729), event: \"page-faults\", unit: [], counted: Some(Counted { value: 55,",
        ),
        (
            faults[1],
            "since: Some(20107729), time: Some(43300619), event: \"page-faults\", unit: [], counted: Some(Counted { value: 2,",
        ),
        (
            of("task-clock")[0],
            "unit: \"ns\", counted: Some(Counted { value: 18497842,",
        ),
    ] {
        assert!(line.contains(expected), "{line}");
    }
    assert!(text.contains("Clock(\"relative\")"));
}
