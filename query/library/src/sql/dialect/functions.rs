//! Calls of functions that DuckDB, SQLite or bpftrace have, as calls of the engine's functions.
//!
//! ```text
//! if(a, b, c)                        CASE WHEN a THEN b ELSE c END
//! regexp_extract(comm, 'k(.)', 1)    coalesce(regexp_match(comm, '(k(.))')[2], '')
//! date_diff('ms', a, b)              boundaries of milliseconds between two dates
//! printf('%s %d', comm, tid)         concat(comm, ' ', tid)
//! ```

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments,
};

use super::{elsewhere, texts};

/// Functions with the same meaning under another name.
const RENAMED: [(&str, &str); 27] = [
    ("list", "array_agg"),
    ("group_concat", "string_agg"),
    ("first", "first_value"),
    ("last", "last_value"),
    ("regexp_matches", "regexp_like"),
    ("string_split", "string_to_array"),
    ("str_split", "string_to_array"),
    ("split", "string_to_array"),
    ("prefix", "starts_with"),
    ("suffix", "ends_with"),
    ("list_value", "make_array"),
    ("list_pack", "make_array"),
    ("approx_count_distinct", "approx_distinct"),
    ("favg", "avg"),
    ("fsum", "sum"),
    ("hist", "quantize"),
    ("lhist", "lquantize"),
    ("lcase", "lower"),
    ("ucase", "upper"),
    ("array_apply", "array_transform"),
    ("arbitrary", "first_value"),
    ("every", "bool_and"),
    ("kahan_sum", "sum"),
    ("std", "stddev"),
    ("stdev", "stddev"),
    ("sum_no_overflow", "sum"),
    ("variance", "var"),
];

/// Functions that become an expression.
const REPLACED: [&str; 43] = [
    "arg_max",
    "argmax",
    "max_by",
    "arg_min",
    "argmin",
    "min_by",
    "count_if",
    "countif",
    "count_star",
    "time_bucket",
    "if",
    "iif",
    "regexp_extract",
    "regexp_full_match",
    "list_unique",
    "list_aggregate",
    "list_aggr",
    "array_aggregate",
    "strftime",
    "epoch_ns",
    "epoch_us",
    "epoch_ms",
    "epoch",
    "date_diff",
    "datediff",
    "date_sub",
    "datesub",
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "printf",
    "format",
    "hex",
    "struct_pack",
    "trace_start",
    "quantile_cont",
    "geomean",
    "geometric_mean",
    "sum_if",
    "sumif",
];

/// Returns the engine's name of a function that has another one elsewhere.
pub(super) fn renamed(name: &str) -> Option<&'static str> {
    let found = RENAMED.iter().find(|(other, _)| *other == name);
    found.map(|(_, known)| *known)
}

/// Whether a function that becomes an expression is an aggregate.
pub(super) fn is_replaced_aggregate(name: &str) -> bool {
    matches!(
        name,
        "arg_max"
            | "argmax"
            | "max_by"
            | "argmin"
            | "geomean"
            | "geometric_mean"
            | "sum_if"
            | "sumif"
            | "arg_min"
            | "min_by"
            | "count_if"
            | "countif"
            | "count_star"
            | "quantile_cont"
    )
}

/// Whether a call is translated.
pub(super) fn is_translated(call: &Function) -> bool {
    let name = call.name.to_string().to_lowercase();
    REPLACED.contains(&name.as_str()) || renamed(&name).is_some() || elsewhere::has(&name)
}

/// Returns the SQL of a call that the engine lacks; `None` for another function.
pub(super) fn replacement(name: &str, call: &Function) -> Result<Option<String>, String> {
    let order = match name {
        "arg_max" | "argmax" | "max_by" => "DESC",
        "arg_min" | "argmin" | "min_by" => "ASC",
        "geomean" | "geometric_mean" | "sum_if" | "sumif" => return sums(name, call).map(Some),
        "count_if" | "countif" => return count_if(name, call).map(Some),
        "quantile" | "quantile_cont" | "approx_quantile" | "percentile_cont" => {
            return Ok(quantiles(name, call));
        }
        "count_star" => return Ok(Some(format!("count(*){}", clauses(call)))),
        _ => return scalar(name, call),
    };
    let args = arguments(call);
    let (value, by, count) = match args.as_slice() {
        [value, by] => (value, by, None),
        [value, by, count] => (value, by, Some(count)),
        _ => {
            return Err(format!(
                "{name}: expected a value, what is compared, and optionally a number of values\nhint: {name}(comm, duration), or {name}(comm, duration, 3)"
            ));
        }
    };
    if call.over.is_some() {
        return Err(format!(
            "{name}: not a window function\nhint: use first_value({value}) OVER (PARTITION BY … ORDER BY {by} {order})"
        ));
    }
    let filter = call
        .filter
        .as_ref()
        .map_or_else(String::new, |filter| format!(" AND ({filter})"));
    let filter = format!("FILTER (WHERE ({value}) IS NOT NULL AND ({by}) IS NOT NULL{filter})");
    Ok(Some(match count {
        None => format!("first_value({value} ORDER BY {by} {order}) {filter}"),
        Some(count) => {
            format!("array_slice(array_agg({value} ORDER BY {by} {order}) {filter}, 1, {count})")
        }
    }))
}

