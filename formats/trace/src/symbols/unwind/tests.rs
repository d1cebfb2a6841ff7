//! Rules and tables of this host's files: tables give the same result as gimli at random addresses, and reading damaged
//! sections ends.

use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use super::super::elf::{Content, Elf};
use super::super::files::Found;
use super::super::table::Table;
use super::cfi::{CallFrames, FrameIndex, Scratch};
use super::rule::{Frame, RBP, Rule};
use super::table::{CodeRules, UnwindTable};
use super::*;
use crate::symbols::tests::random_numbers;

/// Files of Debian; missing ones are skipped.
fn installed() -> Vec<PathBuf> {
    let system = [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/bash",
        "/usr/bin/perl",
        "/usr/bin/python3",
    ];
    let files = system.into_iter().map(PathBuf::from);
    files.filter(|path| path.exists()).collect()
}

/// The same, and this program.
fn files() -> Vec<PathBuf> {
    let own = std::env::current_exe().unwrap();
    installed().into_iter().chain([own]).collect()
}

fn found(path: &Path) -> Found {
    found_in(Elf::open(path).unwrap())
}

fn found_in(image: Elf) -> Found {
    Found {
        image: Arc::new(image),
        debug: None,
        is_verified: true,
    }
}

#[test]
fn tables_equal_evaluated_rules() {
    let mut random = random_numbers(3);
    for path in files() {
        let found = found(&path);
        let table = UnwindTable::of(&found);
        let mut rules = CodeRules::of(&found);
        assert!(table.rows.is_sorted_by_key(|row| row.address), "{path:?}");
        let last = table.rows.last().unwrap();
        let end = table.base + u64::from(last.address) + 64;
        let mut counts = [0; 3];
        for _ in 0..20_000 {
            let address = table.base + random() % (end - table.base);
            let (expected, in_table) = (rules.rule_at(address), table.rule_at(address));
            // Padding has the rule of the previous function, and frames beyond the limit of wide rules have none.
            match (expected, in_table) {
                (expected, in_table) if expected == in_table => counts[0] += 1,
                (Rule::Gap, _) => counts[1] += 1,
                (_, Rule::Opaque) => counts[2] += 1,
                _ => panic!("{path:?}: {address:#x}: {expected:?}, {in_table:?}"),
            }
        }
        println!(
            "{}: {} rows, {} wide, {counts:?}, {:?}",
            path.display(),
            table.rows.len(),
            table.wide.len(),
            table.chains
        );
        assert!(counts[1] < 1500 && counts[2] < 20, "{path:?}: {counts:?}");
    }
}

/// What compilers write is evaluated without gimli, which agrees.
#[test]
fn usual_rows_equal_those_of_gimli() {
    for path in files() {
        let found = found(&path);
        let frames = CallFrames::of(&found.image, None).unwrap();
        let (mut usual, mut rows) = (0, 0);
        for function in frames.functions() {
            let (found, all) = frames.both_ways(function);
            if let Some(found) = found {
                assert_eq!(found, all, "{path:?}: {function:?}");
                usual += 1;
                rows += all.len();
            }
        }
        let count = frames.functions().len();
        println!("{}: {usual} of {count}, {rows} rows", path.display());
        assert!(usual * 100 >= count * 95, "{path:?}: {usual} of {count}");
    }
}

#[test]
fn indexed_rules_equal_listed_ones() {
    let mut random = random_numbers(7);
    for path in files() {
        let found = found(&path);
        let mut rules = CodeRules::of(&found);
        let index = FrameIndex::of(&found.image).unwrap();
        let mut scratch = Scratch::default();
        let code = found.image.section(b".text").unwrap();
        let (mut indexed, mut listed) = (0, 0);
        for _ in 0..20_000 {
            let address = code.address + random() % code.bytes;
            let expected = rules.rule_at(address);
            listed += u32::from(expected != Rule::Gap);
            if let Some(rule) = index.rule_at(address, &mut scratch) {
                assert_eq!(rule, expected, "{path:?}: {address:#x}");
                indexed += 1;
            }
        }
        println!("{}: {indexed} of {listed}", path.display());
        assert!(
            indexed * 100 >= listed * 95,
            "{path:?}: {indexed}, {listed}"
        );
    }
}

