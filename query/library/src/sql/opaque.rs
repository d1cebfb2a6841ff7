//! Functions that return their argument, through which the engine does not see: what it concludes from an expression would be wrong.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// A value that may be NULL. Not evaluated while planning: a constant would be a value that is never NULL.
pub(super) fn or_null(value: Expr) -> Expr {
    Opaque::call("or_null", Volatility::Volatile, value)
}

/// A cast that stays where it is.
pub(super) fn as_cast(value: Expr) -> Expr {
    Opaque::call("as_cast", Volatility::Immutable, value)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Opaque {
    name: &'static str,
    signature: Signature,
}

impl Opaque {
    fn call(name: &'static str, volatility: Volatility, value: Expr) -> Expr {
        let signature = Signature::any(1, volatility);
        ScalarUDF::from(Opaque { name, signature }).call(vec![value])
    }
}

impl ScalarUDFImpl for Opaque {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        Ok(kinds[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = args.arg_fields[0].as_ref().clone();
        Ok(Arc::new(
            Field::with_nullable(field, true).with_name(self.name),
        ))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => exec_err!("{}: no value", self.name),
        }
    }
}
