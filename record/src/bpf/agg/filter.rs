//! `--filter` for aggregated hits and calls: the kernel's filter language (Documentation/trace/events.rst), compiled
//! for the program, because programs run before the kernel's own filter.
//!
//! ```text
//! count > 4096 && (COMM == "dd" || name ~ "log*")
//! ```
//! An expression of up to [`MOST_CONDITIONS`] comparisons becomes a truth table, with one bit for each combination of
//! their results ([`Predicate::truth`]).

use perfquet_ebpf::layout::{
    CONDITION_WORDS, Condition, MOST_CONDITIONS, Predicate, Subject, Test, Value as Measured,
};

use perfquet_cli::quantity;

use super::super::plan::Located;
use super::names::{self, Fields, Found};
use crate::failure::{Failure, misuse};

/// Maximum nesting of parentheses and `!`.
const MOST_DEPTH: usize = 64;
/// The kernel's operators, longer ones first.
const OPERATORS: &[&str] = &["==", "!=", "<=", ">=", "<", ">", "&", "~"];

/// Compiles a filter for hits of a probe or calls of a function.
pub(super) fn of(filter: &str, fields: &mut dyn Fields) -> Result<Predicate, Failure> {
    let mut parser = Parser {
        filter,
        rest: filter,
        fields,
        conditions: Vec::new(),
        depth: 0,
    };
    let expression = parser.any()?;
    if !parser.rest.trim_start().is_empty() {
        return Err(parser.expected("&& or ||"));
    }
    Ok(Predicate {
        truth: truth(&expression),
        conditions: std::array::from_fn(|number| {
            let condition = parser.conditions.get(number);
            condition.copied().unwrap_or_default()
        }),
    })
}

/// Returns the truth table: one bit for each set of true conditions.
fn truth(expression: &Expression) -> u64 {
    (0..1u64 << MOST_CONDITIONS)
        .filter(|holding| expression.holds(*holding))
        .fold(0, |truth, holding| truth | 1 << holding)
}

enum Expression {
    /// The condition with this number.
    Is(usize),
    Not(Box<Expression>),
    Both(Box<(Expression, Expression)>),
    Either(Box<(Expression, Expression)>),
}

impl Expression {
    fn holds(&self, holding: u64) -> bool {
        match self {
            Expression::Is(number) => holding >> number & 1 != 0,
            Expression::Not(inside) => !inside.holds(holding),
            Expression::Both(sides) => sides.0.holds(holding) && sides.1.holds(holding),
            Expression::Either(sides) => sides.0.holds(holding) || sides.1.holds(holding),
        }
    }
}

/// A value as written in a filter.
struct Value<'a> {
    text: &'a str,
    is_quoted: bool,
}

struct Parser<'a, 'f> {
    filter: &'a str,
    rest: &'a str,
    fields: &'f mut dyn Fields,
    conditions: Vec<Condition>,
    depth: usize,
}

