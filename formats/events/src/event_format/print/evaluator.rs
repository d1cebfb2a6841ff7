//! Evaluation of expressions over one event, to numbers, bytes and strings.
//!
//! Integers are those of C on a 64-bit machine: a signed field is sign-extended, arithmetic has 64 bits, and only the
//! conversion truncates (`%d` uses the lowest four bytes).

use std::borrow::Cow;

use super::Names;
use super::address;
use super::expression::Expression;
use super::number::Number;
use super::printf::{Conversion, Kind, Pointer};
use super::record::Record;
use super::types::Type;

/// Evaluates an expression without fields; `None` if it contains an unknown name.
pub(super) fn constant(expression: &Expression) -> Option<u64> {
    Some(match expression {
        Expression::Number(bits, _) => *bits,
        Expression::Unary(mark, inner) => unary(mark, Number::signed(constant(inner)?)).bits,
        Expression::Binary(mark, left, right) => {
            let (left, right) = (constant(left)?, constant(right)?);
            binary(mark, Number::unsigned(left), Number::unsigned(right)).bits
        }
        Expression::Conditional(parts) => {
            let [condition, yes, no] = &**parts;
            let chosen = if constant(condition)? != 0 { yes } else { no };
            constant(chosen)?
        }
        Expression::Cast(kind, inner) => cast(*kind, Number::signed(constant(inner)?)).bits,
        _ => return None,
    })
}

fn unary(mark: &str, inner: Number) -> Number {
    match mark {
        "-" => Number {
            bits: inner.bits.wrapping_neg(),
            ..inner
        },
        "~" => Number {
            bits: !inner.bits,
            ..inner
        },
        _ => Number::signed(u64::from(inner.bits == 0)),
    }
}

fn binary(mark: &str, left: Number, right: Number) -> Number {
    let unsigned = left.unsigned || right.unsigned;
    let (l, r) = (left.bits, right.bits);
    let (sl, sr) = (l as i64, r as i64);
    let order = if unsigned { l.cmp(&r) } else { sl.cmp(&sr) };
    let yes = |truth: bool| Number::signed(u64::from(truth));
    let number = |bits: u64| Number { bits, unsigned };
    match mark {
        "||" => yes(left.truth() || right.truth()),
        "&&" => yes(left.truth() && right.truth()),
        "==" => yes(l == r),
        "!=" => yes(l != r),
        "<" => yes(order.is_lt()),
        ">" => yes(order.is_gt()),
        "<=" => yes(order.is_le()),
        ">=" => yes(order.is_ge()),
        "|" => number(l | r),
        "^" => number(l ^ r),
        "&" => number(l & r),
        "<<" => Number {
            bits: l.checked_shl(r.try_into().unwrap_or(64)).unwrap_or(0),
            ..left
        },
        ">>" if left.unsigned => {
            Number::unsigned(l.checked_shr(r.try_into().unwrap_or(64)).unwrap_or(0))
        }
        ">>" => Number::signed((sl >> r.min(63)) as u64),
        "+" => number(l.wrapping_add(r)),
        "-" => number(l.wrapping_sub(r)),
        "*" => number(l.wrapping_mul(r)),
        // A hostile format may divide by zero.
        "/" if unsigned => number(l.checked_div(r).unwrap_or(0)),
        "/" => number(sl.checked_div(sr).unwrap_or(0) as u64),
        _ if unsigned => number(l.checked_rem(r).unwrap_or(0)),
        _ => number(sl.checked_rem(sr).unwrap_or(0) as u64),
    }
}

fn cast(kind: Type, inner: Number) -> Number {
    if kind.pointer || kind.bytes == 0 {
        return inner;
    }
    let unused = 64 - 8 * u32::from(kind.bytes.clamp(1, 8));
    let cut = inner.bits << unused;
    if kind.signed {
        Number::signed((cut as i64 >> unused) as u64)
    } else {
        Number::unsigned(cut >> unused)
    }
}

/// The bytes at a pointer, with width and sign of its elements.
struct Buffer<'a> {
    bytes: Cow<'a, [u8]>,
    width: u8,
    signed: bool,
}

/// Evaluates over one event.
pub(super) struct Evaluator<'a> {
    pub(super) record: &'a Record<'a>,
    pub(super) names: Option<&'a Names<'a>>,
    /// Variables of statement expressions.
    pub(super) locals: Vec<Number>,
}

