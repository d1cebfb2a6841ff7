//! The extension module of the Python package `perfquet`: sessions, rows, reports and imports.
//!
//! ```text
//! perfquet/__init__.py ─► _perfquet ─► Session (perfquet) ─► Reader ─► Rows, Stream: __arrow_c_stream__
//!                                  └─► reports (perfquet-query), imports (perfquet-import)
//! ```
//! The interpreter's lock is free while anything waits; every wait checks for signals, so that Ctrl-C works. Messages of the
//! libraries wait until a call ends and become Python's warnings: threads of the engine never need the lock.

mod failure;
mod import;
mod reader;
mod report;
mod rows;
mod session;
mod waiting;

use pyo3::prelude::*;

/// Sessions, rows, reports and imports; use the package `perfquet`.
#[pymodule]
mod _perfquet {
    #[pymodule_export]
    use crate::failure::{Error, QueryError, TraceError};
    #[pymodule_export]
    use crate::import::{convert, formats, read};
    #[pymodule_export]
    use crate::report::{report, reports, run};
    #[pymodule_export]
    use crate::rows::{Rows, Stream};
    #[pymodule_export]
    use crate::session::Session;

    use super::*;

    #[pymodule_init]
    fn start(module: &Bound<'_, PyModule>) -> PyResult<()> {
        perfquet_trace::store::watch_readers();
        perfquet_cli::terminal::set_program("perfquet");
        perfquet_cli::logger::start(0, perfquet_cli::terminal::log);
        perfquet_cli::terminal::hold_messages();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    /// Takes the messages since the last call.
    #[pyfunction]
    fn messages() -> Vec<String> {
        perfquet_cli::terminal::take_messages()
    }
}
