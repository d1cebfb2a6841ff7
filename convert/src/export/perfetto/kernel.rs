//! Kernel events as ftrace bundles: up to a few thousand events of a CPU per packet.
//!
//! Scheduler events and CPU frequencies use the messages from which the importer builds tracks. All others are
//! `generic`, with their fields by name, and appear in the tracks "Ftrace Events". System calls and interrupts are
//! generic, too, because they are already slices, as calls.

use std::collections::HashMap;

use anyhow::Result;
use arrow_array::{Array, RecordBatch};
use perfquet_events::event::Value;

use super::super::batch::{Head, column, value_at};
use super::super::protobuf::Message;
use super::super::values::{Cell, fields};
use super::fields::{bundle, ftrace_event, generic, packet};
use super::packets::Packets;

/// Sequence of the bundles.
const SEQUENCE: u64 = 1;
/// Maximum number of events in a bundle.
const MOST_EVENTS: usize = 5_000;
/// Maximum number of open bundles: CPUs.
const MOST_BUNDLES: usize = 4_096;

/// One open bundle per CPU.
#[derive(Default)]
pub(super) struct Bundles {
    bundles: HashMap<i32, Bundle>,
}

#[derive(Default)]
struct Bundle {
    events: Message,
    count: usize,
}

impl Bundles {
    /// Adds an event on a CPU.
    pub(super) fn add(
        &mut self,
        packets: &mut Packets<'_>,
        cpu: i32,
        write: impl FnOnce(&mut Message),
    ) -> Result<()> {
        if self.bundles.len() >= MOST_BUNDLES && !self.bundles.contains_key(&cpu) {
            self.flush(packets)?;
        }
        let bundle = self.bundles.entry(cpu).or_default();
        bundle.events.message(bundle::EVENT, write);
        bundle.count += 1;
        if bundle.count >= MOST_EVENTS {
            bundle.flush(packets, cpu)?;
        }
        Ok(())
    }

    /// Marks lost events of a CPU.
    pub(super) fn lost(&mut self, packets: &mut Packets<'_>, cpu: i32) -> Result<()> {
        packets.add(|message| {
            message.uint(packet::SEQUENCE_ID, SEQUENCE);
            message.message(packet::FTRACE_EVENTS, |message| {
                message.int(bundle::CPU, i64::from(cpu));
                message.bool(bundle::LOST_EVENTS, true);
            });
        })
    }

    /// Writes all open bundles.
    pub(super) fn flush(&mut self, packets: &mut Packets<'_>) -> Result<()> {
        let mut cpus: Vec<i32> = self.bundles.keys().copied().collect();
        cpus.sort_unstable();
        for cpu in cpus {
            if let Some(mut bundle) = self.bundles.remove(&cpu) {
                bundle.flush(packets, cpu)?;
            }
        }
        Ok(())
    }
}

impl Bundle {
    fn flush(&mut self, packets: &mut Packets<'_>, cpu: i32) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let events = &self.events;
        packets.add(|message| {
            message.uint(packet::SEQUENCE_ID, SEQUENCE);
            message.message(packet::FTRACE_EVENTS, |message| {
                message.int(bundle::CPU, i64::from(cpu));
                message.append(events);
            });
        })?;
        self.events.clear();
        self.count = 0;
        Ok(())
    }
}

/// The message of an event type.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Switch,
    /// A switch in a recording of some threads: who runs next leaves the CPU without an event, so the CPU counts as idle.
    SwitchOut,
    /// A recorded thread gets a CPU, in such a recording.
    SwitchIn,
    /// The number of the message.
    Wakeup(u32),
    /// The number of the message: frequency or idle state of a CPU.
    CpuState(u32),
    /// Any other, by its name.
    Generic,
}

impl Shape {
    /// Returns the shape of an event, such as `sched:sched_switch`.
    pub(super) fn of(event: &str) -> Shape {
        match event {
            "sched:sched_switch" => Shape::Switch,
            "sched:sched_wakeup" => Shape::Wakeup(ftrace_event::SCHED_WAKEUP),
            "sched:sched_wakeup_new" => Shape::Wakeup(ftrace_event::SCHED_WAKEUP_NEW),
            "sched:sched_waking" => Shape::Wakeup(ftrace_event::SCHED_WAKING),
            "power:cpu_frequency" => Shape::CpuState(ftrace_event::CPU_FREQUENCY),
            "power:cpu_idle" => Shape::CpuState(ftrace_event::CPU_IDLE),
            _ => Shape::Generic,
        }
    }

