//! A column of a part by its pages: between which times they are, the values of some of them, and all values that there are.
//!
//! ```text
//! page        0            1            2
//! rows        65,536       65,536       40,000       without reading them
//! times       5 .. 901     901 .. 1,780 1,781 .. 2,900
//! ```
//! The index of pages in the footer has this. A reader that counts rows by time reads only pages at the edges of what it counts.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, Int64Array};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageReader as _};
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::Length as _;
use parquet::file::serialized_reader::SerializedPageReader;
use perfquet_events::Error;
use perfquet_events::bytes::Endian;

use super::chunks::check_chunks;
use super::directory::{Root, damaged};
use super::manifest::Part;
use super::panics::guarded;
use super::part_file::PartFile;

/// A page of the column `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimePage {
    /// Number of rows of the part before it.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of rows whose time is NULL.
    pub nulls: u64,
    /// Smallest and largest time; `None` if all are NULL.
    pub times: Option<(i64, i64)>,
}

/// Returns the pages of `time` in a part, in order. `None` if the part has no index of them, or shares its file with other parts.
pub fn time_pages(trace: &Root, part: &Part) -> Result<Option<Vec<TimePage>>, Error> {
    if part.range.is_some() {
        return Ok(None);
    }
    let (path, file) = trace.part(part)?;
    let builder = indexed(&path, file)?;
    let metadata = builder.metadata();
    let (mut pages, mut first_row) = (Vec::new(), 0_u64);
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let Some(of_group) = pages_of(metadata, number, group, first_row) else {
            return Ok(None);
        };
        pages.extend(of_group);
        first_row = first_row.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
    }
    Ok((first_row == part.rows).then_some(pages))
}

/// The pages of a row group; `None` if its index is missing or does not fit.
fn pages_of(
    metadata: &ParquetMetaData,
    number: usize,
    group: &RowGroupMetaData,
    first_row: u64,
) -> Option<Vec<TimePage>> {
    let is_time = |chunk: &ColumnChunkMetaData| chunk.column_path().string() == "time";
    let place = group.columns().iter().position(is_time)?;
    let ColumnIndexMetaData::INT64(index) = metadata.column_index()?.get(number)?.get(place)?
    else {
        return None;
    };
    let locations = metadata.offset_index()?.get(number)?.get(place)?;
    let locations = locations.page_locations();
    if index.num_pages() != locations.len() as u64 {
        return None;
    }
    let of_group = u64::try_from(group.num_rows()).ok()?;
    let row = |page: usize| match locations.get(page) {
        Some(location) => u64::try_from(location.first_row_index).ok(),
        None => Some(of_group),
    };
    let mut pages = Vec::with_capacity(locations.len());
    for page in 0..locations.len() {
        let (begin, end) = (row(page)?, row(page + 1)?);
        let rows = end.checked_sub(begin)?;
        let nulls = u64::try_from(index.null_count(page)?).ok()?;
        let times = match rows.checked_sub(nulls)? {
            0 => None,
            _ => Some((*index.min_value(page)?, *index.max_value(page)?)),
        };
        if times.is_some_and(|(least, most)| least > most) {
            return None;
        }
        pages.push(TimePage {
            first_row: first_row.checked_add(begin)?,
            rows,
            nulls,
            times,
        });
    }
    (locations.is_empty() || row(0) == Some(0)).then_some(pages)
}

/// Calls `each` with the values of a column of integers in ranges of rows of a part, which are in order and do not overlap.
pub fn integers_of_rows(
    trace: &Root,
    part: &Part,
    column: &str,
    ranges: &[Range<u64>],
    mut each: impl FnMut(&Int64Array),
) -> Result<(), Error> {
    let (path, file) = trace.part(part)?;
    let builder = indexed(&path, file)?;
    let unfit = |error: &dyn std::fmt::Display| damaged(&path, error);
    let place = builder.schema().index_of(column);
    let place = place.map_err(|error| unfit(&error))?;
    let rows = usize::try_from(part.rows).map_err(|error| unfit(&error))?;
    let narrow = |row: u64| usize::try_from(row).unwrap_or(usize::MAX).min(rows);
    let ranges = ranges
        .iter()
        .map(|range| narrow(range.start)..narrow(range.end));
    let selection = RowSelection::from_consecutive_ranges(ranges, rows);
    let mask = ProjectionMask::roots(builder.parquet_schema(), [place]);
    let builder = builder
        .with_projection(mask)
        .with_row_selection(selection)
        .with_batch_size(1 << 16);
    let reader = guarded(|| builder.build()).map_err(|panic| unfit(&panic))?;
    let mut reader = reader.map_err(|error| unfit(&error))?;
    while let Some(batch) = guarded(|| reader.next()).map_err(|panic| unfit(&panic))? {
        let batch = batch.map_err(|error| unfit(&error))?;
        match integers(batch.column(0)) {
            Some(values) => each(&values),
            None => return Err(unfit(&format!("column {column}: expected integers"))),
        }
    }
    Ok(())
}

