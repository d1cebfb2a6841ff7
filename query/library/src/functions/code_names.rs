//! Names of the kernel's numbers: `errno_name(ret)`, `signal_name(n)`, `syscall_name(nr)`, `task_state(prev_state)`,
//! `page_fault_kind(error_code)`, `irq_context(common_flags)`.
//!
//! ```text
//! SELECT errno_name(ret), count(*) FROM sys_exit_openat WHERE ret < 0 GROUP BY 1      ENOENT | 317
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use perfquet_events::event::Flags;

use super::Function;
use crate::linux::{errno, page_fault, signal, system_call, task_state};

pub(super) const ERRNO_NAME: Function = Function {
    usage: "errno_name(ret)",
    about: "the error in a system call's result: ENOENT; NULL for success",
    register: |context, _| {
        context.register_udf(named("errno_name", 1, |code, _| {
            errno::name(code.number()?).map(Cow::Borrowed)
        }));
    },
};

pub(super) const SIGNAL_NAME: Function = Function {
    usage: "signal_name(number)",
    about: "the name of a signal: SIGTERM",
    register: |context, _| {
        context.register_udf(named("signal_name", 1, |code, _| {
            signal::name(code.number()?).map(Cow::Owned)
        }));
    },
};

pub(super) const SYSCALL_NAME: Function = Function {
    usage: "syscall_name(number [, architecture])",
    about: "the system call with that number, on x86_64 or another architecture as uname -m prints it: openat",
    register: |context, _| {
        context.register_udf(named("syscall_name", 2, |code, architecture| {
            let architecture = architecture.unwrap_or("x86_64");
            system_call::name(code.number()?, architecture).map(Cow::Borrowed)
        }));
    },
};

pub(super) const TASK_STATE: Function = Function {
    usage: "task_state(prev_state)",
    about: "the state of a thread that leaves its CPU: preempted, interruptible, uninterruptible, …",
    register: |context, _| {
        context.register_udf(named("task_state", 1, |code, _| {
            let state = match code {
                Code::Number(number) => task_state::switched_out(number),
                Code::Text(text) => task_state::switched_out_text(text),
            };
            state.name().map(Cow::Borrowed)
        }));
    },
};

pub(super) const PAGE_FAULT_KIND: Function = Function {
    usage: "page_fault_kind(error_code)",
    about: "the kind of a page fault on x86: read, write, exec or protection",
    register: |context, _| {
        context.register_udf(named("page_fault_kind", 1, |code, _| {
            Some(Cow::Borrowed(page_fault::kind(code.number()?)))
        }));
    },
};

pub(super) const IRQ_CONTEXT: Function = Function {
    usage: "irq_context(common_flags)",
    about: "the context of an event: task, softirq, irq or nmi",
    register: |context, _| {
        context.register_udf(named("irq_context", 1, |code, _| {
            let flags = Flags {
                bits: u8::try_from(code.number()?).ok()?,
                preempt_count: 0,
            };
            Some(Cow::Borrowed(flags.context().as_str()))
        }));
    },
};

/// A number, or its text in traces that have only that.
#[derive(Clone, Copy)]
enum Code<'a> {
    Number(i64),
    Text(&'a str),
}

impl Code<'_> {
    fn number(self) -> Option<i64> {
        match self {
            Code::Number(number) => Some(number),
            Code::Text(text) => text.parse().ok(),
        }
    }
}

type NameOf = for<'a> fn(Code<'a>, Option<&str>) -> Option<Cow<'a, str>>;

/// A function of a number and at most one string.
#[derive(Debug)]
struct Named {
    name: &'static str,
    most: usize,
    signature: Signature,
    of: NameOf,
}

fn named(name: &'static str, most: usize, of: NameOf) -> ScalarUDF {
    ScalarUDF::from(Named {
        name,
        most,
        signature: Signature::user_defined(Volatility::Immutable),
        of,
    })
}

impl PartialEq for Named {
    fn eq(&self, other: &Named) -> bool {
        self.name == other.name
    }
}

impl Eq for Named {}

impl std::hash::Hash for Named {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, kinds: &[DataType]) -> Result<Vec<DataType>> {
        let wrong = || {
            let text = format!("Function '{}' failed to match any signature", self.name);
            DataFusionError::Plan(text)
        };
        if kinds.is_empty() || kinds.len() > self.most {
            return Err(wrong());
        }
        let code = match &kinds[0] {
            kind if kind.is_integer() || kind.is_null() => DataType::Int64,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
            kind if kind.is_numeric() => DataType::Int64,
            _ => return Err(wrong()),
        };
        let mut types = vec![code];
        types.extend(kinds.iter().skip(1).map(|_| DataType::Utf8View));
        Ok(types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let codes = &arrays[0];
        let second = arrays.get(1).map(|texts| cast(texts, &DataType::Utf8View));
        let second = second.transpose()?;
        let mut names = StringViewBuilder::with_capacity(codes.len());
        for row in 0..codes.len() {
            let word = second.as_ref().map(|texts| texts.as_string_view());
            let word = word.filter(|texts| texts.is_valid(row));
            let word = word.map(|texts| texts.value(row));
            let name = code_at(codes, row).and_then(|code| (self.of)(code, word));
            names.append_option(name);
        }
        Ok(ColumnarValue::Array(Arc::new(names.finish())))
    }
}

fn code_at(codes: &ArrayRef, row: usize) -> Option<Code<'_>> {
    if codes.is_null(row) {
        return None;
    }
    match codes.data_type() {
        DataType::Utf8View => Some(Code::Text(codes.as_string_view().value(row))),
        DataType::Int64 => Some(Code::Number(codes.as_primitive::<Int64Type>().value(row))),
        _ => None,
    }
}
