//! Evaluates a condition for all rows of a batch, column by column.

use std::cmp::Ordering;

use arrow_array::{Array, RecordBatch};
use perfquet_events::event::Value;
use perfquet_views::TIMES;

use super::super::batch::value_at;
use super::{Condition, Expression, Literal};

/// TRUE, FALSE, or NULL.
type Truth = Option<bool>;

impl Condition {
    /// Returns whether the condition is true, for each row. Fails if a column has an unsuitable type.
    pub(crate) fn evaluate(&self, batch: &RecordBatch) -> Result<Vec<bool>, String> {
        let columns: Vec<Option<&dyn Array>> = self
            .columns
            .iter()
            .map(|name| batch.column_by_name(name).map(AsRef::as_ref))
            .collect();
        let evaluation = Evaluation {
            condition: self,
            columns,
            rows: batch.num_rows(),
        };
        let truths = evaluation.truths(&self.expression)?;
        Ok(truths
            .into_iter()
            .map(|truth| truth == Some(true))
            .collect())
    }
}

struct Evaluation<'a> {
    condition: &'a Condition,
    /// By index in the condition; `None` if the table lacks it.
    columns: Vec<Option<&'a dyn Array>>,
    rows: usize,
}

/// A value in each row.
enum Operand<'a> {
    Column(&'a dyn Array),
    Constant(Value<'a>),
    /// An integer beyond 64 bits.
    Wide(i128),
    Truths(Vec<Truth>),
}

impl<'a> Evaluation<'a> {
    fn truths(&self, expression: &'a Expression) -> Result<Vec<Truth>, String> {
        match expression {
            Expression::Not(inner) => {
                let truths = self.truths(inner)?.into_iter();
                Ok(truths.map(|truth| truth.map(|truth| !truth)).collect())
            }
            Expression::And(terms) => self.joined(terms, Some(false)),
            Expression::Or(terms) => self.joined(terms, Some(true)),
            Expression::Compare(comparison, left, right) => {
                let orders = self.orders(left, right)?.into_iter();
                let holds = |order: Option<Ordering>| Some(comparison.holds(order?));
                Ok(orders.map(holds).collect())
            }
            Expression::In(left, items) => self.is_in(left, items),
            Expression::Like {
                text,
                pattern,
                ignores_case,
            } => self.like(text, pattern, *ignores_case),
            Expression::IsNull(inner) => {
                let operand = self.operand(inner)?;
                Ok(self.each(|row| Some(operand.is_null(row))))
            }
            Expression::IsTrue(inner) => {
                let truths = self.truths(inner)?.into_iter();
                Ok(truths.map(|truth| Some(truth == Some(true))).collect())
            }
            Expression::IsFalse(inner) => {
                let truths = self.truths(inner)?.into_iter();
                Ok(truths.map(|truth| Some(truth == Some(false))).collect())
            }
            Expression::Column(_) | Expression::Literal(_) => {
                let operand = self.operand(expression)?;
                let mut truths = Vec::with_capacity(self.rows);
                for row in 0..self.rows {
                    truths.push(match operand.value(row) {
                        Value::Null => None,
                        Value::Bool(truth) => Some(truth),
                        _ => {
                            return Err(format!("{}: expected a condition", self.name(expression)));
                        }
                    });
                }
                Ok(truths)
            }
        }
    }

    fn each(&self, truth: impl Fn(usize) -> Truth) -> Vec<Truth> {
        (0..self.rows).map(truth).collect()
    }

    /// Joins the terms of AND or OR. `decisive` decides the result: FALSE for AND, TRUE for OR. Without a decisive
    /// term, NULL makes the result NULL.
    fn joined(&self, terms: &'a [Expression], decisive: Truth) -> Result<Vec<Truth>, String> {
        let weakest = decisive.map(|truth| !truth);
        let mut joined = vec![weakest; self.rows];
        for term in terms {
            for (joined, truth) in joined.iter_mut().zip(self.truths(term)?) {
                if *joined != decisive && (truth == decisive || truth.is_none()) {
                    *joined = truth;
                }
            }
        }
        Ok(joined)
    }

    fn is_in(&self, left: &'a Expression, items: &'a [Expression]) -> Result<Vec<Truth>, String> {
        let mut found: Vec<Truth> = vec![Some(false); self.rows];
        for item in items {
            for (found, order) in found.iter_mut().zip(self.orders(left, item)?) {
                match order {
                    Some(Ordering::Equal) => *found = Some(true),
                    None if *found == Some(false) => *found = None,
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    fn like(
        &self,
        text: &'a Expression,
        pattern: &str,
        ignores_case: bool,
    ) -> Result<Vec<Truth>, String> {
        let operand = self.operand(text)?;
        let fold = |text: &str| match ignores_case {
            true => text.to_lowercase(),
            false => text.to_owned(),
        };
        let pattern: Vec<char> = fold(pattern).chars().collect();
        let mut truths = Vec::with_capacity(self.rows);
        for row in 0..self.rows {
            truths.push(match operand.value(row) {
                Value::Null => None,
                Value::Bytes(text) => {
                    let text = fold(&String::from_utf8_lossy(text));
                    Some(is_like(&text, &pattern))
                }
                _ => return Err(format!("{}: expected text for LIKE", self.name(text))),
            });
        }
        Ok(truths)
    }

    /// Compares the two sides in each row; `None` if one is NULL.
    fn orders(
        &self,
        left: &'a Expression,
        right: &'a Expression,
    ) -> Result<Vec<Option<Ordering>>, String> {
        let sides = (
            self.operand_beside(left, right)?,
            self.operand_beside(right, left)?,
        );
        let mut orders = Vec::with_capacity(self.rows);
        for row in 0..self.rows {
            let (left_value, right_value) = (sides.0.value(row), sides.1.value(row));
            let order = match (left_value, right_value) {
                (Value::Null, _) | (_, Value::Null) => None,
                (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
                (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(&right)),
                (left_value, right_value) => {
                    let numbers = number(&left_value, &sides.0).zip(number(&right_value, &sides.1));
                    let Some((left, right)) = numbers else {
                        return Err(format!(
                            "cannot compare {} with {}",
                            self.name(left),
                            self.name(right)
                        ));
                    };
                    left.compare(right)
                }
            };
            orders.push(order);
        }
        Ok(orders)
    }

    /// Returns an operand; a duration beside a time is one from the start of the trace.
    fn operand_beside(
        &self,
        expression: &'a Expression,
        other: &Expression,
    ) -> Result<Operand<'a>, String> {
        let is_time = |expression: &Expression| match expression {
            Expression::Column(index) => {
                let name = self.condition.columns.get(*index);
                name.is_some_and(|name| TIMES.contains(&name.as_str()))
            }
            _ => false,
        };
        match expression {
            Expression::Literal(Literal::Duration(duration)) if is_time(other) => {
                let start = i128::from(self.condition.start);
                Ok(Operand::Wide(start.saturating_add(*duration)))
            }
            _ => self.operand(expression),
        }
    }

    fn operand(&self, expression: &'a Expression) -> Result<Operand<'a>, String> {
        Ok(match expression {
            Expression::Column(index) => match self.columns.get(*index) {
                Some(Some(column)) => Operand::Column(*column),
                _ => Operand::Constant(Value::Null),
            },
            Expression::Literal(literal) => match literal {
                Literal::Null => Operand::Constant(Value::Null),
                Literal::Bool(truth) => Operand::Constant(Value::Bool(*truth)),
                Literal::Float(number) => Operand::Constant(Value::Float(*number)),
                Literal::Text(text) => Operand::Constant(Value::Bytes(text.as_bytes())),
                Literal::Int(number) | Literal::Duration(number) => {
                    match (i64::try_from(*number), u64::try_from(*number)) {
                        (Ok(number), _) => Operand::Constant(Value::Int(number)),
                        (_, Ok(number)) => Operand::Constant(Value::UInt(number)),
                        _ => Operand::Wide(*number),
                    }
                }
            },
            _ => Operand::Truths(self.truths(expression)?),
        })
    }

    /// Names the side of a comparison for messages.
    fn name(&self, expression: &Expression) -> String {
        match expression {
            Expression::Column(index) => {
                let name = self.condition.columns.get(*index);
                format!("column {}", name.map_or("?", String::as_str))
            }
            Expression::Literal(Literal::Text(text)) => format!("'{text}'"),
            Expression::Literal(Literal::Int(number) | Literal::Duration(number)) => {
                number.to_string()
            }
            Expression::Literal(Literal::Float(number)) => number.to_string(),
            Expression::Literal(Literal::Bool(truth)) => truth.to_string(),
            _ => "a condition".to_owned(),
        }
    }
}

impl<'a> Operand<'a> {
    fn value(&self, row: usize) -> Value<'a> {
        match self {
            Operand::Column(column) => value_at(*column, row),
            Operand::Constant(value) => *value,
            // Its value is in the operand itself.
            Operand::Wide(_) => Value::Int(0),
            Operand::Truths(truths) => match truths.get(row) {
                Some(Some(truth)) => Value::Bool(*truth),
                _ => Value::Null,
            },
        }
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Operand::Column(column) => column.is_null(row),
            _ => matches!(self.value(row), Value::Null),
        }
    }
}

/// A number of any type.
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn compare(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(left), Number::Int(right)) => Some(left.cmp(&right)),
            (Number::Int(left), Number::Float(right)) => (left as f64).partial_cmp(&right),
            (Number::Float(left), Number::Int(right)) => left.partial_cmp(&(right as f64)),
            (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right),
        }
    }
}

fn number(value: &Value<'_>, operand: &Operand<'_>) -> Option<Number> {
    if let Operand::Wide(number) = operand {
        return Some(Number::Int(*number));
    }
    match value {
        Value::Int(number) => Some(Number::Int(i128::from(*number))),
        Value::UInt(number) => Some(Number::Int(i128::from(*number))),
        Value::Float(number) => Some(Number::Float(*number)),
        Value::Null
        | Value::Bool(_)
        | Value::Bytes(_)
        | Value::IntList(_)
        | Value::UIntList(_)
        | Value::Array(_)
        | Value::TextList(_) => None,
    }
}

/// Matches a LIKE pattern: `%` matches any characters, `_` one, and `\` makes the next one literal. Takes at most text
/// × pattern steps.
fn is_like(text: &str, pattern: &[char]) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at_text, mut at_pattern) = (0, 0);
    // The position after the last `%`, and the start of the text that it has not matched yet.
    let mut percent: Option<(usize, usize)> = None;
    while at_text < text.len() {
        let (wanted, length) = match (pattern.get(at_pattern), pattern.get(at_pattern + 1)) {
            (Some('%'), _) => {
                at_pattern += 1;
                percent = Some((at_pattern, at_text));
                continue;
            }
            (Some('_'), _) => (text.get(at_text), 1),
            (Some('\\'), Some(escaped)) => (Some(escaped), 2),
            (wanted, _) => (wanted, 1),
        };
        if wanted == text.get(at_text) {
            at_text += 1;
            at_pattern += length;
        } else if let Some((after, from)) = percent {
            percent = Some((after, from + 1));
            (at_pattern, at_text) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[at_pattern.min(pattern.len())..]
        .iter()
        .all(|letter| *letter == '%')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BooleanArray, Int32Array, Int64Array, StringArray, UInt64Array};

    fn rows(condition: &str) -> Result<Vec<usize>, String> {
        let batch = RecordBatch::try_from_iter_with_nullable([
            (
                "pid",
                Arc::new(Int32Array::from(vec![Some(-1), Some(7), None])) as ArrayRef,
                true,
            ),
            (
                "comm",
                Arc::new(StringArray::from(vec![Some("dd"), Some("Kwork%r"), None])) as ArrayRef,
                true,
            ),
            (
                "ip",
                Arc::new(UInt64Array::from(vec![0, u64::MAX, 3])) as ArrayRef,
                true,
            ),
            (
                "time",
                Arc::new(Int64Array::from(vec![5000, 6000, 7000])) as ArrayRef,
                true,
            ),
            (
                "seen",
                Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])) as ArrayRef,
                true,
            ),
        ])
        .unwrap();
        let condition = Condition::parse(condition)?.of_trace(5000);
        let kept = condition.evaluate(&batch)?;
        Ok((0..3).filter(|row| kept[*row]).collect())
    }

    #[test]
    fn rows_are_kept_as_in_sql() {
        let check = |condition: &str, expected: &[usize]| {
            assert_eq!(rows(condition).unwrap(), expected, "{condition}");
        };
        check("pid = 7", &[1]);
        check("pid <> 7", &[0]);
        check("not pid = 7", &[0]);
        check("pid < 0 or pid > 6.5", &[0, 1]);
        check("pid is null", &[2]);
        check("pid is not null and comm = 'dd'", &[0]);
        check("pid in (1, 7, NULL)", &[1]);
        check("pid not in (1, 7)", &[0]);
        check("pid not in (1, NULL)", &[]);
        check("pid between -1 and 0", &[0]);
        check("pid not between -1 and 0", &[1]);
        check("ip = 0xffffffffffffffff", &[1]);
        check("ip < 99999999999999999999", &[0, 1, 2]);
        check("ip > -1", &[0, 1, 2]);
        check("comm like 'd%'", &[0]);
        check("comm like '_d' or comm like '%wo%'", &[0, 1]);
        check("comm like 'Kwork\\%r'", &[1]);
        check("comm ilike 'k%R'", &[1]);
        check("comm not like 'd%'", &[1]);
        check("seen", &[0]);
        check("not seen", &[1]);
        check("seen is not true", &[1, 2]);
        check("seen = (pid = -1)", &[0, 1]);
        check("missing = 1 or pid = 7", &[1]);
        check("missing is null", &[0, 1, 2]);
        check("(pid = 7 and missing = 1) is null", &[1, 2]);
        check("COMM >= 'K' and \"comm\" < 'd'", &[1]);
        check("\"COMM\" = 'dd'", &[]);
    }

    #[test]
    fn durations_beside_times_count_from_the_start() {
        let check = |condition: &str, expected: &[usize]| {
            assert_eq!(rows(condition).unwrap(), expected, "{condition}");
        };
        check("time < 1us", &[0]);
        check("1.5us < time", &[2]);
        check("time BETWEEN 500ns AND 1us", &[1]);
        check("time IN (2us, 1)", &[2]);
        check("time > 6000", &[2]);
        check("pid = 7ns", &[1]);
    }

    #[test]
    fn types_that_do_not_compare_are_errors() {
        assert_eq!(
            rows("pid = 'x'").unwrap_err(),
            "cannot compare column pid with 'x'"
        );
        assert_eq!(rows("pid").unwrap_err(), "column pid: expected a condition");
        assert_eq!(
            rows("pid like 'x'").unwrap_err(),
            "column pid: expected text for LIKE"
        );
    }
}
