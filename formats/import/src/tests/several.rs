//! Several inputs in one trace: those that cannot be one, and what none of them recorded.

use perfquet_events::event::Fact;

use super::*;

/// Text: lines `clock NAME`, `host NAME`, `recording ID`, or the time of an event.
const LINES: Format = Format {
    name: "lines",
    about: "for tests",
    main_file: None,
    has_lines: false,
    sniff: |_| Guess::No,
    read_file: |input, sink| {
        let text = input.whole()?.unwrap();
        sink.event(Event::Type(&EventType {
            system: "my".into(),
            name: "event".into(),
            ..EventType::default()
        }))?;
        for line in std::str::from_utf8(&text).unwrap().lines() {
            match line.split_once(' ') {
                Some(("clock", name)) => sink.event(Event::Fact(Fact::Clock(name)))?,
                Some(("host", name)) => sink.event(Event::Fact(Fact::Host(name)))?,
                Some(("recording", id)) => sink.event(Event::Fact(Fact::Recording(id)))?,
                _ => sink.event(Event::Sample(&Sample {
                    time: line.parse().ok(),
                    ..Sample::of(EventId(0))
                }))?,
            }
        }
        Ok(())
    },
};

/// Imports texts; the rows of `losses`, and the problems.
fn imported(texts: &[&str], output: &Path) -> Result<(Vec<String>, Vec<String>), Error> {
    let inputs = texts.iter().enumerate();
    let inputs = inputs
        .map(|(number, text)| Input::from_bytes(&format!("input{number}"), text.as_bytes()))
        .collect::<Result<Vec<Input>, Error>>()?;
    let options = ImportOptions {
        from: Some(&LINES),
        ..options()
    };
    let report = import(inputs, output, options)?;
    assert_eq!(report.counts.losses, 0, "a pause loses nothing");
    let trace = Directory::open(output)?;
    let cells = |table: &str, columns: [&str; 2]| {
        let mut rows = Vec::new();
        for batch in trace.read(table).unwrap() {
            let batch = batch.unwrap();
            let texts = columns.map(|name| {
                let column = arrow::compute::cast(&batch[name], &arrow::datatypes::DataType::Utf8);
                column.unwrap().as_string::<i32>().clone()
            });
            rows.extend((0..batch.num_rows()).map(|row| {
                let [one, other] = texts.each_ref().map(|text| text.value(row));
                format!("{one} {other}")
            }));
        }
        rows
    };
    Ok((
        cells("losses", ["time", "reason"]),
        cells("problems", ["source", "message"]),
    ))
}

#[test]
fn times_that_no_input_recorded_are_losses() {
    let folder = tempfile::tempdir().unwrap();
    let gaps = |name: &str, texts: &[&str]| {
        let (losses, problems) = imported(texts, &folder.path().join(name)).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        losses
    };
    let paused = ["31 paused", "4000 resumed"];
    assert_eq!(gaps("a", &["10\n20\n30", "4000\n4050"]), paused);
    assert_eq!(gaps("b", &["4000\n4050", "10\n20\n30"]), paused);
    // One of them covers the others.
    assert!(gaps("c", &["10\n20\n30", "4000\n4050", "5\n5000"]).is_empty());
    // Rotated files continue each other.
    let rotated = ["recording 7\n10\n30", "recording 7\n33\n60"];
    assert!(gaps("d", &rotated).is_empty());
    let others = ["recording 7\n10\n30", "recording 8\n33\n60"];
    assert_eq!(gaps("e", &others), ["31 paused", "33 resumed"]);
}

#[test]
fn rotated_files_of_perf_continue_each_other() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../readers/src/perf_data/golden");
    let pauses = |names: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let inputs = names
            .iter()
            .map(|name| Input::open(&golden.join(name)).unwrap());
        let output = folder.path().join("a.pqt");
        import(inputs.collect(), &output, options()).unwrap();
        let trace = Directory::open(&output).unwrap();
        let batches = trace.read("losses").unwrap();
        let reasons = batches.map(|batch| {
            let batch = batch.unwrap();
            let reasons = batch["reason"].as_string::<i32>().clone();
            (0..reasons.len())
                .filter(|&row| reasons.value(row) == "paused")
                .count()
        });
        reasons.sum::<usize>()
    };
    // perf record --switch-output.
    assert_eq!(pauses(&["switched-1.data", "switched-2.data"]), 0);
}

#[test]
fn inputs_of_other_clocks_and_hosts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.pqt");
    let refusal = |texts: &[&str]| {
        let error = imported(texts, &output).unwrap_err();
        assert!(matches!(error, Error::Apart { .. }), "{error}");
        assert!(!output.exists(), "nothing is left");
        error.to_string()
    };
    assert_eq!(
        refusal(&["clock monotonic\n10", "clock realtime\n20"]),
        "input1: it cannot be in one trace with input0: expected the clock monotonic, found the clock realtime"
    );
    assert_eq!(
        refusal(&["10", "1796016751546869827"]),
        "input1: it cannot be in one trace with input0: expected an unknown clock, found times that cannot be of the same one"
    );
    assert_eq!(
        refusal(&["host a\n10", "20", "host b\n30"]),
        "input2: it cannot be in one trace with input0: expected host a, found b"
    );
    let (_, problems) = imported(&["clock monotonic\n10", "20"], &output).unwrap();
    assert_eq!(
        problems,
        ["input1 whether its clock is that of input0 is unknown: their times may not fit together"]
    );
}
