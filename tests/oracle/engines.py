"""Opens every table of every trace with one engine, and answers five questions.

    python3 -c "$(cat engines.py)" ENGINE TRACE...

Prints a line for each column with its type, and for each answer: rows of numbers and text, sorted.
"""

import glob
import os
import sys

ENGINE, TRACES = sys.argv[1], sys.argv[2:]

QUESTIONS = {
    "samples": "SELECT comm, count(*) AS n FROM samples GROUP BY comm",
    "times": "SELECT count(time) AS n, min(time) AS first, max(time) AS last FROM samples",
    "modules": "SELECT module, count(*) AS n, max(depth) AS deepest "
    "FROM stacks JOIN frames ON stacks.frame_id = frames.frame_id GROUP BY module",
    "kernel": "SELECT count(*) AS n, min(start_address) AS first FROM mappings WHERE start_address < 0",
    "calls": "SELECT \"function\", count(*) AS n, sum(duration) AS total FROM calls GROUP BY \"function\"",
}

TYPES = {
    "bool": "bool", "boolean": "bool", "bool[pyarrow]": "bool",
    "int8": "int8", "tinyint": "int8", "int16": "int16", "smallint": "int16",
    "int32": "int32", "integer": "int32", "int": "int32",
    "int64": "int64", "bigint": "int64", "long": "int64",
    "uint8": "uint8", "utinyint": "uint8", "uint16": "uint16", "usmallint": "uint16",
    "uint32": "uint32", "uinteger": "uint32", "uint64": "uint64", "ubigint": "uint64",
    "decimal(20,0)": "uint64",
    "float64": "float64", "double": "float64", "f64": "float64",
    "string": "text", "varchar": "text", "utf8": "text", "utf8view": "text", "string_view": "text", "large_string": "text",
    "binary": "binary", "blob": "binary", "binaryview": "binary", "binary_view": "binary",
}


def type_name(text):
    """An engine's type in our words."""
    text = text.lower().removesuffix("[pyarrow]")
    while text.startswith("nullable("):
        text = text[9:-1]
    for start, end in (("list<element: ", ">"), ("list<", ">"), ("list(", ")"), ("array<", ">"), ("array(", ")")):
        if text.startswith(start) and text.endswith(end):
            return f"list<{type_name(text[len(start):-len(end)].removesuffix(' not null'))}>"
    if text.endswith("[]"):
        return f"list<{type_name(text[:-2])}>"
    return TYPES.get(text, text)


def tables(trace):
    """Directories with parts, by table."""
    found = {}
    for part in glob.glob(trace + "/**/*.parquet", recursive=True):
        folder = os.path.dirname(part)
        found[os.path.relpath(folder, trace)] = folder
    return dict(sorted(found.items()))


class DuckDB:
    def __init__(self):
        import duckdb
        self.db = duckdb.connect()

    def open(self, name, folder):
        self.db.execute(f"CREATE OR REPLACE VIEW \"{name}\" AS SELECT * FROM read_parquet('{folder}/*.parquet', union_by_name = true)")
        return {row[0]: row[1] for row in self.db.execute(f"DESCRIBE \"{name}\"").fetchall()}

    def ask(self, question):
        return self.db.execute(question).fetchall()

    def rows(self, name):
        return self.ask(f"SELECT count(*) FROM \"{name}\"")[0][0]


class Polars:
    def __init__(self):
        import polars
        self.pl, self.frames = polars, {}

    def open(self, name, folder):
        self.frames[name] = self.pl.scan_parquet(folder + "/*.parquet")
        return {column: str(kind) for column, kind in self.frames[name].collect_schema().items()}

    def ask(self, question):
        return self.pl.SQLContext(self.frames).execute(question, eager=True).rows()

    def rows(self, name):
        return self.frames[name].select(self.pl.len()).collect().item()


