//! `--kd-compat`: the output of `kd` of the KFI and KFT patches (scripts/kd 1.1), including its errors.
//!
//! ```text
//! Function                            Count Time     Average  Local
//! ----------------------------------- ----- -------- -------- --------
//! sys_read                                5    27488     5497       99
//! ```
//! Times are in microseconds; -1 means no exit. docs/compatibility.md lists the differences from `durations`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;

use perfquet::Session;
use perfquet::failure::Misuse;

use super::kd_log::{Log, NameId};
use super::kd_tree::{self, TreeStyle};
use crate::filter::Filters;
use crate::text::harmless;

/// Options of kd that the report does not have itself.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "kd compatibility")]
pub(super) struct KdOptions {
    /// Print in the exact format of kd, the script of the KFI and KFT patches
    ///
    /// The options below require --kd-compat. -n and -s (F, c, t, a, s or l) have kd's meaning.
    #[arg(long, conflicts_with_all = ["by", "format"])]
    pub(super) kd_compat: bool,
    /// Columns to print, as letters; --help lists them
    ///
    /// F function, c count, t time, a average, r range, s sub-time, l local, m max-sub, n count of max-sub, u all subs.
    /// With -c: e entry, t duration, l local, p pid.
    #[arg(short = 'f', value_name = "COLUMNS", requires = "kd_compat")]
    columns: Option<String>,
    /// Print only functions with at least TIME microseconds
    #[arg(
        short = 't',
        value_name = "TIME",
        requires = "kd_compat",
        allow_negative_numbers = true
    )]
    least_time: Option<i64>,
    /// Print the standard columns: Fctalsmn, or etlp with -c
    #[arg(short = 'l', requires = "kd_compat")]
    long: bool,
    /// Print the call tree instead of functions
    #[arg(short = 'c', requires = "kd_compat")]
    tree: bool,
    /// Interleave all threads in the call tree
    #[arg(short = 'i', requires = "kd_compat")]
    interlaced: bool,
    /// Print the call tree in the order of the log
    #[arg(short = 'r', requires = "kd_compat")]
    as_read: bool,
    /// Call depth for which arguments are aligned
    #[arg(
        short = 'd',
        value_name = "N",
        requires = "kd_compat",
        default_value_t = 20
    )]
    depth: usize,
    /// Name length for which arguments are aligned
    #[arg(
        short = 'm',
        value_name = "N",
        requires = "kd_compat",
        default_value_t = 40
    )]
    length: usize,
}

/// Prints kd's output. `limit` and `sort` are the options, if given.
pub(super) fn run(
    session: &Session,
    filters: &Filters,
    options: &KdOptions,
    limit: Option<usize>,
    sort: Option<&str>,
    out: &mut dyn Write,
) -> Result<()> {
    let sort = sort.unwrap_or("t");
    if !["F", "c", "t", "a", "s", "l"].contains(&sort) {
        bail!(Misuse(format!(
            "-s {sort}: expected F, c, t, a, s or l with --kd-compat"
        )));
    }
    let log = Log::query(session, filters)?;
    if options.as_read && !options.tree {
        return Ok(());
    }
    if options.tree {
        let columns = match &options.columns {
            _ if options.long => "etlp",
            Some(columns) if columns == "Fctalsmn" => "etlp",
            Some(columns) => columns,
            None => "",
        };
        let style = TreeStyle {
            entry: columns.contains('e'),
            duration: columns.contains('t'),
            local: columns.contains('l'),
            pid: columns.contains('p'),
            interlaced: options.interlaced,
            depth: options.depth,
            length: options.length,
        };
        return match options.as_read {
            true => kd_tree::write_as_read(&log, style, out),
            false => kd_tree::write(&log, style, out),
        };
    }
    let columns = match &options.columns {
        Some(columns) => columns,
        None if options.long => "Fctalsmn",
        None => "Fctal",
    };
    let limit = limit.filter(|&limit| limit > 0).unwrap_or(usize::MAX);
    write_summary(
        &log,
        columns,
        sort,
        limit,
        options.least_time.unwrap_or(0),
        out,
    )
}

