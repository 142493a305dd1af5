"""`python job.py` as users run it: output, failures, Ctrl-C, a killed client, and nothing left behind."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded.programs import DEADLINE, Program, run

pytestmark = pytest.mark.cluster

_HEAD = """
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
"""
#: It takes its time for each row: a job that is only to be there leaves the cores to others.
_ENDLESS = (
    _HEAD
    + """
import time
(env.from_sequence(0, 10**15).map(lambda x: time.sleep(0.01) or x)
    .filter(lambda x: x < 10 or x % 100 == 0).map(lambda x: "running").print())
env.execute("endless")
"""
)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_prints_what_the_job_prints(tmp_path: Path, start: str) -> None:
    text = (
        _HEAD
        + f"""
env.get_configuration().set_string("taskmanager.worker.start", "{start}")
env.set_parallelism(1)
env.from_collection([1, 2, 3]).map(lambda x: x * 2).print()
result = env.execute("doubles")
print("after", len(str(result.get_job_id())))
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == ["2", "4", "6", "after 32"]
    assert outcome.err == ""
    (address,) = outcome.addresses
    assert re.fullmatch(r"http://[a-z0-9.]+:\d+", address)


def test_everything_is_printed_before_execute_returns(tmp_path: Path) -> None:
    text = (
        _HEAD
        + """
def show(x):
    print("row", x)
    return x
env.set_parallelism(1)
env.from_sequence(1, 20_000).map(show).filter(lambda x: False).print()
env.execute()
print("end")
"""
    )
    outcome = run(tmp_path, text)
    lines = outcome.out.splitlines()
    assert lines[:-1] == [f"row {number}" for number in range(1, 20_001)]
    assert lines[-1] == "end"


def test_a_failing_function_shows_the_users_traceback_first(tmp_path: Path) -> None:
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
    raise SystemExit(3)
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 3
    lines = [line for line in outcome.out.splitlines() if line not in ("1> 1", "2> 1")]
    assert lines[0] == "JobExecutionError"
    assert lines[1] == "Traceback (most recent call last):"
    assert "job.py" in lines[2] and "in parse" in lines[2]
    assert "ValueError: invalid literal for int() with base 10: 'x7'" in outcome.out
    assert "failed in parse, at the record 'x7'" in outcome.out


@pytest.mark.parametrize(
    ("error", "told"), [("SystemExit(3)", "SystemExit: 3"), ("KeyboardInterrupt()", "KeyboardInterrupt")]
)
def test_an_exit_of_a_computed_function_ends_the_job_and_runs_once(
    tmp_path: Path, error: str, told: str
) -> None:
    looks = tmp_path / "looks"
    text = (
        _HEAD
        + f"""
class Leaving:
    @property
    def value(self):
        with open({str(looks)!r}, "a") as file:
            file.write("looked\\n")
        raise {error}

env.set_parallelism(1)
env.from_collection([1]).map(lambda x: Leaving()).map(lambda x: x.value).name("leave").print()
try:
    env.execute("leaving")
except Exception as error:
    print(type(error).__name__)
    print(error)
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("JobExecutionError\n")
    assert told in outcome.out and "failed in leave" in outcome.out
    assert looks.read_text() == "looked\n"


def test_an_inlined_lambda_that_fails_shows_its_line(tmp_path: Path) -> None:
    text = (
        _HEAD
        + """
numbers = env.from_collection([1, 2, 0])
numbers.map(lambda x: x + 1).map(lambda x: 12 / (x - 1)).name("divide").print()
try:
    env.execute("numbers")
except Exception as error:
    print(error)
    raise SystemExit(3)
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 3
    lines = [line for line in outcome.out.splitlines() if not line.startswith(("1> ", "2> "))]
    assert lines[0] == "Traceback (most recent call last):"
    assert "job.py" in lines[1] and "in <lambda>" in lines[1]
    assert "12 / (x - 1)" in lines[2]
    assert "ZeroDivisionError: division by zero" in outcome.out
    assert "failed in divide, at the record 1" in outcome.out


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import sys; sys.exit(7)", "SystemExit"),
        ("import os; os._exit(9)", "exit status 9"),
    ],
    ids=["segfault", "sys.exit", "os._exit"],
)
def test_a_function_that_ends_its_worker_is_the_operators_failure(
    tmp_path: Path, body: str, expected: str
) -> None:
    text = (
        _HEAD
        + f"""
def crash(x):
    {body}
env.from_collection([1]).map(crash).name("crasher").print()
env.execute()
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 1
    assert "JobExecutionError" in outcome.err
    assert "crasher" in outcome.err
    assert expected in outcome.err


def test_ctrl_c_cancels_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path, _ENDLESS)
    assert "running" in program.read_line()
    assert program.processes()
    program.signal(signal.SIGINT)
    outcome = program.wait()
    assert outcome.status == -signal.SIGINT
    assert re.fullmatch(r"Job [0-9a-f]{32} was cancelled by Ctrl-C\.\n", outcome.err)
    program.assert_nothing_left()
    program.assert_no_files_left()


@pytest.fixture
def taken_signals() -> Iterator[None]:
    """Programs take SIGHUP, also if the tests run under nohup: a process inherits which signals are ignored."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -signal.SIGINT)],
    ids=["SIGTERM", "SIGHUP", "SIGINT"],
)
def test_a_signal_ends_a_program_whose_tasks_are_its_threads_and_leaves_nothing(
    tmp_path: Path, taken_signals: None, number: signal.Signals, status: int
) -> None:
    setting = 'env.get_configuration().set_string("execution.in-process", "true")\n'
    program = Program(tmp_path, _ENDLESS.replace("(env.from_sequence", setting + "(env.from_sequence"))
    assert "running" in program.read_line()
    assert list(program.tmp.iterdir())
    assert not program.processes()
    program.signal(number)
    outcome = program.wait()
    assert outcome.status == status
    assert re.fullmatch(r"Job [0-9a-f]{32} was .*cancelled.*\n", outcome.err)
    assert list(program.tmp.iterdir()) == []


