//! Parser of a `print fmt`: the subset of C in which `TP_printk` is written.
//!
//! ```text
//! "vec=%u [action=%s]", REC->vec, __print_symbolic(REC->vec, { 0, "HI" }, { 1, "TIMER" })
//! ```
//! A format file is untrusted input: nesting is bounded, and the error for an unknown construct names it.

use super::expression::{Expression, NamedValues};
use super::lexer::{self, Token};
use super::types::{Type, is_type_word, type_of};
use crate::event::Field;

/// Maximum nesting. Kernel formats reach 11 (Linux 6.18), and this depth needs little stack.
const MAX_DEPTH: u32 = 96;
/// Maximum number of operators in one argument; more than any kernel format has outside of name tables.
const MAX_OPERATORS: u32 = 256;
/// Maximum length of a format. The longest of Linux 6.18 has 4,840 bytes.
const MAX_BYTES: usize = 256 << 10;

/// A parsed `print fmt`: the template, its arguments, and the number of variables.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Source {
    pub(super) template: Vec<u8>,
    pub(super) arguments: Vec<Expression>,
    pub(super) locals: usize,
}

/// Parses `"template", argument, …` over `fields`.
pub(super) fn parse(source: &str, fields: &[Field]) -> Result<Source, String> {
    if source.len() > MAX_BYTES {
        return Err(format!(
            "expected at most {MAX_BYTES} bytes, found {}",
            source.len()
        ));
    }
    let tokens = lexer::tokens(source)?;
    let mut parser = Parser {
        tokens: &tokens,
        next: 0,
        depth: 0,
        operators: 0,
        fields,
        scope: Vec::new(),
        locals: 0,
    };
    let template = parser.literal()?;
    let mut arguments = Vec::new();
    while parser.take(",") {
        parser.operators = 0;
        arguments.push(parser.expression()?);
    }
    match parser.peek() {
        None => Ok(Source {
            template,
            arguments,
            locals: parser.locals,
        }),
        Some(found) => Err(expected("the end", Some(found))),
    }
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    next: usize,
    depth: u32,
    /// Number of binary operators in the current argument.
    operators: u32,
    fields: &'a [Field],
    /// Variables in scope, with their indexes.
    scope: Vec<(&'a str, usize)>,
    locals: usize,
}

fn expected(what: &str, found: Option<&Token<'_>>) -> String {
    match found {
        None => format!("expected {what}, found the end"),
        Some(Token::Number(value, _)) => format!("expected {what}, found {value}"),
        Some(Token::Text(_)) => format!("expected {what}, found a string"),
        Some(Token::Word(word)) => format!("expected {what}, found {word}"),
        Some(Token::Mark(mark)) => format!("expected {what}, found {mark}"),
    }
}

/// Returns the precedence of a binary operator.
fn strength(mark: &str) -> Option<u8> {
    Some(match mark {
        "||" => 1,
        "&&" => 2,
        "|" => 3,
        "^" => 4,
        "&" => 5,
        "==" | "!=" => 6,
        "<" | ">" | "<=" | ">=" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "%" => 10,
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token<'a>> {
        self.tokens.get(self.next)
    }

    fn peek_at(&self, ahead: usize) -> Option<&'a Token<'a>> {
        self.tokens.get(self.next + ahead)
    }

    fn take(&mut self, mark: &str) -> bool {
        let hit = matches!(self.peek(), Some(Token::Mark(found)) if *found == mark);
        self.next += usize::from(hit);
        hit
    }

    fn demand(&mut self, mark: &str) -> Result<(), String> {
        if self.take(mark) {
            Ok(())
        } else {
            Err(expected(mark, self.peek()))
        }
    }

    fn word(&mut self) -> Result<&'a str, String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.next += 1;
                Ok(word)
            }
            found => Err(expected("a name", found)),
        }
    }

    /// Adjacent string literals.
    fn literal(&mut self) -> Result<Vec<u8>, String> {
        let Some(Token::Text(first)) = self.peek() else {
            return Err(expected("a text", self.peek()));
        };
        let mut text = first.clone();
        self.next += 1;
        while let Some(Token::Text(more)) = self.peek() {
            text.extend_from_slice(more);
            self.next += 1;
        }
        Ok(text)
    }

    fn deeper<T>(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("expected at most {MAX_DEPTH} levels of nesting"));
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    fn expression(&mut self) -> Result<Expression, String> {
        self.deeper(|parser| {
            let condition = parser.binary(1)?;
            if !parser.take("?") {
                return Ok(condition);
            }
            if parser.take(":") {
                return parser.elvis(condition);
            }
            let yes = parser.expression()?;
            parser.demand(":")?;
            let no = parser.expression()?;
            Ok(Expression::Conditional(Box::new([condition, yes, no])))
        })
    }

    /// Parses `x ?: y`, GNU C for `x ? x : y`. `x` becomes a variable rather than two copies, because nested copies
    /// would grow exponentially.
    fn elvis(&mut self, value: Expression) -> Result<Expression, String> {
        let local = self.locals;
        self.locals += 1;
        let no = self.expression()?;
        let choice = [Expression::Local(local), Expression::Local(local), no];
        Ok(Expression::Block(
            vec![(local, value)],
            Box::new(Expression::Conditional(Box::new(choice))),
        ))
    }

    /// Parses operators with a precedence of at least `floor`. A chain of equal operators nests to the left, one level
    /// each, so their number is bounded too.
    fn binary(&mut self, floor: u8) -> Result<Expression, String> {
        let mut left = self.unary()?;
        while let Some(Token::Mark(mark)) = self.peek() {
            let Some(strength) = strength(mark).filter(|&strength| strength >= floor) else {
                break;
            };
            self.operators += 1;
            if self.operators > MAX_OPERATORS {
                return Err(format!("expected at most {MAX_OPERATORS} operators"));
            }
            self.next += 1;
            let right = self.deeper(|parser| parser.binary(strength + 1))?;
            left = Expression::Binary(mark, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, String> {
        self.deeper(|parser| match parser.peek() {
            Some(&Token::Mark(mark @ ("-" | "~" | "!"))) => {
                parser.next += 1;
                Ok(Expression::Unary(mark, Box::new(parser.unary()?)))
            }
            Some(Token::Mark("+" | "&")) => {
                // `&field` is the field: its users read the bytes.
                parser.next += 1;
                parser.unary()
            }
            Some(Token::Mark("*")) => {
                parser.next += 1;
                let (pointer, width) = strip_cast(parser.unary()?);
                let zero = Box::new(Expression::Number(0, false));
                Ok(Expression::Element(Box::new(pointer), width, zero))
            }
            Some(Token::Mark("(")) => parser.cast_or_group(),
            _ => {
                let primary = parser.primary()?;
                parser.postfix(primary)
            }
        })
    }

    /// `(type)x`, `({ … })` or `(x)`.
    fn cast_or_group(&mut self) -> Result<Expression, String> {
        let start = self.next;
        self.demand("(")?;
        if self.take("{") {
            let block = self.block()?;
            return self.postfix(block);
        }
        if let Some(kind) = self.type_in_parentheses() {
            let inner = self.unary()?;
            return Ok(Expression::Cast(kind, Box::new(inner)));
        }
        self.next = start + 1;
        let inner = self.expression()?;
        self.demand(")")?;
        self.postfix(inner)
    }

    /// Parses a type and its closing parenthesis, if they follow.
    fn type_in_parentheses(&mut self) -> Option<Type> {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.peek() {
            if matches!(*word, "typeof" | "__typeof__" | "__typeof") {
                self.next += 1;
                self.skip_parentheses()?;
                words.push("typeof");
                continue;
            }
            words.push(*word);
            self.next += 1;
        }
        let mut stars = 0;
        while self.take("*") {
            stars += 1;
        }
        if words.is_empty() || !self.take(")") {
            return None;
        }
        let known = words.iter().any(|word| is_type_word(word));
        // `(name)` before an operand can only be a cast to an unknown type.
        let operand = matches!(
            self.peek(),
            Some(Token::Word(_) | Token::Number(..) | Token::Mark("("))
        );
        (known || stars > 0 || operand).then(|| type_of(&words, stars))
    }

    fn skip_parentheses(&mut self) -> Option<()> {
        let mut open = 0usize;
        while let Some(token) = self.peek() {
            self.next += 1;
            match token {
                Token::Mark("(") => open += 1,
                Token::Mark(")") if open <= 1 => return Some(()),
                Token::Mark(")") => open -= 1,
                _ if open == 0 => return None,
                _ => {}
            }
        }
        None
    }

    /// Parses `({ int x = …; value; })` from after the brace.
    fn block(&mut self) -> Result<Expression, String> {
        let outer = self.scope.len();
        let mut variables = Vec::new();
        let value = loop {
            if let Some(name) = self.declaration() {
                let value = self.expression()?;
                self.demand(";")?;
                self.scope.push((name, self.locals));
                variables.push((self.locals, value));
                self.locals += 1;
                continue;
            }
            let value = self.expression()?;
            self.demand(";")?;
            break value;
        };
        self.demand("}")?;
        self.demand(")")?;
        self.scope.truncate(outer);
        Ok(Expression::Block(variables, Box::new(value)))
    }

    /// Parses `type name =`, if it follows.
    fn declaration(&mut self) -> Option<&'a str> {
        let start = self.next;
        let mut words = Vec::new();
        loop {
            match self.peek() {
                Some(Token::Word("typeof" | "__typeof__" | "__typeof")) => {
                    self.next += 1;
                    words.push("typeof");
                    if self.skip_parentheses().is_none() {
                        break;
                    }
                }
                Some(Token::Word(word)) => {
                    words.push(word);
                    self.next += 1;
                }
                Some(Token::Mark("*")) => self.next += 1,
                _ => break,
            }
        }
        if words.len() > 1 && self.take("=") {
            return words.last().copied();
        }
        self.next = start;
        None
    }

    fn postfix(&mut self, mut inner: Expression) -> Result<Expression, String> {
        let mut links = 0;
        while self.take("[") {
            links += 1;
            if links > 8 {
                return Err("expected at most 8 indices".into());
            }
            let index = self.expression()?;
            self.demand("]")?;
            let (buffer, width) = strip_cast(inner);
            inner = Expression::Element(Box::new(buffer), width, Box::new(index));
        }
        match self.peek() {
            Some(found @ Token::Mark("." | "->")) => Err(expected("an operator", Some(found))),
            _ => Ok(inner),
        }
    }

    fn primary(&mut self) -> Result<Expression, String> {
        match self.peek() {
            Some(&Token::Number(value, unsigned)) => {
                self.next += 1;
                Ok(Expression::Number(value, unsigned))
            }
            Some(Token::Text(_)) => Ok(Expression::Text(self.literal()?)),
            Some(Token::Word(_)) => {
                let word = self.word()?;
                match self.peek() {
                    Some(Token::Mark("->")) if matches!(word, "REC" | "__entry") => {
                        self.next += 1;
                        let name = self.word()?;
                        Ok(Expression::Field(self.field(name)?))
                    }
                    Some(Token::Mark("(")) => {
                        self.next += 1;
                        let call = self.call(word)?;
                        self.demand(")")?;
                        Ok(call)
                    }
                    _ => Ok(self.name(word)),
                }
            }
            found => Err(expected("an expression", found)),
        }
    }

    fn field(&self, name: &str) -> Result<usize, String> {
        self.fields
            .iter()
            .position(|field| field.name == name)
            .ok_or_else(|| format!("expected a field of the event, found {name}"))
    }

    fn name(&self, word: &str) -> Expression {
        if let Some((_, number)) = self.scope.iter().rev().find(|(name, _)| *name == word) {
            return Expression::Local(*number);
        }
        // Enumerators that remain in the formats of kernels without TRACE_DEFINE_ENUM (include/linux/interrupt.h,
        // include/linux/hrtimer.h).
        let value = match word {
            "true" | "TIMER_SOFTIRQ" | "HRTIMER_RESTART" => 1,
            "false" | "NULL" | "HI_SOFTIRQ" | "HRTIMER_NORESTART" => 0,
            "NET_TX_SOFTIRQ" => 2,
            "NET_RX_SOFTIRQ" => 3,
            "BLOCK_SOFTIRQ" => 4,
            "IRQ_POLL_SOFTIRQ" | "BLOCK_IOPOLL_SOFTIRQ" => 5,
            "TASKLET_SOFTIRQ" => 6,
            "SCHED_SOFTIRQ" => 7,
            "HRTIMER_SOFTIRQ" => 8,
            "RCU_SOFTIRQ" => 9,
            _ => return Expression::Unknown,
        };
        Expression::Number(value, false)
    }

    /// Parses a call of `function`, from after the opening parenthesis through the closing one.
    fn call(&mut self, function: &str) -> Result<Expression, String> {
        match function {
            "__print_flags" | "__print_flags_u64" => {
                let value = Box::new(self.expression()?);
                self.demand(",")?;
                let delimiter = match self.expression()? {
                    Expression::Text(delimiter) => delimiter,
                    _ => Vec::new(),
                };
                Ok(Expression::Flags(value, delimiter, self.names()?))
            }
            "__print_symbolic" | "__print_symbolic64" => {
                let value = Box::new(self.expression()?);
                Ok(Expression::Symbolic(value, self.names()?))
            }
            "__get_str"
            | "__get_rel_str"
            | "__get_dynamic_array"
            | "__get_rel_dynamic_array"
            | "__get_sockaddr"
            | "__get_rel_sockaddr"
            | "__get_sockaddr_rel" => {
                let name = self.word()?;
                Ok(Expression::Field(self.field(name)?))
            }
            "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => {
                let name = self.word()?;
                Ok(Expression::Length(self.field(name)?))
            }
            "__get_bitmask" | "__get_rel_bitmask" => {
                let name = self.word()?;
                Ok(Expression::Bitmask(self.field(name)?))
            }
            "__get_cpumask" | "__get_rel_cpumask" => {
                let name = self.word()?;
                Ok(Expression::Cpumask(self.field(name)?))
            }
            "__print_hex" | "__print_hex_str" => {
                let [buffer, length] = self.arguments()?;
                let between = if function == "__print_hex" { " " } else { "" };
                Ok(Expression::Hex(Box::new(buffer), Box::new(length), between))
            }
            "__print_array" => Ok(Expression::Array(Box::new(self.arguments()?))),
            "__print_ns_to_secs" => {
                let [value] = self.arguments()?;
                Ok(Expression::Nanoseconds("/", Box::new(value)))
            }
            "__print_ns_without_secs" => {
                let [value] = self.arguments()?;
                Ok(Expression::Nanoseconds("%", Box::new(value)))
            }
            "__builtin_expect" => {
                let [value, _] = self.arguments()?;
                Ok(value)
            }
            "__builtin_choose_expr" => Ok(Expression::Conditional(Box::new(self.arguments()?))),
            "__builtin_constant_p" => {
                let [_] = self.arguments()?;
                Ok(Expression::Number(0, false))
            }
            "sizeof" => self.size(),
            _ => Err(format!("expected a known function, found {function}")),
        }
    }

    fn arguments<const COUNT: usize>(&mut self) -> Result<[Expression; COUNT], String> {
        let mut arguments = Vec::with_capacity(COUNT);
        for number in 0..COUNT {
            if number > 0 {
                self.demand(",")?;
            }
            arguments.push(self.expression()?);
        }
        arguments
            .try_into()
            .map_err(|_| "expected all arguments".into())
    }

    /// Parses `, { value, "name" }, …`; the list may be in braces.
    fn names(&mut self) -> Result<NamedValues, String> {
        let mut names = Vec::new();
        while self.take(",") {
            if !self.take("{") {
                return Err(expected("{", self.peek()));
            }
            // The value is reduced to a number at once, so its operators do not nest.
            let operators = self.operators;
            let value = self.expression()?;
            self.operators = operators;
            self.demand(",")?;
            // Some of the kernel's tables end with NULL.
            let name = match self.expression()? {
                Expression::Text(name) => Some(name),
                other if super::evaluator::constant(&other) == Some(0) => None,
                Expression::Unknown => None,
                _ => return Err("expected a string as name".into()),
            };
            self.demand("}")?;
            if let Some(name) = name {
                names.push((super::evaluator::constant(&value), name));
            }
        }
        Ok(names)
    }

    /// `sizeof(type)` or `sizeof(REC->name)`.
    fn size(&mut self) -> Result<Expression, String> {
        if matches!(self.peek(), Some(Token::Word("REC")))
            && matches!(self.peek_at(1), Some(Token::Mark("->")))
        {
            self.next += 2;
            let name = self.word()?;
            let index = self.field(name)?;
            let size = self.fields.get(index).and_then(|field| field.layout);
            return match size {
                Some(layout) => Ok(Expression::Number(u64::from(layout.size), true)),
                None => Ok(Expression::Length(index)),
            };
        }
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.peek() {
            words.push(*word);
            self.next += 1;
        }
        let mut stars = 0;
        while self.take("*") {
            stars += 1;
        }
        let bytes = match stars {
            0 => type_of(&words, 0).bytes,
            _ => 8,
        };
        match bytes {
            0 => Err(format!(
                "expected a type of known size, found {}",
                words.join(" ")
            )),
            bytes => Ok(Expression::Number(u64::from(bytes), true)),
        }
    }
}

/// Removes a pointer cast around `expression`, which only gives the width of the elements.
fn strip_cast(expression: Expression) -> (Expression, Option<Type>) {
    match expression {
        Expression::Cast(kind, inner) if kind.pointer => (*inner, Some(kind)),
        other => (other, None),
    }
}
