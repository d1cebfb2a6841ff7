"""Reads each table of a trace directory with DuckDB or pyarrow; prints a line of facets per column."""
import glob
import os
import sys


def tables(root):
    folders = {os.path.dirname(part) for part in glob.glob(root + "/**/*.parquet", recursive=True)}
    return sorted((os.path.basename(folder), folder) for folder in folders)


def line(name, rows, nulls, values):
    """The values: numbers, texts, or lists of these."""
    flat = []
    for value in values:
        flat.extend(value if isinstance(value, list) else [value])
    texts = [v.encode() if isinstance(v, str) else v for v in flat if isinstance(v, (str, bytes))]
    numbers = [len(v) for v in texts] if texts else [int(v) for v in flat]
    show = lambda v: "-" if v is None else str(v)
    hexed = lambda v: "-" if v is None else "x" + v.hex()
    print(
        f"{name} rows={rows} nulls={nulls} count={len(numbers)} sum={sum(numbers)}"
        f" low={show(min(numbers, default=None))} high={show(max(numbers, default=None))}"
        f" first={hexed(min(texts, default=None))} last={hexed(max(texts, default=None))}"
    )


def with_duckdb(name, folder):
    import duckdb

    db = duckdb.connect()
    db.execute(f"create view t as from read_parquet('{folder}/*.parquet')")
    described = db.execute("describe t").fetchall()
    for column, kind, *_ in described:
        count, nulls = db.execute(f'select count(*), count(*) - count("{column}") from t').fetchone()
        values = [v for (v,) in db.execute(f'select "{column}" from t where "{column}" is not null').fetchall()]
        # What is said in the footers must be what is in the pages.
        if "[]" not in kind and kind not in ("BLOB", "VARCHAR") and values:
            low, high = db.execute(f'select min("{column}"), max("{column}") from t').fetchone()
            assert (low, high) == (min(values), max(values)), (column, low, high)
            found = db.execute(f'select count(*) from t where "{column}" = ?::{kind}', [high]).fetchone()[0]
            assert found == sum(v == high for v in values), (column, "filter", high, found)
        line(f"{name}.{column}", count, nulls, values)


def with_pyarrow(name, folder):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    parts = sorted(glob.glob(folder + "/*.parquet"))
    for part in parts:
        about = pq.ParquetFile(part).metadata.metadata
        assert about[b"perfquet.version"] == b"2" and all(about.values()), about
    table = ds.dataset(parts, format="parquet").to_table()
    for column in table.schema.names:
        array = table[column]
        values = [v for v in array.to_pylist() if v is not None]
        if values and not isinstance(values[0], (list, str, bytes, float, bool)):
            high = max(values)
            part = ds.dataset(parts, format="parquet").to_table(filter=pc.field(column) == pa.scalar(high, array.type), columns=[column])
            assert part.num_rows == sum(v == high for v in values), (column, "filter", high)
        line(f"{name}.{column}", table.num_rows, array.null_count, values)


reader, root = sys.argv[1:]
for name, folder in tables(root):
    (with_duckdb if reader == "duckdb" else with_pyarrow)(name, folder)
