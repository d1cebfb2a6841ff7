//! A table of one or many traces as a DataFusion provider: a list of Parquet parts.
//!
//! Schema, row counts and time ranges come from the manifests, so that no footer is read before a query
//! needs the part. Parts are sorted by time, and declared as such in runs (part_runs.rs): `ORDER BY time` and windows
//! over time need no sort. Columns with one value per part (`trace`, and in the view `events` also
//! `event`) are constants of the part, which cost nothing to read or to filter by.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::object_store::ObjectMeta;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::scalar::ScalarValue;
use perfquet_trace::store::{Part, Root, part_path};

use crate::tables::archived;
use crate::tables::checked_reader::CheckedReaders;
use crate::tables::location;
use crate::tables::overlap_conditions::OverlapConditions;
use crate::tables::part_runs::{self, PartFile};
use crate::tables::row_range;
use crate::tables::stored_columns::StoredColumns;
use crate::tables::text_conditions::TextConditions;
use crate::tables::time_bounds::TimeBounds;

/// A column whose kind of value changes, because one part has numbers and another strings.
#[derive(Debug)]
pub(crate) struct Change {
    column: String,
    message: String,
    is_reported: AtomicBool,
}

impl Change {
    pub(crate) fn new(column: &str, message: String) -> Change {
        Change {
            column: column.to_owned(),
            message,
            is_reported: AtomicBool::new(false),
        }
    }
}

/// A list of parts under one schema.
#[derive(Debug)]
pub(crate) struct PartsTable {
    schema: TableSchema,
    /// Parts that follow each other in time, in separate runs for each trace and form.
    runs: Vec<Vec<PartFile>>,
    /// Columns by which the rows of each run are ordered, ascending, NULL first.
    sort: Vec<String>,
    changes: Vec<Change>,
}

/// Maximum number of sorted runs, each with an open file; more are read in any order.
const MOST_SORTED_RUNS: usize = 64;

/// Maximum number of columns, all of numbers, that are decoded for all rows beside those of conditions.
const MOST_NUMBERS: usize = 2;
/// Maximum number of columns of conditions that are decoded for all rows.
const MOST_CONDITIONS: usize = 2;

impl PartsTable {
    /// `columns` are those in the files; `constants` have a value per part. With `sort`, each part is sorted.
    pub(crate) fn new(
        columns: SchemaRef,
        constants: Vec<FieldRef>,
        runs: Vec<Vec<PartFile>>,
        sort: Vec<String>,
    ) -> PartsTable {
        let runs = runs.into_iter().filter(|run| !run.is_empty());
        let is_by_time = sort.first().is_some_and(|first| first == "time");
        let runs: Vec<_> = match is_by_time {
            true => runs.flat_map(part_runs::by_time).collect(),
            false => runs.collect(),
        };
        let sorted = runs.len() <= MOST_SORTED_RUNS;
        PartsTable {
            schema: TableSchema::builder(columns)
                .with_table_partition_cols(constants)
                .build(),
            runs,
            sort: if sorted { sort } else { Vec::new() },
            changes: Vec::new(),
        }
    }

    /// Reports these changes when the column is first read.
    pub(crate) fn with_changes(self, changes: Vec<Change>) -> PartsTable {
        PartsTable { changes, ..self }
    }

    fn tell_changes(&self, projection: Option<&Vec<usize>>) {
        let schema = self.schema.table_schema();
        for change in &self.changes {
            let is_read = match (projection, schema.index_of(&change.column)) {
                (Some(columns), Ok(index)) => columns.contains(&index),
                _ => true,
            };
            if is_read && !change.is_reported.swap(true, Ordering::Relaxed) {
                log::warn!("{}", change.message);
            }
        }
    }

