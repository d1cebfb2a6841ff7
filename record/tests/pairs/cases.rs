//! Choices of each kind, and the cases in which every two choices of different kinds occur together.

use std::collections::HashSet;

/// A choice, with its options on the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) name: &'static str,
    pub(crate) options: &'static [&'static str],
}

const fn choice(name: &'static str, options: &'static [&'static str]) -> Choice {
    Choice { name, options }
}

/// What is recorded; the names are those of events that must have rows.
pub(crate) const EVENTS: &[(&[&str], &[&str])] = &[
    (&["cpu-clock"], &["-e", "cpu-clock"]),
    (&[], &[]),
    (&["task-clock"], &["-e", "task-clock"]),
    (&["page-faults"], &["-e", "page-faults"]),
    (&["context-switches"], &["-e", "context-switches"]),
    (&["sched_switch"], &["-e", "sched:sched_switch"]),
    (&["sched_stat_runtime"], &["-e", "sched:sched_stat_runtime"]),
    (&["sched_switch", "sched_stat_runtime"], &["-e", "sched:*"]),
    (&["sys_enter", "sys_exit"], &["-e", "raw_syscalls:*"]),
    (&["sys_enter_write"], &["-e", "syscalls:sys_*_write"]),
    (&["page_fault_user"], &["-e", "exceptions:*"]),
    (&[], &["-e", "irq:*,timer:*"]),
    (&["kmalloc"], &["-e", "kmem:kmalloc,kmem:kfree"]),
    (
        &["cpu-clock"],
        &["-e", "cpu-clock,exceptions:page_fault_kernel"],
    ),
    (
        &["cpu-clock", "sched_switch"],
        &["-e", "cpu-clock,sched:sched_switch"],
    ),
    (&["cpu-clock"], &["-e", "{cpu-clock,page-faults}:S"]),
    (&["step"], &["--uprobe", "./paired:step n=%di:s32"]),
    (&["step__return"], &["--uretprobe", "./paired:step $retval"]),
    (&[], &["--call", "./paired:step"]),
    (
        &[],
        &[
            "--call",
            "./paired:step",
            "--min-duration",
            "1us",
            "--max-duration",
            "1h",
        ],
    ),
];

pub(crate) const STACKS: &[Choice] = &[
    choice("none", &[]),
    choice("-g", &["-g"]),
    choice("fp", &["--call-graph", "fp"]),
    choice("dwarf", &["--call-graph", "dwarf"]),
    choice("dwarf,4096", &["--call-graph", "dwarf,4096"]),
    choice("user", &["--user-stacks"]),
    choice("kernel", &["--kernel-stacks"]),
    choice("max", &["-g", "--max-stack", "5"]),
];

pub(crate) const TARGETS: &[Choice] = &[
    choice("command", &[]),
    choice("-a", &["-a"]),
    choice("-p", &["-p"]),
    choice("-t", &["-t"]),
    choice("-C", &["-C", "0"]),
    choice("-u", &["-u", "0"]),
];

pub(crate) const OUTPUTS: &[Choice] = &[
    choice("pqt", &["--keep-raw", "-o", "t.pqt"]),
    choice("perf.data", &["--format", "perf.data", "-o", "t.data"]),
    choice("ring", &["--keep-raw", "--ring", "16M", "-o", "t.pqt"]),
    choice(
        "publish",
        &[
            "--keep-raw",
            "--rotate",
            "300ms",
            "--keep",
            "4G",
            "--publish",
            "lake",
            "--backlog",
            "2G",
            "-o",
            "ring",
        ],
    ),
];

pub(crate) const OTHERS: &[Choice] = &[
    choice("none", &[]),
    choice("-F", &["-F", "4000"]),
    choice("-c", &["-c", "100000"]),
    choice("--filter", &["--filter", "common_pid != 0"]),
    choice("--delay", &["--delay", "50ms"]),
    choice("--max-cpu", &["--max-cpu", "50%"]),
    choice("--no-inherit", &["--no-inherit"]),
    choice("-m", &["-m", "64K"]),
    choice("-d", &["-d"]),
    choice("--user-regs", &["--user-regs"]),
    choice("--exclude-self", &["--exclude-self"]),
    choice("--max-events", &["--max-events", "200"]),
    choice("--stat", &["--stat", "task-clock"]),
    choice(
        "--agg",
        &[
            "--latency",
            "sched:sched_wakeup[pid] -> sched:sched_switch[next_pid]",
        ],
    ),
    choice("--stop-on", &["--stop-on", "time:100ms"]),
    choice("--start-on", &["--start-on", "time:50ms"]),
    choice(
        "--stat",
        &["--stat", "task-clock", "--per", "cpu", "--every", "20ms"],
    ),
    choice("--agg", &["--off-cpu"]),
    choice("--agg", &["--profile"]),
    choice("--mode", &["--mode", "640"]),
    choice("--keep-code", &["--keep-code"]),
    choice("frames", &["--no-interpreter-frames", "--no-runtime-maps"]),
];

/// Options of `--help` that are in no case, and why.
pub(crate) const OTHERWISE: &[(&[&str], &str)] = &[
    (
        &["--kprobe", "--kretprobe", "--vmlinux"],
        "need probes of the kernel, which the hosts of tests often lack: tests/vm",
    ),
    (
        &[
            "--function",
            "--function-graph",
            "--function-args",
            "--max-depth",
            "--kfi-config",
            "--context",
        ],
        "need tracers of the kernel: tests/vm",
    ),
    (
        &["--boot", "--collect-boot"],
        "need a boot of the kernel: tests/vm",
    ),
    (
        &["--branch-any", "--branch-filter"],
        "need branch records of the CPU, which virtual machines lack",
    ),
    (
        &["--preset"],
        "stands for other options: record/src/preset.rs",
    ),
    (&["--usdt"], "records as --uprobe: record/tests/probes.rs"),
    (
        &["--cgroup", "--container"],
        "opened as -C: record/tests/targets.rs",
    ),
    (&["--ssh"], "another whole recorder: record/tests/remote.rs"),
    (&["--control"], "takes messages: record/tests/control.rs"),
    (
        &["--snapshot-on"],
        "writes when something happens: record/tests/flight.rs",
    ),
    (&["--live"], "a display: record/tests/live.rs"),
    (
        &["--agg"],
        "as --latency, with more forms: record/tests/aggregations.rs",
    ),
    (
        &[
            "--list",
            "--functions",
            "--lines",
            "--vars",
            "--cleanup",
            "--dry-run",
            "--install-service",
        ],
        "record nothing",
    ),
    (
        &["--verbose", "--quiet", "--help", "--version"],
        "messages only",
    ),
];

/// A case: the number of each choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case(pub(crate) [usize; 5]);

const SIZES: [usize; 5] = [
    EVENTS.len(),
    STACKS.len(),
    TARGETS.len(),
    OUTPUTS.len(),
    OTHERS.len(),
];

impl Case {
    pub(crate) fn events(self) -> (&'static [&'static str], &'static [&'static str]) {
        EVENTS[self.0[0]]
    }

    pub(crate) fn stack(self) -> Choice {
        STACKS[self.0[1]]
    }

    pub(crate) fn target(self) -> Choice {
        TARGETS[self.0[2]]
    }

    pub(crate) fn output(self) -> Choice {
        OUTPUTS[self.0[3]]
    }

    pub(crate) fn other(self) -> Choice {
        OTHERS[self.0[4]]
    }

    fn pairs(self) -> impl Iterator<Item = [(usize, usize); 2]> {
        let all = self.0;
        (0..5).flat_map(move |first| {
            (first + 1..5).map(move |second| [(first, all[first]), (second, all[second])])
        })
    }
}

