//! `--where`: a condition in SQL's syntax on the columns of a table, evaluated without a query engine.
//!
//! ```text
//! comm LIKE 'kworker%' AND (duration > 500us OR NOT entry_seen)
//! ```
//! Comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL and IS TRUE, with SQL's three-valued logic: a
//! comparison with NULL is NULL, and only rows whose condition is true are kept. A column that a table lacks is NULL.
//! A duration that is compared with a time (`time < 100ms`) counts from the start of the trace, as in the query tool.
//! The query tool supports all of SQL; this subset needs no query engine, so the converter builds without one.

mod evaluate;
mod parse;
mod tokens;

use std::cmp::Ordering;

/// A parsed condition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    expression: Expression,
    /// Columns as written, lower case unless quoted.
    columns: Vec<String>,
    /// When the trace begins, on its clock.
    start: i64,
}

impl Condition {
    /// Parses a condition. Errors include the position: `at "duration >": expected …`.
    pub(crate) fn parse(text: &str) -> Result<Condition, String> {
        let (expression, columns) = parse::parse(text)?;
        Ok(Condition {
            expression,
            columns,
            start: 0,
        })
    }

    /// Returns the condition on rows of a trace that begins at `start`: a duration that is compared with a time counts from there.
    pub(crate) fn of_trace(self, start: i64) -> Condition {
        Condition { start, ..self }
    }

    /// Returns the names of the columns in the condition, each once.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }
}

/// An expression with a value in each row.
#[derive(Debug, Clone, PartialEq)]
enum Expression {
    /// Index in [`Condition::columns`].
    Column(usize),
    Literal(Literal),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Compare(Comparison, Box<Expression>, Box<Expression>),
    In(Box<Expression>, Vec<Expression>),
    Like {
        text: Box<Expression>,
        pattern: String,
        ignores_case: bool,
    },
    IsNull(Box<Expression>),
    IsTrue(Box<Expression>),
    IsFalse(Box<Expression>),
}

#[derive(Debug, Clone, PartialEq)]
enum Literal {
    Null,
    Bool(bool),
    /// Any 64-bit integer, signed or unsigned.
    Int(i128),
    Float(f64),
    /// Nanoseconds.
    Duration(i128),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}
