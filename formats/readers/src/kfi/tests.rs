//! Golden files, cases that they lack, and random lines.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::KFI;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("kfi") {
        assert_golden(&path, &read_golden(&KFI, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&KFI, &path);
        }
    }
}

const HEAD: &str = "\nKernel Instrumentation Run ID 0\n\nLogging started at 100 usec by entry to function f\n\n \
     Entry    Delta     PID        Function                        Caller\n\
     -------- -------- -------- ----------------                 ------------\n";

/// The events after the header.
#[track_caller]
fn check(rows: &str, expected: &[&str]) {
    let events = read_bytes(&KFI, format!("{HEAD}{rows}").as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("Fact"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn rows() {
    check(
        "9 8 19 do_fork sys_fork+0x10\n",
        &[
            "call time=109000 tid=19 function=\"do_fork\" caller=\"sys_fork\" context=task duration=8000",
        ],
    );
    check(
        "9 -1 -1 0xc0008000 0x10008094\n",
        &["call time=109000 function=Kernel 0xc0008000 caller=Kernel 0x10008094 context=irq"],
    );
    check(
        "9 -2 1 f g\n",
        &["call time=109000 tid=1 function=\"f\" caller=\"g\" context=task args=[\"delta=-2\"]"],
    );
    check(
        "9 8 1 f g 0x1 0x2 0x3 0x4\n",
        &[
            "call time=109000 tid=1 function=\"f\" caller=\"g\" context=task \
             args=[\"frame=0x1\", \"arg1=0x2\", \"arg2=0x3\", \"arg3=0x4\"] duration=8000",
        ],
    );
}

#[test]
fn times_too_large_are_beyond() {
    check(
        "18446744073709551615 9223372036854775807 1 f g\n",
        &["call time=9223372036854775807 tid=1 function=\"f\" caller=\"g\" context=task"],
    );
}

#[test]
fn earlier_segments_have_no_time() {
    check(
        "0 9 1 f g+0x1\n5000 9 1 h f+0x1\n0 7 1 f g+0x1\n",
        &[
            "call tid=1 function=\"f\" caller=\"g\" context=task args=[\"segment=1\", \"entry=0\"] duration=9000",
            "call tid=1 function=\"h\" caller=\"f\" context=task args=[\"segment=1\", \"entry=5000\"] duration=9000",
            "call time=100000 tid=1 function=\"f\" caller=\"g\" context=task duration=7000",
        ],
    );
}

#[test]
fn a_log_without_a_header_is_read() {
    let events = read_bytes(&KFI, b"9 8 19 f g\n");
    assert_eq!(
        events,
        "Fact(Recorder(\"KFI\"))\nFact(Clock(\"kfi-relative\"))\n\
         call time=9000 tid=19 function=\"f\" caller=\"g\" context=task duration=8000\n"
    );
}

#[test]
fn log_without_rows_reports_the_reason() {
    let text = b"\nLogging not yet triggered\n";
    assert_eq!((KFI.sniff)(text), Guess::Certain);
    let events = read_bytes(&KFI, text);
    assert!(
        events.contains("value: \"Logging not yet triggered\""),
        "{events}"
    );
}

#[test]
fn many_bad_lines_are_counted() {
    let text = format!("{HEAD}{}", "bad\n".repeat(1000));
    let events = read_bytes(&KFI, text.as_bytes());
    assert_eq!(events.matches("problem line").count(), 100);
    assert!(events.ends_with("problem 900 × more problems of these kinds\n"));
}

#[test]
fn other_text_is_not_recognized() {
    for text in [
        "",
        "Entry Delta PID Function Caller\n1 2 3 4 5\n",
        "---- ----\n",
        "begin work\n",
        "function list\n",
    ] {
        assert_eq!((KFI.sniff)(text.as_bytes()), Guess::No, "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&KFI, &bytes);
    }

    /// Every line below the ruler is a call, a problem or blank.
    #[test]
    fn lines_add_up(lines in prop::collection::vec("( {0,3}([0-9]{1,4}|-1|f|g\\+0x1|19\\.3|no exit)){0,7}", 0..40)) {
        let events = read_bytes(&KFI, format!("{HEAD}{}", lines.join("\n")).as_bytes());
        let calls = events.matches("call ").count();
        let bad = events.matches("expected entry, delta").count();
        let blank = lines.iter().filter(|line| line.trim().is_empty()).count();
        prop_assert_eq!(calls + bad + blank, lines.len());
    }

    /// Events of a prefix are a prefix of the whole file's, except for the truncated line and the final counts.
    #[test]
    fn prefixes(cut in 0usize..400) {
        let whole = format!("{HEAD}{}", "  9  8  19  f  g+0x1\n  19  -1  -1  h  f+0x1\nbad line\n".repeat(6));
        let events = read_bytes(&KFI, &whole.as_bytes()[..cut.min(whole.len())]);
        let all = read_bytes(&KFI, whole.as_bytes());
        let kept = events.lines().count().saturating_sub(3);
        for (part, of_whole) in events.lines().zip(all.lines()).take(kept) {
            prop_assert_eq!(part, of_whole);
        }
    }
}
