//! Golden files, cases that they lack, and random lines.

use proptest::prelude::*;

use super::BPFTRACE;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("bpftrace") {
        assert_golden(&path, &read_golden(&BPFTRACE, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&BPFTRACE, &path);
        }
    }
}

/// Text and JSON of the same program give the same keys and bars.
#[test]
fn text_and_json_agree() {
    let rows = |text: &str| {
        let mut rows: Vec<String> = read_bytes(&BPFTRACE, text.as_bytes())
            .lines()
            .filter(|line| line.starts_with("aggregate"))
            .map(str::to_owned)
            .collect();
        rows.sort();
        rows
    };
    let text = include_str!("golden/maps.txt");
    let json = include_str!("golden/maps.json");
    let pid = |text: &str| {
        let start = text.find("keys=[\"bpftrace\", \"").unwrap() + 19;
        text[start..].split('"').next().unwrap().to_owned()
    };
    let (of_text, of_json) = (rows(text).join("\n"), rows(json).join("\n"));
    assert_eq!(
        of_text.replace(&pid(&of_text), "PID"),
        of_json
            .replace(&pid(&of_json), "PID")
            .replace("\"a\", \" b\"", "\"a\", \"b\"")
    );
}

/// Stacks of several processes may look alike. At the end of the program, each map is printed once, in ascending order.
#[test]
fn stacks_that_look_alike_are_of_one_printing() {
    let snapshots = |text: &str| {
        let rows = read_bytes(&BPFTRACE, text.as_bytes());
        let of_stacks = rows.lines().filter(|row| row.contains("name=\"@s\""));
        let number = |row: &str| {
            row.split("snapshot=")
                .nth(1)
                .map(|rest| rest.split([' ', ')']).next().unwrap_or_default().to_owned())
        };
        of_stacks
            .filter_map(number)
            .collect::<Vec<String>>()
            .join(" ")
    };
    let stack = |value: u32| format!("@s[\n    work+12\n]: {value}\n");
    let print = |values: &[u32]| values.iter().map(|value| stack(*value)).collect::<String>();
    let end = |values: &[u32]| format!("Attaching 2 probes...\n\n\n@a: 1\n{}", print(values));
    assert_eq!(snapshots(&end(&[179, 179, 183])), "0 0 0");
    // Printed again, by END.
    assert_eq!(snapshots(&end(&[179, 183, 179, 183])), "0 0 1 1");
    // Printed while the program runs.
    assert_eq!(snapshots(&print(&[1, 2, 3])), "0 1 2");
    assert_eq!(
        snapshots(&format!("{}\n\n{}", print(&[1]), print(&[2, 2]))),
        "0 1 1"
    );
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&BPFTRACE, &bytes);
    }

    /// Every entry line is read as an entry, whatever surrounds it.
    #[test]
    fn lines_add_up(lines in prop::collection::vec(0usize..8, 0..60)) {
        const LINES: [&str; 8] = ["", "@a: 1", "@b[x, y]: 2", "text", "Lost 3 events", "@h: ", "[4, 8)   1 |@@|", "@s[t]: word"];
        let text: String = lines.iter().map(|line| format!("{}\n", LINES[*line])).collect();
        let events = read_bytes(&BPFTRACE, text.as_bytes());
        let count = |line: usize| lines.iter().filter(|other| **other == line).count();
        prop_assert_eq!(events.matches("Loss(").count(), count(4));
        prop_assert_eq!(events.matches("name=\"@a\"").count(), count(1));
        prop_assert_eq!(events.matches("name=\"@b\"").count(), count(2));
        prop_assert_eq!(events.matches("\"text\"").count(), count(3));
        prop_assert_eq!(events.matches("word").count(), count(7));
    }

    /// Events of a prefix are a prefix of the whole text's, except for its last entry.
    #[test]
    fn prefixes(cut in 0usize..600) {
        let whole = "Attaching 1 probe...\n@a[x, 1]: 1\n@a[y, 2]: 2\n\n@h: \n[4, 8)  1 |@|\n[8, 16)  1 |@|\n\n@s[\n    f+1\n]: 5\n".repeat(5);
        let events = read_bytes(&BPFTRACE, &whole.as_bytes()[..cut.min(whole.len())]);
        let all = read_bytes(&BPFTRACE, whole.as_bytes());
        let kept = events.lines().count().saturating_sub(7);
        for (part, of_whole) in events.lines().zip(all.lines()).take(kept) {
            prop_assert_eq!(part, of_whole);
        }
    }
}
