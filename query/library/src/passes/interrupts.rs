//! `pass_interrupts()`: interrupts and softirqs, with their numbers and the threads that they interrupted.
//!
//! Entries and exits are paired in `calls`; the number is in the entry, on the same CPU at the same time.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::lit;
use hashbrown::HashMap;

use super::Function;
use super::pass::{Machine, Pass, PassPlan, Tables};
use super::rows::{Rows, emitted};
use super::selection::Selection;
use super::source::{Input, Row, Source, column};

pub(super) const FUNCTION: Function = Function {
    name: "pass_interrupts",
    create: |arguments| match arguments {
        [] => Some(Arc::new(Interrupts)),
        _ => None,
    },
};

#[derive(Debug)]
struct Interrupts;

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    KIND "kind" Text,
    NUMBER "nr" Int32,
    NAME "name" Text,
    INTERRUPTED_TID "interrupted_tid" Int32,
    INTERRUPTED_COMM "interrupted_comm" Text,
    SELF_TIME "self_time" Int64,
}

/// The last source; those before are entries.
const ENTRIES: [(&str, &str, &str); 3] = [
    ("irq:irq_handler_entry", "irq", "irq"),
    ("irq:softirq_entry", "vec", "softirq"),
    ("irq:tasklet_entry", "", "tasklet"),
];

/// Vectors by which CPUs interrupt each other (arch/x86/include/asm/trace/irq_vectors.h).
const BETWEEN_CPUS: [&str; 5] = [
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
];

impl Pass for Interrupts {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        // A row depends on the entry and the call at its time on its CPU.
        let cpu = || Input::integer(&["cpu"]);
        let of_selection = |source: Source| {
            selection
                .with_values(source, &[(CPU, cpu())])
                .within(selection.times)
        };
        let entry = |event: &str, number: &str| {
            let columns = vec![cpu(), Input::integer(&[number])];
            of_selection(Source::event(event, columns))
        };
        let known = ENTRIES.iter();
        let mut sources: Vec<Source> = known
            .map(|(event, number, _)| entry(event, number))
            .collect();
        let mut kinds: Vec<&'static str> = ENTRIES.iter().map(|(_, _, kind)| *kind).collect();
        // Interrupts of the CPU itself.
        for name in tables.events_of("irq_vectors") {
            if let Some(vector) = name.strip_suffix("_entry") {
                sources.push(entry(&format!("irq_vectors:{name}"), "vector"));
                let is_between = BETWEEN_CPUS.contains(&vector);
                kinds.push(if is_between { "ipi" } else { "irq" });
            }
        }
        let calls = vec![
            cpu(),
            Input::integer(&["duration"]),
            Input::text(&["function"]),
            Input::integer(&["tid"]),
            Input::text(&["comm"]),
            Input::integer(&["self_time"]),
            Input::text(&["context"]),
        ];
        let calls = of_selection(Source::fixed("calls", "time", calls));
        sources.push(calls.with_condition(column("context").not_eq(lit("task"))));
        PassPlan::new(sources, move || Handlers {
            kinds: kinds.clone(),
            entries: HashMap::new(),
        })
    }
}

struct Handlers {
    /// Kinds of the sources.
    kinds: Vec<&'static str>,
    /// By CPU, the last entry: time, source and number.
    entries: HashMap<i32, (i64, usize, Option<i64>)>,
}

impl Machine for Handlers {
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        let cpu = row.id(0);
        if source < self.kinds.len() {
            if let Some(cpu) = cpu {
                self.entries.insert(cpu, (row.time, source, row.integer(1)));
            }
            return Ok(());
        }
        // Without a CPU, the name of the call is what is known.
        let entry = cpu
            .and_then(|cpu| self.entries.get(&cpu))
            .filter(|(time, _, _)| *time == row.time);
        let function = row.text(2).unwrap_or_default();
        let (kind, number) = match entry {
            Some((_, source, number)) => (self.kinds.get(*source).copied(), *number),
            // The entry was not recorded; other functions run inside of interrupts.
            None if function.starts_with("irq:") => (Some("irq"), None),
            None if function.starts_with("softirq:") => (Some("softirq"), None),
            None if row.text(6) == Some("nmi") => (Some("nmi"), None),
            None => return Ok(()),
        };
        let name = function.split_once(':').map_or(function, |(_, name)| name);
        rows.integer(TIME, Some(row.time));
        rows.integer(DURATION, row.integer(1));
        rows.id(CPU, cpu);
        rows.text(KIND, kind);
        rows.integer(NUMBER, number);
        rows.text(NAME, Some(name));
        rows.id(INTERRUPTED_TID, row.id(3));
        rows.text(INTERRUPTED_COMM, row.text(4));
        rows.integer(SELF_TIME, row.integer(5));
        rows.end_row();
        Ok(())
    }

    fn end(&mut self, _: &mut Rows) -> Result<bool> {
        Ok(false)
    }

    fn bytes(&self) -> usize {
        self.entries.capacity() * 64
    }
}
