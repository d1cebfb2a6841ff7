//! Every export of every trace: each row is written or omitted with a reason, and the program that reads the format finds
//! what was written. Prints a table.
//!
//! ```text
//! trace              perfetto        pprof           ctf             folded
//! stat.data          57 omitted      =57             57 omitted      57 omitted
//! graph-events.dat   =245            =245            =245            24 + 221 omitted
//! ```
//! A cell with `=` has all rows; `omitted` has a reason in the closing lines. Whatever else happens to a row fails the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use perfquet_tests::needs;
use serde_json::Value;

use super::inputs::{Trace, traces};
use super::{WEIGHTS, counts, export, pprof};

/// Formats of rows, in the order of docs/exports.md.
const FORMATS: [&str; 8] = [
    "perfetto",
    "firefox",
    "pprof",
    "speedscope",
    "chrome",
    "ctf",
    "folded",
    "perf-script",
];

/// What the closing lines report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    /// Exported items by noun: "sample", "event".
    written: BTreeMap<String, u64>,
    /// Omitted rows, without parts of rows.
    pub(super) omitted: u64,
}

impl Reported {
    /// Reads the closing lines: "a.x: 1,417 samples, 3 calls; 2 KiB", "a.x: 7 rows omitted: without a timestamp".
    pub(super) fn of(stderr: &str, output: &Path) -> Reported {
        let prefix = format!("{}: ", output.display());
        let lines: Vec<&str> = stderr
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect();
        let counted = |text: &str| {
            let (count, noun) = text.split_once(' ')?;
            let count = count.replace(',', "").parse::<u64>().ok()?;
            Some((noun.trim_end_matches('s').to_owned(), count))
        };
        let mut reported = Reported::default();
        let first = lines.first().map_or("", |line| line);
        let written = first.split(';').next().unwrap_or_default();
        reported
            .written
            .extend(written.split(", ").filter_map(counted));
        for line in lines.iter().skip(1) {
            if let Some((omitted, reason)) = line.split_once(" omitted: ") {
                let (noun, count) = counted(omitted).unwrap();
                assert!(!reason.is_empty(), "{line}");
                // The stack of a row whose other columns are written, and losses, which are no rows.
                if noun != "stack" && noun != "loss record" {
                    reported.omitted += count;
                }
            }
        }
        reported.written.remove("loss record");
        reported
    }

    pub(super) fn written(&self) -> u64 {
        self.written.values().sum()
    }

    fn cell(&self) -> String {
        match (self.written(), self.omitted) {
            (0, 0) => "empty".to_owned(),
            (written, 0) => format!("={written}"),
            (0, omitted) => format!("{omitted} omitted"),
            (written, omitted) => format!("{written} + {omitted} omitted"),
        }
    }
}

