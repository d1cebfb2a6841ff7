//! Round trips, and the exporters' output for small traces.

use std::collections::BTreeMap;
use std::path::Path;

use perfquet_events::event::{Action, Aggregate, AggregateValue, Event, NamedFrame, Stack};
use perfquet_events::{Format, Guess, Input};
use perfquet_import::{ImportOptions, import};
use perfquet_readers::folded::FOLDED;
use perfquet_readers::ftrace_text::FTRACE_TEXT;
use perfquet_readers::perf_data::PERF_DATA;
use perfquet_readers::perf_script::PERF_SCRIPT;
use perfquet_readers::trace_dat::TRACE_DAT;
use perfquet_trace::store::Directory;

use super::{
    Condition, EXPORTERS, Exporter, Output, Selection, Source, Tally, folded, perf_script, pprof,
    speedscope,
};
use perfquet_trace::normalize::TimeRange;

/// Imports folded stacks and exports them again.
fn exported(exporter: &Exporter, text: &[u8]) -> String {
    exported_from(&FOLDED, exporter, text)
}

fn exported_from(format: &'static Format, exporter: &Exporter, text: &[u8]) -> String {
    String::from_utf8(exported_with(format, exporter, text, Selection::default()).0).unwrap()
}

/// Imports, exports the selected rows, and returns the bytes and the counts.
fn exported_with(
    format: &'static Format,
    exporter: &Exporter,
    text: &[u8],
    selection: Selection,
) -> (Vec<u8>, Tally) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.pqt");
    let input = Input::from_bytes("test", text).unwrap();
    let options = ImportOptions {
        from: Some(format),
        ..ImportOptions::default()
    };
    import(vec![input], &trace, options).unwrap();
    let trace = Directory::open(&trace).unwrap();
    let mut out = Vec::new();
    let progress = |_| {};
    let source = Source::open(&trace, &selection, Default::default(), &progress).unwrap();
    let mut tally = Tally::default();
    match exporter.output {
        Output::Text { write }
        | Output::Reference { write, .. }
        | Output::File { write, .. }
        | Output::Archive { write, .. } => {
            write(&source, &mut out, &mut tally).unwrap();
        }
        Output::Timeline { write, .. } => {
            write(std::slice::from_ref(&source), &mut out, &mut tally).unwrap();
        }
        Output::Directory { write, .. } => {
            let output = folder.path().join("out");
            std::fs::create_dir(&output).unwrap();
            write(&source, &output, &mut tally).unwrap();
            out = all_files(&output);
        }
        Output::Lake => unreachable!("a lake has several traces"),
    }
    (out, tally)
}

/// The files of a directory, each after its name.
fn all_files(folder: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        all.extend_from_slice(format!("== {name}\n").as_bytes());
        all.extend(std::fs::read(&path).unwrap());
    }
    all
}

/// Lines with their counts in thousandths; counts of equal stacks are added, lines without a count dropped.
fn merged(text: &str, numbers: usize) -> BTreeMap<String, Vec<u64>> {
    let mut lines: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.rsplitn(numbers + 1, ' ');
        let counts: Option<Vec<u64>> = words.by_ref().take(numbers).map(thousandths).collect();
        let (Some(counts), Some(stack)) = (counts, words.next()) else {
            continue;
        };
        let of_stack = lines
            .entry(stack.to_owned())
            .or_insert_with(|| vec![0; numbers]);
        of_stack
            .iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count);
    }
    lines
}

fn thousandths(word: &str) -> Option<u64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    format!("{whole}{fraction:0<3}").parse().ok()
}

#[track_caller]
fn check_round_trip(text: &str, numbers: usize) {
    let exported = exported(&folded::EXPORTER, text.as_bytes());
    assert_eq!(
        merged(&exported, numbers),
        merged(text, numbers),
        "{exported}"
    );
    assert_eq!(exported.lines().count(), merged(text, numbers).len());
}

