//! Skips rows that end before a window: `time < 9000 AND time + duration > 8000`, by the statistics of row groups and pages.
//!
//! ```text
//! page     latest time   longest duration
//! rows 0..20000    5000        700          none ends after 5700: skipped
//! rows 20000..     7900        700          read
//! ```
//! Rows are sorted by their begin, so those that overlap a window may be anywhere before it. A page is read if the latest begin and the longest
//! duration of its rows reach the window: one long call costs a page, not all after it.

use arrow::datatypes::{DataType, Schema};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::scalar::ScalarValue;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection, RowSelector};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

use crate::tables::row_range;
use crate::tables::stored_columns::StoredColumns;

/// The function that replaces `+` of whole numbers in plans.
const SUM: &str = "whole_sum";

/// The sums of two columns that a query wants to be large.
pub(crate) struct OverlapConditions(Vec<Condition>);

/// `columns[0] + columns[1] >= least`.
#[derive(Debug, PartialEq, Eq)]
struct Condition {
    columns: [String; 2],
    least: i64,
}

/// Rows from a place on up to the next one, and the largest value among them; `None` if it is unknown, or there is none.
type Stretch = (u64, Option<i64>);

impl OverlapConditions {
    /// `filters` must all hold for a row. `schema` has the columns of the files.
    pub(crate) fn of(filters: &[Expr], schema: &Schema) -> OverlapConditions {
        let conditions = filters.iter().flat_map(conjuncts);
        OverlapConditions(
            conditions
                .filter_map(|filter| condition(filter, schema))
                .collect(),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks the row groups and rows of a file that can be skipped. `readers` check and cache its metadata.
    pub(crate) async fn skip_rows(
        &self,
        file: PartitionedFile,
        stored: &StoredColumns,
        readers: &dyn ParquetFileReaderFactory,
    ) -> Result<PartitionedFile> {
        // A file of a lake has the rows of several traces, and a plan already.
        if row_range::is_restricted(&file) {
            return Ok(file);
        }
        let metrics = ExecutionPlanMetricsSet::new();
        let mut reader = readers.create_reader(0, file.clone(), None, &metrics)?;
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        // The scan reports files that cannot be read.
        let Ok(metadata) = reader.get_metadata(Some(&options)).await else {
            return Ok(file);
        };
        let mut plan = match file.extension::<ParquetAccessPlan>() {
            Some(plan) => plan.clone(),
            None => row_range::plan(&file, &metadata)?,
        };
        let mut is_changed = false;
        for condition in &self.0 {
            let Some(columns) = condition.stored(stored, &metadata) else {
                continue;
            };
            for group in plan.row_group_indexes() {
                let rows = metadata.row_group(group).num_rows().cast_unsigned();
                let stretches = columns.map(|column| stretches(&metadata, group, column));
                let wanted = condition.wanted(&stretches, rows);
                if wanted.is_empty() {
                    plan.skip(group);
                    is_changed = true;
                } else if wanted != [(0, rows)] {
                    plan.scan_selection(group, selection(&wanted, rows));
                    is_changed = true;
                }
            }
        }
        Ok(match is_changed {
            true => file.with_extension(plan),
            false => file,
        })
    }
}

impl Condition {
    /// The places of the columns in a file, if they are integers there.
    fn stored(&self, stored: &StoredColumns, metadata: &ParquetMetaData) -> Option<[usize; 2]> {
        let schema = metadata.file_metadata().schema_descr();
        let place = |name: &String| {
            let name = stored.same_column(name)?;
            (0..schema.num_columns()).find(|&place| {
                let column = schema.column(place);
                column.path().parts() == [name]
                    && column.physical_type() == parquet::basic::Type::INT64
            })
        };
        Some([place(&self.columns[0])?, place(&self.columns[1])?])
    }

    /// The ranges of rows whose largest values reach far enough.
    fn wanted(&self, [times, durations]: &[Vec<Stretch>; 2], rows: u64) -> Vec<(u64, u64)> {
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        let (mut time, mut duration, mut at) = (0, 0, 0);
        while at < rows {
            let end = |stretches: &[Stretch], place: usize| {
                stretches.get(place + 1).map_or(rows, |(first, _)| *first)
            };
            let next = end(times, time).min(end(durations, duration)).min(rows);
            let latest = times.get(time).and_then(|(_, most)| *most);
            let longest = durations.get(duration).and_then(|(_, most)| *most);
            let is_wanted = match (latest, longest) {
                // A sum beyond 64 bits is for the query to judge.
                (Some(latest), Some(longest)) => latest
                    .checked_add(longest)
                    .is_none_or(|most| most >= self.least),
                _ => true,
            };
            if is_wanted && next > at {
                match wanted.last_mut() {
                    Some(last) if last.1 == at => last.1 = next,
                    _ => wanted.push((at, next)),
                }
            }
            if next <= at && end(times, time) >= rows && end(durations, duration) >= rows {
                break;
            }
            if end(times, time) <= next {
                time += 1;
            }
            if end(durations, duration) <= next {
                duration += 1;
            }
            at = next;
        }
        wanted
    }
}

/// What must hold if the expression does.
fn conjuncts(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::BinaryExpr(binary) if binary.op == Operator::And => {
            let mut all = conjuncts(&binary.left);
            all.extend(conjuncts(&binary.right));
            all
        }
        _ => vec![expr],
    }
}

/// `a + b > 5`, `5 <= a + b`, of columns of 64-bit integers.
fn condition(expr: &Expr, schema: &Schema) -> Option<Condition> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return None;
    };
    let (columns, op, value) = match (sum(left, schema), sum(right, schema)) {
        (Some(columns), _) => (columns, *op, integer(right)?),
        (None, Some(columns)) => (columns, op.swap()?, integer(left)?),
        (None, None) => return None,
    };
    let least = match op {
        Operator::Gt => value.checked_add(1)?,
        Operator::GtEq => value,
        _ => return None,
    };
    Some(Condition { columns, least })
}

