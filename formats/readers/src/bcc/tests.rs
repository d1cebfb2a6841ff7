//! Golden files, cases that they lack, and random lines.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::BCC;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("bcc") {
        assert_golden(&path, &read_golden(&BCC, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&BCC, &path);
        }
    }
}

/// The events without the facts at the beginning and the end.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let events = read_bytes(&BCC, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("Fact"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn other_texts_are_not_recognized() {
    for text in [
        "usecs : count distribution\nnot a bar\n",
        "This text has    PID COMM FD ERR PATH\n",
        "  main\n    5\n",
        "{\"a\": \": count distribution\"}\n",
        "",
    ] {
        assert_eq!((BCC.sniff)(text.as_bytes()), Guess::No, "{text}");
    }
}

/// A damaged bar is reported, and those around it are kept.
#[test]
fn damaged_bars() {
    check(
        "     usecs : count    distribution\n  0 -> 1 : 5 |**|\n  2 -> 3 : x |**|\n  4 -> 7 : 6 |**|\n",
        &[
            "problem line 3: 1 × expected a bar of a histogram, found \"  2 -> 3 : x |**|\"",
            "aggregate name=\"usecs\" action=quantize keys=[] snapshot=0 [0, 2)×5 [4, 8)×6",
        ],
    );
}

/// After midnight, times go on.
#[test]
fn midnight() {
    let histogram = "  usecs : count distribution\n  0 -> 1 : 5 |*|\n\n";
    check(
        &format!("23:59:59\n{histogram}00:00:01\n{histogram}"),
        &[
            "aggregate name=\"usecs\" action=quantize keys=[] snapshot=0 time=86399000000000 [0, 2)×5",
            "aggregate name=\"usecs\" action=quantize keys=[] snapshot=1 time=86401000000000 [0, 2)×5",
        ],
    );
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&BCC, &bytes);
    }

    /// Every line is counted once, whatever surrounds it.
    #[test]
    fn lines_add_up(lines in prop::collection::vec(0usize..12, 1..60)) {
        const LINES: [&str; 12] = [
            "", "12:00:00", "pid = 7 sh", "     usecs   : count    distribution", "  0 -> 1  : 5  |**|", "text",
            "FUNC     COUNT", "read   7", "    schedule", "    -      sh (7)", "        55", "avg = 1 us, total: 2 us, count: 2",
        ];
        let text: String = lines.iter().map(|line| format!("{}\n", LINES[*line])).collect();
        let events = read_bytes(&BCC, text.as_bytes());
        let counted = format!("value: \"{}: ", lines.len());
        prop_assert!(events.contains(&counted), "{}", events);
    }
}
