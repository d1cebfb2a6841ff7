"""Opened traces."""

from __future__ import annotations

import contextlib
import glob
import os
import sys
import tempfile
import warnings

from . import _perfquet
from ._pictures import Picture
from ._rows import Relation, Rows


class Warning(UserWarning):
    """What an answer lacks, or a trace does: incomplete recordings, lost events, unreadable places."""


_PACKAGE = os.path.dirname(__file__)


def warn(text: str) -> None:
    """Warns at the line of the caller outside of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and os.path.dirname(frame.f_code.co_filename) in (_PACKAGE, os.path.dirname(contextlib.__file__)):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, Warning, stacklevel=level)


@contextlib.contextmanager
def warned(without: str | None = None):
    """Turns the messages of a call into warnings, except those with a text."""
    try:
        yield
    finally:
        messages = []
        for line in _perfquet.messages():
            # A hint belongs to the message before it.
            if messages and line.startswith((" ", "hint: ")):
                messages[-1] += f"\n{line}"
            else:
                messages.append(line.removeprefix("perfquet: "))
        for message in messages:
            if without is None or without not in message:
                warn(message)


class Trace:
    """Opened traces; made by `perfquet.open`."""

    def __init__(self, paths, *, memory=None, threads=None, init=()):
        if not paths:
            raise ValueError("expected at least one trace")
        places = [_place(path) for path in paths]
        with warned():
            self._session = _perfquet.Session(places, memory, threads, list(init))
        self._options = []
        if memory is not None:
            self._options.append(f"--memory={memory}")
        if threads is not None:
            self._options.append(f"--threads={threads}")
        self._options += [f"--init={os.fsdecode(path)}" for path in init]

    @property
    def paths(self) -> list:
        """Paths of the trace directories."""
        return self._session.paths

    @property
    def names(self) -> list[str]:
        """Names of the traces, as in the column `trace` of several traces."""
        return self._session.names

    def sql(self, query: str) -> Rows:
        """Runs a query and returns all of its rows; Ctrl-C ends it.

        Durations have units (`duration > 5ms`), times count from the start with `at(3s)`. CREATE VIEW and CREATE MACRO
        define names for later queries of this object.

        Raises:
            QueryError: the query is wrong, or failed.
        """
        with warned():
            return Rows(self._session.sql(query))

    def stream(self, query: str):
        """Runs a query and returns its rows as they come, for results that do not fit into memory.

        The rows can be read once, by Arrow's PyCapsule interface: `pyarrow.RecordBatchReader.from_stream(stream)`.
        """
        with warned():
            return self._session.stream(query)

    def query(self, query: str) -> Relation:
        """A query that runs each time its rows are read."""
        return Relation(self, query.strip().rstrip(";"))

    def __getitem__(self, table: str) -> Relation:
        """A table or view by its name: "samples", "sched.sched_switch", "syscalls"."""
        if table not in self:
            raise KeyError(table)
        return Relation(self, f"SELECT * FROM {table}")

    def __contains__(self, table) -> bool:
        try:
            self.columns(table)
        except _perfquet.QueryError:
            return False
        return True

    def tables(self) -> Rows:
        """Tables, and views whose events were recorded: name, rows, bytes, description."""
        # The views that are absent are no news here.
        try:
            return Rows(self._session.tables())
        finally:
            _perfquet.messages()

    def columns(self, table: str) -> Rows:
        """Columns of a table or view: name, type, unit, description."""
        with warned():
            return Rows(self._session.columns(table))

    def duckdb(self, connection=None):
        """Registers all tables and views in a DuckDB connection, and returns it.

        They are read by this package when DuckDB needs them. The table of an event is `system_event`.
        """
        import duckdb

        connection = connection or duckdb.connect()
        for row in self.tables():
            name = row["table"]
            if "(" not in name:
                connection.register(name.replace(".", "_").replace('"', ""), self.query(f"SELECT * FROM {name}"))
        return connection

    def report(self, name: str, *words: str, **options) -> Rows:
        """Returns the rows of a report, as `perfquet-query NAME` answers it; `perfquet.reports()` lists them.

        Options are those of the command line: `report("top", by="thread", limit=10)` is `top --by=thread --limit=10`. True is
        an option without a value, a list one that is repeated, `where_` one whose name Python reserves.
        """
        with warned():
            return Rows(_perfquet.report(name, self._words(words, options)))

    def picture(self, name: str, *words: str, **options) -> Picture:
        """Draws a report as an SVG image: "flamegraph", "heatmap", "plot", …; "report" is a page in HTML."""
        is_page = name == "report"
        with tempfile.TemporaryDirectory(prefix="perfquet-") as folder:
            path = os.path.join(folder, "page.html" if is_page else "picture.svg")
            with warned(without=path):
                _perfquet.run(name, [*self._words(words, options), "-o", path])
            with open(path, encoding="utf-8") as file:
                return Picture(file.read(), is_page)

    def flamegraph(self, **options) -> Picture:
        """A flame graph of samples, or of calls with `from_="calls"`; see `perfquet-query flamegraph --help`."""
        return self.picture("flamegraph", **options)

    def page(self, **options) -> Picture:
        """A report page with all panels."""
        return self.picture("report", **options)

    def top(self, **options) -> Rows:
        """The functions with most samples."""
        return self.report("top", **options)

    def durations(self, **options) -> Rows:
        """How long calls of each function took: counts, percentiles, distribution."""
        return self.report("durations", **options)

    def syscalls(self, **options) -> Rows:
        """System calls by name: count, errors, time."""
        return self.report("syscalls", **options)

    def waits(self, **options) -> Rows:
        """What threads waited for."""
        return self.report("waits", **options)

    def findings(self, **options) -> Rows:
        """What is worth a look, the most important first."""
        return self.report("findings", **options)

    def _words(self, words, options) -> list:
        given = [*self.paths, *words]
        for name, value in options.items():
            option = name.strip("_").replace("_", "-")
            option = f"-{option}" if len(option) == 1 else f"--{option}"
            values = value if isinstance(value, (list, tuple)) else [value]
            for each in values:
                if each is True:
                    given.append(option)
                elif each is not False and each is not None:
                    separator = "=" if option.startswith("--") else ""
                    given.append(f"{option}{separator}{os.fsdecode(each) if isinstance(each, os.PathLike) else each}")
        return [*given, *self._options]

    def __repr__(self) -> str:
        return f"<perfquet.Trace: {', '.join(self.names)}>"


_LAKE = "lake:"
_URLS = ("s3://", "s3a://", "gs://", "az://", "azure://", "abfss://", "https://", "http://")


def _place(path) -> str:
    """A path that stays the same if the process changes its directory, and is no option."""
    text = os.fsdecode(path)
    if text.startswith(_URLS) or text.removeprefix(_LAKE).startswith(_URLS):
        return text
    if text.startswith(_LAKE):
        directory, mark, selection = text.removeprefix(_LAKE).partition("?")
        return _LAKE + os.path.abspath(directory) + mark + selection
    place = os.path.abspath(text)
    if not os.path.lexists(place) and not glob.has_magic(text):
        raise FileNotFoundError(f"{text}: no such trace")
    return place


class Imported(Trace):
    """A trace in a temporary directory, which is removed with this object; made by `perfquet.read`."""

    def __init__(self, imported, **options):
        self._imported = imported
        self.summary = imported.summary()
        """What was read, as `perfquet.convert` returns it."""
        super().__init__([imported.path], **options)


def import_temporarily(inputs, how, options) -> Imported:
    """Imports and opens."""
    given = None
    if any(isinstance(each, (bytes, bytearray, memoryview)) for each in inputs):
        if len(inputs) != 1:
            raise ValueError("expected paths, or the bytes of one file")
        given, inputs = bytes(inputs[0]), ["bytes"]
    with warned():
        imported = _perfquet.read(list(inputs), given, *how)
    trace = Imported(imported, **options)
    warn_about(", ".join(os.fsdecode(each) for each in inputs), trace.summary)
    return trace


def warn_about(name: str, summary: dict) -> None:
    """Warns of what is missing in an import."""
    if summary["losses"]:
        lost = f"{summary['lost']:,} events" if summary["lost"] else "events"
        if summary["lost"] and summary["uncounted_losses"]:
            lost = f"at least {lost}"
        warn(f"{name}: {lost} lost; see table losses")
    if summary["problems"]:
        errors = "1 read error" if summary["problems"] == 1 else f"{summary['problems']:,} read errors"
        warn(f"{name}: {errors}; see table problems")
