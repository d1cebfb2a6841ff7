//! One moment, recorded of the system, of a command, and of its process (`tests/corpus/scopes`): views say the same of the same
//! threads, apart from what the kernel does not record in the smaller scopes.
//!
//! Each recorder reads the clock itself: times of one switch differ by microseconds, and by up to 1.2 ms where the virtual machine ran
//! its other CPU in between.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, root};

use super::views::{number, rows};

/// The smaller scopes.
const SCOPES: [&str; 2] = ["command", "process"];
/// The largest difference of two readings of the clock at one switch.
const CLOCKS: i64 = 1_300_000;

/// The recordings of one moment, and what a smaller scope covers.
struct Moment {
    system: PathBuf,
    scope: PathBuf,
    /// The first event in the scope; it may be read a little earlier in the recording of the system.
    from: i64,
    /// The recorded threads, with the records of their exits: the kernel removes a thread's events then.
    ends: HashMap<i64, i64>,
}

impl Moment {
    fn of(scope: &str, folder: &Path) -> Moment {
        let [system, scope] = ["system", scope].map(|name| import(name, folder));
        let sql = "SELECT min(time) FROM perf.context_switch";
        let from = number::<i64>(&rows(&scope, sql)[0][0]) - 200_000;
        let sql = "SELECT tid, max(coalesce(end_time, 9000000000000000000)) FROM threads
            WHERE tid IN (SELECT tid FROM perf.context_switch) GROUP BY tid";
        let ends = rows(&scope, sql);
        let ends = ends.iter().map(|row| (number(&row[0]), number(&row[1])));
        let moment = Moment {
            ends: ends.collect(),
            system,
            scope,
            from,
        };
        assert!(moment.ends.len() > 100, "{} threads", moment.ends.len());
        moment
    }

    /// Whether an event of this thread is recorded in the scope.
    fn covers(&self, tid: i64, time: i64) -> bool {
        time >= self.from && self.ends.get(&tid).is_some_and(|&end| time < end)
    }

    /// What a query for a thread, a time and more has of covered threads, by thread, in the order of time. `row` gets all but the thread.
    fn by_thread<T>(
        &self,
        trace: &Path,
        sql: &str,
        row: impl Fn(&[String]) -> T,
    ) -> BTreeMap<i64, Vec<T>> {
        let mut found: BTreeMap<i64, Vec<T>> = BTreeMap::new();
        for cells in rows(trace, &format!("{sql} ORDER BY time")) {
            let (tid, time) = (number(&cells[0]), number(&cells[1]));
            if self.covers(tid, time) {
                found.entry(tid).or_default().push(row(&cells[1..]));
            }
        }
        found
    }

    /// The same of both recordings.
    fn both<T>(&self, sql: &str, row: impl Fn(&[String]) -> T) -> [BTreeMap<i64, Vec<T>>; 2] {
        [&self.system, &self.scope].map(|trace| self.by_thread(trace, sql, &row))
    }
}

fn import(name: &str, folder: &Path) -> PathBuf {
    let data = root().join(format!("tests/corpus/scopes/6.12/{name}.data.zst"));
    let trace = folder.join(format!("{name}.pqt"));
    let mut command = Command::new(bin("perfquet-convert"));
    command
        .arg(&data)
        .args(["--no-symbols", "-f", "-o"])
        .arg(&trace);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", data.display());
    trace
}

/// For each smaller scope.
fn each_scope(check: impl Fn(&str, &Moment)) {
    for scope in SCOPES {
        let folder = tempfile::tempdir().unwrap();
        check(scope, &Moment::of(scope, folder.path()));
    }
}

