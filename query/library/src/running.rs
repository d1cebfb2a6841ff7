//! Queries that run while their caller does something else: several at once, each with its own end.
//!
//! ```text
//! Session::start ─► planner's thread ─► task of the runtime ─► channel ─► Running::next(patience)
//!                                             ▲ aborted by dropping Running
//! ```
//! Unlike `Session::query`, they do not watch for Ctrl-C.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::explain::{self, Known};

/// Batches that wait for the caller; then the query waits too.
const WAITING: usize = 4;

/// A query that runs. Dropping it ends the query.
pub struct Running<'a> {
    known: &'a (dyn Known + Sync),
    sql: String,
    receiver: Receiver<Message>,
    stop: Arc<Stop>,
}

/// What a running query has answered.
#[derive(Debug)]
pub enum Step {
    /// The columns, before any rows, and the unit of each as tables and views declare it: "ns", "time", "share".
    Columns(SchemaRef, Vec<Option<String>>),
    /// Rows.
    Rows(RecordBatch),
    /// Nothing within the time.
    Waiting,
    /// All rows were returned.
    End,
}

pub(crate) enum Message {
    Columns(SchemaRef, Vec<Option<String>>),
    Rows(RecordBatch),
    Failed(DataFusionError),
    End,
}

/// Ends the task of a query, also one that has not started.
#[derive(Default)]
struct Stop(Mutex<(bool, Option<AbortHandle>)>);

impl Stop {
    fn stop(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(task) = state.1.take() {
            task.abort();
        }
    }

    /// Starts a task unless it was stopped before.
    fn start(&self, handle: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.0 {
            state.1 = Some(handle.spawn(task).abort_handle());
        }
    }
}

/// A planned query.
pub(crate) struct Planned {
    pub(crate) columns: SchemaRef,
    pub(crate) units: Vec<Option<String>>,
    pub(crate) stream: SendableRecordBatchStream,
}

/// Returns the work of the planner's thread, and the query.
pub(crate) fn start<'a>(
    known: &'a (dyn Known + Sync),
    sql: &str,
    handle: Handle,
    planned: impl Future<Output = PlanResult<Planned>> + Send + 'static,
) -> (impl FnOnce() + Send + 'static, Running<'a>) {
    let (sender, receiver) = sync_channel(WAITING);
    let stop = Arc::new(Stop::default());
    let of_planner = Arc::clone(&stop);
    let work = move || match handle.block_on(planned) {
        // Nobody listens any more if sending fails.
        Err(error) => drop(sender.send(Message::Failed(error))),
        Ok(planned) => {
            if sender
                .send(Message::Columns(planned.columns, planned.units))
                .is_ok()
            {
                of_planner.start(&handle, rows(planned.stream, sender));
            }
        }
    };
    let running = Running {
        known,
        sql: sql.to_owned(),
        receiver,
        stop,
    };
    (work, running)
}

async fn rows(mut stream: SendableRecordBatchStream, sender: SyncSender<Message>) {
    while let Some(next) = stream.next().await {
        let (message, is_last) = match next {
            Ok(batch) => (Message::Rows(batch), false),
            Err(error) => (Message::Failed(error), true),
        };
        // Other tasks of this thread move to another one while it waits.
        let sent = tokio::task::block_in_place(|| sender.send(message));
        if is_last || sent.is_err() {
            return;
        }
    }
    let _ = tokio::task::block_in_place(|| sender.send(Message::End));
}

impl Running<'_> {
    /// Returns what comes next, waiting for at most `patience`.
    ///
    /// # Errors
    ///
    /// The query failed; the text is that of `Session::query`.
    pub fn next(&mut self, patience: Duration) -> Result<Step> {
        match self.receiver.recv_timeout(patience) {
            Ok(Message::Columns(columns, units)) => Ok(Step::Columns(columns, units)),
            Ok(Message::Rows(batch)) => Ok(Step::Rows(batch)),
            Ok(Message::Failed(error)) => Err(explain::error(error, &self.sql, Some(self.known))),
            Ok(Message::End) => Ok(Step::End),
            Err(RecvTimeoutError::Timeout) => Ok(Step::Waiting),
            Err(RecvTimeoutError::Disconnected) => Err(explain::panic()),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl std::fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("sql", &self.sql).finish()
    }
}
