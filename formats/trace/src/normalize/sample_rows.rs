//! Usual rows of `samples` on their way to columns, which are filled on the encoder's thread.

use std::sync::Arc;

use perfquet_events::Error;

use super::heads::{Head, push_heads};
use super::spare::Spare;
use crate::store::{Fill, Names, Rows, TableId, Writer};
use crate::tables;

/// Rows in a batch; they stay in a core's cache. Divides the rows of a page.
const ROWS: usize = 1024;

/// A row without unusual members.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleRow {
    pub(crate) head: Head,
    /// The event's name, by its ID.
    pub(crate) event: u32,
    pub(crate) period: Option<i64>,
    pub(crate) ip: Option<u64>,
}

/// Rows of one input.
#[derive(Debug)]
struct Batch {
    rows: Vec<SampleRow>,
    comms: Names,
    events: Names,
    home: Arc<Spare<Vec<SampleRow>>>,
}

impl Fill for Batch {
    fn fill(self: Box<Self>, rows: &mut Rows) -> usize {
        let Batch {
            rows: mut samples,
            comms,
            events,
            home,
        } = *self;
        let count = samples.len();
        let columns = rows.columns_mut();
        let common = tables::common::NAMES.len().min(columns.len());
        let (common, columns) = columns.split_at_mut(common);
        push_heads(common, samples.iter().map(|row| &row.head), &comms);
        if let [event, period, ip, unusual @ ..] = columns {
            event.extend_named(&events, samples.iter().map(|row| Some(row.event)));
            period.extend_some(64, samples.iter().map(|row| row.period));
            // Bits of a signed integer.
            ip.extend_some(64, samples.iter().map(|row| row.ip.map(|ip| ip as i64)));
            unusual
                .iter_mut()
                .for_each(|column| column.push_nulls(count));
        }
        samples.clear();
        home.put(samples);
        count
    }
}

/// The rows that are not with the writer yet.
#[derive(Default)]
pub(crate) struct SampleRows {
    rows: Vec<SampleRow>,
    /// The names of threads and of events.
    names: Option<(Names, Names)>,
    spare: Arc<Spare<Vec<SampleRow>>>,
}

impl SampleRows {
    /// Adds a row. Names are those of threads and of events; before others come, all rows are handed over.
    #[inline]
    pub(crate) fn push(
        &mut self,
        row: SampleRow,
        (comms, events): (&Names, &Names),
        to: (&mut Writer, TableId),
    ) -> Result<(), Error> {
        if self.names.is_none() {
            self.names = Some((comms.clone(), events.clone()));
        }
        self.rows.push(row);
        if self.rows.len() >= ROWS {
            return self.hand_over(to);
        }
        Ok(())
    }

    /// Passes the rows on.
    pub(crate) fn hand_over(
        &mut self,
        (writer, table): (&mut Writer, TableId),
    ) -> Result<(), Error> {
        let Some((comms, events)) = self.names.take() else {
            return Ok(());
        };
        let next = self.spare.take().unwrap_or_default();
        let rows = std::mem::replace(&mut self.rows, next);
        let bytes = size_of_val(&rows[..]);
        let home = Arc::clone(&self.spare);
        let batch = Batch {
            rows,
            comms,
            events,
            home,
        };
        writer.fill(table, Box::new(batch), bytes)
    }
}
