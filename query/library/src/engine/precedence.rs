//! The order of operators where the parser has another than DuckDB and PostgreSQL.
//!
//! ```text
//! a IS DISTINCT FROM b AND c     (a IS DISTINCT FROM b) AND c, not a IS DISTINCT FROM (b AND c)
//! x >> n & m                     (x >> n) & m, not x >> (n & m)
//! x | y & z                      refused: x | (y & z) in C, (x | y) & z in DuckDB
//! ```
//! `IS DISTINCT FROM` is read as an operator of its own, since the parser takes all that follows as its right side.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::spelling::is_word;

const DISTINCT: &str = "IS DISTINCT FROM";
const NOT_DISTINCT: &str = "IS NOT DISTINCT FROM";

/// Replaces the words `IS [NOT] DISTINCT FROM` by one token, whose operator [`Order`] replaces in turn.
pub(super) fn with_distinct(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len())
        .filter(|&index| !matches!(tokens[index].token, Token::Whitespace(_)))
        .collect();
    let is = |place: usize, text: &str| {
        (words.get(place)).is_some_and(|&index| is_word(&tokens[index].token, text))
    };
    let mut found = Vec::new();
    for place in 0..words.len() {
        let spelled = |text: &str| {
            let mut parts = text.split(' ').enumerate();
            parts.all(|(number, part)| is(place + number, part))
        };
        let operator = [DISTINCT, NOT_DISTINCT]
            .into_iter()
            .find(|text| spelled(text));
        if let Some(operator) = operator {
            let last = place + operator.split(' ').count() - 1;
            found.push((words[place], words[last], operator));
        }
    }
    if found.is_empty() {
        return tokens;
    }
    let mut replaced = Vec::with_capacity(tokens.len());
    for (index, token) in tokens.into_iter().enumerate() {
        match found
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&index))
        {
            Some((first, _, operator)) if *first == index => {
                let operator = Token::CustomBinaryOperator((*operator).to_owned());
                replaced.push(TokenWithSpan::new(operator, token.span));
            }
            Some(_) => {}
            None => replaced.push(token),
        }
    }
    replaced
}

/// Puts operators into the order of DuckDB and PostgreSQL. What changes gets parentheses, so that it stays so when it is written and read again.
#[derive(Default)]
pub(super) struct Order {
    /// Why a statement was refused.
    pub(super) wrong: String,
}

impl VisitorMut for Order {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::BinaryOp { left, op, right } = expr else {
            return ControlFlow::Continue(());
        };
        if let BinaryOperator::Custom(name) = op {
            let sides = (take(left), take(right));
            *expr = nested(match name.as_str() {
                DISTINCT => Expr::IsDistinctFrom(sides.0, sides.1),
                NOT_DISTINCT => Expr::IsNotDistinctFrom(sides.0, sides.1),
                _ => return ControlFlow::Continue(()),
            });
            return ControlFlow::Continue(());
        }
        let Some(own) = Bits::of(op) else {
            return ControlFlow::Continue(());
        };
        match (own, bits(left), bits(right)) {
            (Bits::Shift, _, Some(Bits::And)) => self.shift_first(expr),
            // In C, `x & m >> n` shifts first, and in DuckDB last; in C, `|` comes last, and in DuckDB in order.
            (Bits::Shift, Some(Bits::And), _) | (Bits::Or, _, Some(Bits::And | Bits::Shift)) => {
                self.wrong = "&, | and shifts have another order in C than in DuckDB\nhint: put parentheses around what comes first, as in (x >> 4) & 15".to_owned();
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Order {
    /// `x >> (n & m & …)` as `(x >> n) & m & …`.
    fn shift_first(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::BinaryOp { left, op, right } = expr else {
            return ControlFlow::Continue(());
        };
        shift(right, take(left), op);
        *expr = *take(right);
        ControlFlow::Continue(())
    }
}

/// Puts the shift of `value` by the first term of `selected` in its place.
fn shift(selected: &mut Expr, value: Box<Expr>, by: &BinaryOperator) {
    match selected {
        Expr::BinaryOp { left, op, .. } if Bits::of(op) == Some(Bits::And) => {
            shift(left, value, by);
        }
        amount => {
            let right = std::mem::replace(amount, Expr::value(Value::Null));
            *amount = nested(Expr::BinaryOp {
                left: value,
                op: by.clone(),
                right: Box::new(right),
            });
        }
    }
}

/// Operators on bits whose order differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bits {
    And,
    Or,
    Shift,
}

impl Bits {
    fn of(op: &BinaryOperator) -> Option<Bits> {
        match op {
            BinaryOperator::BitwiseAnd => Some(Bits::And),
            BinaryOperator::BitwiseOr => Some(Bits::Or),
            BinaryOperator::PGBitwiseShiftLeft | BinaryOperator::PGBitwiseShiftRight => {
                Some(Bits::Shift)
            }
            _ => None,
        }
    }
}

/// The operator of an expression that is not in parentheses.
fn bits(expr: &Expr) -> Option<Bits> {
    match expr {
        Expr::BinaryOp { op, .. } => Bits::of(op),
        _ => None,
    }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn take(expr: &mut Box<Expr>) -> Box<Expr> {
    std::mem::replace(expr, Box::new(Expr::value(Value::Null)))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::engine;

    fn check(written: &str, expected: &str) {
        let statement =
            engine::statement(&SessionContext::new().state(), &format!("SELECT {written}"));
        let found = statement.map(|statement| statement.to_string());
        assert_eq!(found.unwrap(), format!("SELECT {expected}"), "{written}");
    }

    #[test]
    fn a_comparison_with_null_ends_before_and() {
        check(
            "a IS DISTINCT FROM b AND c OR d",
            "(a IS DISTINCT FROM b) AND c OR d",
        );
        check(
            "x AND a is not\ndistinct from b + 1 OR NOT c IS DISTINCT FROM d AND e",
            "x AND (a IS NOT DISTINCT FROM b + 1) OR NOT (c IS DISTINCT FROM d) AND e",
        );
        check(
            "a IS DISTINCT FROM (b AND c)",
            "(a IS DISTINCT FROM (b AND c))",
        );
        check(
            "a = b IS DISTINCT FROM c < d",
            "(a = b IS DISTINCT FROM c < d)",
        );
        check("count(DISTINCT a) FROM b", "count(DISTINCT a) FROM b");
    }

    #[test]
    fn bits_are_shifted_before_they_are_selected() {
        check("x >> 4 & 15", "(x >> 4) & 15");
        check("x >> 4 & 15 & y | z", "(x >> 4) & 15 & y | z");
        check("x >> 1 << 2 & 15", "(x >> 1 << 2) & 15");
        check("x >> (4 & 15)", "x >> (4 & 15)");
        check("x & 1 = 1", "x & 1 = 1");
    }

    #[test]
    fn orders_that_differ_from_c_are_refused() {
        for written in ["x & 15 >> 4", "x | y & z", "x | y << 3", "x >> 4 & 15 << 2"] {
            let statement =
                engine::statement(&SessionContext::new().state(), &format!("SELECT {written}"));
            let wrong = statement.unwrap_err().to_string();
            assert!(wrong.contains("put parentheses"), "{written}: {wrong}");
        }
    }
}