    /// Returns the shape of an event in a recording of some threads that has their switches.
    pub(super) fn of_some_threads(event: &str) -> Shape {
        match event {
            "sched:sched_switch" => Shape::SwitchOut,
            "perf:context_switch" => Shape::SwitchIn,
            other => Shape::of(other),
        }
    }
}

/// Writes the switch of a thread that exits to the idle task.
pub(super) fn write_exit(message: &mut Message, time: i64, tid: i32, comm: &str) {
    message.int(ftrace_event::TIMESTAMP, time);
    message.int(ftrace_event::TID, i64::from(tid));
    message.message(ftrace_event::SCHED_SWITCH, |message| {
        message.text(1, comm);
        message.int(2, i64::from(tid));
        message.int(4, state_of(b"X"));
        message.text(5, IDLE);
        message.int(6, 0);
    });
}

/// Name of the idle task.
const IDLE: &str = "swapper";

/// The events of a batch.
pub(super) struct KernelEvents<'b> {
    shape: &'b Shape,
    /// Columns of the message, in its order.
    columns: Vec<Option<&'b dyn Array>>,
    /// Name of the event: rows without the numbers that its message needs are generic.
    name: &'b str,
    /// Fields with their names, for generic events.
    fields: Vec<(String, &'b dyn Array)>,
}

impl<'b> KernelEvents<'b> {
    pub(super) fn of(name: &'b str, shape: &'b Shape, batch: &'b RecordBatch) -> KernelEvents<'b> {
        let named = |names: &[&str]| -> Vec<Option<&'b dyn Array>> {
            names.iter().map(|name| column(batch, name)).collect()
        };
        let columns = match shape {
            Shape::Switch | Shape::SwitchOut => named(&[
                "prev_comm",
                "prev_pid",
                "prev_prio",
                "prev_state",
                "next_comm",
                "next_pid",
                "next_prio",
            ]),
            Shape::Wakeup(_) => named(&["arg_comm", "arg_pid", "prio", "success", "target_cpu"]),
            Shape::CpuState(_) => named(&["state", "cpu_id"]),
            Shape::SwitchIn => named(&["out"]),
            Shape::Generic => Vec::new(),
        };
        KernelEvents {
            shape,
            columns,
            name,
            fields: fields(batch),
        }
    }

    /// The thread of a row. perf has none for the last switch of a thread that has exited, which names it.
    pub(super) fn thread(&self, head: &Head<'_>, row: usize) -> Option<i32> {
        let leaves = matches!(self.shape, Shape::Switch | Shape::SwitchOut);
        let leaving = || i32::try_from(self.number(1, row).filter(|_| leaves)?).ok();
        head.tid.or_else(leaving)
    }

