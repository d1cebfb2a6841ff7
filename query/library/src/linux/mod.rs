//! Numbers of the Linux kernel and their names: errors, signals, system calls and their arguments, states, faults.

pub(crate) mod arguments;
pub(crate) mod page_fault;
pub(crate) mod prototypes;
pub(crate) mod task_state;

pub(crate) use perfquet_events::errno;
pub(crate) use perfquet_events::signal;
pub(crate) use perfquet_trace::system_call;