/// `perf script -F` without the period: the number of samples is no time.
#[test]
fn samples_without_a_period_are_counted() {
    let text = b"a 10/10 [000] 1.000000: cpu-clock:\n\t11a0 hot (/x/spin)\n\na 10/10 [000] 1.010000: cpu-clock:\n\t11a0 hot (/x/spin)\n\n";
    let exported = |name: &str| {
        let exporter = EXPORTERS.iter().find(|exporter| exporter.name == name);
        let (out, tally) =
            exported_with(&PERF_SCRIPT, exporter.unwrap(), text, Selection::default());
        assert!(tally.notes().is_empty());
        String::from_utf8_lossy(&out).into_owned()
    };
    let speedscope = exported("speedscope");
    assert!(speedscope.contains("\"unit\":\"none\""), "{speedscope}");
    assert_eq!(exported("folded"), "a;hot 2\n");
    assert!(!exported("perf-script").contains(" 1 cpu-clock"));
    assert!(exported("firefox").contains("\"weightType\":\"samples\""));
    // Some have one: samples are counted, and the export says so.
    let mixed = b"a 10/10 [000] 1.000000: cpu-clock:\n\t11a0 hot (/x/spin)\n\na 10/10 [000] 1.010000: 1000000 cpu-clock:\n\t11a0 hot (/x/spin)\n\n";
    let (out, tally) = exported_with(&PERF_SCRIPT, &folded::EXPORTER, mixed, Selection::default());
    assert_eq!(String::from_utf8_lossy(&out), "a;hot 2\n");
    assert_eq!(
        tally.notes(),
        ["cpu-clock: 1 of 2 samples have no period: samples are counted"]
    );
}

/// Aggregates of two intervals, and their total.
const INTERVALS: Format = Format {
    name: "intervals",
    about: "aggregates by interval",
    main_file: None,
    has_lines: false,
    sniff: |_| Guess::Certain,
    read_file: |_, sink| {
        let frame = NamedFrame {
            function: b"f",
            ..NamedFrame::default()
        };
        for (snapshot, since, value) in [(0, Some(0), 5), (1, Some(10), 7), (1, None, 12)] {
            sink.event(Event::Aggregate(&Aggregate {
                name: b"off-cpu",
                action: Some(Action::Sum),
                keys: &[b"dd"],
                value: Some(AggregateValue::Int(value)),
                kernel_stack: Stack::Named(&[frame]),
                user_stack: Stack::None,
                snapshot,
                since,
                time: Some(20),
                buckets: &[],
            }))?;
        }
        Ok(())
    },
};

#[test]
fn intervals_of_aggregates_are_parts_of_their_total() {
    let exported = |exporter: &Exporter| {
        let (out, tally) = exported_with(&INTERVALS, exporter, b"x", Selection::default());
        assert!(!out.is_empty());
        (String::from_utf8_lossy(&out).into_owned(), tally)
    };
    assert_eq!(exported(&folded::EXPORTER).0, "dd;f 12\n");
    assert!(
        exported(&speedscope::EXPORTER)
            .0
            .contains("\"weights\":[12]")
    );
}

/// pprof shows 14.29 s, not 14287967942.
#[test]
fn times_off_the_cpu_have_a_unit() {
    let (profile, _) = exported_with(&INTERVALS, &pprof::EXPORTER, b"x", Selection::default());
    let text = String::from_utf8_lossy(&profile);
    assert!(
        text.contains("off-cpu") && text.contains("nanoseconds"),
        "{text}"
    );
}

#[test]
fn folded_stacks_come_back() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/readers/src/folded/golden");
    for name in ["bad-lines", "dd", "fractional", "tricky-stack", "diff"] {
        let text = std::fs::read_to_string(golden.join(name).with_extension("folded")).unwrap();
        check_round_trip(&text, if name == "diff" { 2 } else { 1 });
    }
}

