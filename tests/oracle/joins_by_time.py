"""Answers a query with DuckDB over the files of a trace; prints the rows as CSV."""
import sys

import duckdb

trace, query = sys.argv[1:]
tables = {"calls": "calls", "switches": "events/sched/sched_switch"}
for name, folder in tables.items():
    query = query.replace("{" + name + "}", f"read_parquet('{trace}/{folder}/*.parquet')")
for row in duckdb.sql(query).fetchall():
    print(",".join("" if value is None else str(value) for value in row))