fn integers(array: &ArrayRef) -> Option<Int64Array> {
    if let Some(values) = array.as_primitive_opt::<Int64Type>() {
        return Some(values.clone());
    }
    let values = array.as_primitive_opt::<Int32Type>()?;
    Some(values.iter().map(|value| value.map(i64::from)).collect())
}

/// Returns all values of a column of 32-bit integers, of each row group from its dictionary. `None` if that does not have all values, or if there
/// may be NULLs.
pub fn dictionary(trace: &Root, part: &Part, column: &str) -> Result<Option<BTreeSet<i64>>, Error> {
    if part.range.is_some() {
        return Ok(None);
    }
    let (path, file) = trace.part(part)?;
    let builder = indexed(&path, file.clone())?;
    let file = Arc::new(file);
    let mut values = BTreeSet::new();
    for group in builder.metadata().row_groups() {
        let is_column = |chunk: &&ColumnChunkMetaData| chunk.column_path().string() == column;
        let Some(chunk) = group.columns().iter().find(is_column) else {
            return Ok(None);
        };
        let of_group = guarded(|| of_dictionary(&file, group, chunk));
        match of_group.map_err(|panic| damaged(&path, &panic))? {
            Some(of_group) => values.extend(of_group),
            None => return Ok(None),
        }
    }
    Ok(Some(values))
}

/// The values in the dictionary of a chunk, if all of its pages refer to it.
fn of_dictionary(
    file: &Arc<PartFile>,
    group: &RowGroupMetaData,
    chunk: &ColumnChunkMetaData,
) -> Option<Vec<i64>> {
    let in_dictionary = |encoding: &Encoding| {
        matches!(
            encoding,
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY
        )
    };
    let all_refer = match (
        chunk.page_encoding_stats_mask(),
        chunk.page_encoding_stats(),
    ) {
        (Some(mask), _) => mask.encodings().all(|encoding| in_dictionary(&encoding)),
        (None, Some(stats)) => stats
            .iter()
            .filter(|pages| !matches!(pages.page_type, parquet::basic::PageType::DICTIONARY_PAGE))
            .all(|pages| in_dictionary(&pages.encoding)),
        (None, None) => false,
    };
    chunk.dictionary_page_offset()?;
    let nulls = chunk.statistics().and_then(|found| found.null_count_opt());
    if !all_refer || nulls != Some(0) || chunk.column_type() != Type::INT32 {
        return None;
    }
    let rows = usize::try_from(group.num_rows()).ok()?;
    let mut pages = SerializedPageReader::new(Arc::clone(file), chunk, rows, None).ok()?;
    let Page::DictionaryPage {
        buf, num_values, ..
    } = pages.get_next_page().ok()??
    else {
        return None;
    };
    let bytes = buf.get(..usize::try_from(num_values).ok()?.checked_mul(4)?)?;
    let values = bytes.as_chunks::<4>().0.iter();
    Some(
        values
            .map(|bytes| i64::from(Endian::Little.i32(*bytes)))
            .collect(),
    )
}

/// Reads the metadata of a part with the index of its pages. It must be valid.
fn indexed(
    path: &Path,
    file: PartFile,
) -> Result<ParquetRecordBatchReaderBuilder<PartFile>, Error> {
    let bytes = file.len();
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
    let builder = || ParquetRecordBatchReaderBuilder::try_new_with_options(file, options);
    let builder = guarded(builder)
        .map_err(|panic| damaged(path, &panic))?
        .map_err(|error| damaged(path, &error))?;
    check_chunks(builder.metadata(), bytes).map_err(|message| damaged(path, &message))?;
    Ok(builder)
}
