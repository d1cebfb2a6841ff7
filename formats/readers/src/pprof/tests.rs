//! Golden files, cases that they lack, and random bytes.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::PPROF;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("pprof") {
        assert_golden(&path, &read_golden(&PPROF, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&PPROF, &path);
        }
    }
}

#[test]
fn other_bytes_are_not_recognized() {
    let perfetto = [0x0a, 4, 0x40, 1, 0x52, 0, 0x0a, 4, 0x40, 1, 0x52, 0];
    for bytes in [
        &b""[..],
        b"\n\x04text",
        &perfetto,
        &[0x0a, 4, 8, 1, 16, 2],
        b"\n\n\n\n\n\n\n\n",
        b"include \"html_common.outlang\"\n\ndoctemplate\n\"<!DOCTYPE HTML>\"\nend\n",
        b"import1\nimport2\nimport3\nimport4\n",
    ] {
        assert_eq!((PPROF.sniff)(bytes), Guess::No, "{bytes:?}");
    }
}

/// A field: its number, and a message or string.
fn part(number: u8, body: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, body.len() as u8], body].concat()
}

/// A sample whose location, values and label have faults is kept, and each fault is reported.
#[test]
fn faulty_samples() {
    let bytes = [
        part(1, &[8, 1]),
        part(1, &[8, 2]),
        part(2, &[&part(1, &[9])[..], &part(2, &[5])].concat()),
        part(
            2,
            &[
                0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0x10, 3,
            ],
        ),
        part(2, &[0x0b]),
        part(6, b""),
        part(6, b"a"),
        part(6, b"b"),
    ]
    .concat();
    let events = read_bytes(&PPROF, &bytes);
    let expected = "type 0 pprof:b counter\n\
        type 1 pprof:a counter\n\
        problem offset 0xa: 1 × 1 locations of a sample are not in the profile\n\
        problem offset 0xa: 1 × expected 2 values of a sample, found 1\n\
        sample 1 period=5 user_stack=[\"\"]\n\
        sample 0 period=3\n\
        problem offset 0x12: 1 × a value below 0, as in a difference of profiles\n";
    assert!(events.starts_with(expected), "{events}");
    assert!(events.contains("expected the type of a field"), "{events}");
}

/// A location takes two bytes of the input; a hostile profile has millions, and no sample needs them.
#[test]
fn hostile_tables_are_bounded() {
    let mut bytes = [part(1, &[8, 1]), part(2, &[0x10, 3])].concat();
    bytes.extend([0x22, 0].repeat(1 << 20));
    bytes.extend([0x32, 0].repeat((1 << 22) + 7));
    let events = read_bytes(&PPROF, &bytes);
    assert!(events.contains("7 × entries beyond 4194304"), "{events}");
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&PPROF, &bytes);
        (PPROF.sniff)(&bytes);
    }
}
