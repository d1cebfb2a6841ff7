//! Rows compared with the output of other tools: one module per tool or reader, in `oracle/`.
//!
//! A missing tool is reported as skipped (`perfquet_tests::skip`), never silently.

#[path = "oracle/annotate.rs"]
mod annotate;
#[path = "oracle/callgrind.rs"]
mod callgrind;
#[path = "oracle/chrome.rs"]
mod chrome;
#[path = "oracle/ctf.rs"]
mod ctf;
#[path = "oracle/ctf_text.rs"]
mod ctf_text;
#[path = "oracle/diff.rs"]
mod diff;
#[path = "oracle/dtrace_text.rs"]
mod dtrace_text;
#[path = "oracle/duckdb.rs"]
mod duckdb;
#[path = "oracle/engines.rs"]
mod engines;
#[path = "oracle/exports/mod.rs"]
mod exports;
#[path = "oracle/folded.rs"]
mod folded;
#[path = "oracle/ftrace_text.rs"]
mod ftrace_text;
#[path = "oracle/joins_by_time.rs"]
mod joins_by_time;
#[path = "oracle/kfi_dtrace.rs"]
mod kfi_dtrace;
#[path = "oracle/kfi_log.rs"]
mod kfi_log;
#[path = "oracle/lake.rs"]
mod lake;
#[path = "oracle/lake_traces.rs"]
mod lake_traces;
#[path = "oracle/objects.rs"]
mod objects;
#[path = "oracle/odd_inputs.rs"]
mod odd_inputs;
#[path = "oracle/off_cpu.rs"]
mod off_cpu;
#[path = "oracle/perf_data_digest.rs"]
mod perf_data_digest;
#[path = "oracle/perf_data_members.rs"]
mod perf_data_members;
#[path = "oracle/perf_script.rs"]
mod perf_script;
#[path = "oracle/printed_sums.rs"]
mod printed_sums;
#[path = "oracle/published.rs"]
mod published;
#[path = "oracle/published_ring.rs"]
mod published_ring;
#[path = "oracle/remote.rs"]
mod remote;
#[path = "oracle/reports.rs"]
mod reports;
#[path = "oracle/scope_views/mod.rs"]
mod scope_views;
#[path = "oracle/scopes.rs"]
mod scopes;
#[path = "oracle/several.rs"]
mod several;
#[path = "oracle/sniffing.rs"]
mod sniffing;
#[path = "oracle/store.rs"]
mod store;
#[path = "oracle/strace.rs"]
mod strace;
#[path = "oracle/text_and_binary.rs"]
mod text_and_binary;
#[path = "bench/time_tables.rs"]
mod time_tables;
#[path = "oracle/trace_cmd_report.rs"]
mod trace_cmd_report;
#[path = "oracle/trace_dat.rs"]
mod trace_dat;
#[path = "oracle/uftrace.rs"]
mod uftrace;
#[path = "oracle/version_1.rs"]
mod version_1;
#[path = "oracle/views.rs"]
mod views;
