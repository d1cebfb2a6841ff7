//! Appends the rows of columnar batches to rows whose columns are built here: a table receives both kinds if only some
//! of its events have rare members.

use super::{Batch, Buffer, Column, Data, Rows, TextData, Values};
use crate::store::intern::{Entries, Interner};

/// The distinct strings of a column in the batches, by their IDs there.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    texts: Entries,
    /// Their IDs in this column; cleared when those restart.
    ids: Vec<Option<u32>>,
}

impl Rows {
    /// Continues after batches of this table that were written directly: later batches may refer to the IDs of their
    /// strings, which are given by column.
    pub(in crate::store) fn follow(&mut self, texts: Vec<Entries>) {
        self.foreign = texts
            .into_iter()
            .map(|texts| Foreign {
                texts,
                ids: Vec::new(),
            })
            .collect();
        for column in &mut self.columns {
            if let Buffer::Text(_, interner) | Buffer::TextList(_, _, interner) = &mut column.values
            {
                interner.follow();
            }
        }
    }

    /// Appends the rows of a batch, and returns the memory that they use. The batch's vectors can be reused.
    pub(in crate::store) fn absorb(&mut self, batch: &Batch) -> usize {
        self.foreign
            .resize_with(self.columns.len(), Foreign::default);
        let columns = self.columns.iter_mut().zip(&batch.columns);
        for ((column, values), foreign) in columns.zip(&mut self.foreign) {
            column.absorb(values, foreign);
        }
        self.end_rows(batch.count)
    }
}

impl Column {
    fn absorb(&mut self, values: &Values, foreign: &mut Foreign) {
        match (&mut self.values, &values.data) {
            (Buffer::Narrow(own), Data::Narrow(values)) => own.extend_from_slice(values),
            (Buffer::Wide(own), Data::Wide(values)) => own.extend_from_slice(values),
            (Buffer::Float(own), Data::Float(values)) => own.extend_from_slice(values),
            (Buffer::Text(own, interner), Data::Text(values)) => {
                self.grown += foreign.translate(values, interner, own);
            }
            (Buffer::WideList(own, own_items), Data::WideList { lengths, items }) => {
                own.extend_from_slice(lengths);
                own_items.extend_from_slice(items);
                self.grown += size_of_val(&items[..]);
            }
            (Buffer::TextList(own, own_items, interner), Data::TextList { lengths, items }) => {
                own.extend_from_slice(lengths);
                self.grown += size_of_val(&items.keys[..]);
                self.grown += foreign.translate(items, interner, own_items);
            }
            // Both columns have the same declaration.
            _ => return self.push_nulls(values.presence.rows()),
        }
        self.presence.absorb(&values.presence);
    }
}

impl Foreign {
    /// Clears the IDs of this column, which are about to be reassigned.
    pub(super) fn forget_ids(&mut self) {
        self.ids.clear();
    }

    /// Appends this column's IDs for a batch's strings; returns the memory that new strings use.
    fn translate(
        &mut self,
        data: &TextData,
        interner: &mut Interner,
        keys: &mut Vec<u32>,
    ) -> usize {
        let mut grown = 0;
        self.texts.append(&data.texts.fresh);
        self.ids.resize(self.texts.len(), None);
        for &key in &data.keys {
            let id = match self.ids.get(key as usize) {
                Some(&Some(id)) => id,
                _ => {
                    // The batch was checked where it was made: the string is valid.
                    let (id, new) = interner.intern(self.texts.get(key));
                    grown += new;
                    if let Some(place) = self.ids.get_mut(key as usize) {
                        *place = Some(id);
                    }
                    id
                }
            };
            keys.push(id);
        }
        if data.texts.ends {
            *self = Foreign::default();
        }
        grown
    }
}
