//! Rows by Arrow's PyCapsule interface (<https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>).

use std::sync::{Mutex, PoisonError};

use arrow::array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::ffi::FFI_ArrowSchema;
use arrow::ffi_stream::FFI_ArrowArrayStream;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::failure::{Error, exception};
use crate::reader::Reader;

/// Rows in memory; they can be read any number of times.
#[pyclass(module = "perfquet._perfquet", frozen)]
pub(crate) struct Rows {
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Vec<RecordBatch>,
}

#[pymethods]
impl Rows {
    /// A stream of the rows. The types are those of the rows, whatever is requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, SchemaRef::clone(&self.schema));
        stream(py, Box::new(reader))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema(py, &self.schema)
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        names(&self.schema)
    }

    /// Unit of each column with one: "ns", "time", "share", ….
    #[getter]
    fn units(&self) -> std::collections::BTreeMap<String, String> {
        let fields = self.schema.fields().iter();
        let units = fields.filter_map(|field| {
            let unit = field.metadata().get(perfquet::unit::UNIT)?;
            Some((field.name().clone(), unit.clone()))
        });
        units.collect()
    }

    /// The rows in a format of `perfquet-query --format`.
    fn formatted<'py>(&self, py: Python<'py>, format: &str) -> PyResult<Bound<'py, PyBytes>> {
        let text = py.detach(|| perfquet_query::formatted(format, &self.schema, &self.batches));
        let text = text.map_err(|error| exception(&error, Error::new_err))?;
        Ok(PyBytes::new(py, &text))
    }

    /// Columns and cells of the first rows, as people read them.
    fn cells(&self, limit: usize) -> PyResult<(Vec<String>, Vec<Vec<String>>)> {
        let first = first(&self.batches, limit, &self.schema);
        perfquet_query::cells(&first).map_err(|error| exception(&error, Error::new_err))
    }

    /// The first rows.
    fn head(&self, limit: usize) -> Rows {
        Rows {
            schema: SchemaRef::clone(&self.schema),
            batches: vec![first(&self.batches, limit, &self.schema)],
        }
    }
}

/// The first rows, in one batch.
fn first(batches: &[RecordBatch], limit: usize, schema: &SchemaRef) -> RecordBatch {
    let mut left = limit;
    let mut parts = Vec::new();
    for batch in batches {
        let length = batch.num_rows().min(left);
        parts.push(batch.slice(0, length));
        left -= length;
        if left == 0 {
            break;
        }
    }
    // All have the schema.
    arrow::compute::concat_batches(schema, &parts)
        .unwrap_or_else(|_| RecordBatch::new_empty(SchemaRef::clone(schema)))
}

/// Rows of a query that still runs; they can be read once.
#[pyclass(module = "perfquet._perfquet", frozen)]
pub(crate) struct Stream {
    schema: SchemaRef,
    reader: Mutex<Option<Reader>>,
}

impl Stream {
    pub(crate) fn new(reader: Reader) -> Stream {
        Stream {
            schema: SchemaRef::clone(&reader.schema),
            reader: Mutex::new(Some(reader)),
        }
    }
}

#[pymethods]
impl Stream {
    /// The rows, as the query finds them.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = reader.take().ok_or_else(|| {
            PyValueError::new_err("the rows of this stream were read already; query them again")
        })?;
        stream(py, Box::new(reader))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema(py, &self.schema)
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        names(&self.schema)
    }
}

fn names(schema: &SchemaRef) -> Vec<String> {
    let names = schema.fields().iter().map(|field| field.name().clone());
    names.collect()
}

fn stream<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let stream = FFI_ArrowArrayStream::new(reader);
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

fn schema<'py>(py: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema.as_ref())
        .map_err(|error| Error::new_err(error.to_string()))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}