/// `a + b`, also as the function that fails where a sum has more than 64 bits.
fn sum(expr: &Expr, schema: &Schema) -> Option<[String; 2]> {
    let (left, right): (&Expr, &Expr) = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == Operator::Plus => (left, right),
        Expr::ScalarFunction(function) if function.name() == SUM => match &function.args[..] {
            [left, right] => (left, right),
            _ => return None,
        },
        _ => return None,
    };
    let column = |expr: &Expr| match expr {
        Expr::Column(column) => {
            let field = schema.field_with_name(&column.name).ok()?;
            (*field.data_type() == DataType::Int64).then(|| column.name.clone())
        }
        _ => None,
    };
    Some([column(left)?, column(right)?])
}

fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(value), _) => *value,
        _ => None,
    }
}

/// The pages of a column in a row group; a single one if there is no index.
fn stretches(metadata: &ParquetMetaData, group: usize, column: usize) -> Vec<Stretch> {
    pages(metadata, group, column).unwrap_or_else(|| {
        let chunk = metadata.row_group(group).column(column);
        let most = match chunk.statistics() {
            Some(Statistics::Int64(of)) => of.max_opt().copied(),
            _ => None,
        };
        vec![(0, most)]
    })
}

fn pages(metadata: &ParquetMetaData, group: usize, column: usize) -> Option<Vec<Stretch>> {
    let index = metadata.column_index()?.get(group)?.get(column)?;
    let ColumnIndexMetaData::INT64(values) = index else {
        return None;
    };
    let places = metadata.offset_index()?.get(group)?.get(column)?;
    let places = places.page_locations();
    let is_sorted = places.is_sorted_by_key(|place| place.first_row_index);
    let begins = places
        .first()
        .is_some_and(|place| place.first_row_index == 0);
    if !is_sorted || !begins || places.len() as u64 != index.num_pages() {
        return None;
    }
    let pages = places.iter().enumerate().map(|(page, place)| {
        let most = values.max_value(page).copied();
        (place.first_row_index.cast_unsigned(), most)
    });
    Some(pages.collect())
}

fn selection(wanted: &[(u64, u64)], rows: u64) -> RowSelection {
    let (mut selectors, mut at) = (Vec::new(), 0);
    for &(first, end) in wanted {
        selectors.push(RowSelector::skip((first - at) as usize));
        selectors.push(RowSelector::select((end - first) as usize));
        at = end;
    }
    selectors.push(RowSelector::skip((rows - at) as usize));
    RowSelection::from(selectors)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn schema() -> Schema {
        let field = |name, kind| Field::new(name, kind, true);
        Schema::new(vec![
            field("time", DataType::Int64),
            field("duration", DataType::Int64),
            field("tid", DataType::Int32),
        ])
    }

    #[test]
    fn sums_of_two_columns_are_conditions() {
        let sum = || col("time") + col("duration");
        let of = |expr: Expr| OverlapConditions::of(&[expr], &schema()).0;
        let expected = |least| {
            vec![Condition {
                columns: ["time".to_owned(), "duration".to_owned()],
                least,
            }]
        };
        assert_eq!(of(sum().gt(lit(5_i64))), expected(6));
        assert_eq!(of(sum().gt_eq(lit(5_i64))), expected(5));
        assert_eq!(of(lit(5_i64).lt(sum())), expected(6));
        assert_eq!(
            of(col("time").lt(lit(9_i64)).and(lit(5_i64).lt_eq(sum()))),
            expected(5)
        );
        for other in [
            sum().lt(lit(5_i64)),
            sum().eq(lit(5_i64)),
            sum().gt(lit(i64::MAX)),
            (col("time") - col("duration")).gt(lit(5_i64)),
            (col("time") + col("tid")).gt(lit(5_i64)),
            sum().gt(lit(5_i64)).or(col("time").lt(lit(9_i64))),
            sum().gt(col("time")),
        ] {
            assert_eq!(of(other), []);
        }
    }

    #[test]
    fn rows_that_end_before_are_skipped() {
        let condition = Condition {
            columns: ["time".to_owned(), "duration".to_owned()],
            least: 100,
        };
        let wanted = |times: &[Stretch], durations: &[Stretch], rows| {
            condition.wanted(&[times.to_vec(), durations.to_vec()], rows)
        };
        let times = [
            (0, Some(10)),
            (10, Some(50)),
            (20, Some(95)),
            (30, Some(200)),
        ];
        assert_eq!(wanted(&times, &[(0, Some(4))], 40), [(30, 40)]);
        assert_eq!(wanted(&times, &[(0, Some(5))], 40), [(20, 40)]);
        // A long one costs the rows of its page.
        let durations = [(0, Some(5)), (5, Some(90)), (15, Some(5))];
        assert_eq!(wanted(&times, &durations, 40), [(5, 15), (20, 40)]);
        assert_eq!(wanted(&times, &[(0, None)], 40), [(0, 40)]);
        assert_eq!(wanted(&times, &[(0, Some(i64::MAX))], 40), [(0, 40)]);
        assert_eq!(wanted(&[(0, Some(10))], &[(0, Some(10))], 40), []);
        assert_eq!(wanted(&[], &[], 40), [(0, 40)]);
        assert_eq!(wanted(&times, &[(0, Some(4))], 0), []);
        let all = selection(&[(5, 15), (20, 40)], 50);
        assert_eq!((all.row_count(), all.skipped_row_count()), (30, 20));
    }
}
