"""The package beside the programs, other readers of the same files, and hostile inputs."""

import functools
import gc
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import perfquet

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "formats" / "readers" / "src"
CALLS = GOLDEN / "trace_dat" / "golden" / "graph-events.dat"
SAMPLES = GOLDEN / "perf_data" / "golden" / "mono.data"
SCRIPT = b"sh 7 [001] 1.000000: 1 cycles: \n\tffffffff8100000a vfs_read ([kernel])\n\tffffffff81000014 main ([kernel])\n\n"


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    path = tmp_path_factory.mktemp("traces") / "calls.pqt"
    perfquet.convert(CALLS, output=path, symbols=[])
    return perfquet.open(path)


@pytest.fixture(scope="module")
def samples():
    return perfquet.read(SAMPLES, symbols=[])


def test_rows_equal_those_of_the_program(calls):
    program = os.environ.get("PERFQUET_QUERY")
    if not program:
        pytest.skip("PERFQUET_QUERY does not name the program")
    for query in ["SELECT * FROM calls ORDER BY time, call_id", "SELECT * FROM thread_states", "SELECT * FROM trace_info"]:
        words = [program, "sql", calls.paths[0], query, "--format", "json"]
        said = subprocess.run(words, check=True, capture_output=True)
        assert calls.sql(query).to_dicts() == json.loads(said.stdout)
    for report, options in [("durations", {}), ("top", {}), ("syscalls", {}), ("calls", {"limit": 5})]:
        words = [program, report, calls.paths[0], *(f"--{k}={v}" for k, v in options.items())]
        said = subprocess.run([*words, "--format", "json"], capture_output=True)
        if said.returncode:
            with pytest.raises((perfquet.Error, ValueError)):
                calls.report(report, **options)
        else:
            assert calls.report(report, **options).to_dicts() == json.loads(said.stdout)


def test_every_report_answers_or_says_why(calls):
    for report in perfquet.reports():
        try:
            rows = calls.report(report)
        except (perfquet.Error, ValueError) as error:
            assert str(error)
        else:
            assert rows.columns, report
            list(rows), repr(rows), rows._repr_html_()


def test_other_packages_read_the_rows(calls):
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    assert pandas
    query = "SELECT call_id, function, time, duration, [call_id, 1] AS list FROM calls ORDER BY call_id"
    rows = calls.sql(query)
    expected = rows.to_dicts()
    assert len(expected) == len(rows) > 10
    ids = [row["call_id"] for row in expected]
    functions = [row["function"] for row in expected]
    assert pyarrow.table(rows).column("call_id").to_pylist() == ids
    frame = polars.DataFrame(rows)
    assert frame["function"].to_list() == functions and frame["list"][0].to_list() == [ids[0], 1]
    assert list(rows.pandas()["function"]) == functions
    assert [row[1] for row in rows.duckdb().fetchall()] == functions
    relation = calls.query(query + ";")
    assert relation.columns == rows.columns and len(relation) == len(rows)
    for _ in range(2):
        assert relation.polars().equals(frame)
    files = f"{calls.paths[0]}/calls/*.parquet"
    assert duckdb.sql(f"SELECT count(*), sum(call_id) FROM '{files}'").fetchall() == [(len(ids), sum(ids))]


def test_pandas_keeps_the_digits_of_numbers_beside_null(calls):
    pandas = pytest.importorskip("pandas")
    rows = calls.sql("SELECT 1795363209096727001 AS time, CAST(18446744071562067969 AS BIGINT UNSIGNED) AS ip, 0.5 AS part UNION ALL SELECT NULL, NULL, NULL ORDER BY 1 NULLS LAST")
    frame = rows.pandas()
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "UInt64", "float64"]
    assert frame["time"][0] == 1795363209096727001 and frame["ip"][0] == 18446744071562067969
    assert frame["time"][1] is pandas.NA
    assert str(calls.sql("SELECT 1 AS n").pandas()["n"].dtype) == "int64"


def test_duckdb_reads_tables_views_and_events(samples, calls):
    pytest.importorskip("duckdb")
    for trace in samples, calls:
        connection = trace.duckdb()
        for row in trace.tables():
            name = row["table"]
            if "(" in name:
                continue
            expected = trace.sql(f"SELECT count(*) FROM {name}").scalar()
            known = name.replace(".", "_").replace('"', "")
            for _ in range(2):
                assert connection.sql(f'SELECT count(*) FROM "{known}"').fetchall() == [(expected,)], name
    joined = "SELECT function, count(*) FROM stacks JOIN frames USING (frame_id) GROUP BY 1 ORDER BY 1 NULLS LAST"
    assert samples.duckdb().sql(joined).fetchall() == [tuple(row.values()) for row in samples.sql(joined)]


