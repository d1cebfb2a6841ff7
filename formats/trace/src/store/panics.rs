//! Turns panics of the Parquet reader into errors: it checks less than a damaged or hostile file demands.
//!
//! ```text
//! guarded(|| reader.next())      reads of the store: the panic is caught, its message becomes the error's
//! watch_readers()                for the threads of a query engine: the message is kept instead of printed
//! ```

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::{Component, Path};
use std::sync::{Mutex, Once, PoisonError};

thread_local! {
    /// Whether this thread is inside [`guarded`].
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Message of the reader's last panic.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Runs code of the reader. The error is the message of its panic, which is not printed.
pub(super) fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    watch_readers();
    let before = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    IS_GUARDED.set(before);
    result.map_err(|_| reader_panic().unwrap_or_else(|| "the reader panicked".to_owned()))
}

/// Installs a hook that keeps panics inside the Parquet reader for [`reader_panic`] instead of printing them.
pub fn watch_readers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_GUARDED.get() || is_of_reader(info) {
                let message = info.payload_as_str().unwrap_or("no message");
                *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.to_owned());
            } else {
                others(info);
            }
        }));
    });
}

/// Takes the message of the last panic inside the Parquet reader, on whichever thread.
pub fn reader_panic() -> Option<String> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Whether the panic is in the sources of parquet or of an arrow crate: `…/parquet-59.3.2/src/…`.
fn is_of_reader(info: &PanicHookInfo<'_>) -> bool {
    let steps = info
        .location()
        .map(|place| Path::new(place.file()).components());
    steps.into_iter().flatten().any(|step| match step {
        Component::Normal(name) => {
            let name = name.to_string_lossy();
            name.starts_with("parquet-") || name.starts_with("arrow-")
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(guarded(|| 5), Ok(5));
        let failed = guarded(|| -> u32 { panic!("offset + {} out of bounds", "len") });
        assert_eq!(failed, Err("offset + len out of bounds".to_owned()));
        assert!(!IS_GUARDED.get());
    }
}