/// kd's data on a function.
#[derive(Debug, Default)]
struct Function {
    name: NameId,
    count: i64,
    time: i128,
    min: i64,
    max: i64,
    sub_time: i128,
    /// Its callees, in the order of their first calls, with their counts.
    subs: Vec<(NameId, i64)>,
}

impl Function {
    fn average(&self) -> i128 {
        match self.time {
            -1 => -1,
            time => time.div_euclid(self.count.into()),
        }
    }

    fn local(&self) -> i128 {
        match self.time {
            -1 => -1,
            time => time - self.sub_time,
        }
    }
}

/// The functions in the order of their first lines.
fn functions(log: &Log) -> Vec<Function> {
    let mut places: Vec<Option<usize>> = vec![None; log.names.len()];
    let mut subs: HashMap<(NameId, NameId), usize> = HashMap::new();
    let mut functions: Vec<Function> = Vec::new();
    for row in &log.rows {
        let place = *places[row.function as usize].get_or_insert_with(|| {
            functions.push(Function {
                name: row.function,
                min: row.duration,
                max: row.duration,
                ..Function::default()
            });
            functions.len() - 1
        });
        let function = &mut functions[place];
        function.count += 1;
        function.time += i128::from(row.duration);
        function.min = function.min.min(row.duration);
        function.max = function.max.max(row.duration);
        // The caller counts only if it already occurred.
        let caller = row
            .caller
            .and_then(|caller| Some((caller, places[caller as usize]?)));
        let Some((id, caller)) = caller else {
            continue;
        };
        let caller = &mut functions[caller];
        if row.duration != -1 {
            caller.sub_time += i128::from(row.duration);
        }
        let next = caller.subs.len();
        let sub = *subs.entry((id, row.function)).or_insert(next);
        if sub == next {
            caller.subs.push((row.function, 0));
        }
        caller.subs[sub].1 += 1;
    }
    functions
}

/// Titles and widths of kd's columns; `-` marks left-aligned data.
const COLUMNS: &[(char, &str, usize)] = &[
    ('F', "Function", 35),
    ('c', "Count", 5),
    ('t', "Time", 8),
    ('a', "Average", 8),
    ('r', "Range", 12),
    ('s', "Sub-time", 8),
    ('l', "Local", 8),
    ('m', "Max-sub", 35),
    ('n', "Ms count", 8),
    ('u', "Sub list", 20),
];

