//! A trace of version 1 answers like one of today: `version-1` was written by perfquet 0.1 before version 2, with
//! `perfquet-convert --no-symbols formats/readers/src/perf_data/golden/switch-events.data`; its manifest has no spaces.

use perfquet_tests::root;

use super::several::printed;

const TABLES: [&str; 9] = [
    "samples",
    "mappings",
    "threads",
    "frames",
    "stacks",
    "problems",
    "losses",
    "(SELECT * EXCEPT (trace) FROM events)",
    "perf.context_switch",
];

fn all(traces: &[&str], table: &str) -> String {
    let question = format!("SELECT * FROM {table}");
    let mut arguments = vec!["sql"];
    arguments.extend(traces);
    arguments.extend([question.as_str(), "--format", "csv"]);
    let text = printed("perfquet-query", &arguments);
    let (heading, rows) = text.split_once('\n').unwrap();
    // Parts are read side by side.
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.sort_unstable();
    rows.insert(0, heading);
    rows.join("\n")
}

#[test]
fn version_1_gives_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    let today = folder.path().join("today.pqt").display().to_string();
    let former = root().join("tests/oracle/version-1").display().to_string();
    let input = root().join("formats/readers/src/perf_data/golden/switch-events.data");
    let input = input.display().to_string();
    printed("perfquet-convert", &[&input, "--no-symbols", "-o", &today]);
    for table in TABLES {
        assert_eq!(all(&[&former], table), all(&[&today], table), "{table}");
    }
    // The kernel's addresses, which version 1 holds as unsigned integers.
    let frames = all(&[&former], "frames");
    assert!(frames.contains(",0xffffffff"), "{frames}");
    for exporter in ["perf-script", "folded"] {
        let exported = |trace: &str| printed("perfquet-convert", &[trace, "--to", exporter]);
        assert_eq!(exported(&former), exported(&today), "{exporter}");
    }
    let both = all(
        &[&former, &today],
        "(SELECT count(*) FROM frames WHERE address IS NOT NULL)",
    );
    let count = |text: &str| text.lines().nth(1).unwrap().parse::<u64>().unwrap();
    let one = all(
        &[&today],
        "(SELECT count(*) FROM frames WHERE address IS NOT NULL)",
    );
    assert_eq!(count(&both), 2 * count(&one));
}
