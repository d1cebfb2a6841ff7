//! Translates messages of the query engine into terms of SQL, without its types and internal structures.
//!
//! ```text
//! Physical plan does not support logical expression WindowFunction(…      a window function cannot be used here
//! ```

/// A mark in the engine's message, its translation and a hint. In the translation, `{}` is the text after the mark up
/// to its next quote, space or bracket.
const SENTENCES: &[(&str, &str, &str)] = &[
    ("JOIN operator", "this kind of JOIN is not supported", ""),
    (
        ": MATCH_CONDITION",
        "ASOF JOIN needs a condition",
        "a ASOF JOIN b ON a.tid = b.tid AND a.time >= b.time",
    ),
    (
        "logical expression WindowFunction",
        "a window function cannot be used here",
        "compute it in a subquery: SELECT w, count(*) FROM (SELECT f(x) OVER () AS w FROM t) GROUP BY w",
    ),
    (
        "Window functions are not allowed",
        "a window function cannot be used here",
        "compute it in a subquery: SELECT w FROM (SELECT f(x) OVER () AS w FROM t) WHERE w > 1",
    ),
    (
        "logical expression OuterReferenceColumn",
        "a table after a comma, or LATERAL, can refer to the tables before it only with = in WHERE",
        "use unnest(x) in SELECT, ASOF JOIN for the preceding row, or row_number() OVER (PARTITION BY … ORDER BY …) for the first",
    ),
    (
        "FETCH clause is not supported",
        "FETCH FIRST is not supported",
        "use LIMIT 3",
    ),
    (
        "unsupported LIMIT expression",
        "LIMIT needs a number",
        "use row_number() OVER (ORDER BY …) in a subquery, and a condition on it",
    ),
    (
        "logical expression ScalarSubquery",
        "a subquery can refer to the outer query only with =",
        "write it as a JOIN with GROUP BY",
    ),
    (
        "logical expression Exists",
        "EXISTS can refer to the outer query only with = outside of WHERE",
        "write it as a JOIN, or as (SELECT count(*) FROM t WHERE t.x = y) > 0",
    ),
    (
        "logical expression InSubquery",
        "a subquery of IN can refer to the outer query only with = outside of WHERE",
        "write it as a JOIN, or as (SELECT count(*) FROM t WHERE t.x = y) > 0",
    ),
    (
        "ast node Pivot",
        "PIVOT: expected FOR and IN",
        "t PIVOT (sum(x) FOR key IN ('a', 'b') GROUP BY y)",
    ),
    (
        "ast node MatchRecognize",
        "MATCH_RECOGNIZE is not supported",
        "use lag(x) OVER (ORDER BY time) for the preceding row",
    ),
    (
        "aggregate functions are not allowed in the WHERE clause",
        "an aggregate function cannot be used in WHERE",
        "use HAVING",
    ),
    (
        "HAVING clause references",
        "HAVING refers to a column that is neither in GROUP BY nor in an aggregate function",
        "use WHERE for conditions on rows",
    ),
    (
        "column \"",
        "column {} must be in GROUP BY or in an aggregate function",
        "add it to GROUP BY, or use min(), max() or any other aggregate function",
    ),
    (
        "Cannot create filter with non-boolean predicate",
        "expected a boolean condition",
        "write a comparison, such as x > 0, x = 'string' or x IS NOT NULL",
    ),
    (
        "recursion limit exceeded",
        "brackets or subqueries are nested too deeply",
        "use at most 200 levels",
    ),
    ("DML not supported", READ_ONLY, READ_ONLY_HINT),
    ("not supported for Base table", READ_ONLY, READ_ONLY_HINT),
    (
        "have the same name. Consider aliasing",
        "two result columns have the same name",
        "rename one: x AS y",
    ),
    (
        "duplicate qualified field name",
        "the same table appears twice",
        "give each an alias: FROM t a JOIN t b",
    ),
    (
        "duplicate unqualified field name",
        "two columns have the same name",
        "rename one: x AS y",
    ),
    (
        "join condition should not be empty",
        "the JOIN has no condition",
        "JOIN … ON a.x = b.x, or CROSS JOIN",
    ),
    (
        "was not provided a value for execution",
        "the placeholder has no value",
        "write the value",
    ),
    (
        "unsupported type '",
        "unknown type {}",
        "use one of: 'Int32', 'Int64', 'UInt64', 'Float64', 'Utf8'",
    ),
    (
        "unsupported SQL type ",
        "unknown type {}",
        "use one of: INT, BIGINT, DOUBLE, DECIMAL(38, 0), TEXT, BOOLEAN",
    ),
    (
        "unsupported SQL statement: ",
        "{} is not supported",
        "start the query with SELECT or WITH",
    ),
    (
        "could not find config namespace",
        "unknown setting",
        "list the settings with: SHOW ALL",
    ),
    ("user-defined coercion failed", "", ""),
    (
        "scalar subquery returned more than one row",
        "a scalar subquery returned more than one row",
        "add LIMIT 1 or an aggregate function",
    ),
    (
        "inconsistent data length across values list",
        "the rows of VALUES have different numbers of columns",
        "",
    ),
    (
        "order by column out of bounds",
        "ORDER BY: no result column with this number",
        "count result columns from 1",
    ),
    (
        "dot access not supported",
        "a field cannot be read with a dot",
        "use x['field']",
    ),
    (
        "converted value exceeds the representable",
        "the number is out of range for this type",
        "a time of the trace as a date: wall_time(time)",
    ),
    (
        "cannot access field at argument",
        "a list has no named fields",
        "x[1] is the first value of a list; fields of events are columns: perfquet-query tables TRACE EVENT",
    ),
    (
        "TableSample",
        "TABLESAMPLE is not supported",
        "use WHERE random() < 0.1",
    ),
];

