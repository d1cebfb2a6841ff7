//! Comparing what a command printed with what the page shows: `[..]` within a line, `...` for whole lines.

/// Whether the output matches the page; both are compared line by line, without trailing blanks.
pub fn matches(expected: &[&str], found: &[&str]) -> bool {
    match (expected, found) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=found.len()).any(|start| matches(rest, &found[start..])),
        ([line, rest @ ..], [first, others @ ..]) => {
            line_matches(line.trim_end(), first.trim_end()) && matches(rest, others)
        }
        _ => false,
    }
}

/// Columns that a report prints only if they have values.
const OPTIONAL: [&str; 8] = [
    "comm_count",
    "ended_by",
    "error",
    "errors",
    "interrupt",
    "unfinished",
    "unknown",
    "why",
];

/// Whether the output is of the same kind as in the page: the same tables but for optional columns, or none.
pub fn alike(expected: &[&str], found: &[&str]) -> bool {
    expected.is_empty() == found.is_empty() && headings(expected) == headings(found)
}

/// The names of the columns of each table: the words above a rule.
fn headings<'a>(lines: &[&'a str]) -> Vec<Vec<&'a str>> {
    let is_rule =
        |line: &str| line.contains("──") && line.chars().all(|letter| "─ ".contains(letter));
    let above = lines.windows(2).filter(|pair| is_rule(pair[1]));
    above
        .map(|pair| {
            let names = pair[0].split_whitespace();
            names.filter(|name| !OPTIONAL.contains(name)).collect()
        })
        .collect()
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

#[test]
fn varying_output_has_the_same_headings() {
    let shown = ["comm    n", "────  ───", "sh     12"];
    assert!(alike(
        &shown,
        &["comm       n", "───────  ───", "rustc    900", "ld  1"]
    ));
    assert!(alike(
        &shown,
        &["comm   n  errors", "────  ──  ──────", "ld    90       3"]
    ));
    assert!(!alike(&shown, &["comm", "────", "sh"]));
    assert!(!alike(&shown, &[]));
    assert!(!alike(&[], &["surprise"]));
}