#[test]
fn suffixes_and_odd_stacks_survive_a_round_trip() {
    check_round_trip(
        "a;b_[i];c_[j];d_[k];e_[i];f_[k] 3\na;b_[i];c_[j];d_[k];e_[i];f_[k] 4\n",
        1,
    );
    check_round_trip("k_[k];u 1\n[unknown];[unknown]_[k] 2\nx y z;a 0\n", 1);
    check_round_trip("a 0 3\nb 2 0\nc 0 0\nd 4 5\n", 2);
    assert_eq!(exported(&folded::EXPORTER, b" 5\na;b 1\n"), " 5\na;b 1\n");
}

#[test]
fn hit_counts_one_regardless_of_field_names() {
    let hit = "  dd-1     [000] .....     1.000000: timer_set: period=1000\n";
    let text = exported_from(&FTRACE_TEXT, &folded::EXPORTER, hit.repeat(2).as_bytes());
    assert_eq!(text, "dd 2\n");
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let text = exported(&folded::EXPORTER, b"a;b\x1b[2Jc 1\nd;e 2\n");
    assert_eq!(text, "a;b?[2Jc 1\nd;e 2\n");
}

#[test]
fn perf_script_prints_chains() {
    let text = exported(&perf_script::EXPORTER, b"main;read;vfs_read_[k] 7\n");
    assert_eq!(
        text,
        ":-1    -1          7 count: \n\
         \t               0 vfs_read ([unknown])\n\
         \t               0 read ([unknown])\n\
         \t               0 main ([unknown])\n\n"
    );
}

/// Readers recognize frames by the module, and take the start of an unknown PID for a part of the comm.
#[test]
fn perf_script_text_is_that_of_perf() {
    let text = "dd   212    42.789919877:    1001001 cpu-clock: \n\
                \tffffffff81456ad7 getname_flags.part.0+0x87 ([kernel.kallsyms])\n\
                \t           20b1d [unknown] (/usr/lib64/ld.so)\n\
                \t            f00d [unknown] ([unknown])\n\n\
                a b   212/213   [001]    42.800000000:    1001001 cpu-clock: \n\
                \t           20b1d [unknown] (/usr/lib64/ld.so)\n\n";
    let printed = exported_from(&PERF_SCRIPT, &perf_script::EXPORTER, text.as_bytes());
    assert_eq!(printed, text);
}

const THREE: &[u8] = b"# tracer: nop
   dd-1     [000] .....     1.000000: timer_set: period=1000
   cp-2     [001] .....     1.500000: timer_set: period=2000
   dd-1     [000] .....     2.000000: timer_end: period=3000
";