def test_streams_are_read_once_and_end_early(calls):
    pyarrow = pytest.importorskip("pyarrow")
    # Three cross joins: more rows than memory has room for.
    stream = calls.stream("SELECT a.call_id FROM calls a, calls b, calls c, calls d, calls e")
    reader = pyarrow.RecordBatchReader.from_stream(stream)
    assert reader.read_next_batch().num_rows > 0
    with pytest.raises(ValueError, match="read already"):
        pyarrow.RecordBatchReader.from_stream(stream)
    before = time.monotonic()
    del reader
    assert time.monotonic() - before < 5
    failing = calls.stream("SELECT CAST(function AS int) FROM calls")
    with pytest.raises(Exception, match="expected a number"):
        pyarrow.table(failing)


def test_bytes_and_names_of_a_hostile_trace():
    text = SCRIPT.replace(b"sh 7", b"<img/src=x> 7")
    trace = perfquet.read(text)
    rows = trace.sql("SELECT comm, tid FROM samples")
    assert rows.to_dicts() == [{"comm": "<img/src=x>", "tid": 7}]
    assert "<img" not in rows._repr_html_() and "&lt;img" in rows._repr_html_()
    assert "<img" not in trace.flamegraph(by="comm")._repr_html_()
    assert trace.flamegraph().svg.lstrip().startswith(("<svg", "<?xml"))
    assert "<html" in trace.page().html[:200].lower()
    with pytest.raises(ValueError):
        trace.page().svg


def test_a_repr_has_ten_rows(calls):
    rows = calls.sql("SELECT call_id FROM calls ORDER BY 1")
    assert repr(rows).splitlines()[-1] == f"10 of {len(rows):,} rows"
    heading, _, *lines = repr(rows.head(2)).split()
    assert heading == "call_id" and lines == [str(row["call_id"]) for row in rows.head(2)]
    assert rows.csv().splitlines()[0] == "call_id" and len(rows.csv().splitlines()) == len(rows) + 1
    assert calls.sql("SELECT 1 WHERE false").to_dicts() == []
    assert calls.sql("SELECT duration FROM calls").units == {"duration": "ns"}


def test_errors_are_exceptions(calls, tmp_path, monkeypatch):
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    with pytest.raises(FileNotFoundError, match="no such trace"):
        perfquet.open("absent.pqt")
    with pytest.raises(FileNotFoundError):
        perfquet.read("absent.data")
    with pytest.raises(perfquet.TraceError):
        perfquet.open(tmp_path)
    with pytest.raises(perfquet.TraceError, match="unknown trace format"):
        perfquet.read(b"no trace\n" * 9)
    with pytest.raises(ValueError, match="DEBUGINFOD_URLS"):
        perfquet.read(SAMPLES, debuginfod=True)
    with pytest.raises(ValueError, match="expected a format"):
        perfquet.read(SAMPLES, format="nonsense")
    with pytest.raises(ValueError):
        perfquet.open()
    with pytest.raises(perfquet.QueryError, match="functon"):
        calls.sql("SELECT functon FROM calls")
    with pytest.raises(KeyError):
        calls["absent"]
    with pytest.raises(ValueError, match="expected a report"):
        calls.report("absent")
    with pytest.raises(ValueError, match="--absent"):
        calls.report("top", absent=True)
    with pytest.raises(FileExistsError):
        perfquet.convert(CALLS, output=calls.paths[0])
    summary = perfquet.convert(CALLS, output=tmp_path / "a.pqt", symbols=[])
    assert summary["rows"]["calls"] == len(calls["calls"])
    perfquet.convert(CALLS, output=tmp_path / "a.pqt", symbols=[], force=True)


