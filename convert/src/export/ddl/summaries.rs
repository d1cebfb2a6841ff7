//! Comments about the summaries of a lake: a percentile over all of its hosts, in SQL that all engines understand.

use std::io::Write;

use anyhow::Result;
use perfquet_trace::tables::summary_durations;

use super::Catalog;

/// The percentile from bars of histograms. Their sums are exact, so that the bar is the one that has the exact percentile.
const SQL: &str = "\
SELECT function, min(duration) AS p99 FROM (
  SELECT function, duration, sum(calls) OVER (PARTITION BY function ORDER BY duration) AS so_far, sum(calls) OVER (PARTITION BY function) AS in_all
  FROM (SELECT function, duration, sum(calls) AS calls FROM summary_durations WHERE duration IS NOT NULL GROUP BY function, duration) AS bars
) AS counted WHERE so_far >= 0.99 * in_all GROUP BY function;";

const TRACES_WITHOUT: &str = "SELECT count(*) FROM traces WHERE NOT coalesce(summaries, false)";

/// Writes the comments, if the lake has summaries.
pub(super) fn write(catalog: &Catalog, out: &mut dyn Write, comment: &str) -> Result<()> {
    let is_there = |name: &str| catalog.tables.iter().any(|table| table.name == name);
    if !is_there(summary_durations::NAME) {
        return Ok(());
    }
    writeln!(
        out,
        "{comment} Summaries have the sums of each trace and hour. The 99th percentile of all calls, which differs from the exact one by at most 1/128 of it:"
    )?;
    for line in SQL.lines() {
        writeln!(out, "{comment}   {line}")?;
    }
    writeln!(
        out,
        "{comment} Traces without summaries are not in it; this counts them: {TRACES_WITHOUT}"
    )?;
    Ok(())
}
