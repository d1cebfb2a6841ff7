//! Evaluation of the kernel's `print fmt`, for output equal to that of `perf script`.
//!
//! ```text
//! print fmt: "vec=%u [action=%s]", REC->vec, __print_symbolic(REC->vec, { 0, "HI" }, { 1, "TIMER" }, …)
//!
//! payload 07 00 00 00   →   vec=7 [action=SCHED]
//! ```
//! The format is C (include/trace/trace_events.h expands `TP_printk` into it). This module has a lexer, a parser and an
//! evaluator for the subset of C that occurs there, and a printf with the kernel's extensions. A format that calls
//! kernel functions unavailable outside the kernel is printed as `[FAILED TO PARSE]` and `field=value` pairs, as by
//! libtraceevent. Formats come from files, so nesting, size and output are bounded.

mod address;
mod evaluator;
mod expression;
mod lexer;
mod number;
mod parser;
mod printf;
mod record;
#[cfg(test)]
mod tests;
mod types;

pub use record::Record;

use crate::event::Field;
use evaluator::Evaluator;
use expression::Expression;
use printf::{Kind, Part, Pointer, Size};

/// Output limit per event. Larger than a page, the kernel's own limit for one event; it stops hostile formats.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Looks up the name of the kernel function at an address, and the offset in it.
pub type Names<'a> = dyn Fn(u64) -> Option<(String, u64)> + 'a;

/// A `print fmt`, parsed once for all events of a type.
#[derive(Debug, Clone)]
pub struct PrintFormat {
    parts: Vec<Part>,
    arguments: Vec<Expression>,
    locals: usize,
    failure: Option<String>,
}

impl PrintFormat {
    /// Parses `source`, the text after `print fmt:`, with the event's `fields`.
    pub fn new(source: &str, fields: &[Field]) -> PrintFormat {
        let parsed = parser::parse(source, fields).and_then(|source| {
            let parts = printf::parts(&source.template)?;
            match wanted(&parts) {
                wanted if wanted > source.arguments.len() => Err(format!(
                    "expected {wanted} arguments, found {}",
                    source.arguments.len()
                )),
                _ => Ok((parts, source)),
            }
        });
        match parsed {
            Ok((parts, source)) => PrintFormat {
                parts,
                arguments: source.arguments,
                locals: source.locals,
                failure: None,
            },
            Err(failure) => PrintFormat {
                parts: Vec::new(),
                arguments: Vec::new(),
                locals: 0,
                failure: Some(failure),
            },
        }
    }

    /// Returns the indexes of the fields that `%s` prints unchanged.
    pub fn texts(&self) -> Vec<usize> {
        self.shown(|kind| kind == Kind::Text)
    }

    /// Returns the indexes of the fields that `%pS`, `%ps` or `%p` print unchanged: addresses, whatever their type is.
    pub fn addresses(&self) -> Vec<usize> {
        let is_address = |pointer| matches!(pointer, Pointer::Symbol { .. } | Pointer::Plain);
        self.shown(|kind| matches!(kind, Kind::Pointer(pointer) if is_address(pointer)))
    }

    /// Returns the indexes of the fields that `%pS` or `%ps` print unchanged: addresses of code.
    pub fn code(&self) -> Vec<usize> {
        self.shown(|kind| matches!(kind, Kind::Pointer(Pointer::Symbol { .. })))
    }

    /// Returns the indexes of the fields that such a conversion prints unchanged.
    fn shown(&self, is_wanted: impl Fn(Kind) -> bool) -> Vec<usize> {
        let mut found = Vec::new();
        let mut arguments = self.arguments.iter();
        for part in &self.parts {
            let Part::Conversion(conversion) = part else {
                continue;
            };
            let sizes = [conversion.width, conversion.precision];
            let of_sizes = sizes.iter().filter(|size| **size == Size::Argument).count();
            let mut shown = arguments.nth(of_sizes);
            while let Some(Expression::Cast(_, inner)) = shown {
                shown = Some(inner);
            }
            if let Some(Expression::Field(index)) = shown
                && is_wanted(conversion.kind)
            {
                found.push(*index);
            }
        }
        found
    }

    /// Returns the reason why events are printed as `field=value` pairs; `None` if they are not.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Appends the text of one event to `out`. `names` resolves addresses for `%pS` and similar conversions; without it
    /// they print addresses.
    pub fn print(&self, record: &Record<'_>, names: Option<&Names<'_>>, out: &mut Vec<u8>) {
        let limit = out.len().saturating_add(MAX_OUTPUT_BYTES);
        if self.failure.is_some() {
            out.extend_from_slice(b"[FAILED TO PARSE]");
            record.pairs(out);
            out.truncate(limit);
            return;
        }
        let mut evaluator = Evaluator {
            record,
            names,
            locals: vec![Default::default(); self.locals],
        };
        let mut arguments = self.arguments.iter();
        for part in &self.parts {
            if out.len() >= limit {
                break;
            }
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Conversion(conversion) => {
                    let mut conversion = conversion.clone();
                    let mut width = size(conversion.width, &mut arguments, &mut evaluator);
                    let precision = size(conversion.precision, &mut arguments, &mut evaluator);
                    if let Some(negative @ i32::MIN..=-1) = width {
                        conversion.left = true;
                        width = Some(negative.saturating_neg());
                    }
                    let Some(argument) = arguments.next() else {
                        break;
                    };
                    // In C too, a negative precision counts as none.
                    let (width, precision) = (width.and_then(bounded), precision.and_then(bounded));
                    evaluator.print(&conversion, width, precision, argument, out);
                }
            }
        }
        out.truncate(limit);
    }
}

/// Returns the number of arguments that the parts use.
fn wanted(parts: &[Part]) -> usize {
    parts
        .iter()
        .map(|part| match part {
            Part::Text(_) => 0,
            Part::Conversion(conversion) => {
                1 + usize::from(conversion.width == Size::Argument)
                    + usize::from(conversion.precision == Size::Argument)
            }
        })
        .sum()
}

fn size<'a>(
    size: Size,
    arguments: &mut impl Iterator<Item = &'a Expression>,
    evaluator: &mut Evaluator<'_>,
) -> Option<i32> {
    match size {
        Size::None => None,
        Size::Given(size) => i32::try_from(size).ok(),
        Size::Argument => arguments
            .next()
            .map(|argument| evaluator.number(argument).bits as i32),
    }
}

fn bounded(size: i32) -> Option<usize> {
    usize::try_from(size)
        .ok()
        .map(|size| size.min(MAX_OUTPUT_BYTES))
}
