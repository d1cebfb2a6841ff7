//! Computes what depends on one text column, `function LIKE '%mmap%'` or `upper(comm)`, once for each distinct text.
//!
//! ```text
//! function    sys_read sys_mmap sys_read sys_read NULL
//! codes       0        1        0        0        2
//! computed    false    true                       NULL
//! answer      false    true     false    false    NULL
//! ```
//! Texts of traces repeat, and their codes cost less than a search in each text.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;

use super::codes::Codes;

/// With more distinct texts, a column is computed row by row: it may be different in each.
const MOST_TEXTS: usize = 4096;

/// Replaces the parts of an expression over `schema` that depend on one text column and are slow.
pub(crate) fn replace(
    expression: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    let replaced = expression.transform_down(|part| {
        // Operands of AND and OR stay separate: the second may be an error where the first decides.
        if is_logical(&part) {
            return Ok(Transformed::no(part));
        }
        let Some(column) = only_text(&part, schema) else {
            return Ok(Transformed::no(part));
        };
        let replaced = PerText::new(part, column);
        Ok(Transformed::new(
            Arc::new(replaced) as _,
            true,
            TreeNodeRecursion::Jump,
        ))
    });
    replaced.data()
}

fn is_logical(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let binary = expression.downcast_ref::<BinaryExpr>();
    binary.is_some_and(|binary| matches!(binary.op(), Operator::And | Operator::Or))
        || expression.is::<NotExpr>()
}

