//! Contents of a trace, as strings.

use std::path::Path;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use perfquet_trace::store::Directory;

/// Returns columns of a table, one string per row, separated by spaces; NULL is "-".
#[track_caller]
pub(crate) fn rows_of(trace: &Path, table: &str, columns: &[&str]) -> Vec<String> {
    let trace = Directory::open(trace).expect("a trace directory");
    let mut rows = Vec::new();
    for batch in trace.read(table).expect(table) {
        let batch = batch.expect("a batch");
        let options = FormatOptions::default().with_null("-");
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|name| {
                let column = batch.column_by_name(name).expect(name);
                let cells = ArrayFormatter::try_new(column, &options).expect(name);
                cells.value(row).to_string()
            });
            rows.push(cells.collect::<Vec<_>>().join(" "));
        }
    }
    rows
}
