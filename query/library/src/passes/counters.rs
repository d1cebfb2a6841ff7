//! `pass_cpu_frequency()`, `pass_cpu_idle()`: values that the kernel reports when they change, as periods.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use hashbrown::HashMap;

use super::Function;
use super::pass::{Machine, Pass, PassPlan, Tables};
use super::rows::{Rows, emitted};
use super::selection::Selection;
use super::source::{Input, Row, Source};

pub(super) const FREQUENCY: Function = Function {
    name: "pass_cpu_frequency",
    create: |arguments| match arguments {
        [] => Some(Arc::new(Counter {
            name: FREQUENCY.name,
            event: "power:cpu_frequency",
            none: None,
        })),
        _ => None,
    },
};

pub(super) const IDLE: Function = Function {
    name: "pass_cpu_idle",
    create: |arguments| match arguments {
        [] => Some(Arc::new(Counter {
            name: IDLE.name,
            event: "power:cpu_idle",
            none: Some(LEFT),
        })),
        _ => None,
    },
};

/// State of cpu_idle when the CPU wakes: PWR_EVENT_EXIT, -1 as 32 bits.
const LEFT: i64 = 0xffff_ffff;

/// An event with a new value of a CPU.
#[derive(Debug)]
struct Counter {
    name: &'static str,
    event: &'static str,
    /// Value that ends a period without starting another.
    none: Option<i64>,
}

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    VALUE "value" Int64,
}

impl Pass for Counter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, selection: &Selection, _: &Tables<'_>) -> PassPlan {
        let values = vec![Input::integer(&["cpu_id"]), Input::integer(&["state"])];
        let sources = vec![
            Source::fixed("losses", "time", Vec::new()),
            selection.with_values(
                Source::event(self.event, values),
                &[(CPU, Input::integer(&["cpu_id"]))],
            ),
        ];
        let none = self.none;
        PassPlan::new(sources, move || Stretches {
            none,
            losses: 0,
            cpus: HashMap::new(),
        })
    }
}

/// A value since a time, and the number of losses before it.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    since: i64,
    value: i64,
    losses: u64,
}

struct Stretches {
    none: Option<i64>,
    losses: u64,
    cpus: HashMap<i32, Stretch>,
}

fn emit(cpu: i32, stretch: Stretch, end: Option<i64>, rows: &mut Rows) {
    rows.integer(TIME, Some(stretch.since));
    rows.integer(DURATION, end.map(|end| end - stretch.since));
    rows.id(CPU, Some(cpu));
    rows.integer(VALUE, Some(stretch.value));
    rows.end_row();
}

impl Machine for Stretches {
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        if source == 0 {
            self.losses += 1;
            return Ok(());
        }
        let (Some(cpu), Some(value)) = (row.id(0), row.integer(1)) else {
            return Ok(());
        };
        let is_none = self.none.is_some_and(|none| value == none || value == -1);
        let next = (!is_none).then_some(Stretch {
            since: row.time,
            value,
            losses: self.losses,
        });
        let before = match next {
            Some(next) => self.cpus.insert(cpu, next),
            None => self.cpus.remove(&cpu),
        };
        if let Some(before) = before {
            let is_certain = before.losses == self.losses;
            emit(cpu, before, is_certain.then_some(row.time), rows);
        }
        Ok(())
    }

    fn end(&mut self, rows: &mut Rows) -> Result<bool> {
        let mut cpus: Vec<(i32, Stretch)> = self.cpus.drain().collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        for (cpu, stretch) in cpus {
            emit(cpu, stretch, None, rows);
        }
        Ok(false)
    }

    fn bytes(&self) -> usize {
        self.cpus.capacity() * 2 * size_of::<(i32, Stretch)>()
    }
}
