//! Debug info of the running kernel: lines and local variables of its functions.
//!
//! ```text
//! --kprobe 'vfs_read:12 count'      p:pq_…/vfs_read_L12 vfs_read+0x48 count=%dx:u64
//! ```
//! The file is searched where debug packages and the debuginfod client install it, or given by `--vmlinux`. It must be
//! that of the running kernel, because other kernels have other code. Its addresses are not those of the running
//! kernel, so places are given as a function and an offset.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Args;
use perfquet_trace::symbols::{CodeSymbol, Object, kernel_debug_files};

use crate::failure::{Failure, failed};
use crate::sys::host;

/// Path of the kernel's debug info.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct KernelOptions {
    /// Kernel image with debug info, for lines and local variables
    ///
    /// [default: found in /usr/lib/debug or the debuginfod cache]
    #[arg(long = "vmlinux", value_name = "PATH")]
    vmlinux: Option<PathBuf>,
}

/// The path from the command line, set once, because probes are defined far from it.
static GIVEN: OnceLock<PathBuf> = OnceLock::new();

impl KernelOptions {
    /// Must be called before probes are defined.
    pub(crate) fn set(&self) {
        if let Some(path) = &self.vmlinux {
            let _ = GIVEN.set(path.clone());
        }
    }
}

/// Like [`open`], for a function that may be in a module.
pub(crate) fn open_for(text: &str, module: Option<&str>) -> Result<Object, Failure> {
    match module {
        None => open(text),
        Some(module) => Err(failed(format!(
            "{text}: lines and local variables of modules such as {module} are not supported"
        ))
        .hint(format!(
            "use parameters at function entry: --vars {text} without a line"
        ))),
    }
}

/// Opens the kernel's debug info for the probe `text`.
pub(crate) fn open(text: &str) -> Result<Object, Failure> {
    let release = host::names().release;
    let build_id = host::kernel_build_id();
    let candidates = match GIVEN.get() {
        Some(path) => vec![path.clone()],
        None => kernel_debug_files(&release, build_id.as_deref()),
    };
    let mut reason = None;
    for path in &candidates {
        match open_one(path, build_id.as_deref()) {
            Ok(object) => return Ok(object),
            Err(message) if GIVEN.get().is_some() || path.exists() => {
                reason = reason.or(Some(format!("{}: {message}", path.display())));
            }
            Err(_) => {}
        }
    }
    let reason = reason.unwrap_or_else(|| format!("none is installed for {release}"));
    Err(failed(format!(
        "{text}: kernel lines and local variables require debug info: {reason}"
    ))
    .hint(format!(
        "install the kernel's debug package (Debian: linux-image-{release}-dbg), or use --vmlinux PATH; \
         parameters at function entry do not require it"
    )))
}

fn open_one(path: &Path, running: Option<&[u8]>) -> Result<Object, String> {
    let object = Object::open_kernel(path).map_err(|error| error.to_string())?;
    match (object.build_id(), running) {
        (Some(found), Some(running)) if found == running => Ok(object),
        (Some(_), Some(_)) => Err("it belongs to another kernel (its build ID differs)".to_owned()),
        _ => Err("cannot verify that it belongs to the running kernel (no build ID)".to_owned()),
    }
}

/// Finds a function.
pub(crate) fn symbol(text: &str, object: &Object, function: &str) -> Result<CodeSymbol, Failure> {
    let mut all = object.functions().into_iter();
    all.find(|symbol| symbol.name == function).ok_or_else(|| {
        failed(format!(
            "{text}: the kernel's debug info does not describe {function}"
        ))
        .hint("use functions of the kernel itself; debug info of modules is not read")
    })
}
