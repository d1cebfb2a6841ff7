//! Machine code that the recorder kept, as rows of `code`. The table exists only if there is some.

use perfquet_events::Error;
use perfquet_events::event::KeptCode;

use super::Normalizer;
use super::fixed_tables::added;
use super::life::hexadecimal;
use crate::symbols::Machine;
use crate::tables;

impl Normalizer<'_> {
    /// Adds the code of a function.
    pub(super) fn kept_code(&mut self, kept: &KeptCode<'_>) -> Result<(), Error> {
        let output = &mut self.output;
        let table = added(
            &mut output.fixed.code,
            &mut output.writer,
            tables::code::schema,
        )?;
        let build_id = kept.build_id.map(hexadecimal);
        tables::code::Row {
            time: kept.time,
            pid: kept.pid,
            module: kept.module,
            build_id: build_id.as_deref().map(str::as_bytes),
            function_start: kept.start,
            address: kept.address,
            size: i64::try_from(kept.size).unwrap_or(i64::MAX),
            machine: Machine::of_number(kept.machine).name().as_bytes(),
            code: kept.code,
        }
        .push(output.writer.rows(table));
        output.writer.end_row(table)?;
        self.make_room()
    }
}
