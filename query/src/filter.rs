//! `--where`, `--time`, `--pid` and similar options as SQL conditions.
//!
//! ```text
//! --where "duration > 500us and comm = 'dd'"    duration > 500000 and comm = 'dd'
//! --time 1.2s..1.5s                             time >= START + 1200000000 and time < START + 1500000000
//! ```

use std::sync::Once;

use anyhow::{Result, bail};
use clap::Args;
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::sql::literals::with_nanoseconds;
use perfquet::sql::names::literal;
use perfquet::sql::scoping::Condition;
use perfquet::stacks::strings;
use perfquet::unit::in_fitting_unit;
use perfquet_cli::nearest;
use perfquet_cli::quantity::time_range;
use perfquet_trace::count::counted;

use crate::text::shell_word;
use crate::totals;

/// Filters for rows.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Keep only rows matching this SQL condition
    ///
    /// Durations may have a unit (ns, us, ms, s, m), as in "duration > 500us and comm = 'dd'".
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<String>,
    #[command(flatten)]
    scope: Scope,
}

/// Filters for rows by time, thread and CPU.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Scope {
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
    ///
    /// A name with a comma needs a condition: --where "comm = 'a,b'".
    #[arg(long, value_name = "COMM", value_delimiter = ',')]
    comm: Vec<String>,
    /// Keep only these CPUs; comma-separated
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    cpu: Vec<i32>,
}

impl Filters {
    /// Returns the filters by time, thread and CPU.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether there are any.
    pub(crate) fn are_given(&self) -> bool {
        self.condition.is_some() || self.scope.is_given()
    }

    /// Whether nothing but time is limited, if anything is.
    pub(crate) fn are_of_time_only(&self) -> bool {
        self.condition.is_none() && !self.scope.has_lists()
    }

    /// Whether a call between two selected ones may not be selected. Calls of a thread end before the call around them, so those of
    /// threads and a time range are all that are inside of the first one.
    pub(crate) fn may_divide_calls(&self) -> bool {
        self.condition.is_some() || !self.scope.comm.is_empty() || !self.scope.cpu.is_empty()
    }

    /// Filters by a condition and a time range, as their options take them.
    pub(crate) fn of(condition: Option<String>, time: Option<String>) -> Filters {
        let scope = Scope {
            time,
            ..Scope::default()
        };
        Filters { condition, scope }
    }

    /// Returns the time range as an SQL condition; `TRUE` without one.
    pub(crate) fn time_condition(&self, session: &Session) -> Result<String> {
        match &self.scope.time {
            Some(time) => time_condition(session, time),
            None => Ok("TRUE".to_owned()),
        }
    }

    /// Returns the ends of the time range in a trace that starts at `start`, in nanoseconds; `None` without a range.
    pub(crate) fn time_bounds(&self, start: i64) -> Option<(i64, i64)> {
        self.scope.time_bounds(start)
    }

    /// Returns all filters as one SQL condition; `TRUE` if there are none.
    pub(crate) fn condition(&self, session: &Session) -> Result<String> {
        let mut all = Vec::new();
        if let Some(condition) = &self.condition {
            let condition = with_nanoseconds(condition);
            let condition = condition.map_err(|error| Misuse(format!("--where: {error}")))?;
            session.piece("--where", &condition)?;
            // A trailing comment must not swallow the bracket.
            all.push(format!("({condition}\n)"));
        }
        let scope = self.scope.conditions(session)?;
        all.extend(scope.into_iter().map(|(_, condition)| condition));
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
        let scope = &self.scope;
        let all = [
            self.condition.clone(),
            scope.time.clone(),
            list("pid", texts(&scope.pid)),
            list("tid", texts(&scope.tid)),
            list("comm", scope.comm.clone()),
            list("CPU", texts(&scope.cpu)),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Returns the filters as arguments of any report.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let condition = self.condition.iter().map(|text| format!("--where={text}"));
        condition.chain(self.scope.arguments()).collect()
    }

    /// Returns the error for a name or ID that no row of `table` has, with the nearest existing ones; `None` if all exist.
    pub(crate) fn why_nothing_fits(
        &self,
        session: &Session,
        table: &str,
        condition: &str,
    ) -> Result<Option<String>> {
        let texts = |values: &[i32]| values.iter().map(ToString::to_string).collect();
        let scope = &self.scope;
        let wanted: [(&str, &str, Vec<String>); 4] = [
            ("comm", "thread named", scope.comm.clone()),
            ("pid", "process with PID", texts(&scope.pid)),
            ("tid", "thread with TID", texts(&scope.tid)),
            ("cpu", "rows of CPU", texts(&scope.cpu)),
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
            let hint: Vec<String> = near.iter().map(|name| option_for(column, name)).collect();
            let of_trace = format!(
                "SELECT 1 FROM threads WHERE CAST({column} AS TEXT) IN ({}) LIMIT 1",
                wanted
                    .iter()
                    .map(|name| literal(name))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            let is_known = column != "cpu"
                && session
                    .collect(&of_trace)?
                    .iter()
                    .any(|batch| batch.num_rows() > 0);
            let missing = match is_known {
                // The trace has it, but nothing of it here.
                true => format!("nothing of the {says}"),
                false => format!("no {says}"),
            };
            return Ok(Some(format!(
                "{missing} {}\nhint: use {}",
                wanted.join(", "),
                hint.join(" or ")
            )));
        }
        Ok(None)
    }
}

impl Scope {
    pub(crate) fn is_given(&self) -> bool {
        self.time.is_some() || self.has_lists()
    }

    /// Whether threads or CPUs are selected.
    fn has_lists(&self) -> bool {
        let lists = [
            self.pid.len(),
            self.tid.len(),
            self.cpu.len(),
            self.comm.len(),
        ];
        lists.iter().sum::<usize>() > 0
    }

    /// Returns the ends of the time range in a trace that starts at `start`, in nanoseconds; `None` without a range.
    pub(crate) fn time_bounds(&self, start: i64) -> Option<(i64, i64)> {
        let (from, to) = time_range(self.time.as_deref()?).ok()?;
        let end = |offset: Option<i64>, missing| {
            offset.map_or(missing, |offset| start.saturating_add(offset))
        };
        Some((end(from, i64::MIN), end(to, i64::MAX)))
    }

    /// Returns the filters as arguments of any command.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let texts = |values: &[i32]| values.iter().map(ToString::to_string).collect();
        let options: [(&str, Vec<String>); 5] = [
            ("time", self.time.iter().cloned().collect()),
            ("pid", texts(&self.pid)),
            ("tid", texts(&self.tid)),
            ("comm", self.comm.clone()),
            ("cpu", texts(&self.cpu)),
        ];
        let given = options.into_iter().filter(|(_, values)| !values.is_empty());
        given
            .map(|(option, values)| format!("--{option}={}", values.join(",")))
            .collect()
    }

    /// Returns each filter as an SQL condition, with the column that it needs.
    pub(crate) fn conditions(&self, session: &Session) -> Result<Vec<Condition>> {
        let mut all = Vec::new();
        if let Some(time) = &self.time {
            all.push(("time", time_condition(session, time)?));
        }
        let mut one_of = |column: &'static str, values: Vec<String>| {
            if !values.is_empty() {
                all.push((column, format!("{column} IN ({})", values.join(", "))));
            }
        };
        let texts = |values: &[i32]| values.iter().map(ToString::to_string).collect();
        one_of("pid", texts(&self.pid));
        one_of("tid", texts(&self.tid));
        one_of("cpu", texts(&self.cpu));
        one_of("comm", self.comm.iter().map(|name| literal(name)).collect());
        Ok(all)
    }
}

