"""Asks nine questions about a lake in several engines, one of them Spark on a cluster of a master and two workers, and compares the answers.

    python3 tests/bench/nine_questions.py LAKE [ENGINE]...

Engines are perfquet-query, whose answers the others are compared with, duckdb, remote (DuckDB through a file system that is not local), polars, clickhouse,
datafusion and spark. Prints the CPU seconds of each question, and of opening the tables, and the memory at most; of Spark, elapsed seconds of the
whole and CPU seconds of its processes. The lake has tables samples, stacks, frames and calls, and one trace for each host.
"""

import csv
import io
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

P99 = {
    "perfquet-query": "quantile(duration, 0.99)",
    "duckdb": "quantile_disc(duration, 0.99)",
    "remote": "quantile_disc(duration, 0.99)",
    "clickhouse": None,
    "datafusion": None,
    "polars": None,
    "spark": "percentile_disc(0.99) WITHIN GROUP (ORDER BY duration)",
}


def questions(engine):
    """Nine questions by name; None where an engine lacks the function."""
    p99 = P99[engine]
    # Addresses are unsigned numbers in perfquet-query, and the same bits with a sign in a lake.
    kernel = "address >= 9223372036854775808" if engine == "perfquet-query" else "address < 0"
    return {
        "samples by host": "SELECT host, count(*) AS n, sum(period) AS total FROM samples GROUP BY host",
        "calls by host": "SELECT host, count(*) AS n, sum(duration) AS total FROM calls GROUP BY host",
        "two tables": "SELECT s.host, s.n, c.n AS m FROM (SELECT host, count(*) AS n FROM samples GROUP BY host) s "
        "JOIN (SELECT host, count(*) AS n FROM calls GROUP BY host) c ON s.host = c.host",
        "thread names": "SELECT comm, count(*) AS n FROM samples GROUP BY comm",
        "addresses of the kernel": f"SELECT host, count(*) AS n FROM frames WHERE {kernel} GROUP BY host",
        "p99 by host": p99 and f"SELECT host, {p99} AS p99 FROM calls GROUP BY host",
        # In steps: DuckDB would join samples with frames first, by their host alone.
        "join of three tables": "SELECT f.module, sum(h.n) AS n FROM (SELECT k.host AS host, k.frame_id AS frame_id, sum(s.n) AS n FROM "
        "(SELECT host, user_stack, count(*) AS n FROM samples GROUP BY host, user_stack) s JOIN stacks k "
        "ON s.user_stack = k.stack_id AND s.host = k.host GROUP BY k.host, k.frame_id) h "
        "JOIN frames f ON h.frame_id = f.frame_id AND h.host = f.host GROUP BY f.module",
        "one host": "SELECT comm, count(*) AS n FROM samples WHERE host = 'h00042' GROUP BY comm",
        "traces": "SELECT host, count(*) AS n FROM threads GROUP BY host",
    }


def plain(rows):
    return sorted(tuple("" if value is None else str(value) for value in row) for row in rows)


def cpu():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def statements(lake, dialect):
    """Statements that open the lake, without comments."""
    text = subprocess.run(["perfquet-convert", f"lake:{lake}", "--to", f"ddl={dialect}", "-o", "-"], check=True, capture_output=True, text=True).stdout
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def own(lake):
    def ask(question):
        # The column of a trace's name is that of its host here; durations are intervals, and `CAST(… AS BIGINT)` gives their nanoseconds.
        question = re.sub(r"\bhost\b", "trace", question)
        question = question.replace("sum(duration)", "CAST(sum(duration) AS BIGINT)").replace(P99["perfquet-query"], f"CAST({P99['perfquet-query']} AS BIGINT)")
        text = subprocess.run(["perfquet-query", "sql", f"lake:{lake}", question, "--format", "csv"], check=True, capture_output=True, text=True).stdout
        return list(csv.reader(io.StringIO(text)))[1:]

    return ask


def duckdb(lake, remote=False):
    import duckdb

    db = duckdb.connect()
    text = statements(lake, "duckdb")
    if remote:
        import fsspec.implementations.local

        class Elsewhere(fsspec.implementations.local.LocalFileSystem):
            protocol = "elsewhere"

        db.register_filesystem(Elsewhere())
        text = text.replace(f"'{lake}", f"'elsewhere://{lake}")
    for statement in db.extract_statements(text):
        db.execute(statement)
    return lambda question: db.execute(question).fetchall()


def polars(lake):
    space = {}
    exec(statements(lake, "polars"), space)
    context = next(value for value in space.values() if type(value).__name__ == "SQLContext")
    return lambda question: context.execute(question, eager=True).rows()


def clickhouse(lake):
    import chdb.session

    session = chdb.session.Session()
    for statement in statements(lake, "clickhouse").split(";\n"):
        if statement.strip():
            session.query(statement)
    return lambda question: [tuple(json.loads(line).values()) for line in str(session.query(question, "JSONEachRow")).splitlines()]


