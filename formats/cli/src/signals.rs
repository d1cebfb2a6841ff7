//! Signals that would end a program without a message.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Of x86-64 and aarch64 (include/uapi/asm-generic/signal.h); signal_hook has no name for it.
const SIGXFSZ: i32 = 25;

/// Makes a write beyond the limit of a file's size (`ulimit -f`) an error. Without a handler, it ends the process.
pub fn outlive_file_limits() {
    let is_beyond = Arc::new(AtomicBool::new(false));
    // Fails only without memory; then the process ends, as without this.
    let _ = signal_hook::flag::register(SIGXFSZ, is_beyond);
}
