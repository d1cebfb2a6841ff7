//! Functions of DuckDB, PostgreSQL, SQLite and bpftrace: each is answered, or its error has a hint that works.

use std::path::Path;
use std::process::{Command, Output};

use perfquet_tests::{bin, root};

/// What the columns of the calls are.
const T: &str = "WITH t AS (SELECT next_pid AS x, prev_pid AS y, next_comm AS text, time, wall_time(time) AS date, [next_pid, prev_pid] AS list, \
    kernel_stack, user_stack, cpu FROM sched_switch)";

/// Calls that are answered.
const ANSWERED: &[&str] = &[
    "abs(-1)",
    "ceil(1.5)",
    "ceiling(1.5)",
    "floor(1.5)",
    "round(1.25, 1)",
    "trunc(1.5)",
    "mod(7, 3)",
    "sign(-5)",
    "power(2, 3)",
    "pow(2, 3)",
    "sqrt(4)",
    "cbrt(8)",
    "exp(1)",
    "ln(2)",
    "log(2)",
    "log10(2)",
    "log2(2)",
    "gcd(4, 6)",
    "lcm(4, 6)",
    "factorial(5)",
    "pi()",
    "random()",
    "greatest(1, 2)",
    "least(1, 2)",
    "div(7, 2)",
    "fmod(7, 2)",
    "xor(5, 3)",
    "bit_count(7)",
    "isnan(1.0)",
    "isinf(1.0)",
    "isfinite(1.0)",
    "degrees(1)",
    "radians(1)",
    "atan2(1, 2)",
    "hash('a')",
    "age(date)",
    "now()",
    "current_timestamp",
    "current_date",
    "today()",
    "date_trunc('second', date)",
    "date_part('second', date)",
    "datepart('second', date)",
    "extract(second FROM date)",
    "to_timestamp(1)",
    "make_date(2020, 1, 1)",
    "date_add(date, INTERVAL 1 day)",
    "epoch(date)",
    "strftime(date, '%H')",
    "to_date('2020-01-01')",
    "dayname(date)",
    "monthname(date)",
    "week(date)",
    "weekday(date)",
    "quarter(date)",
    "year(date)",
    "millisecond(date)",
    "last_day(date)",
    "length(text)",
    "strlen(text)",
    "char_length(text)",
    "octet_length(text)",
    "bit_length(text)",
    "upper(text)",
    "lower(text)",
    "initcap(text)",
    "trim(text)",
    "ltrim(text)",
    "rtrim(text)",
    "btrim(text)",
    "lpad(text, 20, ' ')",
    "rpad(text, 20, ' ')",
    "left(text, 2)",
    "right(text, 2)",
    "substr(text, 1, 2)",
    "substring(text, 1, 2)",
    "substring(text FROM 1 FOR 2)",
    "substring_index(text, '/', 1)",
    "position('a' IN text)",
    "strpos(text, 'a')",
    "instr(text, 'a')",
    "charindex('a', text)",
    "locate('a', text)",
    "contains(text, 'a')",
    "starts_with(text, 'a')",
    "ends_with(text, 'a')",
    "replace(text, 'a', 'b')",
    "translate(text, 'a', 'b')",
    "reverse(text)",
    "repeat('a', 3)",
    "concat(text, 'a')",
    "concat_ws('-', text, 'a')",
    "split_part(text, '/', 1)",
    "string_split(text, '/')",
    "regexp_replace(text, 'a', 'b')",
    "regexp_matches(text, 'a')",
    "regexp_extract(text, 'a')",
    "regexp_substr(text, 'a')",
    "regexp_instr(text, 'a')",
    "regexp_count(text, 'a')",
    "ascii('a')",
    "chr(65)",
    "unicode('a')",
    "ord('a')",
    "to_hex(255)",
    "to_base64('abc')",
    "from_base64('YWJj')",
    "encode('abc', 'hex')",
    "decode('616263', 'hex')",
    "unhex('61')",
    "from_hex('61')",
    "hex(255)",
    "base64('abc')",
    "levenshtein('a', 'b')",
    "quote_literal(text)",
    "overlay(text PLACING 'x' FROM 1)",
    "to_char(date, '%H')",
    "parse_filename('/a/b')",
    "coalesce(NULL, 1)",
    "ifnull(NULL, 1)",
    "nvl(NULL, 1)",
    "nullif(1, 1)",
    "if(true, 1, 2)",
    "iif(true, 1, 2)",
    "try_cast('a' AS INT)",
    "version()",
    "uuid()",
    "gen_random_uuid()",
    "generate_series(1, 3)",
    "range(3)",
    "unnest([1, 2])",
    "list_contains([1], 1)",
    "array_contains([1], 1)",
    "list_sort([2, 1])",
    "list_reverse([1, 2])",
    "list_sum([1])",
    "list_avg([1])",
    "list_transform([1], x -> x + 1)",
    "list_filter([1], x -> x > 0)",
    "list_zip([1], [2])",
    "list_slice([1, 2], 1, 1)",
    "list_concat([1], [2])",
    "list_append([1], 2)",
    "list_position([1], 1)",
    "list_extract([1], 1)",
    "list_distinct([1])",
    "list_unique([1])",
    "list_any_value([1])",
    "list_has_any([1], [1])",
    "list_has_all([1], [1])",
    "list_intersect([1], [1])",
    "list_element([1], 1)",
    "list_resize([1], 2)",
    "list_min([1])",
    "list_max([1])",
    "flatten([[1], [2]])",
    "array_length([1])",
    "array_to_string([1], ',')",
    "array_cat([1], [2])",
    "array_position([1], 1)",
    "cardinality([1])",
    "array_remove([1], 1)",
    "string_to_array('a,b', ',')",
    "struct_extract({'a': 1}, 'a')",
    "struct_pack(a := 1)",
    "row(1, 2)",
    "map(['a'], [1])",
    "map_keys(map(['a'], [1]))",
    "map_extract(map(['a'], [1]), 'a')",
    "element_at(map(['a'], [1]), 'a')",
    "count(*)",
    "sum(x)",
    "avg(x)",
    "mean(x)",
    "min(x)",
    "max(x)",
    "median(x)",
    "mode(x)",
    "stddev(x)",
    "stddev_samp(x)",
    "stddev_pop(x)",
    "std(x)",
    "stdev(x)",
    "variance(x)",
    "var_samp(x)",
    "var_pop(x)",
    "var(x)",
    "covar_pop(x, y)",
    "covar_samp(x, y)",
    "corr(x, y)",
    "regr_slope(x, y)",
    "regr_intercept(x, y)",
    "regr_r2(x, y)",
    "geometric_mean(x)",
    "geomean(x)",
    "first(x)",
    "last(x)",
    "any_value(x)",
    "arbitrary(x)",
    "arg_min(text, x)",
    "arg_max(text, x)",
    "min_by(text, x)",
    "max_by(text, x)",
    "argmin(text, x)",
    "argmax(text, x)",
    "array_agg(x)",
    "list(x)",
    "string_agg(text, ',')",
    "bit_and(x)",
    "bit_or(x)",
    "bit_xor(x)",
    "bool_and(x > 1)",
    "bool_or(x > 1)",
    "every(x > 1)",
    "countif(x > 1)",
    "count_if(x > 1)",
    "sum_if(x, x > 1)",
    "sumif(x, x > 1)",
    "fsum(x)",
    "kahan_sum(x)",
    "favg(x)",
    "sum_no_overflow(x)",
    "approx_count_distinct(x)",
    "approx_quantile(x, 0.5)",
    "quantile(x, 0.5)",
    "quantile_cont(x, 0.5)",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
    "histogram(x)",
    "row_number() OVER (ORDER BY time)",
    "rank() OVER (ORDER BY time)",
    "lag(x) OVER (ORDER BY time)",
    "lead(x) OVER (ORDER BY time)",
    "ntile(4) OVER (ORDER BY time)",
    "first_value(x) OVER (ORDER BY time)",
    "nth_value(x, 2) OVER (ORDER BY time)",
    "cume_dist() OVER (ORDER BY time)",
    "percent_rank() OVER (ORDER BY time)",
    "hist(x)",
    "lhist(x, 0, 100, 10)",
    "count()",
    "ksym(1)",
    "kstack()",
    "ustack()",
    "nsecs()",
    "elapsed()",
    "strncmp('a', 'b', 1)",
    "strcontains(text, 'a')",
    "signal_name(9)",
    "syscall_name(1)",
    "len(text)",
    "lower(hex(255))",
    "date_bin(INTERVAL '1 second', date)",
    "isnull(text)",
    "notnull(text)",
    "bitand(1, 2)",
    "shiftleft(1, 2)",
    "regexp_like(text, 'a')",
    "nvl2(text, 1, 2)",
    "zeroifnull(1)",
    "div0(1, 0)",
    "safe_divide(1, 0)",
    "to_string(x)",
    "to_varchar(x)",
    "str_split(text, '/')",
    "int(1.5)",
    "float(1)",
    "bigint(1)",
    "double(1)",
    "text(1)",
    "date('2020-01-01')",
    "timestamp('2020-01-01')",
];

