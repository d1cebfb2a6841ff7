//! Scans of the rows of one part in a file of a lake, which has rows of several.

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, ParquetRowSelection};
use datafusion::error::Result;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::ParquetMetaData;
use perfquet_trace::store::Part;

/// The rows of a file that a scan reads.
#[derive(Debug, Clone)]
pub(super) struct RowRange(RowSelection);

/// The rows of a part; `None` if they are all rows of its file.
pub(super) fn of(part: &Part) -> Option<RowRange> {
    let range = part.range?;
    let after = range.file_rows.saturating_sub(range.first_row + part.rows);
    let selectors = [
        RowSelector::skip(range.first_row as usize),
        RowSelector::select(part.rows as usize),
        RowSelector::skip(after as usize),
    ];
    let is_whole = range.first_row == 0 && after == 0;
    (!is_whole).then(|| RowRange(RowSelection::from(selectors.to_vec())))
}

/// The row groups of a file with rows to read.
pub(super) fn plan(
    file: &PartitionedFile,
    metadata: &ParquetMetaData,
) -> Result<ParquetAccessPlan> {
    match file.extension::<RowRange>() {
        Some(RowRange(rows)) => ParquetAccessPlan::try_new_from_overall_row_selection(
            rows.clone(),
            metadata.row_groups(),
        ),
        None => Ok(ParquetAccessPlan::new_all(metadata.num_row_groups())),
    }
}

/// Whether a scan reads only a part's rows of a file.
pub(super) fn is_restricted(file: &PartitionedFile) -> bool {
    file.extension::<RowRange>().is_some()
}

/// Makes a scan read only the rows of the part.
pub(super) fn restricted(file: PartitionedFile) -> PartitionedFile {
    let is_planned = file.extension::<ParquetAccessPlan>().is_some();
    match file.extension::<RowRange>().filter(|_| !is_planned) {
        Some(RowRange(rows)) => {
            let rows = ParquetRowSelection::new(rows.clone());
            file.with_extension(rows)
        }
        None => file,
    }
}
