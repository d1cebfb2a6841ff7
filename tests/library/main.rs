//! A program outside of the workspace: it imports two files, registers the traces in its own context beside its own table,
//! and prints what it queries.

use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use perfquet::Traces;
use perfquet_import::Importer;

fn main() -> Result<()> {
    let mut imported = Vec::new();
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        imported.push(Importer::default().import_bytes("a file", &bytes)?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    for (number, trace) in imported.iter().enumerate() {
        let rows = trace.read("calls")?.map(|batch| Ok(batch?.num_rows()));
        let rows = rows.sum::<Result<usize>>()?;
        println!("import {number}: {rows} calls");
        runtime.block_on(query(trace.path(), number))?;
    }
    // Reports block, so not on a thread of the runtime.
    let calls = imported[0].path().as_os_str();
    show(
        "report durations",
        &perfquet_query::rows("durations", [calls, "--limit".as_ref(), "3".as_ref()])?,
    )?;
    let samples = imported[1].path().as_os_str();
    show(
        "report top",
        &perfquet_query::rows("top", [samples, "--by=thread".as_ref()])?,
    )?;
    let unknown = perfquet_query::rows("tops", [samples]).unwrap_err();
    println!("{unknown}");
    let unknown = perfquet_query::rows("top", [samples, "--lines".as_ref()]).unwrap_err();
    println!("{}", unknown.to_string().lines().next().unwrap_or_default());
    Ok(())
}

async fn query(path: &std::path::Path, number: usize) -> Result<()> {
    let context = SessionContext::new();
    let own = "CREATE TABLE owners AS SELECT 'workload' AS comm, 'team' AS owner";
    context.sql(own).await?.collect().await?;
    Traces::open(&[path])?.register(&context)?;
    let queries: &[(&str, &str)] = match number {
        0 => &[
            (
                "view syscalls",
                "SELECT name, count(*) AS calls FROM syscalls GROUP BY 1",
            ),
            (
                "view thread_states",
                "SELECT state, count(*) AS n FROM thread_states GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3",
            ),
            (
                "view wakeups",
                "SELECT comm, count(*) AS n FROM wakeups GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3",
            ),
            // Operators: a window over time and an ASOF join, after a duration with a unit.
            (
                "window over time",
                "SELECT max(n) AS most FROM (SELECT count(*) OVER (ORDER BY time RANGE BETWEEN 1000000 PRECEDING AND CURRENT ROW) AS n FROM sched_switch)",
            ),
            (
                "asof join",
                "SELECT count(*) AS n FROM sched_switch s ASOF JOIN calls c ON s.tid = c.tid AND s.time >= c.time",
            ),
        ],
        _ => &[
            (
                "own table",
                "SELECT owner, count(*) AS n FROM samples NATURAL LEFT JOIN owners GROUP BY 1",
            ),
            (
                "table function",
                "SELECT depth, sum(self) AS self FROM flame((SELECT user_stack, kernel_stack, count(*) FROM samples GROUP BY 1, 2)) GROUP BY 1 ORDER BY 1 LIMIT 3",
            ),
        ],
    };
    for (title, sql) in queries {
        let batches = perfquet::plan(&context, sql).await?.collect().await?;
        show(title, &batches)?;
    }
    Ok(())
}

fn show(title: &str, batches: &[RecordBatch]) -> Result<()> {
    println!("{title}\n{}", pretty_format_batches(batches)?);
    Ok(())
}
