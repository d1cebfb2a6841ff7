//! The order of operators where the parser has another than DuckDB and PostgreSQL.
//!
//! ```text
//! a IS DISTINCT FROM b AND c     (a IS DISTINCT FROM b) AND c, not a IS DISTINCT FROM (b AND c)
//! x >> n & m                     (x >> n) & m, not x >> (n & m)
//! x | y & z                      refused: x | (y & z) in C, (x | y) & z in DuckDB
//! ```
//! `IS DISTINCT FROM` is parsed as a binary operator: otherwise, the parser takes everything that follows as its right side.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::spelling::is_word;

const DISTINCT: &str = "IS DISTINCT FROM";
const NOT_DISTINCT: &str = "IS NOT DISTINCT FROM";

/// Replaces the words `IS [NOT] DISTINCT FROM` by one token, whose operator [`Order`] replaces in turn.
pub(super) fn with_distinct(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut replaced = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    while let Some((token, others)) = rest.split_first() {
        let found = [DISTINCT, NOT_DISTINCT]
            .into_iter()
            .find_map(|words| Some((words, after(words, rest)?)));
        let (token, others) = match found {
            Some((words, others)) => {
                let operator = Token::CustomBinaryOperator(words.to_owned());
                (TokenWithSpan::new(operator, token.span), others)
            }
            None => (token.clone(), others),
        };
        replaced.push(token);
        rest = others;
    }
    replaced
}

/// The tokens after these words, if they begin with them.
fn after<'t>(words: &str, tokens: &'t [TokenWithSpan]) -> Option<&'t [TokenWithSpan]> {
    let mut rest = tokens;
    for (number, word) in words.split(' ').enumerate() {
        if number > 0 {
            let is_blank = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
            let blanks = rest.iter().take_while(|token| is_blank(token)).count();
            rest = &rest[blanks..];
        }
        let (first, others) = rest.split_first()?;
        rest = is_word(&first.token, word).then_some(others)?;
    }
    Some(rest)
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
        match (&*op, bits(left), bits(right)) {
            (BinaryOperator::Custom(name), ..) if name == DISTINCT => {
                *expr = nested(Expr::IsDistinctFrom(take(left), take(right)));
            }
            (BinaryOperator::Custom(name), ..) if name == NOT_DISTINCT => {
                *expr = nested(Expr::IsNotDistinctFrom(take(left), take(right)));
            }
            (op, _, Some(Bits::And)) if Bits::of(op) == Some(Bits::Shift) => {
                // `x >> (n & m & …)` as `(x >> n) & m & …`.
                shift(right, take(left), op);
                *expr = *take(right);
            }
            (op, first, second) => {
                // In C, `x & m >> n` shifts first, and in DuckDB last; in C, `|` comes last, and in DuckDB in order.
                let differs = match Bits::of(op) {
                    Some(Bits::Shift) => first == Some(Bits::And),
                    Some(Bits::Or) => matches!(second, Some(Bits::And | Bits::Shift)),
                    _ => false,
                };
                if differs {
                    self.wrong = "&, | and shifts have another order in C than in DuckDB\nhint: put parentheses around what comes first, as in (x >> 4) & 15".to_owned();
                    return ControlFlow::Break(());
                }
            }
        }
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
