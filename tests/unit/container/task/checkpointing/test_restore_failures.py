"""State that cannot be read fails the task by name; tasks wait for their state without stopping others."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.checkpoint_harness import CheckpointHarness, TakenCheckpoint
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.runtime.common import fault_points
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState


@pytest.fixture
def workers() -> Iterator[CheckpointHarness]:
    Planned.stop()
    with CheckpointHarness(1, processes=False) as harness:
        yield harness
        Planned.stop()
        if any(not state.is_terminal for state in harness.states.values()):
            harness.cancel_and_wait()
    harness.close()


class Planned:
    """A plan that notes points and stands still where it is told to."""

    reached_points: ClassVar[list[tuple[str, dict[str, object]]]] = []
    hold: ClassVar[str] = ""
    go: ClassVar[threading.Event] = threading.Event()

    def __init__(self, arguments: str) -> None:
        Planned.hold = arguments

    def reached(self, point: str, detail: dict[str, object]) -> None:
        Planned.reached_points.append((point, detail))
        if point == Planned.hold:
            assert Planned.go.wait(120)

    @staticmethod
    def stop() -> None:
        Planned.go.set()
        Planned.reached_points.clear()
        fault_points.install(None)


def sums() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    source = DataGeneratorSource(lambda i: i, 10**9, RateLimiterStrategy.per_second(2000))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.key_by(lambda v: v % 7).reduce(lambda a, b: a + b).name("sum").print()
    return env.get_job_graph("sums")


def checkpointed(workers: CheckpointHarness, graph: JobGraph) -> TakenCheckpoint:
    workers.output.clear()
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    workers.until(lambda: len(workers.output) > 20)
    taken = workers.checkpoint(1)
    workers.cancel_and_wait()
    return taken


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("harm", [flip, truncate, os.unlink])
def test_a_state_file_that_is_not_what_was_written_fails_by_name(
    workers: CheckpointHarness, harm: Any
) -> None:
    graph = sums()
    taken = checkpointed(workers, graph)
    place, acknowledgement = next(
        (place, a) for place, a in taken.acknowledged.items() if any(s.keyed for s in a.states.values())
    )
    state = next(s for s in acknowledgement.states.values() if s.keyed)
    path = next(getattr(handle, "path", "") for handle in state.state_handles())
    # Every piece of the file is harmed, whichever is looked at first.
    harm(Path(taken.directory, path))
    workers.start(graph, taken)
    workers.until(lambda: ExecutionState.FAILED in workers.states.values())
    cause = next(iter(workers.causes.values()))
    assert path in cause.message
    assert "operator '" in cause.message
    assert cause.operator_name
    assert place in workers.states


def test_other_tasks_run_while_state_is_fetched(workers: CheckpointHarness) -> None:
    graph = sums()
    taken = checkpointed(workers, graph)
    Planned.go.clear()
    fault_points.install(Planned("restore.inside"))
    workers.start(graph, taken)
    workers.until(lambda: bool(Planned.reached_points))
    workers.until_all(ExecutionState.INITIALIZING)
    # A task that is cancelled meanwhile ends at once, and stays so.
    workers.cancel()
    workers.until(lambda: all(state.is_terminal for state in workers.states.values()))
    Planned.go.set()
    assert set(workers.states.values()) == {ExecutionState.CANCELED}
    workers.start(graph, taken)
    workers.until_all(ExecutionState.RUNNING)


def test_a_jobs_fault_plan_is_told_of_each_place(workers: CheckpointHarness) -> None:
    graph = sums()
    graph.configuration["testing.fault-plan"] = f"{__name__}:Planned"
    graph.configuration["testing.fault-plan.arguments"] = "nowhere"
    taken = checkpointed(workers, graph)
    workers.start(graph, taken)
    workers.until_all(ExecutionState.RUNNING)
    points = {point for point, _ in Planned.reached_points}
    assert points >= {
        "checkpoint.before-snapshot",
        "checkpoint.inside-snapshot",
        "checkpoint.after-snapshot",
        "checkpoint.before-acknowledge",
        "checkpoint.after-acknowledge",
        "checkpoint.before-notify",
        "restore.inside",
    }
    for _, detail in Planned.reached_points:
        assert detail.keys() == {"checkpoint_id", "task", "subtask", "attempt"}
        assert detail["checkpoint_id"] == 1
