"""Jobs on workers: a checkpoint, a cancel, the same job again from it; its sums are those of a job without faults."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from msgspec import structs

from tests.support.checkpoint_harness import CheckpointHarness, TakenCheckpoint
from yarrow.common import Configuration
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CheckpointNotice

KEYS = 5


@pytest.fixture(scope="module", params=[1, 2])
def workers(request: pytest.FixtureRequest) -> Iterator[CheckpointHarness]:
    with CheckpointHarness(request.param, processes=request.param > 1) as harness:
        yield harness
    harness.close()


#: Rows of a job, so many that the first one is not at its end before it is cancelled: its rate is that of `sums_job`.
COUNT = 20_000
#: Rows a second of a job that is to end soon.
FAST = 1e6


def sums_job(
    parallelism: int, count: int = COUNT, rate: float = 2500, settings: dict[str, str] | None = None
) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings or {}))
    env.set_parallelism(parallelism)
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


def expected(count: int = COUNT) -> dict[int, int]:
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
    graph = sums_job(2, 5000)
    assert run_with_a_cancel(workers, graph, graph) == expected(5000)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 3])
def test_sums_are_exact_at_another_parallelism(workers: CheckpointHarness, parallelism: int) -> None:
    assert run_with_a_cancel(workers, sums_job(2), sums_job(parallelism, rate=FAST)) == expected()


def with_shared_files(workers: CheckpointHarness, number: int, **changes: object) -> CheckpointOptions:
    made = workers.options(number, **changes)
    folder = os.path.join(os.path.dirname(made.location.directory), "shared")
    os.makedirs(folder, exist_ok=True)
    return structs.replace(made, location=structs.replace(made.location, shared_directory=folder))


def shared_by(taken: TakenCheckpoint) -> set[str]:
    states = [state for part in taken.acknowledged.values() for state in part.states.values()]
    return {file.path for state in states for file in state.shared_files()}


@pytest.mark.slow
def test_a_restarted_job_uploads_only_what_is_new(workers: CheckpointHarness) -> None:
    """Not what it was restored from, unless that is not its own."""
    incremental = {
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.memory.fixed-per-slot": "16 mb",
        "execution.checkpointing.incremental": "true",
    }
    graph = sums_job(2, 10**9, settings=incremental)
    workers.output.clear()
    workers.start(graph)
    workers.until(lambda: len(workers.output) > 100)
    first = workers.checkpoint(1, with_shared_files(workers, 1))
    assert shared_by(first)
    workers.cancel_and_wait()
    workers.start(graph, first)
    workers.until_all(ExecutionState.RUNNING)
    second = workers.checkpoint(2, with_shared_files(workers, 2))
    assert shared_by(first) <= shared_by(second)
    workers.cancel_and_wait()
    workers.start(graph, second)
    workers.until_all(ExecutionState.RUNNING)
    third = workers.checkpoint(3, with_shared_files(workers, 3, oldest_kept=3))
    assert shared_by(third) and not shared_by(third) & shared_by(second)
    workers.cancel_and_wait()
