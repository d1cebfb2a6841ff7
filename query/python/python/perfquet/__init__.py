"""Performance traces as tables.

>>> import perfquet
>>> trace = perfquet.read("perf.data")          # or perfquet.open("a.pqt")
>>> trace.sql("SELECT comm, count(*) AS samples FROM samples GROUP BY 1 ORDER BY 2 DESC").polars()
>>> trace.top(by="thread").pandas()
>>> trace.flamegraph(where="comm = 'postgres'").save("flames.svg")

`open` opens trace directories, `convert` imports files of other tools into one, `read` does both without leaving a
directory. Rows have Arrow's PyCapsule interface: `polars.DataFrame(rows)`, `pyarrow.table(rows)` and others accept
them as they are.
"""

from __future__ import annotations

import os as _os
from typing import Any as _Any

from . import _perfquet
from ._pictures import Picture
from ._perfquet import Error, QueryError, Stream, TraceError, __version__
from ._rows import Relation, Rows
from ._trace import Imported, Trace, Warning

__all__ = [
    "Error",
    "Imported",
    "Picture",
    "QueryError",
    "Relation",
    "Rows",
    "Stream",
    "Trace",
    "TraceError",
    "Warning",
    "convert",
    "formats",
    "open",
    "read",
    "reports",
]


def open(*paths, memory: int | None = None, threads: int | None = None, init=()) -> Trace:
    """Opens traces as one set of tables: directories, files (.pqtz), patterns such as "runs/*.pqt", "lake:DIR?host=h1".

    With several traces, tables have the column `trace`.

    Args:
        memory: limit in bytes of the process, beyond which sorts, groups and joins use temporary files; by default
            half of the system's memory.
        threads: number of threads; by default that of the CPUs.
        init: SQL files with views and macros to define.

    Raises:
        FileNotFoundError: a path does not exist.
        TraceError: a path is no trace, or its manifest is damaged.
    """
    return Trace(paths, memory=memory, threads=threads, init=init)


def convert(
    *inputs,
    output,
    format: str | None = None,
    symbols=None,
    debuginfod: bool = False,
    force: bool = False,
    progress=None,
) -> dict[str, _Any]:
    """Imports files of any format, such as perf.data, trace.dat, ftrace's text, CTF, strace, into a trace directory.

    Args:
        output: the directory, such as "a.pqt".
        format: one of `formats()`; by default recognized by the contents.
        symbols: programs, directories with programs and debug info, a vmlinux or kallsyms, to name functions; an empty list to
            name none. By default this host is searched.
        debuginfod: whether the servers in DEBUGINFOD_URLS are asked for programs and debug info that this host lacks.
        force: whether an existing trace is replaced.
        progress: called with the bytes read and all bytes (None if unknown), at most 20 times a second.

    Returns:
        What was read: "formats", "rows" by table, "lost" events, "losses" and "problems" (rows of the tables with these
        names), "frames", "named_frames", "input_bytes", "output_bytes".

    Raises:
        FileExistsError: the output exists.
        TraceError: the format is unknown, or nothing of an input is readable.
    """
    from ._trace import warn_about, warned

    if not inputs:
        raise ValueError("expected at least one input")
    with warned():
        summary = _perfquet.convert(list(inputs), output, format, _listed(symbols), debuginfod, force, progress)
    warn_about(_os.fsdecode(output), summary)
    return summary


def read(
    *inputs, format: str | None = None, symbols=None, debuginfod: bool = False, progress=None, **options
) -> Imported:
    """Imports files, or the `bytes` of one, into a temporary trace and opens it.

    The temporary directory is removed with the returned object. `options` are those of `open`, others those of `convert`.
    """
    from ._trace import import_temporarily

    if not inputs:
        raise ValueError("expected at least one input")
    return import_temporarily(inputs, (format, _listed(symbols), debuginfod, progress), options)


def formats() -> dict[str, str]:
    """Names of the formats that `convert` and `read` know, and what each is."""
    return dict(_perfquet.formats())


def reports() -> dict[str, str]:
    """Names of the reports for `Trace.report` and `Trace.picture`, and what each answers."""
    return dict(_perfquet.reports())


def _listed(symbols) -> list | None:
    if symbols is None:
        return None
    if isinstance(symbols, (str, bytes, _os.PathLike)):
        return [symbols]
    return list(symbols)
