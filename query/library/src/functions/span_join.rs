//! `span_join(a, b, key)`: planned by `engine/span_join.rs`, since its arguments are tables.

use super::Function;

pub(super) const FUNCTION: Function = Function {
    usage: "span_join(a, b, key)",
    about: "table of the time that rows of two tables share, with the columns of both: span_join(calls, thread_states, tid)",
    register: |_, _| (),
};
