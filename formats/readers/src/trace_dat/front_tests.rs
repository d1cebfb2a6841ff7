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
        let whole = made(endian).version6();
        let (expected, _) = samples(&whole);
        assert_eq!(expected.len(), 12);
        let mut overwritten = whole.clone();
        overwritten[..512].fill(0x5a);
        for damaged in [&whole[512..], &overwritten] {
            assert_eq!(samples(damaged), (expected.clone(), true), "{endian:?}");
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
