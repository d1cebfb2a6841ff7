//! End to end imports: recordings of the corpus compared with `perf script`, and directories imported again.

mod archives;
mod cut;
mod several;

use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int32Type, Int64Type};
use perfquet_events::event::{Event, EventId, EventType, Field, FieldType, Fields, Sample, Value};
use perfquet_trace::reopen;
use perfquet_trace::store::{ColumnType, Directory, State};

use super::*;

/// The hits of threads: comm, tid, time.
type Seen = (Option<String>, Option<i32>, i64);

/// The recordings of this project.
fn corpus() -> PathBuf {
    let clone = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    clone.join("tests/corpus")
}

/// The recordings of this project, and downloaded ones if available.
fn corpora() -> Vec<PathBuf> {
    let beside = || corpus().join("../../../shared/corpus");
    let foreign = std::env::var_os("PERFQUET_CORPUS").map_or_else(beside, PathBuf::from);
    let foreign = foreign.is_dir().then_some(foreign);
    [corpus()].into_iter().chain(foreign).collect()
}

fn options() -> ImportOptions {
    ImportOptions {
        symbols: symbols::Options {
            kernel: symbols::KernelSource::None,
            user: false,
            system: false,
            ..symbols::Options::default()
        },
        store: WriterOptions {
            sync: false,
            ..WriterOptions::default()
        },
        ..ImportOptions::default()
    }
}

#[test]
fn an_import_that_is_ended_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("a.trace"), folder.path().join("a.pqt"));
    let line = "  a-12  [000] d..2. 2.055256: sched_wakeup: comm=b pid=7 prio=120 target_cpu=000\n";
    std::fs::write(&input, line.repeat(200_000)).unwrap();
    let import_until = |bytes: u64| {
        let stop = Arc::new(AtomicBool::new(false));
        let mut options = options();
        options.stop = Some(Arc::clone(&stop));
        options.progress = Some(Box::new(move |progress| {
            stop.store(progress.done > bytes, Ordering::Relaxed);
        }));
        import(vec![Input::open(&input).unwrap()], &output, options)
    };
    assert!(matches!(import_until(1 << 20), Err(Error::Interrupted)));
    assert!(!output.exists());
    assert_eq!(import_until(u64::MAX).unwrap().counts.events, 200_000);
}

/// Another program truncates the input during the import: the rest reads as zeros, or raises SIGBUS.
#[test]
fn input_truncated_during_import_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let line = "  a-12  [000] d..2. 2.055256: sched_wakeup: comm=b pid=7 prio=120 target_cpu=000\n";
    std::fs::write(&path, line.repeat(100_000)).unwrap();
    for left in [3 << 20, (3 << 20) + 1234] {
        let whole = std::fs::File::options().write(true).open(&path).unwrap();
        whole.set_len(8_000_000).unwrap();
        let cutting = path.clone();
        let mut options = options();
        options.progress = Some(Box::new(move |progress| {
            if progress.done > 1 << 20 {
                let file = std::fs::File::options().write(true).open(&cutting);
                file.unwrap().set_len(left).unwrap();
            }
        }));
        let output = folder.path().join(format!("{left}.pqt"));
        let input = Input::open(&path).unwrap();
        let error = import(vec![input], &output, options)
            .unwrap_err()
            .to_string();
        let expected = format!("was truncated from 8000000 to {left} bytes while being read");
        assert!(error.contains(&expected), "{error}");
        std::fs::write(&path, line.repeat(100_000)).unwrap();
    }
}

/// All rows of samples and event tables.
fn seen(trace: &Directory) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (name, _) in trace.tables() {
        // perf script prints the recorder's own records only on request (--show-switch-events, …).
        let is_hit = name.starts_with("events/") && !name.starts_with("events/perf/");
        if name != "samples" && !is_hit {
            continue;
        }
        for batch in trace.read(name).unwrap() {
            let batch = batch.unwrap();
            let column = |name| batch.column_by_name(name).unwrap();
            let comms = column("comm").as_string::<i32>();
            let tids = column("tid").as_primitive::<Int32Type>();
            let times = column("time").as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                let comm = comms.is_valid(row).then(|| comms.value(row).to_owned());
                let tid = tids.is_valid(row).then(|| tids.value(row));
                seen.push((comm, tid, times.value(row)));
            }
        }
    }
    seen.sort();
    seen
}

