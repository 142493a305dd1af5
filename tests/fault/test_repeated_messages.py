"""Messages of the control plane twice, late and out of their order: all of them, throughout a job's life.

Each is taken once, by epoch, attempt and id. Jobs fail and are restored meanwhile, are rescaled and cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded.test_aligned_sources import read_tracks
from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import all_running
from tests.fault.test_named_faults import GatedTotals
from tests.support.fault_jobs import SHAPES, JobShape
from tests.support.fault_runs import FaultRun
from tests.support.faulty_network import FaultyNetwork
from yarrow.common.job_status import JobStatus
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import RescaleRequest
from yarrow.testing.fault_plan import RECORD_POINT, FaultAction, FaultPlan, PlannedMessages

pytestmark = pytest.mark.fault

#: What JobMasters, TaskExecutors and the ResourceManager tell each other; heartbeats come again anyway.
METHODS = frozenset(
    {
        "register_task_executor",
        "register_job_master",
        "declare_required_resources",
        "request_slot",
        "offer_slots",
        "fail_slot",
        "free_slot",
        "notify_slot_available",
        "submit_tasks",
        "cancel_tasks",
        "update_task_execution_states",
        "send_operator_event",
        "report_watermark",
        "send_watermark_bounds",
        "reset_subtask",
        "trigger_checkpoint",
        "acknowledge_coordinator",
        "acknowledge_checkpoint",
        "decline_checkpoint",
        "notify_checkpoint",
        "notify_end_of_data",
        "disconnect_job_master",
    }
)
#: Longest time that one is late, s.
LATEST = 0.03


class TroubledMessages(PlannedMessages):
    """Everything twice, or everything late by a time of its own."""

    def __init__(self, trouble: str) -> None:
        super().__init__()
        self._trouble = trouble
        self._random = random.Random(29)
        self.repeated: Counter[str] = Counter()

    async def request(self, endpoint: str, method: str) -> bool:
        if self._trouble == "late" and method in METHODS:
            await asyncio.sleep(self._random.uniform(0, LATEST))
        return await super().request(endpoint, method)

    async def repeats(self, endpoint: str, method: str) -> bool:
        if self._trouble != "twice" or method not in METHODS:
            return False
        self.repeated[method] += 1
        return True


@pytest.fixture(scope="module", params=["twice", "late"])
def messages(request: pytest.FixtureRequest) -> TroubledMessages:
    return TroubledMessages(request.param)


@pytest.fixture(scope="module")
def cluster(messages: TroubledMessages) -> Iterator[MiniCluster]:
    with mini_cluster(2, 2, processes=False, network=FaultyNetwork(messages)) as running:
        yield running
    if messages.repeated:
        # Slots are lost by workers that die, enumerators reset by readers that fail alone: not here.
        assert METHODS - messages.repeated.keys() <= {"fail_slot", "reset_subtask", "decline_checkpoint"}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_a_job_that_fails_puts_out_what_it_does_without_trouble(
    shape: JobShape, backend: str, cluster: MiniCluster, messages: TroubledMessages, tmp_path: Path
) -> None:
    plan = FaultPlan(29, RECORD_POINT, FaultAction.RAISE, 40)
    FaultRun(shape, backend, plan).execute(cluster, tmp_path, messages)


def test_a_job_is_rescaled(cluster: MiniCluster, tmp_path: Path) -> None:
    job = GatedTotals(cluster, tmp_path)
    for parallelism in (3, 1, 4):
        job.until_completed()
        request = RescaleRequest(every=parallelism)
        LoopThread.shared().call(cluster.cluster.dispatcher.rescale_job(job.job_id, request))
    job.ends_right()


def test_aligned_sources_read_each_row_once(cluster: MiniCluster) -> None:
    read_tracks(cluster)


def test_a_cancelled_job_never_runs_again_and_leaves_its_slots(cluster: MiniCluster, tmp_path: Path) -> None:
    job = GatedTotals(cluster, tmp_path)
    job.until_completed()
    job.client.cancel().result()
    wait_until(lambda: job.client.get_job_status().result() is JobStatus.CANCELED)
    details = LoopThread.shared().call(
        cluster.cluster.dispatcher.request_job_details(JobID(str(job.client.get_job_id())))
    )
    assert not all_running(details) and details.restarts == 0

    def free() -> bool:
        overview = LoopThread.shared().call(cluster.cluster.dispatcher.request_overview())
        return overview.slots_available == overview.slots_total > 0

    wait_until(free)
