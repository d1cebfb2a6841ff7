//! Reads columns as files hold them, like [`perfquet_trace::store::read_part`]: by their former name in a trace of version
//! 1, and bits as unsigned integers. Expressions over one text column are computed once per distinct text (engine/per_text.rs).

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use perfquet_trace::store::{stored_name, unsigned};

use crate::engine::per_text;

/// How the columns of a table are stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredColumns {
    /// Name of the table in the manifest.
    pub(crate) table: String,
    /// Columns that are bits, in some part at least.
    pub(crate) bits: HashSet<String>,
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
        let name = stored_name(&self.columns.table, column.name(), &self.physical);
        let (Ok(index), Ok(wanted)) = (
            self.physical.index_of(name),
            self.logical.field_with_name(column.name()),
        ) else {
            return Ok(None);
        };
        let stored = self.physical.field(index);
        let is_bits = self.columns.bits.contains(column.name()) && is_signed(stored.data_type());
        if name == column.name() && !is_bits {
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
        if found.return_field(&self.physical)?.as_ref() == wanted {
            return Ok(Some(found));
        }
        Ok(Some(cast(found, wanted.clone())))
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