def test_what_is_missing_is_a_warning():
    cut = CALLS.read_bytes()[: -(CALLS.stat().st_size // 4)]
    with pytest.warns(perfquet.Warning, match="read error|lost"):
        trace = perfquet.read(cut, symbols=[])
    assert trace.summary["problems"] + trace.summary["losses"] > 0
    assert len(trace["problems"]) == trace.summary["problems"]
    with pytest.warns(perfquet.Warning, match="other events") as warned:
        perfquet.read(CALLS, symbols=[]).top()
    assert {pathlib.Path(each.filename).name for each in warned} == {"test_perfquet.py"}


def test_several_traces_and_another_directory(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(pathlib.Path(calls.paths[0]).parent)
    perfquet.convert(CALLS, output="--b.pqt", symbols=[])
    both = perfquet.open("calls.pqt", "--b.pqt", memory=1 << 30, threads=1)
    monkeypatch.chdir(tmp_path)
    assert both.sql("SELECT count(DISTINCT trace) FROM calls").scalar() == 2
    assert len(both.durations()) > 0


def test_traces_at_urls(calls):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    folder = str(pathlib.Path(calls.paths[0]).parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = perfquet.open(f"http://127.0.0.1:{server.server_port}/calls.pqt")
        query = "SELECT * FROM calls ORDER BY time, call_id"
        assert there.sql(query).to_dicts() == calls.sql(query).to_dicts()
        with pytest.raises(perfquet.Error, match="no-such"):
            perfquet.open(f"http://127.0.0.1:{server.server_port}/no-such.pqt")
        server.shutdown()


def test_a_temporary_trace_is_removed():
    trace = perfquet.read(SCRIPT)
    [path] = trace.paths
    assert os.path.isdir(path)
    rows = trace["samples"].rows()
    del trace
    gc.collect()
    assert not os.path.exists(path)
    assert len(rows) == 1


def test_progress_and_its_exceptions(tmp_path):
    path = tmp_path / "large.txt"
    path.write_bytes(SCRIPT * 300_000)
    seen = []
    perfquet.read(path, progress=lambda *bytes: seen.append(bytes))
    assert seen and seen == sorted(seen) and seen[-1][1] == path.stat().st_size

    def fail(done, total):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        perfquet.convert(path, output=tmp_path / "a.pqt", progress=fail)
    assert not (tmp_path / "a.pqt").exists()


def interrupted(code, path, after=1.0):
    """Runs code in another process, interrupts it once it said "go", and returns what it said last, and the seconds."""
    code = textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "go\n"
    time.sleep(after)
    before = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip(), time.monotonic() - before


CROSS = "SELECT count(*) FROM calls a, calls b, calls c, calls d, calls e WHERE a.call_id * b.call_id < c.call_id + d.call_id - e.call_id"


@pytest.mark.parametrize(
    "work",
    [
        f"trace.sql('''{CROSS}''')",
        f"list(trace.query('''{CROSS}'''))",
        f"trace.report('plot', '''SELECT 1::bigint AS time, ({CROSS}) AS n''')",
    ],
)
def test_ctrl_c_ends_a_query(calls, work):
    code = f"""
        import sys, perfquet
        trace = perfquet.open(sys.argv[1])
        print("go", flush=True)
        try:
            {work}
        except KeyboardInterrupt:
            print(trace.sql("SELECT 1 + 1").scalar())
    """
    said, seconds = interrupted(code, calls.paths[0])
    assert said == "2" and seconds < 20


@pytest.mark.parametrize("conversion", ["arrow", "polars"])
def test_ctrl_c_ends_a_relation(calls, conversion):
    pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    code = f"""
        import sys, perfquet
        trace = perfquet.open(sys.argv[1])
        print("go", flush=True)
        try:
            trace.query('''{CROSS}''').{conversion}()
        except Exception as error:
            print("interrupted" in str(error), trace.sql("SELECT 1 + 1").scalar())
    """
    said, seconds = interrupted(code, calls.paths[0])
    assert said == "True 2" and seconds < 20


def test_ctrl_c_ends_an_import(tmp_path):
    path = tmp_path / "large.txt"
    path.write_bytes(SCRIPT * 1_500_000)
    code = """
        import os, sys, perfquet
        output = sys.argv[1] + ".pqt"
        print("go", flush=True)
        try:
            perfquet.convert(sys.argv[1], output=output)
        except KeyboardInterrupt:
            print(os.path.exists(output))
    """
    said, seconds = interrupted(code, str(path), after=0.3)
    assert said == "False" and seconds < 20


def test_threads_query_at_once(calls):
    expected = calls.sql("SELECT sum(call_id) FROM calls").scalar()
    sums, names = [], []

    def work():
        for _ in range(5):
            sums.append(calls.sql("SELECT sum(call_id) FROM calls").scalar())
            names.append(len(calls.report("durations")))

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sums == [expected] * 20 and len(set(names)) == 1 and len(names) == 20


def test_a_forked_process_is_told(calls):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            calls.sql("SELECT 1")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert "before fork()" in os.read(read, 1000).decode()


def test_the_stubs_name_what_exists():
    stubs = (pathlib.Path(perfquet.__file__).parent / "__init__.pyi").read_text()
    for name in perfquet.__all__:
        assert f"class {name}" in stubs or f"def {name}" in stubs or f" as {name}" in stubs, name
    for name in [name for name in dir(perfquet.Trace) if not name.startswith("_")]:
        assert f"def {name}(" in stubs, name


def test_the_notebook_runs(tmp_path, monkeypatch):
    notebook = json.loads((ROOT / "docs" / "python.ipynb").read_text())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.dat").write_bytes(CALLS.read_bytes())
    (tmp_path / "perf.data").write_bytes(SAMPLES.read_bytes())
    names = {}
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    for cell in cells:
        *lines, last = cell.rstrip().split("\n")
        exec("\n".join(lines), names)
        try:
            code = compile(last, "cell", "eval")
        except SyntaxError:
            exec(last, names)
        else:
            shown = eval(code, names)
            html = getattr(shown, "_repr_html_", None)
            assert html is None or html()