#[test]
fn stubs_beside_an_index_equal_those_beside_a_list() {
    let mut random = random_numbers(5);
    let mut all = 0;
    for path in files() {
        let found = found(&path);
        let mut rules = CodeRules::of(&found);
        let index = FrameIndex::of(&found.image).unwrap();
        let mut stubbed = 0;
        for stub in &index.stubs {
            for _ in 0..1000 {
                let bytes = stub.code.end - stub.code.start;
                let address = stub.code.start + random() % bytes;
                let expected = rules.rule_at(address);
                let rule = index.stub_rule_at(address).unwrap();
                assert_eq!(rule, expected, "{path:?}: {address:#x}");
                stubbed += 1;
            }
        }
        // Nothing that has a function is a stub.
        for _ in 0..2000 {
            let code = found.image.section(b".text").unwrap();
            let address = code.address + random() % code.bytes;
            let rule = index.rule_at(address, &mut Scratch::default());
            assert_eq!(
                rule.is_some(),
                index.covers(address),
                "{path:?}: {address:#x}"
            );
            assert!(rule.is_none() || index.stub_rule_at(address).is_none());
        }
        println!("{}: {stubbed}", path.display());
        all += stubbed;
    }
    assert!(all > 0, "no file has stubs outside of its index");
}

#[test]
fn damaged_indexes_end() {
    let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let image = Elf::parse(Content::Owned(whole.clone())).unwrap();
    let part = image.contents(b".eh_frame_hdr").unwrap();
    let start = place_of(&whole, &part);
    let bytes = part.len();
    let code = image.section(b".text").unwrap();
    let (code_start, code_bytes) = (code.address, code.bytes);
    drop((image, part));
    let mut random = random_numbers(11);
    for round in 0..40 {
        let mut damaged = whole.clone();
        // The header, or entries.
        let reach = if round % 2 == 0 { 12 } else { bytes };
        for _ in 0..reach.min(2000) {
            damaged[start + random() as usize % reach] = random() as u8;
        }
        let found = found_in(Elf::parse(Content::Owned(damaged)).unwrap());
        let Some(index) = FrameIndex::of(&found.image) else {
            continue;
        };
        let mut scratch = Scratch::default();
        for _ in 0..500 {
            index.rule_at(code_start + random() % code_bytes, &mut scratch);
            index.rule_at(random(), &mut scratch);
        }
    }
}

/// The rules derived from instructions, against the compilers' own where code has both. Not in this program: it changes with each
/// build, and may begin with functions that never return, one after the other.
#[test]
fn rules_of_instructions_equal_those_of_compilers() {
    const BYTES: usize = 256 << 10;
    let (mut all_equal, mut all) = (0, 0);
    for path in installed() {
        let found = found(&path);
        let mut rules = CodeRules::of(&found);
        let text = found.image.section(b".text").unwrap().addresses();
        let code = found.image.code_at(text.start).unwrap();
        let size = usize::try_from(text.end - text.start).unwrap();
        let code = &code[..size.min(BYTES)];
        let derived = flow::rules_of(text.start, code, &|_| false);
        let (mut none, mut other_register, mut equal, mut wrong) = (0, 0, 0, 0);
        let mut decoder = Decoder::with_ip(64, code, text.start, DecoderOptions::NONE);
        for instruction in &mut decoder {
            // Padding never runs.
            if matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::INVALID) {
                continue;
            }
            let address = instruction.ip();
            let next = derived.partition_point(|(start, _)| *start <= address);
            let count = match (rules.rule_at(address), derived[next - 1].1) {
                (Rule::Gap | Rule::Opaque, _) => continue,
                (_, Rule::Gap) => &mut none,
                (Rule::Frame(expected), Rule::Frame(rule)) if expected.base != rule.base => {
                    &mut other_register
                }
                (Rule::Frame(expected), Rule::Frame(rule))
                    if (expected.offset, expected.indirect) == (rule.offset, rule.indirect) =>
                {
                    &mut equal
                }
                _ => &mut wrong,
            };
            *count += 1;
        }
        println!(
            "{}: {equal} equal, {other_register} by another register, {none} without a rule, {wrong} wrong",
            path.display()
        );
        let compared = none + other_register + equal + wrong;
        assert!(
            wrong * 200 < compared,
            "{path:?}: {wrong} of {compared} are wrong"
        );
        all_equal += equal;
        all += compared;
    }
    // Interpreters jump by tables, from where nothing is known.
    assert!(
        all == 0 || all_equal * 10 > all * 6,
        "{all_equal} of {all} are equal"
    );
}

