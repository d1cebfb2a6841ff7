//! Files and directories that are removed when a signal ends the process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Paths that are removed when a signal ends the process.
static PASSING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn passing() -> MutexGuard<'static, Vec<PathBuf>> {
    PASSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the signals ignored since the start of the process, as by nohup: bit 0 is signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Removes this file or directory if the process is interrupted.
pub(crate) fn remove_when_interrupted(path: &Path) -> Result<()> {
    let mut paths = passing();
    if paths.is_empty() {
        let ignored = ignored_signals();
        let heard = [SIGHUP, SIGINT, SIGTERM].into_iter();
        let heard = heard.filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(heard).context("cannot listen for signals")?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    for path in passing().drain(..) {
                        remove(&path);
                    }
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            })
            .context("cannot start a thread")?;
    }
    paths.push(path.to_owned());
    Ok(())
}

/// Removes a file or directory. Until the process ends, its other threads may write another file to the directory.
fn remove(path: &Path) {
    for _ in 0..50 {
        // Only one of the two calls can succeed, and the path may already be removed.
        let _ = std::fs::remove_dir_all(path);
        let _ = std::fs::remove_file(path);
        if path.symlink_metadata().is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Leaves a file or directory to the next process if this one is interrupted.
pub(crate) fn keep_when_interrupted(path: &Path) {
    passing().retain(|passing| passing != path);
}