#[test]
fn running_periods_are_those_of_the_system() {
    each_scope(|scope, moment| {
        let sql = "SELECT tid, time, duration FROM thread_states WHERE state = 'running'";
        let period = |row: &[String]| {
            let begin = number::<i64>(&row[0]);
            let duration = (!row[1].is_empty()).then(|| number::<i64>(&row[1]));
            (begin, duration)
        };
        let [system, recorded] = moment.both(sql, period);
        let (mut sums, mut begins) = ([0, 0], Vec::new());
        for (tid, end) in &moment.ends {
            let (Some(all), Some(found)) = (system.get(tid), recorded.get(tid)) else {
                panic!("{scope}: {tid} never ran");
            };
            assert_eq!(all.len(), found.len(), "{scope}: periods of {tid}");
            for (&(begin, lasts), &(own_begin, own_lasts)) in all.iter().zip(found) {
                // After the record of its exit, a thread runs until it leaves its CPU.
                let until = lasts.map(|lasts| (begin + lasts).min(*end));
                let own_until = own_lasts.map(|lasts| own_begin + lasts);
                let Some((until, own_until)) = until.zip(own_until) else {
                    panic!("{scope}: a period of {tid} has no end");
                };
                assert!(
                    (begin - own_begin).abs() < CLOCKS,
                    "{scope}: {tid} at {begin}"
                );
                assert!(
                    (until - own_until).abs() < CLOCKS,
                    "{scope}: {tid} until {until}"
                );
                begins.push((begin - own_begin).abs());
                sums[0] += until - begin;
                sums[1] += own_until - own_begin;
            }
        }
        begins.sort_unstable();
        let median = begins[begins.len() / 2];
        assert!(median < 20_000, "{scope}: {median} ns between two readings");
        let difference = (sums[0] - sums[1]).abs();
        assert!(difference * 100 < sums[0], "{scope}: {sums:?} ns running");
        let sql = "SELECT (SELECT sum(cpu_time) FROM processes), (SELECT sum(duration) FROM thread_states WHERE state = 'running')";
        let both = &rows(&moment.scope, sql)[0];
        assert_eq!(both[0], both[1], "{scope}: cpu_time of processes");
    });
}

#[test]
fn waits_off_the_cpu_are_those_of_the_system() {
    each_scope(|scope, moment| {
        let sql = "SELECT tid, time, state, duration FROM off_cpu";
        let wait = |row: &[String]| (row[1].clone(), row[2].parse::<i64>().ok());
        let [system, recorded] = moment.both(sql, wait);
        assert_eq!(
            system.keys().collect::<Vec<_>>(),
            recorded.keys().collect::<Vec<_>>(),
            "{scope}"
        );
        for (tid, all) in &system {
            let found = &recorded[tid];
            let states = |waits: &[(String, Option<i64>)]| {
                waits.iter().map(|wait| wait.0.clone()).collect::<Vec<_>>()
            };
            assert_eq!(states(all), states(found), "{scope}: {tid}");
            for ((_, lasts), (_, own_lasts)) in all.iter().zip(found) {
                let difference = lasts.zip(*own_lasts).map(|(a, b)| (a - b).abs());
                assert!(
                    difference.is_some_and(|ns| ns < CLOCKS),
                    "{scope}: {tid} {lasts:?} {own_lasts:?}"
                );
            }
        }
    });
}

/// Wake-ups by recorded threads are all there; of those by interrupts and by other threads, none is invented.
#[test]
fn wakers_are_those_of_the_system() {
    each_scope(|scope, moment| {
        let sql = "SELECT tid, time, waker_tid FROM wakeups WHERE waker_tid IS NOT NULL";
        let waker = |row: &[String]| (number::<i64>(&row[1]), number::<i64>(&row[0]));
        let wakers = |found: BTreeMap<i64, Vec<(i64, i64)>>| -> BTreeMap<i64, Vec<i64>> {
            let covered = found.into_iter().map(|(tid, wakers)| {
                let wakers = wakers
                    .into_iter()
                    .filter(|&(waker, time)| moment.covers(waker, time));
                (tid, wakers.map(|(waker, _)| waker).collect::<Vec<_>>())
            });
            covered.filter(|(_, wakers)| !wakers.is_empty()).collect()
        };
        let [system, recorded] = moment.both(sql, waker).map(wakers);
        assert!(
            system.len() > 100,
            "{scope}: {} woken threads",
            system.len()
        );
        assert_eq!(system, recorded, "{scope}");
    });
}

