//! A query that runs on a thread of its own: its rows as a reader of Arrow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::ThreadId;
use std::time::Duration;

use anyhow::{Result, anyhow};
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use perfquet::Step;

use crate::waiting::Waiter;

/// Messages that wait for their consumer; then the query waits too.
const WAITING: usize = 2;
/// Time between two looks at whether the rows are still wanted.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the query's thread sends: columns, rows, and the end or a failure.
pub(crate) enum Message {
    Columns(SchemaRef),
    Rows(RecordBatch),
    Failed(anyhow::Error),
    End,
}

/// A query that runs; dropping it ends the query.
pub(crate) struct Query {
    pub(crate) messages: Waiter<Message>,
    is_over: Arc<AtomicBool>,
}

impl Query {
    /// Starts a query.
    pub(crate) fn start(session: Arc<perfquet::Session>, sql: String) -> std::io::Result<Query> {
        let (sender, messages) = sync_channel(WAITING);
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("perfquet-query".to_owned());
        thread.spawn(move || {
            let answered = answer(&session, &sql, &sender, &told);
            let last = answered.map_or_else(Message::Failed, |()| Message::End);
            // Nobody listens any more if sending fails.
            let _ = sender.send(last);
        })?;
        Ok(Query {
            messages: Waiter::new(messages),
            is_over,
        })
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn answer(
    session: &perfquet::Session,
    sql: &str,
    sender: &SyncSender<Message>,
    is_over: &AtomicBool,
) -> Result<()> {
    let mut running = session.start(sql)?;
    loop {
        let message = match running.next(PATIENCE)? {
            Step::Columns(schema, _) => Message::Columns(perfquet_query::plain_schema(&schema)),
            Step::Rows(batch) => Message::Rows(perfquet_query::plain(&batch)?),
            Step::Waiting if is_over.load(Ordering::Relaxed) => return Ok(()),
            Step::Waiting => continue,
            Step::End => return Ok(()),
        };
        if sender.send(message).is_err() {
            return Ok(());
        }
    }
}

/// The rows of a query, as they come.
pub(crate) struct Reader {
    pub(crate) query: Query,
    pub(crate) schema: SchemaRef,
    pub(crate) is_at_end: bool,
    /// The thread that asked for the rows.
    pub(crate) owner: ThreadId,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_at_end {
            return None;
        }
        let error = match self.query.messages.receive(self.owner) {
            Ok(Some(Message::Rows(batch))) => return Some(Ok(batch)),
            Ok(Some(Message::End)) => None,
            Ok(Some(Message::Failed(error))) => Some(error),
            // Columns come once, before the reader exists.
            Ok(Some(Message::Columns(_)) | None) => Some(anyhow!("the query ended too early")),
            Err(signal) => Some(anyhow!("interrupted: {signal}")),
        };
        self.is_at_end = true;
        error.map(|error| Err(ArrowError::ExternalError(format!("{error:#}").into())))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}