impl<'a> Evaluator<'a> {
    /// Evaluates to a number; a string is true.
    pub(super) fn number(&mut self, expression: &Expression) -> Number {
        match expression {
            Expression::Number(bits, unsigned) => Number {
                bits: *bits,
                unsigned: *unsigned,
            },
            Expression::Unknown => Number::default(),
            Expression::Field(index) => self.record.number(*index),
            Expression::Length(index) => Number::signed(
                self.record
                    .bytes(*index)
                    .map_or(0, |bytes| bytes.len() as u64),
            ),
            Expression::Local(number) => self.locals.get(*number).copied().unwrap_or_default(),
            Expression::Block(variables, value) => {
                self.bind(variables);
                self.number(value)
            }
            Expression::Unary(mark, inner) => unary(mark, self.number(inner)),
            Expression::Binary(mark, left, right) => {
                let left = self.number(left);
                match (*mark, left.truth()) {
                    ("&&", false) => Number::signed(0),
                    ("||", true) => Number::signed(1),
                    _ => binary(mark, left, self.number(right)),
                }
            }
            Expression::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if self.number(condition).truth() {
                    yes
                } else {
                    no
                };
                self.number(chosen)
            }
            Expression::Cast(kind, inner) => cast(*kind, self.number(inner)),
            Expression::Element(buffer, width, index) => self.element(buffer, *width, index),
            Expression::Nanoseconds(mark, value) => {
                let value = Number::unsigned(self.number(value).bits);
                binary(mark, value, Number::unsigned(1_000_000_000))
            }
            Expression::Text(_)
            | Expression::Flags(..)
            | Expression::Symbolic(..)
            | Expression::Hex(..)
            | Expression::Array(_)
            | Expression::Bitmask(_)
            | Expression::Cpumask(_) => Number::signed(1),
        }
    }

    fn bind(&mut self, variables: &[(usize, Expression)]) {
        for (number, value) in variables {
            let value = self.number(value);
            if let Some(local) = self.locals.get_mut(*number) {
                *local = value;
            }
        }
    }

    fn element(&mut self, buffer: &Expression, width: Option<Type>, index: &Expression) -> Number {
        let index = self.number(index).bits;
        let Some(buffer) = self.buffer(buffer) else {
            return Number::default();
        };
        let (width, signed) = match width {
            Some(kind) if kind.bytes > 0 => (kind.bytes, kind.signed),
            _ => (buffer.width, buffer.signed),
        };
        let width = usize::from(width.max(1));
        let element = usize::try_from(index)
            .ok()
            .and_then(|index| index.checked_mul(width))
            .and_then(|start| buffer.bytes.get(start..)?.get(..width));
        match element {
            Some(element) => self.record.integer(element, signed),
            None => Number::default(),
        }
    }

    /// Returns the target of a pointer.
    fn buffer(&mut self, expression: &Expression) -> Option<Buffer<'a>> {
        match expression {
            Expression::Field(index) => {
                let (width, signed) = self.record.element(*index);
                Some(Buffer {
                    bytes: self.record.bytes(*index)?,
                    width,
                    signed,
                })
            }
            Expression::Cast(_, inner) => self.buffer(inner),
            Expression::Text(text) => Some(Buffer {
                bytes: Cow::Owned(text.clone()),
                width: 1,
                signed: false,
            }),
            Expression::Block(variables, value) => {
                self.bind(variables);
                self.buffer(value)
            }
            Expression::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if self.number(condition).truth() {
                    yes
                } else {
                    no
                };
                self.buffer(chosen)
            }
            _ => None,
        }
    }

    /// Prints `expression` with `conversion`.
    pub(super) fn print(
        &mut self,
        conversion: &Conversion,
        width: Option<usize>,
        precision: Option<usize>,
        expression: &Expression,
        out: &mut Vec<u8>,
    ) {
        match conversion.kind {
            Kind::Signed | Kind::Unsigned | Kind::Hex | Kind::UpperHex | Kind::Octal => {
                conversion.integer(self.number(expression).bits, width, precision, out);
            }
            Kind::Character => {
                let byte = self.number(expression).bits as u8;
                let body: &[u8] = if byte == 0 { &[] } else { &[byte] };
                conversion.pad(body, width, out);
            }
            Kind::Text => {
                let mut text = Vec::new();
                self.text(expression, &mut text);
                let shown = precision.unwrap_or(text.len()).min(text.len());
                conversion.pad(text.get(..shown).unwrap_or_default(), width, out);
            }
            Kind::Pointer(pointer) => self.pointer(pointer, conversion, width, expression, out),
        }
    }

    /// Prints the expression for `%s`.
    fn text(&mut self, expression: &Expression, out: &mut Vec<u8>) {
        match expression {
            Expression::Text(text) => out.extend_from_slice(text),
            Expression::Field(index) => self.record.text(*index, out),
            Expression::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if self.number(condition).truth() {
                    yes
                } else {
                    no
                };
                self.text(chosen, out);
            }
            Expression::Cast(_, inner) => self.text(inner, out),
            Expression::Block(variables, value) => {
                self.bind(variables);
                self.text(value, out);
            }
            Expression::Flags(value, delimiter, names) => {
                let value = self.number(value).bits;
                flags(value, delimiter, names, out);
            }
            Expression::Symbolic(value, names) => {
                let value = self.number(value).bits;
                match names.iter().find(|(of_name, _)| *of_name == Some(value)) {
                    Some((_, name)) => out.extend_from_slice(name),
                    None => out.extend_from_slice(format!("{value:#x}").as_bytes()),
                }
            }
            Expression::Hex(buffer, length, between) => {
                let length = self.number(length).bits;
                let bytes = self
                    .buffer(buffer)
                    .map(|buffer| buffer.bytes)
                    .unwrap_or_default();
                let shown = usize::try_from(length)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                address::hex(bytes.get(..shown).unwrap_or_default(), between, out);
            }
            Expression::Array(parts) => self.array(parts, out),
            Expression::Bitmask(index) => {
                let bytes = self.record.bytes(*index).unwrap_or_default();
                address::bitmask(&bytes, self.record.big_endian(), out);
            }
            Expression::Cpumask(index) => {
                let bytes = self.record.bytes(*index).unwrap_or_default();
                address::ranges(&bytes, self.record.big_endian(), out);
            }
            Expression::Number(..)
            | Expression::Unknown
            | Expression::Length(_)
            | Expression::Local(_)
            | Expression::Unary(..)
            | Expression::Binary(..)
            | Expression::Element(..)
            | Expression::Nanoseconds(..) => {
                let value = self.number(expression).bits;
                out.extend_from_slice(format!("{value:x}").as_bytes());
            }
        }
    }

    /// `{0x1,0x2}`
    fn array(&mut self, parts: &[Expression; 3], out: &mut Vec<u8>) {
        let [buffer, count, width] = parts;
        let count = usize::try_from(self.number(count).bits).unwrap_or(usize::MAX);
        let width = self.number(width).bits;
        let bytes = self
            .buffer(buffer)
            .map(|buffer| buffer.bytes)
            .unwrap_or_default();
        let width = match width {
            2 => 2,
            4 => 4,
            8 => 8,
            _ => 1,
        };
        out.push(b'{');
        for (index, element) in bytes.chunks_exact(width).take(count).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let value = self.record.integer(element, false).bits;
            out.extend_from_slice(format!("{value:#x}").as_bytes());
        }
        out.push(b'}');
    }

    /// Prints the expression for `%p` and its extensions.
    fn pointer(
        &mut self,
        pointer: Pointer,
        conversion: &Conversion,
        width: Option<usize>,
        expression: &Expression,
        out: &mut Vec<u8>,
    ) {
        // Formats of printk have strings where a pointer is expected.
        if let Expression::Text(text) = expression {
            out.extend_from_slice(text);
            return;
        }
        match pointer {
            Pointer::Plain => {
                let address = self.number(expression).bits;
                // As perf and trace-cmd print it, through the C library.
                let text = match address {
                    0 => "(nil)".to_owned(),
                    _ => format!("{address:#x}"),
                };
                conversion.pad(text.as_bytes(), width, out);
            }
            Pointer::Symbol { offset } => {
                let address = self.number(expression).bits;
                let name = self.names.and_then(|names| names(address));
                let text = match name {
                    Some((name, from_start)) if offset => format!("{name}+{from_start:#x}"),
                    Some((name, _)) => name,
                    None => format!("{address:#x}"),
                };
                out.extend_from_slice(text.as_bytes());
            }
            _ => {
                let bytes = match self.buffer(expression) {
                    Some(buffer) => buffer.bytes,
                    None => Cow::Owned(self.number(expression).bits.to_le_bytes().to_vec()),
                };
                // For `%*ph` the width is in bytes, for `%*pb` in bits.
                address::print(pointer, &bytes, width, self.record.big_endian(), out);
            }
        }
    }
}

fn flags(mut value: u64, delimiter: &[u8], names: &[(Option<u64>, Vec<u8>)], out: &mut Vec<u8>) {
    let mut printed = false;
    let mut put = |text: &[u8]| {
        if printed {
            out.extend_from_slice(delimiter);
        }
        printed = true;
        out.extend_from_slice(text);
    };
    for (mask, name) in names {
        match mask {
            Some(mask) if *mask != 0 && value & mask == *mask => {
                put(name);
                value &= !mask;
            }
            _ => {}
        }
    }
    if value != 0 {
        put(format!("{value:#x}").as_bytes());
    }
}
