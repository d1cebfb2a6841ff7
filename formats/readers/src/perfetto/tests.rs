//! Golden files, cases that they lack, and random bytes.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::PERFETTO;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("perfetto") {
        assert_golden(&path, &read_golden(&PERFETTO, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&PERFETTO, &path);
        }
    }
}

#[test]
fn other_bytes_are_not_recognized() {
    let pprof = [0x0a, 4, 8, 1, 16, 2, 0x0a, 4, 8, 3, 16, 4];
    for bytes in [
        &b""[..],
        b"\n\x04text",
        b"\n\n\n\n\n\n\n\n",
        b"\n\x00\n\x00",
        &pprof,
        &[0x0a, 2, 0x40, 1],
    ] {
        assert_eq!((PERFETTO.sniff)(bytes), Guess::No, "{bytes:?}");
    }
}

/// A bundle may be longer than the head.
#[test]
fn long_bundles_are_recognized() {
    let clock = [0x0a, 4, 0x32, 2, 0x10, 6];
    let bundle = [&[0x0a, 0x83, 0x40, 0x0a, 0x80, 0x40][..], &[0x12; 8192]].concat();
    let bytes = [&clock[..], &bundle].concat();
    assert_eq!((PERFETTO.sniff)(&bytes[..4096]), Guess::Certain);
    assert_eq!((PERFETTO.sniff)(&bundle[..4096]), Guess::No);
}

fn features() -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/perfetto/golden");
    std::fs::read(folder.join("features.pftrace")).unwrap()
}

/// A packet with a field of bytes.
fn packet(field: &[u8], body: &[u8]) -> Vec<u8> {
    let inner = [field, &[body.len() as u8], body].concat();
    [&[0x0a, inner.len() as u8], &inner[..]].concat()
}

/// A deflated packet of a few bytes may have a million times as many.
#[test]
fn hostile_packets_are_bounded() {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..100 {
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let body = encoder.finish().unwrap();
    let field = [&[0x92, 3][..], &length(body.len())].concat();
    let inner = [&field[..], &body].concat();
    let bytes = [
        &[0x0a][..],
        &length(inner.len()),
        &inner,
        &packet(&[0x2a], b"\x0a\x00"),
    ]
    .concat();
    let events = read_bytes(&PERFETTO, &bytes);
    assert!(events.contains("cannot be inflated whole"), "{events}");
    assert!(events.contains("packets of chrome_events"), "{events}");
}

fn length(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Packets after damage are reported as missing, those before it are read.
#[test]
fn damage_is_reported() {
    let bytes = [features(), vec![0x0b, 1, 2]].concat();
    let events = read_bytes(&PERFETTO, &bytes);
    assert!(
        events.contains("the packets after it are not read"),
        "{events}"
    );
    assert!(events.contains("sched_switch"), "{events}");
}

/// What tables cannot hold is counted, and so is what Perfetto itself has lost.
#[test]
fn losses_and_unread_parts_are_counted() {
    // timestamp 5; track_event: an instant "x" with the flow 7, and the time of its thread.
    let flow = [0xf9, 2, 7, 0, 0, 0, 0, 0, 0, 0];
    let event = [&[0x48, 3, 0xba, 1, 1, b'x', 0x88, 1, 9][..], &flow].concat();
    let event = [&[0x40, 5, 0x5a, event.len() as u8][..], &event].concat();
    let event = [&[0x0a, event.len() as u8], &event[..]].concat();
    // trace_stats: a buffer with 4 chunks overwritten, 2 discarded, 3 packets dropped by writers; the later packet counts.
    let early = packet(&[0x9a, 2], &[0x0a, 2, 0x18, 1]);
    let stats = packet(&[0x9a, 2], &[0x0a, 8, 0x18, 4, 0x90, 1, 2, 0x98, 1, 3]);
    let events = read_bytes(&PERFETTO, &[event, early, stats].concat());
    for (count, what) in [
        (1, "events of tracks with flows"),
        (
            1,
            "events of tracks with time or instructions of their thread",
        ),
        (4, "chunks were overwritten"),
        (2, "chunks were discarded"),
        (3, "packets were dropped"),
    ] {
        let line = events.lines().find(|line| line.contains(what));
        let line = line.unwrap_or_else(|| panic!("{what}: {events}"));
        assert!(line.contains(&count.to_string()), "{line}");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&PERFETTO, &bytes);
        (PERFETTO.sniff)(&bytes);
    }

    #[test]
    fn damaged(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = features();
        for (place, value) in places {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        read_bytes(&PERFETTO, &bytes);
        (PERFETTO.sniff)(&bytes);
    }
}

/// Ticks of a thread at each frequency are rows; the thread's process is known.
#[test]
fn times_in_states_are_rows() {
    let thread = [8, 101, 0x10, 2, 0x10, 5, 0x18, 40, 0x18, 3, 0x20, 1];
    let process = [&[8, 100, 0x5a, 12][..], &thread].concat();
    let stats = [&[0x0a, 16][..], &process].concat();
    let inner = [&[0x40, 5, 0x4a, 18][..], &stats].concat();
    let events = read_bytes(&PERFETTO, &[&[0x0a, 22][..], &inner].concat());
    let rows: Vec<&str> = events
        .lines()
        .filter(|line| line.contains("tid=101"))
        .collect();
    assert_eq!(rows.len(), 2, "{events}");
    assert!(rows[0].contains("pid=100"), "{events}");
    assert!(events.contains("time_in_state"), "{events}");
    assert!(!events.contains("no table holds"), "{events}");
}
