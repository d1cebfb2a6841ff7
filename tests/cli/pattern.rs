//! Comparing what a command printed with what the page shows: `[..]` within a line, `...` for whole lines.

/// Whether the output is what the page expects; both are compared line by line, without trailing blanks.
pub(crate) fn matches(expected: &[&str], found: &[&str]) -> bool {
    match (expected, found) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=found.len()).any(|start| matches(rest, &found[start..])),
        ([line, rest @ ..], [first, others @ ..]) => {
            line_matches(line.trim_end(), first.trim_end()) && matches(rest, others)
        }
        _ => false,
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    match pattern.split_once("[..]") {
        None => pattern == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|&at| rest.is_char_boundary(at))
                .any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

#[test]
fn anything_in_a_line_and_any_lines() {
    assert!(matches(&["a [..] c"], &["a b c  "]));
    assert!(matches(&["a", "...", "z"], &["a", "b", "c", "z"]));
    assert!(matches(&["...", "z"], &["z"]));
    assert!(!matches(&["a [..] c"], &["a b d"]));
    assert!(!matches(&["a", "..."], &["b"]));
    assert!(!matches(&[], &["more than expected"]));
}
