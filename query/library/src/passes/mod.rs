//! Passes: tables computed from events in the order of time, for views that SQL cannot express in linear time.
//!
//! ```text
//! SELECT * FROM pass_thread_states()
//! ```
//! Views select from these table functions, which are not meant for users. They depend only on the tables of the session, so
//! any DataFusion program with the same tables can register them.

mod allocations;
mod block_io;
mod call_tree;
mod counters;
mod descriptors;
mod interrupts;
mod locks;
mod mapped;
mod names;
mod page_faults;
mod pass;
mod rows;
mod sched;
mod selection;
mod source;
mod strace;
mod system_calls;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use pass::{Pass, PassTable};
pub(crate) use sched::{is_of_some_cpus, is_of_threads};

/// The column with the name of the trace, if there are several.
const TRACE: &str = "trace";

/// The traces whose tables a session has.
#[derive(Debug, Clone)]
pub(crate) struct Traces {
    names: Vec<String>,
}

impl Traces {
    /// `names` are the values of the column `trace`.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Traces {
        Traces {
            names: names.into_iter().collect(),
        }
    }

    /// Whether rows need the name of their trace.
    fn are_several(&self) -> bool {
        self.names.len() > 1
    }

    /// Type of the IDs of stacks and calls.
    fn id_type(&self) -> DataType {
        match self.are_several() {
            true => DataType::Int64,
            false => DataType::Int32,
        }
    }

    /// The name of each trace; `None` for a single one, whose rows have no name.
    fn each(&self) -> impl Iterator<Item = Option<&str>> {
        let names = self.are_several().then_some(&self.names);
        let single = names.is_none().then_some(None);
        let several = names.into_iter().flatten().map(|name| Some(name.as_str()));
        several.chain(single)
    }
}

/// A table function.
struct Function {
    name: &'static str,
    /// Creates the pass from literal arguments; `None` if they are wrong.
    create: fn(&[ScalarValue]) -> Option<Arc<dyn Pass>>,
}

/// An argument that is an integer.
fn integer(argument: &ScalarValue) -> Option<i64> {
    match argument.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(number)) => number,
        _ => None,
    }
}

/// How the names of passes begin.
pub(crate) const PREFIX: &str = "pass_";

const FUNCTIONS: &[Function] = &[
    sched::states::FUNCTION,
    sched::off_cpu::FUNCTION,
    sched::wakeups::FUNCTION,
    sched::lengths::FUNCTION,
    sched::totals::FUNCTION,
    sched::cpu_utilization::FUNCTION,
    sched::thread_utilization::FUNCTION,
    sched::critical_path::FUNCTION,
    sched::processes::FUNCTION,
    sched::processes::TREE,
    system_calls::FUNCTION,
    locks::FUNCTION,
    block_io::FUNCTION,
    page_faults::FUNCTION,
    interrupts::FUNCTION,
    counters::FREQUENCY,
    counters::IDLE,
    allocations::FUNCTION,
    call_tree::ANCESTORS,
    call_tree::DESCENDANTS,
    call_tree::ROOTED,
];

/// Registers all passes.
pub(crate) fn register(context: &SessionContext, traces: &Arc<Traces>) {
    for function in FUNCTIONS {
        let table = PassFunction {
            function,
            traces: Arc::clone(traces),
        };
        context.register_udtf(function.name, Arc::new(table));
    }
}

struct PassFunction {
    function: &'static Function,
    traces: Arc<Traces>,
}

impl fmt::Debug for PassFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.name)
    }
}

impl TableFunctionImpl for PassFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let literal = |expr: &Expr| match expr {
            Expr::Literal(value, _) => Some(value.clone()),
            _ => None,
        };
        let values: Option<Vec<ScalarValue>> = args.exprs().iter().map(literal).collect();
        let pass = values.and_then(|values| (self.function.create)(&values));
        match pass {
            Some(pass) => Ok(Arc::new(PassTable::new(pass, &self.traces))),
            None => {
                let text = format!("{}: wrong number or types of arguments", self.function.name);
                Err(DataFusionError::Plan(text))
            }
        }
    }
}