/// The SQL of a function of one row.
fn scalar(name: &str, call: &Function) -> Result<Option<String>, String> {
    let args = arguments(call);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let wrong = |hint: &str| Err(format!("{name}: wrong number of arguments\nhint: {hint}"));
    Ok(Some(match (name, args.as_slice()) {
        ("time_bucket", _) => time_bucket(call)?,
        ("if" | "iif", [condition, value]) => format!("CASE WHEN {condition} THEN {value} END"),
        ("if" | "iif", [condition, value, other]) => {
            format!("CASE WHEN {condition} THEN {value} ELSE {other} END")
        }
        ("if" | "iif", _) => return wrong("if(condition, value, other)"),
        ("regexp_extract", [text, pattern]) => regexp_extract(text, pattern, "0")?,
        ("regexp_extract", [text, pattern, group]) => regexp_extract(text, pattern, group)?,
        ("regexp_extract", _) => return wrong("regexp_extract(comm, '(.*)/', 1)"),
        ("regexp_full_match", [text, pattern]) => {
            format!("regexp_like({text}, concat('^(?:', {pattern}, ')$'))")
        }
        ("list_unique", [list]) => format!("array_length(array_distinct({list}))"),
        ("list_aggregate" | "list_aggr" | "array_aggregate", [list, function]) => {
            list_aggregate(name, list, function)?
        }
        ("strftime", [one, other]) => match one.starts_with('\'') {
            true => format!("to_char({other}, {one})"),
            false => format!("to_char({one}, {other})"),
        },
        ("epoch_ns", [date]) => nanoseconds_of(date),
        ("epoch_us", [date]) => format!("({} / 1000)", nanoseconds_of(date)),
        ("epoch_ms", [date]) => format!("({} / 1000000)", nanoseconds_of(date)),
        ("epoch", [date]) => format!("({} / 1e9)", nanoseconds_of(date)),
        ("date_diff" | "datediff" | "date_sub" | "datesub", [unit, from, to]) => {
            date_difference(name, unit, from, to)?
        }
        ("year" | "month" | "day" | "hour" | "minute" | "second", [date]) => {
            format!("date_part('{name}', {date})")
        }
        ("printf", [format, values @ ..]) => texts::printf(format, values)?,
        ("format", [format, values @ ..]) => texts::format(format, values)?,
        ("hex", [value]) => format!("upper(to_hex({value}))"),
        ("struct_pack", _) => return struct_pack(call).map(Some),
        ("trace_start", []) => "at(0)".to_owned(),
        _ => return elsewhere::expression(name, &args),
    }))
}

/// A group of the first match; an empty string without a match, as in DuckDB.
fn regexp_extract(text: &str, pattern: &str, group: &str) -> Result<String, String> {
    let Ok(group) = group.parse::<u32>() else {
        return Err(format!(
            "regexp_extract: expected the number of a group, found {group}\nhint: regexp_extract(comm, '(.*)/', 1)"
        ));
    };
    // The engine counts the whole match as a group only if there is no other.
    let place = u64::from(group) + 1;
    Ok(format!(
        "CASE WHEN {text} IS NOT NULL THEN coalesce(regexp_match({text}, concat('(', {pattern}, ')'))[{place}], '') END"
    ))
}

fn list_aggregate(name: &str, list: &str, function: &str) -> Result<String, String> {
    Ok(match function.trim_matches('\'').to_lowercase().as_str() {
        known @ ("sum" | "min" | "max" | "avg" | "product") => format!("list_{known}({list})"),
        "count" => format!("array_length({list})"),
        _ => {
            return Err(format!(
                "{name}: {function} is not supported for lists\nhint: aggregate the rows of unnest(list)"
            ));
        }
    })
}

/// Nanoseconds since 1970, whatever the unit of the date.
fn nanoseconds_of(date: &str) -> String {
    format!("CAST(arrow_cast({date}, 'Timestamp(Nanosecond, None)') AS BIGINT)")
}

