//! Relates events by time, with operators that DataFusion's own SQL lacks.
//!
//! ```text
//! cargo run --release -p perfquet --example joins_by_time TRACE
//! ```

use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1);
    let path = path.ok_or_else(|| anyhow::anyhow!("expected a trace"))?;
    let context = SessionContext::new();
    perfquet::Traces::open(&[path])?.register(&context)?;
    for sql in [
        // The latest switch of each sampled thread.
        "SELECT s.comm, w.prev_state, count(*) AS samples \
         FROM samples s ASOF JOIN sched_switch w ON s.tid = w.next_pid AND s.time >= w.time \
         GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 5",
        // Samples within system calls.
        "SELECT c.name, count(*) AS samples FROM samples s \
         JOIN syscalls c ON s.tid = c.tid AND s.time BETWEEN c.time AND c.time + c.duration \
         GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
        // The busiest millisecond.
        "SELECT time, count(*) OVER (ORDER BY time RANGE BETWEEN 1000000 PRECEDING AND CURRENT ROW) AS samples \
         FROM samples ORDER BY 2 DESC, 1 LIMIT 1",
        // A flame graph as rows: one per box.
        "SELECT depth, function, self, total FROM flame((SELECT user_stack, count(*) FROM samples GROUP BY 1)) \
         ORDER BY total DESC, depth LIMIT 5",
    ] {
        let batches = perfquet::plan(&context, sql).await?.collect().await?;
        let rows = pretty_format_batches(&batches)?;
        println!("{rows}");
    }
    Ok(())
}
