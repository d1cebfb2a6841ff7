//! Golden files, cases that they lack, and random lines.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::SYSTEMTAP;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("systemtap") {
        assert_golden(&path, &read_golden(&SYSTEMTAP, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&SYSTEMTAP, &path);
        }
    }
}

/// The events without the facts at the beginning and the end.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let events = read_bytes(&SYSTEMTAP, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("Fact") && !line.starts_with("type"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn other_texts_are_not_recognized() {
    for text in [
        "value |--- count\nno bar\n",
        " 0x1\n 0x2\n",
        "0 x(7): -> f\n",
        "16\n",
        "",
        // Three values, one row, and rows without a key.
        "Name  Count  Total ns  Avg ns\nread  1  2  3\nwrite  1  2  3\n",
        "Name  Count  Total ns  Avg ns  Max ns\nread  1  2  3  4\nand text\n",
        "Name  Count  Total ns  Avg ns  Max ns\n1  2  3  4\n5  6  7  8\n",
    ] {
        assert_eq!((SYSTEMTAP.sniff)(text.as_bytes()), Guess::No, "{text}");
    }
}

/// Tables of function times are recognized; their keys have no colon.
#[test]
fn function_times() {
    let schedtimes = "  execname:    pid    run(us)  sleep(us) iowait(us) queued(us)  total(us)\n\n  \
        systemd:      1        172  109137213          0         35  109137420\n  kthreadd:      2         82   96230995          0         97   96231174\n";
    let kvm = "# Intel exit reasons\n# reason: count sum(us) min(us) avg(us) max(us)\n0: 55 123 0 2 12\n1: 16668 23165 0 1 77\n";
    // latencytap: a blank line between the rows.
    let text = format!(
        "{schedtimes}\n  sh:      7        1  2          3         4  5\n\ntext 1 2 3 4 5\n"
    );
    let events = read_bytes(&SYSTEMTAP, text.as_bytes());
    assert_eq!(
        events.matches("keys=[\"sh\", \"7\"]").count(),
        5,
        "{events}"
    );
    for (text, keys) in [(schedtimes, "[\"systemd\", \"1\"]"), (kvm, "[\"0\"]")] {
        assert_eq!((SYSTEMTAP.sniff)(text.as_bytes()), Guess::Likely, "{text}");
        let events = read_bytes(&SYSTEMTAP, text.as_bytes());
        assert_eq!(
            events.matches(&format!("keys={keys}")).count(),
            5,
            "{events}"
        );
    }
}

#[test]
fn damaged_lines() {
    check(
        "value |------ count\n 1 |@  1\n 2 |@  x\n 4 |@  1\nf\n 0xfffff : f+0xzz/0x1\n",
        &[
            "problem line 3: 1 × expected a bar of a histogram, found \" 2 |@  x\"",
            "aggregate action=quantize keys=[] snapshot=0 [1, 2)×1 [4, 8)×1",
            "sample 0 fields=[5, \"f\"]",
            "problem line 6: 1 × expected an address and its symbol, found \" 0xfffff : f+0xzz/0x1\"",
        ],
    );
}

/// Durations are those between the lines of the same call; times restart, so there are none.
#[test]
fn calls_restart() {
    check(
        "   0 x(7):->f\n   2 x(7): ->g a=0x1\n   9 x(7):<-f return=0x2\n   0 x(7):->f\n   3 x(7):<-f\n   4 x(7):<-h\n",
        &[
            "enter tid=7 comm=\"x\" function=\"f\" depth=0",
            "enter tid=7 comm=\"x\" function=\"g\" depth=1 args=[\"a=0x1\"]",
            "leave tid=7 comm=\"x\" function=\"f\" depth=0 duration=9000 retval=2",
            "enter tid=7 comm=\"x\" function=\"f\" depth=0",
            "leave tid=7 comm=\"x\" function=\"f\" depth=0 duration=3000",
            "leave tid=7 comm=\"x\" function=\"h\" depth=0",
        ],
    );
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&SYSTEMTAP, &bytes);
    }

    /// Every line is counted once, whatever surrounds it.
    #[test]
    fn lines_add_up(lines in prop::collection::vec(0usize..11, 1..60)) {
        const LINES: [&str; 11] = [
            "", "title:", "value |------- count", "  4 |@@  3", "  ~", "text", "  9 x(7): -> f(a=1)", " 12 x(7): <- f return=0x1",
            " 0xffffffff8134d8f0 : f+0x1/0x2 [kernel]", "16", "  System Call    Count    Total ns",
        ];
        let text: String = lines.iter().map(|line| format!("{}\n", LINES[*line])).collect();
        let events = read_bytes(&SYSTEMTAP, text.as_bytes());
        let counted = format!("value: \"{}: ", lines.len());
        prop_assert!(events.contains(&counted), "{}", events);
    }
}