#[test]
fn frame_pointers_are_judged_by_file() {
    let holds = |path: &str| {
        let path = Path::new(path);
        let exists = path.exists();
        exists.then(|| UnwindTable::of(&found(path)).chains.hold())
    };
    for path in files() {
        let path = path.to_str().unwrap();
        if path.starts_with("/usr") {
            assert_ne!(holds(path), Some(true), "{path}");
        }
    }
    for path in [
        "/usr/bin/node",
        "/usr/bin/go",
        "/usr/lib/go-1.19/bin/go",
        "/usr/lib/postgresql/15/bin/postgres",
        "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
    ] {
        assert_ne!(holds(path), Some(false), "{path}");
    }
}

#[test]
fn functions_of_stripped_go_programs_have_names() {
    let path = Path::new("/usr/lib/go-1.19/bin/go");
    // Another distribution's is elsewhere.
    if !path.exists() {
        return;
    }
    let found = found(path);
    let names = go_names(&found.image).unwrap();
    assert!(names.len() > 1000);
    let symbols = found.image.functions().map(Table::of_functions);
    let symbols = symbols.filter(|_| found.image.has_symbol_table());
    for wanted in ["main.main", "runtime.mallocgc", "runtime.gcBgMarkWorker"] {
        let wanted = wanted.as_bytes();
        let address = names.address_of(wanted).unwrap();
        let symbol = names.at(address + 1).unwrap();
        assert_eq!((names.name(symbol), symbol.start), (wanted, address));
        if let Some(symbols) = &symbols {
            assert_eq!(symbols.address_of(wanted), Some(address));
        }
    }
}

#[test]
fn rules_of_the_c_library() {
    let path = Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6");
    // Another distribution's is elsewhere.
    if !path.exists() {
        return;
    }
    let table = UnwindTable::of(&found(path));
    let rules: Vec<Rule> = table
        .rows
        .iter()
        .map(|row| Rule::of_row(*row, &table.wide))
        .collect();
    let count = |is_it: fn(&Rule) -> bool| rules.iter().filter(|rule| is_it(rule)).count();
    assert_eq!(
        count(|rule| matches!(rule, Rule::Signal)),
        1,
        "__restore_rt"
    );
    assert!(count(|rule| matches!(rule, Rule::Plt { .. })) >= 1);
    assert!(count(|rule| matches!(rule, Rule::Root)) >= 1, "clone3");
    let opaque = count(|rule| matches!(rule, Rule::Opaque));
    assert!(opaque * 1000 < rules.len(), "{opaque} of {}", rules.len());
    assert!(rules.contains(&Rule::Frame(Frame::ENTRY)));
    let fp = |rule: &Rule| matches!(rule, Rule::Frame(frame) if frame.base == RBP);
    assert!(rules.iter().any(fp));
}

/// Where a part of a file begins.
fn place_of(whole: &[u8], part: &[u8]) -> usize {
    let mut places = whole.windows(64);
    places.position(|window| part.starts_with(window)).unwrap()
}

#[test]
fn damaged_tables_end() {
    let path = std::env::current_exe().unwrap();
    let whole = std::fs::read(path).unwrap();
    let image = Elf::parse(Content::Owned(whole.clone())).unwrap();
    let section = image.section(b".eh_frame").unwrap();
    let section_bytes = section.bytes as usize;
    let part = image.contents(b".eh_frame").unwrap();
    let at = place_of(&whole, &part);
    drop((image, part));
    let mut random = random_numbers(5);
    for _ in 0..2 {
        let mut damaged = whole.clone();
        for _ in 0..200 {
            let place = at + random() as usize % section_bytes;
            damaged[place] = random() as u8;
        }
        let found = found_in(Elf::parse(Content::Owned(damaged)).unwrap());
        let table = UnwindTable::of(&found);
        assert!(table.rows.is_sorted_by_key(|row| row.address));
        assert!(table.rows.len() <= 2 * section_bytes);
        let mut rules = CodeRules::of(&found);
        for _ in 0..1000 {
            rules.rule_at(random() % (1 << 28));
        }
    }
}
