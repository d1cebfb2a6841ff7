//! The thread that builds tables of unwind rules, which takes milliseconds for a library and a second for a compiler.

use std::sync::mpsc::{Receiver, Sender, channel};

use perfquet_trace::symbols::{TableSource, UnwindTable};

use crate::sys::thread;

/// A running builder thread. It ends when this is dropped.
pub(super) struct Builder {
    requests: Sender<(u32, TableSource)>,
    built: Receiver<(u32, UnwindTable)>,
    waiting: usize,
}

impl Builder {
    pub(super) fn start() -> Builder {
        let (requests, requested) = channel::<(u32, TableSource)>();
        let (results, built) = channel();
        // Keeps the inherited thread name: the filter that excludes the recorder matches by name.
        std::thread::spawn(move || {
            // Until the tables exist, the draining thread is busy with copies, and runs before all others: at normal
            // priority, on a slow or busy host, this thread would wait for as long as copies keep coming.
            thread::make_preferred();
            for (file, source) in requested {
                if results.send((file, source.build())).is_err() {
                    return;
                }
            }
        });
        Builder {
            requests,
            built,
            waiting: 0,
        }
    }

    /// Requests a table.
    pub(super) fn request(&mut self, file: u32, source: TableSource) {
        if self.requests.send((file, source)).is_ok() {
            self.waiting += 1;
        }
    }

    /// Returns whether tables are being built.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting > 0
    }

    /// Returns the next finished table.
    pub(super) fn take(&mut self) -> Option<(u32, UnwindTable)> {
        let built = self.built.try_recv().ok()?;
        self.waiting -= 1;
        Some(built)
    }
}