    /// Writes the event of a row.
    pub(super) fn write(&self, message: &mut Message, time: i64, head: &Head<'_>, row: usize) {
        message.int(ftrace_event::TIMESTAMP, time);
        if let Some(tid) = self.thread(head, row) {
            message.int(ftrace_event::TID, i64::from(tid));
        }
        match self.shape {
            Shape::Switch if self.has(row, &[1, 5]) => {
                message.message(ftrace_event::SCHED_SWITCH, |message| {
                    self.text(message, 1, 0, row);
                    self.int(message, 2, 1, row);
                    self.int(message, 3, 2, row);
                    message.int(4, self.state(row));
                    self.text(message, 5, 4, row);
                    self.int(message, 6, 5, row);
                    self.int(message, 7, 6, row);
                });
            }
            Shape::SwitchOut if self.has(row, &[1]) => {
                message.message(ftrace_event::SCHED_SWITCH, |message| {
                    self.text(message, 1, 0, row);
                    self.int(message, 2, 1, row);
                    self.int(message, 3, 2, row);
                    message.int(4, self.state(row));
                    message.text(5, IDLE);
                    message.int(6, 0);
                });
            }
            Shape::SwitchIn if self.is_in(row) => {
                message.message(ftrace_event::SCHED_SWITCH, |message| {
                    message.text(1, IDLE);
                    message.int(2, 0);
                    message.int(4, 0);
                    message.text(5, head.comm.unwrap_or_default());
                    message.int(6, i64::from(head.tid.unwrap_or_default()));
                });
            }
            Shape::Wakeup(field) if self.has(row, &[1]) => {
                message.message(*field, |message| {
                    self.text(message, 1, 0, row);
                    for place in 1..5 {
                        self.int(message, place as u32 + 1, place, row);
                    }
                });
            }
            Shape::CpuState(field) if self.has(row, &[0, 1]) => {
                message.message(*field, |message| {
                    self.int(message, 1, 0, row);
                    self.int(message, 2, 1, row);
                });
            }
            Shape::Switch
            | Shape::SwitchOut
            | Shape::SwitchIn
            | Shape::Wakeup(_)
            | Shape::CpuState(_)
            | Shape::Generic => self.generic(message, row),
        }
    }

    /// Whether a thread gets a CPU, in a row of [`Shape::SwitchIn`].
    pub(super) fn is_in(&self, row: usize) -> bool {
        self.number(0, row) == Some(0)
    }

    fn generic(&self, message: &mut Message, row: usize) {
        message.message(ftrace_event::GENERIC, |message| {
            // The importer treats a prefix as part of the name.
            message.text(generic::EVENT_NAME, self.name);
            for (name, column) in &self.fields {
                let value = Cell::at(*column, row);
                if value == Cell::Null {
                    continue;
                }
                message.message(generic::FIELD, |message| {
                    message.text(generic::NAME, name);
                    match value {
                        Cell::Int(number) => message.int(generic::INT, number),
                        Cell::Bool(truth) => message.int(generic::INT, i64::from(truth)),
                        Cell::UInt(number) => message.uint(generic::UINT, number),
                        other => message.text(generic::TEXT, &other.text()),
                    }
                });
            }
        });
    }

    /// Returns whether the row has numbers in these columns.
    fn has(&self, row: usize, places: &[usize]) -> bool {
        places
            .iter()
            .all(|place| self.number(*place, row).is_some())
    }

    fn number(&self, place: usize, row: usize) -> Option<i64> {
        let column = self.columns.get(place).copied().flatten()?;
        match value_at(column, row) {
            Value::Int(number) => Some(number),
            Value::UInt(number) => Some(number.cast_signed()),
            Value::Bool(truth) => Some(i64::from(truth)),
            _ => None,
        }
    }

    fn int(&self, message: &mut Message, field: u32, place: usize, row: usize) {
        if let Some(number) = self.number(place, row) {
            message.int(field, number);
        }
    }

    fn text(&self, message: &mut Message, field: u32, place: usize, row: usize) {
        let column = self.columns.get(place).copied().flatten();
        if let Some(Value::Bytes(text)) = column.map(|column| value_at(column, row)) {
            message.text(field, &String::from_utf8_lossy(text));
        }
    }

    /// Returns the state in which a thread was switched out, as the kernel's number; text traces contain letters.
    fn state(&self, row: usize) -> i64 {
        let column = self.columns.get(3).copied().flatten();
        match column.map(|column| value_at(column, row)) {
            Some(Value::Bytes(letters)) => state_of(letters),
            _ => self.number(3, row).unwrap_or(0),
        }
    }
}

/// Returns the bits of `R+`, `S`, `D|K`, which are the kernel's since 4.14 (include/trace/events/sched.h).
fn state_of(letters: &[u8]) -> i64 {
    let bits = letters.iter().map(|letter| match letter {
        b'S' => 1,
        b'D' => 2,
        b'T' => 4,
        b't' => 8,
        b'X' => 0x10,
        b'Z' => 0x20,
        b'P' => 0x40,
        b'I' => 0x80,
        b'+' => 0x100,
        _ => 0,
    });
    bits.fold(0, |state, bit| state | bit)
}
