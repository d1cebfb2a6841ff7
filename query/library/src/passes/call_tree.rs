//! `pass_ancestors([call_id])`, `pass_descendants(call_id)`, `pass_rooted_calls()`: relations along `calls.parent_id`.
//!
//! ```text
//! sys_read                      root
//!   vfs_read                    ancestor at distance 2
//!     filemap_read              ancestor at distance 1
//!       copy_page_to_iter       the call
//! ```
//! Calls come in the order of their entries, so the enclosing ones of a thread are a stack.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use hashbrown::HashMap;

use super::names::{Name, Names};
use super::pass::{Machine, Pass, PassPlan, Tables};
use super::rows::{Rows, emitted};
use super::selection::Selection;
use super::source::{Input, Row, Source};
use super::{Function, integer};

pub(super) const ANCESTORS: Function = Function {
    name: "pass_ancestors",
    create: |arguments| {
        let only = match arguments {
            [] => None,
            [id] => Some(integer(id)?),
            _ => return None,
        };
        Some(Arc::new(CallTree::Ancestors(only)))
    },
};

pub(super) const DESCENDANTS: Function = Function {
    name: "pass_descendants",
    create: |arguments| match arguments {
        [id] => Some(Arc::new(CallTree::Descendants(integer(id)?))),
        _ => None,
    },
};

pub(super) const ROOTED: Function = Function {
    name: "pass_rooted_calls",
    create: |arguments| match arguments {
        [] => Some(Arc::new(CallTree::Rooted)),
        _ => None,
    },
};

#[derive(Debug, Clone, Copy)]
enum CallTree {
    /// Of one call or of all.
    Ancestors(Option<i64>),
    Descendants(i64),
    Rooted,
}

emitted! {
    TIME "time" Int64,
    CPU "cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
    DURATION "duration" Int64,
    SELF_TIME "self_time" Int64,
    FUNCTION "function" Text,
    MODULE "module" Text,
    CALLER "caller" Text,
    DEPTH "depth" Int32,
    CALL_ID "call_id" Int64,
    PARENT_ID "parent_id" Int64,
    RETVAL "retval" Int64,
    ARGS "args" Texts,
    CONTEXT "context" Text,
    ENTRY_SEEN "entry_seen" Flag,
    EXIT_SEEN "exit_seen" Flag,
    ANCESTOR_ID "ancestor_id" Int64,
    ANCESTOR "ancestor" Text,
    DISTANCE "distance" Int32,
}

impl Pass for CallTree {
    fn name(&self) -> &'static str {
        match self {
            CallTree::Ancestors(_) => ANCESTORS.name,
            CallTree::Descendants(_) => DESCENDANTS.name,
            CallTree::Rooted => ROOTED.name,
        }
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn plan(&self, selection: &Selection, _: &Tables<'_>) -> PassPlan {
        // In the order of the emitted columns.
        let columns = vec![
            Input::integer(&["cpu"]),
            Input::integer(&["pid"]).if_wanted(selection.wants(PID)),
            Input::integer(&["tid"]),
            Input::text(&["comm"]).if_wanted(selection.wants(COMM)),
            Input::integer(&["kernel_stack"]).if_wanted(selection.wants(KERNEL_STACK)),
            Input::integer(&["user_stack"]).if_wanted(selection.wants(USER_STACK)),
            Input::integer(&["duration"]).if_wanted(selection.wants(DURATION)),
            Input::integer(&["self_time"]).if_wanted(selection.wants(SELF_TIME)),
            Input::text(&["function"]),
            Input::text(&["module"]).if_wanted(selection.wants(MODULE)),
            Input::text(&["caller"]).if_wanted(selection.wants(CALLER)),
            Input::integer(&["depth"]).if_wanted(selection.wants(DEPTH)),
            Input::integer(&["call_id"]),
            Input::integer(&["parent_id"]),
            Input::integer(&["retval"]).if_wanted(selection.wants(RETVAL)),
            Input::texts(&["args"]).if_wanted(selection.wants(ARGS)),
            Input::text(&["context"]).if_wanted(selection.wants(CONTEXT)),
            Input::flag(&["entry_seen"]).if_wanted(selection.wants(ENTRY_SEEN)),
            Input::flag(&["exit_seen"]).if_wanted(selection.wants(EXIT_SEEN)),
        ];
        let sources = vec![Source::fixed("calls", "time", columns)];
        let what = *self;
        PassPlan::new(sources, move || Tree {
            what,
            lanes: HashMap::new(),
            below: HashMap::new(),
            names: Names::default(),
            function: Name::default(),
        })
    }
}

/// Column of `calls` as an input.
fn input(column: usize) -> usize {
    column - 1
}

