//! `span_join(a, b, keys…)`: the intersections in time of the rows of two tables, with the columns of both.
//!
//! ```text
//! a     [0 ── read ── 50)                       time  duration  function  state
//! b           [20 ─ running ─ 40)[40 ─ …   →      20        20  read      running
//!                                                 40        10  read      …
//! ```
//! Rows without a time or a duration, or with a negative one, have no pieces. A row of duration 0 is inside another row from
//! the start of that row until just before its end. The plan is a join with a condition on ranges, which becomes a
//! `RangeJoin`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, JoinType, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::core::expr_fn::{greatest, least};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, when};

/// Qualifiers of the two sides; no name of a user has a space.
const A: &str = "span_join a";
const B: &str = "span_join b";
/// Columns added to both sides.
const END: &str = "span end";
const REACH: &str = "span reach";

/// Plans the pieces. Each side comes with its name, which is empty for a query.
pub(super) fn plan(
    left: (LogicalPlan, &str),
    right: (LogicalPlan, &str),
    keys: &[String],
) -> Result<LogicalPlan> {
    let names = [&left.0, &right.0].map(column_names);
    let shared = |name: &str| {
        names
            .iter()
            .all(|names| names.iter().any(|other| other == name))
    };
    let mut keys = keys.to_vec();
    // Rows of different traces never overlap, because their clocks differ.
    if shared("trace") && !keys.iter().any(|key| key == "trace") {
        keys.push("trace".to_owned());
    }
    for ((_, table), names) in [(&left.0, left.1), (&right.0, right.1)].iter().zip(&names) {
        let table = if table.is_empty() { "the query" } else { table };
        for needed in ["time", "duration"]
            .into_iter()
            .chain(keys.iter().map(String::as_str))
        {
            if !names.iter().any(|name| name == needed) {
                return Err(DataFusionError::Plan(format!(
                    "span_join: {table} has no column {needed}\nhint: its tables need time and duration, as calls has them"
                )));
            }
        }
    }
    let of =
        |side: &str, name: &str| Expr::Column(Column::new(Some(TableReference::bare(side)), name));
    let (a, b) = (spans(left.0, A)?, spans(right.0, B)?);
    let mut conditions = vec![
        of(A, "time").lt(of(B, REACH)),
        of(B, "time").lt(of(A, REACH)),
    ];
    for key in &keys {
        conditions.push(of(A, key).eq(of(B, key)));
    }
    let start = greatest(vec![of(A, "time"), of(B, "time")]);
    let end = least(vec![of(A, END), of(B, END)]);
    let mut columns = vec![start.clone().alias("time"), (end - start).alias("duration")];
    let is_range = |name: &str| name == "time" || name == "duration";
    let mut taken: Vec<String> = vec!["time".to_owned(), "duration".to_owned()];
    for name in names[0].iter().filter(|name| !is_range(name)) {
        columns.push(of(A, name).alias(name));
        taken.push(name.clone());
    }
    let prefix = if right.1.is_empty() { "b" } else { right.1 };
    for name in names[1]
        .iter()
        .filter(|name| !is_range(name) && !keys.contains(name))
    {
        let mut shown = name.clone();
        while taken.contains(&shown) {
            shown = format!("{prefix}_{shown}");
        }
        columns.push(of(B, name).alias(&shown));
        taken.push(shown);
    }
    LogicalPlanBuilder::from(a)
        .join_on(b, JoinType::Inner, conditions)?
        .project(columns)?
        .build()
}

fn column_names(plan: &LogicalPlan) -> Vec<String> {
    let fields = plan.schema().fields().iter();
    fields.map(|field| field.name().clone()).collect()
}

/// Returns the rows of a side that have a duration, with their ends.
fn spans(plan: LogicalPlan, side: &str) -> Result<LogicalPlan> {
    let plan = LogicalPlanBuilder::from(plan).alias(side)?.build()?;
    let column = |name: &str| Expr::Column(Column::new(Some(TableReference::bare(side)), name));
    for name in ["time", "duration"] {
        let kind = plan.schema().field_with_unqualified_name(name)?.data_type();
        if *kind != DataType::Int64 {
            return Err(DataFusionError::Plan(format!(
                "span_join: expected {name} in nanoseconds, an int64, found {kind}"
            )));
        }
    }
    let all = column_names(&plan);
    let mut columns: Vec<Expr> = all.iter().map(|name| column(name)).collect();
    let lasts = column("duration").gt_eq(lit(0_i64));
    let (time, duration) = (column("time"), column("duration"));
    // Saturate instead of overflowing.
    let end = |duration: Expr| -> Result<Expr> {
        let room = lit(i64::MAX) - column("time");
        let mut fitting = when(
            time.clone().gt(lit(0_i64)),
            least(vec![duration.clone(), room]),
        );
        Ok(column("time") + fitting.otherwise(duration)?)
    };
    columns.push(end(duration.clone())?.alias(END));
    columns.push(end(greatest(vec![duration, lit(1_i64)]))?.alias(REACH));
    LogicalPlanBuilder::from(plan)
        .filter(lasts)?
        .project(columns)?
        .alias(side)?
        .build()
}
