//! Runs queries for requests: with limits of rows and time, until the browser cancels.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use perfquet::{Running, Session, Step};

use super::http::Peer;

/// Time between two checks whether the browser still waits.
const STEP: Duration = Duration::from_millis(20);

/// The browser has closed the connection.
#[derive(Debug)]
pub(super) struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("canceled")
    }
}

impl std::error::Error for Gone {}

/// The time limit was reached.
#[derive(Debug)]
pub(super) struct Late(Duration);

impl Late {
    pub(super) fn after(time: Duration) -> Late {
        Late(time)
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not answered within {} s", self.0.as_secs())
    }
}

impl std::error::Error for Late {}

/// Limits of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) rows: usize,
    pub(super) time: Duration,
}

impl Limit {
    /// For queries of the program itself.
    pub(super) const OWN: Limit = Limit {
        rows: 4_000_000,
        time: Duration::from_secs(120),
    };
    /// For commands that the program runs, which limit their rows.
    pub(super) const COMMAND: Limit = Limit {
        rows: usize::MAX,
        time: Duration::from_secs(120),
    };
}

/// Rows of a query.
pub(super) struct Found {
    pub(super) columns: SchemaRef,
    pub(super) units: Vec<Option<String>>,
    pub(super) batches: Vec<RecordBatch>,
    /// Whether there are more rows than the limit.
    pub(super) is_cut: bool,
}

/// Runs a query to its end.
pub(super) fn rows(session: &Session, sql: &str, limit: Limit, peer: &Peer<'_>) -> Result<Found> {
    finish(session.start(sql)?, limit, peer)
}

/// Calls `visit` with the rows of a query as they come.
pub(super) fn stream(
    session: &Session,
    sql: &str,
    peer: &Peer<'_>,
    mut visit: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let mut running = session.start(sql)?;
    loop {
        match running.next(STEP)? {
            Step::Columns(..) => {}
            Step::Rows(batch) => visit(&batch)?,
            Step::Waiting if peer.is_gone() => return Err(Gone.into()),
            Step::Waiting => {}
            Step::End => return Ok(()),
        }
    }
}

/// Takes all rows of a query that was started.
pub(super) fn finish(mut running: Running<'_>, limit: Limit, peer: &Peer<'_>) -> Result<Found> {
    let end = Instant::now() + limit.time;
    let mut columns = None;
    let (mut batches, mut count, mut is_cut) = (Vec::new(), 0, false);
    loop {
        match running.next(STEP)? {
            Step::Columns(schema, units) => columns = Some((schema, units)),
            Step::Rows(batch) => {
                let rest = limit.rows - count;
                is_cut = batch.num_rows() > rest;
                let batch = batch.slice(0, batch.num_rows().min(rest));
                count += batch.num_rows();
                batches.push(batch);
                if is_cut {
                    break;
                }
            }
            Step::Waiting if peer.is_gone() => return Err(Gone.into()),
            Step::Waiting => {}
            Step::End => break,
        }
        if Instant::now() > end {
            return Err(Late::after(limit.time).into());
        }
    }
    let (columns, units) = columns.context("a query has no columns")?;
    Ok(Found {
        columns,
        units,
        batches,
        is_cut,
    })
}

/// A column as integers.
pub(super) fn integers(batch: &RecordBatch, column: usize) -> Result<Int64Array> {
    let found = cast(batch.column(column), &DataType::Int64)?;
    Ok(found.as_primitive::<Int64Type>().clone())
}

/// A value; `None` for NULL.
pub(super) fn at(column: &Int64Array, row: usize) -> Option<i64> {
    column.is_valid(row).then(|| column.value(row))
}
