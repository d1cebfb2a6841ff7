//! What other tools call tables, columns and functions: hints for names that do not exist.

/// Columns of Perfetto, DuckDB's examples, perf and bpftrace.
const COLUMNS: [(&str, &[&str]); 39] = [
    ("ts", &["time"]),
    ("timestamp", &["time"]),
    ("nsecs", &["time"]),
    ("start_ts", &["start_time"]),
    ("end_ts", &["end_time"]),
    ("dur", &["duration"]),
    ("thread_dur", &["duration"]),
    ("latency", &["duration"]),
    ("latency_dur", &["duration"]),
    ("delta", &["duration"]),
    ("utid", &["tid"]),
    ("upid", &["pid"]),
    ("waker_utid", &["waker_tid"]),
    ("parent_upid", &["parent"]),
    ("ucpu", &["cpu"]),
    ("target_cpu", &["cpu"]),
    ("thread_name", &["comm"]),
    ("process_name", &["comm"]),
    ("execname", &["comm"]),
    ("command", &["comm", "cmdline"]),
    ("end_state", &["state"]),
    ("blocked_function", &["reason", "why"]),
    ("irq_context", &["waker_context"]),
    ("name", &["function", "comm", "event"]),
    ("function_name", &["function"]),
    ("func", &["function"]),
    ("symbol", &["function"]),
    ("sym", &["function"]),
    ("dso", &["module"]),
    ("mapping", &["module"]),
    ("id", &["call_id", "stack_id", "frame_id"]),
    ("slice_id", &["call_id"]),
    ("kstack", &["kernel_stack"]),
    ("ustack", &["user_stack"]),
    ("callsite_id", &["user_stack", "kernel_stack"]),
    ("callchain", &["user_stack", "kernel_stack"]),
    ("retval", &["ret"]),
    ("value", &["khz", "period"]),
    ("filename", &["path"]),
];

/// What takes the place of columns that no table has.
const EXPRESSIONS: [(&str, &str); 17] = [
    ("func", LEAF),
    ("function", LEAF),
    ("function_name", LEAF),
    ("symbol", LEAF),
    ("sym", LEAF),
    ("name", LEAF),
    (
        "dso",
        "use module of stack_frames(), or perfquet-query top --by module",
    ),
    (
        "module",
        "use module of stack_frames(), or perfquet-query top --by module",
    ),
    (
        "overhead",
        "use count(*) / sum(count(*)) OVER (), or perfquet-query top",
    ),
    ("elapsed", "use since_start(time)"),
    (
        "probe",
        "each event is a table; FROM events has the column event",
    ),
    (
        "io_wait",
        "use state = 'uninterruptible'; off_cpu has the function in which a thread waits, reason",
    ),
    (
        "blocked_function",
        "use reason of off_cpu, or blocked_function(kernel_stack)",
    ),
    ("track_id", "calls have pid, tid and cpu themselves"),
    (
        "arg_set_id",
        "fields of events are columns: perfquet-query tables TRACE EVENT; calls and syscalls have args",
    ),
    ("is_main_thread", "use tid = pid"),
    ("rowid", "use row_number() OVER (ORDER BY time)"),
];
const LEAF: &str = "use stack_leaf(coalesce(kernel_stack, user_stack)), or perfquet-query top";

/// Returns the columns of `known` that another tool calls `name`.
pub(crate) fn columns<'k>(name: &str, known: &[&'k str]) -> Vec<&'k str> {
    let name = name.to_lowercase();
    let others = COLUMNS.iter().find(|(other, _)| *other == name);
    let others = others.map_or(&[][..], |(_, names)| names);
    known
        .iter()
        .copied()
        .filter(|known| others.contains(known))
        .collect()
}

/// Returns the hint for a column that is an expression here, of a table with the columns `known`.
pub(crate) fn expression(name: &str, known: &[&str]) -> Option<&'static str> {
    let name = name.to_lowercase();
    let (_, hint) = EXPRESSIONS.iter().find(|(other, _)| *other == name)?;
    let fits = *hint != LEAF || known.contains(&"kernel_stack");
    fits.then_some(hint)
}

