//! How files of a lake store the columns of a form: under which names, and which of them wider than in the trace.

use std::collections::BTreeMap;

use perfquet_trace::store::{ColumnSchema, ColumnType, Part, is_published_as_bits};

/// The columns of a form in a lake, by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Published(BTreeMap<String, PublishedColumn>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PublishedColumn {
    /// Name in the file.
    pub(crate) stored: String,
    /// Whether its values are the bits of signed integers.
    pub(crate) is_bits: bool,
    /// Whether its values are 0 and 1.
    pub(crate) is_bool: bool,
}

impl Published {
    /// The columns of a part.
    pub(crate) fn of(part: &Part, columns: &[ColumnSchema]) -> Published {
        let columns = columns.iter().map(|column| {
            let stored = part.stored(&column.name).unwrap_or(&column.name);
            let published = PublishedColumn {
                stored: stored.to_owned(),
                is_bits: is_published_as_bits(column.kind),
                is_bool: column.kind == ColumnType::Bool,
            };
            (column.name.clone(), published)
        });
        Published(columns.collect())
    }

    /// A column; `None` if the form lacks it.
    pub(crate) fn column(&self, name: &str) -> Option<&PublishedColumn> {
        self.0.get(name)
    }
}