#[derive(Debug, Clone, Copy)]
struct Call {
    id: i64,
    function: Name,
}

struct Tree {
    what: CallTree,
    /// The enclosing calls of each thread, outermost first; of each CPU for the idle tasks, which share a TID.
    lanes: HashMap<(Option<i32>, Option<i32>), Vec<Call>>,
    /// Distances of the descendants found so far.
    below: HashMap<i64, i32>,
    names: Names,
    function: Name,
}

impl Tree {
    fn emit(&self, row: Row<'_>, other: (Option<i64>, Option<Name>, Option<i32>), rows: &mut Rows) {
        let integer = |column: usize| row.integer(input(column));
        rows.integer(TIME, Some(row.time));
        for column in [
            CPU,
            PID,
            TID,
            KERNEL_STACK,
            USER_STACK,
            DURATION,
            SELF_TIME,
            DEPTH,
            CALL_ID,
            PARENT_ID,
            RETVAL,
        ] {
            if rows.wants(column) {
                rows.integer(column, integer(column));
            }
        }
        for column in [COMM, FUNCTION, MODULE, CALLER, CONTEXT] {
            if rows.wants(column) {
                rows.text(column, row.text(input(column)));
            }
        }
        if rows.wants(ARGS) {
            let list = row.list(input(ARGS));
            let texts = list
                .as_ref()
                .map(|list| list.as_string_view().iter().flatten());
            rows.texts(ARGS, texts);
        }
        rows.flag(ENTRY_SEEN, row.flag(input(ENTRY_SEEN)));
        rows.flag(EXIT_SEEN, row.flag(input(EXIT_SEEN)));
        let (id, name, distance) = other;
        rows.integer(ANCESTOR_ID, id);
        rows.text(ANCESTOR, name.and_then(|name| self.names.text(name)));
        rows.id(DISTANCE, distance);
        rows.end_row();
    }

    /// Ends the calls that do not enclose the next one; returns whether its parent is known.
    fn enter(&mut self, row: Row<'_>) -> Option<(&[Call], bool)> {
        let id = row.integer(input(CALL_ID))?;
        let parent = row.integer(input(PARENT_ID));
        let lane = match row.id(input(TID)) {
            Some(0) | None => (None, row.id(input(CPU))),
            tid => (tid, None),
        };
        self.function = self.names.of(row.text(input(FUNCTION)), self.function);
        let stack = self.lanes.entry(lane).or_default();
        let place = parent.map(|parent| stack.iter().rposition(|call| call.id == parent));
        let is_known = match place {
            Some(Some(place)) => {
                stack.truncate(place + 1);
                true
            }
            None => {
                stack.clear();
                true
            }
            // A parent that was written later than its calls.
            Some(None) => {
                stack.clear();
                false
            }
        };
        stack.push(Call {
            id,
            function: self.function,
        });
        Some((stack.as_slice(), is_known))
    }
}

impl Machine for Tree {
    fn row(&mut self, _: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        let id = row.integer(input(CALL_ID));
        let parent = row.integer(input(PARENT_ID));
        match self.what {
            CallTree::Descendants(root) => {
                let distance = match parent {
                    Some(parent) if parent == root => Some(1),
                    Some(parent) => self.below.get(&parent).map(|distance| distance + 1),
                    None => None,
                };
                if let (Some(distance), Some(id)) = (distance, id) {
                    self.below.insert(id, distance);
                    self.emit(row, (Some(root), None, Some(distance)), rows);
                }
            }
            CallTree::Ancestors(only) => {
                let Some((stack, is_known)) = self.enter(row) else {
                    return Ok(());
                };
                if only.is_some_and(|only| Some(only) != id) {
                    return Ok(());
                }
                let above: Vec<Call> = stack.iter().rev().skip(1).copied().collect();
                for (place, call) in above.iter().enumerate() {
                    let distance = i32::try_from(place + 1).ok();
                    self.emit(row, (Some(call.id), Some(call.function), distance), rows);
                }
                if !is_known {
                    self.emit(row, (parent, None, Some(1)), rows);
                }
            }
            CallTree::Rooted => {
                let Some((stack, is_known)) = self.enter(row) else {
                    return Ok(());
                };
                let root = stack.first().copied().filter(|_| is_known);
                let distance = i32::try_from(stack.len() - 1).ok().filter(|_| is_known);
                self.emit(
                    row,
                    (
                        root.map(|call| call.id),
                        root.map(|call| call.function),
                        distance,
                    ),
                    rows,
                );
            }
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Rows) -> Result<bool> {
        Ok(false)
    }

    fn bytes(&self) -> usize {
        self.below.capacity() * 2 * size_of::<(i64, i32)>()
            + self.lanes.len() * 512
            + self.names.bytes()
    }
}
