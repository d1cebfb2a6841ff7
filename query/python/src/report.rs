//! Reports: `perfquet-query NAME WORDS...` within this process.

use std::sync::{Mutex, PoisonError};

use arrow::array::RecordBatch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::{Error, exception, path};
use crate::rows::Rows;
use crate::waiting;

/// Ctrl-C interrupts the report of the process, so there is one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Names of the reports, and what each answers.
#[pyfunction]
pub(crate) fn reports() -> Vec<(&'static str, String)> {
    perfquet_query::reports().collect()
}

/// Returns the rows of a report.
#[pyfunction]
pub(crate) fn report(py: Python<'_>, name: &str, words: Vec<Bound<'_, PyAny>>) -> PyResult<Rows> {
    let words = words.iter().map(path).collect::<PyResult<Vec<_>>>()?;
    let report = name.to_owned();
    let batches = in_turn(py, move || perfquet_query::rows(&report, words))?;
    let schema = batches.first().map(RecordBatch::schema);
    let schema = schema.ok_or_else(|| PyValueError::new_err(format!("{name} has no rows")))?;
    Ok(Rows { schema, batches })
}

/// Runs a report that writes a file.
#[pyfunction]
pub(crate) fn run(py: Python<'_>, name: &str, words: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
    let words = words.iter().map(path).collect::<PyResult<Vec<_>>>()?;
    let report = name.to_owned();
    in_turn(py, move || perfquet_query::run(&report, words))
}

fn in_turn<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> PyResult<T> {
    let work = move || {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    };
    let stop = || {
        let _ = perfquet::interrupt::interrupt();
    };
    let answered = waiting::run(py, work, stop, |_| Ok(()))?;
    answered.map_err(|error| exception(&error, Error::new_err))
}
