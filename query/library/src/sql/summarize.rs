//! `SUMMARIZE table` and `SUMMARIZE query`, as in DuckDB: a row for each column, from one pass over the rows.

use arrow::datatypes::{DataType, Schema};

/// Returns the rows that `SUMMARIZE` is about, as what may follow FROM; `None` for another statement.
pub(crate) fn rows(sql: &str) -> Option<String> {
    let text = sql.trim().trim_end_matches(';').trim_end();
    let (first, rest) = text.split_once(char::is_whitespace)?;
    if !first.eq_ignore_ascii_case("summarize") {
        return None;
    }
    let rest = rest.trim();
    let word = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    Some(match word.to_lowercase().as_str() {
        // A trailing comment must not swallow the bracket.
        "select" | "with" | "from" | "values" | "pivot" | "unpivot" => {
            format!("({rest}\n) AS query")
        }
        _ => rest.to_owned(),
    })
}

/// Returns the query for the summary of rows with these columns. `quoted` and `literal` write names and strings in SQL.
pub(crate) fn query(
    columns: &Schema,
    rows: &str,
    quoted: fn(&str) -> String,
    literal: fn(&str) -> String,
) -> String {
    let each = |of: &dyn Fn(&str, &DataType) -> String| {
        let fields = columns.fields().iter();
        let values = fields.map(|field| of(&quoted(field.name()), field.data_type()));
        format!("unnest([{}])", values.collect::<Vec<_>>().join(", "))
    };
    let text = "CAST(NULL AS TEXT)";
    let number = "CAST(NULL AS DOUBLE)";
    let names = columns.fields().iter().map(|field| literal(field.name()));
    let names: Vec<String> = names.collect();
    let extreme = |function: &str| {
        each(&|name, kind| match is_nested(kind) {
            true => text.to_owned(),
            false => format!("CAST({function}({name}) AS TEXT)"),
        })
    };
    let numeric = |sql: &dyn Fn(&str) -> String| {
        each(&|name, kind| match kind.is_numeric() {
            true => format!("CAST({} AS DOUBLE)", sql(name)),
            false => number.to_owned(),
        })
    };
    let distinct = each(&|name, kind| match is_nested(kind) {
        true => "CAST(NULL AS BIGINT)".to_owned(),
        false => format!("CAST(approx_distinct({name}) AS BIGINT)"),
    });
    let columns = [
        ("column_name", format!("unnest([{}])", names.join(", "))),
        (
            "column_type",
            each(&|name, _| format!("min(arrow_typeof({name}))")),
        ),
        ("min", extreme("min")),
        ("max", extreme("max")),
        ("approx_unique", distinct),
        ("avg", numeric(&|name| format!("avg({name})"))),
        ("p50", numeric(&|name| format!("quantile({name}, 0.5)"))),
        ("p99", numeric(&|name| format!("quantile({name}, 0.99)"))),
        ("count", each(&|_, _| "count(*)".to_owned())),
        (
            "nulls",
            each(&|name, _| format!("count(*) - count({name})")),
        ),
    ];
    let columns: Vec<String> = columns
        .iter()
        .map(|(name, sql)| format!("{sql} AS {name}"))
        .collect();
    format!("SELECT {} FROM {rows}", columns.join(", "))
}

fn is_nested(kind: &DataType) -> bool {
    kind.is_nested()
        || matches!(
            kind,
            DataType::Binary | DataType::BinaryView | DataType::Boolean
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_tables_and_queries() {
        assert_eq!(rows("SUMMARIZE samples;").as_deref(), Some("samples"));
        let query = rows("summarize SELECT 1 -- one").unwrap();
        assert_eq!(query, "(SELECT 1 -- one\n) AS query");
        let pivot = rows("SUMMARIZE PIVOT t ON a").unwrap();
        assert_eq!(pivot, "(PIVOT t ON a\n) AS query");
        assert_eq!(rows("SELECT 1"), None);
    }
}
