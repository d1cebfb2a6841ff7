"""Runs the statements of `perfquet-convert lake:s3://… --to ddl=…` in an engine, and prints the number of rows of each table.

    python3 -c "$(cat stores.py)" ENGINE STATEMENTS FOLDER TABLE…

FOLDER is the bucket. DuckDB reads it as files of a file system that is not local; the others ask the store.
"""

import os
import sys

ENGINE, STATEMENTS, FOLDER = sys.argv[1:4]
TABLES = sys.argv[4:]
TEXT = open(STATEMENTS).read()


def engine():
    """A function from SQL to rows."""
    if ENGINE == "duckdb":
        import duckdb
        from fsspec.implementations.memory import MemoryFileSystem

        class Store(MemoryFileSystem):
            protocol = "s3"
            store = {}
            pseudo_dirs = [""]

            @classmethod
            def _strip_protocol(cls, path):
                return "/" + path.removeprefix("s3://").strip("/")

        store = Store()
        for folder, _, files in os.walk(FOLDER):
            for file in files:
                path = os.path.join(folder, file)
                store.pipe_file("/bucket" + path[len(FOLDER):], open(path, "rb").read())
        connection = duckdb.connect()
        connection.register_filesystem(store)
        connection.execute(TEXT)
        return lambda sql: connection.execute(sql).fetchall()
    if ENGINE == "polars":
        scope = {}
        exec(TEXT, scope)
        return lambda sql: scope["context"].execute(sql).collect().rows()
    if ENGINE == "datafusion":
        from datafusion import SessionContext
        from datafusion.object_store import AmazonS3

        context = SessionContext()
        endpoint = os.environ["AWS_ENDPOINT_URL"]
        store = AmazonS3("bucket", region="us-east-1", allow_http=True, endpoint=endpoint)
        context.register_object_store("s3://", store, "bucket")
        lines = [line for line in TEXT.splitlines() if not line.startswith("--")]
        for statement in "\n".join(lines).split(";\n"):
            if statement.strip("; \n"):
                context.sql(statement)
        return lambda sql: [tuple(row.values()) for row in context.sql(sql).to_pylist()]
    if ENGINE == "clickhouse":
        from chdb import session

        connection = session.Session()
        connection.query("CREATE DATABASE lake")
        connection.query("USE lake")
        connection.query(TEXT)
        return lambda sql: [(int(str(connection.query(sql, "TSV"))),)]
    raise SystemExit(f"unknown engine {ENGINE}")


query = engine()
for table in TABLES:
    (count,) = query(f"SELECT count(*) AS n FROM {table}")[0]
    print(table, count, sep="\t")