impl<'a> Parser<'a, '_> {
    fn expected(&self, what: &str) -> Failure {
        let there = match self.rest.trim() {
            "" => "its end".to_owned(),
            rest => format!("{rest:?}"),
        };
        misuse(format!(
            "--filter {}: expected {what}, found {there}",
            self.filter
        ))
        .hint("write a filter like --filter 'count > 4096 && COMM == \"dd\"'")
    }

    /// Consumes a symbol if it is next.
    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// `A || B`
    fn any(&mut self) -> Result<Expression, Failure> {
        let mut left = self.all()?;
        while self.takes("||") {
            left = Expression::Either(Box::new((left, self.all()?)));
        }
        Ok(left)
    }

    /// `A && B`
    fn all(&mut self) -> Result<Expression, Failure> {
        let mut left = self.one()?;
        while self.takes("&&") {
            left = Expression::Both(Box::new((left, self.one()?)));
        }
        Ok(left)
    }

    /// `(A)`, `!A`, `FIELD == VALUE`
    fn one(&mut self) -> Result<Expression, Failure> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.expected("fewer brackets"));
        }
        let found = if self.takes("(") {
            let inside = self.any()?;
            if !self.takes(")") {
                return Err(self.expected("a closing bracket"));
            }
            inside
        } else if self.takes("!") {
            Expression::Not(Box::new(self.one()?))
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(found)
    }

    fn comparison(&mut self) -> Result<Expression, Failure> {
        let name = self
            .word(|c| c.is_alphanumeric() || c == '_' || c == '.')
            .ok_or_else(|| self.expected("a field"))?;
        let mut operators = OPERATORS.iter().copied();
        let operator = operators.find(|sign| self.takes(sign));
        let operator = operator.ok_or_else(|| self.expected("==, !=, <, <=, >, >=, & or ~"))?;
        let value = self.value().ok_or_else(|| self.expected("a value"))?;
        let (condition, is_negated) = self.condition(name, operator, &value)?;
        let known = self.conditions.iter().position(|other| *other == condition);
        let number = known.unwrap_or(self.conditions.len());
        if known.is_none() {
            if number == MOST_CONDITIONS {
                return Err(misuse(format!(
                    "--filter {}: more than {MOST_CONDITIONS} comparisons, the maximum with --agg",
                    self.filter
                )));
            }
            self.conditions.push(condition);
        }
        let is = Expression::Is(number);
        Ok(match is_negated {
            true => Expression::Not(Box::new(is)),
            false => is,
        })
    }

    /// Consumes the characters of a word.
    fn word(&mut self, belongs: fn(char) -> bool) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        self.rest = behind;
        (!word.is_empty()).then_some(word)
    }

    fn value(&mut self) -> Option<Value<'a>> {
        for quote in ["\"", "'"] {
            if self.takes(quote) {
                let (text, behind) = self.rest.split_once(quote)?;
                self.rest = behind;
                return Some(Value {
                    text,
                    is_quoted: true,
                });
            }
        }
        let text = self.word(|c| !c.is_whitespace() && !"&|()!".contains(c))?;
        Some(Value {
            text,
            is_quoted: false,
        })
    }

    /// Parses a comparison; returns whether it is negated.
    fn condition(
        &mut self,
        name: &str,
        operator: &str,
        value: &Value<'_>,
    ) -> Result<(Condition, bool), Failure> {
        let what = format!("--filter {}", self.filter);
        let mut condition = Condition::default();
        let found = match (self.fields.find(&what, name), names::subject(name)) {
            (Ok(found), _) => Some(found),
            (Err(_), Some(subject)) => {
                condition.subject = subject as u32;
                None
            }
            (Err(failure), None) => return Err(failure),
        };
        let mut at = None;
        let is_text = match found {
            Some(Found::Number(located, width)) => {
                condition.fetch = width;
                at = Some(located);
                false
            }
            Some(Found::Text { at: located, .. }) => {
                at = Some(located);
                true
            }
            Some(Found::Comm) => {
                condition.subject = Subject::Comm as u32;
                true
            }
            None => condition.subject == Subject::Comm as u32,
        };
        match at {
            Some(Located::Fetched(fetch)) => condition.fetch = fetch,
            Some(Located::Saved(place)) => {
                condition.subject = Subject::Saved as u32;
                condition.place = place;
            }
            Some(Located::Measured(Measured::Duration)) => {
                condition.subject = Subject::Duration as u32;
            }
            Some(Located::Measured(_)) => {
                return Err(misuse(format!("{what}: {name} cannot be compared"))
                    .hint("compare duration, arguments, the return value, comm, cpu or tid"));
            }
            None => {}
        }
        let wrong = |why: &str| misuse(format!("{what}: {name} {operator}: {why}"));
        let (test, is_negated) = match (operator, is_text) {
            ("==" | "~", true) => (Test::Text, false),
            ("!=", true) => (Test::Text, true),
            (_, true) => return Err(wrong("a text is compared by ==, != or ~")),
            ("~", false) => return Err(wrong("it is a number")),
            ("==", false) => (Test::Equal, false),
            ("!=", false) => (Test::Equal, true),
            ("<", false) => (Test::Less, false),
            (">=", false) => (Test::Less, true),
            (">", false) => (Test::Greater, false),
            ("<=", false) => (Test::Greater, true),
            (_, false) => (Test::Bits, false),
        };
        condition.test = test as u32;
        if test == Test::Text {
            let is_pattern = operator == "~";
            let found = text(value.text, is_pattern).map_err(|why: String| wrong(&why))?;
            (condition.text, condition.mask) = found;
            return Ok((condition, is_negated));
        }
        let is_time = condition.subject == Subject::Duration as u32;
        let number = match value.is_quoted {
            true => None,
            false if is_time => number(value.text).or_else(|| nanoseconds(value.text)),
            false => number(value.text),
        };
        let number = number.ok_or_else(|| wrong(&format!("{:?} is no number", value.text)))?;
        condition.constant = as_field(number, &condition)
            .ok_or_else(|| wrong(&format!("{} is beyond its range", value.text)))?;
        Ok((condition, is_negated))
    }
}

