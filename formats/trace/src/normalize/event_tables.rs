//! The tables of events: one per event name, with a form for each set of fields.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{EventType, Extras, Field};

use super::columns::{event_schema, sql_name, table_name};
use crate::store::{ColumnSchema, TableId, Writer, unite};

/// Maximum number of forms of one event, each with its own fields.
const MOST_FORMS: usize = 256;

/// The destination of an event's rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) id: TableId,
    /// The name in SQL.
    pub(crate) name: String,
    /// The extras with columns in the table.
    pub(crate) extras: Extras,
}

/// The tables of all events.
#[derive(Default)]
pub(super) struct EventTables {
    tables: Vec<EventTable>,
    /// System and name of an event → its index in `tables`.
    places: HashMap<(String, String), usize>,
    /// Names of tables, each with the number for the next event whose name has the same path.
    names: HashMap<String, u32>,
}

/// The table of an event. Its fields may change during the recording, and differ between the kernels of two inputs.
struct EventTable {
    /// The path in the store.
    path: String,
    /// The name in SQL.
    name: String,
    forms: Vec<Form>,
    /// The columns of all forms.
    columns: Vec<ColumnSchema>,
}

/// Rows of an event with the same columns.
struct Form {
    id: TableId,
    fields: Vec<Field>,
    extras: Extras,
}

impl EventTables {
    /// Returns the form with the fields of an event, in its table, created if necessary, and descriptions of columns
    /// whose kind changes thereby. `None` if the event has too many forms.
    pub(super) fn target(
        &mut self,
        event: &EventType,
        extras: Extras,
        writer: &mut Writer,
    ) -> Result<(Option<Target>, Vec<String>), Error> {
        let place = self.place(event);
        let Some(table) = self.tables.get_mut(place) else {
            return Ok((None, Vec::new()));
        };
        if let Some(form) = table.forms.iter().find(|form| form.holds(event, extras)) {
            return Ok((Some(table.target(form)), Vec::new()));
        }
        if table.forms.len() >= MOST_FORMS {
            return Ok((None, Vec::new()));
        }
        let (target, changes) = table.add_form(event, extras, writer)?;
        Ok((Some(target), changes))
    }

    /// The index of an event's table, which is named after the event; with a number if another event's name has the
    /// same path.
    fn place(&mut self, event: &EventType) -> usize {
        let key = (event.system.clone(), event.name.clone());
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        let plain = table_name(event);
        let mut path = plain.clone();
        while self.names.contains_key(&path) {
            let number = self.names.entry(plain.clone()).or_insert(2);
            path = format!("{plain}_{number}");
            *number += 1;
        }
        self.names.insert(path.clone(), 2);
        let place = self.tables.len();
        self.places.insert(key, place);
        self.tables.push(EventTable {
            name: sql_name(&path),
            path,
            forms: Vec::new(),
            columns: Vec::new(),
        });
        place
    }
}

impl EventTable {
    fn add_form(
        &mut self,
        event: &EventType,
        extras: Extras,
        writer: &mut Writer,
    ) -> Result<(Target, Vec<String>), Error> {
        let mut schema = event_schema(&self.path, event, extras);
        for column in &mut schema.columns {
            // SQL does not distinguish `Flags` from `flags`: they are one column.
            let same = |known: &&ColumnSchema| known.name.eq_ignore_ascii_case(&column.name);
            if let Some(known) = self.columns.iter().find(same) {
                column.name.clone_from(&known.name);
            }
        }
        let former = std::mem::take(&mut self.columns);
        let forms = [former.as_slice(), schema.columns.as_slice()];
        let is_first = self.forms.is_empty();
        let united = unite(forms.into_iter().skip(usize::from(is_first)));
        let changes = changes(&former, &schema.columns, &united);
        self.columns = united;
        let id = writer.add_form(schema)?;
        let form = Form {
            id,
            fields: event.fields.clone(),
            extras,
        };
        let target = self.target(&form);
        self.forms.push(form);
        Ok((target, changes))
    }

    fn target(&self, form: &Form) -> Target {
        Target {
            id: form.id,
            name: self.name.clone(),
            extras: form.extras,
        }
    }
}

impl Form {
    fn holds(&self, event: &EventType, extras: Extras) -> bool {
        let missing = Extras {
            period: extras.period && !self.extras.period,
            addr: extras.addr && !self.extras.addr,
            weight: extras.weight && !self.extras.weight,
            data_src: extras.data_src && !self.extras.data_src,
            phys_addr: extras.phys_addr && !self.extras.phys_addr,
            cgroup: extras.cgroup && !self.extras.cgroup,
        };
        missing == Extras::default() && same_columns(&self.fields, &event.fields)
    }
}

/// Describes columns whose value kind in the table of all forms differs from that in one of them.
fn changes(
    former: &[ColumnSchema],
    added: &[ColumnSchema],
    united: &[ColumnSchema],
) -> Vec<String> {
    let kind = |columns: &[ColumnSchema], name: &str| {
        let column = columns.iter().find(|column| column.name == name);
        column.map(|column| column.kind)
    };
    let mut changed = Vec::new();
    for column in united {
        let (before, here) = (kind(former, &column.name), kind(added, &column.name));
        let (Some(before), Some(here)) = (before, here) else {
            continue;
        };
        if before.changes_in(column.kind) || here.changes_in(column.kind) {
            changed.push(format!(
                "field {} is {} here and {} before, its column in the table is {}",
                column.name,
                here.as_str(),
                before.as_str(),
                column.kind.as_str()
            ));
        }
    }
    changed
}

/// Compares names and types of fields. Offsets in the payload may differ (on another host).
fn same_columns(a: &[Field], b: &[Field]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.name == b.name && a.kind == b.kind)
}
