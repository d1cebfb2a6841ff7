//! Golden files, cases that they lack, and random lines.

use perfquet_events::{Guess, Input};
use proptest::prelude::*;

use super::DTRACE;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("dtrace") {
        assert_golden(&path, &read_golden(&DTRACE, &path));
        let name = path.to_string_lossy();
        if !name.contains("garbage") {
            assert_recognized(&DTRACE, &path);
        }
    }
}

/// Nothing marks this text as dtrace's, so it is read only with `--from dtrace`.
#[test]
fn quiet_output() {
    let text = format!(
        "Tracing... Hit Ctrl-C to end.\n2005 Apr 28 00:08:42,  load 0.5\n  {:<50} {:>16}\n",
        "dd", 9
    );
    assert_eq!((DTRACE.sniff)(text.as_bytes()), Guess::No);
    let events = read_bytes(&DTRACE, text.as_bytes());
    assert_eq!(
        events,
        "Fact(Recorder(\"dtrace\"))\n\
         type 0 dtrace:message marker line:UInt(8) message:Text\n\
         sample 0 fields=[1, \"Tracing... Hit Ctrl-C to end.\"]\n\
         sample 0 fields=[2, \"2005 Apr 28 00:08:42,  load 0.5\"]\n\
         aggregate keys=[\"dd\"] value=9 snapshot=0\n"
    );
}

/// `@[stack(), ustack()]` for a kernel thread: the second stack is an empty line.
#[test]
fn an_empty_user_stack_takes_nothing_from_the_kernels() {
    let text = "\n\n              zfs`txg_sync_thread+0x2\n              unix`thread_start+0x8\n\n                5\n\
                \n              zfs`zio_done\n\n              app`main+0x30\n                2\n\
                \n              zfs`arc_evict\n\n           value  ------------- Distribution ------------- count    \n\
                \x20              1 |                                         0        \n\
                \x20              2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@ 2        \n";
    let events = read_bytes(&DTRACE, text.as_bytes());
    let aggregates: Vec<&str> = events
        .lines()
        .filter(|line| line.starts_with("aggregate"))
        .collect();
    assert_eq!(
        aggregates,
        [
            "aggregate keys=[] value=5 kernel_stack=[\"txg_sync_thread\"+0x2 in \"zfs\" (kernel), \
             \"thread_start\"+0x8 in \"unix\" (kernel)] snapshot=0",
            "aggregate keys=[] value=2 kernel_stack=[\"zio_done\" in \"zfs\" (kernel)] \
             user_stack=[\"main\"+0x30 in \"app\" (user)] snapshot=0",
            "aggregate keys=[] kernel_stack=[\"arc_evict\" in \"zfs\" (kernel)] snapshot=0 [1, 2)×0 [2, 4)×2",
        ],
        "{events}"
    );
    assert!(!events.contains("problem"), "{events}");
}

/// Arrows and bars of other tools: the ranges of a histogram, the frames of a stack, a page of JSON with embedded
/// output.
#[test]
fn other_tools() {
    let histogram = "\
  >=(ms) .. <(ms)   : I/O      |Distribution                          |
       0 -> 1       : 2104     |######################################|
       1 -> 2       : 280      |######                                |
       2 -> 4       : 2        |#                                     |
";
    let stack = "TIME PID\n => tcp_ack\n => tcp_rcv_established\n => tcp_v4_do_rcv\n";
    let notebook = "{\n \"cells\": [\n  {\"text\": [\n  \"dtrace: x\",\n \"a`b\",\n 12 ]}]}\n";
    for text in [histogram, stack, notebook] {
        assert_eq!((DTRACE.sniff)(text.as_bytes()), Guess::No, "{text}");
    }
}

/// `name.out` with `name.d` in the same directory.
#[test]
fn golden_with_scripts() {
    for path in golden_files("dtrace/script") {
        if path.extension().is_some_and(|ending| ending == "d") {
            continue;
        }
        let script = std::fs::read_to_string(path.with_extension("d")).unwrap();
        let mut input = Input::open(&path).unwrap().with_script(Some(script));
        assert_golden(&path, &as_text(&DTRACE, &mut input));
    }
}

/// Lines of all kinds.
const LINES: [&str; 14] = [
    "",
    "dtrace: 7 drops on CPU 1",
    "CPU     ID                    FUNCTION:NAME",
    "  0   8408                     malloc:entry                64 ",
    "              genunix`open+0x25",
    "              libc.so.1`main->f",
    "                1",
    "  snmpd                                                             1",
    "           value  ------------- Distribution ------------- count    ",
    "              16 |@@@@                                     4        ",
    "  0  -> vfs_read",
    "a title  b",
    "-------  --",
    "x          12",
];

fn text_of(lines: &[usize]) -> String {
    let lines = lines.iter().filter_map(|line| LINES.get(*line));
    lines.map(|line| format!("{line}\n")).collect()
}

proptest! {
    /// Blocks in any order are read without a panic, and no traced data is lost.
    #[test]
    fn any_lines(lines in prop::collection::vec(0..11usize, 0..60)) {
        let events = read_bytes(&DTRACE, text_of(&lines).as_bytes());
        let count = |line: usize| lines.iter().filter(|other| **other == line).count();
        prop_assert_eq!(events.matches("Loss(").count(), count(1));
        prop_assert_eq!(events.matches("enter ").count(), count(10));
        prop_assert_eq!(events.matches("\"malloc\"").count(), count(3));
        prop_assert_eq!(events.matches("keys=[\"snmpd\"").count(), count(7));
    }

    /// Events of a prefix are a prefix of the whole text's events, except for its last block.
    #[test]
    fn prefixes(cut in 0usize..900) {
        let whole = text_of(&[2, 3, 0, 4, 4, 6, 0, 7, 7, 0, 10, 1]).repeat(4);
        let events = read_bytes(&DTRACE, &whole.as_bytes()[..cut.min(whole.len())]);
        let all = read_bytes(&DTRACE, whole.as_bytes());
        let kept = events.lines().count().saturating_sub(5);
        for (part, of_whole) in events.lines().zip(all.lines()).take(kept) {
            prop_assert_eq!(part, of_whole);
        }
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&DTRACE, &bytes);
    }
}