/// Returns the option that keeps one value of a column. A comma separates values, so a name with one needs a condition.
fn option_for(column: &str, name: &str) -> String {
    let (option, value) = match name.contains(',') || name.is_empty() {
        true => ("where", format!("{column} = {}", literal(name))),
        false => (column, name.to_owned()),
    };
    format!("--{option} {}", shell_word(&value))
}

/// Returns the condition for the range in each trace, because each trace has its own start.
fn time_condition(session: &Session, text: &str) -> Result<String> {
    let (from, to) = time_range(text).map_err(|error| Misuse(format!("--time {text}: {error}")))?;
    let lengths = session
        .traces()
        .iter()
        .filter_map(|trace| trace.time_range());
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
    let mut timeless = Vec::new();
    for trace in session.traces().iter() {
        let Some((start, _)) = trace.time_range() else {
            timeless.push(trace.name.as_str());
            continue;
        };
        let mut bounds = Vec::new();
        if let Some(from) = from {
            bounds.push(format!("time >= {}", start.saturating_add(from)));
        }
        if let Some(to) = to {
            bounds.push(format!("time < {}", start.saturating_add(to)));
        }
        if session.traces().len() > 1 {
            bounds.push(format!("trace = {}", literal(&trace.name)));
        }
        each.push(format!("({})", bounds.join(" AND ")));
    }
    if each.is_empty() {
        let rows = rows_of_events(session, None)?;
        if rows == 0 && !session.has_rows("calls") {
            // Nothing was recorded.
            return Ok("FALSE".to_owned());
        }
        let events = match rows {
            0 => String::new(),
            rows => format!(" ({} of events)", counted(rows, "row")),
        };
        bail!("--time {text}: no row has a time{events}\nhint: drop --time");
    }
    if !timeless.is_empty() {
        // A report may ask for the condition several times.
        static SAID: Once = Once::new();
        let rows = rows_of_events(session, Some(&timeless))?;
        SAID.call_once(|| {
            say!(
                "--time {text}: {} without a time in {}",
                counted(rows, "row"),
                timeless.join(", ")
            );
        });
    }
    Ok(format!("({})", each.join(" OR ")))
}

/// SQL that a row is of one of these traces. Of a single trace, tables do not have its name.
pub(crate) fn of_traces<'n>(session: &Session, names: impl IntoIterator<Item = &'n str>) -> String {
    if session.traces().len() == 1 {
        return "TRUE".to_owned();
    }
    let names: Vec<String> = names.into_iter().map(literal).collect();
    format!("trace IN ({})", names.join(", "))
}

/// The number of rows of events, in all traces or in some of them.
fn rows_of_events(session: &Session, traces: Option<&[&str]>) -> Result<u128> {
    let condition = match traces {
        Some(names) => of_traces(session, names.iter().copied()),
        None => "TRUE".to_owned(),
    };
    let sql = format!("SELECT coalesce(sum(rows), 0) FROM event_types WHERE {condition}");
    totals::sum(session, &sql)
}
