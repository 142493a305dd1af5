"""Tasks in Spark's executors, which are processes of their own and do not see the driver's folder."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyspark
import pytest
from pyarrow.dataset import dataset

from tests.support.batch_runner import collecting_graph
from tests.support.looping_programs import Program
from tests.support.process_names import command_of
from tests.support.spark_driver import LIMIT, DriverUnderTest, spark_driver
from tests.support.standalone_spark import lean_executors
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.accumulators import IntCounter
from yarrow.common.types import Row
from yarrow.datastream import RuntimeContext
from yarrow.datastream.connectors.dead_letter_table import DeadLetterTable
from yarrow.datastream.connectors.file_system import FileSink
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.formats.parquet import ParquetBulkWriters
from yarrow.datastream.functions import MapFunction
from yarrow.datastream.functions.iteration_functions import LongSumAggregator, LongZeroConvergence
from yarrow.runtime.fs.hadoop_tokens import HDFS_KIND, TOKEN_FILE_VARIABLE, HadoopToken, read_tokens
from yarrow.runtime.fs.token_files import written_tokens
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import DelegationTokens

pytestmark = pytest.mark.spark

MASTER = "local-cluster[2,1,1024]"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
TOKENS = "container_tokens"
NO_WATERMARKS: Any = WatermarkStrategy.no_watermarks()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverUnderTest]:
    folder = tmp_path_factory.mktemp("executors")
    tokens = folder / TOKENS
    tokens.write_bytes(written_tokens([HadoopToken(HDFS_KIND, "namenode:8020", b"identifier", b"first")]))
    with spark_driver(
        folder,
        environment={**os.environ, TOKEN_FILE_VARIABLE: str(tokens)},
        configuration={"spark.master": MASTER, "spark.executor.memory": "512m", **lean_executors()},
    ) as started:
        assert started.application().spark_master == MASTER
        yield started


def test_spark_takes_new_delegation_tokens(driver: DriverUnderTest) -> None:
    """Java of the driver passes them on: here to executors that need none, so only their way is seen."""
    fresh = HadoopToken(HDFS_KIND, "namenode:8020", b"identifier", b"second")
    driver.update_tokens(DelegationTokens(number=1, content=written_tokens([fresh])))
    assert [each.password for each in read_tokens(driver.folder / TOKENS)] == [b"second"]
    assert Counter(dict(driver.run(sums()).collected())) == expected()
    # Spark takes a message at its own time, and surely before it has run a job.
    logs = "".join(path.read_text() for path in (driver.folder / "logs").iterdir())
    assert "Java of Spark's executors gets the new delegation tokens" in logs
    assert "UpdateDelegationTokens" not in logs, "Spark knows the message"


def executors(driver: DriverUnderTest) -> list[psutil.Process]:
    return [process for process in driver.processes() if EXECUTOR in command_of(process)]


def sums(gate: Path | None = None) -> JobGraph:
    """Sums by key; a subtask tells its executor in a file, and waits until the gate is open."""

    def gated(number: int) -> tuple[int, int]:
        if gate is not None and number == 1:
            import time

            with open(f"{gate}.{os.getpid()}", "w"):
                pass
            while not gate.exists():
                time.sleep(0.05)
        return (number % 100, number)

    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 20_000), NO_WATERMARKS, "numbers")
    keyed = numbers.map(gated).key_by(lambda pair: pair[0])
    return collecting_graph(env, keyed.reduce(lambda a, b: (a[0], a[1] + b[1])))


def expected() -> Counter[int]:
    found: Counter[int] = Counter()
    for number in range(1, 20_001):
        found[number % 100] += number
    return found


def wait_for_both_executors(driver: DriverUnderTest, folder: Path) -> None:
    """Runs a job whose two tasks wait for each other: each executor has one core.

    Spark replaces a killed executor some time later, and rows have a second copy only where there is a second one.
    """

    def met(number: int) -> int:
        (folder / f"met.{number}").touch()
        while not (folder / f"met.{3 - number}").exists():
            time.sleep(0.05)
        return number

    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 2), NO_WATERMARKS, "numbers")
    outcome = driver.run(collecting_graph(env, numbers.map(met)))
    assert sorted(outcome.collected()) == [1, 2], outcome.failure


def test_tasks_run_in_executors_and_reach_their_driver(driver: DriverUnderTest, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    graph = sums(gate)
    _, ended = driver.submit(graph)
    task = waiting_task(gate)
    above = [process.pid for process in psutil.Process(task).parents()]
    assert any(process.pid in above for process in executors(driver))
    gate.touch()
    outcome = ended.result(LIMIT)
    assert outcome.failure is None
    assert dict(outcome.collected()) == expected()


def test_an_executor_that_dies_is_replaced_and_nothing_is_lost(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    _, ended = driver.submit(sums(gate))
    task = waiting_task(gate)
    above = [process.pid for process in psutil.Process(task).parents()]
    (executor,) = [process for process in executors(driver) if process.pid in above]
    os.kill(executor.pid, signal.SIGKILL)
    gate.touch()
    outcome = ended.result(LIMIT)
    assert outcome.failure is None
    assert dict(outcome.collected()) == expected()
    assert len(outcome.collected()) == 100


def test_rows_that_a_sink_refuses_and_others_lie_once_in_files_though_a_writing_executor_dies(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def gated(number: int) -> int:
        if number == 900:
            Path(f"{gate}.{os.getpid()}").touch()
            while not gate.exists():
                time.sleep(0.05)
        return number

    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 1000), NO_WATERMARKS, "numbers")
    rows = numbers.map(gated).map(lambda number: Row(n=str(number) if number % 10 == 3 else number))
    writers = ParquetBulkWriters.for_row_type(pa.schema([("n", pa.int64())]))
    end = rows.sink_to(FileSink.for_bulk_format(str(tmp_path / "rows"), writers).build()).uid("files")
    end.on_error("dead_letter", max_share=0.5)
    end.dead_letters().sink_to(DeadLetterTable(str(tmp_path / "letters")))
    _, ended = driver.submit(env.get_job_graph())
    above = [process.pid for process in psutil.Process(waiting_task(gate)).parents()]
    (executor,) = [process for process in executors(driver) if process.pid in above]
    os.kill(executor.pid, signal.SIGKILL)
    gate.touch()
    outcome = ended.result(LIMIT)
    assert outcome.failure is None
    written = dataset(tmp_path / "rows").to_table()["n"].to_pylist()
    assert sorted(written) == [number for number in range(1, 1001) if number % 10 != 3]
    letters = dataset(tmp_path / "letters", partitioning="hive").to_table()
    told = sorted(error.partition("'")[2].partition("'")[0] for error in letters["error"].to_pylist())
    assert told == sorted(str(number) for number in range(3, 1001, 10))


#: Rows and supersteps of the iteration.
_ROWS = 5


class CountsDown(MapFunction[int, int]):
    """Takes one away and counts what is left; in superstep 3 it waits for the gate, and tells its process in a file."""

    def __init__(self, gate: Path) -> None:
        self.gate = str(gate)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.superstep = runtime_context.get_iteration_runtime_context()
        self.calls = IntCounter()
        runtime_context.add_accumulator("calls", self.calls)

    def map(self, value: int) -> int:
        gate = Path(self.gate)
        if self.superstep.get_superstep_number() == 3 and value == _ROWS - 2 and not gate.exists():
            gate.with_name(f"{gate.name}.{os.getpid()}").touch()
            while not gate.exists():
                time.sleep(0.05)
        self.calls.add(1)
        if value > 1:
            self.superstep.get_iteration_aggregator("left").aggregate(1)
        return max(0, value - 1)


@pytest.mark.parametrize("killed", ["executor", "Python worker"])
def test_an_iteration_outlives_what_is_killed_in_a_superstep(
    driver: DriverUnderTest, tmp_path: Path, killed: str
) -> None:
    """Rows, aggregates and accumulators count each superstep once."""
    wait_for_both_executors(driver, tmp_path)
    program = Program(2)
    loop = program.begin(program.rows([*range(1, _ROWS + 1)], Types.LONG()), most=100, name="count down")
    loop.register_convergence("left", LongSumAggregator(), LongZeroConvergence())
    gate = tmp_path / "gate"
    counted = program.stream(loop.inputs[0]).map(CountsDown(gate), Types.LONG()).rebalance()
    (result,) = loop.close([counted.map(lambda value: value, Types.LONG()).transformation])
    _, ended = driver.submit(collecting_graph(program.env, program.stream(result)))
    task = psutil.Process(waiting_task(gate))
    above = [process.pid for process in task.parents()]
    (executor,) = [process for process in executors(driver) if process.pid in above]
    victim = executor if killed == "executor" else task
    gone = [victim, *victim.children(recursive=True), task]
    victim.kill()
    gate.touch()
    outcome = ended.result(LIMIT)
    assert outcome.failure is None, outcome.failure
    assert outcome.collected() == [0] * _ROWS
    body = max(outcome.stages.values(), key=lambda stage: stage.superstep)
    assert body.superstep == _ROWS
    assert sum(each.accumulators.get("calls", 0) for each in outcome.subtasks) == _ROWS * _ROWS
    assert not psutil.wait_procs(gone, LIMIT)[1]


def test_a_function_that_raises_fails_the_run_at_the_first(driver: DriverUnderTest) -> None:
    def divide(value: int) -> float:
        return 1 / (value - 700)

    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 1000), NO_WATERMARKS, "numbers")
    outcome = driver.run(collecting_graph(env, numbers.map(divide)))
    assert outcome.failure is not None and outcome.failure.is_final
    assert "ZeroDivisionError" in outcome.failure.stacktrace and "divide" in outcome.failure.stacktrace
    assert "pyspark" not in outcome.failure.stacktrace


def test_no_secret_is_in_arguments_and_no_file_in_pysparks_own_folder(driver: DriverUnderTest) -> None:
    for process in driver.processes():
        assert "authenticate.secret" not in command_of(process)
    assert not (Path(pyspark.__file__).parent / "work").exists()


def waiting_task(gate: Path) -> int:
    """The process of the task that waits at the gate."""
    import threading

    for _ in range(int(LIMIT * 20)):
        for path in gate.parent.glob(f"{gate.name}.*"):
            return int(path.name.rpartition(".")[2])
        threading.Event().wait(0.05)
    raise AssertionError("no task waits")
