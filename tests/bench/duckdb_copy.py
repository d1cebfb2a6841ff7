"""Writes the tables of a trace once more, from DuckDB's memory; prints the CPU milliseconds of its COPY.

usage: duckdb_copy.py TRACE SCRATCH
"""

import os
import pathlib
import resource
import sys

import duckdb

trace, scratch = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e3


connection = duckdb.connect()
connection.execute(f"SET threads = {os.cpu_count()}")
folders = sorted({path.parent for path in trace.glob("**/*.parquet")})
for number, folder in enumerate(folders):
    connection.execute(f"CREATE TABLE t{number} AS SELECT * FROM read_parquet('{folder}/*.parquet')")
before = cpu()
for number, _ in enumerate(folders):
    connection.execute(f"COPY t{number} TO '{scratch}/copy-{number}.parquet' (FORMAT parquet, COMPRESSION zstd)")
print(cpu() - before)
for path in scratch.glob("copy-*.parquet"):
    path.unlink()
