//! Which threads and CPUs a recording covers, from the facts of its trace.
//!
//! ```text
//! scope          system                  every thread on every CPU
//! scope          command, process 17     threads in the scope; others are seen only where one of these leaves its CPU to them
//! scope          system, CPUs 0, 2       every thread, but not while it is elsewhere
//! command_line   perf record -C 0 …      the same of perf's files, which do not name a scope
//! ```
//! A thread out of sight may run at any time, so nothing is concluded about its states.

use std::collections::BTreeSet;

/// The threads and CPUs whose events a recording has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    /// Whether the events of some threads only were recorded.
    pub(super) is_of_threads: bool,
    /// Which threads that existed before are recorded. Threads that these create are recorded, too.
    earlier: Earlier,
    /// The recorded CPUs; all if `None`.
    pub(super) cpus: Option<BTreeSet<i32>>,
    /// Number of the system's CPUs.
    all_cpus: Option<usize>,
    is_named: bool,
    /// Time of the last event.
    pub(super) end: Option<i64>,
}

/// Threads of a recording that existed before it, as far as IDs tell. Others may be in its tables: the kernel delivers wake-ups also to the
/// events of the woken thread, in the context of the waker (`__perf_task` in include/trace/events/sched.h).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Earlier {
    /// All that are in its tables.
    #[default]
    All,
    /// These.
    Threads(BTreeSet<i32>),
    /// Those of these processes. The names of other threads are recorded with theirs.
    Processes(BTreeSet<i32>),
    /// Unknown, until a thread has an event of its own.
    Unknown,
}

impl Coverage {
    /// Takes in a fact. The scope that a recorder names is worth more than what follows from its command line.
    pub(super) fn learn(&mut self, name: &str, value: &str) {
        match name {
            "scope" => {
                *self = Coverage {
                    is_named: true,
                    end: self.end,
                    all_cpus: self.all_cpus,
                    ..Coverage::of_scope(value)
                };
            }
            "command_line" if !self.is_named => {
                *self = Coverage {
                    end: self.end,
                    all_cpus: self.all_cpus,
                    ..Coverage::of_perf(value)
                };
            }
            "end" => self.end = value.parse().ok(),
            "cpus" => self.all_cpus = value.parse().ok(),
            _ => {}
        }
    }

    fn of_scope(scope: &str) -> Coverage {
        let (threads, cpus) = match scope.split_once(", CPU") {
            Some((threads, cpus)) => (threads, Some(cpus.trim_start_matches('s'))),
            None => (scope, None),
        };
        let numbers = |list: &str| -> Option<BTreeSet<i32>> {
            list.split(", ")
                .map(|cpu| cpu.trim().parse().ok())
                .collect()
        };
        let words = threads.split_once(' ');
        let tids = words.filter(|(what, _)| matches!(*what, "thread" | "threads"));
        Coverage {
            is_of_threads: threads != "system",
            earlier: match tids {
                Some((_, list)) => Earlier::Threads(numbers(list).unwrap_or_default()),
                None => Earlier::All,
            },
            // Without all numbers, none is certain.
            cpus: cpus.map(|list| numbers(list).unwrap_or_default()),
            all_cpus: None,
            is_named: false,
            end: None,
        }
    }

    /// Whether the events of some CPUs only were recorded: threads run on others unseen.
    pub(super) fn is_of_some_cpus(&self) -> bool {
        let cpus = self.cpus.as_ref();
        cpus.is_some_and(|cpus| cpus.is_empty() || self.all_cpus.is_none_or(|all| cpus.len() < all))
    }

    /// Whether the recorder says that all threads were recorded.
    pub(super) fn is_of_system(&self) -> bool {
        self.is_named && !self.is_of_threads
    }

    /// Whether a thread that existed before the recording is in its scope, as far as its IDs tell.
    pub(super) fn may_have_thread(&self, tid: i32, pid: Option<i32>) -> bool {
        match &self.earlier {
            Earlier::All => true,
            Earlier::Threads(tids) => tids.contains(&tid),
            Earlier::Processes(pids) => pid.is_some_and(|pid| pids.contains(&pid)),
            Earlier::Unknown => false,
        }
    }

    /// Whether a process that existed before the recording may have threads that are not recorded.
    pub(super) fn is_of_single_threads(&self) -> bool {
        matches!(self.earlier, Earlier::Threads(_))
    }

