//! Registers traces in a DataFusion context of one's own, beside other tables, and queries both.
//!
//! ```text
//! cargo run --release -p perfquet --example any_context TRACE…
//! ```

use std::path::PathBuf;

use datafusion::prelude::SessionContext;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let traces = perfquet::Traces::open(&paths)?;
    // What incomplete traces lack is not an error.
    traces.notes().iter().for_each(|note| eprintln!("{note}"));

    let context = SessionContext::new();
    let owners = "CREATE TABLE owners AS VALUES ('nginx', 'web'), ('postgres', 'storage')";
    context.sql(owners).await?.collect().await?;
    traces.register(&context)?;

    // A view, a table, and a table of the context, in DataFusion's own SQL.
    for sql in [
        "SELECT comm, state, count(*) AS count, duration(sum(duration)) AS total \
         FROM thread_states GROUP BY 1, 2 ORDER BY sum(duration) DESC LIMIT 5",
        "SELECT o.column2 AS owner, count(*) AS samples \
         FROM samples s LEFT JOIN owners o ON o.column1 = s.comm GROUP BY 1 ORDER BY 2 DESC",
    ] {
        context.sql(sql).await?.show().await?;
    }
    // Durations with units, ASOF JOIN and macros.
    let slow = "SELECT name, duration FROM syscalls WHERE duration > 1ms ORDER BY 2 DESC LIMIT 5";
    perfquet::plan(&context, slow).await?.show().await?;
    Ok(())
}
