"""Tasks in Spark's executors, which are processes of their own and do not see the driver's folder."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from tests.support.batch_runner import collecting_graph
from tests.support.spark_driver import LIMIT, DriverUnderTest, spark_driver
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.graph.job_graph import JobGraph

pytestmark = pytest.mark.spark

MASTER = "local-cluster[2,1,1024]"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
NO_WATERMARKS: Any = WatermarkStrategy.no_watermarks()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverUnderTest]:
    with spark_driver(
        tmp_path_factory.mktemp("executors"),
        configuration={"spark.master": MASTER, "spark.executor.memory": "512m"},
    ) as started:
        assert started.application().spark_master == MASTER
        yield started


def executors(driver: DriverUnderTest) -> list[psutil.Process]:
    return [process for process in driver.processes() if EXECUTOR in process.cmdline()]


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
        assert "authenticate.secret" not in " ".join(process.cmdline())
    assert not (Path(pyspark.__file__).parent / "work").exists()


def waiting_task(gate: Path) -> int:
    """The process of the task that waits at the gate."""
    import threading

    for _ in range(int(LIMIT * 20)):
        for path in gate.parent.glob(f"{gate.name}.*"):
            return int(path.name.rpartition(".")[2])
        threading.Event().wait(0.05)
    raise AssertionError("no task waits")