    /// Whether events on that CPU were recorded.
    pub(super) fn has_cpu(&self, cpu: Option<i32>) -> bool {
        match (&self.cpus, cpu) {
            (Some(cpus), Some(cpu)) => cpus.contains(&cpu),
            (Some(_), None) => false,
            (None, _) => true,
        }
    }
}

/// Options of `perf record` that take a value in the next word (tools/perf/builtin-record.c). Optional values, such as that of
/// `-I`, follow in the same word.
const WITH_VALUE: &[&str] = &[
    "event",
    "filter",
    "pid",
    "tid",
    "realtime",
    "count",
    "output",
    "freq",
    "mmap-pages",
    "call-graph",
    "cpu",
    "delay",
    "uid",
    "cgroup",
    "branch-filter",
    "clockid",
    "max-size",
    "affinity",
    "mmap-flush",
    "control",
    "off-cpu-thresh",
    "clang-opt",
    "clang-path",
    "num-thread-synthesize",
    "switch-output-event",
    "synth",
    "switch-max-files",
    "vmlinux",
    "proc-map-timeout",
];
const SHORT_WITH_VALUE: &str = "eptrcoFmCDuGjk";

impl Coverage {
    /// What a command line of perf records: some threads, if it names processes, threads, a user, or a command without `-a`; the
    /// system, or some of its CPUs. Threads override CPUs and the system (tools/perf/util/target.c).
    fn of_perf(command_line: &str) -> Coverage {
        let mut words = command_line.split_whitespace();
        let program = words.next().and_then(|path| path.rsplit('/').next());
        let is_perf = program.is_some_and(|name| name == "perf" || name.starts_with("perf_"));
        // The other subcommands that record, such as `perf sched record`, record the system.
        if !is_perf || words.next() != Some("record") {
            return Coverage::default();
        }
        let (mut has_targets, mut is_system, mut has_command) = (false, false, false);
        let (mut pids, mut tids) = (None, None);
        let mut cpus = None;
        while let Some(word) = words.next() {
            if word == "--" {
                has_command = words.next().is_some();
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, mut value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (long, None),
                };
                if value.is_none() && WITH_VALUE.contains(&name) {
                    value = words.next();
                }
                match name {
                    "all-cpus" => is_system = true,
                    "cpu" => cpus = value.map(numbers_of),
                    "tid" => tids = value.map(numbers_of),
                    "pid" => pids = value.map(numbers_of),
                    "uid" => has_targets = true,
                    _ => {}
                }
            } else if let Some(letters) = word.strip_prefix('-') {
                for (place, letter) in letters.char_indices() {
                    let mut value = "";
                    if SHORT_WITH_VALUE.contains(letter) {
                        value = match &letters[place + letter.len_utf8()..] {
                            "" => words.next().unwrap_or_default(),
                            rest => rest,
                        };
                    }
                    match letter {
                        'a' => is_system = true,
                        'C' => cpus = Some(numbers_of(value)),
                        't' => tids = Some(numbers_of(value)),
                        'p' => pids = Some(numbers_of(value)),
                        'u' => has_targets = true,
                        _ => {}
                    }
                    if SHORT_WITH_VALUE.contains(letter) {
                        break;
                    }
                }
            } else {
                has_command = true;
                break;
            }
        }
        // Processes override threads.
        let earlier = match (pids, tids) {
            (Some(pids), _) => Some(Earlier::Processes(pids)),
            (None, Some(tids)) => Some(Earlier::Threads(tids)),
            (None, None) => has_targets.then_some(Earlier::Unknown),
        };
        match (earlier, cpus) {
            (Some(earlier), _) => Coverage {
                is_of_threads: true,
                earlier,
                ..Coverage::default()
            },
            (None, Some(cpus)) => Coverage {
                cpus: Some(cpus),
                ..Coverage::default()
            },
            (None, None) if has_command && !is_system => Coverage {
                is_of_threads: true,
                earlier: Earlier::Unknown,
                ..Coverage::default()
            },
            (None, None) => Coverage::default(),
        }
    }
}

