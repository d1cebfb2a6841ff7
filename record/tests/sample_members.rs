//! What samples have besides stacks: values of a group, addresses of data, registers, branches; and how often they are taken.
//!
//! The program makes a known number of page faults, so that software events show all that works without hardware counters.

mod room;

use room::{Room, may_record, needs};

/// Page faults of the program; the C library makes some more.
const FAULTS: i64 = 12_800;
const FEW: i64 = 400;

/// A room with the program, if it can be recorded.
fn faulting() -> Option<Room> {
    if !may_record() {
        return None;
    }
    let room = Room::new();
    room.compile("faulting.c", &["-O1"])?;
    Some(room)
}

/// Number of rows of an event, and the sum of their periods.
fn counts(room: &Room, event: &str) -> (usize, i64) {
    let rows = room.rows("samples", &["event", "period"]);
    let periods = rows.iter().filter_map(|row| {
        let (name, period) = row.split_once(' ')?;
        (name == event).then(|| period.parse::<i64>().expect("a period"))
    });
    (periods.clone().count(), periods.sum())
}

#[test]
fn samples_of_a_group_have_the_values_of_all() {
    let Some(room) = faulting() else { return };
    for stacks in [&[][..], &["-g"], &["--call-graph", "dwarf"]] {
        let options = ["-e", "{cpu-clock,page-faults}:S", "-F", "1999"];
        let command = ["--", "./faulting"];
        room.record(&[&options[..], stacks, &command].concat());
        let (samples, ns) = counts(&room, "cpu-clock");
        let (rows, faults) = counts(&room, "page-faults");
        assert!(samples > 20 && ns > 0, "{samples} samples, {ns} ns");
        assert!(rows > 1 && rows <= samples, "{rows} of {samples}");
        // Those after the last sample are in none.
        assert!(
            faults > FAULTS / 2 && faults < FAULTS + FEW,
            "{stacks:?}: {faults} page faults"
        );
        if !stacks.is_empty() {
            let frames = room.rows("samples", &["user_stack"]);
            let without = frames.iter().filter(|stack| *stack == "-").count();
            assert!(without * 20 < frames.len(), "{without} without stack");
        }
    }
}

#[test]
fn groups_are_counted_in_children() {
    let Some(room) = faulting() else { return };
    let options = ["-e", "{cpu-clock,page-faults}:S", "-F", "1999", "--"];
    let script = "./faulting & ./faulting; wait";
    let stderr = room.record(&[&options[..], &["sh", "-c", script]].concat());
    // Before Linux 6.12, the recorder says that it cannot.
    if !stderr.contains("before Linux 6.12") {
        let (_, faults) = counts(&room, "page-faults");
        let most = 2 * (FAULTS + FEW) + 4 * FEW;
        assert!(faults > FAULTS && faults < most, "{faults} page faults");
    }
}

#[test]
fn fixed_periods_are_kept() {
    let Some(room) = faulting() else { return };
    room.record(&["-e", "page-faults", "-c", "100", "--", "./faulting"]);
    let (rows, faults) = counts(&room, "page-faults");
    assert!((100..140).contains(&rows), "{rows} samples");
    assert_eq!(faults, rows as i64 * 100);
}

/// Without a rate, an aggregation counts occurrences of what the kernel counts, not samples.
#[test]
fn aggregations_count_every_occurrence() {
    let Some(room) = faulting() else { return };
    if !needs::met(&["bpf"]) {
        return;
    }
    let count = |options: &[&str]| {
        let event = ["-e", "page-faults"];
        let command = ["--agg", "count() by comm", "--", "./faulting"];
        room.record(&[&event, options, &command].concat());
        let rows = room.rows("aggregates", &["value"]);
        let values = rows.iter().filter_map(|row| row.parse::<f64>().ok());
        values.sum::<f64>() as i64
    };
    let all = count(&[]);
    assert!((FAULTS..FAULTS + FEW).contains(&all), "{all}");
    let hundredths = count(&["-c", "100"]);
    assert!((100..140).contains(&hundredths), "{hundredths}");
}

#[test]
fn page_faults_have_addresses() {
    let Some(room) = faulting() else { return };
    room.record(&["-d", "-e", "page-faults,cpu-clock", "-c", "1", "--", "true"]);
    let rows = room.rows("samples", &["event", "addr"]);
    let (mut with, mut clocks) = (0, 0);
    for row in &rows {
        match row.split_once(' ') {
            Some(("page-faults", "-")) => panic!("no address"),
            Some(("page-faults", address)) => {
                assert_ne!(address, "0");
                with += 1;
            }
            // A clock has none; it does not have 0.
            Some((_, address)) => {
                assert_eq!(address, "-");
                clocks += 1;
            }
            None => panic!("{row}"),
        }
    }
    assert!(with > 10, "{with} page faults, {clocks} ticks");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn registers_are_kept_beside_stacks() {
    let Some(room) = faulting() else { return };
    // Bits 7 and 8: sp and ip.
    for stacks in [&[][..], &["-g"]] {
        let options = ["-e", "cpu-clock:u", "--user-regs=ip,sp"];
        room.record(&[&options[..], stacks, &["--", "./faulting"]].concat());
        let rows = room.rows("samples", &["ip", "user_regs_mask", "user_regs"]);
        assert!(rows.len() > 20, "{} samples", rows.len());
        for row in rows {
            let (ip, rest) = row.split_once(' ').expect("three columns");
            let (mask, registers) = rest.split_once(' ').expect("three columns");
            assert_eq!(mask, "384");
            // A sample in user space is where the register says.
            assert!(registers.ends_with(&format!(" {ip}]")), "{row}");
        }
    }
}

#[test]
fn what_events_cannot_have_is_refused() {
    let room = Room::new();
    for (options, status, reason) in [
        (&["-d", "-e", "cpu-clock"][..], 2, "addresses of data"),
        (&["-e", "{cpu-clock,page-faults}"], 2, "needs :S"),
        (&["-e", "{cpu-clock,page-faults"], 2, "expected '}'"),
        (&["--user-regs=none"], 2, "no register"),
        (&["-j", "none"], 2, "unknown kind of branch"),
        (
            &["-e", "{cpu-clock,task-clock}:S", "--ring", "1s"],
            2,
            "cannot be combined with --ring",
        ),
    ] {
        let (found, stderr) = room.run(&[options, &["--", "true"]].concat());
        assert_eq!(found, Some(status), "{options:?}: {stderr}");
        assert!(stderr.contains(reason), "{options:?}: {stderr}");
    }
    if needs::met(&["perf events"]) {
        let (status, stderr) = room.run(&["-b", "-e", "cpu-clock", "--", "true"]);
        assert_eq!(status, Some(1), "{stderr}");
        let reason = "cannot record branches: cpu-clock is no counter of the CPU";
        assert!(stderr.contains(reason), "{stderr}");
        assert!(!room.path("t.pqt").exists());
    }
}

/// The kernel marks the hits of both events with the ID of one of them.
#[test]
fn two_events_of_page_faults_have_their_own_hits() {
    let Some(room) = faulting() else { return };
    let events = ["-e", "page-faults", "-e", "page-faults:u", "-c", "1"];
    room.record(&[&events[..], &["--", "./faulting"]].concat());
    let (all, _) = counts(&room, "page-faults");
    let (of_user, _) = counts(&room, "page-faults:u");
    let (all, of_user) = (all as i64, of_user as i64);
    assert!(
        (FAULTS..FAULTS + FEW).contains(&of_user),
        "{all}, {of_user}"
    );
    assert!((of_user..of_user + FEW).contains(&all), "{all}, {of_user}");
}
