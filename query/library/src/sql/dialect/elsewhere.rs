//! Functions that other engines have, as expressions of their arguments.
//!
//! ```text
//! mod(pid, 3)                 (pid % 3)
//! dayname(wall_time(time))    to_char(wall_time(time), '%A')
//! kstack()                    stack_text(kernel_stack)
//! ```

/// Name, number of arguments, and the expression: `{0}` is the first argument.
const TEMPLATES: &[(&str, usize, &str)] = &[
    ("age", 1, "(now() - {0})"),
    ("age", 2, "({0} - {1})"),
    ("base64", 1, "encode({0}, 'base64')"),
    ("bigint", 1, "CAST({0} AS BIGINT)"),
    ("bitand", 2, "({0} & {1})"),
    ("bitor", 2, "({0} | {1})"),
    ("bool", 1, "CAST({0} AS BOOLEAN)"),
    ("ceiling", 1, "ceil({0})"),
    ("charindex", 2, "strpos({1}, {0})"),
    ("date", 1, "CAST({0} AS DATE)"),
    ("date_add", 2, "({0} + {1})"),
    ("dayname", 1, "to_char({0}, '%A')"),
    ("dayofmonth", 1, "date_part('day', {0})"),
    ("dayofweek", 1, "date_part('dow', {0})"),
    ("dayofyear", 1, "date_part('doy', {0})"),
    ("div", 2, "({0} // {1})"),
    ("div0", 2, "coalesce({0} / nullif({1}, 0), 0)"),
    ("double", 1, "CAST({0} AS DOUBLE)"),
    ("elapsed", 0, "since_start(time)"),
    ("float", 1, "CAST({0} AS DOUBLE)"),
    ("fmod", 2, "(CAST({0} AS DOUBLE) % {1})"),
    ("from_base64", 1, "decode({0}, 'base64')"),
    ("from_hex", 1, "decode({0}, 'hex')"),
    ("gen_random_uuid", 0, "uuid()"),
    ("int", 1, "CAST({0} AS INT)"),
    ("integer", 1, "CAST({0} AS INT)"),
    (
        "isfinite",
        1,
        "(abs(CAST({0} AS DOUBLE)) < CAST('inf' AS DOUBLE))",
    ),
    (
        "isinf",
        1,
        "(abs(CAST({0} AS DOUBLE)) = CAST('inf' AS DOUBLE))",
    ),
    ("isnull", 1, "({0} IS NULL)"),
    ("kstack", 0, "stack_text(kernel_stack)"),
    ("kstack", 1, "stack_text({0})"),
    (
        "last_day",
        1,
        "CAST(date_trunc('month', {0}) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)",
    ),
    ("list_min", 1, "array_min({0})"),
    ("locate", 2, "strpos({1}, {0})"),
    ("millisecond", 1, "date_part('millisecond', {0})"),
    ("mod", 2, "({0} % {1})"),
    ("monthname", 1, "to_char({0}, '%B')"),
    ("notnull", 1, "({0} IS NOT NULL)"),
    ("nsecs", 0, "time"),
    ("ord", 1, "ascii({0})"),
    ("parse_filename", 1, "regexp_replace({0}, '^.*/', '')"),
    ("quarter", 1, "date_part('quarter', {0})"),
    (
        "quote_literal",
        1,
        "concat('''', replace(CAST({0} AS TEXT), '''', ''''''), '''')",
    ),
    (
        "regexp_substr",
        2,
        "regexp_match({0}, concat('(', {1}, ')'))[1]",
    ),
    ("safe_divide", 2, "({0} / nullif({1}, 0))"),
    ("shiftleft", 2, "({0} << {1})"),
    ("shiftright", 2, "({0} >> {1})"),
    ("sign", 1, "signum({0})"),
    ("strcontains", 2, "contains({0}, {1})"),
    ("strlen", 1, "octet_length({0})"),
    (
        "strncmp",
        3,
        "CASE WHEN left({0}, {2}) = left({1}, {2}) THEN 0 WHEN left({0}, {2}) < left({1}, {2}) THEN -1 WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN 1 END",
    ),
    ("struct_extract", 2, "get_field({0}, {1})"),
    ("text", 1, "CAST({0} AS TEXT)"),
    ("timestamp", 1, "CAST({0} AS TIMESTAMP)"),
    ("to_base64", 1, "encode({0}, 'base64')"),
    ("to_string", 1, "CAST({0} AS TEXT)"),
    ("to_varchar", 1, "CAST({0} AS TEXT)"),
    ("unhex", 1, "decode({0}, 'hex')"),
    ("unicode", 1, "ascii({0})"),
    ("ustack", 0, "stack_text(user_stack)"),
    ("ustack", 1, "stack_text({0})"),
    ("week", 1, "date_part('week', {0})"),
    ("weekday", 1, "date_part('dow', {0})"),
    ("weekofyear", 1, "date_part('week', {0})"),
    ("xor", 2, "({0} ^ {1})"),
    ("zeroifnull", 1, "coalesce({0}, 0)"),
];

/// Whether a function has an expression here.
pub(super) fn has(name: &str) -> bool {
    TEMPLATES.iter().any(|(known, _, _)| *known == name)
}

/// Returns the expression of a call; `None` for an unknown function.
pub(super) fn expression(name: &str, args: &[&str]) -> Result<Option<String>, String> {
    let mut counts = Vec::new();
    for (_, count, template) in TEMPLATES.iter().filter(|(known, _, _)| *known == name) {
        if *count == args.len() {
            return Ok(Some(filled(template, args)));
        }
        let args = ["a", "b", "c"];
        counts.push(format!("{name}({})", args[..*count].join(", ")));
    }
    match counts.is_empty() {
        true => Ok(None),
        false => Err(format!(
            "{name}: wrong number of arguments\nhint: use {}",
            counts.join(" or ")
        )),
    }
}

/// The template with the arguments, in brackets. An argument may contain braces.
fn filled(template: &str, args: &[&str]) -> String {
    let mut sql = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        sql.push_str(before);
        let (place, after) = after.split_once('}').unwrap_or((after, ""));
        if let Some(arg) = place.parse().ok().and_then(|place: usize| args.get(place)) {
            sql.push_str(&format!("({arg})"));
        }
        rest = after;
    }
    sql.push_str(rest);
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_their_brackets_and_braces() {
        let of = |name: &str, args: &[&str]| expression(name, args).unwrap().unwrap();
        assert_eq!(of("mod", &["a + 1", "2"]), "((a + 1) % (2))");
        assert_eq!(of("ceiling", &["'{1}'"]), "ceil(('{1}'))");
        assert_eq!(of("kstack", &[]), "stack_text(kernel_stack)");
        assert!(expression("mod", &["a"]).is_err());
        assert_eq!(expression("nothing", &[]), Ok(None));
    }
}