/// The same from `perf script`: lines with a time ("dd   419/419   [000]   209.380503876:  …").
fn printed(script: &str) -> Vec<Seen> {
    let mut seen: Vec<Seen> = script.lines().filter_map(line).collect();
    seen.sort();
    seen
}

fn line(line: &str) -> Option<Seen> {
    let mut before = Vec::new();
    for word in line.split_whitespace() {
        let time = word.strip_suffix(':').and_then(|time| {
            let (seconds, nanos) = time.split_once('.')?;
            let unit = match nanos.len() {
                6 => 1000,
                9 => 1,
                _ => return None,
            };
            let nanos = nanos.parse::<i64>().ok()? * unit;
            Some(seconds.parse::<i64>().ok()? * 1_000_000_000 + nanos)
        });
        let Some(time) = time else {
            before.push(word);
            continue;
        };
        before.retain(|word| !word.starts_with('['));
        let tid = before.pop()?;
        let tid: i32 = tid.rsplit('/').next()?.parse().ok()?;
        let comm = before.join(" ");
        let comm = (!comm.starts_with(':') && !comm.is_empty()).then_some(comm);
        return Some((comm, (tid >= 0).then_some(tid), time));
    }
    None
}

#[test]
fn rows_equal_the_output_of_perf_script() {
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    let folders = corpora().into_iter().flat_map(|corpus| {
        ["6.12", "host", "host-6.18"].map(|kernel| corpus.join("perf-data").join(kernel))
    });
    for recordings in folders {
        let mut files: Vec<PathBuf> = std::fs::read_dir(recordings)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "data"))
            .collect();
        files.sort();
        for file in files {
            let Ok(script) = std::fs::read_to_string(file.with_extension("script")) else {
                continue;
            };
            let output = folder.path().join(format!("{compared}.pqt"));
            let report = import(vec![Input::open(&file).unwrap()], &output, options()).unwrap();
            let trace = Directory::open(&output).unwrap();
            assert_eq!(trace.manifest().state, State::Complete);
            let (mut ours, theirs) = (seen(&trace), printed(&script));
            // Without --ns perf script prints microseconds.
            if theirs.iter().all(|(_, _, time)| time % 1000 == 0) {
                ours.iter_mut()
                    .for_each(|(_, _, time)| *time -= *time % 1000);
            }
            assert!(report.counts.events >= ours.len() as u64);
            assert_eq!(ours, theirs, "{}", file.display());
            compared += 1;
        }
    }
    assert!(compared >= 30, "{compared} recordings");
}

/// Complete files next to perf.data are read after it; incomplete ones are not.
#[test]
fn a_journal_may_have_several_files() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../readers/src");
    let folder = tempfile::tempdir().unwrap();
    let dead = folder.path().join("dead.pqt");
    let journal = dead.join("journal");
    std::fs::create_dir_all(&journal).unwrap();
    let put = |from: &str, name: &str| {
        std::fs::copy(golden.join(from), journal.join(name)).unwrap();
    };
    put("perf_data/golden/cgroups.data", "perf.data");
    put("kfi/golden/kft.lst", "calls");
    put("kfi/golden/kft.lst", ".unfinished");
    let report = recover(&dead, options()).unwrap();
    assert_eq!(report.formats, ["perf.data", "kfi"]);
    assert!(report.counts.events > 0 && report.counts.calls > 0);
}

