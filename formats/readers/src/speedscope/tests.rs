//! Golden files, cases that they lack, and random bytes.

use proptest::prelude::*;

use super::SPEEDSCOPE;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("speedscope") {
        assert_golden(&path, &read_golden(&SPEEDSCOPE, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&SPEEDSCOPE, &path);
        }
    }
}

/// The events without facts and types.
#[track_caller]
fn check(profile: &str, expected: &[&str]) {
    let text = format!(
        "{{\"shared\":{{\"frames\":[{{\"name\":\"a\"}},{{\"name\":\"b\"}}]}},\"profiles\":[{profile}]}}"
    );
    let events = read_bytes(&SPEEDSCOPE, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("Fact") && !line.starts_with("type"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn weights_are_exact() {
    check(
        r#"{"type":"sampled","unit":"seconds","samples":[[0],[0,1],[]],"weights":[0.000000001,1e-3,2]}"#,
        &[
            "sample 0 period=1 user_stack=[\"a\"]",
            "sample 0 period=1000000 user_stack=[\"b\", \"a\"]",
            "sample 0 period=2000000000 user_stack=[]",
        ],
    );
    check(
        r#"{"type":"sampled","unit":"none","samples":[[0],[7]],"weights":[1.25,-3,4]}"#,
        &[
            "sample 0 period=125 user_stack=[\"a\"]",
            "problem offset 0x6d: 1 × expected the index of a frame, found \"7\"",
            "problem offset 0x6c: 1 × expected a weight of at least 0, found \"-3\"",
            "sample 0 user_stack=[\"\"]",
            "problem offset 0x7b: 1 × 1 weights without a sample",
        ],
    );
}

/// A call that is closed out of order is reported, and stays open.
#[test]
fn calls_out_of_order() {
    check(
        r#"{"type":"evented","name":"t","unit":"microseconds","events":[{"type":"O","frame":0,"at":1},{"type":"O","frame":1,"at":2.5},{"type":"C","frame":0,"at":3},{"type":"C","frame":1,"at":4}]}"#,
        &[
            "problem offset 0xb8: 1 × expected an event of an open call or a known frame, found \"{\\\"type\\\":\\\"C\\\",\\\"frame\\\":0,\\\"at\\\":3}\"",
            "call time=1000 tid=1073741824 comm=\"t\" function=\"a\" depth=0",
            "call time=2500 tid=1073741824 comm=\"t\" function=\"b\" depth=1 duration=1500",
        ],
    );
}

/// Each evented profile is a thread, even if they have the same name; calls of equal times keep their order.
#[test]
fn evented_profiles_are_threads() {
    let profile = |name: &str, at: [u32; 4]| {
        let [a, b, c, d] = at;
        format!(
            r#"{{"type":"evented","name":"{name}","unit":"nanoseconds","events":[{{"type":"O","frame":0,"at":{a}}},{{"type":"O","frame":1,"at":{b}}},
{{"type":"C","frame":1,"at":{c}}},{{"type":"C","frame":0,"at":{d}}}]}}"#
        )
    };
    check(
        &[profile("w", [5, 10, 30, 90]), profile("w", [5, 5, 5, 8])].join(","),
        &[
            "call time=5 tid=1073741824 comm=\"w\" function=\"a\" depth=0 duration=85",
            "call time=5 tid=1073741825 comm=\"w\" function=\"a\" depth=0 duration=3",
            "call time=5 tid=1073741825 comm=\"w\" function=\"b\" depth=1 duration=0",
            "call time=10 tid=1073741824 comm=\"w\" function=\"b\" depth=1 duration=20",
        ],
    );
}

proptest! {
    #[test]
    fn any_bytes(text in "[\\[\\]{}\",:a-z0-9.\\\\ ]{0,120}") {
        read_bytes(&SPEEDSCOPE, text.as_bytes());
        let profile = format!("{{\"profiles\":[{{\"type\":\"evented\",\"events\":{text}");
        read_bytes(&SPEEDSCOPE, profile.as_bytes());
    }
}