fn date_difference(name: &str, unit: &str, from: &str, to: &str) -> Result<String, String> {
    let unit = unit.trim_matches('\'').to_lowercase();
    let length: i64 = match unit.trim_end_matches('s') {
        "nanosecond" | "n" => 1,
        "microsecond" | "u" => 1_000,
        "millisecond" | "m" | "msec" => 1_000_000,
        "second" | "" | "sec" => 1_000_000_000,
        "minute" | "min" => 60_000_000_000,
        "hour" | "h" => 3_600_000_000_000,
        "day" | "d" => 86_400_000_000_000,
        _ => {
            return Err(format!(
                "{name}: expected a unit from nanosecond to day, found '{unit}'\nhint: {name}('ms', a, b); the time between two times of a trace is b - a"
            ));
        }
    };
    let (from, to) = (nanoseconds_of(from), nanoseconds_of(to));
    Ok(match name {
        "date_sub" | "datesub" => format!("(({to} - {from}) / {length})"),
        _ => {
            // Division rounds towards 0, also before 1970.
            let number =
                |date: &str| format!("({date} - ({date} % {length} + {length}) % {length})");
            format!("(({} - {}) / {length})", number(&to), number(&from))
        }
    })
}

fn struct_pack(call: &Function) -> Result<String, String> {
    let FunctionArguments::List(list) = &call.args else {
        return Ok("named_struct()".to_owned());
    };
    let fields = list.args.iter().map(|argument| match argument {
        FunctionArg::Named {
            name,
            arg: FunctionArgExpr::Expr(value),
            operator: FunctionArgOperator::Assignment | FunctionArgOperator::RightArrow,
        } => Ok(format!("'{}', {value}", name.value.replace('\'', "''"))),
        other => Err(format!(
            "struct_pack: expected name := value, found {other}\nhint: struct_pack(a := 1, b := 2)"
        )),
    });
    let fields: Result<Vec<String>, String> = fields.collect();
    Ok(format!("named_struct({})", fields?.join(", ")))
}

/// `quantile_cont(x, [0.5, 0.9])`: a list, as in DuckDB.
fn quantiles(name: &str, call: &Function) -> Option<String> {
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(fractions))),
    ] = list.args.as_slice()
    else {
        return None;
    };
    let clauses = clauses(call);
    let each = fractions.elem.iter();
    let each = each.map(|fraction| format!("{name}({value}, {fraction}){clauses}"));
    Some(format!("[{}]", each.collect::<Vec<_>>().join(", ")))
}

fn count_if(name: &str, call: &Function) -> Result<String, String> {
    let args = arguments(call);
    let [condition] = args.as_slice() else {
        return Err(format!(
            "{name}: expected a condition\nhint: {name}(duration > 1ms)"
        ));
    };
    let clauses = clauses(call);
    Ok(format!("count(CASE WHEN {condition} THEN 1 END){clauses}"))
}

/// Aggregates that are other aggregates of an expression.
fn sums(name: &str, call: &Function) -> Result<String, String> {
    let (args, clauses) = (arguments(call), clauses(call));
    match (name, args.as_slice()) {
        ("geomean" | "geometric_mean", [value]) => Ok(format!("exp(avg(ln({value})){clauses})")),
        ("sum_if" | "sumif", [value, condition]) => Ok(format!(
            "sum(CASE WHEN {condition} THEN {value} END){clauses}"
        )),
        _ => Err(format!(
            "{name}: wrong number of arguments\nhint: geomean(x), or sum(x) FILTER (WHERE x > 0)"
        )),
    }
}

/// FILTER and OVER of a call.
fn clauses(call: &Function) -> String {
    use datafusion::sql::sqlparser::ast::WindowType;
    let filter = call
        .filter
        .as_ref()
        .map_or_else(String::new, |filter| format!(" FILTER (WHERE {filter})"));
    let over = match &call.over {
        Some(WindowType::WindowSpec(spec)) => format!(" OVER ({spec})"),
        Some(WindowType::NamedWindow(name)) => format!(" OVER {name}"),
        None => String::new(),
    };
    filter + &over
}

fn time_bucket(call: &Function) -> Result<String, String> {
    const HINT: &str =
        "hint: time_bucket(100ms, time), or date_bin(INTERVAL '1 hour', wall_time(time))";
    let args = arguments(call);
    let [width, time] = args.as_slice() else {
        return Err(format!(
            "time_bucket: expected a duration and a time\n{HINT}"
        ));
    };
    if width.trim_start().to_lowercase().starts_with("interval") {
        return Err(format!(
            "time_bucket: expected a duration, found {width}\n{HINT}"
        ));
    }
    let is_zero = width
        .trim_end_matches('L')
        .parse::<f64>()
        .is_ok_and(|width| width <= 0.0);
    if is_zero {
        return Err(format!(
            "time_bucket: expected a duration above 0, found {width}\n{HINT}"
        ));
    }
    // With fewer bits than a time, but those of the quotient are enough: it is a whole number wherever a bucket begins.
    Ok(format!(
        "(at(0) + CAST(floor(CAST(({time}) - at(0) AS DOUBLE) / ({width})) AS BIGINT) * ({width}))"
    ))
}

/// The arguments as SQL.
fn arguments(call: &Function) -> Vec<String> {
    let FunctionArguments::List(list) = &call.args else {
        return Vec::new();
    };
    let exprs = list.args.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.to_string()),
        _ => None,
    });
    exprs.collect()
}