/// A recording of the corpus, truncated, as the journal of a killed recorder.
#[test]
fn the_trace_of_a_killed_recorder_is_completed() {
    let corpus = corpus();
    let folder = tempfile::tempdir().unwrap();
    let dead = folder.path().join("dead.pqt");
    std::fs::create_dir_all(dead.join("journal")).unwrap();
    let recording = corpus.join("perf-data/6.12/cpu-clock-g.data");
    let bytes = std::fs::read(&recording).unwrap();
    std::fs::write(dead.join("journal/perf.data"), &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(look_into(&dead), Found::Unfinished);
    let report = recover(&dead, options()).unwrap();
    assert!(report.counts.events > 0);
    assert!(report.counts.problems > 0, "the cut is a problem");
    let trace = Directory::open(&dead).unwrap();
    assert_eq!(trace.manifest().state, State::Recovered);
    assert_eq!(look_into(&dead), Found::Whole);
    remove_journal(&dead).unwrap();
    assert_eq!(look_into(&dead), Found::Whole);
}

#[test]
fn a_complete_trace_is_symbolized_again() {
    let corpus = corpus();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.pqt");
    let recording = corpus.join("perf-data/6.12/cpu-clock-g.data");
    let before = import(vec![Input::open(&recording).unwrap()], &output, options()).unwrap();
    assert_eq!(before.counts.named_frames, 0);
    let mut symbols = options().symbols;
    symbols.user = true;
    symbols.kernel = symbols::KernelSource::Kallsyms(corpus.join("perf-data/6.12/kallsyms.part"));
    symbols.directories.push(corpus.join("perf-data/programs"));
    let after = reopen::name_again(&output, symbols.clone()).unwrap();
    assert_eq!(after.counts.frames, before.counts.frames);
    assert!(
        after.counts.named_frames * 2 > after.counts.frames,
        "{:?}",
        after.counts
    );
    // Frames keep their names if no others can be found.
    let kept = reopen::name_again(&output, options().symbols).unwrap();
    assert_eq!(kept.counts, after.counts);
    let trace = Directory::open(&output).unwrap();
    assert_eq!(trace.manifest().state, State::Complete);
    assert_eq!(trace.table("frames").unwrap().rows(), before.counts.frames);
    // The result equals that of an import with these symbols.
    let at_once = folder.path().join("b.pqt");
    let options = ImportOptions {
        symbols,
        ..options()
    };
    let imported = import(vec![Input::open(&recording).unwrap()], &at_once, options).unwrap();
    assert_eq!(imported.counts.named_frames, after.counts.named_frames);
}

#[test]
fn several_inputs_follow_each_other() {
    let corpus = corpus();
    let folder = tempfile::tempdir().unwrap();
    let one = |name: &str| Input::open(&corpus.join("perf-data/6.12").join(name)).unwrap();
    let single = |name: &str| {
        let output = folder.path().join(name);
        import(vec![one(name)], &output, options())
            .unwrap()
            .counts
            .events
    };
    let expected = single("cpu-clock-g.data") + single("group.data");
    let both = folder.path().join("both.pqt");
    let inputs = vec![one("cpu-clock-g.data"), one("group.data")];
    let report = import(inputs, &both, options()).unwrap();
    assert_eq!(report.counts.events, expected);
    let trace = Directory::open(&both).unwrap();
    assert_eq!(trace.manifest().facts.sources.len(), 2);
}

#[test]
fn a_directory_is_read_by_its_main_file() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("d.data");
    std::fs::create_dir(&directory).unwrap();
    let refused = Input::open(&directory).and_then(|mut input| sniff(&mut input));
    let Err(Error::UnknownFormat { nearest, .. }) = refused else {
        panic!("an empty directory was recognized");
    };
    assert!(nearest.contains("\"data\" (perf.data)"), "{nearest}");

    let file = corpus().join("perf-data/6.12/cpu-clock-g.data");
    std::fs::copy(&file, directory.join("data")).unwrap();
    std::fs::write(directory.join("data.1"), b"").unwrap();
    let count = |path: &Path, name: &str| {
        let output = folder.path().join(name);
        let inputs = vec![Input::open(path).unwrap()];
        import(inputs, &output, options()).unwrap().counts.events
    };
    assert_eq!(count(&directory, "a.pqt"), count(&file, "b.pqt"));
}

