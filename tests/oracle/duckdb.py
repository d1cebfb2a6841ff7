"""Runs the statements of `--to ddl=duckdb`, then the queries of a file of sqllogictest, and compares the rows.

    python3 -c "$(cat duckdb.py)" STATEMENTS FILE.slt

Prints the number of compared queries.
"""

import sys

import duckdb

STATEMENTS, TEST = sys.argv[1:]


def shown(value):
    """A value as the test has it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value) or "(empty)"


def blocks(text):
    """Queries with their rows; reports and errors are perfquet-query's own."""
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if not lines or not lines[0].startswith("query") or lines[1].startswith("report "):
            continue
        end = lines.index("----")
        yield "\n".join(lines[1:end]), lines[end + 1:], "rowsort" in lines[0]


def main():
    db = duckdb.connect()
    # As in perfquet-query.
    db.execute("SET integer_division = true")
    db.execute("SET default_null_order = 'nulls_first'")
    with open(STATEMENTS, encoding="utf-8") as file:
        db.execute(file.read())
    with open(TEST, encoding="utf-8") as file:
        text = file.read()
    compared = 0
    for query, expected, is_sorted in blocks(text):
        rows = [" ".join(map(shown, row)) for row in db.execute(query).fetchall()]
        if is_sorted:
            rows.sort()
        assert rows == expected, (query, rows, expected)
        compared += 1
    print(compared)


main()
