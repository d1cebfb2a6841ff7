//! Golden files, cases that they lack, and random bytes.

use proptest::prelude::*;

use super::FIREFOX;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("firefox") {
        assert_golden(&path, &read_golden(&FIREFOX, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&FIREFOX, &path);
        }
    }
}

/// Versions differ in where tables are, and in a few columns; the events are the same.
#[test]
fn versions_agree() {
    let of = |name: &str| {
        let path = golden_files("firefox")
            .into_iter()
            .find(|path| path.ends_with(name))
            .unwrap();
        let events = read_golden(&FIREFOX, &path);
        let lines = events
            .lines()
            .filter(|line| !line.contains("preprocessedProfileVersion"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let newest = of("version-70.json");
    assert!(newest.len() > 10);
    assert_eq!(of("version-60.json"), newest);
    assert_eq!(of("version-50.json"), newest);
}

#[test]
fn raw_profiles_are_refused() {
    let events = read_bytes(
        &FIREFOX,
        b"{\"meta\":{\"interval\":1,\"version\":24,\"stackwalk\":1},\"threads\":[]}",
    );
    assert!(events.contains("a raw profile of Gecko"), "{events}");
}

/// Stacks whose prefix is not before them, missing indices, times and weights: the samples are kept, and each fault is reported.
#[test]
fn faulty_samples() {
    let text = "{\"meta\":{\"preprocessedProfileVersion\":60},\"shared\":{\"stackTable\":{\"frame\":[0,9,0],\"prefix\":[null,0,2]},\
        \"frameTable\":{\"func\":[0]},\"funcTable\":{\"name\":[0]},\"stringArray\":[\"f\"]},\"threads\":[{\"name\":\"t\",\"tid\":7,\
        \"samples\":{\"stack\":[0,1,2,77,\"x\",null],\"time\":[1,2,3,4,5],\"weight\":[1,1,1,-1,1,1]}}]}";
    let events = read_bytes(&FIREFOX, text.as_bytes());
    let lines: Vec<String> = events
        .lines()
        .filter(|line| {
            !line.starts_with("Fact") && !line.starts_with("Comm") && !line.starts_with("type")
        })
        .map(|line| match line.split_once(" × ") {
            Some((_, message)) => message.to_owned(),
            None => line.to_owned(),
        })
        .collect();
    assert_eq!(
        lines,
        [
            // A sample without a time precedes those with one.
            "sample 0 time=1000000 tid=7 period=1 user_stack=[\"f\"]",
            "expected the index of a stack, found \"1\"",
            "sample 0 time=2000000 tid=7 period=1",
            "expected the index of a stack, found \"2\"",
            "sample 0 time=3000000 tid=7 period=1 user_stack=[\"f\"]",
            "expected the index of a stack, found \"77\"",
            "expected a weight of at least 0, found \"-1\"",
            "sample 0 time=4000000 tid=7",
            "expected the index of a stack, found \"\\\"x\\\"\"",
            "sample 0 time=5000000 tid=7 period=1",
            "a sample without a time",
            "sample 0 tid=7 period=1",
        ]
    );
}

proptest! {
    #[test]
    fn any_bytes(text in "[\\[\\]{}\",:a-z0-9.\\\\ ]{0,120}") {
        read_bytes(&FIREFOX, text.as_bytes());
        let profile = format!("{{\"meta\":{{\"preprocessedProfileVersion\":1}},\"threads\":[{{\"samples\":{{\"stack\":[{text}");
        read_bytes(&FIREFOX, profile.as_bytes());
    }
}