#[test]
fn a_format_of_several_files_maps_them() {
    const PAIR: Format = Format {
        name: "pair",
        about: "",
        main_file: Some("metadata"),
        has_lines: false,
        sniff: |_| Guess::No,
        read_file: |input, sink| {
            assert_eq!(input.head(), b"head");
            assert_eq!(input.files(), ["empty", "metadata", "stream"]);
            assert!(input.map_file("empty")?.is_none());
            assert!(input.map_file("missing")?.is_none());
            let stream = input.map_file("stream")?.unwrap();
            hits(sink, 0, &[("a", FieldType::Int(4))], 0..stream.len() as i64);
            Ok(())
        },
    };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    std::fs::create_dir_all(directory.join("nested")).unwrap();
    std::fs::write(directory.join("metadata"), b"head").unwrap();
    std::fs::write(directory.join("stream"), b"12345").unwrap();
    std::fs::write(directory.join("empty"), b"").unwrap();
    let read = |from: &'static Format, output: &str| {
        let inputs = vec![Input::open(&directory).unwrap()];
        let mut options = options();
        options.from = Some(from);
        import(inputs, &folder.path().join(output), options)
    };
    let report = read(&PAIR, "a.pqt").unwrap();
    assert_eq!((report.counts.events, report.input_bytes), (5, 9));
    let error = read(&CHANGING, "b.pqt").unwrap_err().to_string();
    assert!(error.contains("found a directory"), "{error}");
}

#[test]
fn a_failed_import_leaves_the_older_trace() {
    const NAMED: Format = Format {
        name: "refusing",
        about: "",
        main_file: None,
        has_lines: false,
        sniff: |_| Guess::No,
        read_file: |input, _| {
            Err(Error::Unsupported {
                input: input.name().to_owned(),
                message: "expected otherwise".to_owned(),
            })
        },
    };
    const EMPTY: Format = Format {
        name: "empty",
        read_file: |_, _| Ok(()),
        ..NAMED
    };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.pqt");
    let with = |from: &'static Format, force| {
        let input = Input::from_bytes("x", b"no trace").unwrap();
        let mut options = options();
        options.from = Some(from);
        options.store.force = force;
        import(vec![input], &output, options)
    };
    let unknown = Input::from_bytes("x", b"no trace").unwrap();
    assert!(import(vec![unknown], &output, options()).is_err());
    assert!(with(&NAMED, false).is_err());
    assert!(!output.exists());
    with(&EMPTY, false).unwrap();
    assert!(matches!(with(&EMPTY, false), Err(Error::Exists { .. })));
    assert!(with(&NAMED, true).is_err());
    assert_eq!(look_into(&output), Found::Whole);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_perf_data_without_its_first_page_is_recognized() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../readers/src/perf_data/golden");
    let mut bytes = std::fs::read(golden.join("group.data")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    let mut noise = 1u32;
    for byte in &mut bytes[..4096] {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (noise >> 24) as u8;
    }
    std::fs::write(&file, &bytes).unwrap();
    assert_eq!(
        sniff(&mut Input::open(&file).unwrap()).unwrap().name,
        "perf.data"
    );
    // No other file is taken for one.
    bytes[4096..].fill(7);
    std::fs::write(&file, &bytes).unwrap();
    assert!(sniff(&mut Input::open(&file).unwrap()).is_err());
}

/// Data of a program may look like records, but a damaged trace does not begin with the magic number of a program.
#[test]
fn files_of_other_kinds_are_no_damaged_traces() {
    let mut record = [0; 16];
    record[0] = 9;
    record[6] = 16;
    let records = record.repeat(64);
    let found = |magic: &[u8]| {
        let bytes = [magic, &records].concat();
        let found = sniff(&mut Input::from_bytes("a", bytes.as_slice()).unwrap());
        found.map(|format| format.name).ok()
    };
    assert_eq!(found(&[0xff; 8]), Some("perf.data"));
    for magic in [
        &b"\x7fELF\x02\x01\x01\0"[..],
        b"!<arch>\n",
        b"\xde\x12\x04\x95\0\0\0\0",
    ] {
        assert_eq!(found(magic), None, "{magic:?}");
    }
}

/// Only the end of a long line tells a deep stack from a style sheet.
#[test]
fn long_lines_without_a_count_are_no_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    for (end, expected) in [
        (" 12\nb;c 1\n", true),
        (" 3", true),
        ("}\n", false),
        ("", false),
    ] {
        std::fs::write(
            &file,
            ["--ground: #ffffff;".repeat(400).as_str(), end].concat(),
        )
        .unwrap();
        assert_eq!(
            sniff(&mut Input::open(&file).unwrap()).is_ok(),
            expected,
            "{end:?}"
        );
    }
}

fn refusal(name: &str, bytes: &[u8]) -> String {
    match sniff(&mut Input::from_bytes(name, bytes).unwrap()) {
        Err(error) => error.to_string(),
        Ok(format) => format!("taken for {}", format.name),
    }
}

