//! Parses the tokens of a condition with SQL's precedence: OR, AND, NOT, then comparisons.

use super::tokens::{Kind, Token, tokens};
use super::{Comparison, Expression, Literal};
use perfquet_views::TIMES;

/// Maximum depth of parentheses and NOTs.
const DEEPEST: usize = 200;

/// Parses a condition. Returns the expression and its columns.
pub(super) fn parse(text: &str) -> Result<(Expression, Vec<String>), String> {
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        next: 0,
        columns: Vec::new(),
        depth: 0,
    };
    let expression = parser.disjunction()?;
    if parser.next < parser.tokens.len() {
        return Err(parser.expected("AND, OR or the end"));
    }
    Ok((expression, parser.columns))
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    next: usize,
    columns: Vec<String>,
    depth: usize,
}

impl Parser<'_> {
    /// `a OR b`
    fn disjunction(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("expected fewer nested parentheses".to_owned());
        }
        let mut terms = vec![self.conjunction()?];
        while self.takes_word("OR") {
            terms.push(self.conjunction()?);
        }
        self.depth -= 1;
        Ok(joined(terms, Expression::Or))
    }

    /// `a AND b`
    fn conjunction(&mut self) -> Result<Expression, String> {
        let mut terms = vec![self.negation()?];
        while self.takes_word("AND") {
            terms.push(self.negation()?);
        }
        Ok(joined(terms, Expression::And))
    }

    /// `NOT a`
    fn negation(&mut self) -> Result<Expression, String> {
        let mut is_negated = false;
        while self.takes_word("NOT") {
            is_negated = !is_negated;
        }
        let expression = self.predicate()?;
        Ok(negated(is_negated, expression))
    }

    /// `a = b`, `a IN (…)`, `a BETWEEN b AND c`, `a LIKE 'x%'`, `a IS NULL`
    fn predicate(&mut self) -> Result<Expression, String> {
        let left = self.operand()?;
        if let Some(comparison) = self.comparison() {
            let right = self.operand()?;
            return Ok(Expression::Compare(
                comparison,
                Box::new(left),
                Box::new(right),
            ));
        }
        if self.takes_word("IS") {
            let is_negated = self.takes_word("NOT");
            let left = Box::new(left);
            let test = if self.takes_word("NULL") {
                Expression::IsNull(left)
            } else if self.takes_word("TRUE") {
                Expression::IsTrue(left)
            } else if self.takes_word("FALSE") {
                Expression::IsFalse(left)
            } else {
                return Err(self.expected("NULL, TRUE or FALSE"));
            };
            return Ok(negated(is_negated, test));
        }
        let is_negated = self.takes_word("NOT");
        let test = if self.takes_word("IN") {
            Expression::In(Box::new(left), self.list()?)
        } else if self.takes_word("BETWEEN") {
            let low = self.operand()?;
            if !self.takes_word("AND") {
                return Err(self.expected("AND"));
            }
            let high = self.operand()?;
            if self.is_time(&left) && has_two_clocks(&low, &high) {
                let both = "BETWEEN: expected two durations from the start of the trace, or two numbers of its clock in nanoseconds";
                return Err(both.to_owned());
            }
            let compare = |comparison, bound| {
                Expression::Compare(comparison, Box::new(left.clone()), Box::new(bound))
            };
            Expression::And(vec![
                compare(Comparison::GreaterOrEqual, low),
                compare(Comparison::LessOrEqual, high),
            ])
        } else if let Some(ignores_case) = self.like() {
            let Some(Kind::Text(pattern)) = self.peek().cloned() else {
                return Err(self.expected("a quoted pattern"));
            };
            self.next += 1;
            Expression::Like {
                text: Box::new(left),
                pattern,
                ignores_case,
            }
        } else if is_negated {
            return Err(self.expected("IN, BETWEEN or LIKE"));
        } else {
            return Ok(left);
        };
        Ok(negated(is_negated, test))
    }

    fn like(&mut self) -> Option<bool> {
        if self.takes_word("LIKE") {
            return Some(false);
        }
        self.takes_word("ILIKE").then_some(true)
    }

    /// `(a, b)`
    fn list(&mut self) -> Result<Vec<Expression>, String> {
        if !self.takes_symbol("(") {
            return Err(self.expected("("));
        }
        let mut items = vec![self.operand()?];
        while self.takes_symbol(",") {
            items.push(self.operand()?);
        }
        if !self.takes_symbol(")") {
            return Err(self.expected(", or )"));
        }
        Ok(items)
    }

    /// A column, a literal, or an expression in parentheses.
    fn operand(&mut self) -> Result<Expression, String> {
        if self.takes_symbol("(") {
            let inner = self.disjunction()?;
            if !self.takes_symbol(")") {
                return Err(self.expected(")"));
            }
            return Ok(inner);
        }
        let is_negative = self.takes_symbol("-");
        let literal = match self.peek().cloned() {
            Some(Kind::Int(number)) => {
                let sign = if is_negative { -1 } else { 1 };
                Literal::Int(number.saturating_mul(sign))
            }
            Some(Kind::Duration(number)) => {
                let sign = if is_negative { -1 } else { 1 };
                Literal::Duration(number.saturating_mul(sign))
            }
            Some(Kind::Float(number)) => Literal::Float(if is_negative { -number } else { number }),
            _ if is_negative => return Err(self.expected("a number")),
            Some(Kind::Text(text)) => Literal::Text(text),
            Some(Kind::Name(name)) => return Ok(self.column(name)),
            Some(Kind::Word(word)) => match word.to_ascii_uppercase().as_str() {
                "NULL" => Literal::Null,
                "TRUE" => Literal::Bool(true),
                "FALSE" => Literal::Bool(false),
                "AND" | "OR" | "NOT" | "IN" | "IS" | "LIKE" | "ILIKE" | "BETWEEN" => {
                    return Err(self.expected("a column or a value"));
                }
                _ => return Ok(self.column(word.to_lowercase())),
            },
            Some(Kind::Symbol(_)) | None => return Err(self.expected("a column or a value")),
        };
        self.next += 1;
        Ok(Expression::Literal(literal))
    }

    fn is_time(&self, expression: &Expression) -> bool {
        let Expression::Column(index) = expression else {
            return false;
        };
        let name = self.columns.get(*index);
        name.is_some_and(|name| TIMES.contains(&name.as_str()))
    }

    fn column(&mut self, name: String) -> Expression {
        self.next += 1;
        let known = self.columns.iter().position(|column| *column == name);
        Expression::Column(known.unwrap_or_else(|| {
            self.columns.push(name);
            self.columns.len() - 1
        }))
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let Some(Kind::Symbol(symbol)) = self.peek() else {
            return None;
        };
        let comparison = match *symbol {
            "=" | "==" => Comparison::Equal,
            "<>" | "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.next += 1;
        Some(comparison)
    }

    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    fn takes_word(&mut self, keyword: &str) -> bool {
        let is_there =
            matches!(self.peek(), Some(Kind::Word(word)) if word.eq_ignore_ascii_case(keyword));
        self.next += usize::from(is_there);
        is_there
    }

    fn takes_symbol(&mut self, symbol: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Kind::Symbol(found)) if *found == symbol);
        self.next += usize::from(is_there);
        is_there
    }

    fn expected(&self, what: &str) -> String {
        match self.tokens.get(self.next) {
            Some(token) => format!("expected {what}, found {:?}", &self.text[token.place..]),
            None => format!("expected {what} after {:?}", self.text),
        }
    }
}

