//! Finished calls on their way to columns, which are filled on the encoder's thread.

use std::sync::Arc;

use perfquet_events::Error;
use perfquet_events::event::Context;

use super::super::heads::push_heads;
use super::super::spare::Spare;
use super::pending::{CallId, Pending};
use crate::store::{Column, Fill, Names, Rows, TableId, Writer};
use crate::tables;

/// Calls in a batch; they stay in a core's cache. Divides the rows of a page.
const ROWS: usize = 512;
/// Bytes of arguments in a batch.
const ARGUMENT_BYTES: usize = 1 << 20;

/// Finished calls.
#[derive(Debug)]
struct Batch {
    rows: Vec<(CallId, Pending)>,
    names: CallNames,
    home: Arc<Spare<Vec<(CallId, Pending)>>>,
}

/// The strings of calls: names of threads, of functions and modules with their arguments, of contexts.
#[derive(Debug, Clone)]
pub(super) struct CallNames {
    pub(super) comms: Names,
    pub(super) functions: Names,
    pub(super) contexts: Names,
}

impl Fill for Batch {
    fn fill(self: Box<Self>, rows: &mut Rows) -> usize {
        let Batch {
            rows: mut calls,
            names,
            home,
        } = *self;
        let count = calls.len();
        let columns = rows.columns_mut();
        let common = tables::common::NAMES.len().min(columns.len());
        let (common, columns) = columns.split_at_mut(common);
        push_heads(common, calls.iter().map(|(_, row)| &row.head), &names.comms);
        push_calls(columns, &calls, &names);
        calls.clear();
        home.put(calls);
        count
    }
}

/// Pushes the columns after the common ones.
fn push_calls(columns: &mut [Column], calls: &[(CallId, Pending)], names: &CallNames) {
    let [
        duration,
        self_time,
        function,
        module,
        caller,
        depth,
        call_id,
        parent_id,
        retval,
        args,
        context,
        entry_seen,
        exit_seen,
    ] = columns
    else {
        debug_assert!(false, "columns other than those of calls");
        return;
    };
    let rows = || calls.iter().map(|(_, row)| row);
    duration.extend_some(64, rows().map(|row| row.duration));
    self_time.extend_some(64, rows().map(self_time_of));
    let named = |column: &mut Column, name: fn(&Pending) -> Option<u32>| {
        column.extend_named(&names.functions, rows().map(name));
    };
    named(function, |row| row.function.map(|name| name.0));
    named(module, |row| row.module.map(|name| name.0));
    named(caller, |row| row.caller.map(|name| name.0));
    let depth_of = |row: &Pending| i32::try_from(row.depth).unwrap_or(i32::MAX);
    depth.extend_i64(32, rows().map(|row| depth_of(row).into()));
    call_id.extend_i64(64, calls.iter().map(|(id, _)| id.0));
    parent_id.extend_some(64, rows().map(|row| row.parent_id.map(|id| id.0)));
    retval.extend_some(64, rows().map(|row| row.retval));
    match rows().all(|row| row.extra.is_none()) {
        true => args.push_nulls(calls.len()),
        false => rows().for_each(|row| push_args(args, row, names)),
    }
    let number = |context: Context| context as u32;
    context.extend_named(&names.contexts, rows().map(|row| row.context.map(number)));
    entry_seen.extend_u64(1, rows().map(|row| row.entry_seen.into()));
    exit_seen.extend_u64(1, rows().map(|row| row.exit_seen.into()));
}

fn push_args(column: &mut Column, row: &Pending, names: &CallNames) {
    let Some(extra) = &row.extra else {
        return column.push_null();
    };
    let ids: Vec<u32> = extra.args.iter().map(|arg| arg.0).collect();
    names.functions.with_all(&ids, |args| {
        let fetched = extra.fetched.iter().map(|arg| &arg[..]);
        column.push_text_list(args.iter().copied().chain(fetched));
    });
}

fn self_time_of(row: &Pending) -> Option<i64> {
    match (row.duration, row.in_others) {
        // Times of text formats are rounded: the calls inside may add up to more.
        (Some(duration), Some(inside)) => Some(duration.saturating_sub(inside).max(0)),
        _ => None,
    }
}

/// The calls that are not with the writer yet.
#[derive(Default)]
pub(super) struct FinishedCalls {
    rows: Vec<(CallId, Pending)>,
    argument_bytes: usize,
    spare: Arc<Spare<Vec<(CallId, Pending)>>>,
}

impl FinishedCalls {
    /// Adds a call.
    #[inline]
    pub(super) fn push(
        &mut self,
        (id, row): (CallId, Pending),
        names: &CallNames,
        (writer, table): (&mut Writer, TableId),
    ) -> Result<(), Error> {
        self.argument_bytes += row.fetched_bytes();
        self.rows.push((id, row));
        if self.rows.len() >= ROWS || self.argument_bytes >= ARGUMENT_BYTES {
            return self.hand_over(names, (writer, table));
        }
        Ok(())
    }

    /// Passes the calls on.
    pub(super) fn hand_over(
        &mut self,
        names: &CallNames,
        (writer, table): (&mut Writer, TableId),
    ) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let next = self.spare.take().unwrap_or_default();
        let rows = std::mem::replace(&mut self.rows, next);
        let bytes = size_of_val(&rows[..]) + std::mem::take(&mut self.argument_bytes);
        let batch = Batch {
            rows,
            names: names.clone(),
            home: Arc::clone(&self.spare),
        };
        writer.fill(table, Box::new(batch), bytes)
    }
}

impl CallNames {
    /// Names of contexts, by their numbers.
    pub(super) fn contexts() -> Names {
        let names = Names::default();
        for context in [Context::Task, Context::Softirq, Context::Irq, Context::Nmi] {
            debug_assert_eq!(context as usize, names.len());
            names.push(context.as_str().as_bytes());
        }
        names
    }
}