/// Returns the hint for a table that another tool has.
pub(crate) fn table(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    if [".parquet", ".csv", ".json", ".arrow", ".db"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        return Some(FILES);
    }
    Some(match name.as_str() {
        "slice"
        | "slices"
        | "thread_slice"
        | "process_slice"
        | "thread_or_process_slice"
        | "gpu_slice"
        | "instant"
        | "internal_slice" => "use calls",
        "sched" | "sched_slice" | "thread_state" => "use thread_states, or the event sched_switch",
        "perf_sample"
        | "perf_samples"
        | "cpu_profile_stack_sample"
        | "linux_perf_samples_summary_tree" => {
            "use samples; merged stacks: perfquet-query flamegraph TRACE"
        }
        "counter"
        | "counters"
        | "counter_track"
        | "cpu_counter_track"
        | "process_counter_track"
        | "gpu_counter_track" => "use the event's table, or cpu_frequency and cpu_idle",
        "thread" => "use threads",
        "process" => "use processes",
        "thread_track" | "process_track" | "track" | "cpu_track" => {
            "there are no tracks: calls, samples and events have pid, tid and cpu themselves"
        }
        "args" => {
            "fields of events are columns: perfquet-query tables TRACE EVENT; calls and syscalls have args"
        }
        "ftrace_event" | "raw" => "use events, or the table of one event such as sched_switch",
        "flow" | "flows" => "use wakeups for who wakes whom, and critical_path(tid, from, to)",
        "metadata" | "trace_bounds" | "machine" => "use trace_info",
        "stats" => "use losses and problems",
        "cpu" | "cpus" => "use cpu_utilization(100ms), or GROUP BY cpu",
        "perf_session" | "perf_counter_track" => "use event_types",
        "stack_profile_frame" | "stack_profile_callsite" => {
            "use stack_frames(), or stack_text(stack)"
        }
        "stack_profile_mapping" => "use mappings",
        "stack_profile_symbol" => "use frames",
        "heap_profile_allocation" | "heap_graph_object" => "use allocations",
        "android_logs" | "journald" => {
            "logs are not in traces; events are: perfquet-query tables TRACE"
        }
        "sched_latency_for_running_interval" => "use runqueue_waits",
        "sched_runnable_thread_count" | "sched_active_cpu_count" => "use runqueue_lengths",
        "sched_previous_runnable_on_thread" | "spurious_sched_wakeup" => {
            "use wakeups, or thread_states"
        }
        "thread_executing_span"
        | "thread_executing_span_critical_path"
        | "_critical_path_all"
        | "_thread_executing_span_critical_path" => "use critical_path(tid, from, to)",
        "linux_irqs" | "linux_hard_irqs" | "linux_soft_irqs" => "use irqs",
        "linux_active_block_io_operations_by_device" => "use block_io",
        "cpu_utilization_per_second" | "cpu_utilization_per_period" => "use cpu_utilization(1s)",
        "thread_utilization_per_second" | "cpu_thread_utilization_per_second" => {
            "use thread_utilization(1s)"
        }
        "cpu_frequency_counters" => "use cpu_frequency",
        "cpu_idle_counters" | "cpu_idle_stats" => "use cpu_idle",
        "intervals_overlap_count" | "_interval_intersect" | "interval_intersect" => {
            "use span_join(calls, thread_states, tid), or a join with a.time < b.time + b.duration AND b.time < a.time + a.duration"
        }
        "cycles" | "instructions" | "cache-misses" | "branch-misses" | "cpu-clock"
        | "task-clock" | "cpu-cycles" | "page-faults" => {
            "samples of all counters and clocks are in one table: FROM samples WHERE event = 'cycles'"
        }
        _ => return None,
    })
}

