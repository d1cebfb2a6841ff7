"""Rows and their conversions."""

from __future__ import annotations

import html
import json
import weakref

from . import _perfquet

_SHOWN = 10


class _Convertible:
    """Conversions of everything that has `__arrow_c_stream__`."""

    def arrow(self):
        """A `pyarrow.Table`."""
        import pyarrow

        return pyarrow.table(self)

    def polars(self):
        """A `polars.DataFrame`."""
        import polars

        return polars.DataFrame(self)

    def pandas(self, **options):
        """A `pandas.DataFrame`; the options are those of `pyarrow.Table.to_pandas`.

        Whole numbers keep all digits where a value is missing: then columns of that type are `Int64` or the like, which
        have `pandas.NA`. By default, pandas would make them floating point.
        """
        table = self.arrow()
        if "types_mapper" not in options:
            options["types_mapper"] = _nullable_integers(table).get
        return table.to_pandas(**options)

    def duckdb(self, connection=None):
        """A DuckDB relation."""
        import duckdb

        return (connection or duckdb).from_arrow(self)


def _nullable_integers(table):
    """The types of pandas for those of columns of whole numbers in which a value is missing."""
    import pandas
    import pyarrow

    columns = zip(table.schema.types, table.columns)
    types = {kind for kind, column in columns if pyarrow.types.is_integer(kind) and column.null_count > 0}
    names = {kind: str(kind).replace("uint", "UInt").replace("int", "Int") for kind in types}
    return {kind: pandas.api.types.pandas_dtype(name) for kind, name in names.items()}


class Rows(_Convertible):
    """Rows of a query or a report, in memory.

    `polars.DataFrame(rows)`, `pyarrow.table(rows)`, `duckdb.from_arrow(rows)` take them by Arrow's PyCapsule
    interface. Times are nanoseconds on the trace's clock, durations nanoseconds; see `units`.
    """

    def __init__(self, rows):
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema=None):
        return self._rows.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self):
        return self._rows.__arrow_c_schema__()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self):
        """The rows as dictionaries."""
        return iter(self.to_dicts())

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._rows.columns

    @property
    def units(self) -> dict[str, str]:
        """Units of the columns that have one: "ns", "time" (nanoseconds on the trace's clock), "share", …."""
        return self._rows.units

    def head(self, limit: int = _SHOWN) -> Rows:
        """The first rows."""
        return Rows(self._rows.head(limit))

    def to_dicts(self) -> list[dict]:
        """The rows as dictionaries, without other packages; values as `perfquet-query --format json` writes them."""
        return json.loads(self._rows.formatted("json"))

    def csv(self) -> str:
        """The rows as CSV with a header."""
        return self._rows.formatted("csv").decode()

    def scalar(self):
        """The value of one row with one column.

        Raises:
            ValueError: there are more or fewer.
        """
        if len(self) != 1 or len(self.columns) != 1:
            raise ValueError(f"expected one row with one column, found {len(self)} with {len(self.columns)}")
        [row] = self.to_dicts()
        [value] = row.values()
        return value

    def __repr__(self) -> str:
        text = self._rows.head(_SHOWN).formatted("table").decode().rstrip("\n")
        return f"{text}\n{self._more()}" if len(self) > _SHOWN else text

    def _more(self) -> str:
        return f"{_SHOWN} of {len(self):,} rows"

    def _repr_html_(self) -> str:
        columns, rows = self._rows.cells(_SHOWN)
        cell = lambda kind, text: f"<{kind}>{html.escape(text)}</{kind}>"
        line = lambda kind, texts: "<tr>" + "".join(cell(kind, text) for text in texts) + "</tr>"
        body = "".join(line("td", row) for row in rows)
        more = f"<p>{self._more()}</p>" if len(self) > _SHOWN else ""
        return f"<table><thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>{more}"


class Relation(_Convertible):
    """A table, view or query of a trace that is read anew each time it is converted, and streamed."""

    def __init__(self, trace, sql: str):
        self._trace = trace
        self._sql = sql

    def __arrow_c_stream__(self, requested_schema=None):
        return self._trace.stream(self._sql).__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self):
        return self._trace.stream(self._sql).__arrow_c_schema__()

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._trace.stream(self._sql).columns

    def __len__(self) -> int:
        return self._trace.sql(f"SELECT count(*) FROM ({self._sql})").scalar()

    def head(self, limit: int = _SHOWN) -> Rows:
        """The first rows."""
        return self._trace.sql(f"SELECT * FROM ({self._sql}) LIMIT {int(limit)}")

    def rows(self) -> Rows:
        """All rows, in memory."""
        return self._trace.sql(self._sql)

    def __iter__(self):
        return iter(self.rows())

    def __repr__(self) -> str:
        return repr(self.head())

    def _repr_html_(self) -> str:
        return self.head()._repr_html_()
