//! What other tools call tables, columns and functions: hints for names that do not exist.

/// Columns of Perfetto, DuckDB's examples, and perf.
const COLUMNS: [(&str, &[&str]); 14] = [
    ("ts", &["time"]),
    ("timestamp", &["time"]),
    ("dur", &["duration"]),
    ("latency", &["duration"]),
    ("utid", &["tid"]),
    ("upid", &["pid"]),
    ("ucpu", &["cpu"]),
    ("thread_name", &["comm"]),
    ("process_name", &["comm"]),
    ("end_state", &["state"]),
    ("blocked_function", &["reason", "why"]),
    ("irq_context", &["waker_context"]),
    ("name", &["function", "comm", "event"]),
    ("function_name", &["function"]),
];

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
        "slice" | "slices" | "thread_slice" => "use calls",
        "sched" | "sched_slice" | "thread_state" => "use thread_states, or the event sched_switch",
        "perf_sample" | "cpu_profile_stack_sample" => "use samples",
        "counter" | "counters" => "use the event's table, or cpu_frequency and cpu_idle",
        "thread" => "use threads",
        "process" => "use processes",
        "stack_profile_frame" | "stack_profile_callsite" => {
            "use stack_frames(), or stack_text(stack)"
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
    Some(match name.as_str() {
        "percentile" | "approx_percentile" | "p50" | "p90" | "p95" | "p99" => {
            "use quantile(x, 0.99)"
        }
        "mode" => "use GROUP BY x ORDER BY count(*) DESC LIMIT 1",
        "maximum" => "use max(x)",
        "minimum" => "use min(x)",
        "average" => "use avg(x)",
        "len" => "use length(string), or array_length(list)",
        "printf" | "sprintf" => "use concat(a, b), or duration(ns)",
        "string_split" | "str_split" => "use string_to_array(string, ' ')",
        "epoch" | "epoch_ns" | "epoch_ms" => {
            "use CAST(wall_time(time) AS BIGINT) for nanoseconds since 1970"
        }
        "strftime" => "use to_char(wall_time(time), '%H:%M:%S')",
        "ms" | "us" | "millis" => "use duration(x), x / 1e6, or a literal such as 1.5ms",
        "list_agg" | "listagg" => "use string_agg(x, ', ')",
        "columns" => "use SELECT * EXCLUDE (column)",
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
        _ => return None,
    })
}

/// Queries read traces only.
const FILES: &str = "import the file with perfquet-convert, or query it together with the trace's Parquet files in DuckDB: perfquet-convert TRACE --to ddl=duckdb";

/// Returns the hint for a word at which the parser stopped.
pub(crate) fn syntax(message: &str) -> Option<&'static str> {
    let found = message.rsplit("found: ").next()?.to_lowercase();
    Some(match found.trim() {
        "pivot" => "use sum(x) FILTER (WHERE key = 'a') AS a for each value of the key",
        "unpivot" => "use UNION ALL",
        "using" => "use WHERE random() < 0.1 for a sample",
        "attach" | "install" | "load" | "pragma" => {
            "only traces are queried; several at once: perfquet-query sql a.pqt b.pqt QUERY"
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
        assert!(
            syntax("expected: an SQL statement, found: PIVOT")
                .unwrap()
                .contains("FILTER")
        );
    }
}