@pytest.mark.parametrize("task_executors", [1, 2])
def test_a_killed_client_leaves_nothing(tmp_path: Path, task_executors: int) -> None:
    slots = f'env.get_configuration().set_string("taskmanager.numberOfTaskSlots", "{2 // task_executors}")\n'
    program = Program(tmp_path, _ENDLESS.replace("(env.from_sequence", slots + "(env.from_sequence"))
    assert "running" in program.read_line()
    assert program.processes()
    program.signal(signal.SIGKILL)
    program.wait()
    program.assert_nothing_left()
    # Its last TaskExecutor removes what it could not remove itself.
    program.assert_no_files_left()


def test_a_program_that_does_not_wait_ends_its_job(tmp_path: Path) -> None:
    program = Program(tmp_path, _ENDLESS.replace("env.execute(", "client = env.execute_async("))
    outcome = program.wait()
    assert outcome.status == 0
    assert "was still running when the program ended: it was cancelled." in outcome.err
    program.assert_no_files_left()


@pytest.mark.parametrize("in_process", ["false", "true"], ids=["processes", "threads"])
def test_a_program_whose_reader_has_gone_is_cancelled_and_ends_as_any_other(
    tmp_path: Path, in_process: str
) -> None:
    setting = f'env.get_configuration().set_string("execution.in-process", "{in_process}")\n'
    text = setting + 'env.from_sequence(0, 10**15).print()\nenv.execute("endless")\nprint("not reached")\n'
    program = Program(tmp_path, _HEAD + text)
    assert program.read_line()
    program.processes()
    assert program.process.stdout is not None and program.process.stderr is not None
    program.process.stdout.close()
    with program.process.stderr as stream:
        err = stream.read()
    assert program.process.wait(DEADLINE) == 1, err
    assert "BrokenPipeError: [Errno 32] Broken pipe" in err
    assert "was still running" not in err
    program.assert_nothing_left()
    program.assert_no_files_left()


def test_a_program_that_has_cancelled_its_job_is_not_told_that_it_ran(tmp_path: Path) -> None:
    text = _ENDLESS.replace("env.execute(", "client = env.execute_async(") + "client.cancel()\n"
    outcome = run(tmp_path, text)
    assert outcome.status == 0
    assert outcome.err == ""


def test_a_port_in_use_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = _HEAD.replace(
            "env.set_parallelism(2)", f"env.get_configuration().set_string('rest.port', '{port}')"
        )
        outcome = run(tmp_path, text + "env.from_collection([1]).print()\nenv.execute()")
    assert outcome.status == 1
    assert f"port {port} is in use. Set rest.port" in outcome.err
    assert "Set rest.bind-port to 0" in outcome.err
    assert outcome.out == ""


def test_port_0_takes_a_free_one_beside_a_cluster_on_the_configured_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {"rest.port": taken.getsockname()[1], "rest.bind-port": 0}
        lines = "".join(
            f"env.get_configuration().set_string('{key}', '{port}')\n" for key, port in ports.items()
        )
        outcome = run(tmp_path, f"{_HEAD}\n{lines}env.from_collection([1]).print()\nenv.execute()")
    assert outcome.status == 0, outcome.err


