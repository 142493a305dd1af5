"""Jobs on workers: a checkpoint, a cancel, the same job again from it; its sums are those of a job without faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CheckpointNotice
from yarrow.testing.checkpoint_harness import CheckpointHarness

KEYS = 5


@pytest.fixture(scope="module", params=[1, 2])
def workers(request: pytest.FixtureRequest) -> Iterator[CheckpointHarness]:
    with CheckpointHarness(request.param, processes=request.param > 1) as harness:
        yield harness
    harness.close()


def sums_job(parallelism: int, count: int = 1500, rate: float = 2500) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    source = DataGeneratorSource(lambda i: (i % 5, i), count, RateLimiterStrategy.per_second(rate))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.key_by(lambda v: v[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).print()
    return env.get_job_graph("sums")


def sums(lines: list[str]) -> dict[int, int]:
    """The largest sum printed of each key."""
    found: dict[int, int] = {}
    for line in lines:
        key, value = (
            (int(part) for part in line.partition("> ")[2].strip("()").split(","))
            if "> " in line
            else (int(part) for part in line.strip("()").split(","))
        )
        found[key] = max(value, found.get(key, 0))
    return found


def expected(count: int = 1500) -> dict[int, int]:
    return {key: sum(range(key, count, KEYS)) for key in range(KEYS)}


def run_with_a_cancel(workers: CheckpointHarness, graph: JobGraph, second: JobGraph) -> dict[int, int]:
    workers.output.clear()
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    workers.until(lambda: len(workers.output) > 100)
    workers.checkpoint(1)
    taken = workers.trigger(2)
    workers.wait_acknowledged(taken)
    workers.notify(2, CheckpointNotice.COMPLETED)
    before = len(workers.output)
    workers.until(lambda: len(workers.output) > before + 100)
    workers.cancel_and_wait()
    workers.start(second, taken)
    workers.until_all(ExecutionState.FINISHED)
    return sums(workers.output)


def test_sums_are_exact_after_a_restart(workers: CheckpointHarness) -> None:
    graph = sums_job(2)
    assert run_with_a_cancel(workers, graph, graph) == expected()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sums_are_exact_at_another_parallelism(workers: CheckpointHarness, parallelism: int) -> None:
    assert run_with_a_cancel(workers, sums_job(2), sums_job(parallelism)) == expected()