/// Calls that are errors, a part of the hint, and a query as the hint says.
const HINTED: &[(&str, &str, &str)] = &[
    (
        "setseed(0.5)",
        "hash(x) % 100 = 0",
        "SELECT hash(x) % 100 = 0 FROM t",
    ),
    (
        "fdiv(7, 2)",
        "floor(x / 2.0)",
        "SELECT floor(x / 2.0) FROM t",
    ),
    (
        "even(3)",
        "ceil(x / 2.0) * 2",
        "SELECT ceil(x / 2.0) * 2 FROM t",
    ),
    ("nextafter(1.0, 2.0)", "x + 1", "SELECT x + 1 FROM t"),
    (
        "width_bucket(5, 0, 10, 5)",
        "lquantize(x, 0, 10, 1)",
        "SELECT lquantize(x, 0, 10, 1) FROM t",
    ),
    (
        "scale(1.25)",
        "CAST(x AS DECIMAL(38, 3))",
        "SELECT CAST(x AS DECIMAL(38, 3)) FROM t",
    ),
    ("md5('a')", "hash(x)", "SELECT hash(x) FROM t"),
    ("sha256('a')", "hash(x)", "SELECT hash(x) FROM t"),
    (
        "make_timestamp(2020, 1, 1, 1, 1, 1)",
        "wall_time(time)",
        "SELECT wall_time(time) FROM t",
    ),
    (
        "make_interval(1, 2, 3)",
        "INTERVAL '1 hour'",
        "SELECT INTERVAL '1 hour' FROM t",
    ),
    (
        "strptime('2020', '%Y')",
        "to_timestamp(text, '%Y-%m-%d')",
        "SELECT to_timestamp('2026-01-31', '%Y-%m-%d')",
    ),
    (
        "justify_days(INTERVAL 1 day)",
        "wall_time(time)",
        "SELECT wall_time(time) FROM t",
    ),
    (
        "timezone('UTC', date)",
        "wall_time(time)",
        "SELECT wall_time(time) FROM t",
    ),
    (
        "regexp_extract_all(text, 'a')",
        "string_to_array(text, '/')",
        "SELECT string_to_array(text, '/') FROM t",
    ),
    (
        "regexp_split_to_array(text, 'a')",
        "string_to_array(text, '/')",
        "SELECT string_to_array(text, '/') FROM t",
    ),
    (
        "regexp_split_to_table(text, 'a')",
        "regexp_match(text, '(.*)/(.*)')",
        "SELECT regexp_match(text, '(.*)/(.*)') FROM t",
    ),
    ("bin(5)", "to_hex(x)", "SELECT to_hex(x) FROM t"),
    ("to_binary(5)", "to_hex(x)", "SELECT to_hex(x) FROM t"),
    (
        "editdist3('a', 'b')",
        "levenshtein(text, 'other')",
        "SELECT levenshtein(text, 'other') FROM t",
    ),
    (
        "jaccard('a', 'b')",
        "levenshtein(text, 'other')",
        "SELECT levenshtein(text, 'other') FROM t",
    ),
    (
        "hamming('a', 'b')",
        "levenshtein(text, 'other')",
        "SELECT levenshtein(text, 'other') FROM t",
    ),
    (
        "damerau_levenshtein('a', 'b')",
        "levenshtein(text, 'other')",
        "SELECT levenshtein(text, 'other') FROM t",
    ),
    (
        "jaro_winkler_similarity('a', 'b')",
        "levenshtein(text, 'other')",
        "SELECT levenshtein(text, 'other') FROM t",
    ),
    (
        "soundex('a')",
        "levenshtein(text, 'other')",
        "SELECT levenshtein(text, 'other') FROM t",
    ),
    (
        "similarity('a', 'b')",
        "levenshtein(text, 'other')",
        "SELECT levenshtein(text, 'other') FROM t",
    ),
    (
        "format_bytes(1000)",
        "x / 1048576 AS mib",
        "SELECT x / 1048576 AS mib FROM t",
    ),
    (
        "pg_size_pretty(1000)",
        "x / 1048576 AS mib",
        "SELECT x / 1048576 AS mib FROM t",
    ),
    (
        "quote_ident(text)",
        "concat('\"', text, '\"')",
        "SELECT concat('\"', text, '\"') FROM t",
    ),
    (
        "to_number('12', '99')",
        "CAST(text AS DOUBLE)",
        "SELECT CAST('12' AS DOUBLE) FROM t",
    ),
    (
        "parse_path('/a/b')",
        "string_to_array(text, '/')",
        "SELECT string_to_array(text, '/') FROM t",
    ),
    (
        "parse_dirname('/a/b')",
        "regexp_replace(text, '/[^/]*$', '')",
        "SELECT regexp_replace(text, '/[^/]*$', '') FROM t",
    ),
    (
        "basename('/a/b')",
        "parse_filename(text)",
        "SELECT parse_filename(text) FROM t",
    ),
    (
        "dirname('/a/b')",
        "regexp_replace(text, '/[^/]*$', '')",
        "SELECT regexp_replace(text, '/[^/]*$', '') FROM t",
    ),
    (
        "decode(1, 1, 2)",
        "CASE x WHEN 1 THEN 2 END",
        "SELECT CASE x WHEN 1 THEN 2 END FROM t",
    ),
    (
        "TRY(1)",
        "TRY_CAST(text AS INT)",
        "SELECT TRY_CAST(text AS INT) FROM t",
    ),
    (
        "error('x')",
        "CASE WHEN x > 0 THEN x END",
        "SELECT CASE WHEN x > 0 THEN x END FROM t",
    ),
    (
        "typeof(1)",
        "arrow_typeof(x)",
        "SELECT arrow_typeof(x) FROM t",
    ),
    (
        "pg_typeof(1)",
        "arrow_typeof(x)",
        "SELECT arrow_typeof(x) FROM t",
    ),
    (
        "current_database()",
        "SELECT * FROM trace_info",
        "SELECT * FROM trace_info",
    ),
    (
        "current_schema()",
        "SELECT * FROM trace_info",
        "SELECT * FROM trace_info",
    ),
    (
        "current_setting('a')",
        "SELECT * FROM trace_info",
        "SELECT * FROM trace_info",
    ),
    (
        "list_reduce([1, 2], (x, y) -> x + y)",
        "SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)",
        "SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)",
    ),
    (
        "list_where([1], [true])",
        "SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)",
        "SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)",
    ),
    (
        "list_count([1])",
        "array_length(list)",
        "SELECT array_length(list) FROM t",
    ),
    (
        "list_median([1])",
        "SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)",
        "SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)",
    ),
    (
        "list_mode([1])",
        "SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)",
        "SELECT median(v) FROM (SELECT unnest(list) AS v FROM t)",
    ),
    (
        "json_extract('{}', '$.a')",
        "array_agg(x)",
        "SELECT array_agg(x) FROM t",
    ),
    ("to_json(text)", "{'a': x}", "SELECT {'a': x} FROM t"),
    ("json_object('a', 1)", "{'a': x}", "SELECT {'a': x} FROM t"),
    (
        "skewness(x)",
        "quantiles(x, 0.5, 0.9, 0.99)",
        "SELECT quantiles(x, 0.5, 0.9, 0.99) FROM t",
    ),
    ("kurtosis(x)", "histogram(x)", "SELECT histogram(x) FROM t"),
    ("entropy(x)", "quantize(x)", "SELECT quantize(x) FROM t"),
    (
        "mad(x)",
        "median(abs(x - m)) FROM t, (SELECT median(x) AS m FROM t)",
        "SELECT median(abs(x - m)) FROM t, (SELECT median(x) AS m FROM t)",
    ),
    (
        "product(x)",
        "exp(sum(ln(x)))",
        "SELECT exp(sum(ln(x))) FROM t",
    ),
    (
        "group_concat(text)",
        "string_agg(text, ', ')",
        "SELECT string_agg(text, ', ') FROM t",
    ),
    (
        "listagg(text, ',')",
        "string_agg(text, ', ')",
        "SELECT string_agg(text, ', ') FROM t",
    ),
    (
        "approx_top_k(text, 3)",
        "GROUP BY x ORDER BY count(*) DESC LIMIT 3",
        "SELECT x FROM t GROUP BY x ORDER BY count(*) DESC LIMIT 3",
    ),
    (
        "quantile_disc(x, 0.5)",
        "quantile(x, 0.99)",
        "SELECT quantile(x, 0.99) FROM t",
    ),
    (
        "percentile_disc(0.5) WITHIN GROUP (ORDER BY x)",
        "quantile(x, 0.99)",
        "SELECT quantile(x, 0.99) FROM t",
    ),
    (
        "percentile(x, 0.5)",
        "quantile(x, 0.99)",
        "SELECT quantile(x, 0.99) FROM t",
    ),
    ("json_agg(x)", "array_agg(x)", "SELECT array_agg(x) FROM t"),
    ("jsonb_agg(x)", "array_agg(x)", "SELECT array_agg(x) FROM t"),
    (
        "json_object_agg(text, x)",
        "array_agg(x)",
        "SELECT array_agg(x) FROM t",
    ),
    (
        "bitstring_agg(x)",
        "array_agg(DISTINCT x)",
        "SELECT array_agg(DISTINCT x) FROM t",
    ),
    (
        "max(x, 2)",
        "greatest(a, b)",
        "SELECT greatest(x, y) FROM t",
    ),
    (
        "stats(x)",
        "count(*), avg(x), sum(x)",
        "SELECT count(*), avg(x), sum(x) FROM t",
    ),
    ("str(x)", "CAST(x AS TEXT)", "SELECT CAST(x AS TEXT) FROM t"),
    (
        "usym(1)",
        "stack_leaf(user_stack)",
        "SELECT stack_leaf(user_stack) FROM t",
    ),
    ("kaddr('x')", "ksym(x)", "SELECT ksym(x) FROM t"),
    (
        "ntop(1)",
        "CAST(x AS TEXT)",
        "SELECT CAST(x AS TEXT) FROM t",
    ),
    ("print(x)", "SELECT", "SELECT x FROM t"),
    ("cat('x')", "SELECT", "SELECT x FROM t"),
    (
        "time('%H')",
        "strftime(wall_time(time), '%H:%M:%S')",
        "SELECT strftime(wall_time(time), '%H:%M:%S') FROM t",
    ),
    (
        "buf(text, 2)",
        "CAST(x AS TEXT)",
        "SELECT CAST(x AS TEXT) FROM t",
    ),
    (
        "cgroupid('x')",
        "cgroup of threads",
        "SELECT cgroup FROM threads",
    ),
    (
        "macaddr(text)",
        "CAST(x AS TEXT)",
        "SELECT CAST(x AS TEXT) FROM t",
    ),
    ("reg('ip')", "perfquet-record", "SELECT x FROM t"),
    (
        "strerror(2)",
        "errno_name(-x)",
        "SELECT errno_name(-x) FROM t",
    ),
    ("bswap(1)", "perfquet-record", "SELECT x FROM t"),
    ("skboutput('a')", "perfquet-record", "SELECT x FROM t"),
    ("kptr(1)", "perfquet-record", "SELECT x FROM t"),
    ("uptr(1)", "perfquet-record", "SELECT x FROM t"),
    (
        "path(1)",
        "CAST(x AS TEXT)",
        "SELECT CAST(x AS TEXT) FROM t",
    ),
    (
        "tseries(x, 1, 1)",
        "GROUP BY time_bucket(100ms, time)",
        "SELECT count(*) FROM t GROUP BY time_bucket(100ms, time)",
    ),
    ("system('x')", "SELECT", "SELECT x FROM t"),
    ("exit()", "SELECT", "SELECT x FROM t"),
    (
        "join(text)",
        "array_to_string(list, ' ')",
        "SELECT array_to_string(list, ' ') FROM t",
    ),
    (
        "glob(text, 'a*')",
        "text GLOB 'a*'",
        "SELECT text GLOB 'a*' FROM t",
    ),
    (
        "like(text, 'a')",
        "text LIKE '%a%'",
        "SELECT text LIKE '%a%' FROM t",
    ),
    (
        "regexp(text, 'a')",
        "regexp_like(text, 'a')",
        "SELECT regexp_like(text, 'a') FROM t",
    ),
    (
        "ilike(text, 'a')",
        "text LIKE '%a%'",
        "SELECT text LIKE '%a%' FROM t",
    ),
    (
        "matches(text, 'a')",
        "regexp_like(text, 'a')",
        "SELECT regexp_like(text, 'a') FROM t",
    ),
    (
        "concat_all(text)",
        "string_agg(text, ', ')",
        "SELECT string_agg(text, ', ') FROM t",
    ),
];

