//! The head of a view's file: name, purpose, needs and columns, as comments.
//!
//! ```text
//! -- runqueue_waits: Waits of threads for a CPU.
//! -- needs: sched:sched_switch, sched:sched_waking | sched:sched_wakeup
//! -- record: -a -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup
//! -- duckdb: none, follows every thread through all scheduler events
//! -- columns:
//! --   duration  ns  Time until the thread runs; NULL if the recording does not cover its end.
//! --   why           woken, preempted or new.
//! ```
//! `|` separates alternatives, of which one suffices. `-- arguments:` has the form of columns. `-- duckdb:` is how DuckDB gets the
//! view (duckdb.rs): `same`, `own`, or `none` with the reason.

/// What the head of a view says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Each with its alternatives: events as `system:event`, which may contain `*`, and tables that must have rows.
    pub(crate) needs: Vec<Vec<String>>,
    /// Options of `perfquet-record` that record the needs.
    pub(crate) record: Option<String>,
    /// Empty in a view that a user wrote.
    pub(crate) duckdb: String,
    pub(crate) arguments: Vec<ViewColumn>,
    pub(crate) columns: Vec<ViewColumn>,
}

/// A column or an argument of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewColumn {
    /// Its name.
    pub name: String,
    /// Empty if it has none.
    pub unit: String,
    /// One sentence.
    pub doc: String,
}

/// Units in headers. Values of `ns` are durations, those of `time` times on the trace's clock.
pub const UNITS: [&str; 10] = [
    "ns", "time", "bytes", "s", "kHz", "address", "mask", "share", "percent", "samples",
];

/// Parses the comments at the start of `sql`; missing parts are empty.
pub(crate) fn parse(sql: &str) -> Header {
    let mut header = Header::default();
    let mut list: Option<fn(&mut Header) -> &mut Vec<ViewColumn>> = None;
    let comments = sql.lines().map_while(|line| line.strip_prefix("--"));
    for (number, line) in comments.enumerate() {
        let is_item = line.starts_with("   ");
        if let Some(list) = list.filter(|_| is_item) {
            list(&mut header).extend(column(line));
            continue;
        }
        list = None;
        let Some((key, value)) = line.trim().split_once(':') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "needs" => header.needs = needs(value),
            "record" => header.record = Some(value.to_owned()),
            "duckdb" => header.duckdb = value.to_owned(),
            "arguments" => list = Some(|header| &mut header.arguments),
            "columns" => list = Some(|header| &mut header.columns),
            name if number == 0 => {
                header.name = name.split('(').next().unwrap_or_default().to_owned();
                header.about = value.to_owned();
            }
            _ => {}
        }
    }
    header
}

fn needs(text: &str) -> Vec<Vec<String>> {
    let words = |text: &str, separator: char| {
        let words = text.split(separator).map(|word| word.trim().to_owned());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>()
    };
    words(text, ',')
        .iter()
        .map(|need| words(need, '|'))
        .collect()
}

/// `   duration  ns  Time until the thread runs.`
fn column(line: &str) -> Option<ViewColumn> {
    let (name, rest) = line.trim().split_once(char::is_whitespace)?;
    let rest = rest.trim();
    let (unit, doc) = match rest.split_once(char::is_whitespace) {
        Some((unit, doc)) if UNITS.contains(&unit) => (unit, doc.trim()),
        _ => ("", rest),
    };
    Some(ViewColumn {
        name: name.to_owned(),
        unit: unit.to_owned(),
        doc: doc.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_files() {
        let header = parse(
            "-- waits(step): Waits of threads.\n-- needs: sched:a, sched:b | sched:c*\n-- record: -a -e sched:a\n\
             -- duckdb: same\n-- columns:\n--   duration  ns  Its length.\n--   why   woken or new.\n-- A remark.\nSELECT 1 -- x: y",
        );
        let column = |name: &str, unit: &str, doc: &str| ViewColumn {
            name: name.to_owned(),
            unit: unit.to_owned(),
            doc: doc.to_owned(),
        };
        let expected = Header {
            name: "waits".to_owned(),
            about: "Waits of threads.".to_owned(),
            needs: vec![
                vec!["sched:a".to_owned()],
                vec!["sched:b".to_owned(), "sched:c*".to_owned()],
            ],
            record: Some("-a -e sched:a".to_owned()),
            duckdb: "same".to_owned(),
            arguments: Vec::new(),
            columns: vec![
                column("duration", "ns", "Its length."),
                column("why", "", "woken or new."),
            ],
        };
        assert_eq!(header, expected);
        assert_eq!(parse("SELECT 1"), Header::default());
    }
}