def datafusion(lake):
    import datafusion

    context = datafusion.SessionContext()
    for statement in statements(lake, "datafusion").split(";\n"):
        if statement.strip():
            context.sql(statement)
    return lambda question: [tuple(row.values()) for row in context.sql(question).to_arrow_table().to_pylist()]


def in_process(engine, lake):
    """Answers of one engine by name, printed as JSON with its CPU seconds."""
    opened = {"perfquet-query": own, "duckdb": duckdb, "remote": lambda lake: duckdb(lake, True), "polars": polars, "clickhouse": clickhouse, "datafusion": datafusion}
    start = cpu()
    ask = opened[engine](lake)
    seconds, answers = {"open": cpu() - start}, {}
    for name, question in questions(engine).items():
        if question is not None:
            start = cpu()
            answers[name] = plain(ask(question))
            seconds[name] = cpu() - start
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print("\0" + json.dumps([answers, seconds, memory // 1024]))


def cluster(lake):
    """Spark's master, two workers of one core, and `spark-sql -f`, each a process of its own on the loopback interface."""
    import pyspark

    home = pathlib.Path(pyspark.__file__).parent
    work = pathlib.Path(tempfile.mkdtemp())
    environment = dict(os.environ, SPARK_LOCAL_IP="127.0.0.1", SPARK_HOME=str(home), SPARK_WORKER_DIR=str(work))
    part = "org.apache.spark.deploy."

    def start(name, *arguments):
        log = open(work / f"{name}.log", "w")
        return subprocess.Popen([home / "bin/spark-class", *arguments], stdout=log, stderr=log, env=environment)

    def used(process):
        """CPU seconds of a process and of its children, those that have ended and those that run."""
        ticks, tree = 0, [process.pid]
        while tree:
            pid = tree.pop()
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(int(fields[at]) for at in (11, 12, 13, 14))
            tree += [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            for task in os.listdir(f"/proc/{pid}/task"):
                if int(task) != pid:
                    tree += [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        return ticks / os.sysconf("SC_CLK_TCK")

    master = start("master", part + "master.Master", "--host", "127.0.0.1", "--port", "7077", "--webui-port", "8090")
    workers = [start(f"worker{n}", part + "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", str(8091 + n), "spark://127.0.0.1:7077") for n in (0, 1)]
    try:
        asked = questions("spark")
        script = work / "questions.sql"
        script.write_text(statements(lake, "spark") + "".join(f"SELECT '\x01{name}';\n{question};\n" for name, question in asked.items()))
        began, before = time.time(), cpu()
        done = subprocess.run(
            [home / "bin/spark-sql", "--master", "spark://127.0.0.1:7077", "--conf", "spark.sql.shuffle.partitions=4", "--conf", "spark.executor.memory=900m", "-f", script],
            capture_output=True, text=True, env=environment, cwd=work,
        )
        elapsed, driver = time.time() - began, cpu() - before
        if done.returncode != 0:
            sys.exit(done.stderr[-3000:])
        answers, name = {}, None
        for line in done.stdout.splitlines():
            if line.startswith("\x01"):
                name = line[1:]
                answers[name] = []
            elif name is not None:
                answers[name].append(tuple("" if value == "NULL" else value.removesuffix(".0") for value in line.split("\t")))
        seconds = {"elapsed": elapsed, "driver": driver, "executors": sum(map(used, workers)), "master": used(master)}
        return {name: sorted(rows) for name, rows in answers.items()}, seconds, 0
    finally:
        for process in [*workers, master]:
            process.terminate()
            process.wait()


def main():
    lake = os.path.abspath(sys.argv[1])
    if sys.argv[2:3] == ["--in-process"]:
        return in_process(sys.argv[3], lake)
    engines = sys.argv[2:] or [engine for engine in P99 if engine != "perfquet-query"]
    right, wrong = None, 0
    for engine in ["perfquet-query", *engines]:
        if engine == "spark":
            answers, seconds, memory = cluster(lake)
        else:
            done = subprocess.run([sys.executable, __file__, lake, "--in-process", engine], check=True, stdout=subprocess.PIPE, text=True)
            answers, seconds, memory = json.loads(done.stdout.split("\0", 1)[1])
            answers = {name: [tuple(row) for row in rows] for name, rows in answers.items()}
        right = right or answers
        different = [name for name, rows in answers.items() if rows != right[name]]
        wrong += len(different)
        print(f"{engine}: {len(answers)} answers, {len(different)} of them different {different or ''}; {memory} MB; " + ", ".join(f"{name} {spent:.2f}" for name, spent in seconds.items()), flush=True)
        for name in different:
            print("  ", name, answers[name][:3], "instead of", right[name][:3])
    sys.exit(wrong > 0)


main()
