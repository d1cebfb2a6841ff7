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
    ] {
        assert_eq!((SYSTEMTAP.sniff)(text.as_bytes()), Guess::No, "{text}");
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
