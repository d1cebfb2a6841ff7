//! Validates the metadata of foreign Parquet files: the parquet crate trusts offsets and lengths, and panics on some.
//!
//! ```text
//! row group 0, chunk of comm: 812 bytes at 4, of 9,114        each page of the index inside the file
//! ```

use parquet::file::metadata::ParquetMetaData;

/// Returns an error unless every column chunk, and every page in the offset index, is inside a file of `file_bytes` bytes.
pub fn check_chunks(metadata: &ParquetMetaData, file_bytes: u64) -> Result<(), String> {
    let inside = |start: i64, length: i64| {
        let end = u64::try_from(start).ok().zip(u64::try_from(length).ok());
        let end = end.and_then(|(start, length)| start.checked_add(length));
        end.is_some_and(|end| end <= file_bytes)
    };
    for (index, group) in metadata.row_groups().iter().enumerate() {
        for chunk in group.columns() {
            let start = chunk.dictionary_page_offset();
            let start = start.unwrap_or_else(|| chunk.data_page_offset());
            if !inside(start, chunk.compressed_size()) {
                return Err(format!(
                    "row group {index}, chunk of {}: expected it inside the {file_bytes} bytes, found {} bytes at {start}",
                    chunk.column_path().string(),
                    chunk.compressed_size(),
                ));
            }
        }
    }
    for columns in metadata.offset_index().into_iter().flatten() {
        for page in columns.iter().flat_map(|column| column.page_locations()) {
            if !inside(page.offset, page.compressed_page_size.into()) || page.first_row_index < 0 {
                return Err(format!(
                    "page index: expected a page inside the {file_bytes} bytes, found {} bytes at {}",
                    page.compressed_page_size, page.offset
                ));
            }
        }
    }
    Ok(())
}
