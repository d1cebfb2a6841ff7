//! Golden files, metadata that is refused, hostile packets.

use perfquet_events::{Guess, Input};
use proptest::prelude::*;

use super::CTF;
use super::metadata::parse;
use super::{layout, sniff};
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("ctf") {
        assert_golden(&path, &read_golden(&CTF, &path));
        assert_recognized(&CTF, &path);
    }
}

/// A directory and an archive of it have the same events.
#[test]
fn directories_and_archives() {
    let archive = golden_files("ctf");
    let archive = archive
        .iter()
        .find(|path| path.ends_with("kernel.tar"))
        .unwrap();
    let (folder, paths) = unpacked(archive);
    let read = |path: &std::path::Path| {
        let text = as_text(&CTF, &mut Input::open(path).unwrap());
        assert!(text.contains("sample 0 time="), "{text}");
        text
    };
    let expected = read_golden(&CTF, archive);
    assert_eq!(read(&folder.path().join("session/kernel")), expected);
    assert_eq!(read(folder.path()), expected);
    // Links lead out of the directory, so they are not followed; a pipe would block.
    let outside = tempfile::tempdir().unwrap();
    std::fs::rename(&paths[0], outside.path().join("stream")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("stream"), &paths[0]).unwrap();
    std::os::unix::fs::symlink("/", folder.path().join("root")).unwrap();
    let text = as_text(&CTF, &mut Input::open(folder.path()).unwrap());
    assert!(!text.contains("cpu=0"), "{text}");
}

/// The error of a metadata text, with its line.
fn refused(text: &str) -> String {
    let result = parse(text.as_bytes()).and_then(|metadata| layout::layout(&metadata, true));
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(flaw) => format!("{}: {}", flaw.line, flaw.message),
    }
}

#[track_caller]
fn check(declarations: &str, expected: &str) {
    let found = refused(&format!("/* CTF 1.8 */\n{declarations}"));
    assert!(found.starts_with(expected), "{found}");
}

#[test]
fn metadata_is_refused_with_its_line() {
    check("trace {\n major = 2; };", "2: expected version 1");
    check(
        "typealias integer { size = 65; } := a;",
        "2: size: expected 1 to 64",
    );
    check(
        "typealias integer { align = 8; } := a;",
        "2: an integer without a size",
    );
    check(
        "typealias integer { size = 8; align = 3; } := a;",
        "2: align: expected a power of two",
    );
    check("event { fields := struct { a b; }; };", "2: unknown type a");
    check(
        "event {\n\n name = \"a",
        "4: expected \" at the end of a string",
    );
    check("/* a", "2: expected */");
    check("event { name = a }", "2: expected \";\", found \"}\"");
    check("event { name = 'a'; };", "2: character constants");
    check(
        "stream { id = 1; };\nstream { id = 1; };",
        "3: a second stream",
    );
    check(
        "event { id = 1; stream_id = 7; };",
        "0: event : there is no stream 7",
    );
    check(
        "event { id = 1; }; event { id = 1; };",
        "0: event : a second event",
    );
    check(
        "typealias enum : integer { size = 8; } { a = 5 ... 3 } := e;",
        "2: a: the range 5 ... 3 is empty",
    );
    check(
        "event { fields := struct { string s; string t[s]; }; };",
        "0: event : event.fields.t: there is no integer s",
    );
    check(
        "event { fields := struct { integer { size = 8; } s; variant <s> { string a; } v; }; };",
        "0: event : event.fields.v: s is not an enumeration",
    );
    check(
        "clock { freq = 0; };",
        "2: freq: expected a positive number",
    );
    check(
        "typealias floating_point { exp_dig = 5; mant_dig = 11; } := half;",
        "2: expected a float of 32 or 64 bits",
    );
    check("{", "2: expected a block");
}

