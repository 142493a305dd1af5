"""`python job.py` in BATCH mode as users run it: results, failures, Ctrl-C, kills, and nothing left behind.

Each test starts a SparkDriver of its own.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.embedded.programs import Program
from tests.cluster.embedded.waiting import wait_until
from tests.support.process_names import command_of

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "examples" / "flights"
#: Seconds that a program may take on a busy machine: Java and Spark start first.
LIMIT = 600.0

_HEAD = """
from yarrow.datastream import StreamExecutionEnvironment, RuntimeExecutionMode
env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.set_parallelism(2)
"""
#: Begins, says so in a file, and takes for ever.
_ENDLESS = (
    _HEAD
    + """
import pathlib, threading
begun = pathlib.Path("begun").absolute()
def stay(x):
    begun.touch()
    threading.Event().wait()
env.from_sequence(0, 10).map(stay).print()
env.execute("endless")
"""
)


def program(folder: Path, text: str, *arguments: str, **environment: str) -> Program:
    begun = Program(folder, text, *arguments, **environment)
    begun.limit = LIMIT
    return begun


def until_begun(begun: Program, folder: Path) -> None:
    """Returns when the function of `_ENDLESS` runs."""

    def has() -> bool:
        assert begun.process.poll() is None, begun.wait()
        return (folder / "begun").exists()

    wait_until(has, lambda: "the function did not begin", LIMIT)


def processes_of_spark(begun: Program) -> list[psutil.Process]:
    """The SparkDriver, Java, and its Python workers."""
    found = begun.processes()
    names = [command_of(process) for process in found]
    assert any("SparkSubmit" in name for name in names), names
    return found


def test_the_flights_example_gives_the_table_of_a_plain_loop() -> None:
    job = subprocess.run(
        [
            *(sys.executable, "-m", "yarrow.cli.main", "run", "-Dexecution.runtime-mode=BATCH"),
            str(FLIGHTS / "delays.py"),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert job.returncode == 0, job.stderr
    table, cancelled = runpy.run_path(str(FLIGHTS / "plain.py"))["plain_delays"]()
    # `yarrow run` prints the end of the job when it comes, between whatever lines of the program.
    assert re.findall(r"(?:EWR|JFK|LGA) {5}\w\w[ \d.,-]+\d", job.stdout) == [
        f"{origin:8}{carrier:8}{flights:9,}{mean:12.1f}{worst:8,}"
        for (origin, carrier), (flights, mean, worst) in sorted(table.items())
    ]
    assert (cancelled, job.stdout.count("8,255 flights were cancelled.")) == (8255, 1)


def test_each_key_is_printed_once(tmp_path: Path) -> None:
    text = (
        _HEAD
        + """
from yarrow.common import Types
from yarrow.common.accumulators import IntCounter
from yarrow.datastream import MapFunction
class Counted(MapFunction):
    def open(self, context):
        self.rows = IntCounter()
        context.add_accumulator("rows", self.rows)
    def map(self, word):
        self.rows.add(1)
        return word, 1
words = "to be or not to be that is the question".split()
counts = (env.from_collection(words).map(Counted(), Types.TUPLE([Types.STRING(), Types.INT()]))
    .key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1])))
counts.print()
result = env.execute("words")
print("after", result.get_accumulator_result("rows"))
"""
    )
    # The program stands elsewhere, and files of the working directory bear names of modules that the driver, Java's
    # starter and Spark's Python workers import.
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "job.py").write_text(text)
    for name in ("py4j", "queue", "resource", "secrets"):
        (tmp_path / f"{name}.py").write_text(
            "raise SystemExit('a file of the working directory was imported')\n"
        )
    begun = program(tmp_path, text, str(tmp_path / "programs" / "job.py"))
    outcome = begun.wait()
    assert outcome.status == 0, outcome.err
    expected = {"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1}
    assert sorted(re.sub(r"^\d+> ", "", line) for line in outcome.out.splitlines()[:-1]) == sorted(
        str(pair) for pair in expected.items()
    )
    assert outcome.out.splitlines()[-1] == "after 10"
    begun.assert_no_files_left()


def test_files_are_committed_together_and_nothing_else_is_left(tmp_path: Path) -> None:
    text = (
        _HEAD
        + """
from yarrow.common import Encoder, Types
from yarrow.datastream.connectors.file_system import FileSink
sink = FileSink.for_row_format("out", Encoder.simple_string_encoder()).build()
(env.from_sequence(1, 1000).map(lambda x: (x % 7, x), Types.TUPLE([Types.INT(), Types.INT()]))
    .key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))
    .map(str, Types.STRING()).sink_to(sink))