/// A wait for a CPU: why, its waker, its begin, its duration.
type Wait = (String, Option<i64>, i64, Option<i64>);

/// Each wait in the scope is one of the system's. The others follow wake-ups that are not recorded in the scope: by interrupts, by other
/// threads, and by threads after the record of their exits.
#[test]
fn waits_for_a_cpu_are_those_of_the_system() {
    each_scope(|scope, moment| {
        let sql = "SELECT tid, time, why, waker_tid, duration FROM runqueue_waits";
        let wait = |row: &[String]| -> Wait {
            let waker = row[2].parse().ok();
            (row[1].clone(), waker, number(&row[0]), row[3].parse().ok())
        };
        let [mut system, recorded] = moment.both(sql, wait);
        let mut count = 0;
        for (tid, waits) in &recorded {
            let all = system.get_mut(tid).unwrap();
            for (why, waker, begin, lasts) in waits {
                let is_it = |wait: &Wait| {
                    let ends_alike = wait.3.zip(*lasts).map(|(a, b)| (a - b).abs() < CLOCKS);
                    wait.0 == *why
                        && wait.1 == *waker
                        && (wait.2 - begin).abs() < CLOCKS
                        && ends_alike.unwrap_or(false)
                };
                let place = all.iter().position(is_it);
                let place =
                    place.unwrap_or_else(|| panic!("{scope}: {tid} waits at {begin}: {why}"));
                all.remove(place);
                count += 1;
            }
        }
        assert!(count > 600, "{scope}: {count} waits");
        for (tid, rest) in &system {
            for (why, waker, begin, _) in rest {
                let is_recorded = waker.is_some_and(|waker| moment.covers(waker, *begin));
                assert!(
                    why == "woken" && !is_recorded,
                    "{scope}: {tid} waits at {begin}: {why}"
                );
            }
        }
    });
}

#[test]
fn threads_outside_have_no_states() {
    each_scope(|scope, moment| {
        for view in ["thread_states", "runqueue_waits", "off_cpu", "wakeups"] {
            let tids = rows(&moment.scope, &format!("SELECT DISTINCT tid FROM {view}"));
            assert!(
                tids.len() > 100,
                "{scope}: {} threads in {view}",
                tids.len()
            );
            for tid in tids {
                let is_covered = moment.ends.contains_key(&number(&tid[0]));
                assert!(is_covered, "{scope}: {} in {view}", tid[0]);
            }
        }
    });
}

/// Answers that depend on wake-ups report how many the kernel did not record.
#[test]
fn missing_wakeups_are_said() {
    let said = |traces: &[&Path], words: &[&str]| {
        let mut command = Command::new(bin("perfquet-query"));
        let output = command.arg(words[0]).args(traces).args(&words[1..]);
        let output = output.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        let mut lines = errors.lines();
        lines
            .find(|line| line.contains("ended without a recorded wake-up"))
            .map(str::to_owned)
    };
    each_scope(|scope, moment| {
        let query = ["sql", "SELECT count(*) FROM runqueue_waits"];
        for words in [&["waits"][..], &["wakers"], &query] {
            let of_scope = said(&[&moment.scope], words);
            assert!(of_scope.is_some(), "{scope}: {words:?}");
            assert_eq!(said(&[&moment.system], words), None, "{scope}: {words:?}");
            let of_both = said(&[&moment.system, &moment.scope], words);
            assert_eq!(of_both, of_scope, "{scope}: {words:?}");
        }
        let other = ["sql", "SELECT count(*) FROM sched_switch"];
        assert_eq!(said(&[&moment.scope], &other), None, "{scope}");
    });
}
