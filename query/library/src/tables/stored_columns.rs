//! Reads columns as files hold them, like [`perfquet_trace::store::read_part`]: by their former name in a trace of version
//! 1, bits as unsigned integers, and those of lakes, which are wider and may have other names. Expressions over one text column
//! are computed once per distinct text (engine/per_text.rs).

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use datafusion::scalar::ScalarValue;
use perfquet_trace::store::{stored_name, unsigned};

use crate::engine::per_text;
use crate::published::Published;

/// How the columns of a table are stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredColumns {
    /// Name of the table in the manifest.
    pub(crate) table: String,
    /// Columns that are bits, in some part at least.
    pub(crate) bits: HashSet<String>,
    /// The columns of a file of a lake, which has others, too.
    pub(crate) published: Option<Arc<Published>>,
}

impl StoredColumns {
    /// Whether these columns are stored in the same way.
    pub(crate) fn is_same(&self, other: &StoredColumns, columns: &HashSet<String>) -> bool {
        match (&self.published, &other.published) {
            (Some(one), Some(other)) => {
                Arc::ptr_eq(one, other)
                    || columns
                        .iter()
                        .all(|column| one.column(column) == other.column(column))
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Name in the file of a column whose values are stored as they are; `None` if they may not be.
    pub(crate) fn same_column<'c>(&self, column: &'c str) -> Option<&'c str> {
        self.published.is_none().then_some(column)
    }

    /// Name in the file of a column of strings; `None` if the file may lack it.
    pub(crate) fn text_column<'c>(&'c self, column: &'c str) -> Option<&'c str> {
        match &self.published {
            Some(published) => published.column(column).map(|own| own.stored.as_str()),
            None => Some(column),
        }
    }
}

impl PhysicalExprAdapterFactory for StoredColumns {
    fn create(
        &self,
        logical: SchemaRef,
        physical: SchemaRef,
    ) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let other = DefaultPhysicalExprAdapterFactory
            .create(Arc::clone(&logical), Arc::clone(&physical))?;
        Ok(Arc::new(Adapter {
            columns: self.clone(),
            logical,
            physical,
            other,
        }))
    }
}

#[derive(Debug)]
struct Adapter {
    columns: StoredColumns,
    logical: SchemaRef,
    physical: SchemaRef,
    /// For all other columns.
    other: Arc<dyn PhysicalExprAdapter>,
}

impl PhysicalExprAdapter for Adapter {
    fn rewrite(&self, expression: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let stored = expression
            .transform_up(|part| match part.downcast_ref::<Column>() {
                Some(column) => Ok(Transformed::yes(match self.stored(column)? {
                    Some(stored) => stored,
                    None => self.other.rewrite(Arc::clone(&part))?,
                })),
                None => Ok(Transformed::no(part)),
            })
            .data()?;
        per_text::replace(stored, &self.physical)
    }
}

impl Adapter {
    /// The expression for a column that is stored under another name or as bits.
    fn stored(&self, column: &Column) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let published = (self.columns.published.as_ref()).map(|all| all.column(column.name()));
        let name = match published {
            Some(Some(published)) => &published.stored,
            Some(None) => return self.missing(column).map(Some),
            None => stored_name(&self.columns.table, column.name(), &self.physical),
        };
        let (Ok(index), Ok(wanted)) = (
            self.physical.index_of(name),
            self.logical.field_with_name(column.name()),
        ) else {
            return Ok(None);
        };
        let stored = self.physical.field(index);
        let own = published.flatten();
        let is_bits = self.columns.bits.contains(column.name())
            || own.is_some_and(|published| published.is_bits);
        let is_bits = is_bits && is_signed(stored.data_type());
        let is_bool = own.is_some_and(|own| own.is_bool) && *stored.data_type() == DataType::Int64;
        if name == column.name() && !is_bits && !is_bool {
            return Ok(None);
        }
        let mut found: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, index));
        if is_bits {
            if stored.data_type().is_integer() && *stored.data_type() != DataType::Int64 {
                let wide = stored.clone().with_data_type(DataType::Int64);
                found = cast(found, wide);
            }
            found = Arc::new(ScalarFunctionExpr::try_new(
                Arc::new(ScalarUDF::from(Unsigned(Signature::any(
                    1,
                    Volatility::Immutable,
                )))),
                vec![found],
                &self.physical,
                Arc::new(ConfigOptions::default()),
            )?);
        }
        if is_bool {
            found = cast(found, stored.clone().with_data_type(DataType::Boolean));
        }
        if found.return_field(&self.physical)?.as_ref() == wanted {
            return Ok(Some(found));
        }
        Ok(Some(cast(found, wanted.clone())))
    }

    /// NULL, for a column that the part lacks. Its file may have one of that name, of another trace or of the lake.
    fn missing(&self, column: &Column) -> Result<Arc<dyn PhysicalExpr>> {
        let field = self.logical.field_with_name(column.name())?;
        let null = ScalarValue::try_from(field.data_type())?;
        let metadata = FieldMetadata::from(field);
        Ok(Arc::new(Literal::new_with_metadata(null, Some(metadata))))
    }
}

fn cast(expression: Arc<dyn PhysicalExpr>, target: Field) -> Arc<dyn PhysicalExpr> {
    Arc::new(CastExpr::new_with_target_field(
        expression,
        Arc::new(target),
        None,
    ))
}

/// Whether these are signed integers, or lists of 64-bit ones.
fn is_signed(kind: &DataType) -> bool {
    match kind {
        DataType::List(item) => *item.data_type() == DataType::Int64,
        kind => kind.is_signed_integer(),
    }
}

/// The bits of 64-bit integers as unsigned ones.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Unsigned(Signature);

impl ScalarUDFImpl for Unsigned {
    fn name(&self) -> &str {
        "unsigned"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(match arguments {
            [DataType::List(item)] => {
                let item = item.as_ref().clone().with_data_type(DataType::UInt64);
                DataType::List(Arc::new(item))
            }
            _ => DataType::UInt64,
        })
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let kinds: Vec<DataType> = (arguments.arg_fields.iter())
            .map(|field| field.data_type().clone())
            .collect();
        let kind = self.return_type(&kinds)?;
        let field = arguments.arg_fields.first();
        let field = field.map_or_else(
            || Field::new(self.name(), kind.clone(), true),
            |field| field.as_ref().clone().with_data_type(kind.clone()),
        );
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays: Vec<ArrayRef> = ColumnarValue::values_to_arrays(&arguments.args)?;
        Ok(ColumnarValue::Array(unsigned(&arrays[0])))
    }
}
