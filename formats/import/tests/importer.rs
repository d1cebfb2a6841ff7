//! Bytes of several formats as record batches, and nothing left.

use std::path::Path;

use perfquet_import::{ImportOptions, Importer};
use perfquet_trace::symbols;

fn golden(name: &str) -> Vec<u8> {
    let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../readers/src");
    std::fs::read(readers.join(name)).unwrap()
}

/// An importer that looks for no files of this host.
fn importer() -> Importer {
    Importer::new(ImportOptions {
        symbols: symbols::Options {
            kernel: symbols::KernelSource::None,
            user: false,
            system: false,
            ..symbols::Options::default()
        },
        ..ImportOptions::default()
    })
}

#[test]
fn bytes_of_every_format_are_tables() {
    for (name, format, table, rows) in [
        ("perf_data/golden/mono.data", "perf.data", "samples", 45),
        (
            "trace_dat/golden/graph-events.dat",
            "trace.dat",
            "events/sched/sched_switch",
            9,
        ),
        ("strace/golden/threads.strace", "strace", "calls", 19),
        ("folded/golden/dd.folded", "folded", "samples", 9),
    ] {
        let imported = importer().import_bytes(name, &golden(name)).unwrap();
        assert_eq!(imported.report().formats, [format]);
        let path = imported.path().to_owned();
        let mut found = 0;
        for batch in imported.read(table).unwrap() {
            let batch = batch.unwrap();
            let schema = imported.tables().find(|schema| schema.name == table);
            let columns: Vec<_> = schema.unwrap().columns.into_iter().collect();
            assert_eq!(columns.len(), batch.num_columns(), "{name}");
            found += batch.num_rows();
        }
        assert_eq!(found, rows, "{name}");
        assert_eq!(imported.read("nothing").unwrap().count(), 0);
        assert!(imported.tables().all(|table| table.name != "nothing"));
        // The source has the given name, and the directory goes.
        let sources = &imported.trace().manifest().facts.sources;
        assert_eq!(sources[0].name, name);
        assert!(path.is_dir());
        drop(imported);
        assert!(!path.parent().unwrap().exists());
    }
}

#[test]
fn compressed_bytes_are_decompressed_and_unknown_ones_an_error() {
    let plain = golden("perf_data/golden/mono.data");
    let packed = zstd::encode_all(plain.as_slice(), 1).unwrap();
    let imported = importer().import_bytes("a.zst", &packed).unwrap();
    assert_eq!(imported.report().formats, ["perf.data"]);
    let error = importer().import_bytes("noise", &[7; 64]).err().unwrap();
    assert!(error.to_string().starts_with("noise: "), "{error}");
    let error = importer().import_bytes("none", &[]).err().unwrap();
    assert!(error.to_string().starts_with("none: "), "{error}");
}
