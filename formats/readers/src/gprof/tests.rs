//! Golden files, cases that they lack, and random lines.

use proptest::prelude::*;

use super::GPROF;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("gprof") {
        assert_golden(&path, &read_golden(&GPROF, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&GPROF, &path);
        }
    }
}

#[test]
fn binary_counts_are_refused() {
    let events = read_bytes(&GPROF, b"gmon\x01\0\0\0\0\0\0\0");
    assert!(events.contains("run gprof PROGRAM gmon.out"), "{events}");
}

/// The calls of all callers of a function are those of its row in the flat profile.
#[test]
fn edges_add_up() {
    let path = golden_files("gprof")
        .into_iter()
        .find(|path| path.ends_with("profile.txt"))
        .unwrap();
    let events = read_golden(&GPROF, &path);
    let value = |line: &str| {
        line.split("value=")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let sum = |start: &str, end: &str| {
        events
            .lines()
            .filter(|line| line.contains(start) && line.contains(end))
            .map(value)
            .sum::<u64>()
    };
    assert_eq!(sum("name=\"calls\"", "keys=[\"leaf\"]"), 3001);
    assert_eq!(sum("name=\"edge calls\"", ", \"leaf\"]"), 3001);
    assert_eq!(
        sum("name=\"edge calls\"", "keys=[\"fib\", \"fib\"]"),
        2_692_536
    );
}

proptest! {
    #[test]
    fn random_lines(text in "(index % time    self  children    called     name\n|time seconds seconds calls name\n|\\[1\\]|-----|[0-9./+a-f <\\]\\[]|\n){0,60}") {
        read_bytes(&GPROF, text.as_bytes());
    }
}
