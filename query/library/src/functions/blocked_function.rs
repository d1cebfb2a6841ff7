//! `blocked_function(id)`: the function in which a thread waits, from the kernel stack with which it left its CPU.
//!
//! ```text
//! perf_trace_sched_switch, __schedule, schedule, futex_wait_queue, …      futex_wait_queue
//! ```

use std::sync::Arc;

use arrow::array::StringArray;
use arrow::datatypes::DataType;

use super::Function;
use super::stack_text::{each_stack, of_stack};
use crate::stacks::Tree;

pub(super) const FUNCTION: Function = Function {
    usage: "blocked_function(stack_id)",
    about: "the function that waits, from the kernel stack of a switch: the innermost one that is not the scheduler's",
    register: |context, forest| {
        context.register_udf(of_stack(
            "blocked_function",
            DataType::Utf8,
            forest,
            |forest, args| {
                let names = each_stack(forest, args, blocked_in)?;
                Ok(Arc::new(StringArray::from_iter(
                    names.into_iter().map(Option::flatten),
                )))
            },
        ));
    },
};

fn blocked_in(tree: &Tree, stack: u32) -> Option<String> {
    let nodes = std::iter::successors(Some(stack), |&node| Some(tree.parent(node)));
    let frames = nodes
        .take_while(|&node| node != 0)
        .flat_map(|node| tree.frames_of_node(node));
    let mut names = frames.map(|frame| tree.frames.name(frame));
    names.find(|name| !is_of_scheduler(name)).map(Into::into)
}

/// Whether a function belongs to the scheduler, to the timers it sleeps by, or to what reports the switch.
fn is_of_scheduler(name: &str) -> bool {
    const STARTS: [&str; 12] = [
        "__schedule",
        "schedule",
        "io_schedule",
        "preempt_schedule",
        "__cond_resched",
        "__traceiter_",
        "perf_",
        "__perf_",
        "trace_event_",
        "ftrace_",
        "bpf_",
        "__bpf_",
    ];
    STARTS.iter().any(|start| name.starts_with(start))
}
