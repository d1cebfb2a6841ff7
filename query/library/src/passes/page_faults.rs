//! `pass_page_faults()`: page faults, with the mapped files.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::lit;

use super::Function;
use super::mapped::Mapped;
use super::names::{Name, Names};
use super::pass::{Machine, Pass, PassPlan, Tables};
use super::rows::{Rows, emitted};
use super::selection::Selection;
use super::source::{BEFORE, Input, Row, Source, column};
use crate::linux::page_fault;

pub(super) const FUNCTION: Function = Function {
    name: "pass_page_faults",
    create: |arguments| match arguments {
        [] => Some(Arc::new(PageFaults)),
        _ => None,
    },
};

#[derive(Debug)]
struct PageFaults;

emitted! {
    TIME "time" Int64,
    CPU "cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    ADDRESS "address" Address,
    KIND "kind" Text,
    USER "user" Flag,
    IP "ip" Address,
    MAPPING "mapping" Text,
    FILE_OFFSET "file_offset" Int64,
    EVENT "event" Text,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
}

mod feed {
    pub(super) const FACTS: usize = 0;
    pub(super) const THREADS: usize = 1;
    pub(super) const MAPPINGS: usize = 2;
    pub(super) const USER: usize = 3;
    pub(super) const KERNEL: usize = 4;
    pub(super) const SAMPLES: usize = 5;
}

impl Pass for PageFaults {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn plan(&self, selection: &Selection, _: &Tables<'_>) -> PassPlan {
        let fault = |event: &'static str| {
            vec![
                Input::integer(&["cpu"]),
                Input::integer(&["pid"]),
                Input::integer(&["tid"]),
                Input::text(&["comm"]),
                Input::integer(&["address", "addr"]),
                Input::integer(&["ip"]),
                Input::integer(&["error_code"]),
                Input::integer(&["kernel_stack"]),
                Input::integer(&["user_stack"]),
                Input::text(&[event]),
            ]
        };
        let is_looked_up = lit(selection.wants(MAPPING) || selection.wants(FILE_OFFSET));
        let mappings = vec![
            Input::integer(&["pid"]),
            Input::integer(&["start_address"]),
            Input::integer(&["end_address"]),
            Input::integer(&["file_offset"]),
            Input::text(&["path"]),
        ];
        let threads = ["tid", "pid", "parent"].map(|name| Input::integer(&[name]));
        // Of other faults, a row depends on nothing.
        let of_selection = |source: Source| {
            let columns = [(CPU, "cpu"), (PID, "pid"), (TID, "tid")];
            let columns = columns.map(|(column, name)| (column, Input::integer(&[name])));
            selection
                .with_values(source, &columns)
                .within(selection.times)
        };
        let faults = |event: &str| of_selection(Source::event(event, fault("")));
        let is_fault = column("event").like(lit("%-faults%"));
        let samples = of_selection(Source::fixed("samples", "time", fault("event")));
        let sources = vec![
            Source::facts(),
            Source::fixed("threads", "start_time", threads.to_vec()).with_unknown_times(),
            Source::fixed("mappings", "time", mappings)
                .with_unknown_times()
                .with_condition(is_looked_up),
            faults("exceptions:page_fault_user"),
            faults("exceptions:page_fault_kernel"),
            samples.with_condition(is_fault),
        ];
        PassPlan::new(sources, Faults::default)
    }
}

#[derive(Default)]
struct Faults {
    /// Whether error codes are those of x86.
    is_x86: bool,
    mapped: Mapped,
    names: Names,
    path: Name,
}

impl Faults {
    fn fault(&mut self, is_of_user: Option<bool>, row: Row<'_>, rows: &mut Rows) {
        let code = row.integer(6).filter(|_| self.is_x86);
        let address = row.integer(4);
        let place = row.id(1).zip(address);
        let place = place.and_then(|(pid, address)| self.mapped.at(pid, address.cast_unsigned()));
        rows.integer(TIME, Some(row.time));
        rows.id(CPU, row.id(0));
        rows.id(PID, row.id(1));
        rows.id(TID, row.id(2));
        rows.text(COMM, row.text(3));
        rows.integer(ADDRESS, address);
        rows.text(KIND, code.map(page_fault::kind));
        // Accesses of the kernel to user memory count as kernel mode.
        rows.flag(USER, code.map(page_fault::is_of_user).or(is_of_user));
        rows.integer(IP, row.integer(5));
        rows.text(MAPPING, place.and_then(|(path, _)| self.names.text(path)));
        rows.integer(FILE_OFFSET, place.map(|(_, offset)| offset.cast_signed()));
        let event = match is_of_user {
            Some(true) => Some("page_fault_user"),
            Some(false) => Some("page_fault_kernel"),
            None => row.text(9),
        };
        rows.text(EVENT, event);
        rows.integer(KERNEL_STACK, row.integer(7));
        rows.integer(USER_STACK, row.integer(8));
        rows.end_row();
    }
}

impl Machine for Faults {
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        match source {
            feed::FACTS if row.text(0) == Some("architecture") => {
                let name = row.text(1).unwrap_or_default();
                self.is_x86 = name.starts_with("x86") || name.ends_with("86") || name == "amd64";
            }
            feed::THREADS => {
                if let (Some(tid), Some(pid), Some(parent)) = (row.id(0), row.id(1), row.id(2))
                    && tid == pid
                    && row.time > BEFORE
                {
                    self.mapped.fork(parent, pid);
                }
            }
            feed::MAPPINGS => {
                if let (Some(pid), Some(start), Some(end)) =
                    (row.id(0), row.integer(1), row.integer(2))
                {
                    self.path = self.names.of(row.text(4), self.path);
                    let range = (start.cast_unsigned(), end.cast_unsigned());
                    let offset = row.integer(3).unwrap_or_default().cast_unsigned();
                    self.mapped.map(pid, range, offset, self.path);
                }
            }
            feed::USER => self.fault(Some(true), row, rows),
            feed::KERNEL => self.fault(Some(false), row, rows),
            feed::SAMPLES => self.fault(None, row, rows),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Rows) -> Result<bool> {
        Ok(false)
    }

    fn bytes(&self) -> usize {
        self.mapped.bytes() + self.names.bytes()
    }
}