/// Returns the hint for a function that another engine has.
pub(crate) fn function(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    if name.starts_with("read_") || name.ends_with("_scan") {
        return Some(FILES);
    }
    if name.starts_with("duckdb_") || name.starts_with("pragma_") {
        return Some("use SHOW TABLES, DESCRIBE table, or perfquet-query tables TRACE");
    }
    Some(match name.as_str() {
        "percentile" | "approx_percentile" | "p50" | "p90" | "p95" | "p99" | "quantile_disc"
        | "reservoir_quantile" | "percentile_disc" => "use quantile(x, 0.99)",
        "maximum" => "use max(x)",
        "minimum" => "use min(x)",
        "average" => "use avg(x)",
        "mad" => "use median(abs(x - m)) FROM t, (SELECT median(x) AS m FROM t)",
        "skewness" | "kurtosis" => "use quantiles(x, 0.5, 0.9, 0.99), or histogram(x)",
        "entropy" | "equi_width_bins" | "bar" => "use quantize(x), or perfquet-query hist",
        "product" => "use exp(sum(ln(x)))",
        "stats" => "use count(*), avg(x), sum(x)",
        "typeof" | "pg_typeof" => "use arrow_typeof(x)",
        "md5" | "sha1" | "sha256" | "crc32" | "md5_number" => "use hash(x)",
        "popcount" => "use bit_count(x)",
        "bin" | "to_binary" => "use to_hex(x), or x & 1 for a bit",
        "format_bytes" | "formatreadablesize" | "pg_size_pretty" => "use x / 1048576 AS mib",
        "make_timestamp" | "make_timestamp_ns" | "make_timestamp_ms" | "epoch_to_timestamp" => {
            "use wall_time(time); for other numbers, to_timestamp_nanos(x)"
        }
        "to_milliseconds" | "to_seconds" | "to_microseconds" | "to_minutes" | "to_hours" => {
            "write durations such as 5ms beside times of the trace, INTERVAL '5 ms' beside dates"
        }
        "json_extract"
        | "json_extract_string"
        | "from_json"
        | "to_json"
        | "json_object"
        | "json_agg"
        | "jsonb_agg"
        | "json_object_agg"
        | "json_group_array" => {
            "use --format json for JSON output, array_agg(x) for lists, {'a': x} for structs, whose fields are x['a']"
        }
        "ms" | "us" | "millis" | "time_to_ms" | "time_to_us" | "time_to_s" | "time_to_ns"
        | "time_from_ms" | "time_from_us" | "time_from_s" | "time_from_ns" => {
            "use duration(x), x / 1e6, or a literal such as 1.5ms"
        }
        "trace_end" => "use (SELECT max(time) FROM events)",
        "trace_dur" => "use (SELECT CAST(value AS BIGINT) FROM trace_info WHERE name = 'length')",
        "columns" => "use it in SELECT: COLUMNS('_stack$')",
        "extract_arg" => {
            "fields of events are columns: SELECT filename FROM sys_enter_openat; calls and syscalls have args"
        }
        "run_metric" | "import" => {
            "every view is there: perfquet-query tables TRACE; reports: perfquet-query --help"
        }
        "ancestor_slice" | "ancestor_slice_by_stack" => "use ancestors(call_id)",
        "descendant_slice" | "descendant_slice_by_stack" => "use descendants(call_id)",
        "ancestor_stack" | "ancestor_stack_by_track" | "ancestor_callsite" | "cat_stacks" => {
            "use stack_text(stack), or stack_frames()"
        }
        "following_flow" | "preceding_flow" | "directly_connected_flow" => {
            "use wakeups for who wakes whom"
        }
        "spans_overlapping_dur" => "use span_join(calls, thread_states, tid)",
        "to_ftrace" => "use perfquet-convert TRACE --to perf-script",
        "demangle" => "names are stored demangled",
        "usym" | "sym" => "use stack_leaf(kernel_stack) or stack_leaf(user_stack)",
        "str" | "kstr" | "buf" | "path" | "ntop" | "macaddr" => {
            "strings are columns; no function is needed; use CAST(x AS TEXT) for other values"
        }
        _ => return of_another_engine(&name),
    })
}