    /// The runs, in groups whose files store the columns of a query in the same way. Only traces of lakes differ. Parts of other times than those of the
    /// query are left out here: DataFusion would do that file by file, at the cost of a pruning predicate for each.
    fn storage(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Vec<(Arc<StoredColumns>, Vec<Vec<PartFile>>)> {
        let schema = self.schema.table_schema();
        let conditions = filters.iter().flat_map(|filter| filter.column_refs());
        let mut columns: HashSet<String> = conditions.map(|column| column.name.clone()).collect();
        let read = (0..schema.fields().len())
            .filter(|index| projection.is_none_or(|read| read.contains(index)));
        columns.extend(read.map(|index| schema.field(index).name().clone()));
        let mut groups: Vec<(Arc<StoredColumns>, Vec<Vec<PartFile>>)> = Vec::new();
        let times = TimeBounds::of(filters);
        for (number, run) in self.runs.iter().enumerate() {
            for part in run.iter().filter(|part| times.overlap(part.time())) {
                let same = |(stored, _): &(Arc<StoredColumns>, _)| {
                    Arc::ptr_eq(stored, &part.stored) || stored.is_same(&part.stored, &columns)
                };
                let group = match groups.iter().position(same) {
                    Some(known) => &mut groups[known],
                    None => {
                        groups.push((Arc::clone(&part.stored), Vec::new()));
                        groups.last_mut().expect("a group was added")
                    }
                };
                group.1.resize_with(self.runs.len(), Vec::new);
                group.1[number].push(part.clone());
            }
        }
        for (_, runs) in &mut groups {
            runs.retain(|run| !run.is_empty());
        }
        groups
    }

    fn file_groups(&self, runs: Vec<Vec<PartFile>>, partitions: usize) -> Result<Vec<FileGroup>> {
        let mut groups = Vec::new();
        for run in part_runs::split(runs, partitions) {
            let files: Result<Vec<_>> =
                run.iter().map(|part| self.partitioned_file(part)).collect();
            groups.push(FileGroup::new(files?));
        }
        if self.sort.is_empty() && groups.len() > partitions {
            let files = groups.into_iter().flat_map(FileGroup::into_inner).collect();
            groups = FileGroup::new(files).split_files(partitions);
        }
        Ok(groups)
    }

    fn file(&self, trace: &Path, part: &Part) -> Result<ObjectMeta> {
        let path =
            part_path(trace, part).map_err(|error| DataFusionError::External(error.into()))?;
        let place = |error: std::io::Error| {
            let text = format!("{}: {error}", path.display());
            DataFusionError::IoError(std::io::Error::new(error.kind(), text))
        };
        let metadata = std::fs::symlink_metadata(&path).map_err(place)?;
        Ok(ObjectMeta {
            location: location::of(&path).map_err(DataFusionError::IoError)?,
            last_modified: metadata.modified().map_err(place)?.into(),
            size: metadata.len(),
            e_tag: None,
            version: None,
        })
    }

    fn partitioned_file(&self, part: &PartFile) -> Result<PartitionedFile> {
        let (file, member) = match &part.trace {
            Root::Directory(trace) => (self.file(trace, &part.entry)?, None),
            Root::Archive(archive) => {
                let (path, member) = (part.trace.part(&part.entry))
                    .map_err(|error| DataFusionError::External(error.into()))?;
                let file = archived::meta(archive, &path, &member);
                (file.map_err(DataFusionError::IoError)?, Some(member))
            }
            Root::Remote(remote) => {
                let (path, file) = (part.trace.part(&part.entry))
                    .map_err(|error| DataFusionError::External(error.into()))?;
                let opened = remote.number().to_string();
                (archived::remote_meta(&path, &file, &opened), Some(file))
            }
        };
        let file = match member {
            Some(member) => PartitionedFile::new_from_meta(file).with_extension(member),
            None => PartitionedFile::new_from_meta(file),
        };
        let mut known = statistics(self.schema.file_schema(), std::slice::from_ref(part));
        // Not by `with_statistics`, which declares every constant to be not NULL.
        for constant in &part.constants {
            known.column_statistics.push(constant_statistics(constant));
        }
        let mut file = file.with_partition_values(part.constants.clone());
        file.statistics = Some(Arc::new(known));
        Ok(match row_range::of(&part.entry) {
            Some(rows) => file.with_extension(rows),
            None => file,
        })
    }

    /// Whether a scan decodes columns only for the rows that fulfill the conditions.
    ///
    /// That costs more than it saves if few columns are decoded anyway: rows that alternate become as many ranges. 5 million calls,
    /// half of which matched `function LIKE '%write%'`, took 90 ms of CPU to count with it, 33 ms without.
    fn filters_rows(&self, projection: Option<&Vec<usize>>, filters: &[Expr]) -> bool {
        let schema = self.schema.table_schema();
        let used: HashSet<&str> = (filters.iter())
            .flat_map(|filter| filter.column_refs())
            .map(|column| column.name.as_str())
            .collect();
        let read: Vec<&FieldRef> = match projection {
            Some(columns) => columns
                .iter()
                .map(|&column| &schema.fields()[column])
                .collect(),
            None => schema.fields().iter().collect(),
        };
        let others: Vec<&FieldRef> = (read.into_iter())
            .filter(|field| !used.contains(field.name().as_str()))
            .collect();
        let are_few_numbers = others.len() <= MOST_NUMBERS
            && others.iter().all(|field| field.data_type().is_primitive());
        // Without conditions, those that a sort finds remain.
        used.is_empty() || used.len() > MOST_CONDITIONS || !are_few_numbers
    }

    fn ordering(&self) -> Option<LexOrdering> {
        let schema = self.schema.table_schema();
        // A missing column ends the order: later columns are ordered only within it.
        let columns = self.sort.iter().map_while(|name| {
            let index = schema.index_of(name).ok()?;
            Some(PhysicalSortExpr {
                expr: Arc::new(Column::new(name, index)),
                options: arrow::compute::SortOptions {
                    descending: false,
                    nulls_first: true,
                },
            })
        });
        LexOrdering::new(columns)
    }
}

#[async_trait]
impl TableProvider for PartsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        let parts: Vec<_> = self.runs.iter().flatten().cloned().collect();
        Some(statistics(&self.schema(), &parts))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.tell_changes(projection);
        let mut scans = Vec::new();
        for (stored, runs) in self.storage(projection, filters) {
            scans.push(
                self.scan_runs(state, (&stored, runs), projection, filters, limit)
                    .await?,
            );
        }
        match scans.len() {
            0 => {
                let schema = match projection {
                    Some(columns) => Arc::new(self.schema().project(columns)?),
                    None => self.schema(),
                };
                Ok(Arc::new(EmptyExec::new(schema)))
            }
            1 => Ok(scans.remove(0)),
            _ => UnionExec::try_new(scans),
        }
    }
}