env.execute("files")
"""
    )
    begun = program(tmp_path, text)
    outcome = begun.wait()
    assert outcome.status == 0, outcome.err
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [path.name for path in files if "inprogress" in path.name or path.name.startswith((".", "_"))]
    lines = sorted(line for path in files for line in path.read_text().splitlines())
    assert lines == sorted(str((key, sum(range(key or 7, 1001, 7)))) for key in range(7))


def test_a_failing_function_shows_the_users_traceback_and_nothing_of_spark(tmp_path: Path) -> None:
    text = (
        _HEAD
        + """
def parse(text):
    return int(text)
env.from_collection(["1", "x7"]).map(parse).name("parse").print()
try:
    env.execute("numbers")
except Exception as error:
    print(type(error).__name__)
    print(error)
"""
    )
    begun = program(tmp_path, text)
    outcome = begun.wait()
    kind, *told = outcome.out.splitlines()
    assert kind == "JobExecutionError"
    assert told[0] == "Traceback (most recent call last):"
    assert "in parse" in told[1]
    assert "ValueError: invalid literal for int() with base 10: 'x7'" in told
    assert told[-1].endswith("failed in parse, at the record 'x7'.")
    for word in ("py4j", "java.", "org.apache", "pyspark"):
        assert word not in outcome.out + outcome.err
    begun.assert_no_files_left()


@pytest.mark.parametrize("how", ["Ctrl-C", "killed"])
def test_nothing_of_spark_outlives_the_program(tmp_path: Path, how: str) -> None:
    begun = program(tmp_path, _ENDLESS)
    until_begun(begun, tmp_path)
    processes_of_spark(begun)
    begun.signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
    outcome = begun.wait()
    assert outcome.status == (-signal.SIGINT if how == "Ctrl-C" else -signal.SIGKILL), outcome.err
    assert "Traceback" not in outcome.err
    begun.assert_nothing_left()
    # Of a killed program the SparkDriver removes what the program cannot remove itself.
    begun.assert_no_files_left()


def test_rest_says_what_runs_and_cancels_it(tmp_path: Path) -> None:
    begun = program(tmp_path, _ENDLESS)
    until_begun(begun, tmp_path)
    begun.processes()
    ask = begun.rest()

    overview = ask("/jobs/overview")["jobs"]
    assert isinstance(overview, list)
    (job,) = overview
    assert (job["name"], job["state"], job["jobType"]) == ("endless", "RUNNING", "BATCH")
    details = ask(f"/jobs/{job['jid']}")
    assert details["job-type"] == "BATCH"
    assert str(details["spark-application"]).startswith("local-")
    # Spark's own pages, read from the driver: their JSON, since that is what is easily asked.
    pages = details["spark-pages"]
    assert pages == f"/jobs/{job['jid']}/spark/"
    configuration = ask(f"/jobs/{job['jid']}/config")["execution-config"]
    assert configuration["user-config"]["spark-pages"] == pages
    (shown,) = ask(f"{pages}api/v1/applications")
    assert shown["id"] == details["spark-application"]
    ask(f"/jobs/{job['jid']}?mode=cancel", "PATCH")
    outcome = begun.wait()
    assert outcome.status == 1
    assert "was cancelled" in outcome.err
    begun.assert_nothing_left()


def test_a_killed_driver_fails_the_job_by_name(tmp_path: Path) -> None:
    begun = program(tmp_path, _ENDLESS)
    until_begun(begun, tmp_path)
    (driver,) = (each for each in begun.processes() if "driver_main" in command_of(each))
    driver.kill()
    outcome = begun.wait()
    assert outcome.status == 1
    assert "SparkDriver" in outcome.err
    assert "SIGKILL" in outcome.err
    begun.assert_nothing_left()


def test_a_missing_java_is_one_sentence(tmp_path: Path) -> None:
    begun = program(
        tmp_path,
        _HEAD + "env.from_sequence(1, 3).print()\nenv.execute('numbers')\n",
        JAVA_HOME=str(tmp_path / "nowhere"),
        PATH="/nonexistent",
    )
    outcome = begun.wait()
    assert outcome.status == 1
    assert "install Java 17 or newer" in outcome.err
    assert "java.lang" not in outcome.err
    begun.assert_no_files_left()
