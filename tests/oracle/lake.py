"""Opens every table of a lake with one engine, and prints rows by host, a sum and a join.

    python3 -c "$(cat lake.py)" ENGINE LAKE

"remote" is DuckDB through a file system that is not local.
"""

import glob
import sys

ENGINE, LAKE = sys.argv[1], sys.argv[2]

FILES = glob.glob(LAKE + "/**/*.parquet", recursive=True)
TABLES = sorted({file.split("/date=")[0][len(LAKE) + 1:] for file in FILES})

LEAF = (
    "SELECT f.module AS module, count(*) AS n FROM samples AS s"
    " JOIN stacks AS k ON k.trace = s.trace AND k.stack_id = s.user_stack"
    " JOIN frames AS f ON f.trace = k.trace AND f.frame_id = k.frame_id GROUP BY f.module ORDER BY 1"
)
KERNEL = "SELECT count(*) AS n FROM mappings WHERE start_address < 0"
CALLS = "SELECT sum(duration) AS n FROM calls"
WALL = "SELECT count(wall_time) AS n FROM samples"


def name_of(table):
    return table.replace("/", "_").replace("events_", "")


def engine():
    """A function from SQL to rows."""
    if ENGINE in ("duckdb", "remote"):
        import duckdb

        connection = duckdb.connect()
        place = LAKE
        if ENGINE == "remote":
            import fsspec

            memory = fsspec.filesystem("memory")
            memory.put(LAKE, "/lake", recursive=True)
            connection.register_filesystem(memory)
            place = "memory://lake"
        for table in TABLES:
            connection.execute(
                f"CREATE VIEW {name_of(table)} AS SELECT * FROM read_parquet('{place}/{table}/*/*/*.parquet',"
                " union_by_name = true, hive_partitioning = true, hive_types = {'date': DATE, 'host': VARCHAR})"
            )
            # Every column of every file.
            connection.execute(f"SELECT * FROM {name_of(table)}").fetchall()
        return lambda sql: connection.execute(sql).fetchall()
    if ENGINE == "polars":
        import polars

        context = polars.SQLContext()
        for table in TABLES:
            frame = polars.scan_parquet(
                f"{LAKE}/{table}/**/*.parquet",
                hive_partitioning=True,
                hive_schema={"date": polars.Date, "host": polars.String},
                missing_columns="insert",
                extra_columns="ignore",
            )
            frame.collect()
            context.register(name_of(table), frame)
        return lambda sql: context.execute(sql).collect().rows()
    if ENGINE == "datafusion":
        from datafusion import SessionContext

        context = SessionContext()
        for table in TABLES:
            context.sql(
                f"CREATE EXTERNAL TABLE {name_of(table)} STORED AS PARQUET PARTITIONED BY (date, host) LOCATION '{LAKE}/{table}/'"
            )
        return lambda sql: [tuple(row.values()) for row in context.sql(sql).to_pylist()]
    if ENGINE == "chdb":
        from chdb import session

        connection = session.Session()
        connection.query("CREATE DATABASE lake")
        for table in TABLES:
            connection.query(
                f"CREATE VIEW lake.{name_of(table)} AS SELECT * FROM file('{LAKE}/{table}/**/*.parquet', Parquet)"
                " SETTINGS use_hive_partitioning = 1, schema_inference_mode = 'union'"
            )
        connection.query("USE lake")

        def rows(sql):
            import json

            text = str(connection.query(sql, "JSONCompactEachRow"))
            return [tuple(json.loads(line)) for line in text.splitlines()]

        return rows
    raise SystemExit(f"unknown engine {ENGINE}")


def text(value):
    return "" if value is None else str(value)


query = engine()
for table in TABLES:
    by_host = query(f"SELECT host, count(*) AS n FROM {name_of(table)} GROUP BY host ORDER BY host")
    for row in by_host:
        print(table, *map(text, row))
for title, sql in (("leaf", LEAF), ("kernel", KERNEL), ("calls", CALLS), ("wall", WALL)):
    for row in sorted(tuple(map(text, row)) for row in query(sql)):
        print(title, *row)