#[track_caller]
fn check_selection(selection: Selection, expected: &str) {
    let (text, _) = exported_with(&FTRACE_TEXT, &perf_script::EXPORTER, THREE, selection);
    let text = String::from_utf8(text).unwrap();
    let words = text
        .lines()
        .map(|line| line.split('=').next_back().unwrap());
    assert_eq!(words.collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn rows_are_selected_by_time_event_and_condition() {
    let condition = |text| Selection {
        condition: Some(Condition::parse(text).unwrap()),
        ..Selection::default()
    };
    let events = |name: &str| Selection {
        events: vec![name.to_owned()],
        ..Selection::default()
    };
    check_selection(Selection::default(), "1000 2000 3000");
    check_selection(condition("comm = 'dd'"), "1000 3000");
    check_selection(condition("period >= 2000 and cpu = 1"), "2000");
    check_selection(events("timer_set"), "1000 2000");
    check_selection(events("*end"), "3000");
    let time = TimeRange {
        start: Some(500_000_000),
        end: Some(1_000_000_000),
    };
    let time = Selection {
        time: Some(time),
        ..Selection::default()
    };
    check_selection(time, "2000");
}

#[test]
fn a_wrong_selection_is_an_error() {
    let check = |events: &[&str], condition: &str, expected: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pqt");
        let input = Input::from_bytes("test", THREE).unwrap();
        import(vec![input], &path, ImportOptions::default()).unwrap();
        let trace = Directory::open(&path).unwrap();
        let selection = Selection {
            events: events.iter().map(|name| (*name).to_owned()).collect(),
            condition: Some(Condition::parse(condition).unwrap()),
            ..Selection::default()
        };
        let source = Source::open(&trace, &selection, Default::default(), &|_| {});
        assert_eq!(source.err().unwrap().to_string(), expected);
    };
    check(
        &["timer_st"],
        "cpu = 1",
        "--event timer_st: no such event in this trace\nhint: use timer:timer_set",
    );
    check(
        &[],
        "com = 'dd'",
        "--where: no exported table has a column com\nhint: use comm",
    );
}

/// Every exporter writes its golden files; `PERFQUET_UPDATE=1` rewrites them.
#[test]
fn exporters_write_their_golden_files() {
    let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/readers/src");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export/golden");
    // Arrow's files have the layout of its library, of this version; statements have the path of the trace.
    let is_stable = |exporter: &&&Exporter| {
        !matches!(exporter.name, "arrow" | "csv=exact" | "lake" | "pqtz")
            && !matches!(exporter.output, Output::Reference { .. })
    };
    let own = EXPORTERS.iter().filter(is_stable);
    for exporter in own {
        for input in [
            "perf_data/golden/user-regs.data",
            "perf_script/golden/stacks.txt",
            "trace_dat/golden/stacktrace.dat",
            "trace_dat/golden/graph-events.dat",
        ] {
            let path = readers.join(input);
            let format = match input.split('/').next() {
                Some("perf_data") => &PERF_DATA,
                Some("trace_dat") => &TRACE_DAT,
                _ => &PERF_SCRIPT,
            };
            let input = std::fs::read(&path).unwrap();
            let (found, _) = exported_with(format, exporter, &input, Selection::default());
            let stem = path.file_name().unwrap().to_string_lossy();
            let expected = golden.join(format!("{stem}.{}", exporter.name));
            if std::env::var_os("PERFQUET_UPDATE").is_some() {
                std::fs::create_dir_all(&golden).unwrap();
                std::fs::write(&expected, &found).unwrap();
            }
            let known = std::fs::read(&expected).unwrap_or_default();
            if let (Ok(found), Ok(known)) = (str::from_utf8(&found), str::from_utf8(&known)) {
                assert_eq!(found, known, "{}", expected.display());
            }
            assert!(found == known, "{} differs", expected.display());
        }
    }
}

#[test]
fn chrome_tells_processes_with_one_pid_apart() {
    let text = "# ========
# captured on    : Sat Nov 28 08:00:00 2026
# ========
#
 first     7/7     [000]     1.000000: PERF_RECORD_COMM exec: first:7/7
 first     7/7     [000]     1.000010: sched:sched_wakeup: comm=x pid=9 prio=120 target_cpu=000
 first     7/7     [000]     1.000020: PERF_RECORD_EXIT(7:7):(1:1)
    sh     1/1     [000]     2.000000: PERF_RECORD_FORK(7:7):(1:1)
second     7/7     [000]     2.000010: PERF_RECORD_COMM exec: second:7/7
second     7/7     [000]     2.000020: sched:sched_wakeup: comm=x pid=9 prio=120 target_cpu=000
";
    let chrome = EXPORTERS.iter().find(|known| known.name == "chrome");
    let json = exported_from(&PERF_SCRIPT, chrome.unwrap(), text.as_bytes());
    let names: Vec<&str> = json
        .lines()
        .filter(|line| line.contains("\"process_name\""))
        .collect();
    assert_eq!(names.len(), 2, "{json}");
    assert!(
        names[0].contains("\"pid\":7,") && names[0].contains("\"first\""),
        "{json}"
    );
    let second = format!("\"pid\":{},", 7 + (1 << 25));
    assert!(
        names[1].contains(&second) && names[1].contains("\"second\""),
        "{json}"
    );
    let events = json
        .lines()
        .filter(|line| line.contains("\"cat\":\"events\""));
    assert_eq!(
        events.filter(|line| line.contains(&second)).count(),
        1,
        "{json}"
    );
}