fn write_summary(
    log: &Log,
    columns: &str,
    sort: &str,
    limit: usize,
    least: i64,
    out: &mut dyn Write,
) -> Result<()> {
    let mut chosen = Vec::new();
    for id in columns.chars() {
        match COLUMNS.iter().find(|column| column.0 == id) {
            Some(column) => chosen.push(column),
            None => writeln!(out, "Invalid column id: {}", harmless(&id.to_string()))?,
        }
    }
    let titles: Vec<String> = chosen
        .iter()
        .map(|(_, title, width)| format!("{title:<width$}"))
        .collect();
    let rules: Vec<String> = chosen
        .iter()
        .map(|(_, _, width)| "-".repeat(*width))
        .collect();
    writeln!(out, "{}\n{}", titles.join(" "), rules.join(" "))?;
    let functions = functions(log);
    let times: HashMap<NameId, i128> = functions
        .iter()
        .map(|function| (function.name, function.time))
        .collect();
    let name = |id: NameId| log.names[id as usize].as_str();
    let mut order: Vec<&Function> = functions.iter().collect();
    // All columns are sorted in descending order, names too. kd left the order of equal rows to chance; here it is by
    // name.
    order.sort_by(|a, b| {
        let by_value = match sort {
            "F" => name(b.name).cmp(name(a.name)),
            "c" => b.count.cmp(&a.count),
            "a" => b.average().cmp(&a.average()),
            "s" => b.sub_time.cmp(&a.sub_time),
            "l" => b.local().cmp(&a.local()),
            _ => b.time.cmp(&a.time),
        };
        by_value.then_with(|| name(a.name).cmp(name(b.name)))
    });
    // kd treats 0 as no limit.
    let long_enough = |function: &&&Function| least == 0 || function.time >= i128::from(least);
    for function in order.iter().filter(long_enough).take(limit) {
        // The first of those with the longest own time over the whole log.
        let mut max_sub: Option<(NameId, i64)> = None;
        for &(sub, count) in &function.subs {
            if max_sub.is_none_or(|(max, _)| times[&sub] > times[&max]) {
                max_sub = Some((sub, count));
            }
        }
        let cells: Vec<String> = chosen
            .iter()
            .map(|(id, _, width)| match id {
                'F' => format!("{:<width$}", harmless(name(function.name))),
                'c' => format!("{:>width$}", function.count),
                't' => format!("{:>width$}", function.time),
                'a' => format!("{:>width$}", function.average()),
                'r' => {
                    let range = format!("({}-{})", function.min, function.max);
                    format!("{range:>width$}")
                }
                's' => format!("{:>width$}", function.sub_time),
                'l' => format!("{:>width$}", function.local()),
                'm' => {
                    let sub = max_sub.map(|(sub, _)| harmless(name(sub)));
                    format!("{:>width$}", sub.unwrap_or_default())
                }
                'n' => format!("{:>width$}", max_sub.map_or(0, |(_, count)| count)),
                _ => sub_list(function, &name),
            })
            .collect();
        writeln!(out, "{}", cells.join(" "))?;
    }
    Ok(())
}

/// A list of strings as printed by Python. kd's order was that of a hash table; here it is that of the first calls.
fn sub_list<'a>(function: &Function, name: &impl Fn(NameId) -> &'a str) -> String {
    let mut text = String::from("[");
    for (index, &(sub, _)) in function.subs.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}'{}'", harmless(name(sub)));
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use super::super::kd_log::LogLine;
    use super::*;

    fn log(rows: &[(&str, Option<&str>, i64)]) -> Log {
        let mut log = Log::default();
        for (index, (function, caller, duration)) in rows.iter().enumerate() {
            let function = log.id(function);
            let caller = caller.map(|caller| log.id(caller));
            log.rows.push(LogLine {
                function,
                caller,
                duration: *duration,
                entry: index as i64,
                pid: "1".into(),
                args: "".into(),
            });
        }
        log
    }

    fn summary(rows: &[(&str, Option<&str>, i64)], columns: &str, sort: &str) -> Vec<String> {
        let mut out = Vec::new();
        write_summary(&log(rows), columns, sort, usize::MAX, 0, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines()
            .skip(2)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    /// Errors of kd that its users may rely on.
    #[test]
    fn unknown_durations_count_as_minus_one() {
        let rows: &[(&str, Option<&str>, i64)] = &[
            ("a", None, 10),
            ("a", None, -1),
            ("b", Some("a"), -1),
            ("c", Some("later"), 4),
            ("later", None, 9),
        ];
        assert_eq!(
            summary(rows, "Fctarsln", "t"),
            [
                "a 2 9 4 (-1-10) 0 9 1",
                "later 1 9 9 (9-9) 0 9 0",
                "c 1 4 4 (4-4) 0 4 0",
                "b 1 -1 -1 (-1--1) 0 -1 0"
            ]
        );
    }

    #[test]
    fn max_sub_is_the_longest_callee_of_the_whole_log() {
        let rows: &[(&str, Option<&str>, i64)] = &[
            ("a", None, 50),
            ("x", Some("a"), 20),
            ("y", Some("a"), 3),
            ("y", None, 90),
        ];
        assert_eq!(summary(rows, "Fmnu", "F")[2], "a y 1 ['x', 'y']");
        assert_eq!(summary(rows, "Fsl", "s")[0], "a 23 27");
    }
}
