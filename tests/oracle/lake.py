"""Runs the statements of `perfquet-convert --to ddl=…` in an engine, and prints rows of every table and answers.

    python3 -c "$(cat lake.py)" ENGINE STATEMENTS PATH lake|trace NAME=TABLE…

"remote" is DuckDB through a file system that is not local, "delta" is Polars on the logs that the statements write.
"""

import json
import os
import sys

ENGINE, STATEMENTS, PATH, KIND = sys.argv[1:5]
TABLES = [table.split("=", 1) for table in sys.argv[5:]]
TEXT = open(STATEMENTS).read()

OF_TRACE = " AND k.trace = s.trace" if KIND == "lake" else ""
OF_FRAME = " AND f.trace = k.trace" if KIND == "lake" else ""
QUESTIONS = {
    "leaf": "SELECT f.module AS module, count(*) AS n FROM samples AS s"
    f" JOIN stacks AS k ON k.stack_id = s.user_stack{OF_TRACE}"
    f" JOIN frames AS f ON f.frame_id = k.frame_id{OF_FRAME} GROUP BY f.module",
    "comm": "SELECT comm, count(*) AS n FROM samples GROUP BY comm",
    "calls": "SELECT sum(duration) AS n FROM calls",
    "slow": "SELECT count(*) AS n FROM calls WHERE duration > 20000",
    "switches": "SELECT prev_comm, count(*) AS n FROM sched_switch GROUP BY prev_comm",
    "kernel": "SELECT count(*) AS n FROM mappings WHERE start_address < 0",
}
if KIND == "lake":
    QUESTIONS["wall"] = "SELECT count(wall_time) AS n FROM samples"
QUESTION_TABLES = {
    "leaf": ("samples", "stacks", "frames"),
    "comm": ("samples",),
    "calls": ("calls",),
    "slow": ("calls",),
    "switches": ("sched_switch",),
    "kernel": ("mappings",),
    "wall": ("samples",),
}
# As unsigned numbers.
ORDER = {
    "duckdb": "unsigned_order(start_address)",
    "remote": "unsigned_order(start_address)",
    "chdb": "unsigned_order(start_address)",
    "spark": "start_address ^ (-9223372036854775807 - 1)",
    "datafusion": "start_address ^ (-9223372036854775807 - 1)",
}
ADDRESS = {"datafusion": "'0x' || to_hex(start_address)"}


def statements():
    lines = [line for line in TEXT.splitlines() if not line.startswith("--")]
    return [statement for statement in "\n".join(lines).split(";\n") if statement.strip("; \n")]


def engine():
    """A function from SQL to rows."""
    if ENGINE in ("duckdb", "remote"):
        import duckdb

        connection = duckdb.connect()
        text = TEXT
        if ENGINE == "remote":
            import fsspec

            memory = fsspec.filesystem("memory")
            for folder, _, files in os.walk(PATH):
                for file in files:
                    path = os.path.join(folder, file)
                    memory.pipe_file("/lake" + path[len(PATH):], open(path, "rb").read())
            connection.register_filesystem(memory)
            # As in SQL and in a pattern.
            quoted = PATH.replace("[", "[[]").replace("'", "''")
            assert quoted in text
            text = text.replace(quoted, "memory://lake")
        connection.execute(text)
        return lambda sql: connection.execute(sql).fetchall()
    if ENGINE == "polars":
        scope = {}
        exec(TEXT, scope)
        if "mappings" in dict(TABLES):
            mappings = scope["context"].execute("SELECT * FROM mappings").collect()
            highest = mappings.sort(scope["unsigned_order"]("start_address"))["start_address"]
            assert highest[-1] < 0 or highest.min() >= 0
        return lambda sql: scope["context"].execute(sql).collect().rows()
    if ENGINE == "delta":
        import polars

        exec(TEXT, {})
        context = polars.SQLContext()
        for name, table in TABLES:
            context.register(name, polars.scan_delta(f"{PATH}/{table}"))
        return lambda sql: context.execute(sql).collect().rows()
    if ENGINE == "datafusion":
        from datafusion import SessionContext

        context = SessionContext()
        for statement in statements():
            context.sql(statement)
        return lambda sql: [tuple(row.values()) for row in context.sql(sql).to_pylist()]
    if ENGINE == "chdb":
        from chdb import session

        connection = session.Session()
        connection.query("CREATE DATABASE lake")
        connection.query("USE lake")
        connection.query(TEXT)

        def rows(sql):
            text = str(connection.query(sql, "JSONCompactEachRow"))
            return [tuple(json.loads(line)) for line in text.splitlines()]

        return rows
    if ENGINE == "spark":
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
        for statement in statements():
            spark.sql(statement)
        return lambda sql: [tuple(row) for row in spark.sql(sql).collect()]
    raise SystemExit(f"unknown engine {ENGINE}")


def text(value):
    return "" if value is None else str(value)


query = engine()
for name, table in TABLES:
    if ENGINE not in ("spark", "chdb"):
        # Every column of every file.
        query(f'SELECT * FROM "{name}"')
    by = "host, " if KIND == "lake" else ""
    grouped = " GROUP BY host ORDER BY host" if KIND == "lake" else ""
    for row in query(f"SELECT {by}count(*) AS n FROM {name}{grouped}"):
        print(table, *map(text, row), sep="\t")
names = {name for name, _ in TABLES}
for title, sql in QUESTIONS.items():
    if not all(word in names for word in QUESTION_TABLES[title]):
        continue
    for row in sorted(tuple(map(text, row)) for row in query(sql)):
        print(title, *row, sep="\t")
if "summary_durations" in names:
    # As a comment of the statements has it.
    lines = [line.lstrip("-#") for line in TEXT.splitlines() if line.startswith(("--", "#"))]
    begin = next(number for number, line in enumerate(lines) if "99th percentile" in line)
    sql = "\n".join(lines[begin + 1 : begin + 5]).rstrip("; ")
    for row in sorted(tuple(map(text, row)) for row in query(sql)):
        print("p99", *row, sep="\t")
    sql = "SELECT count(*) AS n FROM traces WHERE NOT coalesce(summaries, false)"
    print("without", *query(sql)[0], sep="\t")
if ENGINE in ORDER and "mappings" in names:
    shown = ADDRESS.get(ENGINE, "address(start_address)")
    sql = f"SELECT {shown} AS shown FROM mappings ORDER BY {ORDER[ENGINE]} DESC LIMIT 1"
    print("highest", *query(sql)[0], sep="\t")
