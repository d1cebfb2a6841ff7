//! `--where`, `--time`, `--pid` and similar options as SQL conditions.
//!
//! ```text
//! --where "duration > 500us and comm = 'dd'"    duration > 500000 and comm = 'dd'
//! --time 1.2s..1.5s                             time >= START + 1200000000 and time < START + 1500000000
//! ```

use anyhow::{Result, bail};
use clap::Args;
use perfquet_cli::nearest;
use perfquet_cli::quantity::{nanoseconds, time_range};

use crate::failure::Misuse;
use crate::functions::in_fitting_unit;
use crate::session::{Session, literal};
use crate::text::strings;

/// Filters for rows.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Keep only rows matching this SQL condition
    ///
    /// Durations may have a unit (ns, us, ms, s, m), as in "duration > 500us and comm = 'dd'".
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<String>,
    /// Keep only this time range, from the start of the trace, such as 1.2s..1.5s
    ///
    /// Either end may be missing: ..500ms, 2m...
    #[arg(long, value_name = "RANGE")]
    time: Option<String>,
    /// Keep only these processes; comma-separated
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<i32>,
    /// Keep only these threads; comma-separated
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<i32>,
    /// Keep only threads with these names; comma-separated
    #[arg(long, value_name = "COMM", value_delimiter = ',')]
    comm: Vec<String>,
    /// Keep only these CPUs; comma-separated
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    cpu: Vec<i32>,
}

impl Filters {
    /// Filters by a condition and a time range, as their options take them.
    pub(crate) fn of(condition: Option<String>, time: Option<String>) -> Filters {
        Filters {
            condition,
            time,
            ..Filters::default()
        }
    }

    /// Returns the time range as an SQL condition; `TRUE` without one.
    pub(crate) fn time_condition(&self, session: &Session) -> Result<String> {
        match &self.time {
            Some(time) => time_condition(session, time),
            None => Ok("TRUE".to_owned()),
        }
    }

    /// Returns the ends of the time range in a trace that starts at `start`, in nanoseconds; `None` without a range.
    pub(crate) fn time_bounds(&self, start: i64) -> Option<(i64, i64)> {
        let (from, to) = time_range(self.time.as_deref()?).ok()?;
        let end = |offset: Option<i64>, missing| {
            offset.map_or(missing, |offset| start.saturating_add(offset))
        };
        Some((end(from, i64::MIN), end(to, i64::MAX)))
    }

    /// Returns all filters as one SQL condition; `TRUE` if there are none.
    pub(crate) fn condition(&self, session: &Session) -> Result<String> {
        session.is_report();
        let mut all = Vec::new();
        if let Some(condition) = &self.condition {
            let condition = with_nanoseconds(condition)?;
            session.piece("--where", &condition)?;
            // A trailing comment must not swallow the bracket.
            all.push(format!("({condition}\n)"));
        }
        if let Some(time) = &self.time {
            all.push(time_condition(session, time)?);
        }
        let mut one_of = |column: &str, values: Vec<String>| {
            if !values.is_empty() {
                all.push(format!("{column} IN ({})", values.join(", ")));
            }
        };
        let texts = |values: &[i32]| values.iter().map(ToString::to_string).collect();
        one_of("pid", texts(&self.pid));
        one_of("tid", texts(&self.tid));
        one_of("cpu", texts(&self.cpu));
        one_of("comm", self.comm.iter().map(|name| literal(name)).collect());
        Ok(if all.is_empty() {
            "TRUE".to_owned()
        } else {
            all.join(" AND ")
        })
    }
}

