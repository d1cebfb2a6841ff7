//! Files that were open in processes, as rows of `open_files`. The table exists only if there are some.

use perfquet_events::Error;
use perfquet_events::event::OpenFile;

use super::Normalizer;
use super::fixed_tables::added;
use crate::tables;

impl Normalizer<'_> {
    /// Adds an open file.
    pub(super) fn open_file(&mut self, file: &OpenFile<'_>) -> Result<(), Error> {
        let output = &mut self.output;
        let table = added(
            &mut output.fixed.open_files,
            &mut output.writer,
            tables::open_files::schema,
        )?;
        tables::open_files::Row {
            time: file.time,
            pid: file.pid,
            fd: file.fd,
            path: file.path,
        }
        .push(output.writer.rows(table));
        output.writer.end_row(table)?;
        self.make_room()
    }
}
