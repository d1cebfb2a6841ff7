//! Tables of traces: names in SQL, and Parquet files as DataFusion reads them.

mod archived;
pub mod catalog;
mod checked_reader;
mod location;
mod overlap_conditions;
mod part_runs;
mod parts;
mod row_range;
mod stored_columns;
mod text_conditions;
mod time_bounds;
