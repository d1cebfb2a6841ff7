//! Inside a crate, its rooms (the files and directories directly in `src/`) see each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use perfquet_tests::root;

use super::{assert_none, read, tracked};

/// Rooms that may see each other: crate, rooms, reason.
const ALLOWED: [(&str, [&str; 2], &str); 1] = [(
    "formats/trace",
    ["store", "tables"],
    "tables are generated code in the store's vocabulary, and the store checks traces against them",
)];

/// What each room sees.
type Edges = BTreeMap<String, BTreeSet<String>>;

#[test]
fn rooms_see_each_other_in_one_direction() {
    let mut rooms: BTreeMap<String, Edges> = BTreeMap::new();
    for path in tracked() {
        if let Some((package, room)) = room_of(&path) {
            let seen = seen_in(&read(&root().join(&path)));
            let edges = rooms.entry(package).or_default();
            edges.entry(room).or_default().extend(seen);
        }
    }
    assert!(rooms.len() >= 9, "crates are found: {:?}", rooms.keys());
    let mut wrong = Vec::new();
    for (package, mut edges) in rooms {
        for (crate_allowed, [first, second], _) in ALLOWED {
            if crate_allowed == package
                && let Some(seen) = edges.get_mut(second)
            {
                seen.remove(first);
            }
        }
        for cycle in cycles(&edges) {
            wrong.push(format!("{package}: these see each other: {cycle}"));
        }
    }
    assert_none(&wrong);
}

/// Returns crate and room of a source file; `None` for the root of a crate and for files outside `src/`.
fn room_of(path: &Path) -> Option<(String, String)> {
    let path = path.to_str()?;
    let (package, inside) = path.split_once("/src/")?;
    if package.starts_with("tests") {
        return None;
    }
    if !inside.ends_with(".rs") {
        return None;
    }
    let room = inside.split('/').next()?.trim_end_matches(".rs");
    (!matches!(room, "lib" | "main")).then(|| (package.to_owned(), room.to_owned()))
}

/// Returns the rooms that a source file names: `crate::ROOM` and `crate::{ROOM, …}`.
fn seen_in(source: &str) -> BTreeSet<String> {
    let code: String = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut seen = BTreeSet::new();
    for (place, marker) in code.match_indices("crate::") {
        let after = &code[place + marker.len()..];
        let names: Vec<&str> = match after.strip_prefix('{') {
            Some(list) => top_level(list),
            None => vec![after],
        };
        seen.extend(names.into_iter().map(first_word).map(str::to_owned));
    }
    seen
}

/// Splits `a, b::{c, d}, e}` at the commas outside inner braces, up to the closing brace.
fn top_level(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (place, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&list[start..place]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    &text[..end]
}

/// Returns each group of rooms that reach one another, as a sentence's end.
fn cycles(edges: &Edges) -> BTreeSet<String> {
    let reach = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut open = vec![from.to_owned()];
        while let Some(room) = open.pop() {
            for next in edges.get(&room).into_iter().flatten() {
                if edges.contains_key(next) && *next != room && reached.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        edges.keys().map(|room| (room, reach(room))).collect();
    reached
        .iter()
        .filter(|(room, seen)| seen.contains(**room))
        .map(|(room, seen)| {
            let back = seen.iter().filter(|other| reached[other].contains(*room));
            back.cloned().collect::<Vec<_>>().join(", ")
        })
        .collect()
}

#[test]
fn a_cycle_is_found() {
    let edges = |list: &[(&str, &[&str])]| -> Edges {
        list.iter()
            .map(|(room, seen)| {
                let seen = seen.iter().map(|name| (*name).to_owned()).collect();
                ((*room).to_owned(), seen)
            })
            .collect()
    };
    let straight = edges(&[("a", &["b", "c", "a"]), ("b", &["c"]), ("c", &["serde"])]);
    assert!(cycles(&straight).is_empty());
    let round = edges(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]);
    assert_eq!(cycles(&round), BTreeSet::from(["a, b, c".to_owned()]));
    let source =
        "use crate::a;\nuse crate::{b, c::{d, e}, f::*};\n// crate::no\nlet x = crate::g::h();";
    let seen: Vec<String> = seen_in(source).into_iter().collect();
    assert_eq!(seen, ["a", "b", "c", "f", "g"]);
}
