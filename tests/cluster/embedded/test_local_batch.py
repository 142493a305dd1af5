"""`python job.py` in AUTOMATIC mode with little input: as users run it, without Java, through failures."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.cluster.embedded.programs import Program, run
from tests.cluster.embedded.waiting import wait_until
from tests.support.process_names import command_of

pytestmark = pytest.mark.cluster

_HEAD = """
from yarrow.datastream import StreamExecutionEnvironment, RuntimeExecutionMode
env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
env.set_parallelism(2)
"""
#: A function that stops at its record 7, in the second stage, as long as the file `again` is missing.
_STOPPING = (
    _HEAD
    + """
import os, pathlib, threading
from yarrow.common import Encoder, Types
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.datastream.connectors.file_system import FileSink
env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
begun, again = pathlib.Path("begun").absolute(), pathlib.Path("again").absolute()
def stay(row):
    if row[0] == 7 and not again.exists():
        begun.write_text(str(os.getpid()))
        threading.Event().wait()
    return row
sums = (env.from_sequence(1, 1000).map(lambda x: (x % 10, x), Types.TUPLE([Types.LONG(), Types.LONG()]))
    .key_by(lambda pair: pair[0]).sum(1).map(stay, Types.TUPLE([Types.LONG(), Types.LONG()])))
sums.print()
sink = FileSink.for_row_format("out", Encoder.simple_string_encoder()).build()
sums.map(str, Types.STRING()).sink_to(sink)
env.execute("sums")
"""
)
#: The rows that it has in the end, as texts.
_SUMS = sorted(str((key, sum(range(key or 10, 1001, 10)))) for key in range(10))


def until_begun(begun: Program, folder: Path) -> int:
    """Returns when the function of `_STOPPING` runs; the process that runs it."""

    def has() -> bool:
        assert begun.process.poll() is None, begun.wait()
        return bool((folder / "begun").exists() and (folder / "begun").read_text())

    wait_until(has, lambda: "the function did not begin")
    return int((folder / "begun").read_text())


def has_no_java(begun: Program) -> bool:
    return not [each for each in begun.processes() if "java" in command_of(each)]


def assert_exact(folder: Path, out: str) -> None:
    """Text and files have each row once."""
    assert sorted(re.sub(r"^\d+> ", "", line) for line in out.splitlines()) == _SUMS
    files = [path for path in (folder / "out").rglob("*") if path.is_file()]
    assert not [path.name for path in files if path.name.startswith((".", "_"))]
    assert sorted(line for path in files for line in path.read_text().splitlines()) == _SUMS


def test_a_program_needs_neither_java_nor_pyspark(tmp_path: Path) -> None:
    """A module that cannot be imported stands in the place of PySpark's; accumulators and logs are a stream's."""
    (tmp_path / "pyspark.py").write_text("raise ImportError('nobody needs it')\n")
    text = (
        _HEAD
        + """
import logging, sys
from yarrow.common import Types
from yarrow.common.accumulators import IntCounter
from yarrow.datastream import MapFunction
class Counted(MapFunction):
    def open(self, context):
        self.rows = IntCounter()
        context.add_accumulator("rows", self.rows)
    def map(self, word):
        self.rows.add(1)
        if word == "question":
            print("printed by a function")
            logging.getLogger("words").warning("logged by a function")
        return word, 1
words = "to be or not to be that is the question".split()
counts = (env.from_collection(words).map(Counted(), Types.TUPLE([Types.STRING(), Types.INT()]))
    .key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1])))
counts.print()
result = env.execute("words")
print("after", result.get_accumulator_result("rows"), "pyspark" in sys.modules)
"""
    )
    outcome = run(tmp_path, text, JAVA_HOME=str(tmp_path / "nowhere"), PYTHONPATH=str(tmp_path))
    assert outcome.status == 0, outcome.err
    expected = {"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1}
    lines = [re.sub(r"^\d+> ", "", line) for line in outcome.out.splitlines()]
    assert sorted(lines) == sorted([*map(str, expected.items()), "printed by a function", "after 10 False"])
    assert "logged by a function" in outcome.err


def test_in_one_process(tmp_path: Path) -> None:
    """`execution.in-process`: functions run in threads of the program."""
    text = (
        _HEAD
        + """
import collections, os
# A module of the process: what a function refers to in the program itself is copied.
collections.seen = []
def look(x):
    collections.seen.append(os.getpid())
    return x