/// Tables of lists, which are written in SELECT here.
const LISTS: &[&str] = &[
    "SELECT text, v FROM t, LATERAL unnest(list) AS u(v)",
    "SELECT x, v FROM t, unnest([x, y]) AS u(v)",
];
const OF_LISTS: &str = "SELECT comm, unnest([pid, tid]) AS id FROM t";

fn trace(directory: &Path) -> std::path::PathBuf {
    let trace = directory.join("sched.pqt");
    super::import(&root().join("tests/sql/sched.trace"), &trace).unwrap();
    trace
}

fn answer(trace: &Path, sql: &str) -> Output {
    let mut command = Command::new(bin("perfquet-query"));
    command.arg("sql").arg(trace).arg(format!("{T} {sql}"));
    command.output().unwrap()
}

/// The error of a query; `None` if it is answered.
fn error(trace: &Path, sql: &str) -> Option<String> {
    let output = answer(trace, sql);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(text)
}

#[test]
fn functions_of_other_engines_are_answered_or_have_a_hint_that_works() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let mut wrong = Vec::new();
    for call in ANSWERED {
        let sql = format!("SELECT {call} FROM t");
        wrong.extend(error(&trace, &sql).map(|error| format!("{call}: {error}")));
    }
    for (call, hint, sql) in HINTED {
        match error(&trace, &format!("SELECT {call} FROM t")) {
            None => wrong.push(format!("{call}: answered")),
            Some(error) if !error.replace("\n  ", " ").contains(hint) => {
                wrong.push(format!("{call}: expected {hint} in {error}"));
            }
            Some(_) => {}
        }
        wrong.extend(error(&trace, sql).map(|error| format!("{sql}: {error}")));
    }
    for sql in LISTS {
        let error = error(&trace, sql).unwrap_or_default();
        if !error.replace("\n  ", " ").contains(OF_LISTS) {
            wrong.push(format!("{sql}: {error}"));
        }
    }
    let sql = OF_LISTS
        .replace("[pid, tid]", "[x, y]")
        .replace("comm", "text");
    wrong.extend(error(&trace, &sql));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
