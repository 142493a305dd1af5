"""Exactly-once, proved by faults: whatever happens between a completed checkpoint and the end, output is the same.

Seeded plans over five job shapes and both backends; half of them kill real processes, the other half raise, stall, and
lose, delay or repeat messages in a cluster of threads. A seed that fails replays: it is in the test's name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.conftest import count_plan
from tests.support.fault_jobs import SHAPES, JobShape
from tests.support.fault_runs import KILLING_POINTS, RAISING_POINTS, FaultRun
from tests.unit.container.supervisor.conftest import process_runs
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.testing.fault_plan import PlannedMessages, make_plan

pytestmark = pytest.mark.fault

BACKENDS = ("hashmap", "rocksdb")
#: Of each kind, for each shape and backend.
PLANS = 10
CONFIGURATION = {"heartbeat.interval": "500 ms", "heartbeat.timeout": "10 s", "slot.request.timeout": "30 s"}

COMBINATIONS = [
    pytest.param(shape, backend, seed, id=f"{shape.name}-{backend}-{seed}")
    for shape in SHAPES
    for backend in BACKENDS
    for seed in range(PLANS)
]


def seed_of(shape: JobShape, backend: str, number: int, kind: int) -> int:
    """A seed of its own for each plan."""
    return (
        1000 * (2 * [s.name for s in SHAPES].index(shape.name) + BACKENDS.index(backend))
        + 100 * kind
        + number
    )


@pytest.mark.parametrize(("shape", "backend", "number"), COMBINATIONS)
def test_output_is_that_without_faults_when_processes_are_killed(
    shape: JobShape, backend: str, number: int, killed_cluster: MiniCluster, tmp_path: Path
) -> None:
    plan = make_plan(seed_of(shape, backend, number, 0), KILLING_POINTS)
    before = set(killed_cluster.processes)
    FaultRun(shape, backend, plan).execute(killed_cluster, tmp_path)
    gone = before - set(killed_cluster.processes)
    assert not [pid for pid in gone if process_runs(pid)], f"{plan}: a killed TaskExecutor lives on"
    count_plan(killed=True)


@pytest.mark.parametrize(("shape", "backend", "number"), COMBINATIONS)
def test_output_is_that_without_faults_when_calls_fail_and_messages_are_lost(
    shape: JobShape,
    backend: str,
    number: int,
    threads_cluster: MiniCluster,
    messages: PlannedMessages,
    tmp_path: Path,
) -> None:
    plan = make_plan(seed_of(shape, backend, number, 1), RAISING_POINTS)
    FaultRun(shape, backend, plan).execute(threads_cluster, tmp_path, messages)
    count_plan(killed=False)
