//! The threads on which requests run. Callers may have any runtime, or none.

use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};

static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();

fn runtime() -> io::Result<&'static Runtime> {
    let started = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("perfquet-remote")
            .enable_all()
            .build()
    });
    started
        .as_ref()
        .map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

/// Runs a request, and waits for it.
pub(crate) fn wait<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        let _ = sender.send(request.await);
    });
    // The sender is dropped without a value if the client panics.
    receiver.recv().unwrap_or_else(|_| Err(panicked()))
}

/// Starts a request.
pub(crate) async fn start<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    match runtime()?.spawn(request).await {
        Ok(result) => result,
        Err(_) => Err(panicked()),
    }
}

fn panicked() -> io::Error {
    io::Error::other("the answer of the server is invalid")
}
