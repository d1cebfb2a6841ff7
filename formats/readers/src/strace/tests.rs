//! Golden files, cases that they lack, and random lines.

use perfquet_events::Guess;
use proptest::prelude::*;

use super::STRACE;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("strace") {
        assert_golden(&path, &read_golden(&STRACE, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&STRACE, &path);
        }
    }
}

/// The events without facts and the type of signals.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let events = read_bytes(&STRACE, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("Fact") && !line.starts_with("type 0 strace:signal"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn other_texts_are_not_recognized() {
    for text in [
        "int main(void) { return read(0, buffer, 1); }\n",
        "f(x) = 2x + 1\nlet y = f(3) = 7\nand more text\nof a paper\nwithout calls\n",
        "",
    ] {
        assert_eq!((STRACE.sniff)(text.as_bytes()), Guess::No, "{text}");
    }
}

#[test]
fn strings_and_comments_hold_separators() {
    check(
        "1 write(1, \"a) = 5 <0.1>, \\\"\", 3 /* b, c */) = 3 <0.000001>\n",
        &[
            "call tid=1 function=\"sys_write\" args=[\"1\", \"\\\"a) = 5 <0.1>, \\\\\\\"\\\"\", \"3 /* b, c */\"] \
             duration=1000 retval=3 leaf=true",
        ],
    );
}

#[test]
fn results() {
    check(
        "1 mmap(NULL) = 0x7fffffffffff\n1 openat(AT_FDCWD</a, b>, \"c\") = 3</a, b/c> <0.000002>\n\
         1 pause() = ? ERESTARTNOHAND (To be restarted if no handler)\n1 ioctl(0) = -1 EWHAT (?)\n",
        &[
            "call tid=1 function=\"sys_mmap\" args=[\"NULL\"] retval=140737488355327 leaf=true",
            "call tid=1 function=\"sys_openat\" args=[\"AT_FDCWD</a, b>\", \"\\\"c\\\"\"] duration=2000 retval=3 leaf=true",
            "call tid=1 function=\"sys_pause\" args=[\"error=ERESTARTNOHAND\"] retval=-514 leaf=true",
            "call tid=1 function=\"sys_ioctl\" args=[\"0\", \"error=EWHAT\"] retval=-1 leaf=true",
        ],
    );
}

#[test]
fn midnight_does_not_turn_time_back() {
    check(
        "23:59:59.999999 close(3) = 0\n00:00:00.000001 close(4) = 0\n",
        &[
            "call time=86399999999000 function=\"sys_close\" args=[\"3\"] retval=0 leaf=true",
            "call time=86400000001000 function=\"sys_close\" args=[\"4\"] retval=0 leaf=true",
        ],
    );
}

proptest! {
    /// No input panics, and every line is counted once.
    #[test]
    fn random_lines(text in "([\\[pid 0-9.:\\]<>a-z(){}\",=+\\-\\\\ ]|unfinished \\.\\.\\.>|<\\.\\.\\. r resumed>|\n){0,80}") {
        read_bytes(&STRACE, text.as_bytes());
    }
}

/// The calls of the output of `perf trace -S` add up to its table.
#[test]
fn perf_trace_adds_up_to_its_table() {
    let files = golden_files("strace");
    let path = files
        .iter()
        .find(|path| path.ends_with("summary.perf-trace"))
        .unwrap();
    let text = read_golden(&STRACE, path);
    for (name, calls, errors, milliseconds) in [
        ("clock_nanosleep", 4, 0, 7.593),
        ("openat", 3, 1, 0.068),
        ("write", 2, 0, 0.030),
        ("read", 4, 0, 8.421),
    ] {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("call") && line.contains(&format!("\"sys_{name}\"")));
        let lines: Vec<&str> = lines.collect();
        assert_eq!(lines.len(), calls, "{text}");
        let failed = lines.iter().filter(|line| line.contains("error="));
        assert_eq!(failed.count(), errors);
        let durations = lines.iter().map(|line| {
            let (_, rest) = line.split_once("duration=").unwrap();
            rest.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e6
        });
        let sum: f64 = durations.sum();
        assert!((sum - milliseconds).abs() < 0.003, "{name}: {sum}");
    }
}

#[test]
fn threads_name_themselves() {
    check(
        "7 1795954282.487518 prctl(PR_SET_NAME, \"worker/a\") = 0 <0.000095>\n7 1795954283.000000 prctl(PR_SET_NAME, 0x1) = -1 EFAULT (Bad address) <0.000001>\n",
        &[
            "call time=1795954282487518000 tid=7 function=\"sys_prctl\" args=[\"PR_SET_NAME\", \"\\\"worker/a\\\"\"] duration=95000 retval=0 leaf=true",
            "Comm(Comm { time: Some(1795954282487518000), pid: None, tid: 7, comm: \"worker/a\", exec: false })",
            "call time=1795954283000000000 tid=7 function=\"sys_prctl\" args=[\"PR_SET_NAME\", \"0x1\", \"error=EFAULT\"] duration=1000 retval=-14 leaf=true",
        ],
    );
}
