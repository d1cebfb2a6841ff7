//! A parsed argument of a print format.

use super::types::Type;

/// A table of `{ value, "name" }`; the value is `None` if it is an unresolved name.
pub(super) type NamedValues = Vec<(Option<u64>, Vec<u8>)>;

/// An expression over the fields of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    /// A constant, and whether it is unsigned.
    Number(u64, bool),
    /// A name without a value: an enumerator that the kernel left unresolved.
    Unknown,
    /// A string literal.
    Text(Vec<u8>),
    /// `REC->name`, by index; for a dynamic field, the stored location, or its data through `__get_…`.
    Field(usize),
    /// `__get_dynamic_array_len(name)`
    Length(usize),
    /// A variable of a statement expression, by its number.
    Local(usize),
    /// `({ int x = …; …; value; })`
    Block(Vec<(usize, Expression)>, Box<Expression>),
    /// `-x`, `~x`, `!x`
    Unary(&'static str, Box<Expression>),
    /// `x + y`
    Binary(&'static str, Box<Expression>, Box<Expression>),
    /// `x ? y : z`
    Conditional(Box<[Expression; 3]>),
    /// `(u8)x`
    Cast(Type, Box<Expression>),
    /// `x[i]`; a pointer cast before it gives the width of the elements.
    Element(Box<Expression>, Option<Type>, Box<Expression>),
    /// `__print_flags(value, delimiter, …)`
    Flags(Box<Expression>, Vec<u8>, NamedValues),
    /// `__print_symbolic(value, …)`
    Symbolic(Box<Expression>, NamedValues),
    /// `__print_hex(buffer, length)`, or `__print_hex_str`without spaces
    Hex(Box<Expression>, Box<Expression>, &'static str),
    /// `__print_array(buffer, count, element size)`
    Array(Box<[Expression; 3]>),
    /// `__get_bitmask(name)`
    Bitmask(usize),
    /// `__get_cpumask(name)`
    Cpumask(usize),
    /// `__print_ns_to_secs(x)`, `__print_ns_without_secs(x)`
    Nanoseconds(&'static str, Box<Expression>),
}