/// The only column of a slow expression, if it is a text column.
fn only_text(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Column> {
    let (mut only, mut is_slow, mut is_other) = (None::<Column>, false, false);
    let visited = expression.apply(|part| {
        if let Some(column) = part.downcast_ref::<Column>() {
            is_other |= only.as_ref().is_some_and(|known| known != column);
            only = Some(column.clone());
        }
        is_slow |= is_slow_node(part);
        is_other |= !is_known_node(part);
        Ok(match is_other {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    let column = only.filter(|_| is_slow && !is_other && visited.is_ok())?;
    let field = schema.fields().get(column.index())?;
    let fits = *field.data_type() == DataType::Utf8View && !is_volatile(expression);
    fits.then_some(column)
}

/// Comparisons with a text are not: the views of short texts are numbers.
fn is_slow_node(part: &Arc<dyn PhysicalExpr>) -> bool {
    let is_pattern = |binary: &BinaryExpr| {
        matches!(
            binary.op(),
            Operator::RegexMatch
                | Operator::RegexIMatch
                | Operator::RegexNotMatch
                | Operator::RegexNotIMatch
                | Operator::StringConcat
        )
    };
    part.is::<LikeExpr>()
        || part.is::<ScalarFunctionExpr>()
        || part.is::<InListExpr>()
        || part.is::<CaseExpr>()
        || part.downcast_ref::<BinaryExpr>().is_some_and(is_pattern)
}

/// Nodes whose value depends only on their operands. That of a filter which a sort refines, or of a subquery, changes.
fn is_known_node(part: &Arc<dyn PhysicalExpr>) -> bool {
    part.is::<Column>()
        || part.is::<Literal>()
        || part.is::<BinaryExpr>()
        || part.is::<NotExpr>()
        || part.is::<IsNullExpr>()
        || part.is::<IsNotNullExpr>()
        || part.is::<CastExpr>()
        || is_slow_node(part)
}

/// An expression that remembers its values.
#[derive(Debug)]
struct PerText {
    expression: Arc<dyn PhysicalExpr>,
    column: Column,
    /// One for each thread that computes at the same time.
    known: Mutex<Vec<Known>>,
}

/// The distinct texts seen so far, and their values.
#[derive(Debug)]
struct Known {
    codes: Codes,
    /// By code; `None` before the first text.
    values: Option<ArrayRef>,
    /// Codes of the rows of a batch: kept for their memory.
    of_rows: Vec<u32>,
    is_useless: bool,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            codes: Codes::new(&DataType::Utf8View),
            values: None,
            of_rows: Vec::new(),
            is_useless: false,
        }
    }
}

impl PerText {
    fn new(expression: Arc<dyn PhysicalExpr>, column: Column) -> PerText {
        PerText {
            expression,
            column,
            known: Mutex::default(),
        }
    }

    fn borrow(&self) -> Known {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.pop().unwrap_or_default()
    }

    fn give_back(&self, one: Known) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.push(one);
    }

    /// Computes the values of texts that are new in these rows.
    fn learn(&self, known: &mut Known, new: Vec<u32>, batch: &RecordBatch) -> Result<()> {
        let index = self.column.index();
        let texts = take(batch.column(index), &UInt32Array::from(new), None)?;
        let count = texts.len();
        // The other columns are not read; with them, indexes stay those of the batch.
        let fields = batch.schema_ref().fields();
        let columns = (fields.iter().enumerate())
            .map(|(place, field)| match place == index {
                true => Arc::clone(&texts),
                false => arrow::array::new_null_array(field.data_type(), count),
            })
            .collect();
        let fields: Vec<_> = (fields.iter())
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        let few = RecordBatch::try_new_with_options(
            Arc::new(Schema::new(fields)),
            columns,
            &RecordBatchOptions::new().with_row_count(Some(count)),
        )?;
        let values = self.expression.evaluate(&few)?.into_array(count)?;
        known.values = Some(match known.values.take() {
            Some(before) => concat(&[before.as_ref(), values.as_ref()])?,
            None => values,
        });
        Ok(())
    }

    /// The values of all rows; `None` if texts hardly repeat.
    fn values(&self, known: &mut Known, batch: &RecordBatch) -> Result<Option<ArrayRef>> {
        let mut of_rows = std::mem::take(&mut known.of_rows);
        let column = batch.column(self.column.index());
        let new = known.codes.number(column, &mut of_rows)?;
        if !new.is_empty() {
            let count = new.len() + known.values.as_ref().map_or(0, Array::len);
            if count > MOST_TEXTS {
                *known = Known {
                    is_useless: true,
                    ..Known::default()
                };
                return Ok(None);
            }
            self.learn(known, new, batch)?;
        }
        let Some(values) = &known.values else {
            return Ok(None);
        };
        let answer = match values.data_type() {
            DataType::Boolean => Arc::new(take_booleans(values.as_boolean(), &of_rows)),
            _ => {
                let codes = UInt32Array::from(of_rows);
                let answer = take(values, &codes, None)?;
                let codes = codes.into_parts().1.into_inner().into_vec::<u32>();
                of_rows = codes.unwrap_or_default();
                answer
            }
        };
        known.of_rows = of_rows;
        Ok(Some(answer))
    }
}

/// `values` at the places `codes`.
fn take_booleans(values: &BooleanArray, codes: &[u32]) -> BooleanArray {
    let spread = |bits: &BooleanBuffer| {
        let bits: Vec<bool> = bits.iter().collect();
        BooleanBuffer::collect_bool(codes.len(), |row| bits[codes[row] as usize])
    };
    let nulls = values.nulls().filter(|nulls| nulls.null_count() > 0);
    let nulls = nulls.map(|nulls| NullBuffer::new(spread(nulls.inner())));
    BooleanArray::new(spread(values.values()), nulls)
}

impl PhysicalExpr for PerText {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expression.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expression.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.expression.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let is_text = *batch.column(self.column.index()).data_type() == DataType::Utf8View;
        if batch.num_rows() > 0 && is_text {
            let mut known = self.borrow();
            let values = match known.is_useless {
                true => None,
                // After an error, some texts have codes without values: nothing is kept.
                false => self.values(&mut known, batch)?,
            };
            self.give_back(known);
            if let Some(values) = values {
                return Ok(ColumnarValue::Array(values));
            }
        }
        self.expression.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expression]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let expression = children.swap_remove(0);
        // Columns may have other places now.
        let mut columns =
            datafusion::physical_expr::utils::collect_columns(&expression).into_iter();
        Ok(match (columns.next(), columns.next()) {
            (Some(column), None) => Arc::new(PerText::new(expression, column)),
            _ => expression,
        })
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt_sql(f)
    }
}

impl fmt::Display for PerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expression)
    }
}

impl PartialEq for PerText {
    fn eq(&self, other: &PerText) -> bool {
        self.expression.as_ref() == other.expression.as_ref()
    }
}

impl Eq for PerText {}