/// The CPUs or threads of a list `0,2-3`; none if it is not one, so that none is certain.
fn numbers_of(list: &str) -> BTreeSet<i32> {
    /// More CPUs than Linux supports, and more threads than anybody selects.
    const MOST: i32 = 1 << 16;
    let mut numbers = BTreeSet::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.trim().parse::<i32>(), last.trim().parse::<i32>()) {
            (Ok(first), Ok(last)) if 0 <= first && last.saturating_sub(first) < MOST => {
                numbers.extend(first..=last)
            }
            _ => return BTreeSet::new(),
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::Coverage;

    #[test]
    fn scopes_of_the_recorder() {
        let of = |scope: &str| {
            let mut coverage = Coverage::default();
            coverage.learn("scope", scope);
            let cpus = coverage
                .cpus
                .map(|cpus| cpus.into_iter().collect::<Vec<_>>());
            (coverage.is_of_threads, cpus)
        };
        assert_eq!(of("system"), (false, None));
        assert_eq!(of("command"), (true, None));
        assert_eq!(of("processes 12, 13"), (true, None));
        assert_eq!(of("system, CPU 1"), (false, Some(vec![1])));
        assert_eq!(of("system, CPUs 0, 2"), (false, Some(vec![0, 2])));
        assert_eq!(of("cgroup /a, CPU 1"), (true, Some(vec![1])));
        assert_eq!(of("system, CPUs 0-3"), (false, Some(vec![])));
    }

    #[test]
    fn threads_by_their_ids() {
        let of = |coverage: Coverage| {
            assert!(coverage.is_of_threads);
            [9, 10, 11].map(|tid| coverage.may_have_thread(tid, Some(7)))
        };
        assert_eq!(of(Coverage::of_scope("thread 9")), [true, false, false]);
        let two = Coverage::of_scope("threads 9, 11, CPU 0");
        assert_eq!(of(two), [true, false, true]);
        assert_eq!(of(Coverage::of_scope("process 9")), [true; 3]);
        let perf = |words: &str| of(Coverage::of_perf(&format!("perf record {words}")));
        assert_eq!(perf("-e cycles -t 9 -- sleep 1"), [true, false, false]);
        assert_eq!(perf("--tid=9,11"), [true, false, true]);
        assert_eq!(perf("-t 9 -p 7"), [true; 3]);
        // A waker of a recorded thread, whose wake-up is delivered.
        assert_eq!(perf("-p 8"), [false; 3]);
        assert_eq!(perf("-u root"), [false; 3]);
        assert_eq!(perf("-- sleep 1"), [false; 3]);
    }

    #[test]
    fn the_recorders_word_counts() {
        let mut coverage = Coverage::default();
        coverage.learn("scope", "system");
        coverage.learn("command_line", "perf record ls");
        assert!(!coverage.is_of_threads);
    }

    #[test]
    fn command_lines_of_perf() {
        for some in [
            "/usr/bin/perf record -e sched:sched_switch -p 17 -o x",
            "perf record -g -F 99 ls -a",
            "perf record --call-graph dwarf -- ls",
            "perf_6.1 record -o perf.data --pid=17",
            "perf record -gp 17",
            "perf record -I ls",
            "perf record --synth no ls",
            "perf record -e cycles -t 9 -- sleep 1",
            "perf record -C 0 -p 17",
            "perf record -a -p 17",
        ] {
            let coverage = Coverage::of_perf(some);
            assert!(coverage.is_of_threads && coverage.cpus.is_none(), "{some}");
        }
        for all in [
            "/usr/bin/perf record -a -g -- sleep 1",
            "perf record -ag sleep 1",
            "perf record -F 99 -g",
            "perf record --all-cpus ls",
            "perf record -c 100 -a ls",
            "perf sched record ls",
            "trace-cmd record -e sched ls",
            "",
        ] {
            assert_eq!(Coverage::of_perf(all), Coverage::default(), "{all}");
        }
        for (some, cpus) in [
            ("perf record -C 0 ls", vec![0]),
            ("perf record -C0,2-3 -a -- ls", vec![0, 2, 3]),
            ("perf record --cpu=1 -g ls", vec![1]),
            ("perf record -ag --cpu 1-2 ls", vec![1, 2]),
            ("perf record -C x ls", vec![]),
        ] {
            let coverage = Coverage::of_perf(some);
            assert!(!coverage.is_of_threads, "{some}");
            assert_eq!(coverage.cpus, Some(cpus.into_iter().collect()), "{some}");
        }
    }
}
