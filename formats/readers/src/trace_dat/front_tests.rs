//! Files without their first bytes, or without the table of an instance: their events are those of the whole file.

use perfquet_events::Guess;
use perfquet_events::bytes::Endian;
use perfquet_events::scan::find_text;

use super::TRACE_DAT;
use super::test_file::*;
use crate::golden::*;

/// A file of version 6 with two CPUs in the top-level buffer and in an instance, and a page for each second.
fn made(endian: Endian) -> TestFile {
    let mut made = TestFile::new(endian, 8);
    for (name, first) in [("", 1), ("instance", 50)] {
        let cpus = (0..2u32).map(|cpu| {
            let pages = (first..first + 3u64).map(|second| {
                let comm = b"worker\0\0\0\0\0\0\0\0\0\0";
                let payload = made.payload(WAKEUP, 0, 7, &[comm, &made.u32(cpu)]);
                let event = made.event(100, &payload);
                made.page(second * 1_000_000_000 + u64::from(cpu), 0, &[event])
            });
            (cpu, pages.collect())
        });
        let cpus = cpus.collect();
        made.buffers.push((name, "local", cpus));
    }
    made
}

/// The samples of a file, and whether it is recognized.
fn samples(bytes: &[u8]) -> (Vec<String>, bool) {
    let text = read_bytes(&TRACE_DAT, bytes);
    let lines = text.lines().filter(|line| line.starts_with("sample"));
    let guess = (TRACE_DAT.sniff)(&bytes[..bytes.len().min(4096)]);
    (lines.map(str::to_owned).collect(), guess != Guess::No)
}

#[test]
fn the_first_512_bytes_are_not_needed() {
    for endian in [Endian::Little, Endian::Big] {
        for whole in [made(endian).version6(), made(endian).version7("none")] {
            let (expected, _) = samples(&whole);
            assert_eq!(expected.len(), 12);
            let mut overwritten = whole.clone();
            overwritten[..512].fill(0x5a);
            for damaged in [&whole[512..], &overwritten] {
                assert_eq!(samples(damaged), (expected.clone(), true), "{endian:?}");
            }
        }
    }
}

#[test]
fn sections_after_long_format_files_are_found() {
    for endian in [Endian::Little, Endian::Big] {
        let mut made = made(endian);
        // 80 KB of format files, as of some systems; the sections after them are not in the front.
        let first = made.formats[0].clone();
        for number in 0..200 {
            let text = first.1.replace("name: ", &format!("name: more{number}_"));
            let text = text.replacen("ID: ", &format!("ID: 9{number}"), 1);
            made.formats.insert(0, ("more", text));
        }
        let whole = made.version7("none");
        let (expected, _) = samples(&whole);
        assert_eq!(expected.len(), 12);
        for lost in [512, 4096] {
            let (found, is_known) = samples(&whole[lost..]);
            assert_eq!(
                (found, is_known),
                (expected.clone(), true),
                "{endian:?} {lost}"
            );
        }
    }
}

#[test]
fn a_whole_section_is_taken_where_a_piece_is_doubled() {
    for packer in ["none", "zlib", "zstd"] {
        let whole = made(Endian::Little).version7(packer);
        let (expected, _) = samples(&whole);
        assert_eq!(expected.len(), 12);
        // The second copy begins within the format files.
        let formats = find_text(&whole, &18u16.to_le_bytes()).unwrap();
        for end in (formats + 40)..(formats + 120) {
            let doubled = [&whole[..end], &whole[..]].concat();
            assert_eq!(samples(&doubled).0, expected, "{packer} {end}");
        }
    }
}

#[test]
fn an_instance_without_its_table_has_its_events() {
    for endian in [Endian::Little, Endian::Big] {
        let whole = made(endian).version6();
        let (expected, _) = samples(&whole);
        let first = find_text(&whole, b"flyrecord\0").unwrap() + 1;
        let table = first + find_text(&whole[first..], b"flyrecord\0").unwrap();
        let mut overwritten = whole.clone();
        overwritten[table..table + 200].fill(0x5a);
        let mut lost = whole.clone();
        lost.drain(table..table + 200);
        for damaged in [overwritten, lost] {
            assert_eq!(samples(&damaged).0, expected, "{endian:?}");
            let text = read_bytes(&TRACE_DAT, &damaged);
            assert!(text.contains("no table of its CPUs"), "{endian:?}");
        }
    }
}

/// The table of a message catalog (lengths and offsets) and that of an archive's symbols, at any offset.
#[test]
fn other_tables_are_no_sections() {
    for endian in [Endian::Little, Endian::Big] {
        let head = |id: u16, name: u32, size: u64| {
            let parts = match endian {
                Endian::Little => (id.to_le_bytes(), name.to_le_bytes(), size.to_le_bytes()),
                Endian::Big => (id.to_be_bytes(), name.to_be_bytes(), size.to_be_bytes()),
            };
            [&parts.0[..], &[0, 0], &parts.1, &parts.2].concat()
        };
        let guess = |second: (u16, u32)| {
            let mut bytes = vec![0x5a; 40];
            bytes.extend(head(18, 22, 32));
            bytes.extend([0x5a; 32]);
            bytes.extend(head(second.0, second.1, 64));
            bytes.extend([0x5a; 400]);
            (TRACE_DAT.sniff)(&bytes)
        };
        assert_eq!(guess((19, 36)), Guess::Likely, "{endian:?}");
        for second in [(18, 22), (20, 400), (17, 36), (25, 36), (19, 22), (19, 0)] {
            assert_eq!(guess(second), Guess::No, "{endian:?} {second:?}");
        }
    }
}