/// The rest of [`function`]: those of one row.
fn of_another_engine(name: &str) -> Option<&'static str> {
    Some(match name {
        "unnest" => UNNEST,
        "fdiv" => "use floor(x / 2.0)",
        "even" => "use ceil(x / 2.0) * 2",
        "nextafter" => "use x + 1 for integers",
        "width_bucket" => "use lquantize(x, 0, 10, 1) for all rows, or floor((x - 0) / 2)",
        "scale" => "use CAST(x AS DECIMAL(38, 3)) for three decimals",
        "setseed" => "use hash(x) % 100 = 0 for the same sample each time",
        "age" => "use since_start(time), now() - wall_time(time), or y - x",
        "make_interval" => "use INTERVAL '1 hour' beside dates, durations such as 5ms beside times",
        "strptime" => "use to_timestamp(text, '%Y-%m-%d')",
        "timezone" | "justify_days" | "justify_hours" => "dates are UTC: use wall_time(time)",
        "time" => "use strftime(wall_time(time), '%H:%M:%S')",
        "regexp_extract_all" | "regexp_split_to_array" | "regexp_split_to_table" => {
            "use string_to_array(text, '/'), or regexp_match(text, '(.*)/(.*)') for groups"
        }
        "editdist3"
        | "hamming"
        | "damerau_levenshtein"
        | "jaccard"
        | "similarity"
        | "soundex"
        | "jaro_similarity"
        | "jaro_winkler_similarity" => "use levenshtein(text, 'other')",
        "quote_ident" => "use concat('\"', text, '\"')",
        "to_number" => "use CAST(text AS DOUBLE)",
        "parse_path" | "parse_dirname" | "parse_dirpath" | "dirname" => {
            "use regexp_replace(text, '/[^/]*$', '') for the directory, string_to_array(text, '/') for all parts"
        }
        "basename" => "use parse_filename(text)",
        "try" => "use TRY_CAST(text AS INT) for casts, x / nullif(y, 0) for divisions",
        "error" => "use CASE WHEN x > 0 THEN x END: NULL marks what is wrong",
        "current_database" | "current_schema" | "current_setting" | "current_user" => {
            "use SELECT * FROM trace_info"
        }
        "list_reduce" | "reduce" | "list_where" | "list_median" | "list_mode"
        | "list_stddev_pop" => {
            "use the rows of unnest: SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)"
        }
        "list_count" => "use array_length(list)",
        "approx_top_k" => "use GROUP BY x ORDER BY count(*) DESC LIMIT 3",
        "bitstring_agg" => "use array_agg(DISTINCT x)",
        "print" | "printa" | "cat" | "system" | "exit" | "clear" | "zero" | "signal"
        | "override" => "queries print what they SELECT, and do nothing else",
        "kaddr" | "uaddr" => "use ksym(x) for the name of an address",
        "cgroupid" | "cgroup_path" => "use cgroup of threads",
        "reg" | "kptr" | "uptr" | "skboutput" | "bswap" | "percpu_kaddr" => {
            "values are those that were recorded: perfquet-record --kprobe 'FUNC x=%di:u64'"
        }
        "strerror" => "use errno_name(-x)",
        "tseries" => "use count(*) with GROUP BY time_bucket(100ms, time)",
        "join" => "use array_to_string(list, ' ')",
        "like" | "ilike" | "matches" | "regexp" | "rlike" => {
            "use text LIKE '%a%', or regexp_like(text, 'a')"
        }
        "glob" => "use text GLOB 'a*'",
        "concat_all" | "strings_agg" => "use string_agg(text, ', ')",
        "list_agg" | "listagg" => "use string_agg(text, ', ')",
        "alias" => "use x AS name",
        _ => return None,
    })
}

/// Returns the hint for arguments that a function does not take.
pub(crate) fn arguments(name: &str) -> Option<&'static str> {
    Some(match name {
        "date_bin" | "date_trunc" => {
            "it takes dates: date_bin(INTERVAL '1 second', wall_time(time)); for times of the trace, use time_bucket(1ms, time)"
        }
        "max" => "use max(x) of rows, greatest(a, b) of values, or max_by(x, y)",
        "min" => "use min(x) of rows, least(a, b) of values, or min_by(x, y)",
        "quantile" => "use quantile(x, 0.99)",
        "since_start" | "wall_time" => "use a time of the trace, such as the column time",
        "at" => "use a duration, such as at(1.5s)",
        "array_slice" | "array_element" => {
            "it takes lists; for strings, use substr(x, 1, 3) or left(x, 3)"
        }
        "len" => "use len(string) or len(list)",
        "string_agg" => "use string_agg(text, ', ')",
        "decode" => "use decode(text, 'hex'), or CASE x WHEN 1 THEN 2 END",
        "to_char" => "use to_char(wall_time(time), '%H:%M:%S'), or CAST(x AS TEXT)",
        "sum" | "avg" | "mean" | "median" | "stddev" | "stddev_samp" | "stddev_pop" | "var"
        | "var_samp" | "var_pop" | "corr" | "quantize" | "lquantize" | "llquantize"
        | "histogram" => NUMERIC,
        "percentile_cont" | "quantile_cont" => {
            "use quantile_cont(x, 0.99), or quantiles(x, 0.5, 0.99)"
        }
        _ => return None,
    })
}

