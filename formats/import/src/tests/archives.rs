//! Archives with traces and other files.

use super::*;

/// An archive with stored files (formats/events has tests with all others).
fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let size = u32::try_from(bytes.len()).unwrap();
        let offset = u32::try_from(out.len()).unwrap();
        let mut head = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        head.extend([crc.sum(), size, size].map(u32::to_le_bytes).concat());
        head.extend([u8::try_from(name.len()).unwrap(), 0, 0, 0]);
        out.extend([b"PK\x03\x04", &head[..], name.as_bytes(), bytes].concat());
        directory.extend([b"PK\x01\x02\x14\x03", &head[..], &[0; 10]].concat());
        directory.extend([&offset.to_le_bytes(), name.as_bytes()].concat());
    }
    let size = u32::try_from(directory.len()).unwrap();
    let offset = u32::try_from(out.len()).unwrap();
    let count = u8::try_from(files.len()).unwrap();
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count, 0, count, 0]);
    out.extend([size, offset].map(u32::to_le_bytes).concat());
    out.extend([0, 0]);
    out
}

fn golden(name: &str) -> Vec<u8> {
    let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../readers/src");
    std::fs::read(readers.join(name)).unwrap()
}

/// Every trace of an archive is an input, also in archives inside, whatever its format; other files are not in the way.
#[test]
fn an_archive_may_hold_several_traces() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |inputs: Vec<Input>, name: &str| {
        let report = import(inputs, &folder.path().join(name), options()).unwrap();
        let rows: Vec<_> = report
            .rows
            .into_iter()
            .filter(|(_, rows)| *rows > 0)
            .collect();
        (report.formats, rows, report.input_bytes)
    };
    let [first, second] = ["switched-1.data", "switched-2.data"]
        .map(|name| golden(&format!("perf_data/golden/{name}")));
    let counts = golden("callgrind/golden/cache.out");
    let stacks = b"main;work 3\nmain;rest 1\n";
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let inner = zip(&[("x/cache.out", &counts), ("x/folder/data", &second)]);
    std::io::Write::write_all(&mut gz, &zip(&[("deep/inner.zip", &inner)])).unwrap();
    let nested = gz.finish().unwrap();
    let bytes = zip(&[
        ("README.md", b"What this is\n"),
        ("a/first.data", &first),
        ("a/nested.zip.gz", &nested),
        ("b/stacks.folded", stacks),
    ]);
    let one = |bytes: &[u8]| Input::from_bytes("x", bytes).unwrap();
    let (formats, found, _) = rows(vec![one(&bytes)], "all.pqt");
    assert_eq!(formats, ["perf.data", "perf.data", "callgrind", "folded"]);
    let single = vec![one(&first), one(&second), one(&counts), one(stacks)];
    assert_eq!(rows(single, "single.pqt").1, found);
    let trace = Directory::open(&folder.path().join("all.pqt")).unwrap();
    let sources: Vec<_> = trace
        .manifest()
        .facts
        .sources
        .iter()
        .map(|source| source.name.clone())
        .collect();
    assert_eq!(
        sources,
        [
            "x/a/first.data",
            "x/a/nested.zip.gz/deep/inner.zip/x/folder",
            "x/a/nested.zip.gz/deep/inner.zip/x/cache.out",
            "x/b/stacks.folded"
        ]
    );
    // The same in a directory.
    let directory = folder.path().join("d");
    std::fs::create_dir_all(directory.join("a")).unwrap();
    std::fs::write(directory.join("a/first.data"), &first).unwrap();
    std::fs::write(directory.join("a/nested"), &nested).unwrap();
    std::fs::write(directory.join("stacks"), stacks).unwrap();
    assert_eq!(
        rows(vec![Input::open(&directory).unwrap()], "d.pqt").1,
        found
    );
    // Traces of other systems and clocks are no part of it.
    let other = zip(&[
        ("first.data", &first),
        ("uftrace.tar", &golden("uftrace/golden/args.tar")),
    ]);
    let refused = import(
        vec![one(&other)],
        &folder.path().join("other.pqt"),
        options(),
    );
    assert!(matches!(refused, Err(Error::Apart { .. })), "{refused:?}");
    // Of an archive with one trace, all formats read its files.
    let single = zip(&[("x/first.data", &first)]);
    let expected = rows(vec![one(&first)], "one.pqt").1;
    let path = folder.path().join("one.zip");
    std::fs::write(&path, &single).unwrap();
    let (_, found, size) = rows(vec![Input::open(&path).unwrap()], "z.pqt");
    assert_eq!((found, size), (expected, single.len() as u64));
}

