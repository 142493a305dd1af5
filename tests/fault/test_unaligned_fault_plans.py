"""The fault plans once more with barriers that overtake records: what is in flight is neither lost nor counted twice.

Channels of one batch of a few rows, so that rows wait behind outputs and in queues although the sources read slowly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.conftest import count_plan
from tests.support.fault_jobs import SHAPES, JobShape
from tests.support.fault_runs import KILLING_POINTS, RAISING_POINTS, UNALIGNED, FaultRun
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.testing.fault_plan import PlannedMessages, make_plan

pytestmark = pytest.mark.fault

#: Of each kind, for each shape.
PLANS = 3
CONFIGURATION = {
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "10 s",
    "slot.request.timeout": "30 s",
    "taskmanager.network.channel.credit-batches": "1",
}
#: Barriers that overtake at once, and such as keep their places for a while first.
SETTINGS = [
    UNALIGNED | {"execution.batch.max-rows": "2"},
    UNALIGNED
    | {"execution.batch.max-rows": "2", "execution.checkpointing.aligned-checkpoint-timeout": "5 ms"},
]
COMBINATIONS = [
    pytest.param(shape, number, id=f"{shape.name}-{number}") for shape in SHAPES for number in range(PLANS)
]


def run_of(shape: JobShape, number: int, kind: int) -> FaultRun:
    """One run; plans, backends and timeouts in turn."""
    seed = 100_000 + 1000 * [s.name for s in SHAPES].index(shape.name) + 100 * kind + number
    plan = make_plan(seed, RAISING_POINTS if kind else KILLING_POINTS)
    return FaultRun(shape, ("hashmap", "rocksdb")[number % 2], plan, SETTINGS[number // 2 % 2])


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