impl Case {
    /// Whether the options may be combined; the recorder refuses others, with the reason.
    pub(crate) fn is_allowed(self) -> bool {
        let (_, events) = self.events();
        let event = *events.last().unwrap_or(&"cycles");
        let is_call = events.contains(&"--call");
        let is_probe = events
            .first()
            .is_some_and(|option| option.starts_with("--"));
        let is_tracepoint = !is_probe && event.contains(':') && !event.contains('{');
        let has_clock = !is_probe && !is_tracepoint || event.contains("cpu-clock");
        let target = self.target().name;
        let output = self.output().name;
        let is_traced = ["pqt", "publish"].contains(&output);
        // A ring of traces records what is there, and begins and ends itself.
        if output == "publish"
            && (target == "command" || event.contains('{') || self.other().name == "--delay")
        {
            return false;
        }
        if event.contains('{')
            && (output == "ring" || ["--stop-on", "--start-on"].contains(&self.other().name))
        {
            return false;
        }
        match self.other().name {
            "-c" | "--user-regs" => has_clock,
            "-d" => event == "page-faults",
            "--filter" => !is_call && (is_probe || is_tracepoint && !has_clock),
            "--max-cpu" => is_traced && ["-a", "-C"].contains(&target) && has_clock,
            "--no-inherit" => !["-a", "-C"].contains(&target),
            "--max-events" | "--stop-on" | "--start-on" => !["ring", "publish"].contains(&output),
            "--stat" | "--agg" | "--keep-code" => is_traced,
            _ => true,
        }
    }
}

