//! Writes the rows of `calls` in the order of `time`, so that every part is sorted.
//!
//! ```text
//! rows as they end      a 10   b 20   c 30   main 5     main was open all the time
//! calls/00000.parquet   a 10   b 20   c 30
//! calls/00001.parquet   main 5                          a separate part; queries merge the two
//! ```

use perfquet_events::Error;

use super::super::output::Output;
use super::batch::{CallNames, FinishedCalls};
use super::pending::{CallId, Pending};
use crate::store::TableId;
use crate::tables;

/// Maximum number of rows that wait for a separate part (13 MiB), and maximum size of their arguments in bytes.
const LATE: usize = 1 << 16;
const LATE_BYTES: usize = 16 << 20;

/// Maximum number of parts for late rows. Then they share the last one, which is not sorted.
const PARTS: usize = 48;

/// The order of the rows of one input.
#[derive(Default)]
pub(super) struct OrderedRows {
    /// The form for rows in order, from the first one on.
    table: Option<TableId>,
    /// Time of the last row in order; NULL comes first.
    last: Option<i64>,
    /// Rows in order that are not with the writer yet.
    finished: FinishedCalls,
    /// Rows that belong before those already written.
    late: Vec<(CallId, Pending)>,
    /// Size of the arguments in `late`.
    late_bytes: usize,
    /// The forms for late rows so far.
    parts: usize,
    last_part: Option<TableId>,
}

impl OrderedRows {
    /// Writes a row, at once or later.
    #[inline]
    pub(super) fn write(
        &mut self,
        (id, row): (CallId, Pending),
        names: &CallNames,
        output: &mut Output,
    ) -> Result<(), Error> {
        let time = row.head.time();
        if time < self.last {
            return self.write_later((id, row), names, output);
        }
        let table = match self.table {
            Some(table) => table,
            // Another input may have begun earlier than the last one ended.
            None if output.counts.calls > 0 => output.writer.add_form(tables::calls::schema())?,
            None => output.fixed.calls,
        };
        self.table = Some(table);
        self.last = time;
        output.counts.calls += 1;
        self.finished
            .push((id, row), names, (&mut output.writer, table))
    }

    #[cold]
    fn write_later(
        &mut self,
        (id, row): (CallId, Pending),
        names: &CallNames,
        output: &mut Output,
    ) -> Result<(), Error> {
        self.late_bytes += row.fetched_bytes();
        self.late.push((id, row));
        match self.late.len() >= LATE || self.late_bytes >= LATE_BYTES {
            true => self.write_late(names, output),
            false => Ok(()),
        }
    }

    /// Writes all rows that wait.
    pub(super) fn finish(&mut self, names: &CallNames, output: &mut Output) -> Result<(), Error> {
        self.hand_over(names, output)?;
        self.write_late(names, output)
    }

    /// Passes the rows in order to the writer.
    pub(super) fn hand_over(
        &mut self,
        names: &CallNames,
        output: &mut Output,
    ) -> Result<(), Error> {
        match self.table {
            Some(table) => self.finished.hand_over(names, (&mut output.writer, table)),
            None => Ok(()),
        }
    }

    /// Passes the rows that wait for a separate part to `change`.
    pub(super) fn each_late(&mut self, mut change: impl FnMut(&mut Pending)) {
        self.late.iter_mut().for_each(|(_, row)| change(row));
    }

    /// Writes late rows into a separate part.
    fn write_late(&mut self, names: &CallNames, output: &mut Output) -> Result<(), Error> {
        self.late_bytes = 0;
        let mut late = std::mem::take(&mut self.late);
        if late.is_empty() {
            return Ok(());
        }
        late.sort_unstable_by_key(|(id, row)| (row.head.time(), *id));
        let table = match self.last_part {
            Some(last) if self.parts >= PARTS => last,
            _ => output.writer.add_form(tables::calls::schema())?,
        };
        self.parts += 1;
        self.last_part = Some(table);
        output.counts.calls += late.len() as u64;
        let mut finished = FinishedCalls::default();
        for row in late {
            finished.push(row, names, (&mut output.writer, table))?;
        }
        finished.hand_over(names, (&mut output.writer, table))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::Trace;
    use super::super::tests::play;
    use crate::store::Part;

    /// The times of each part ascend, although some rows arrive late: calls that were open, and calls reported when they end.
    #[test]
    fn every_part_is_in_the_order_of_time() {
        let open = "> 1 a tid=1\n> 2 a tid=2\n";
        let later = "= 1000 b tid=200 dur=1 leaf\n".repeat((1 << 17) + 10);
        let closed = "< 2000 a tid=2\n< 2001 a tid=1\np 20 b tid=5 dur=30\np 10 a tid=5 dur=80\n";
        let mut trace = Trace::new();
        trace.input("one", |sink| {
            play(sink, &(open.to_owned() + &later + closed))
        });
        trace.input("two", |sink| play(sink, "> 5 c tid=5\n< 9 c tid=5\n"));
        let rows = trace.finish();
        let parts = rows.parts("calls");
        let shape = |part: &Part| {
            (
                part.rows,
                part.time_min.unwrap(),
                part.sorted,
                part.time_nulls,
            )
        };
        let found: Vec<_> = parts.iter().map(shape).collect();
        let main = (1 << 17) + 10;
        assert_eq!(
            found,
            [
                (main, 1000, true, Some(0)),
                (4, 1, true, Some(0)),
                (1, 5, true, Some(0))
            ]
        );
    }
}
