//! Columns of a trace's tables by the pages of their files: how many rows are from when to when, without reading them.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::Result;
use arrow::array::Int64Array;
use perfquet_trace::store::{self, TimePage};

use crate::trace::Trace;

impl Trace {
    /// Returns the pages of the column `time` of a table, for each of its parts. `None` if they are not known, as in a lake and behind a URL.
    ///
    /// # Errors
    ///
    /// A part is missing or damaged.
    pub fn time_pages(&self, table: &str) -> Result<Option<Vec<Vec<TimePage>>>> {
        let Some(table) = self.table(table).filter(|_| self.is_here()) else {
            return Ok(None);
        };
        let mut pages = Vec::new();
        for part in &table.parts {
            match store::time_pages(&self.root, &part.entry)? {
                Some(of_part) => pages.push(of_part),
                None => return Ok(None),
            }
        }
        Ok(Some(pages))
    }

    /// Calls `each` with the values of a column of integers in ranges of rows of a part, which are in order and do not overlap.
    ///
    /// # Errors
    ///
    /// There is no such part, it is missing or damaged, or has no such column.
    pub fn integers_of_rows(
        &self,
        table: &str,
        part: usize,
        column: &str,
        rows: &[Range<u64>],
        each: impl FnMut(&Int64Array),
    ) -> Result<()> {
        let found = self.table(table).and_then(|table| table.parts.get(part));
        let Some(part) = found else {
            anyhow::bail!("{table}: no part {part}");
        };
        Ok(store::integers_of_rows(
            &self.root,
            &part.entry,
            column,
            rows,
            each,
        )?)
    }

    /// Returns all values of a column of 32-bit integers, from the dictionaries of its files. `None` if these do not have all values, or if there
    /// may be NULLs.
    ///
    /// # Errors
    ///
    /// A part is missing or damaged.
    pub fn dictionary(&self, table: &str, column: &str) -> Result<Option<BTreeSet<i64>>> {
        let Some(table) = self.table(table).filter(|_| self.is_here()) else {
            return Ok(None);
        };
        let mut values = BTreeSet::new();
        for part in table.parts.iter().filter(|part| part.entry.rows > 0) {
            match store::dictionary(&self.root, &part.entry, column)? {
                Some(of_part) => values.extend(of_part),
                None => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    /// Whether its files are on this host.
    fn is_here(&self) -> bool {
        !matches!(self.root, store::Root::Remote(_))
            && !perfquet_trace::remote::is_url(&self.path.to_string_lossy())
    }
}