impl Hash for PerText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::StringViewArray;
    use arrow::datatypes::Field;
    use datafusion::common::DFSchema;
    use datafusion::prelude::SessionContext;

    /// The expression over `text` and `other`, and how many of its parts are computed once per text.
    fn planned(sql: &str) -> (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>, usize) {
        let schema = schema();
        let known = DFSchema::try_from(schema.clone()).unwrap();
        let context = SessionContext::new();
        let logical = context.parse_sql_expr(sql, &known).unwrap();
        let plain = context.create_physical_expr(logical, &known).unwrap();
        let replaced = replace(Arc::clone(&plain), &schema).unwrap();
        let mut parts = 0;
        let count = |part: &Arc<dyn PhysicalExpr>| {
            parts += usize::from(part.is::<PerText>());
            Ok(TreeNodeRecursion::Continue)
        };
        replaced.apply(count).unwrap();
        (plain, replaced, parts)
    }

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("other", DataType::Int64, true),
            Field::new("text", DataType::Utf8View, true),
            Field::new("second", DataType::Utf8View, true),
        ])
    }

    fn batch(texts: &[Option<String>]) -> RecordBatch {
        let numbers = (0..texts.len()).map(|row| (row % 3 > 0).then_some(row as i64));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter(texts.iter().cloned()));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(arrow::array::Int64Array::from_iter(numbers)),
            Arc::clone(&texts),
            texts,
        ];
        RecordBatch::try_new(Arc::new(schema()), columns).unwrap()
    }

    /// Batches with other buffers, NULL, empty and long texts, texts that differ after the view's first bytes, and slices.
    fn batches() -> Vec<RecordBatch> {
        let text = |row: usize| match row % 7 {
            0 => None,
            1 => Some(String::new()),
            2 => Some("sys_mmap".to_owned()),
            3 => Some(format!("a text longer than its view {}", row % 2)),
            4 => Some(format!("a text longer than its view: mmap {}", row % 5)),
            5 => Some("SYS_MMAP".to_owned()),
            _ => Some("1".to_owned()),
        };
        let all = batch(&(0..200).map(text).collect::<Vec<_>>());
        let few = batch(&(0..50).map(|row| text(row * 7 + 3)).collect::<Vec<_>>());
        let nulls = batch(&vec![None; 5]);
        let (none, middle, end) = (all.slice(0, 0), all.slice(13, 90), all.slice(190, 10));
        vec![nulls, none, middle, few, all.clone(), end, all]
    }

    fn check(sql: &str, expected_parts: usize) {
        let (plain, replaced, parts) = planned(sql);
        assert_eq!(parts, expected_parts, "{sql}: {replaced}");
        for batch in batches() {
            let values = |expression: &Arc<dyn PhysicalExpr>| {
                let value = expression.evaluate(&batch).unwrap();
                value.into_array(batch.num_rows()).unwrap()
            };
            assert_eq!(&values(&plain), &values(&replaced), "{sql}");
        }
    }

    #[test]
    fn values_are_those_of_each_row() {
        for sql in [
            "text LIKE '%mmap%'",
            "text NOT LIKE '%mmap%'",
            "text ILIKE '%mmap%'",
            "text ~ 'm+ap'",
            "text !~* 'M+AP'",
            "regexp_like(text, '^sys')",
            "starts_with(text, 'sys')",
            "text IN ('sys_mmap', '', '1', 'x')",
            "text NOT IN ('sys_mmap', '', '1', NULL)",
            "CASE WHEN text IS NULL THEN 'none' ELSE text END LIKE 'n%'",
            "upper(text)",
            "length(text)",
            "length(text) + 1 > 5",
            "CASE WHEN text = '1' THEN CAST(text AS BIGINT) END",
            "NOT (text LIKE '%mmap%')",
            "text LIKE '%mmap%' AND other > 5",
        ] {
            check(sql, 1);
        }
        check("text LIKE '%mmap%' OR text LIKE '%view 1'", 2);
        check("text LIKE '%mmap%' AND second LIKE '%view 1'", 2);
        check("length(text) > other", 1);
    }

    #[test]
    fn others_are_computed_row_by_row() {
        for sql in [
            "text = 'sys_mmap'",
            "text IS NULL",
            "other IN (1, 2, 3, 4, 5, 6)",
            "text LIKE second",
            "concat(text, other)",
        ] {
            check(sql, 0);
        }
        let (_, _, parts) = planned("concat(text, random()) LIKE '%1%'");
        assert_eq!(parts, 0);
    }

    #[test]
    fn texts_that_hardly_repeat_are_forgotten() {
        let (plain, replaced, _) = planned("text LIKE '%9%'");
        let different: Vec<_> = (0..MOST_TEXTS + 1)
            .map(|row| Some(format!("{row}")))
            .collect();
        let different = batch(&different);
        for _ in 0..2 {
            let values = |expression: &Arc<dyn PhysicalExpr>| {
                let value = expression.evaluate(&different).unwrap();
                value.into_array(different.num_rows()).unwrap()
            };
            assert_eq!(&values(&plain), &values(&replaced));
        }
        let per_text = replaced.downcast_ref::<PerText>().unwrap();
        let known = per_text.borrow();
        assert!(known.is_useless && known.values.is_none());
    }

    #[test]
    fn an_error_leaves_no_text_without_a_value() {
        let (_, replaced, _) = planned("CAST(upper(text) AS BIGINT)");
        let bad = batch(&[Some("1".to_owned()), Some("x".to_owned())]);
        assert!(replaced.evaluate(&bad).is_err());
        assert!(replaced.evaluate(&bad).is_err());
        let good = batch(&[Some("1".to_owned()), Some("2".to_owned())]);
        let values = replaced.evaluate(&good).unwrap().into_array(2).unwrap();
        let expected: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![1, 2]));
        assert_eq!(&values, &expected);
    }
}
