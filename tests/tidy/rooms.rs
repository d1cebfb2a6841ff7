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

/// The rooms that each room uses.
type Edges = BTreeMap<String, BTreeSet<String>>;

#[test]
fn directories_depend_on_each_other_in_one_direction() {
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
    let paths = paths_in(source).into_iter();
    paths
        .filter(|path| path.first().is_some_and(|first| first == "crate"))
        .filter_map(|path| path.get(1).cloned())
        .collect()
}

/// Returns the paths that a source file names outside its tests, with the trees of `use` unfolded.
fn paths_in(source: &str) -> Vec<Vec<String>> {
    let source = source.split("#[cfg(test)]\nmod tests {").next();
    let lines = source.unwrap_or_default().lines();
    let code: Vec<&str> = lines
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let code = code.join("\n");
    let mut paths = Vec::new();
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut rest = code.as_str();
    while let Some(place) = rest.find("::") {
        let start = rest[..place]
            .rfind(|letter| !is_word(letter))
            .map_or(0, |before| before + 1);
        let end = unfold(&rest[start..], &[], &mut paths);
        rest = &rest[start + end.max(place + 2 - start)..];
    }
    paths
}

/// Adds the paths of `a::b::{c, d::e}` at the beginning of `text`, each after `prefix`; returns its length.
fn unfold(text: &str, prefix: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    let mut place = 0;
    loop {
        let rest = &text[place..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut length = 1;
            for part in top_level(list) {
                let part_trimmed = part.trim_start();
                unfold(part_trimmed, &path, paths);
                length += part.len() + 1;
            }
            return place + length;
        }
        let word = first_word(rest);
        if !word.is_empty() {
            path.push(word.to_owned());
        }
        place += word.len();
        match text[place..].strip_prefix("::") {
            Some(_) if !word.is_empty() => place += 2,
            _ => break,
        }
    }
    paths.push(path);
    place
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
fn modules_depend_on_each_other_in_one_direction() {
    let sources: BTreeMap<Vec<String>, String> = tracked()
        .iter()
        .filter(|path| room_of(path).is_some())
        .map(|path| (module_of(path), path.display().to_string()))
        .collect();
    let mut edges = Edges::new();
    for path in sources.values().filter(|path| !path.ends_with("tests.rs")) {
        let module = module_of(Path::new(path));
        // A directory's own file knows the files in it, and they know it.
        if path.ends_with("/mod.rs") || sources.keys().any(|other| is_inside(other, &module)) {
            continue;
        }
        for named in paths_in(&read(&root().join(path))) {
            let seen = file_of(&named, &module, &sources).filter(|seen| seen != path);
            edges.entry(path.clone()).or_default().extend(seen);
        }
    }
    assert!(edges.len() > 300, "files are found: {}", edges.len());
    let wrong: Vec<String> = cycles(&edges)
        .into_iter()
        .map(|cycle| format!("these see each other: {cycle}"))
        .collect();
    assert_none(&wrong);
}

/// Returns the module of a source file: its crate, and the path inside.
fn module_of(path: &Path) -> Vec<String> {
    let text = path.display().to_string();
    let (package, inside) = text.split_once("/src/").unwrap_or_default();
    let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    std::iter::once(package)
        .chain(inside.split('/'))
        .map(str::to_owned)
        .collect()
}

fn is_inside(inner: &[String], outer: &[String]) -> bool {
    inner.len() > outer.len() && inner.starts_with(outer)
}

/// Returns the file of this crate that a path in `module` leads to.
fn file_of(
    named: &[String],
    module: &[String],
    sources: &BTreeMap<Vec<String>, String>,
) -> Option<String> {
    let first = named.first()?.as_str();
    let ups = named.iter().take_while(|word| *word == "super").count();
    let mut full = match first {
        "crate" => module.first().cloned().into_iter().collect(),
        "super" => module[..module.len().saturating_sub(ups)].to_vec(),
        _ => return None,
    };
    full.extend(named.iter().skip(ups.max(1)).cloned());
    while full.len() > 1 {
        if let Some(file) = sources.get(&full) {
            return Some(file.clone());
        }
        full.pop();
    }
    None
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