const NUMERIC: &str = "use numeric arguments; count() takes any type, and --by groups by strings";
/// Lists of a table's own rows.
pub(super) const UNNEST: &str =
    "use SELECT comm, unnest([pid, tid]) AS id FROM t, also in a subquery of FROM";

/// Queries read traces only.
const FILES: &str = "import the file with perfquet-convert, or query it together with the trace's Parquet files in DuckDB: perfquet-convert TRACE --to ddl=duckdb";

/// Returns the hint for a word at which the parser stopped.
pub(crate) fn syntax(message: &str) -> Option<&'static str> {
    let found = message.rsplit("found: ").next()?.to_lowercase();
    Some(match found.trim() {
        "pivot" => "write PIVOT t ON key USING sum(x) GROUP BY y",
        "unpivot" => "write UNPIVOT t ON a, b INTO NAME n VALUE v",
        "using" => "use WHERE random() < 0.1 for a sample",
        "*" => "use pow(x, y) for powers",
        ":" => "write names after values: 1 AS a; an event is a table: FROM sched.sched_switch",
        "-" => {
            "write names with other characters than letters, digits and _ in double quotes: \"cpu-clock\""
        }
        _ => return None,
    })
}

/// Returns the hint for a statement of another tool, by its first words.
pub(crate) fn statement(sql: &str) -> Option<&'static str> {
    let lower = sql.trim_start().to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().take(4).collect();
    Some(match words.as_slice() {
        ["include", "perfetto", ..] => {
            "every view is there, without modules: perfquet-query tables TRACE"
        }
        ["create", "perfetto", ..] | ["create", "or", "replace", "perfetto"] => {
            "use CREATE VIEW a AS SELECT …, or CREATE MACRO f(x) AS x + 1, in the shell or in a file of --views"
        }
        ["create", "virtual", "table", ..] => "use FROM span_join(calls, thread_states, tid)",
        ["create", "temp" | "temporary", ..] => {
            "use CREATE TABLE or CREATE VIEW: they last as long as the shell"
        }
        [
            "attach" | "install" | "load" | "detach" | "import" | "use",
            ..,
        ] => "only traces are queried; several at once: perfquet-query sql a.pqt b.pqt QUERY",
        ["pragma" | "call", ..] => {
            "use SHOW TABLES, DESCRIBE table, or perfquet-query tables TRACE"
        }
        ["show", "all", "tables", ..] => "use SHOW TABLES",
        ["set", ..] => "settings are options: --threads N, --memory SIZE",
        [first, ..]
            if [
                "kprobe:",
                "kretprobe:",
                "uprobe:",
                "tracepoint:",
                "profile:",
                "interval:",
                "begin",
                "fentry:",
            ]
            .iter()
            .any(|probe| first.starts_with(probe)) =>
        {
            "programs of bpftrace are not run: record events with perfquet-record -e or --call, then query their tables"
        }
        _ if lower.contains("@[") => "use SELECT comm, count(*) FROM … GROUP BY comm",
        _ if lower.trim_end_matches([';', ' ', '\n']).ends_with('%') => {
            "LIMIT takes a number of rows; for a share of them, use WHERE random() < 0.1"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_tools() {
        assert_eq!(columns("ts", &["cpu", "time"]), ["time"]);
        assert_eq!(columns("ts", &["cpu"]), [""; 0]);
        assert_eq!(table("slice"), Some("use calls"));
        assert_eq!(table("x.PARQUET"), Some(FILES));
        assert_eq!(function("read_csv"), Some(FILES));
        assert_eq!(function("nothing"), None);
        assert_eq!(expression("func", &["call_id"]), None);
        assert_eq!(expression("func", &["kernel_stack"]), Some(LEAF));
        assert_eq!(statement("SHOW ALL TABLES"), Some("use SHOW TABLES"));
        assert_eq!(statement("SELECT 1"), None);
        assert!(
            syntax("expected: an SQL statement, found: PIVOT")
                .unwrap()
                .contains("USING")
        );
    }
}
