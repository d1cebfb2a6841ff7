"""Asks DuckDB and perfquet-query the same questions in alternation; CPU milliseconds as JSON.

usage: queries.py PERFQUET_QUERY ROUNDS '[["TRACE", "SELECT …"], …]'
Names in braces in a query stand for what differs between the dialects.
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

program, rounds, queries = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
FOLDERS = {
    "enter": "events/raw_syscalls/sys_enter",
    "exit": "events/raw_syscalls/sys_exit",
    "calls": "calls",
    "switches": "events/sched/sched_switch",
}
TABLES = {name: folder.removeprefix("events/").replace("/", ".") for name, folder in FOLDERS.items()}
# `/` divides integers in DataFusion only. Quantiles are estimates in both.
OURS = {"p99": "quantile(duration, 0.99)", "second": "time / 1000000000"}
THEIRS = {"p99": "approx_quantile(duration, 0.99)", "second": "time // 1000000000"}
SLOW_MS = 5000
connection = duckdb.connect()
connection.execute(f"SET threads = {os.cpu_count()}")


def cpu(who):
    used = resource.getrusage(who)
    return (used.ru_utime + used.ru_stime) * 1e3


def ask_duckdb(trace, query):
    files = {name: f"read_parquet('{trace}/{folder}/*.parquet')" for name, folder in FOLDERS.items()}
    before = cpu(resource.RUSAGE_SELF)
    rows = connection.execute(query.format(**files, **THEIRS)).fetchall()
    return cpu(resource.RUSAGE_SELF) - before, rows


def ask_ours(trace, query):
    before, started = cpu(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [program, "sql", trace, query.format(**TABLES, **OURS), "--format", "csv"]
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
    idle, wall, _ = ask_ours(queries[0][0], "SELECT 1")
    start.append(wall)
    for (trace, query), entry in zip(queries, times):
        expected = None
        if not entry["duckdb"] or entry["duckdb"][0] < SLOW_MS:
            theirs, expected = ask_duckdb(trace, query)
            entry["duckdb"].append(theirs)
        ours, _, found = ask_ours(trace, query)
        entry["ours"].append(max(ours - idle, 0.0))
        # Ties of ORDER BY … LIMIT may be broken differently; everything else must agree.
        is_exact = expected is not None and "LIMIT" not in query and "{p99}" not in query
        if is_exact and plain(expected) != plain(found):
            sys.exit(f"the answers differ: {query}\nDuckDB: {plain(expected)[:5]}\nperfquet: {plain(found)[:5]}")
print(json.dumps({"queries": times, "start": start}))