/// Whether one bound of a time counts from the start of the trace, and the other one is of its clock.
fn has_two_clocks(low: &Expression, high: &Expression) -> bool {
    let is_duration = |bound: &Expression| match bound {
        Expression::Literal(Literal::Duration(_)) => Some(true),
        Expression::Literal(Literal::Int(_) | Literal::Float(_)) => Some(false),
        _ => None,
    };
    let both = is_duration(low).zip(is_duration(high));
    both.is_some_and(|(low, high)| low != high)
}

/// Returns a single term unchanged, and joins several with AND or OR.
fn joined(mut terms: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match terms.len() {
        1 => terms.remove(0),
        _ => join(terms),
    }
}

fn negated(is_negated: bool, expression: Expression) -> Expression {
    match is_negated {
        true => Expression::Not(Box::new(expression)),
        false => expression,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_bind_as_in_sql() {
        let (found, columns) = parse("a = 1 or not b < 2 and c is not null").unwrap();
        let (same, _) = parse("a = 1 OR ((NOT (b < 2)) AND (NOT (c IS NULL)))").unwrap();
        assert_eq!(found, same);
        assert_eq!(columns, ["a", "b", "c"]);
    }

    #[test]
    fn durations_and_addresses_are_numbers() {
        let (found, _) = parse("a > 0x10 and b = 0xffffffff81000000").unwrap();
        let (same, _) = parse("a > 16 and b = 18446744071578845184").unwrap();
        assert_eq!(found, same);
        let (found, _) = parse("-1.5ms").unwrap();
        assert_eq!(found, Expression::Literal(Literal::Duration(-1_500_000)));
    }

    #[test]
    fn bounds_of_a_time_are_of_one_clock() {
        for text in [
            "time BETWEEN 5000000000 AND 5.2s",
            "time not between 1ms and 7",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("two durations from the start"), "{error}");
        }
        for text in [
            "time BETWEEN 1 AND 2",
            "time BETWEEN 1s AND 2s",
            "duration BETWEEN 0 AND 5ms",
        ] {
            parse(text).unwrap();
        }
    }

    #[test]
    fn errors_have_a_place() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        };
        check("", "expected a column or a value after \"\"");
        check("a =", "expected a column or a value after \"a =\"");
        check("a = 1 b", "expected AND, OR or the end, found \"b\"");
        check("a in 1", "expected (, found \"1\"");
        check("a like b", "expected a quoted pattern, found \"b\"");
        check("a = 'x", "'x: expected a closing '");
        check(
            "a > 5sec",
            "5sec: expected a number or a duration such as 1.5ms",
        );
        check("a ; b", "unexpected character ';'");
        check(
            "count(pid) > 1",
            "expected AND, OR or the end, found \"(pid) > 1\"",
        );
        let deep = "(".repeat(100_000);
        assert_eq!(
            parse(&deep).unwrap_err(),
            "expected fewer nested parentheses"
        );
    }
}
