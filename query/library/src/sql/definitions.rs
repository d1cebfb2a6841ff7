//! The definitions of `WITH` around a part of a statement, for queries about that part.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{Cte, Ident, Query, With};

/// The definitions of the queries that a visitor is in, from the outer to the inner.
#[derive(Default)]
pub(super) struct Definitions(Vec<Option<With>>);

impl Definitions {
    pub(super) fn enter(&mut self, query: &Query) {
        self.0.push(query.with.clone());
    }

    pub(super) fn leave(&mut self) {
        self.0.pop();
    }

    /// Those that are `kept`, as one clause: outer ones first, without those that an inner one of the same name hides.
    pub(super) fn united(&self, mut kept: impl FnMut(&mut Cte) -> bool) -> Option<With> {
        let mut names = HashSet::new();
        let mut levels: Vec<With> = Vec::new();
        for mut with in self.0.iter().rev().flatten().cloned() {
            with.cte_tables.retain_mut(&mut kept);
            let is_new = |table: &Cte| names.insert(known_as(&table.alias.name));
            with.cte_tables.retain(is_new);
            levels.push(with);
        }
        let united = levels.into_iter().rev().reduce(|mut all, more| {
            all.recursive |= more.recursive;
            all.cte_tables.extend(more.cte_tables);
            all
        });
        united.filter(|with| !with.cte_tables.is_empty())
    }
}

/// The name that an identifier means.
pub(super) fn known_as(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}
