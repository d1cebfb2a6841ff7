//! `mode(x)`: the most frequent value.
//!
//! ```text
//! SELECT comm, mode(name) FROM syscalls GROUP BY comm      the system call that each thread makes most often
//! ```
//! Of several values that are equally frequent, the least is the result, so that it does not depend on the order of rows. NULL is not counted.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use super::Function;
use crate::engine::codes::Codes;

pub(super) const FUNCTION: Function = Function {
    usage: "mode(x)",
    about: "most frequent value; the least of equally frequent ones",
    register: |context, _| {
        context.register_udaf(AggregateUDF::from(Mode {
            signature: Signature::any(1, Volatility::Immutable),
        }));
    },
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mode {
    signature: Signature,
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &str {
        "mode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        Ok(kinds.first().cloned().unwrap_or(DataType::Null))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list = |name: &str, kind: DataType| {
            let item = Arc::new(Field::new_list_field(kind, true));
            Arc::new(Field::new(name, DataType::List(item), true))
        };
        Ok(vec![
            list("values", args.return_field.data_type().clone()),
            list("counts", DataType::Int64),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counts {
            kind: args.return_field.data_type().clone(),
            counts: HashMap::new(),
            bytes: 0,
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// How often each value occurred.
#[derive(Debug)]
struct Counts {
    kind: DataType,
    counts: HashMap<ScalarValue, i64>,
    bytes: usize,
}

impl Counts {
    fn add(&mut self, value: ScalarValue, count: i64) {
        if let Some(known) = self.counts.get_mut(&value) {
            *known += count;
            return;
        }
        self.bytes += value.size() + size_of::<i64>();
        self.counts.insert(value, count);
    }
}

/// Codes of fewer values cost more than they save.
const MANY: usize = 256;

impl Counts {
    /// Counts texts or integers by their codes.
    fn add_by_code(&mut self, values: &ArrayRef) -> Result<()> {
        let (mut codes, mut of_rows) = (Codes::new(values.data_type()), Vec::new());
        let first_rows = codes.number(values, &mut of_rows)?;
        let mut counts = vec![0; first_rows.len()];
        for code in of_rows {
            counts[code as usize] += 1;
        }
        for (row, count) in first_rows.into_iter().zip(counts) {
            if values.is_valid(row as usize) {
                let value = ScalarValue::try_from_array(values, row as usize)?;
                self.add(value, count);
            }
        }
        Ok(())
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else {
            return Ok(());
        };
        let has_codes =
            *values.data_type() == DataType::Utf8View || values.data_type().is_integer();
        if has_codes && values.len() >= MANY {
            return self.add_by_code(values);
        }
        // Values often follow an equal one.
        let mut last: Option<(ScalarValue, i64)> = None;
        for row in (0..values.len()).filter(|&row| values.is_valid(row)) {
            let value = ScalarValue::try_from_array(values, row)?;
            match &mut last {
                Some((known, count)) if *known == value => *count += 1,
                _ => {
                    if let Some((value, count)) = last.replace((value, 1)) {
                        self.add(value, count);
                    }
                }
            }
        }
        if let Some((value, count)) = last {
            self.add(value, count);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else {
            return Ok(());
        };
        let (values, counts) = (values.as_list::<i32>(), counts.as_list::<i32>());
        for row in (0..values.len()).filter(|&row| values.is_valid(row)) {
            let (values, counts) = (values.value(row), counts.value(row));
            let counts = counts.as_primitive::<Int64Type>();
            for place in 0..values.len() {
                let value = ScalarValue::try_from_array(&values, place)?;
                self.add(value, counts.value(place));
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut values = Vec::with_capacity(self.counts.len());
        let mut counts = Vec::with_capacity(self.counts.len());
        for (value, count) in self.counts.drain() {
            values.push(value);
            counts.push(ScalarValue::Int64(Some(count)));
        }
        self.bytes = 0;
        Ok(vec![
            list(values, &self.kind)?,
            list(counts, &DataType::Int64)?,
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut best: Option<(&ScalarValue, i64)> = None;
        for (value, &count) in &self.counts {
            let is_better = best.is_none_or(|(known, most)| {
                count > most
                    || (count == most
                        && value.partial_cmp(known).is_some_and(|order| order.is_lt()))
            });
            if is_better {
                best = Some((value, count));
            }
        }
        match best {
            Some((value, _)) => Ok(value.clone()),
            None => ScalarValue::try_from(&self.kind),
        }
    }

    fn size(&self) -> usize {
        size_of::<Counts>() + self.bytes + self.counts.capacity() * size_of::<(ScalarValue, i64)>()
    }
}

fn list(values: Vec<ScalarValue>, kind: &DataType) -> Result<ScalarValue> {
    let array = match values.is_empty() {
        true => arrow::array::new_empty_array(kind),
        false => ScalarValue::iter_to_array(values)?,
    };
    Ok(SingleRowListArrayBuilder::new(array)
        .with_nullable(true)
        .build_list_scalar())
}