/// A copy of a trace is imported once, in a directory and in an archive; equal texts of two threads are no copies.
#[test]
fn copies_are_imported_once() {
    let ctf = "/* CTF 1.8 */ trace { byte_order = le; }; event { name = \"a:b\"; fields := struct { integer { size = 32; } n; }; };";
    let streams: [&[u8]; 2] = [b"\x01\0\0\0\x02\0\0\0", b"\x03\0\0\0"];
    let data = golden("perf_data/golden/switched-1.data");
    let thread = b"read(3, \"\", 1) = 0\nread(3, \"\", 1) = 0\nclose(3) = 0\n";
    let session: [(&str, &[u8]); 5] = [
        ("s1/kernel/metadata", ctf.as_bytes()),
        ("s1/kernel/ch_0", streams[0]),
        ("s1/kernel/ch_1", streams[1]),
        // Of the same session, with other packets.
        ("s1/rotated/metadata", ctf.as_bytes()),
        ("s1/rotated/ch_0", streams[1]),
    ];
    let copy: Vec<(String, &[u8])> = session
        .iter()
        .map(|(name, bytes)| (name.replace("s1/", "s2/"), *bytes))
        .collect();
    let copy = copy.iter().map(|(name, bytes)| (name.as_str(), *bytes));
    let all: Vec<(&str, &[u8])> = session.into_iter().chain(copy).collect();
    let events = |input: Input| {
        let folder = tempfile::tempdir().unwrap();
        let report = import(vec![input], &folder.path().join("a.pqt"), options()).unwrap();
        (report.counts.events, report.counts.calls)
    };
    let archive = |files: &[(&str, &[u8])]| Input::from_bytes("x.zip", &zip(files)).unwrap();
    assert_eq!(events(archive(&session)).0, 4);
    assert_eq!(events(archive(&all)).0, 4);
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in &all {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(events(Input::open(folder.path()).unwrap()).0, 4);
    let twice = [("a/p.data", &data[..]), ("b/copy of p.data", &data)];
    assert_eq!(events(archive(&twice)), events(archive(&twice[..1])));
    // In archives of their own.
    let inner = zip(&session);
    let nested = [("one.zip", &inner[..]), ("other.zip", &inner)];
    assert_eq!(events(archive(&nested)).0, 4);
    let threads = [("trace.17", &thread[..]), ("trace.18", thread)];
    assert_eq!(events(archive(&threads)).1, 6);
    let same_thread = [("a/trace.17", &thread[..]), ("b/trace.17", thread)];
    assert_eq!(events(archive(&same_thread)).1, 3);
}

#[test]
fn archives_without_traces_and_with_damaged_ones() {
    let refused = |bytes: &[u8], from| {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options();
        options.from = from;
        let inputs = vec![Input::from_bytes("x.zip", bytes).unwrap()];
        import(inputs, &folder.path().join("a.pqt"), options).map(|report| report.counts.problems)
    };
    let message = |bytes: &[u8]| refused(bytes, None).unwrap_err().to_string();
    assert_eq!(
        message(&zip(&[("a", b"text\n"), ("b", b"")])),
        "x.zip: unknown trace format: none of its 1 file is a trace, such as a"
    );
    assert_eq!(
        message(&zip(&[])),
        "x.zip: unknown trace format: it is an archive without a file that is a trace"
    );
    let own = zip(&[
        ("a.pqt/manifest.json", b"{\n  \"version\": 2"),
        ("a.pqt/samples.parquet", b"PAR1"),
    ]);
    assert!(
        message(&own).contains("x.zip/a.pqt is a trace of perfquet"),
        "{}",
        message(&own)
    );
    // Archives without end.
    let mut bytes = zip(&[("stacks.folded", b"main;work 3\nmain;rest 1\n")]);
    for _ in 0..8 {
        bytes = zip(&[("again.zip", &bytes)]);
    }
    assert!(
        message(&bytes).contains("none of its 1 file is a trace"),
        "{}",
        message(&bytes)
    );
    // A damaged trace among others is a problem.
    let (metadata, stacks) = (b"/* CTF 1.8 */ trace {", b"main;work 3\nmain;rest 1\n");
    let both = zip(&[("a/metadata", metadata), ("stacks", stacks)]);
    assert_eq!(refused(&both, None).unwrap(), 1);
    assert!(message(&zip(&[("a/metadata", metadata)])).contains("metadata"));
    // Its files are read by the format that was named.
    let named = refused(&both, Some(&folded::FOLDED)).unwrap();
    assert_eq!(named, 0);
}
