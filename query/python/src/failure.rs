//! Errors as Python's exceptions.

use perfquet::failure::{Interrupted, Misuse};
use pyo3::exceptions::{
    PyException, PyFileExistsError, PyFileNotFoundError, PyKeyboardInterrupt, PyOSError,
    PyPermissionError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::{create_exception, intern};

create_exception!(
    perfquet,
    Error,
    PyException,
    "Base class of perfquet's exceptions."
);
create_exception!(
    perfquet,
    QueryError,
    Error,
    "A query is wrong or failed; the text names the place in the query."
);
create_exception!(
    perfquet,
    TraceError,
    Error,
    "A trace or an input cannot be read."
);

/// Returns the exception of an error of `perfquet` or `perfquet-query`; `other` is that of errors without a better one.
pub(crate) fn exception(error: &anyhow::Error, other: impl FnOnce(String) -> PyErr) -> PyErr {
    if error.is::<Interrupted>() {
        return PyKeyboardInterrupt::new_err(());
    }
    let text = format!("{error:#}");
    if error.is::<Misuse>() {
        return PyValueError::new_err(text);
    }
    let causes = || error.chain();
    if let Some(error) = causes().find_map(|cause| cause.downcast_ref::<std::io::Error>()) {
        return of_system(error, &text).unwrap_or_else(|| other(text));
    }
    match causes().find_map(|cause| cause.downcast_ref::<perfquet_events::Error>()) {
        Some(error) => of_input(error),
        None => other(text),
    }
}

/// Returns the exception of an import.
pub(crate) fn of_input(error: &perfquet_events::Error) -> PyErr {
    let text = error.to_string();
    match error {
        perfquet_events::Error::Io { source, .. } => {
            of_system(source, &text).unwrap_or_else(|| TraceError::new_err(text))
        }
        perfquet_events::Error::Exists { .. } => PyFileExistsError::new_err(text),
        perfquet_events::Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        _ => TraceError::new_err(text),
    }
}

/// Returns the exception of an error of the system.
fn of_system(error: &std::io::Error, text: &str) -> Option<PyErr> {
    let text = text.to_owned();
    Some(match error.kind() {
        std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
        std::io::ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
        std::io::ErrorKind::AlreadyExists => PyFileExistsError::new_err(text),
        _ => PyOSError::new_err((error.raw_os_error()?, text)),
    })
}

/// Returns a path or text of Python: `str`, `bytes`, or an object with `__fspath__`.
pub(crate) fn path(of: &Bound<'_, PyAny>) -> PyResult<std::path::PathBuf> {
    let py = of.py();
    let encoded = py
        .import(intern!(py, "os"))?
        .call_method1(intern!(py, "fsdecode"), (of,))?;
    encoded.extract()
}