/// Traces are read-only.
const READ_ONLY: &str = "tables are read-only";
const READ_ONLY_HINT: &str = "to write a file, use --format csv or --format parquet, and > PATH";

/// Returns the translation of a message with its hint; `None` if there is none.
pub(crate) fn sentence(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let (mark, says, hint) = SENTENCES
        .iter()
        .find(|(mark, _, _)| lower.contains(&mark.to_lowercase()))?;
    if says.is_empty() {
        return None;
    }
    let place = lower.find(&mark.to_lowercase())? + mark.len();
    let follows = text.get(place..).unwrap_or_default();
    let word = follows
        .split(['"', '\'', ' ', '(', '{', '\n'])
        .next()
        .unwrap_or_default();
    let says = says.replace("{}", word);
    Some(match hint.is_empty() {
        true => says,
        false => format!("{says}\nhint: {hint}"),
    })
}

/// Removes the parts of a message that concern only the engine's developers.
pub(crate) fn plain(text: &str) -> String {
    // The failure follows the context in which it occurred.
    let kinds = [
        "Error during planning: ",
        "Execution error: ",
        "Internal error: ",
    ];
    let mut text = text;
    for kind in kinds {
        if let Some((_, after)) = text.rsplit_once(kind) {
            text = after;
        }
    }
    let ends = [
        "\nThis issue was likely caused by a bug in DataFusion",
        ". This issue was likely caused by a bug in DataFusion",
        ".\nThis issue was likely",
        " No function matches the given name and argument types",
        "\n\nbacktrace:",
    ];
    for end in ends {
        text = text.split(end).next().unwrap_or(text);
    }
    // Signs of the engine's internal structures.
    let structure = ["(Ident {", "([Ident", " Ident {", " { ", "([Identifier"];
    let start = structure.iter().filter_map(|mark| text.find(mark)).min();
    let text = &text[..start.unwrap_or(text.len())];
    without_types(text.trim_end_matches([' ', '.', ':', '\n']))
}

/// Types of the engine's columns, and their SQL names.
const TYPES: &[(&str, &str)] = &[
    ("Utf8View", "text"),
    ("LargeUtf8", "text"),
    ("Utf8", "text"),
    ("BinaryView", "bytes"),
    ("Boolean", "true or false"),
    ("Float16", "a number"),
    ("Float32", "a number"),
    ("Float64", "a number"),
    ("Int8", "an integer"),
    ("Int16", "an integer"),
    ("Int32", "an integer"),
    ("Int64", "an integer"),
    ("UInt8", "an integer"),
    ("UInt16", "an integer"),
    ("UInt32", "an integer"),
    ("UInt64", "an integer"),
];

fn without_types(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let in_word = plain.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let found = TYPES.iter().filter(|_| !in_word).find_map(|(kind, name)| {
            let after = rest.strip_prefix(kind)?;
            let ends = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            ends.then_some((*name, after))
        });
        match found {
            // A value with its type: `Int64(1)`, `Utf8("a")`.
            Some((_, after)) if after.starts_with('(') && after.contains(')') => {
                let (value, after) = after[1..].split_once(')').unwrap_or((after, ""));
                plain.push_str(&value.replace('"', "'"));
                rest = after;
            }
            Some((name, after)) => {
                plain.push_str(name);
                rest = after;
            }
            None => {
                plain.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_and_types_of_the_engine_are_not_shown() {
        let asof = "Expected: MATCH_CONDITION, found: ;";
        assert!(
            sentence(asof)
                .unwrap()
                .starts_with("ASOF JOIN needs a condition\nhint: ")
        );
        let window = "Physical plan does not support logical expression WindowFunction(WindowFunction { fun: Sum })";
        assert!(
            sentence(window)
                .unwrap()
                .starts_with("a window function cannot")
        );
        let group =
            "While expanding wildcard, column \"samples.comm\" must appear in the GROUP BY clause";
        assert!(
            sentence(group)
                .unwrap()
                .starts_with("column samples.comm must be in GROUP BY")
        );
        assert_eq!(
            sentence("unsupported SQL type nosuchtype")
                .unwrap()
                .lines()
                .next(),
            Some("unknown type nosuchtype")
        );
        assert_eq!(sentence("divide by zero error"), None);
        assert_eq!(
            plain("Cannot coerce arithmetic expression Utf8View + Int64 to valid types"),
            "Cannot coerce arithmetic expression text + an integer to valid types"
        );
        assert_eq!(
            plain("x > Int64(1) and y = Utf8(\"a\")"),
            "x > 1 and y = 'a'"
        );
        assert_eq!(
            plain(
                "Internal error: it broke.\nThis issue was likely caused by a bug in DataFusion's code."
            ),
            "it broke"
        );
        assert_eq!(
            plain("dot access not supported for: Identifier(Ident { value: \"a\" })"),
            "dot access not supported for: Identifier"
        );
        assert_eq!(plain("myInt64 and Int64s stay"), "myInt64 and Int64s stay");
    }
}