impl PartsTable {
    /// Scans runs whose columns are stored in the same way.
    async fn scan_runs(
        &self,
        state: &dyn Session,
        (stored, runs): (&StoredColumns, Vec<Vec<PartFile>>),
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parts: Vec<_> = runs.iter().flatten().cloned().collect();
        let mut groups = self.file_groups(runs, state.config().target_partitions())?;
        let mut options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..Default::default()
        };
        options.global.pushdown_filters |= self.filters_rows(projection, filters);
        let local = ObjectStoreUrl::local_filesystem();
        let environment = Arc::clone(state.runtime_env());
        let readers = CachedParquetFileReaderFactory::new(
            environment.object_store(&local)?,
            environment.cache_manager.get_file_metadata_cache(),
        );
        let readers = Arc::new(CheckedReaders::new(readers, environment));
        let conditions = TextConditions::of(state, filters, self.schema.file_schema())?;
        if !conditions.is_empty() {
            for group in &mut groups {
                let mut files = Vec::new();
                for file in std::mem::take(group).into_inner() {
                    let file = conditions.skip_row_groups(file, stored, readers.as_ref());
                    files.push(file.await?);
                }
                *group = FileGroup::new(files);
            }
        }
        let overlaps = OverlapConditions::of(filters, self.schema.file_schema());
        if !overlaps.is_empty() {
            for group in &mut groups {
                let mut files = Vec::new();
                for file in std::mem::take(group).into_inner() {
                    let file = overlaps.skip_rows(file, stored, readers.as_ref());
                    files.push(file.await?);
                }
                *group = FileGroup::new(files);
            }
        }
        for group in &mut groups {
            let files = std::mem::take(group).into_inner().into_iter();
            *group = FileGroup::new(files.map(row_range::restricted).collect());
        }
        let source = ParquetSource::new(self.schema.clone())
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(readers);
        let scan = FileScanConfigBuilder::new(local, Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics(&self.schema(), &parts))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_expr_adapter(Some(Arc::new(stored.clone())))
            .with_output_ordering(self.ordering().into_iter().collect())
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }
}

