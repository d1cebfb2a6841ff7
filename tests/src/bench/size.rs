//! Bytes per event: all tables of the trace directory compared with the perf.data, plain and through `zstd -3`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::report::Report;
use super::{Setting, measure, require, traces};

/// Both kinds of files. Sizes do not vary, so one round is enough.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["perf", "zstd", "perf events", "tracefs"])?;
    let mut report = Report::new(1);
    let mixed = traces::mixed_perf_data(&setting.directory)?;
    let tracepoints = traces::tracepoint_perf_data(&setting.directory)?;
    report.scenario(
        "Bytes per event",
        "The whole trace directory counts: stacks, threads, mappings, the manifest.",
    );
    let rows = [
        row("tracepoints", &tracepoints, setting)?,
        row("samples and sched_switch with stacks", &mixed, setting)?,
    ];
    report.table(
        &["file", "events", "perf.data B", "zstd -3 B", "Parquet B"],
        &rows.iter().map(|row| row.shown()).collect::<Vec<_>>(),
    );
    for (row, budget) in rows.iter().zip([0.65, 0.6]) {
        report.budget(
            &format!("{}: Parquet against zstd -3", row.title),
            row.parquet / row.compressed,
            budget,
        );
    }
    report.budget(
        "tracepoints: Parquet against perf.data",
        rows[0].parquet / rows[0].raw,
        1.0 / 18.0,
    );
    let trace = tracepoints.with_extension("pqt");
    report.budget(
        "tracepoints: bytes per row of `calls`",
        traces::bytes(&trace.join("calls"))? as f64
            / traces::rows(&trace, |name| name == "calls")? as f64,
        3.5,
    );
    Ok(report)
}

/// One file in its three forms, in bytes.
struct Row {
    title: &'static str,
    events: f64,
    raw: f64,
    compressed: f64,
    parquet: f64,
}

impl Row {
    fn shown(&self) -> Vec<String> {
        let each = |bytes: f64| format!("{:.2}", bytes / self.events);
        vec![
            self.title.to_owned(),
            format!("{:.0}", self.events),
            each(self.raw),
            each(self.compressed),
            each(self.parquet),
        ]
    }
}

fn row(title: &'static str, input: &Path, setting: &Setting) -> Result<Row> {
    let compressed = input.with_extension("data.zst");
    measure::run(
        Command::new("zstd")
            .args(["-q", "-f", "-3", "-o"])
            .arg(&compressed)
            .arg(input),
        &setting.directory,
    )?;
    let trace = traces::import(input, &setting.directory)?;
    Ok(Row {
        title,
        events: traces::events(&trace)? as f64,
        raw: traces::bytes(input)? as f64,
        compressed: traces::bytes(&compressed)? as f64,
        parquet: traces::bytes(&trace)? as f64,
    })
}