#[test]
fn rejections_name_the_likely_kind() {
    assert_eq!(
        refusal("a", b"\x7fELF\x02"),
        "a: unknown trace format: it looks like a program (ELF)"
    );
    for magic in [b"DTiJ", b"JiTD"] {
        assert!(refusal("jit-1.dump", magic).contains("a jitdump"));
    }
    assert!(refusal("empty", b"").ends_with("it looks like an empty file"));
    assert!(refusal("zeros", &[0; 4096]).contains("never written"));
    let report =
        b"# captured on: Thu Mar 30\n# Samples: 1K of event 'cycles'\n# Overhead  Command\n";
    assert!(refusal("report.txt", report).contains("perf report"));
    let json = br#"{"gcc_version": "12.2.0", "files": [], "format_version": "1"}"#;
    assert!(refusal("a.gcov.json", json).contains("without --json-format"));
    let stap = b"# stap pfaults.stp\n\n461:3407:2830640d:r:minor:55\n";
    assert!(refusal("a.txt", stap).contains("--from systemtap reads it"));
    let heap = br#"{"head":{"callFrame":{"functionName":"(root)"},"selfSize":0,"children":[]},"samples":[]}"#;
    assert_eq!(
        refusal("x.heapprofile", heap),
        "x.heapprofile: unknown trace format: it looks like a heap profile of V8, which perfquet does not read"
    );
    assert!(refusal("x.pprof", b"no").ends_with("by its name it could be pprof"));
    assert!(refusal("ftrace_text.txt", b"no").ends_with("by its name it could be ftrace-text"));
    let stacks = b"Attaching to malloc in pid 1, Ctrl+C to quit.\n4096 bytes allocated at:\n\tmalloc+0x0\n\tmain+0x10\n";
    assert!(refusal("mallocstacks.txt", stacks).contains("stacks of a bcc tool"));
}

/// Texts with backticks, arrows, rulers and at-signs that are not in any format.
#[test]
fn prose_and_source_code_are_rejected() {
    let texts = [
        "Use ``perf``:\n\n    .. code-block:: `x`\n    :class:`Foo` and `bar`\n    42\n",
        "#!/bin/sh\n    now=`date`\n    12\n    echo \"`uname -r`\"\n",
        "addr     -> source\n0x40000  -> destination\n100      -> count\n 1       -> command\n 3 -> x\n",
        "  file     tarball  range\n  -------  -------  -----\n  Changes  Either   N/A\n",
        "Created on 4 sept.\n\n@author: luca\n\nimport unittest\n",
        "%hash = (\n    a\n    => 1,\n    b\n    => 2,\n    c\n    => 3,\n);\n",
    ];
    for text in texts {
        let refusal = refusal("a.txt", text.as_bytes());
        assert!(
            refusal.contains("unknown trace format"),
            "{text}: {refusal}"
        );
    }
}

/// An event with these fields, and this many hits of it, with an increasing first value.
fn hits(
    sink: &mut dyn Sink,
    event: u32,
    fields: &[(&str, FieldType)],
    times: std::ops::Range<i64>,
) {
    let field = |(name, kind): &(&str, FieldType)| Field {
        name: (*name).to_owned(),
        kind: *kind,
        layout: None,
        declaration: String::new(),
    };
    let kind = EventType {
        system: "my".to_owned(),
        name: "event".to_owned(),
        fields: fields.iter().map(field).collect(),
        ..EventType::default()
    };
    sink.event(Event::Type(&kind)).unwrap();
    for time in times {
        let values = [Value::Int(time), Value::Bytes(b"text")];
        let sample = Sample {
            time: Some(time),
            fields: Fields::Values(&values[..fields.len()]),
            ..Sample::of(EventId(event))
        };
        sink.event(Event::Sample(&sample)).unwrap();
    }
}

/// 20 hits of an event, 30 with a wider field and an additional one; then 10 as at first.
const CHANGING: Format = Format {
    name: "changing",
    about: "",
    main_file: None,
    has_lines: false,
    sniff: |_| Guess::No,
    read_file: |_, sink| {
        hits(sink, 0, &[("a", FieldType::Int(4))], 0..20);
        hits(
            sink,
            1,
            &[("A", FieldType::Int(8)), ("b", FieldType::Text)],
            20..50,
        );
        hits(sink, 2, &[("a", FieldType::Int(4))], 50..60);
        Ok(())
    },
};

