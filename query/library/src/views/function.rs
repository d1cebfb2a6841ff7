//! Views with arguments, which are called: `SELECT * FROM cpu_utilization(1s)`.
//!
//! ```text
//! -- arguments:
//! --   step  ns  Length of a step.
//! SELECT * FROM pass_cpu_utilization($step)
//! ```

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use perfquet_views::View;

use super::schema::Planner;
use crate::sql::times;
use crate::unit::TIME;

/// Registers the views that have arguments.
pub(crate) fn register(context: &SessionContext, views: &[Arc<View>], planner: &Arc<Planner>) {
    for view in views.iter().filter(|view| !view.arguments().is_empty()) {
        let function = ViewFunction {
            view: Arc::clone(view),
            planner: Arc::clone(planner),
        };
        context.register_udtf(&view.name, Arc::new(function));
    }
}

#[derive(Debug)]
struct ViewFunction {
    view: Arc<View>,
    planner: Arc<Planner>,
}

impl TableFunctionImpl for ViewFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let names = self.view.arguments();
        let starts = self.planner.starts();
        let mut literals = Some(Vec::new());
        for (place, expr) in args.exprs().iter().enumerate() {
            let is_time = names.get(place).is_some_and(|name| name.unit == TIME);
            let value = times::in_call(expr, is_time, &starts)?;
            let literal = value.as_ref().and_then(literal);
            literals = literals.zip(literal).map(|(mut all, next)| {
                all.push(next);
                all
            });
        }
        let literals = literals.filter(|literals| literals.len() == names.len());
        let Some(literals) = literals else {
            let usage = self.view.usage();
            let values = counted(names.len());
            let hint = match self.view.name.as_str() {
                "descendants" => {
                    "for the children of each call: JOIN calls AS child ON child.parent_id = c.call_id"
                }
                "ancestors" => {
                    "for the caller of each call: JOIN calls AS caller ON caller.call_id = c.parent_id"
                }
                _ => "arguments are not columns of other tables",
            };
            let text =
                format!("{usage}: expected {values}, such as 1000, 500us or 'text'\nhint: {hint}");
            return Err(DataFusionError::Plan(text));
        };
        let values = |name: &str| {
            let place = names.iter().position(|argument| argument.name == name);
            place.and_then(|place| literals.get(place).cloned())
        };
        let planned = self
            .planner
            .plan(&self.view, |sql| with_values(&sql, values));
        // Planning waits for nothing.
        futures::executor::block_on(planned)
    }
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 literal".to_owned(),
        count => format!("{count} literals"),
    }
}

/// The SQL of a literal.
fn literal(value: &ScalarValue) -> Option<String> {
    Some(match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::Utf8View(Some(text))
        | ScalarValue::LargeUtf8(Some(text)) => format!("'{}'", text.replace('\'', "''")),
        value if value.is_null() => "NULL".to_owned(),
        value if value.data_type().is_numeric() => value.to_string(),
        _ => return None,
    })
}

/// Replaces each `$name` by its value.
fn with_values(sql: &str, values: impl Fn(&str) -> Option<String>) -> Result<String> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize();
    let tokens = tokens.map_err(|error| DataFusionError::Plan(error.to_string()))?;
    let text = tokens.iter().map(|token| match token {
        Token::Placeholder(name) => {
            let value = values(name.trim_start_matches('$'));
            value.unwrap_or_else(|| token.to_string())
        }
        token => token.to_string(),
    });
    Ok(text.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_replaced() {
        let value = |name: &str| (name == "step").then(|| "'it''s'".to_owned());
        let sql = "SELECT '$step', \"a\", f($step, $other) -- $step\nFROM t";
        let expected = "SELECT '$step', \"a\", f('it''s', $other) -- $step\nFROM t";
        assert_eq!(with_values(sql, value).unwrap(), expected);
    }
}
