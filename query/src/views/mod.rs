//! Views: one SQL file each, over the tables of catalog.rs and the views before it.
//!
//! ```text
//! SELECT name, value{, trace} FROM aggregates     the text in braces is kept if several traces are opened
//! ```

/// A view and its SQL.
pub(crate) struct View {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    sql: &'static str,
}

/// Every view; each may use those before it.
pub(crate) const VIEWS: &[View] = &[
    View {
        name: "events",
        about: "All events and samples: common columns, event name, wall-clock time.",
        sql: include_str!("events.sql"),
    },
    View {
        name: "recorded_events",
        about: "Every recorded event: its table, its rows.",
        sql: include_str!("recorded_events.sql"),
    },
    View {
        name: "latest_aggregates",
        about: "Stored aggregates: each key as last printed.",
        sql: include_str!("latest_aggregates.sql"),
    },
    View {
        name: "distributions",
        about: "Stored distributions: the bars of each key as last printed.",
        sql: include_str!("distributions.sql"),
    },
];

impl View {
    /// The SQL for one trace, or for several, whose rows are distinguished by the column `trace`.
    pub(crate) fn sql(&self, several: bool) -> String {
        let mut sql = String::new();
        for piece in self.sql.split_inclusive('}') {
            match piece.split_once('{') {
                Some((before, kept)) => {
                    sql.push_str(before);
                    sql.push_str(if several {
                        kept.trim_end_matches('}')
                    } else {
                        ""
                    });
                }
                None => sql.push_str(piece),
            }
        }
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::View;

    #[test]
    fn braces_contain_parts_for_several_traces() {
        let view = View {
            name: "",
            about: "",
            sql: "SELECT a{, trace} FROM t GROUP BY a{, trace} LIMIT 1",
        };
        assert_eq!(view.sql(false), "SELECT a FROM t GROUP BY a LIMIT 1");
        assert_eq!(
            view.sql(true),
            "SELECT a, trace FROM t GROUP BY a, trace LIMIT 1"
        );
    }
}
