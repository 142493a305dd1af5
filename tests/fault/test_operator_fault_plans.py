"""The fault plans for operators of time, of calls and of loops: windows with late rows, joins, calls in flight, a
loop, a pattern.

A few seeds each, with aligned barriers and with such as overtake; `bench/soak` has the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.conftest import count_plan
from tests.support.fault_jobs import JobShape
from tests.support.fault_runs import KILLING_POINTS, RAISING_POINTS, UNALIGNED, FaultRun
from tests.support.operator_jobs import OPERATOR_SHAPES
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.testing.fault_plan import PlannedMessages, make_plan

pytestmark = pytest.mark.fault

CONFIGURATION = {
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "10 s",
    "slot.request.timeout": "30 s",
    # Rows wait behind outputs, so that barriers have something to overtake.
    "taskmanager.network.channel.credit-batches": "1",
}
#: Backend and settings of the plans of a shape.
VARIANTS = [
    ("hashmap", {}),
    ("rocksdb", {}),
    ("hashmap", UNALIGNED | {"execution.batch.max-rows": "2"}),
    ("rocksdb", UNALIGNED | {"execution.batch.max-rows": "2"}),
]
#: Of each kind, for each shape. Shapes with even numbers overtake on the heap, the others in RocksDB.
PLANS = 3
COMBINATIONS = [
    pytest.param(shape, number, id=f"{shape.name}-{number}")
    for shape in OPERATOR_SHAPES
    for number in range(PLANS)
]


def run_of(shape: JobShape, number: int, kind: int) -> FaultRun:
    """One run, with a seed of its own."""
    position = OPERATOR_SHAPES.index(shape)
    plan = make_plan(
        200_000 + 1000 * position + 100 * kind + number, RAISING_POINTS if kind else KILLING_POINTS
    )
    backend, settings = VARIANTS[number + (number == PLANS - 1 and position % 2)]
    return FaultRun(shape, backend, plan, settings)


@pytest.mark.parametrize(("shape", "number"), COMBINATIONS)
def test_output_is_that_without_faults_when_processes_are_killed(
    shape: JobShape, number: int, killed_cluster: MiniCluster, tmp_path: Path
) -> None:
    run_of(shape, number, 0).execute(killed_cluster, tmp_path)
    count_plan(killed=True)


@pytest.mark.parametrize(("shape", "number"), COMBINATIONS)
def test_output_is_that_without_faults_when_calls_fail_and_messages_are_lost(
    shape: JobShape, number: int, threads_cluster: MiniCluster, messages: PlannedMessages, tmp_path: Path
) -> None:
    run_of(shape, number, 1).execute(threads_cluster, tmp_path, messages)
    count_plan(killed=False)
