//! Golden files, cases that they lack, and random lines.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::CALLGRIND;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("callgrind") {
        assert_golden(&path, &read_golden(&CALLGRIND, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&CALLGRIND, &path);
        }
    }
}

#[test]
fn other_texts_are_not_recognized() {
    for text in ["events: many\n", "fn=1\nfl=2\n", ""] {
        assert_eq!((CALLGRIND.sniff)(text.as_bytes()), Guess::No, "{text}");
    }
}

/// The costs of calls are not those of the line; wrong totals and undefined names are reported.
#[test]
fn costs_and_totals() {
    let events = read_bytes(&CALLGRIND, b"events: Ir Dr\nfn=(1) f\n5 10 1\ncfn=(2) g\ncalls=3 9\n* 70 5\ncfn=(2)\ncalls=1 9\n* 0 2\nfn=(3)\n+1 4\ntotals: 15 1\n");
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("type"))
        .collect();
    assert_eq!(
        lines,
        [
            "sample 0 period=10 user_stack=[\"f\":5 (user)]",
            "sample 1 period=1 user_stack=[\"f\":5 (user)]",
            "problem line 10: 1 × expected a name that was defined, or costs, found \"fn=(3)\"",
            "sample 0 period=4 user_stack=[\"\":6 (user)]",
            "problem line 12: 1 × expected totals of [14, 1], the sums of the costs above, found \"totals: 15 1\"",
            "aggregate name=\"calls\" action=count keys=[\"f\", \"g\"] value=4 snapshot=0",
            "aggregate name=\"Ir\" action=sum keys=[\"f\", \"g\"] value=70 snapshot=0",
            "aggregate name=\"Dr\" action=sum keys=[\"f\", \"g\"] value=7 snapshot=0",
            "Fact(Other { name: \"callgrind.lines\", value: \"12: 4 data, 7 header, 0 blank, 0 losses, 1 problems\" })",
        ]
    );
}

proptest! {
    #[test]
    fn random_lines(text in "(fn=|calls=|cfn=|events: |positions: instr line|jump=|totals: |\\(|\\)|[0-9x+*\\- a:]|\n){0,80}") {
        read_bytes(&CALLGRIND, text.as_bytes());
    }
}
