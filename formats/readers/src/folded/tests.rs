//! Golden files, the public corpus, random lines.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::FOLDED;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("folded") {
        assert_golden(&path, &read_golden(&FOLDED, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&FOLDED, &path);
        }
    }
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let events = read_bytes(&FOLDED, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("type"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn frames() {
    check(
        "a;f_[k];g_[i];h_[k] 2\n",
        &[
            "sample 0 period=2 kernel_stack=[\"h\" (kernel), \"g\" (kernel) inlined, \"f\" (kernel)] \
             user_stack=[\"a\"]",
        ],
    );
    check(
        "f_[k];a;b_[j];[unknown] 1\n",
        &["sample 0 period=1 user_stack=[\"\", \"b\" in \"[jit]\" (user), \"a\", \"f\" (kernel)]"],
    );
    check(
        "idle_[k] 1\n",
        &["sample 0 period=1 kernel_stack=[\"idle\" (kernel)]"],
    );
    check(" 5\n\n", &["sample 0 period=5 user_stack=[]"]);
}

#[test]
fn comments_are_no_samples() {
    check(
        "# interval: 100\n# a note 7\na;b 1\n# x;y 3\n",
        &[
            "Fact(Other { name: \"folded.interval\", value: \"100\" })",
            "sample 0 period=1 user_stack=[\"b\", \"a\"]",
            "sample 0 period=3 user_stack=[\"y\", \"# x\"]",
        ],
    );
}

#[test]
fn comparisons() {
    check(
        "a 0 3\nb 2 0\nc 0 0\n",
        &[
            "sample 1 period=3 user_stack=[\"a\"]",
            "sample 0 period=2 user_stack=[\"b\"]",
            "sample 0 period=0 user_stack=[\"c\"]",
        ],
    );
    check(
        "a 1\nb 2 3\n",
        &[
            "sample 0 period=1 user_stack=[\"a\"]",
            "sample 0 period=3 user_stack=[\"b 2\"]",
        ],
    );
}

#[test]
fn many_bad_lines_are_counted() {
    let text = format!("a;b 1\n{}", "bad\n".repeat(1000));
    let events = read_bytes(&FOLDED, text.as_bytes());
    assert_eq!(events.lines().count(), 2 + 100 + 1);
    assert!(events.ends_with("problem 900 × more lines without a stack and its count\n"));
}

#[test]
fn a_line_of_separators_is_rejected() {
    let text = format!("a;b 1\n{} 1\n", ";".repeat(1 << 20));
    let events = read_bytes(&FOLDED, text.as_bytes());
    assert!(events.contains("problem line 2: 1 × expected at most 65536 frames"));
}

#[test]
fn other_text_is_not_recognized() {
    for text in [
        "",
        "hello world 12\n",
        "a = 1;\nint b;\n",
        "{\"a;b\": 1}\n",
        "\x7fELF;;; 1\n\0",
    ] {
        assert_eq!((FOLDED.sniff)(text.as_bytes()), Guess::No, "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&FOLDED, &bytes);
    }

    /// Every well-formed line gives one sample, whatever its frames are named.
    #[test]
    fn lines_become_samples(
        lines in prop::collection::vec(("[a-z <>:\\[\\]_]{0,9}(;[a-z <>:\\[\\]_]{0,9}){0,5}x", 0u32..), 1..20),
    ) {
        let text: String = lines.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect();
        let events = read_bytes(&FOLDED, text.as_bytes());
        prop_assert_eq!(events.matches("sample 0 period=").count(), lines.len());
        prop_assert!(!events.contains("problem"));
    }

    /// Events of a prefix are a prefix of the whole file's, except for the truncated line.
    #[test]
    fn prefixes(cut in 0usize..333) {
        let whole = "main;a_[k] 12\nmain;b;c 3\nx;y z 77\n\nbad line\nlast;one 4\n".repeat(6);
        let events = read_bytes(&FOLDED, &whole.as_bytes()[..cut.min(whole.len())]);
        let all = read_bytes(&FOLDED, whole.as_bytes());
        let kept = events.lines().count().saturating_sub(2);
        for (part, of_whole) in events.lines().zip(all.lines()).take(kept) {
            prop_assert_eq!(part, of_whole);
        }
    }
}
