//! Opened traces.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use perfquet::{Definitions, Options};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::failure::{QueryError, TraceError, exception, path};
use crate::reader::{Message, Query, Reader};
use crate::rows::{Rows, Stream};
use crate::waiting::{panicked, run};

/// Opened traces and an engine for their queries.
#[pyclass(module = "perfquet._perfquet", frozen)]
pub(crate) struct Session {
    session: Arc<perfquet::Session>,
    /// The process: the engine's threads do not exist in a forked one.
    process: u32,
}

#[pymethods]
impl Session {
    #[new]
    fn new(
        py: Python<'_>,
        paths: Vec<Bound<'_, PyAny>>,
        memory: Option<usize>,
        threads: Option<usize>,
        init: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Session> {
        let paths: Vec<PathBuf> = paths.iter().map(path).collect::<PyResult<_>>()?;
        let options = Options {
            memory,
            threads,
            definitions: Definitions {
                files: init.iter().map(path).collect::<PyResult<_>>()?,
                ..Definitions::default()
            },
            ..Options::default()
        };
        let opened = py.detach(|| perfquet::Session::open(&paths, &options));
        Ok(Session {
            session: Arc::new(opened.map_err(|error| exception(&error, TraceError::new_err))?),
            process: std::process::id(),
        })
    }

    /// Runs a query and returns all of its rows.
    fn sql(&self, py: Python<'_>, query: String) -> PyResult<Rows> {
        let (query, schema) = self.start(py, query)?;
        let mut batches = Vec::new();
        loop {
            match query.messages.receive_within(py) {
                Ok(Message::Rows(batch)) => batches.push(batch),
                Ok(Message::End) => return Ok(Rows { schema, batches }),
                Ok(Message::Failed(error)) => return Err(exception(&error, QueryError::new_err)),
                Ok(Message::Columns(_)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(panicked());
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }

    /// Starts a query and returns its rows as they come.
    fn stream(&self, py: Python<'_>, query: String) -> PyResult<Stream> {
        let (query, schema) = self.start(py, query)?;
        Ok(Stream::new(Reader {
            query,
            schema,
            is_at_end: false,
            owner: std::thread::current().id(),
        }))
    }

    /// Paths of the opened traces.
    #[getter]
    fn paths(&self) -> Vec<PathBuf> {
        let traces = self.session.traces().iter();
        traces.map(|trace| trace.path.clone()).collect()
    }

    /// Names of the opened traces, as in the column `trace`.
    #[getter]
    fn names(&self) -> Vec<String> {
        let traces = self.session.traces().iter();
        traces.map(|trace| trace.name.clone()).collect()
    }

    /// Tables and the views whose events were recorded.
    fn tables(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, perfquet_query::tables)
    }

    /// Columns of a table or view.
    fn columns(&self, py: Python<'_>, table: &str) -> PyResult<Rows> {
        let table = table.to_owned();
        self.rows(py, move |session| perfquet_query::columns(session, &table))
    }
}

impl Session {
    fn check(&self) -> PyResult<()> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err(
                "these traces were opened before fork(), which leaves the engine's threads behind; open them in the new \
                 process, or start processes with multiprocessing.get_context(\"spawn\")",
            )),
        }
    }

    fn start(&self, py: Python<'_>, sql: String) -> PyResult<(Query, SchemaRef)> {
        self.check()?;
        let query = Query::start(Arc::clone(&self.session), sql)?;
        loop {
            match query.messages.receive_within(py) {
                Ok(Message::Columns(schema)) => return Ok((query, schema)),
                Ok(Message::Failed(error)) => return Err(exception(&error, QueryError::new_err)),
                Ok(Message::Rows(_) | Message::End) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(panicked());
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }

    fn rows(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&perfquet::Session) -> anyhow::Result<RecordBatch> + Send + 'static,
    ) -> PyResult<Rows> {
        self.check()?;
        let session = Arc::clone(&self.session);
        let answered = run(
            py,
            move || work(&session).and_then(|batch| perfquet_query::plain(&batch)),
            || {
                let _ = perfquet::interrupt::interrupt();
            },
            |_| Ok(()),
        )?;
        let batch = answered.map_err(|error| exception(&error, QueryError::new_err))?;
        Ok(Rows {
            schema: batch.schema(),
            batches: vec![batch],
        })
    }
}