class Pandas:
    def __init__(self):
        import pandas
        self.pd, self.frames = pandas, {}

    def open(self, name, folder):
        self.frames[name] = self.pd.read_parquet(folder, dtype_backend="pyarrow")
        return {column: str(kind) for column, kind in self.frames[name].dtypes.items()}

    def rows(self, name):
        return len(self.frames[name])

    def answer(self, name):
        frames = self.frames
        groups = lambda frame, key: frame.groupby(key, dropna=False)
        clean = lambda rows: [tuple(None if self.pd.isna(value) else value for value in row) for row in rows]
        if name == "samples":
            return clean(groups(frames["samples"], "comm").size().items())
        if name == "times":
            time = frames["samples"]["time"]
            return clean([(time.count(), time.min(), time.max())])
        if name == "modules":
            joined = frames["stacks"].merge(frames["frames"], on="frame_id")
            found = groups(joined, "module")["depth"].agg(["size", "max"])
            return clean(found.itertuples(name=None))
        if name == "kernel":
            start = frames["mappings"]["start_address"]
            start = start[start < 0]
            return clean([(len(start), start.min())])
        found = groups(frames["calls"], "function")["duration"].agg(["size", lambda part: part.sum(min_count=1)])
        return clean(found.itertuples(name=None))


class DataFusion:
    def __init__(self):
        import datafusion
        self.module = datafusion
        self.context = datafusion.SessionContext()

    def open(self, name, folder):
        self.context.deregister_table(name)
        self.context.register_parquet(name, folder + "/")
        return {field.name: str(field.type) for field in self.context.table(f"\"{name}\"").schema()}

    def ask(self, question):
        batches = self.context.sql(question).to_arrow_table()
        return [tuple(row.values()) for row in batches.to_pylist()]

    def rows(self, name):
        return self.context.table(f"\"{name}\"").count()


class ClickHouse:
    def __init__(self):
        import chdb
        self.chdb, self.places = chdb, {}

    def open(self, name, folder):
        self.places[name] = f"file('{folder}/*.parquet', Parquet)"
        return {row[0]: row[1] for row in self.read(f"DESCRIBE {self.places[name]}")}

    def read(self, question):
        import json
        text = self.chdb.query(question, "JSONCompactEachRow").bytes().decode()
        return [json.loads(line) for line in text.splitlines()]

    def ask(self, question):
        with_tables = ", ".join(f"{name} AS (SELECT * FROM {place})" for name, place in self.places.items() if name in question)
        settings = "SETTINGS aggregate_functions_null_for_empty = 1, output_format_json_quote_64bit_integers = 0"
        return [tuple(row) for row in self.read(f"WITH {with_tables} {question} {settings}")]

    def rows(self, name):
        return self.read(f"SELECT count(*)::Int32 FROM {self.places[name]}")[0][0]


class Spark:
    def __init__(self):
        from pyspark.sql import SparkSession
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.sql.ansi.doubleQuotedIdentifiers", "true")
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.names = {}

    def open(self, name, folder):
        frame = self.spark.read.parquet(folder)
        self.names[name] = frame
        if "/" not in name:
            frame.createOrReplaceTempView(name)
        return dict(frame.dtypes)

    def ask(self, question):
        return [tuple(row) for row in self.spark.sql(question.replace('"', "`")).collect()]

    def rows(self, name):
        return self.names[name].count()


def main():
    engine = {"duckdb": DuckDB, "polars": Polars, "pandas": Pandas, "datafusion": DataFusion, "chdb": ClickHouse, "pyspark": Spark}[ENGINE]()
    for number, trace in enumerate(TRACES):
        for name, folder in tables(trace).items():
            for column, kind in engine.open(name, folder).items():
                print(f"{number} {name}.{column} {type_name(kind)}")
            print(f"{number} {name} {engine.rows(name)} rows")
        for name, question in QUESTIONS.items():
            answer = engine.answer(name) if hasattr(engine, "answer") else engine.ask(question)
            rows = ["|".join("" if value is None else str(value) for value in row) for row in answer]
            print(f"{number} {name}: {' '.join(sorted(rows))}")


main()
