"""Asks DuckDB and perfquet-query the same questions in alternation; CPU milliseconds as JSON.

usage: queries.py PERFQUET_QUERY TRACE ROUNDS '["SELECT …", …]'
`{enter}` and `{exit}` in a query stand for the two tables of raw_syscalls.
Both must give the same number of rows and the same multiset of values, else this fails.
"""

import csv
import io
import json
import os
import resource
import subprocess
import sys
import time

import duckdb

program, trace, rounds, queries = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
FILES = {name: f"read_parquet('{trace}/events/raw_syscalls/sys_{name}/*.parquet')" for name in ("enter", "exit")}
NAMES = {name: f"raw_syscalls.sys_{name}" for name in ("enter", "exit")}
connection = duckdb.connect()
connection.execute(f"SET threads = {os.cpu_count()}")


def cpu(who):
    used = resource.getrusage(who)
    return (used.ru_utime + used.ru_stime) * 1e3


def ask_duckdb(query):
    before = cpu(resource.RUSAGE_SELF)
    rows = connection.execute(query.format(**FILES)).fetchall()
    return cpu(resource.RUSAGE_SELF) - before, rows


def ask_ours(query):
    before, started = cpu(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [program, "sql", trace, query.format(**NAMES), "--format", "csv"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    rows = list(csv.reader(io.StringIO(done.stdout)))[1:]
    return cpu(resource.RUSAGE_CHILDREN) - before, (time.monotonic() - started) * 1e3, rows


def plain(rows):
    """Values as text, in any order: the engines may order ties and print NULL differently."""
    return sorted(tuple("" if value in (None, "NULL") else str(value) for value in row) for row in rows)


times = [{"duckdb": [], "ours": []} for _ in queries]
start = []
for round_number in range(rounds):
    idle, wall, _ = ask_ours("SELECT 1")
    start.append(wall)
    for query, entry in zip(queries, times):
        theirs, expected = ask_duckdb(query)
        ours, _, found = ask_ours(query)
        entry["duckdb"].append(theirs)
        entry["ours"].append(max(ours - idle, 0.0))
        # Ties of ORDER BY … LIMIT may be broken differently; everything else must agree.
        if "LIMIT" not in query and plain(expected) != plain(found):
            sys.exit(f"the answers differ: {query}\nDuckDB: {plain(expected)[:5]}\nperfquet: {plain(found)[:5]}")
print(json.dumps({"queries": times, "start": start}))