/// Returns the statistics of `parts`, from the manifest alone.
fn statistics(schema: &Schema, parts: &[PartFile]) -> Statistics {
    let mut statistics = Statistics::new_unknown(schema);
    let rows = parts.iter().map(|part| part.entry.rows);
    let rows = rows.fold(0, u64::saturating_add);
    statistics.num_rows = Precision::Exact(rows as usize);
    if let Ok(time) = schema.index_of("time") {
        let ranges: Option<Vec<_>> = (parts.iter().filter(|part| part.entry.rows > 0))
            .map(PartFile::time)
            .collect();
        let ranges = ranges.unwrap_or_default();
        let nulls = parts.iter().map(|part| part.entry.time_nulls);
        let nulls = nulls.sum::<Option<u64>>();
        let bound = |value: Option<i64>| match value {
            Some(value) => Precision::Exact(ScalarValue::Int64(Some(value))),
            None => Precision::Absent,
        };
        statistics.column_statistics[time] = ColumnStatistics {
            min_value: bound(ranges.iter().map(|range| range.0).min()),
            max_value: bound(ranges.iter().map(|range| range.1).max()),
            null_count: nulls.map_or(Precision::Absent, |nulls| Precision::Exact(nulls as usize)),
            ..ColumnStatistics::new_unknown()
        };
    }
    // A join keeps rows grouped by thread whole, as it knows that they are few, instead of dividing both sides.
    let threads = parts.iter().map(|part| (part.trace.path(), part.threads));
    let threads: u64 = threads.collect::<BTreeMap<_, _>>().values().sum();
    let ids = ["pid", "tid"].map(|name| schema.index_of(name));
    for id in ids.into_iter().flatten().filter(|_| threads > 0) {
        statistics.column_statistics[id].distinct_count = Precision::Inexact(threads as usize);
    }
    statistics
}

fn constant_statistics(value: &ScalarValue) -> ColumnStatistics {
    if value.is_null() {
        return ColumnStatistics::new_unknown();
    }
    ColumnStatistics {
        null_count: Precision::Exact(0),
        min_value: Precision::Exact(value.clone()),
        max_value: Precision::Exact(value.clone()),
        distinct_count: Precision::Exact(1),
        ..ColumnStatistics::new_unknown()
    }
}

/// A column whose value is the same in all rows of a part.
pub(crate) fn constant_column(name: &str, kind: DataType) -> FieldRef {
    Arc::new(Field::new(name, kind, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_each_trace_count_once() {
        let part = |trace: &str, threads| PartFile {
            trace: Root::Directory(Path::new(trace).into()),
            entry: Part::default(),
            constants: Vec::new(),
            threads,
            stored: Arc::default(),
        };
        let columns = ["time", "tid"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Schema::new(columns.to_vec());
        let distinct = |parts: &[PartFile]| {
            let statistics = statistics(&schema, parts);
            let counts = statistics.column_statistics.into_iter();
            counts
                .map(|column| column.distinct_count)
                .collect::<Vec<_>>()
        };
        let parts = [part("a", 7), part("b", 5), part("a", 7)];
        assert_eq!(
            distinct(&parts),
            [Precision::Absent, Precision::Inexact(12)]
        );
        // Without the table, their number is unknown, not 0.
        let unknown = [Precision::Absent, Precision::Absent];
        assert_eq!(distinct(&[part("a", 0)]), unknown);
        assert_eq!(distinct(&[]), unknown);
    }

    #[test]
    fn parts_of_other_times_are_left_out() {
        let part = |time: Option<(i64, i64)>| PartFile {
            trace: Root::Directory(Path::new("a").into()),
            entry: Part {
                rows: 10,
                time_min: time.map(|time| time.0),
                time_max: time.map(|time| time.1),
                time_nulls: Some(0),
                ..Part::default()
            },
            constants: Vec::new(),
            threads: 0,
            stored: Arc::default(),
        };
        let parts = [(0, 9), (10, 19), (20, 29), (25, 40)].map(|times| part(Some(times)));
        let parts = parts.into_iter().chain([part(None)]).collect();
        let columns = vec![Field::new("time", DataType::Int64, true)];
        let columns = Arc::new(Schema::new(columns));
        let table = PartsTable::new(columns, Vec::new(), vec![parts], vec!["time".to_owned()]);
        let read = |filters: &[Expr]| {
            let groups = table.storage(None, filters).into_iter();
            let parts = groups.flat_map(|(_, runs)| runs.into_iter().flatten());
            let mut times: Vec<_> = parts.map(|part| part.time()).collect();
            times.sort_unstable();
            times
        };
        let time = || datafusion::logical_expr::col("time");
        let at = |time: i64| datafusion::logical_expr::lit(time);
        assert_eq!(read(&[]).len(), 5);
        assert_eq!(
            read(&[time().gt_eq(at(19)), time().lt(at(25))]),
            // One whose times are not known may have any.
            [None, Some((10, 19)), Some((20, 29)), Some((25, 40))]
        );
        assert_eq!(read(&[time().gt(at(40)), time().lt(at(100))]).len(), 2);
        assert_eq!(read(&[time().gt(at(41))]), [None]);
    }
}
