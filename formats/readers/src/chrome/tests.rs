//! Golden files, cases that they lack, and random JSON.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::CHROME;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("chrome") {
        assert_golden(&path, &read_golden(&CHROME, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&CHROME, &path);
        }
    }
}

/// The events without facts.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let events = read_bytes(&CHROME, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("Fact") && !line.starts_with("Progress"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn calls_come_in_the_order_of_their_entries() {
    check(
        r#"[{"ph":"X","name":"b","ts":1.5,"dur":1,"pid":1,"tid":2},{"ph":"X","name":"a","ts":1.5,"dur":9.25,"pid":1,"tid":2}"#,
        &[
            "call time=1500 pid=1 tid=2 function=\"a\" duration=9250",
            "call time=1500 pid=1 tid=2 function=\"b\" duration=1000",
        ],
    );
}

/// A name of a thread is worth more than that of its process, whatever their order.
#[test]
fn names_of_threads_win() {
    let thread = r#"{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"CrMain"}}"#;
    let process = r#"{"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"Browser"}}"#;
    for names in [[thread, process], [process, thread]] {
        let events = read_bytes(&CHROME, format!("[{}]", names.join(",")).as_bytes());
        let mut comms = events.lines().filter(|line| line.starts_with("Comm"));
        let last = comms.next_back().unwrap();
        assert!(last.contains("CrMain"), "{events}");
        let fact = "Fact(Other { name: \"chrome.process_name.1\", value: \"Browser\" })";
        assert!(events.contains(fact), "{events}");
    }
    let events = read_bytes(&CHROME, format!("[{process}]").as_bytes());
    assert!(
        events.contains("Browser") && !events.contains("process_name"),
        "{events}"
    );
}

/// Calls without a process and a thread are of one more thread, in which they nest; other events without one have none.
#[test]
fn calls_of_nobody_are_of_a_thread() {
    check(
        r#"[{"ph":"X","pid":10,"ts":1,"dur":4,"name":"A"},{"ph":"X","ts":2,"dur":4,"name":"C"},{"ph":"B","ts":3,"name":"D"},{"ph":"E","ts":4},
{"ph":"i","ts":5,"name":"tick"}]"#,
        &[
            "type 0 chrome:tick marker",
            "call time=1000 pid=10 tid=10 function=\"A\" duration=4000",
            "call time=2000 tid=1073741824 function=\"C\" duration=4000",
            "enter time=3000 tid=1073741824 function=\"D\"",
            "leave time=4000 tid=1073741824",
            "sample 0 time=5000 fields=[]",
        ],
    );
}

/// A call whose end is unknown encloses no others.
#[test]
fn calls_without_a_duration_enclose_nothing() {
    check(
        r#"[{"ph":"X","name":"a","ts":1,"pid":1},{"ph":"X","name":"b","ts":2,"dur":-1,"pid":1},{"ph":"X","name":"c","ts":3,"dur":4,"pid":1}]"#,
        &[
            "call time=1000 pid=1 tid=1 function=\"a\" leaf=true",
            "call time=2000 pid=1 tid=1 function=\"b\" leaf=true",
            "call time=3000 pid=1 tid=1 function=\"c\" duration=4000",
        ],
    );
}

#[test]
fn times_are_exact() {
    check(
        r#"[{"ph":"B","name":"a","ts":9007199254740.993,"pid":1},{"ph":"E","ts":"9007199254741.0019","pid":1},{"ph":"B","name":"c","ts":1e15,"pid":1}]"#,
        &[
            "enter time=9007199254740993 pid=1 tid=1 function=\"a\"",
            "leave time=9007199254741001 pid=1 tid=1",
            "enter time=1000000000000000000 pid=1 tid=1 function=\"c\"",
        ],
    );
}

#[test]
fn other_json_is_not_recognized() {
    for text in [
        "[]",
        "[1, 2]",
        r#"{"a": 1}"#,
        r#"[{"name": "x", "version": 1}]"#,
        "",
        "[",
        "{",
    ] {
        assert_eq!((CHROME.sniff)(text.as_bytes()), Guess::No, "{text}");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&CHROME, &bytes);
    }

    #[test]
    fn random_json(text in "\\[(\\{\"(ph|ts|name|tid|args)\":(\"[XBEiCMbes\\\\]\"|[0-9.e-]{1,4}|\\{|\\[|\\}|\\]|null)[,}]|[\\]},\" ]){0,30}") {
        read_bytes(&CHROME, text.as_bytes());
    }
}
