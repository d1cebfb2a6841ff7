//! SQL functions in addition to those of DataFusion, one file each.

mod address;
mod arithmetic;
mod bar_counts;
pub mod bars;
mod blocked_function;
mod code_names;
mod duration;
mod flame;
mod hash;
mod integer_sum;
mod kernel_symbol;
mod len;
mod mode;
mod quantile;
mod quantile_cont;
mod quantize;
mod sketch;
mod span_join;
mod stack_frames;
mod stack_key;
mod stack_parts;
mod stack_text;
mod sum;
mod trace_times;

use std::sync::Arc;

use datafusion::prelude::SessionContext;

use crate::stacks::Forest;

pub use integer_sum::TOTAL;

/// A function, for registration and for the shell's help and completion.
pub struct Function {
    /// Usage: `duration(ns)`.
    pub usage: &'static str,
    /// What it computes.
    pub about: &'static str,
    register: fn(&SessionContext, &Arc<Forest>),
}

/// All functions.
pub const FUNCTIONS: &[&Function] = &[
    &duration::FUNCTION,
    &address::FUNCTION,
    &trace_times::SINCE_START,
    &trace_times::WALL_TIME,
    &trace_times::AT,
    &trace_times::ALIGNED,
    &sum::FUNCTION,
    &mode::FUNCTION,
    &len::FUNCTION,
    &hash::HASH,
    &hash::BIT_COUNT,
    &quantile::QUANTILE,
    &quantile::QUANTILES,
    &quantile_cont::FUNCTION,
    &quantize::QUANTIZE,
    &quantize::LQUANTIZE,
    &quantize::LLQUANTIZE,
    &quantize::HISTOGRAM,
    &stack_text::FUNCTION,
    &stack_key::FUNCTION,
    &stack_frames::FUNCTION,
    &span_join::FUNCTION,
    &flame::FUNCTION,
    &stack_parts::STACK_LEAF,
    &stack_parts::STACK_ROOT,
    &stack_parts::STACK_DEPTH,
    &stack_parts::STACK_CONTAINS,
    &stack_parts::STACK_TRIM,
    &blocked_function::FUNCTION,
    &kernel_symbol::FUNCTION,
    &code_names::ERRNO_NAME,
    &code_names::SIGNAL_NAME,
    &code_names::SYSCALL_NAME,
    &code_names::TASK_STATE,
    &code_names::PAGE_FAULT_KIND,
    &code_names::IRQ_CONTEXT,
];

/// Registers all functions.
pub(crate) fn register(context: &SessionContext, forest: &Arc<Forest>) {
    for function in FUNCTIONS {
        (function.register)(context, forest);
    }
    arithmetic::register(context);
}
