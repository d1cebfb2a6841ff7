//! `--delay` and `--control`: which events are in the trace of a recording that starts late, pauses and resumes.

mod room;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use perfquet_trace::recorded::Recorded;
use perfquet_trace::store::Directory;
use room::{Room, may_record};

/// One test at a time: recordings of the system see numbers.c of the others, too.
static ALONE: Mutex<()> = Mutex::new(());

const WRITES: &str = "syscalls:sys_enter_write";
/// `echo COMMAND > commands`, and the answer.
const SAY: &str = "rm -f commands answers; mkfifo commands answers; exec 3<>answers; \
    say() { echo $1 > commands; read answer <&3; echo \"$1: $answer\"; }; ";

/// A room with numbers.c, for one test at a time; `None` where nothing can be recorded or compiled.
fn room_of_numbers() -> Option<(MutexGuard<'static, ()>, Room)> {
    if !may_record() {
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let room = Room::new();
    room.compile("numbers.c", &["-O1"])?;
    Some((alone, room))
}

/// Runs a shell script in the room, with the recorder as `$RECORD`; returns its output.
#[track_caller]
fn script(room: &Room, text: &str) -> (String, String) {
    // A recorder that fails opens no FIFO, and the shell would wait.
    let output = Command::new("timeout")
        .args(["110", "sh", "-c", &format!("{SAY}{text}")])
        .env("RECORD", room.recorder().get_program())
        .current_dir(room.path(""))
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// The recorded writes of numbers.c, as time and count, in order.
fn writes(trace: &Path) -> Vec<(i64, i64)> {
    let mut rows: Vec<(i64, i64)> = room::rows_of_trace(
        trace,
        "events/syscalls/sys_enter_write",
        &["time", "count", "comm"],
    )
    .iter()
    .filter(|row| row.ends_with(" numbers"))
    .map(|row| {
        let mut words = row.split(' ').map(|word| word.parse().unwrap_or(0));
        (words.next().unwrap_or(0), words.next().unwrap_or(0))
    })
    .collect();
    rows.sort_unstable();
    rows
}

/// The times in table losses with a reason.
fn marks(trace: &Path, reason: &str) -> Vec<i64> {
    room::rows_of_trace(trace, "losses", &["time", "reason"])
        .iter()
        .filter_map(|row| row.split_once(' '))
        .filter(|(_, found)| *found == reason)
        .map(|(time, _)| time.parse().expect("a time"))
        .collect()
}

#[test]
fn recording_pauses_exactly() {
    let Some((_alone, room)) = room_of_numbers() else {
        return;
    };
    let commands = "sleep 0.4; say enable; sleep 0.4; say disable; say disable; sleep 0.4; say enable; sleep 0.4; \
        say ping; say hurry; say snapshot; say stop; wait $recorder; kill $numbers 2> kill.txt || true";
    for target in ["-- ./numbers 9", "-a", "-p $numbers"] {
        let is_command = target.starts_with("--");
        let start = if is_command {
            ""
        } else {
            "./numbers 9 & numbers=$!; "
        };
        let (said, stderr) = script(
            &room,
            &format!(
                "{start}$RECORD --force -e {WRITES} --delay -1 --control fifo:commands,answers -o t.pqt {target} & \
                 recorder=$!; {commands}"
            ),
        );
        let expected = "enable: ack\ndisable: ack\ndisable: ack\nenable: ack\nping: ack\n\
            hurry: error: unknown command \"hurry\", expected enable, disable, snapshot, ping or stop\n\
            snapshot: error: snapshot: requires --ring\nstop: ack\n";
        assert_eq!(said, expected, "{target}: {stderr}");
        assert!(stderr.contains(" 0 lost"), "{target}: {stderr}");
        let trace = room.path("t.pqt");
        let (paused, resumed) = (marks(&trace, "paused"), marks(&trace, "resumed"));
        assert_eq!((paused.len(), resumed.len()), (1, 1), "{target}");
        let (paused, resumed) = (paused[0], resumed[0]);
        assert!(resumed - paused > 300_000_000, "{target}");
        let writes = writes(&trace);
        let is_outside = |time: i64| time <= paused || time >= resumed;
        assert!(writes.iter().all(|(time, _)| is_outside(*time)), "{target}");
        // Two runs without a gap, one on each side of the pause.
        let gaps: Vec<_> = writes
            .windows(2)
            .filter(|two| two[1].1 != two[0].1 + 1)
            .collect();
        assert_eq!(gaps.len(), 1, "{target}: {gaps:?}");
        assert!(
            gaps[0][0].0 <= paused && gaps[0][1].0 >= resumed,
            "{target}: {gaps:?}"
        );
        assert!(gaps[0][1].1 - gaps[0][0].1 > 50, "{target}: {gaps:?}");
        // The command ran before.
        assert!(writes[0].1 > 50, "{target}: {:?}", writes[0]);
        // Neither the delay nor the pause was recorded.
        let manifest = Directory::open(&trace).expect("a trace");
        let facts = &manifest.manifest().facts.other;
        let fact = |name: &str| facts.get(name).map(String::as_str);
        let recorded = Recorded::of(fact, None).expect("ranges");
        assert_eq!(recorded.pauses(), 1, "{target}: {recorded:?}");
        assert!(
            (recorded.begin()..paused).contains(&writes[0].0),
            "{target}"
        );
        let in_pause = recorded.length_within(paused, resumed);
        assert_eq!(in_pause, 0, "{target}: {recorded:?}");
    }
}

#[test]
fn recording_begins_after_the_delay() {
    let Some((_alone, room)) = room_of_numbers() else {
        return;
    };
    let command = ["--", "./numbers", "2"];
    let trace = room.path("t.pqt");
    for whole in [&[][..], &["-a"]] {
        room.record(&[whole, &["--delay", "600ms", "-e", WRITES], &command].concat());
        let writes = writes(&trace);
        let (first, last) = (writes[0].1, writes[writes.len() - 1].1);
        assert!(first > 100 && last == 4000, "{whole:?}: {first} to {last}");
        let numbers = writes.iter().map(|(_, number)| *number);
        assert!(numbers.eq(first..=last), "{whole:?}");
        assert!(marks(&trace, "resumed").is_empty());
    }
    // The recording lasts as long as requested from then on.
    let mut numbers = Command::new(room.path("numbers"))
        .arg("4")
        .spawn()
        .expect("it starts");
    let pid = numbers.id().to_string();
    let time = ["--delay", "500ms", "--duration", "700ms"];
    room.record(&[&time[..], &["-e", WRITES, "-p", &pid]].concat());
    let _ = numbers.kill();
    let _ = numbers.wait();
    let writes = writes(&trace);
    let nanoseconds = writes[writes.len() - 1].0 - writes[0].0;
    assert!(
        (400_000_000..900_000_000).contains(&nanoseconds),
        "{nanoseconds}"
    );
}

/// Threads that are started while the events are switched have gaps only where the recording has them.
#[test]
fn aggregates_and_calls_pause() {
    if !room::needs::met(&["bpf"]) {
        return;
    }
    let Some((_alone, room)) = room_of_numbers() else {
        return;
    };
    script(
        &room,
        &format!(
            "./numbers 9 & numbers=$!; \
             $RECORD -e {WRITES} --agg 'min(count), max(count), count()' --delay -1 --control fifo:commands,answers \
               -p $numbers -o t.pqt & recorder=$!; \
             sleep 0.4; say enable; sleep 0.3; say disable; sleep 0.3; say stop; wait $recorder; kill $numbers"
        ),
    );
    let values: Vec<i64> = room
        .rows("aggregates", &["value"])
        .iter()
        .map(|value| value.parse::<f64>().expect("a number") as i64)
        .collect();
    let &[min, max, count] = &values[..] else {
        panic!("{values:?}");
    };
    assert!(min > 50 && count > 100, "{values:?}");
    // The three are switched one after the other: a hit in between is in some of them.
    let difference = (max - min + 1 - count).abs();
    assert!(difference <= 2, "{values:?}");
}

#[test]
fn snapshots_of_a_ring_on_command() {
    let Some((_alone, room)) = room_of_numbers() else {
        return;
    };
    let (said, stderr) = script(
        &room,
        &format!(
            "exec 4<>commands; $RECORD -e {WRITES} --ring 20s --control fd:4,3 -o t.pqt -- ./numbers 9 & recorder=$!; \
             sleep 0.5; say disable; sleep 0.3; say enable; sleep 0.3; say snapshot; sleep 1; say stop; wait $recorder"
        ),
    );
    assert_eq!(
        said, "disable: ack\nenable: ack\nsnapshot: ack\nstop: ack\n",
        "{stderr}"
    );
    assert!(stderr.contains("snapshot t.1.pqt: requested"), "{stderr}");
    for trace in ["t.1.pqt", "t.pqt"].map(|name| room.path(name)) {
        let (paused, resumed) = (marks(&trace, "paused"), marks(&trace, "resumed"));
        assert_eq!((paused.len(), resumed.len()), (1, 1), "{stderr}");
        let writes = writes(&trace);
        let inside = |time: i64| time > paused[0] && time < resumed[0];
        assert!(writes.len() > 100 && !writes.iter().any(|(time, _)| inside(*time)));
    }
}

#[test]
fn wrong_channels() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let room = Room::new();
    let check = |arguments: &[&str], expected_status: i32, expected: &str| {
        let (status, stderr) = room.run(arguments);
        assert_eq!(status, Some(expected_status), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    let true_command = ["-e", "cpu-clock", "--", "true"];
    let with = |options: &[&'static str]| [options, &true_command[..]].concat();
    check(
        &with(&["--delay", "-1"]),
        2,
        "hint: add --control fifo:PATH",
    );
    check(
        &with(&["--control", "fifo:none"]),
        1,
        "hint: create it: mkfifo none",
    );
    fs::write(room.path("file"), "").expect("a file");
    check(&with(&["--control", "fifo:file"]), 2, "file is not a FIFO");
    check(
        &with(&["--control", "fd:99"]),
        2,
        "descriptor 99: Bad file descriptor",
    );
    check(
        &with(&["--control", "pipe:1"]),
        2,
        "expected fifo:PATH[,PATH] or fd:N[,N]",
    );
    check(
        &with(&["--delay", "1s", "--start-on", "time:1s"]),
        2,
        "--delay or --control cannot be combined",
    );
}
