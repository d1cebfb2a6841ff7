//! Damaged inputs: bytes changed, removed, duplicated, moved between files. Everything follows from a seed.

use std::path::{Path, PathBuf};

use perfquet_events::Format;
use perfquet_tests::root;

/// xorshift64*: repeatable from its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Golden files by format, and the cases kept by earlier runs.
pub(crate) fn seeds(format: &Format) -> Vec<Vec<u8>> {
    let name = format.name.replace(['.', '-', ' '], "_");
    let golden = root()
        .join("formats/readers/src")
        .join(&name)
        .join("golden");
    let kept = root().join("tests/fuzz/corpus").join(&name);
    [golden, kept]
        .iter()
        .flat_map(|folder| files_in(folder))
        .collect()
}

fn files_in(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.to_string_lossy();
        path.is_file() && !name.contains(".snap") && !name.ends_with("README.md")
    });
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Numbers that often break readers.
const INTERESTING: [u64; 12] = [
    0,
    1,
    7,
    8,
    16,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

pub(crate) fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    for _ in 0..1 + random.below(12) {
        let length = bytes.len();
        let place = random.below(length);
        match random.below(8) {
            0 => bytes.truncate(place),
            1 | 2 => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = random.next() as u8;
                }
            }
            3 => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << random.below(8);
                }
            }
            4 => {
                // An integer, aligned as in most formats.
                let width = [2, 4, 8][random.below(3)];
                let place = place / width * width;
                let number = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
                if let Some(target) = bytes.get_mut(place..place + width) {
                    target.copy_from_slice(&number[..width]);
                }
            }
            5 => {
                let end = (place + random.below(64)).min(length);
                bytes.drain(place.min(end)..end);
            }
            6 => {
                let end = (place + random.below(256)).min(length);
                let piece = bytes[place.min(end)..end].to_vec();
                let target = random.below(length);
                bytes.splice(target.min(length)..target.min(length), piece);
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let start = random.below(other.len());
                let end = (start + random.below(512)).min(other.len());
                let target = place.min(bytes.len());
                bytes.splice(target..target, other[start..end].iter().copied());
            }
        }
    }
}

/// Changes values in a JSON text, keeping it valid: numbers become those that often break readers, strings become other
/// strings of the same text, members are lost.
pub(crate) fn mutate_json(bytes: &mut Vec<u8>, random: &mut Random) {
    let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return;
    };
    let mut strings = Vec::new();
    collect_strings(&value, &mut strings);
    strings.extend(
        [
            "",
            "..",
            "../../../etc/passwd",
            "/etc/passwd",
            "a/../..",
            "int64",
            "text",
            "samples",
            "\u{1b}[31m",
        ]
        .map(str::to_owned),
    );
    let count = leaves(&value);
    for _ in 0..1 + random.below(4) {
        let mut place = random.below(count);
        change(&mut value, &mut place, &strings, random);
    }
    *bytes = serde_json::to_vec(&value).unwrap();
}

fn collect_strings(value: &serde_json::Value, strings: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => strings.push(text.clone()),
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| collect_strings(item, strings))
        }
        serde_json::Value::Object(members) => {
            members
                .values()
                .for_each(|item| collect_strings(item, strings));
        }
        _ => {}
    }
}

fn leaves(value: &serde_json::Value) -> usize {
    1 + match value {
        serde_json::Value::Array(items) => items.iter().map(leaves).sum(),
        serde_json::Value::Object(members) => members.values().map(leaves).sum(),
        _ => 0,
    }
}

/// Changes the value this many positions further on.
fn change(
    value: &mut serde_json::Value,
    place: &mut usize,
    strings: &[String],
    random: &mut Random,
) -> bool {
    if *place == 0 {
        *value = match random.below(8) {
            0 => serde_json::Value::Null,
            1 => serde_json::json!([]),
            2 => serde_json::json!({}),
            3 => serde_json::json!(-1),
            4 | 5 => serde_json::json!(INTERESTING[random.below(INTERESTING.len())]),
            _ => serde_json::json!(strings[random.below(strings.len())]),
        };
        return true;
    }
    *place -= 1;
    match value {
        serde_json::Value::Array(items) => items
            .iter_mut()
            .any(|item| change(item, place, strings, random)),
        serde_json::Value::Object(members) => members
            .values_mut()
            .any(|item| change(item, place, strings, random)),
        _ => false,
    }
}
