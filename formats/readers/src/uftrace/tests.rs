//! Golden files, hostile directories, texts of other commands.

use perfquet_events::{Guess, Input};
use proptest::prelude::*;

use super::{UFTRACE, sniff};
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("uftrace") {
        assert_golden(&path, &read_golden(&UFTRACE, &path));
        assert_recognized(&UFTRACE, &path);
    }
}

fn golden_path(name: &str) -> std::path::PathBuf {
    let files = golden_files("uftrace");
    files.into_iter().find(|path| path.ends_with(name)).unwrap()
}

/// A directory, one above it, and an archive have the same events.
#[test]
fn directories_and_archives() {
    let path = golden_path("args.tar");
    let (folder, _) = unpacked(&path);
    let read = |path: &std::path::Path| as_text(&UFTRACE, &mut Input::open(path).unwrap());
    let expected = read_golden(&UFTRACE, &path);
    assert_eq!(read(&folder.path().join("v013-args.data")), expected);
    assert_eq!(read(folder.path()), expected);
    let copy = folder.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(folder.path().join("v013-args.data/info"), copy.join("info")).unwrap();
    let text = read(folder.path());
    assert!(
        text.contains("expected one directory of uftrace, found 2"),
        "{text}"
    );
    let text = read(&copy.join("info"));
    assert!(text.contains("hint: this is the file info alone"), "{text}");
}

#[test]
fn texts_of_other_commands_are_refused_with_a_hint() {
    let report = b"  Total time   Self time       Calls  Function\n  ==========  ==========\n";
    let graph = b"# Function Call Graph for 'calls2' (session: e5ac)\n";
    for (text, command) in [(&report[..], "report"), (graph, "graph")] {
        assert_eq!(sniff::sniff(text), Guess::Likely);
        let found = read_bytes(&UFTRACE, text);
        assert!(
            found.contains(&format!("(the text of uftrace {command})\nhint: ")),
            "{found}"
        );
    }
}

#[test]
fn the_flat_text_is_refused_with_a_hint() {
    let flat = b"\n[0] ==> 9678/0: ip (main), time (15040604398313)\n[1] <== 9678/0: ip (main), time (15040604398453:140)\n";
    assert_eq!(sniff::sniff(flat), Guess::Certain);
    let found = read_bytes(&UFTRACE, flat);
    assert!(
        found.contains("(the text of uftrace replay --flat)\nhint: "),
        "{found}"
    );
}

#[test]
fn other_heads_are_not_claimed() {
    let check = |head: &[u8]| assert_eq!(sniff::sniff(head), Guess::No);
    check(b"");
    check(b"# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n");
    check(b"#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n");
    check(b"# FUNCTION\n");
}

/// Outside of calls, waits are nobody's: the calls of the program before exec have ended, whatever else renames a thread.
#[test]
fn waits_between_programs_are_no_calls() {
    let dump = |function: &str| {
        let text = format!(
            "uftrace file header: magic \n1.000000001 7: [entry] main(1) depth: 0\n\
             1.000000002 7: [entry] {function}(2) depth: 1\n1.000000003 7: [event] linux:task-name(200006)\n\
             1.000000004 7: [event] linux:sched-out (pre-empted)(200007)\n1.000000005 7: [event] linux:sched-in(200001)\n"
        );
        let events = read_bytes(&UFTRACE, text.as_bytes());
        events
            .matches("function=\"linux:schedule (pre-empted)\"")
            .count()
    };
    assert_eq!(dump("execl"), 0);
    assert_eq!(dump("prctl"), 2, "its begin and its end");
}

proptest! {
    /// Damaged records never panic, and no entry is invented.
    #[test]
    fn damaged_records(at in 0..1304_usize, byte: u8, length in 0..1304_usize) {
        let (folder, _) = unpacked(&golden_path("args.tar"));
        let path = folder.path().join("v013-args.data/14212.dat");
        let mut records = std::fs::read(&path).unwrap();
        records[at] = byte;
        records.truncate(length);
        std::fs::write(&path, records).unwrap();
        let text = as_text(&UFTRACE, &mut Input::open(folder.path()).unwrap());
        prop_assert!(text.contains("tid=14214"));
        prop_assert!(text.lines().filter(|line| line.starts_with("enter")).count() <= 80);
    }

    #[test]
    fn no_text_panics(text in r#"(# DURATION     TID     FUNCTION\n|[ ]{0,4}|[|] |\[ 1\]|main|\(|\)|\{|\}|;|/\* |\*/|linux:sched-(out|in)|"|'|, | = |\n|1.5 us){0,60}"#) {
        read_bytes(&UFTRACE, text.as_bytes());
        let dump = format!("uftrace file header: magic \n{text}1.5 7: [entry] {text}");
        read_bytes(&UFTRACE, dump.as_bytes());
    }
}
