//! States of threads as other tools write them: a condition that no row fulfills is noted, since its answer looks like "never".
//!
//! ```text
//! SELECT count(*) FROM thread_states WHERE state = 'R'      note: state = 'R' … use state = 'runnable'
//! ```

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, ObjectName, Value, VisitorMut};
use perfquet_views::VIEWS;

use crate::engine;

/// The letters of the kernel and Perfetto's words, with ours.
const STATES: [(&str, &str); 14] = [
    ("R", "runnable"),
    ("R+", "preempted"),
    ("Running", "running"),
    ("Runnable", "runnable"),
    ("S", "interruptible"),
    ("Sleeping", "interruptible"),
    ("D", "uninterruptible"),
    ("DK", "uninterruptible"),
    ("T", "stopped"),
    ("t", "stopped"),
    ("I", "idle"),
    ("P", "parked"),
    ("X", "dead"),
    ("Z", "dead"),
];

/// Returns a note for each condition of a statement on a view's states that no row fulfills.
pub(super) fn notes(statement: &mut Statement) -> Vec<String> {
    let mut search = Search::default();
    let _ = engine::visit_statement(&mut search, statement);
    match search.has_view {
        true => search.notes,
        false => Vec::new(),
    }
}

#[derive(Default)]
struct Search {
    has_view: bool,
    notes: Vec<String>,
}

impl Search {
    fn check(&mut self, column: &Expr, value: &Expr) {
        let name = match column {
            Expr::Identifier(name) => name,
            Expr::CompoundIdentifier(names) => match names.last() {
                Some(name) => name,
                None => return,
            },
            _ => return,
        };
        let Expr::Value(value) = value else {
            return;
        };
        let Value::SingleQuotedString(value) = &value.value else {
            return;
        };
        if !name.value.eq_ignore_ascii_case("state") {
            return;
        }
        if let Some((_, state)) = STATES.iter().find(|(other, _)| *other == value.as_str()) {
            let note =
                format!("no row has the state '{value}'; states are words: state = '{state}'");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

impl VisitorMut for Search {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        let name = name.to_string().to_lowercase();
        let view = VIEWS.iter().find(|view| view.name == name);
        self.has_view |= view.is_some_and(|view| {
            let mut columns = view.columns().iter();
            columns.any(|column| column.name == "state")
        });
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match &*expr {
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Eq,
                right,
            } => {
                self.check(left, right);
                self.check(right, left);
            }
            Expr::InList { expr, list, .. } => {
                list.iter().for_each(|value| self.check(expr, value));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    fn check(sql: &str, expected: &[&str]) {
        let mut statement = engine::statement(&SessionContext::new().state(), sql).unwrap();
        let found = notes(&mut statement);
        let states: Vec<&str> = found
            .iter()
            .filter_map(|note| note.rsplit(" = ").next())
            .collect();
        assert_eq!(states, expected, "{sql}");
    }

    #[test]
    fn letters_of_states_are_noted() {
        check(
            "SELECT 1 FROM thread_states t WHERE t.state IN ('S', 'D') OR 'R' = state",
            &["'interruptible'", "'uninterruptible'", "'runnable'"],
        );
        check("SELECT 1 FROM thread_states WHERE state = 'running'", &[]);
        check("SELECT 1 FROM others WHERE state = 'R'", &[]);
    }
}
