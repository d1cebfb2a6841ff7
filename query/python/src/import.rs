//! Imports: files of any format into a trace directory, or into a temporary one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use perfquet_events::event::Progress;
use perfquet_events::{Format, Input};
use perfquet_import::{ImportOptions, Importer};
use perfquet_readers::FORMATS;
use perfquet_trace::store::WriterOptions;
use perfquet_trace::symbols::{self, Debuginfod, KernelSource};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::{of_input, path};
use crate::waiting;

/// Names of the formats that can be imported, and what each is.
#[pyfunction]
pub(crate) fn formats() -> Vec<(&'static str, &'static str)> {
    let formats = FORMATS.iter().map(|format| (format.name, format.about));
    formats.collect()
}

/// Imports files into a trace directory; returns what was read.
#[pyfunction]
#[pyo3(signature = (inputs, output, format, symbols, debuginfod, force, progress))]
pub(crate) fn convert<'py>(
    py: Python<'py>,
    inputs: Vec<Bound<'py, PyAny>>,
    output: &Bound<'py, PyAny>,
    format: Option<&str>,
    symbols: Option<Vec<Bound<'py, PyAny>>>,
    debuginfod: bool,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let output = path(output)?;
    let import = Import::new(inputs, format, symbols, debuginfod)?;
    let report = import.run(py, progress, move |inputs, mut options| {
        options.store = WriterOptions {
            force,
            mode: 0o777,
            ..WriterOptions::default()
        };
        perfquet_import::import(inputs, &output, options)
    })?;
    summary(py, &report)
}

/// A trace in a temporary directory, which is removed with this object.
#[pyclass(module = "perfquet._perfquet", frozen)]
pub(crate) struct Imported {
    /// `Imported` itself is not `Sync`.
    imported: Mutex<perfquet_import::Imported>,
}

#[pymethods]
impl Imported {
    /// The trace directory.
    #[getter]
    fn path(&self) -> PathBuf {
        let imported = self.imported.lock();
        let imported = imported.unwrap_or_else(PoisonError::into_inner);
        imported.path().to_owned()
    }

    /// What was read.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let imported = self.imported.lock();
        let imported = imported.unwrap_or_else(PoisonError::into_inner);
        summary(py, imported.report())
    }
}

/// Imports files, or the bytes of one file, into a temporary directory.
#[pyfunction]
#[pyo3(signature = (inputs, bytes, format, symbols, debuginfod, progress))]
pub(crate) fn read<'py>(
    py: Python<'py>,
    inputs: Vec<Bound<'py, PyAny>>,
    bytes: Option<&[u8]>,
    format: Option<&str>,
    symbols: Option<Vec<Bound<'py, PyAny>>>,
    debuginfod: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Imported> {
    let mut import = Import::new(inputs, format, symbols, debuginfod)?;
    if let Some(bytes) = bytes {
        let name = import.paths.pop().unwrap_or_default();
        let input = Input::from_bytes(&name.to_string_lossy(), bytes);
        import.ready.push(input.map_err(|error| of_input(&error))?);
    }
    let imported = import.run(py, progress, |inputs, options| {
        Importer::new(options).import(inputs)
    })?;
    Ok(Imported {
        imported: Mutex::new(imported),
    })
}

/// Inputs and options of an import.
struct Import {
    paths: Vec<PathBuf>,
    /// Inputs that are open.
    ready: Vec<Input>,
    format: Option<&'static Format>,
    symbols: symbols::Options,
}

impl Import {
    fn new(
        inputs: Vec<Bound<'_, PyAny>>,
        format: Option<&str>,
        symbols: Option<Vec<Bound<'_, PyAny>>>,
        debuginfod: bool,
    ) -> PyResult<Import> {
        let format = format.map(|name| {
            let found = FORMATS.iter().find(|format| format.name == name);
            found.copied().ok_or_else(|| {
                let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
                PyValueError::new_err(format!(
                    "expected a format, {}; found {name:?}",
                    names.join(", ")
                ))
            })
        });
        let mut options = symbols::Options::default();
        match symbols {
            Some(paths) if paths.is_empty() => {
                options.kernel = KernelSource::None;
                options.user = false;
                options.system = false;
            }
            paths => {
                for given in paths.iter().flatten() {
                    options
                        .add(&path(given)?)
                        .map_err(|error| of_input(&error))?;
                }
            }
        }
        if debuginfod {
            options.debuginfod = Debuginfod::from_environment();
            if options.debuginfod.is_none() {
                let text = "debuginfod: the environment variable DEBUGINFOD_URLS names no server";
                return Err(PyValueError::new_err(text));
            }
        }
        Ok(Import {
            paths: inputs.iter().map(path).collect::<PyResult<_>>()?,
            ready: Vec::new(),
            format: format.transpose()?,
            symbols: options,
        })
    }

    /// Runs an import; `progress` is called with the bytes that are read and all bytes, or None if unknown.
    fn run<T: Send + 'static>(
        self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        import: impl FnOnce(Vec<Input>, ImportOptions) -> Result<T, perfquet_events::Error>
        + Send
        + 'static,
    ) -> PyResult<T> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Seen::default());
        let told = Arc::clone(&seen);
        let options = ImportOptions {
            from: self.format,
            symbols: self.symbols,
            stop: Some(Arc::clone(&stop)),
            progress: progress
                .is_some()
                .then(|| Box::new(move |progress| told.put(progress)) as perfquet_import::Listener),
            ..ImportOptions::default()
        };
        let (paths, ready) = (self.paths, self.ready);
        let work = move || {
            let opened = paths.iter().map(|path| Input::open(path));
            let inputs = ready.into_iter().map(Ok).chain(opened);
            import(inputs.collect::<Result<_, _>>()?, options)
        };
        let report = |py: Python<'_>| match &progress {
            Some(listener) => seen.call(py, listener),
            None => Ok(()),
        };
        let imported = waiting::run(py, work, || stop.store(true, Ordering::Relaxed), report)?;
        imported.map_err(|error| of_input(&error))
    }
}

/// The progress of an import: bytes read, and all bytes; 0 if unknown.
#[derive(Default)]
struct Seen {
    done: AtomicU64,
    total: AtomicU64,
}

impl Seen {
    fn put(&self, progress: Progress) {
        self.done.store(progress.done, Ordering::Relaxed);
        self.total
            .store(progress.total.unwrap_or(0), Ordering::Relaxed);
    }

    fn call(&self, py: Python<'_>, listener: &Py<PyAny>) -> PyResult<()> {
        let total = Some(self.total.load(Ordering::Relaxed)).filter(|&total| total > 0);
        listener.call1(py, (self.done.load(Ordering::Relaxed), total))?;
        Ok(())
    }
}

/// What an import read: "lost" is the known number of lost events, "losses" that of rows of the table with this name.
fn summary<'py>(py: Python<'py>, report: &perfquet_trace::Report) -> PyResult<Bound<'py, PyDict>> {
    let counts = &report.counts;
    let summary = PyDict::new(py);
    summary.set_item("formats", report.formats.clone())?;
    summary.set_item("rows", report.rows.clone())?;
    summary.set_item("lost", counts.lost)?;
    summary.set_item("losses", counts.losses)?;
    summary.set_item("uncounted_losses", counts.uncounted_losses)?;
    summary.set_item("problems", counts.problems)?;
    summary.set_item("frames", counts.frames)?;
    summary.set_item("named_frames", counts.named_frames)?;
    summary.set_item("input_bytes", report.input_bytes)?;
    summary.set_item("output_bytes", report.output_bytes)?;
    Ok(summary)
}