def test_executing_twice_and_from_two_threads(tmp_path: Path) -> None:
    text = """
import threading
from yarrow.datastream import StreamExecutionEnvironment
def job(name):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection([name]).map(lambda x: x + "!").print()
    env.execute(name)
job("first")
job("second")
threads = [threading.Thread(target=job, args=(name,)) for name in ("left", "right")]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    outcome = run(tmp_path, text)
    assert outcome.status == 0, outcome.err
    assert outcome.lines == ["first!", "left!", "right!", "second!"]


def test_the_configuration_directory_counts(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("parallelism.default: 3\nrest.port: 1\n")
    text = """
from yarrow.datastream import StreamExecutionEnvironment
print(StreamExecutionEnvironment.get_execution_environment().get_parallelism())
"""
    outcome = run(tmp_path, text, YARROW_CONF_DIR=str(tmp_path))
    assert outcome.out == "3\n", outcome.err


def test_task_executors_of_a_configured_number_of_slots(tmp_path: Path) -> None:
    text = (
        _HEAD.replace("(2)", "(3)")
        + """
env.get_configuration().set_string("taskmanager.numberOfTaskSlots", "1")
from yarrow.datastream import MapFunction
class Where(MapFunction):
    def open(self, context):
        import os
        self.supervisor = os.getppid()
    def map(self, value):
        return str(self.supervisor)
found = list(env.from_sequence(1, 300).rebalance().map(Where()).execute_and_collect())
print(len(found), len(set(found)))
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.out == "300 3\n", outcome.err


def test_a_forked_child_leaves_the_cluster_alone(tmp_path: Path) -> None:
    text = (
        _HEAD
        + """
import multiprocessing, time
env.from_collection([1, 2]).map(lambda x: x).print()
client = env.execute_async()
child = multiprocessing.get_context("fork").Process(target=print, args=("child",))
child.start()
child.join()
client.get_job_execution_result().result()
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 0
    assert outcome.err == ""
    assert outcome.lines == ["1> 1", "2> 2", "child"] or outcome.lines == ["1> 2", "2> 1", "child"]


def test_asked_for_its_status_while_its_cluster_ends(tmp_path: Path) -> None:
    """Between the job's end and the cluster's no question goes to a dispatcher that has gone."""
    text = (
        _HEAD
        + """
env.set_parallelism(1)
for _ in range(3):
    env.from_sequence(0, 10**15).filter(lambda x: False).print()
    client = env.execute_async()
    client.cancel().result()
    while client.get_job_status().result().name != "CANCELED":
        pass
    print(client.get_job_status().result().name)
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == ["CANCELED"] * 3


def test_inside_a_running_event_loop(tmp_path: Path) -> None:
    text = (
        _HEAD
        + """
import asyncio
async def cell():
    env.set_parallelism(1)
    env.from_collection([1]).print()
    client = env.execute_async()
    return (await client.get_job_execution_result()).get_net_runtime() >= 0, env.execute
def again(execute):
    env.from_collection([2]).print()
    execute()
async def main():
    done, execute = await cell()
    again(execute)
    print(done)
asyncio.run(main())
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == ["1", "2", "True"]


@pytest.mark.parametrize("in_process", ["false", "true"])
def test_classes_of_the_main_program_travel(tmp_path: Path, in_process: str) -> None:
    text = (
        _HEAD
        + f"""
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
env.get_configuration().set_string("execution.in-process", "{in_process}")

class Colour(Enum):
    RED = 1
    BLUE = 2

class Place(NamedTuple):
    row: int
    column: int

@dataclass(frozen=True)
class Key:
    place: Place
    colour: Colour

@dataclass
class Visit:
    key: Key
    count: int

def visit(number):
    return Visit(Key(Place(number % 2, 0), Colour.RED if number % 2 else Colour.BLUE), 1)

def add(a, b):
    assert type(a) is Visit and isinstance(b.key.colour, Colour)
    return Visit(a.key, a.count + b.count)

stream = env.from_collection(list(range(6))).map(visit)
visits = list(stream.key_by(lambda v: v.key).reduce(add).execute_and_collect())
assert all(type(v) is Visit for v in visits)
last = {{v.key: v.count for v in visits}}
print(sorted((k.place.row, k.colour.name, count) for k, count in last.items()))
enums = list(env.from_collection(list(range(6))).map(visit).key_by(lambda v: v.key.colour).reduce(add)
    .execute_and_collect())
print(max(v.count for v in enums))
"""
    )
    outcome = run(tmp_path, text)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == ["[(0, 'BLUE', 3), (1, 'RED', 3)]", "3"]