impl Filters {
    /// Returns the filters as words for a title: `duration > 1ms, 1s..2s, comm dd`; `None` if there are none.
    pub(crate) fn words(&self) -> Option<String> {
        let list = |name: &str, values: Vec<String>| match values.is_empty() {
            true => None,
            false => Some(format!("{name} {}", values.join(", "))),
        };
        let texts = |values: &[i32]| values.iter().map(ToString::to_string).collect();
        let all = [
            self.condition.clone(),
            self.time.clone(),
            list("pid", texts(&self.pid)),
            list("tid", texts(&self.tid)),
            list("comm", self.comm.clone()),
            list("CPU", texts(&self.cpu)),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Returns the filters as arguments of any report.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |option: &str, values: Vec<String>| {
            if !values.is_empty() {
                arguments.push(format!("--{option}={}", values.join(",")));
            }
        };
        let texts = |values: &[i32]| values.iter().map(ToString::to_string).collect();
        add("where", self.condition.iter().cloned().collect());
        add("time", self.time.iter().cloned().collect());
        add("pid", texts(&self.pid));
        add("tid", texts(&self.tid));
        add("comm", self.comm.clone());
        add("cpu", texts(&self.cpu));
        arguments
    }

    /// Returns the error for a name or ID that no row of `table` has, with the nearest existing ones; `None` if all exist.
    pub(crate) fn why_nothing_fits(
        &self,
        session: &Session,
        table: &str,
        condition: &str,
    ) -> Result<Option<String>> {
        let texts = |values: &[i32]| values.iter().map(ToString::to_string).collect();
        let wanted: [(&str, &str, Vec<String>); 4] = [
            ("comm", "thread named", self.comm.clone()),
            ("pid", "process with PID", texts(&self.pid)),
            ("tid", "thread with TID", texts(&self.tid)),
            ("cpu", "rows of CPU", texts(&self.cpu)),
        ];
        for (column, says, wanted) in wanted {
            if wanted.is_empty() {
                continue;
            }
            let sql = format!(
                "SELECT CAST({column} AS TEXT), count(*) FROM {table} WHERE {condition} AND {column} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
            );
            let mut found: Vec<String> = Vec::new();
            for batch in session.collect(&sql)? {
                let names = strings(batch.column(0))?;
                found.extend(names.iter().flatten().map(str::to_owned));
            }
            if found.is_empty() || wanted.iter().any(|name| found.contains(name)) {
                continue;
            }
            let mut near = nearest(&wanted[0], found.iter().map(String::as_str));
            if near.is_empty() {
                near = found.iter().take(5).map(String::as_str).collect();
            }
            let hint: Vec<String> = near
                .iter()
                .map(|name| format!("--{column} {name}"))
                .collect();
            return Ok(Some(format!(
                "no {says} {}\nhint: use {}",
                wanted.join(", "),
                hint.join(" or ")
            )));
        }
        Ok(None)
    }
}

/// Returns the condition for the range in each trace, because each trace has its own start.
fn time_condition(session: &Session, text: &str) -> Result<String> {
    let (from, to) = time_range(text).map_err(|error| Misuse(format!("--time {text}: {error}")))?;
    let lengths = session.traces.iter().filter_map(|trace| trace.time_range());
    let longest = lengths.map(|(start, end)| end.saturating_sub(start)).max();
    if let (Some(from), Some(longest)) = (from, longest)
        && from > longest
    {
        let length = in_fitting_unit(longest as f64);
        bail!(
            "--time {text}: the trace ends after {length}\nhint: use --time 0s..{}",
            length.replace(' ', "")
        );
    }
    let mut each = Vec::new();
    for trace in session.traces.iter() {
        let Some((start, _)) = trace.time_range() else {
            continue;
        };
        let mut bounds = Vec::new();
        if let Some(from) = from {
            bounds.push(format!("time >= {}", start.saturating_add(from)));
        }
        if let Some(to) = to {
            bounds.push(format!("time < {}", start.saturating_add(to)));
        }
        if session.traces.len() > 1 {
            bounds.push(format!("trace = {}", literal(&trace.name)));
        }
        each.push(format!("({})", bounds.join(" AND ")));
    }
    Ok(match each.len() {
        0 => "FALSE".to_owned(),
        _ => format!("({})", each.join(" OR ")),
    })
}

/// Replaces every duration in `condition` by its nanoseconds. Quoted strings, names and comments stay.
fn with_nanoseconds(condition: &str) -> Result<String> {
    let mut result = String::with_capacity(condition.len());
    let mut rest = condition;
    // After a letter, digits belong to a name: `arg1s`.
    let mut in_name = false;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => quoted_length(rest, first),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '0'..='9' if !in_name => {
                let literal = rest
                    .find(|c: char| !c.is_alphanumeric() && c != '.' && c != '_')
                    .unwrap_or(rest.len());
                match nanoseconds(&rest[..literal]) {
                    Some(nanoseconds) => result.push_str(&nanoseconds.to_string()),
                    None if has_unit(&rest[..literal]) => {
                        bail!(Misuse(format!(
                            "--where: {}: expected a duration such as 1.5ms",
                            &rest[..literal]
                        )))
                    }
                    None => result.push_str(&rest[..literal]),
                }
                rest = &rest[literal..];
                continue;
            }
            _ => first.len_utf8(),
        };
        in_name = first.is_alphanumeric() || first == '_' || first == '$';
        result.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    Ok(result)
}

/// Whether an invalid literal was probably meant as a duration: `5sec`, but not `1e9` or `0x1f`.
fn has_unit(literal: &str) -> bool {
    let unit = literal.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    !unit.is_empty() && !literal.starts_with("0x") && literal.parse::<f64>().is_err()
}

/// Returns the length of a quoted string with its quotes; a doubled quote does not end it.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((index, letter)) = letters.next() {
        if letter == quote {
            match letters.peek() {
                Some((_, next)) if *next == quote => {
                    letters.next();
                }
                _ => return index + quote.len_utf8(),
            }
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(condition: &str, expected: &str) {
        assert_eq!(with_nanoseconds(condition).unwrap(), expected);
    }

    #[test]
    fn durations_become_numbers() {
        check(
            "duration > 500us and comm = 'dd'",
            "duration > 500000 and comm = 'dd'",
        );
        check("duration>1.5ms", "duration>1500000");
        check(
            "d between 1s and 2m",
            "d between 1000000000 and 120000000000",
        );
        check("comm = '5s' and \"1s\" = 2", "comm = '5s' and \"1s\" = 2");
        check(
            "comm = 'it''s 5s' and x > 1ns",
            "comm = 'it''s 5s' and x > 1",
        );
        check("arg1s = 3 and x = 1e9 -- 5s", "arg1s = 3 and x = 1e9 -- 5s");
        check("period = 1003009", "period = 1003009");
        check("d = 9007199254740993ns", "d = 9007199254740993");
        check("d > 5\u{3bc}s /* 5sec */ or x", "d > 5000 /* 5sec */ or x");
        check("'open 5s", "'open 5s");
        assert!(with_nanoseconds("x > 5sec").is_err());
    }
}