fn all_pairs() -> HashSet<[(usize, usize); 2]> {
    let kinds = || SIZES.iter().enumerate();
    let mut pairs = HashSet::new();
    for (first, &ones) in kinds() {
        for (second, &others) in kinds().skip(first + 1) {
            for one in 0..ones {
                pairs.extend((0..others).map(|other| [(first, one), (second, other)]));
            }
        }
    }
    pairs
}

/// Returns cases in which every two choices of different kinds occur together that may: one after the other, each with as many new
/// pairs as one of a fixed sequence of trials has.
pub(crate) fn pairwise() -> Vec<Case> {
    let mut left = all_pairs();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut cases = Vec::new();
    while let Some(wanted) = left.iter().min().copied() {
        let trials = (0..200).map(|_| {
            let mut all = SIZES.map(&mut next);
            for (kind, number) in wanted {
                all[kind] = number;
            }
            Case(all)
        });
        let trials: Vec<Case> = trials.filter(|case| case.is_allowed()).collect();
        let news = |case: &Case| case.pairs().filter(|pair| left.contains(pair)).count();
        let Some(best) = trials.into_iter().max_by_key(news) else {
            left.remove(&wanted);
            continue;
        };
        for pair in best.pairs() {
            left.remove(&pair);
        }
        cases.push(best);
    }
    cases
}

#[test]
fn every_pair_occurs() {
    let cases = pairwise();
    assert!((200..600).contains(&cases.len()), "{}", cases.len());
    let found: HashSet<_> = cases.iter().flat_map(|case| case.pairs()).collect();
    let all: usize = SIZES.iter().product();
    for &[(first, one), (second, other)] in all_pairs().difference(&found) {
        for number in 0..all {
            let mut left = number;
            let mut choices = SIZES.map(|size| {
                let choice = left % size;
                left /= size;
                choice
            });
            if (choices[first], choices[second]) != (0, 0) {
                continue;
            }
            (choices[first], choices[second]) = (one, other);
            let case = Case(choices);
            assert!(!case.is_allowed(), "{case:?} has a pair that is missing");
        }
    }
    assert_eq!(cases, pairwise());
}

/// Names of the options in `-h`, short and long: `  -e, --event <EVENT>  Event to record`
fn options_of_help(help: &str) -> Vec<Vec<String>> {
    let names = |line: &str| -> Vec<String> {
        let words = line.split_whitespace().take(2);
        let names = words.take_while(|word| word.starts_with('-'));
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        let name = |word: &str| {
            word.chars()
                .take_while(|&letter| is_of_name(letter))
                .collect()
        };
        names.map(name).collect()
    };
    let all = help.lines().map(names);
    all.filter(|names| !names.is_empty()).collect()
}

/// An option is in a case, or the reason is given why not.
#[test]
fn every_option_is_in_a_case_or_excluded() {
    let recorder = std::process::Command::new(env!("CARGO_BIN_EXE_perfquet-record"))
        .arg("-h")
        .output();
    let help = String::from_utf8(recorder.expect("it runs").stdout).expect("text");
    let options = options_of_help(&help);
    assert!(options.len() > 70, "{options:?}");
    let choices = [STACKS, TARGETS, OUTPUTS, OTHERS].concat();
    let words = choices.iter().flat_map(|choice| choice.options);
    let words = words.chain(EVENTS.iter().flat_map(|(_, options)| *options));
    // Those that every recording has, or the target.
    let used: HashSet<&str> = words.copied().chain(["--force", "--duration"]).collect();
    let excluded: Vec<&str> = OTHERWISE
        .iter()
        .flat_map(|(names, _)| *names)
        .copied()
        .collect();
    for names in &options {
        let is_used = names.iter().any(|name| used.contains(name.as_str()));
        let is_excluded = names.iter().any(|name| excluded.contains(&name.as_str()));
        assert!(
            is_used != is_excluded,
            "{names:?}: in a case {is_used}, excluded {is_excluded}"
        );
    }
    for name in excluded {
        let mut known = options.iter().flatten();
        assert!(known.any(|known| known == name), "no option {name}");
    }
}
