//! EVENT_UPDATE: information about an event, or the recording, that became known after its attr was written.
//!
//! ```text
//! u64 type, u64 id, then by type: a text (unit, name), an f64 (scale), CPUs
//! ```
//! perf has types 0 to 3; those of perfquet-record are in [`perfquet_events::wire::update`].

use perfquet_events::bytes::{Cursor, before_nul};
use perfquet_events::event::{CallFunction, Event, Place, Purpose, Selection, Symbol};
use perfquet_events::wire::update::{
    BOOT, FILTER, FUNCTION, MOMENTS, PURPOSE, RECORDED, RUNTIMES, SCOPE, SELECTION, SYMBOL,
    USER_STACKS,
};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::order::Queue;
use crate::perf_data::output::{Fault, Output};

const UNIT: u64 = 0;
const SCALE: u64 = 1;
const NAME: u64 = 2;

/// Handles an EVENT_UPDATE.
pub(super) fn event_update(
    mut body: Cursor<'_>,
    catalog: &mut Catalog,
    queue: &mut Queue<'_>,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let (kind, id) = (body.u64()?, body.u64()?);
    let Some(index) = catalog.index_of_id(Some(id)) else {
        return Ok(());
    };
    if kind == SYMBOL {
        return symbol(body, out);
    }
    let text = String::from_utf8_lossy(before_nul(body.rest()));
    match kind {
        UNIT => {
            let name = format!("perf.unit.{}", catalog.name_of(index));
            out.other_fact(&name, &text)?;
        }
        SCALE => {
            let scale = f64::from_bits(body.u64().unwrap_or(0));
            let name = format!("perf.scale.{}", catalog.name_of(index));
            out.other_fact(&name, &scale.to_string())?;
        }
        SCOPE => out.other_fact("scope", &text)?,
        BOOT => out.other_fact("clock.boot_id", &text)?,
        MOMENTS => out.other_fact("clock.moments", &text)?,
        RECORDED => out.other_fact("recorded.ranges", &text)?,
        RUNTIMES => out.other_fact("runtimes.perf_maps", &text)?,
        USER_STACKS => out.other_fact("user_stacks.unwound", &text)?,
        SELECTION => match Selection::parse(&text) {
            Ok(selection) => {
                // The recorder waits for the number of rows.
                if selection.max_events.is_some() {
                    queue.hurry();
                }
                out.event(Event::Selection(&selection))?;
            }
            Err(word) => out.problem(Place::Whole, "selection", || {
                format!("unknown selection of calls: {word:?}")
            })?,
        },
        FUNCTION => match CallFunction::parse(&text) {
            Some(function) => {
                catalog.functions.insert(function.number, function);
            }
            None => out.problem(Place::Whole, "function", || {
                format!("unknown function of calls: {text:?}")
            })?,
        },
        _ => update_event(kind, &text, index, catalog, out)?,
    }
    Ok(())
}

/// Emits a symbol with its line.
fn symbol(mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
    let (start, length, line) = (body.u64()?, body.u32()?, body.u32()?);
    let (name, file) = (body.text_to_nul(), body.text_to_nul());
    let module = body.text_to_nul();
    out.event(Event::Symbol(Symbol {
        module: Some(module),
        start,
        length: length.into(),
        name,
        line: Some((file, line)),
    }))?;
    Ok(())
}

/// Handles types that change one event.
fn update_event(
    kind: u64,
    text: &str,
    index: usize,
    catalog: &mut Catalog,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let Some(event) = catalog.get_mut(index) else {
        return Ok(());
    };
    match kind {
        NAME if !text.is_empty() => event.name = Some(text.to_owned()),
        FILTER => event.filter = Some(text.to_owned()),
        PURPOSE => match Purpose::parse(text) {
            Some(purpose) => event.purpose = purpose,
            None => out.problem(Place::Whole, "purpose", || {
                format!("unknown purpose of an event: {text:?}")
            })?,
        },
        _ => {}
    }
    Ok(())
}