#[test]
fn no_row_is_lost_silently() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = format!("{:<22}", "trace");
    for format in FORMATS {
        write!(table, " {format:<18}").unwrap();
    }
    let mut wrong = Vec::new();
    for trace in traces() {
        write!(table, "\n{:<22}", trace.name).unwrap();
        let rows: u64 = counts(
            &trace.path,
            "SELECT 'samples' AS name, count(*) AS n FROM samples
             UNION ALL SELECT 'calls', count(*) FROM calls
             UNION ALL SELECT 'aggregates', count(*) FROM aggregates
             UNION ALL SELECT 'events', CAST(coalesce(sum(rows), 0) AS BIGINT) FROM event_types WHERE table_name NOT IN ('samples', '')",
        )
        .values()
        .sum();
        let missing = counts(
            &trace.path,
            "SELECT 'lost' AS name, count(*) AS n FROM losses WHERE reason NOT IN ('throttled', 'paused', 'resumed') AND reason NOT LIKE '%filter%'
             UNION ALL SELECT 'problems', CAST(coalesce(sum(count), 0) AS BIGINT) FROM problems",
        );
        for format in FORMATS {
            let output = folder.path().join(format!("a.{format}"));
            let _ = std::fs::remove_dir_all(&output);
            let stderr = export(&trace.path, format, &output, &[]);
            let reported = Reported::of(&stderr, &output);
            write!(table, " {:<18}", reported.cell()).unwrap();
            let mut check = |holds: bool, what: &str| {
                if !holds {
                    wrong.push(format!("{} --to {format}: {what}\n{stderr}", trace.name));
                }
            };
            let sum = reported.written() + reported.omitted;
            check(sum == rows, &format!("{sum} of {rows} rows accounted for"));
            let is_told = stderr.contains(" lost while recording; see table losses");
            check(is_told == (missing["lost"] > 0), "losses");
            let is_told = stderr.contains("; see table problems");
            check(is_told == (missing["problems"] > 0), "read errors");
            for what in differences(trace, format, &output, reported.written()) {
                check(false, &what);
            }
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reads an export as the program that it is written for. Firefox, speedscope and trace_processor have their own tests.
fn differences(trace: &Trace, format: &str, output: &Path, written: u64) -> Vec<String> {
    let text = || std::fs::read_to_string(output).unwrap();
    let counted = |found: u64| match found == written {
        true => Vec::new(),
        false => vec![format!("{written} written, {found} found")],
    };
    match format {
        "ctf" if needs::met(&["babeltrace2"]) => {
            let command = Command::new("babeltrace2").arg(output).output().unwrap();
            let text = String::from_utf8_lossy(&command.stdout).into_owned();
            counted(text.lines().filter(|line| line.contains("}, {")).count() as u64)
        }
        // pprof rejects a profile without samples.
        "pprof" if written > 0 && needs::met(&["Go with pprof"]) => pprof_sums(trace, output),
        "chrome" => {
            let json: Value = serde_json::from_str(&text()).unwrap();
            let events = json["traceEvents"].as_array().unwrap();
            // Names of threads, losses, and the second form of systrace's counters.
            let is_row = |event: &&Value| {
                event["ph"] != "M" && event["ph"] != "C" && event["cat"] != "losses"
            };
            counted(events.iter().filter(is_row).count() as u64)
        }
        "folded" => folded_sums(trace, &text()),
        "perf-script" => match stackcollapsed(&text()) {
            Ok(found) => counted(found),
            Err(line) => vec![format!("no frame: {line}")],
        },
        _ => Vec::new(),
    }
}

/// The sum of every sample type is that of SQL.
fn pprof_sums(trace: &Trace, output: &Path) -> Vec<String> {
    let sums = pprof::sums(output);
    let mut expected = counts(
        &trace.path,
        &format!("{WEIGHTS}
         UNION ALL SELECT 'calls', count(*) FROM calls WHERE time IS NOT NULL HAVING count(*) > 0
         UNION ALL SELECT 'self_time', CAST(coalesce(sum(self_time), 0) AS BIGINT) FROM calls WHERE time IS NOT NULL HAVING count(*) > 0"),
    );
    let samples = counts(
        &trace.path,
        "SELECT 'n' AS name, count(*) AS n FROM samples HAVING count(*) > 0",
    );
    for count in samples.into_values() {
        let name = match expected.contains_key("samples") {
            true => "rows",
            false => "samples",
        };
        expected.insert(name.to_owned(), count);
    }
    expected.extend(counts(
        &trace.path,
        "SELECT CASE system WHEN '' THEN event ELSE concat(system, ':', event) END AS name, CAST(sum(rows) AS BIGINT) AS n
         FROM event_types WHERE table_name NOT IN ('samples', '') AND rows > 0 GROUP BY 1",
    ));
    // Names are printed without quotes, and read by words.
    let found = |name: &String| {
        let word = name.rsplit(' ').next().unwrap_or(name);
        sums.get(word).copied().unwrap_or(0)
    };
    expected
        .iter()
        .filter(|(name, sum)| found(name) != **sum)
        .map(|(name, sum)| format!("{name}: {sum}, pprof {sums:?}"))
        .collect()
}

/// The sum of the counts is that of one event's periods, or of both sides of a comparison.
fn folded_sums(trace: &Trace, text: &str) -> Vec<String> {
    let sampled = counts(&trace.path, WEIGHTS);
    let mut sums = [0.0; 2];
    for line in text.lines() {
        let numbers = line.rsplit(' ').map_while(|word| word.parse::<f64>().ok());
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
    }
    let found = sums.map(|sum| sum as u64);
    let is_same = match sampled.get("before").zip(sampled.get("after")) {
        Some((before, after)) => found == [*after, *before],
        None => sampled.is_empty() || sampled.values().any(|sum| *sum == found[0]),
    };
    match is_same {
        true => Vec::new(),
        false => vec![format!("{sampled:?}, folded {found:?}")],
    }
}

/// Counts the events that `stackcollapse-perf.pl` recognizes: a head, `comm PID/TID [CPU] TIME: PERIOD EVENT:`, then lines
/// `ADDRESS FUNCTION+OFFSET (MODULE)` until an empty one. Returns a line of a stack without that form.
fn stackcollapsed(text: &str) -> Result<u64, String> {
    let mut events = 0;
    let mut is_in_stack = false;
    for line in text.lines() {
        if line.is_empty() {
            is_in_stack = false;
        } else if is_in_stack && line.starts_with('\t') {
            let (address, rest) = line.trim_start().split_once(' ').unwrap_or((line, ""));
            let is_frame = u64::from_str_radix(address, 16).is_ok()
                && rest.rsplit_once(" (").is_some_and(|(function, module)| {
                    !function.is_empty() && module.len() > 1 && module.ends_with(')')
                });
            if !is_frame {
                return Err(line.to_owned());
            }
        } else {
            events += 1;
            is_in_stack = true;
        }
    }
    Ok(events)
}

/// Frames whose function is unknown come back with their modules from formats that have only names, not as functions.
#[test]
fn modules_of_unknown_functions_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = "SELECT regexp_replace(module, '.*/', '') AS name, count(DISTINCT 1) AS n FROM frames WHERE function IS NULL AND module IS NOT NULL GROUP BY 1";
    for (name, formats) in [
        ("user-regs.data", &FORMATS[..4]),
        ("user-regs.data", &FORMATS[5..]),
        ("cpu-clock-a.data", &["folded", "ctf"]),
    ] {
        let original = super::inputs::trace(name);
        let expected = counts(&original.path, unknown);
        assert!(!expected.is_empty(), "{name}");
        for format in formats {
            let file = folder.path().join(format!("{name}.{format}"));
            let imported = folder.path().join("again.pqt").display().to_string();
            export(&original.path, format, &file, &[]);
            let file = file.display().to_string();
            crate::several::printed(
                "perfquet-convert",
                &[&file, "--no-symbols", "-f", "-o", &imported],
            );
            assert_eq!(counts(&imported, unknown), expected, "{name} --to {format}");
            let named = "SELECT function AS name, count(*) AS n FROM frames WHERE function LIKE '[%' GROUP BY 1";
            assert!(counts(&imported, named).is_empty(), "{name} --to {format}");
        }
    }
}