/// Parses a time with its unit: `10ms`.
fn nanoseconds(text: &str) -> Option<i128> {
    i128::try_from(quantity::duration(text).ok()?.as_nanos()).ok()
}

/// Parses a decimal, hexadecimal (`0x`) or octal (`0`) number, as in C.
fn number(text: &str) -> Option<i128> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(digits) => (digits, -1),
        None => (text, 1),
    };
    let (digits, radix) = match digits.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let value = u64::from_str_radix(digits, radix).ok()?;
    (!digits.starts_with('+')).then(|| sign * i128::from(value))
}

/// Widens the number like a field of this width; `None` if the field cannot have this value.
fn as_field(number: i128, condition: &Condition) -> Option<u64> {
    let fetch = &condition.fetch;
    let bits = match (fetch.size, fetch.bits) {
        (0, _) => 32, // a CPU, a thread
        (_, bits @ 1..) => bits,
        (bytes, 0) => bytes * 8,
    };
    let end = 1i128 << bits.min(64);
    let half = end / 2;
    match fetch.is_signed {
        // 0xffffffff is also -1.
        1 if (half..end).contains(&number) => Some((number - end) as u64),
        1 => (-half..half).contains(&number).then_some(number as u64),
        _ if (-half..0).contains(&number) => Some((number + end) as u64),
        _ => (0..end).contains(&number).then_some(number as u64),
    }
}

type Words = [u64; CONDITION_WORDS];

/// Returns the bytes of a string, including its NUL, or of a prefix, and a mask of the compared bytes.
fn text(text: &str, is_pattern: bool) -> Result<(Words, Words), String> {
    let (text, is_beginning) = match text.strip_suffix('*').filter(|_| is_pattern) {
        Some(beginning) => (beginning, true),
        None => (text, false),
    };
    if is_pattern && text.contains(['*', '?', '[', '\\']) {
        return Err("--agg compares whole strings and prefixes (\"abc*\")".to_owned());
    }
    let longest = CONDITION_WORDS * 8 - 1;
    if text.len() > longest {
        return Err(format!("--agg compares at most {longest} bytes"));
    }
    let (mut bytes, mut mask) = ([0; CONDITION_WORDS * 8], [0; CONDITION_WORDS * 8]);
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    let end = text.len() + usize::from(!is_beginning);
    mask[..end].fill(0xff);
    let words = |bytes: [u8; CONDITION_WORDS * 8]| {
        let mut words = Words::default();
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        words
    };
    Ok((words(bytes), words(mask)))
}

#[cfg(test)]
mod tests {
    use perfquet_ebpf::layout::Fetch;

    use super::names::HitFields;
    use super::*;
    use crate::bpf::own_records;

