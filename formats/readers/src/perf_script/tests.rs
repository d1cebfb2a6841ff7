//! Golden files, random lines, prefixes.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::PERF_SCRIPT;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("perf_script") {
        assert_golden(&path, &read_golden(&PERF_SCRIPT, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&PERF_SCRIPT, &path);
        }
    }
}

/// The five counts of `perf_script.lines`; the first number is their sum.
fn counts(events: &str) -> (u64, Vec<u64>) {
    let line = events
        .lines()
        .find(|line| line.contains("perf_script.lines"))
        .expect("the counts of lines");
    let numbers: Vec<u64> = line
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    (numbers[0], numbers[1..].to_vec())
}

#[test]
fn every_line_is_counted() {
    for path in golden_files("perf_script") {
        let text = std::fs::read(&path).unwrap();
        let lines = text.split_inclusive(|&byte| byte == b'\n').count() as u64;
        let (sum, parts) = counts(&read_golden(&PERF_SCRIPT, &path));
        assert_eq!(sum, lines, "{}", path.display());
        assert_eq!(parts.iter().sum::<u64>(), lines, "{}", path.display());
    }
}

/// `-F comm,time,event` and `-F comm,cpu,time,event`: a comm may look like IDs.
#[test]
fn without_ids_all_of_it_is_the_comm() {
    let comms = [
        "job 12",
        "jbd2/vda1-8",
        "a [3]",
        "7",
        "12/13",
        "cat",
        "dog",
        "memfd:sealed-91",
    ];
    for cpu in ["", " [001]"] {
        let lines = comms
            .iter()
            .map(|comm| format!("{comm:>16}{cpu}     5.000001: cpu-clock: \n"));
        let other = (0..9).map(|_| format!("{:>16}{cpu}     5.000002: cpu-clock: \n", "bash"));
        let text: String = lines.chain(other).collect();
        let events = read_bytes(&PERF_SCRIPT, text.as_bytes());
        for comm in comms {
            assert!(
                events.contains(&format!("comm={comm:?}")),
                "{comm}: {events}"
            );
        }
        assert!(
            !events.contains("tid=") && events.contains(" 0 problems"),
            "{events}"
        );
        assert_eq!(events.contains("cpu=1"), !cpu.is_empty());
        assert!(!events.contains("cpu=3"));
    }
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let events = read_bytes(&PERF_SCRIPT, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("type") && !line.contains("perf_script.lines"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn frames_may_follow_an_empty_line() {
    check(
        "a 1 1.5: 7 cycles:u:\n\n\t401186 f+0x1 (/x)\n\nb 2 1.6: 8 cycles:u:\n\n\nc 3 1.7: 9 cycles:u:\n",
        &[
            "sample 0 time=1500000000 tid=1 comm=\"a\" space=user period=7 \
             user_stack=[\"f\"+0x1 in \"/x\" (user)]",
            "sample 0 time=1600000000 tid=2 comm=\"b\" period=8",
            "sample 0 time=1700000000 tid=3 comm=\"c\" period=9",
        ],
    );
}

#[test]
fn kernel_frames_are_the_leaves() {
    check(
        "a 1 1.5: cycles:\n\tffffffff81442060 k ([kernel.kallsyms])\n\t401186 u (/x)\n",
        &[
            "sample 0 time=1500000000 tid=1 comm=\"a\" ip=0xffffffff81442060 space=kernel \
             kernel_stack=[\"k\" in \"[kernel.kallsyms]\" at 0xffffffff81442060 (kernel)] \
             user_stack=[\"u\" in \"/x\" (user)]",
        ],
    );
}

#[test]
fn truncated_stack_is_a_problem() {
    let frames = "\t401186 f (/x)\n".repeat(65_537);
    for (frames, problems) in [(&frames[..65_536 * 15], 0), (&frames[..], 1)] {
        let text = format!("a 1 1.5: cycles:u:\n{frames}\nb 2 1.6: cycles:u:\n\t401186 f (/x)\n");
        let events = read_bytes(&PERF_SCRIPT, text.as_bytes());
        let found = events.matches("problem line 1: 1 × expected at most 65536 frames below");
        assert_eq!(found.count(), problems);
        assert_eq!(events.matches("\nsample ").count(), 2);
    }
}

#[test]
fn times_out_of_range_differ_from_no_time() {
    check(
        "a 1 9223372036.854775808: cycles:u:\na 1 18446744073.709551: cycles:u:\n",
        &[
            "sample 0 time=9223372036854775807 tid=1 comm=\"a\"",
            "sample 0 tid=1 comm=\"a\"",
        ],
    );
}

#[test]
fn lines_between_a_head_and_its_frames_are_no_samples() {
    let text = "a 1 1.500000: cycles:u:\n\t401186 f (/x)\nFailed to open /tmp/perf-1.map\n\t401190 g (/x)\na name\nb 2 1.600000: cycles:u:\n\t401186 f (/x)\n";
    let samples: Vec<String> = read_bytes(&PERF_SCRIPT, text.as_bytes())
        .lines()
        .filter(|line| line.starts_with("sample") || line.starts_with("problem"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        samples,
        [
            "problem line 5: 1 × expected a sample (comm tid time: event), or a frame of its stack, found \"a name\"",
            "sample 0 time=1500000000 tid=1 comm=\"a\" space=user \
             user_stack=[\"f\" in \"/x\" (user), \"g\" in \"/x\" (user)]",
            "sample 0 time=1600000000 tid=2 comm=\"b\" space=user user_stack=[\"f\" in \"/x\" (user)]",
        ]
    );
}

#[test]
fn differences_of_times_are_added_up() {
    let times = |text: &str| -> Vec<String> {
        read_bytes(&PERF_SCRIPT, text.as_bytes())
            .lines()
            .filter_map(|line| Some(line.split_once("time=")?.1.split_once(' ')?.0.to_owned()))
            .collect()
    };
    let of = |times: &[&str]| -> String {
        let lines = times
            .iter()
            .map(|time| format!("a 1 {time}: cycles:u:  401186 f (/x)\n"));
        lines.collect()
    };
    assert_eq!(
        times(&of(&["0.000000", "0.000048", "0.000028"])),
        ["0", "48000", "76000"]
    );
    // `--reltime`, and times of which one is late.
    assert_eq!(
        times(&of(&["0.000000", "0.000048", "0.000076"])),
        ["0", "48000", "76000"]
    );
    assert_eq!(times(&of(&["1.000000", "1.000048", "1.000028"])).len(), 3);
    assert_eq!(
        times(&of(&["1.000000", "1.000048", "1.000028"]))[2],
        "1000028000"
    );
}

#[test]
fn other_text_is_refused() {
    for text in [
        "",
        "hello world\n",
        "          <idle>-0       [001] d..2.     2.055256: sched_switch: a=1\n",
        "a;b;c 12\n",
        "# tracer: nop\n",
        "Entry      Delta       PID      Function    Caller\n-------- --------\n 9  8  19  c0009a80  c0008704\n",
        "30197127005 0 190 190 - 1 ffffffff811abb02\n30197135675 0 190 190 - 1 ffffffff810cdb57\n",
    ] {
        assert_eq!((PERF_SCRIPT.sniff)(text.as_bytes()), Guess::No, "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&PERF_SCRIPT, &bytes);
    }

    /// Fragments of real lines, in any order.
    #[test]
    fn any_pieces(pieces in prop::collection::vec(
        prop::sample::select(vec![
            "a b ", "12/13 ", "12 ", "[001] ", "1.000001: ", "5 ", "cycles:u:", "sched:sched_switch: ", "probe:x: ", "\n",
            "\n\n", "\t401186 ", "f+0x1 ", "(/x)", "(inlined)", "([unknown])", " ffffffff81442060 k", "PERF_RECORD_MMAP2 ",
            "PERF_RECORD_COMM: a:1/1", "1/2: [0x1(0x2) @ 0 1:2 3 4]: r-xp /x", "# hostname : h\n", "x=1 ", "0x1/0x2/P/-/-/1 ",
        ]), 0..50,
    )) {
        let text: String = pieces.concat();
        let events = read_bytes(&PERF_SCRIPT, text.as_bytes());
        if !events.starts_with("error") && !text.is_empty() {
            let (sum, parts) = counts(&events);
            prop_assert_eq!(sum, parts.iter().sum::<u64>());
            prop_assert_eq!(sum, text.split_inclusive('\n').count() as u64);
        }
    }

    /// Events of a prefix are a prefix of the whole file's events, except for the truncated sample.
    #[test]
    fn prefixes(cut in 0usize..2000) {
        let whole = "workload   220    50.102807555:    1001001 cpu-clock: \n\tffffffff81c95a7f __memset+0xf ([kernel.kallsyms])\n\
            \t          401186 main+0x3 (/w/workload)\n\n   dd   479/479   [001]   256.369262940:          1  sched:sched_wakeup: comm=a pid=1 prio=120 target_cpu=003\n\n".repeat(6);
        let cut = cut.min(whole.len());
        let events = read_bytes(&PERF_SCRIPT, &whole.as_bytes()[..cut]);
        let all = read_bytes(&PERF_SCRIPT, whole.as_bytes());
        if !events.starts_with("error") {
            let kept = events.lines().count().saturating_sub(5);
            for (part, of_whole) in events.lines().zip(all.lines()).take(kept) {
                prop_assert_eq!(part, of_whole);
            }
        }
    }
}

#[test]
fn a_text_that_ends_within_a_stack_is_reported() {
    let sample = "a 1 1.5: x: \n\t1 main+0x1 (/a)\n";
    for (text, place) in [
        (format!("{sample}\n{sample}\n"), None),
        (format!("{sample}{sample}"), None),
        (format!("{sample}\n{sample}"), Some("problem line 4:")),
        (format!("{sample}\na 1 1.5: x: 5"), Some("problem 1 ×")),
    ] {
        let found = read_bytes(&PERF_SCRIPT, text.as_bytes());
        let problems: Vec<&str> = found
            .lines()
            .filter(|line| line.starts_with("problem"))
            .collect();
        assert_eq!(problems.len(), usize::from(place.is_some()), "{problems:?}");
        assert!(place.is_none_or(|place| problems[0].starts_with(place)));
    }
}

#[test]
fn events_that_lose_their_names_are_counted() {
    let events: String = (0..8200)
        .map(|number| format!("a 1 [000] {number}.5: sys:event_{number}: x={number}\n"))
        .collect();
    let found = read_bytes(&PERF_SCRIPT, events.as_bytes());
    let problems: Vec<&str> = found
        .lines()
        .filter(|line| line.starts_with("problem"))
        .collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("9 ") && problems[0].contains("events of more than 8192 types"),
        "{problems:?}"
    );
}
