//! Golden files, cases that they lack, and random lines.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::GCOV;
use crate::golden::*;

/// Compares what a text is without facts.
#[track_caller]
fn check(text: &[u8], expected: &[&str]) {
    let events = read_bytes(&GCOV, text);
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("Fact"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn golden() {
    for path in golden_files("gcov") {
        assert_golden(&path, &read_golden(&GCOV, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&GCOV, &path);
        }
    }
}

#[test]
fn binary_counts_are_refused() {
    let bytes = b"adcg*22B\0\0\0\0";
    assert_eq!((GCOV.sniff)(bytes), Guess::Certain);
    let events = read_bytes(&GCOV, bytes);
    assert!(events.contains("run gcov FILE.gcda"), "{events}");
}

#[test]
fn counts() {
    let text = b"        -:    0:Source:a.c\n        5*:    1:x\n    #####:    2:y\n     1.2k:    3:z\nfunction f<int, long> called 7 returned 100% blocks executed 90%\n?\n";
    check(
        text,
        &[
            "aggregate name=\"executions\" action=count keys=[\"a.c\", \"1\"] value=5 snapshot=0",
            "aggregate name=\"executions\" action=count keys=[\"a.c\", \"2\"] value=0 snapshot=0",
            "problem line 4: 1 × expected a count that is not rounded, found \"     1.2k:    3:z\"",
            "aggregate name=\"calls\" action=count keys=[\"a.c\", \"f<int, long>\"] value=7 snapshot=0",
            "problem line 6: 1 × expected a count, a line number and its text, found \"?\"",
        ],
    );
}

/// gcov prints the sum of all instances of a template, then each of them.
#[test]
fn a_line_of_several_functions_has_one_total() {
    let text = b"        -:    0:Source:t.cc\n      107:    2:  T r = a + b;\n      107:    2-block  0\n------------------\n\
        double add<double>(double, double):\nfunction double add<double>(double, double) called 7 returned 100% blocks executed 100%\n        \
        7:    2:  T r = a + b;\n------------------\nint add<int>(int, int):\n      100:    2:  T r = a + b;\n------------------\n        \
        1:    5:int main() {\n";
    check(
        text,
        &[
            "aggregate name=\"executions\" action=count keys=[\"t.cc\", \"2\"] value=107 snapshot=0",
            "aggregate name=\"calls\" action=count keys=[\"t.cc\", \"double add<double>(double, double)\"] value=7 snapshot=0",
            "aggregate name=\"executions by function\" action=count keys=[\"t.cc\", \"2\", \"double add<double>(double, double)\"] value=7 snapshot=0",
            "aggregate name=\"executions by function\" action=count keys=[\"t.cc\", \"2\", \"int add<int>(int, int)\"] value=100 snapshot=0",
            "aggregate name=\"executions\" action=count keys=[\"t.cc\", \"5\"] value=1 snapshot=0",
        ],
    );
}

proptest! {
    #[test]
    fn random_lines(text in "(function f called|#####:|-:|    0:Source:|[0-9*: a]|\n){0,60}") {
        read_bytes(&GCOV, text.as_bytes());
    }
}