#[test]
fn version_2_is_refused_with_its_reason() {
    let check = |fragments: &str, expected: &str| {
        let found = refused(&format!(r#"{{"type":"preamble","version":2}} {fragments}"#));
        assert!(found.starts_with(expected), "{found}");
    };
    let field = |class: &str| {
        format!(
            r#"{{"type":"event-record-class","payload-field-class":{{"type":"structure","member-classes":[{{"name":"f","field-class":{class}}}]}}}}"#
        )
    };
    let integer = |more: &str| {
        field(&format!(
            r#"{{"type":"fixed-length-unsigned-integer","byte-order":"little-endian",{more}}}"#
        ))
    };
    check("", "accepted");
    check(&integer(r#""length":8"#), "accepted");
    check(
        &integer(r#""length":65"#),
        "0: fixed-length-unsigned-integer: expected 1 to 64",
    );
    check(
        &integer(r#""length":8,"alignment":3"#),
        "0: alignment: expected a power of two",
    );
    check(
        &integer(r#""length":8,"bit-order":"last-to-first""#),
        "0: fixed-length-unsigned-integer: bit-order",
    );
    check(&field(r#""word""#), "0: unknown field class word");
    check(
        &field(r#"{"type":"quaternion"}"#),
        "0: the field class \"quaternion\"",
    );
    check(
        &field(r#"{"type":"null-terminated-string","encoding":"utf-16le"}"#),
        "0: null-terminated-string: encoding utf-16le",
    );
    check(
        &field(
            r#"{"type":"dynamic-length-blob","length-field-location":{"origin":"packet-header","path":["n"]}}"#,
        ),
        "0: event : event.fields.f: there is no integer trace.packet.header.n",
    );
    check(
        r#"{"type":"preamble","version":3}"#,
        "0: expected version 2",
    );
    check("{\n\n", "3: EOF");
    let deep = "[".repeat(100_000);
    check(&deep, "1: recursion limit");
    assert!(refused(r#"{"type":"preamble","version":2} {"type":"x"}"#).contains("accepted"));
}

#[test]
fn hostile_metadata_is_bounded() {
    let deep = "struct { ".repeat(100_000);
    check(
        &format!("event {{ fields := {deep}"),
        "2: more than 64 types",
    );
    // Each type has two of the one before.
    let mut doubled = "typealias integer { size = 8; } := t0;\n".to_owned();
    for number in 1..60 {
        let before = number - 1;
        doubled += &format!("typealias struct {{ t{before} a; t{before} b; }} := t{number};\n");
    }
    check(
        &format!("{doubled}event {{ fields := struct {{ t59 a; }}; }};"),
        "0: event : more than 500000 fields",
    );
    check(
        "event { fields := struct { string s[18446744073709551615]; struct {} e[0xffffffffffffffff]; }; };",
        "accepted",
    );
    check(
        "typealias enum : integer { size = 64; signed = 1; } { all = -9223372036854775808 ... 9223372036854775807 } := e;",
        "accepted",
    );
}

/// The context of kernel events has the columns of perf.data, in the trace and in its text.
#[test]
fn flags_of_perf_are_columns() {
    let fields: String = [
        "common_type",
        "common_flags",
        "common_preempt_count",
        "common_pid",
        "pid",
    ]
    .map(|name| format!("integer {{ size = 32; }} {name}; "))
    .concat();
    let metadata = format!(
        "env {{ tracer_name = \"perf\"; }}; event {{ name = \"sched:sched_waking\"; fields := struct {{ {fields} }}; }};"
    );
    let values = [372, 17, 3, 7, 9_u32].map(u32::to_le_bytes).concat();
    let line = "[00:35:19.774829609] (+0.000126609) sched:sched_waking: { cpu_id = 1 }, { perf_tid = 7, perf_pid = 7, \
        common_type = 372, common_flags = 17, common_preempt_count = 3, common_pid = 7, pid = 9 }\n";
    for text in [read(&metadata, &values), read_bytes(&CTF, line.as_bytes())] {
        let kinds = "common_flags:UInt(1) common_preempt_count:UInt(1)";
        assert!(text.contains(kinds), "{text}");
        assert!(text.contains("fields=[17, 3, 9]"), "{text}");
    }
}

/// What follows a damaged header is lost from the last event on, whatever time is in it.
#[test]
fn losses_begin_where_events_end() {
    let metadata = "clock { name = m; }; typealias integer { size = 64; map = clock.m.value; } := stamp; \
        stream { packet.context := struct { stamp timestamp_begin; stamp timestamp_end; integer { size = 64; } content_size; }; \
        event.header := struct { integer { size = 64; } id; stamp timestamp; }; }; \
        event { name = e; id = 1; fields := struct { integer { size = 64; } n; }; };";
    let packet = |events: &[[u64; 3]]| {
        let size = 64 * (3 + 3 * events.len() as u64);
        let head = [5_000_000_000, 6_000_000_000, size];
        let words = head.iter().chain(events.as_flattened());
        words
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let good = [1, 5_100_000_000, 7];
    for (damaged, reason) in [
        (
            [u64::MAX, 1_099_500_000_000, 0],
            "the metadata has no event 18446744073709551615",
        ),
        (
            [1, 1_099_500_000_000, 0],
            "an event outside of the time of its packet",
        ),
        (
            [1, 16_800_000, 0],
            "an event outside of the time of its packet",
        ),
    ] {
        let text = read(metadata, &packet(&[good, damaged, good]));
        assert!(text.contains(reason), "{text}");
        assert!(
            text.contains("Loss(Loss { time: Some(5100000000)"),
            "{text}"
        );
        assert_eq!(text.matches("\nsample 0").count(), 1, "{text}");
    }
    // Without a good one: where its packet begins.
    let text = read(metadata, &packet(&[[2, 1, 0]]));
    assert!(
        text.contains("Loss(Loss { time: Some(5000000000)"),
        "{text}"
    );
}

/// The events of a trace with one stream file.
fn read(metadata: &str, stream: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("/* CTF 1.8 */ trace {{ byte_order = le; }}; {metadata}");
    std::fs::write(folder.path().join("metadata"), text).unwrap();
    std::fs::write(folder.path().join("s"), stream).unwrap();
    as_text(&CTF, &mut Input::open(folder.path()).unwrap())
}

#[test]
fn hostile_packets_are_bounded() {
    let length = "integer { size = 32; } n;";
    let event = |fields: &str| format!("event {{ name = e; fields := struct {{ {fields} }}; }};");
    let check = |fields: &str, bytes: &[u8], expected: &str| {
        let text = read(&event(fields), bytes);
        assert!(text.contains(expected), "{text}");
    };
    let most = [0xff; 8];
    let past = "a field reaches past the end of its packet; 8 bytes";
    check(
        &format!("{length} integer {{ size = 8; }} a[n];"),
        &most,
        past,
    );
    check(
        &format!("{length} integer {{ size = 8; encoding = UTF8; }} a[n];"),
        &most,
        past,
    );
    check(
        &format!("{length} string a[n];"),
        &most,
        "a text without its NUL",
    );
    // As many elements as you like, without a bit.
    check(
        &format!("{length} struct {{}} a[n];"),
        &most,
        "sample 0 fields=[4294967295, \"[{}]\"]",
    );
    check(
        "struct {} a[18446744073709551615];",
        &most,
        "an event without any bits; 8 bytes",
    );
    check(
        "integer { size = 3; byte_order = le; } a; integer { size = 3; byte_order = be; } b;",
        &most,
        "the byte order changes inside of a byte",
    );
    check(
        "integer { size = 32; signed = 1; } n; integer { size = 8; } a[n];",
        &most,
        "an array has a negative length",
    );
}

#[test]
fn clocks_of_other_traces_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, uuid) in [("a", 1), ("b", 2)] {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let text = format!("/* CTF 1.8 */ clock {{ name = m; uuid = \"{uuid}\"; }};");
        std::fs::write(path.join("metadata"), text).unwrap();
    }
    let text = as_text(&CTF, &mut Input::open(folder.path()).unwrap());
    assert!(text.contains("different clocks"), "{text}");
    assert!(text.contains("/a and ") && text.contains("/b\n"), "{text}");
}

#[test]
fn another_clock_of_a_trace_is_reported() {
    let text = |other: &str| {
        let clocks = format!("clock {{ name = a; freq = 1000; }}; clock {{ name = b; {other} }};");
        read(&clocks, b"")
    };
    let expected = "expected one clock, found 2; all times are read as those of \"a\"";
    assert!(
        text("freq = 999;").contains(expected),
        "{}",
        text("freq = 999;")
    );
    assert!(!text("freq = 1000;").contains(expected));
}

#[test]
fn metadata_alone_is_refused_with_a_hint() {
    let text = read_bytes(&CTF, b"/* CTF 1.8 */ trace { byte_order = le; };");
    assert!(text.contains("hint: this is the metadata alone"), "{text}");
    let text = read_bytes(&CTF, b"root:x:0:0");
    assert!(
        text.contains("expected a directory or an archive") && !text.contains("hint"),
        "{text}"
    );
}

#[test]
fn certainty() {
    let check = |head: &[u8], expected: Guess| assert_eq!(sniff::sniff(head), expected);
    check(b"/* CTF 1.8 */\r\ntrace {", Guess::Certain);
    check(b"\x57\x1d\xd1\x75", Guess::Certain);
    check(b"\x75\xd1\x1d\x57", Guess::Certain);
    check(b"\x1e{\"type\":\"preamble\",\"version\":2}", Guess::Certain);
    check(b"/* CTF is here */", Guess::No);
    check(b"", Guess::No);
}

proptest! {
    #[test]
    fn no_text_panics(text in r#"(trace|event|stream|clock|struct|enum|variant|integer|string|[a-c]|[{}\[\]<>();=:.,0-9"]|:=| |\n){0,60}"#) {
        refused(&text);
    }
}

/// A process may have 1,024 open files, a trace of many CPUs or programs more streams.
#[test]
fn streams_do_not_stay_open() {
    struct OpenFiles {
        folder: std::path::PathBuf,
        most: usize,
        events: usize,
    }
    impl perfquet_events::event::Sink for OpenFiles {
        fn event(
            &mut self,
            event: perfquet_events::event::Event<'_>,
        ) -> Result<(), perfquet_events::Error> {
            if let perfquet_events::event::Event::Sample(_) = event {
                self.events += 1;
                let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
                let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
                let open = links.filter(|link| link.starts_with(&self.folder));
                self.most = self.most.max(open.count());
            }
            Ok(())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };\n\
        stream { packet.context := struct { integer { size = 64; align = 8; } content_size; }; };\n\
        event { name = \"ev\"; fields := struct { integer { size = 32; align = 8; } n; }; };";
    std::fs::write(folder.path().join("metadata"), metadata).unwrap();
    for stream in 0..300_u32 {
        let packet = [&96_u64.to_le_bytes()[..], &stream.to_le_bytes()].concat();
        std::fs::write(folder.path().join(format!("stream{stream}")), packet).unwrap();
    }
    let mut sink = OpenFiles {
        folder: folder.path().to_owned(),
        most: 0,
        events: 0,
    };
    CTF.read(&mut Input::open(folder.path()).unwrap(), &mut sink)
        .unwrap();
    assert_eq!((sink.events, sink.most), (300, 0));
}