env.from_sequence(1, 100).map(look).key_by(lambda x: x % 3).reduce(lambda a, b: a + b).print()
env.execute("threads")
print("after", collections.seen == [os.getpid()] * 100)
"""
    )
    text = text.replace(
        "get_execution_environment()",
        "get_execution_environment(Configuration.from_dict({'execution.in-process': 'true'}))",
    ).replace("\nfrom yarrow", "\nfrom yarrow.common import Configuration\nfrom yarrow", 1)
    outcome = run(tmp_path, text)
    assert outcome.status == 0, outcome.err
    *rows, after = outcome.out.splitlines()
    assert sorted(int(re.sub(r"^\d+> ", "", row)) for row in rows) == sorted(
        sum(range(rest or 3, 101, 3)) for rest in range(3)
    )
    assert after == "after True"


def test_a_failing_function_shows_the_users_traceback_with_operator_and_record(tmp_path: Path) -> None:
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
    outcome = run(tmp_path, text)
    kind, *told = outcome.out.splitlines()
    assert kind == "JobExecutionError"
    assert told[0] == "Traceback (most recent call last):"
    assert "in parse" in told[1]
    assert "ValueError: invalid literal for int() with base 10: 'x7'" in told
    assert told[-1].endswith("failed in parse, at the record 'x7'.")


def test_a_killed_worker_restarts_the_job_and_each_row_appears_once(tmp_path: Path) -> None:
    begun = Program(tmp_path, _STOPPING)
    worker = until_begun(begun, tmp_path)
    assert has_no_java(begun)
    (tmp_path / "again").touch()
    psutil.Process(worker).kill()
    outcome = begun.wait()
    assert outcome.status == 0, outcome.err
    assert_exact(tmp_path, outcome.out)
    begun.assert_nothing_left()
    begun.assert_no_files_left()


def test_a_killed_task_executor_restarts_the_job_elsewhere(tmp_path: Path) -> None:
    begun = Program(tmp_path, _STOPPING)
    worker = until_begun(begun, tmp_path)
    begun.processes()
    (tmp_path / "again").touch()
    template = psutil.Process(worker).parent()
    assert template is not None
    supervisor = template.parent()
    assert supervisor is not None and supervisor.pid != begun.process.pid
    supervisor.kill()
    outcome = begun.wait()
    assert outcome.status == 0, outcome.err
    assert_exact(tmp_path, outcome.out)
    begun.assert_nothing_left()


def test_a_worker_that_dies_without_a_restart_names_its_operator(tmp_path: Path) -> None:
    text = _STOPPING.replace("fixed_delay_restart(3, 0)", "no_restart()").replace(
        "threading.Event().wait()", "os._exit(3)"
    )
    begun = Program(tmp_path, text)
    outcome = begun.wait()
    assert outcome.status == 1
    assert re.search(
        r"the worker of slot \d ended with exit status 3 while it ran operator '.*Map.*'", outcome.err
    )
    assert "user code ended the process" in outcome.err
    assert not outcome.out and not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    begun.assert_no_files_left()


@pytest.mark.parametrize("how", ["Ctrl-C", "killed"])
def test_nothing_outlives_the_program(tmp_path: Path, how: str) -> None:
    begun = Program(tmp_path, _STOPPING)
    until_begun(begun, tmp_path)
    begun.processes()
    begun.signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
    outcome = begun.wait()
    assert outcome.status == (-signal.SIGINT if how == "Ctrl-C" else -signal.SIGKILL), outcome.err
    assert "Traceback" not in outcome.err
    begun.assert_nothing_left()
    if how == "Ctrl-C":
        # What the sinks had begun is gone too.
        assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_rest_says_who_runs_the_job_and_why_and_cancels_it(tmp_path: Path) -> None:
    begun = Program(tmp_path, _STOPPING)
    until_begun(begun, tmp_path)
    begun.processes()
    ask = begun.rest()

    overview = ask("/jobs/overview")["jobs"]
    assert isinstance(overview, list)
    (job,) = overview
    assert (job["name"], job["state"], job["jobType"]) == ("sums", "RUNNING", "BATCH")
    details = ask(f"/jobs/{job['jid']}")
    assert details["batch-runner"] == "LOCAL"
    assert details["batch-runner-reason"] == (
        "the input has 7.8 KiB, not more than 64 MiB (execution.batch.local-max-size)"
    )
    assert details["spark-application"] == ""
    ask(f"/jobs/{job['jid']}?mode=cancel", "PATCH")
    outcome = begun.wait()
    assert outcome.status == 1
    assert "was cancelled" in outcome.err
    begun.assert_nothing_left()