    /// Without fields: names that all probes have.
    fn predicate(filter: &str) -> Result<Predicate, String> {
        let probe = own_records();
        of(filter, &mut HitFields(&probe)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn expressions() {
        let truth = |filter: &str| predicate(filter).expect(filter).truth & 0xff;
        assert_eq!(truth("cpu == 1"), 0b1010_1010);
        assert_eq!(truth("cpu != 1"), 0b0101_0101);
        assert_eq!(truth(" !(cpu==1)"), 0b0101_0101);
        assert_eq!(truth("cpu == 1 && cpu < 2"), 0b1000_1000);
        assert_eq!(truth("cpu == 1 || cpu < 2"), 0b1110_1110);
        // && binds tighter than ||; a repeated comparison counts once.
        assert_eq!(truth("cpu == 1 || cpu < 2 && cpu > 3"), 0b1110_1010);
        assert_eq!(truth("(cpu == 1 || cpu < 2) && cpu > 3"), 0b1110_0000);
        assert_eq!(truth("cpu == 1 && cpu != 1"), 0);
        assert_eq!(Predicate::default().truth & 1, 1);
    }

    #[test]
    fn mistakes() {
        let seven = (1..=7)
            .map(|cpu| format!("cpu == {cpu}"))
            .collect::<Vec<_>>();
        let deep = "!".repeat(1000);
        for (filter, expected) in [
            ("", "expected a field, found its end"),
            (
                "cpu",
                "expected ==, !=, <, <=, >, >=, & or ~, found its end",
            ),
            (
                "cpu = 1",
                "expected ==, !=, <, <=, >, >=, & or ~, found \"= 1\"",
            ),
            ("cpu ==", "expected a value, found its end"),
            ("cpu == 1 cpu", "expected && or ||, found \"cpu\""),
            ("(cpu == 1", "expected a closing bracket, found its end"),
            ("COMM == \"x", "expected a value"),
            ("cpu ~ \"1*\"", "it is a number"),
            ("cpu == x", "\"x\" is no number"),
            ("cpu == 09", "\"09\" is no number"),
            ("cpu == 0x100000000", "0x100000000 is beyond its range"),
            ("COMM & 1", "a text is compared by ==, != or ~"),
            ("COMM ~ \"*x\"", "whole strings and prefixes"),
            (&seven.join(" || "), "more than 6 comparisons"),
            (&deep, "expected fewer brackets"),
        ] {
            let found = predicate(filter).expect_err(filter);
            assert!(found.contains(expected), "{filter}: {found}");
        }
    }

    #[test]
    fn constants_are_widened_as_fields_are() {
        let field = |size, bits, is_signed| Condition {
            fetch: Fetch {
                size,
                bits,
                is_signed,
                ..Fetch::default()
            },
            ..Condition::default()
        };
        let check = |text: &str, size, bits, is_signed, expected: Option<i64>| {
            let found = as_field(number(text).expect(text), &field(size, bits, is_signed));
            assert_eq!(found, expected.map(|value| value as u64), "{text}");
        };
        check("255", 1, 0, 0, Some(255));
        check("-1", 1, 0, 0, Some(255));
        check("255", 1, 0, 1, Some(-1));
        check("-129", 1, 0, 1, None);
        check("256", 1, 0, 0, None);
        check("0xffffffffffffffff", 8, 0, 1, Some(-1));
        check("-9223372036854775808", 8, 0, 1, Some(i64::MIN));
        check("7", 4, 3, 0, Some(7));
        check("8", 4, 3, 0, None);
        check("010", 4, 0, 1, Some(8));
    }

    #[test]
    fn texts_and_their_beginnings() {
        let shown = |found: (Words, Words)| {
            let bytes = found.1.map(u64::to_ne_bytes);
            bytes.iter().flatten().filter(|byte| **byte != 0).count()
        };
        assert_eq!(text("dd", false).map(shown), Ok(3));
        assert_eq!(text("dd*", true).map(shown), Ok(2));
        assert_eq!(text("dd*", false).map(shown), Ok(4));
        assert_eq!(text("*", true).map(shown), Ok(0));
        assert!(text(&"x".repeat(63), false).is_ok());
        assert!(text(&"x".repeat(64), false).is_err());
        assert!(text("a*b", true).is_err());
    }
}