/// The same event of another kernel, where the field is a string.
const OTHER_KERNEL: Format = Format {
    name: "other",
    read_file: |_, sink| {
        hits(
            sink,
            0,
            &[("c", FieldType::UInt(8)), ("a", FieldType::Text)],
            0..5,
        );
        Ok(())
    },
    ..CHANGING
};

fn rows_of_types(trace: &Directory) -> i64 {
    let mut rows = 0;
    for batch in trace.read("event_types").unwrap() {
        let batch = batch.unwrap();
        let tables = batch["table_name"].as_string::<i32>();
        assert!(tables.iter().all(|table| table == Some("my.event")));
        rows += batch["rows"]
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .sum::<i64>();
    }
    rows
}

#[test]
fn event_with_changing_fields_is_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.pqt");
    let input = || Input::from_bytes("x", b"no trace").unwrap();
    let with = |from: &'static Format| ImportOptions {
        from: Some(from),
        ..options()
    };
    let report = import(vec![input()], &output, with(&CHANGING)).unwrap();
    assert_eq!((report.counts.events, report.counts.problems), (60, 0));
    let trace = Directory::open(&output).unwrap();
    let tables: Vec<&str> = trace.tables().map(|(name, _)| name).collect();
    let tables: Vec<&&str> = tables
        .iter()
        .filter(|name| name.starts_with("events/"))
        .collect();
    assert_eq!(tables, [&"events/my/event"]);
    let table = trace.table("events/my/event").unwrap();
    assert_eq!(table.rows(), 60);
    assert_eq!(rows_of_types(&trace), 60);
    let schema = table.schema("x");
    let own: Vec<_> = schema.columns[7..]
        .iter()
        .map(|column| (column.name.as_str(), column.kind))
        .collect();
    assert_eq!(own, [("a", ColumnType::Int64), ("b", ColumnType::Text)]);
    let forms = trace.forms("events/my/event");
    let rows = |form| -> usize {
        let batches = trace.read_form(form).unwrap();
        batches.map(|batch| batch.unwrap().num_rows()).sum()
    };
    assert_eq!(forms.iter().map(rows).collect::<Vec<_>>(), [30, 30]);
    assert_eq!(forms[0].columns.len(), 8, "time, …, a");
    assert_eq!(forms[0].columns[7].kind, ColumnType::Int32);
    assert_eq!(forms[1].columns.len(), 9);
    // The manifest lists the columns of the narrower parts; the wider ones have those of the table.
    let own: Vec<usize> = table.parts.iter().map(|part| part.columns.len()).collect();
    assert_eq!(own, [8, 0]);
}

#[test]
fn two_kernels_events_are_one_table_and_text_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.pqt");
    const BOTH: Format = Format {
        name: "both",
        read_file: |input, sink| match input.name() {
            "first" => CHANGING.read(input, sink),
            _ => OTHER_KERNEL.read(input, sink),
        },
        ..CHANGING
    };
    let inputs = vec![
        Input::from_bytes("first", b"no trace").unwrap(),
        Input::from_bytes("second", b"no trace").unwrap(),
    ];
    let options = ImportOptions {
        from: Some(&BOTH),
        ..options()
    };
    let report = import(inputs, &output, options).unwrap();
    assert_eq!(report.counts.events, 65);
    let trace = Directory::open(&output).unwrap();
    let table = trace.table("events/my/event").unwrap();
    assert_eq!((table.rows(), rows_of_types(&trace)), (65, 65));
    let kinds: Vec<_> = table.schema("x").columns[7..]
        .iter()
        .map(|column| (column.name.clone(), column.kind))
        .collect();
    let expected = [
        ("a", ColumnType::Text),
        ("b", ColumnType::Text),
        ("c", ColumnType::UInt64),
    ];
    assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
    let batch = trace.read("problems").unwrap().next().unwrap().unwrap();
    assert_eq!(batch["source"].as_string::<i32>().value(0), "second");
    assert_eq!(
        batch["message"].as_string::<i32>().value(0),
        "my:event: field a is text here and int64 before, its column in the table is text"
    );
}
