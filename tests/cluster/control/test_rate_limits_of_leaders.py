"""Changed rate limits under several leaderships: the next one has them. A change that is not stored does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.control.control_cluster import eventually
from tests.cluster.control.test_leaderships import Masters, masters
from tests.support.fake_task_executor import FakeTaskExecutor
from tests.unit.am.jobmaster.test_rate_limits import with_source
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.dispatcher.rate_limit_changes import RateLimitsNotStoredError
from yarrow.am.jobmaster.links.task_executor_link import LONGEST_PAUSE_SECONDS
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit
from yarrow.runtime.common.ids import JobID, JobMasterID, OperatorID
from yarrow.runtime.rpc.errors import RpcTimeoutError
from yarrow.runtime.rpc.messages import Acknowledge, OperatorEvent, RateLimitRequest

SEVEN = RateLimit(rows_per_second=7)


async def running(cluster: Masters) -> tuple[JobID, OperatorID]:
    """A running job under the first leader, and its source."""
    await cluster.lead()
    await cluster.add(2)
    job, source = with_source()
    job_id = await cluster.submit(job)
    await cluster.until_running(job_id, 3)
    return job_id, source


def test_the_next_leader_has_the_changed_limit(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            job_id, source = await running(cluster)
            (told,) = (await cluster.dispatcher.request_rate_limits(job_id)).operators
            assert (told.operator_id, told.limit) == (source, UNLIMITED)
            changed = await cluster.dispatcher.change_rate_limits(
                job_id, RateLimitRequest(limits={source: SEVEN})
            )
            assert changed.operators[0].limit == SEVEN
            # Tasks have their shares.
            await settled()
            await cluster.follow()
            await cluster.executors[0].stop()
            await cluster.lead()
            await cluster.add(2)
            await cluster.until_running(job_id, 3)
            (kept,) = (await cluster.dispatcher.request_rate_limits(job_id)).operators
            assert (kept.limit, kept.subtasks, kept.sharing_subtasks) == (SEVEN, 2, 2)

    run(body())


def test_a_suspended_job_master_repeats_no_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[OperatorEvent] = []

    async def unanswered(
        executor: FakeTaskExecutor, job_master_id: JobMasterID, event: OperatorEvent
    ) -> Acknowledge:
        tries.append(event)
        raise RpcTimeoutError("no answer")

    monkeypatch.setattr(FakeTaskExecutor, "send_operator_event", unanswered)

    async def body() -> None:
        async with masters(tmp_path) as cluster:
            job_id, source = await running(cluster)
            await cluster.dispatcher.change_rate_limits(job_id, RateLimitRequest(limits={source: SEVEN}))
            await eventually(lambda: len(tries) == 1)
            await settled()
            assert len(tries) == 1, "it pauses"
            cluster.timers.advance(LONGEST_PAUSE_SECONDS)
            await eventually(lambda: len(tries) == 2)
            await settled()
            cluster.plane.dispatcher._jobs.running[job_id].suspend("another master leads")
            for _ in range(3):
                cluster.timers.advance(LONGEST_PAUSE_SECONDS)
                await settled()
            assert len(tries) == 2

    run(body())


def test_a_change_that_cannot_be_stored_does_not_hold(tmp_path: Path) -> None:
    async def body() -> None:
        async with masters(tmp_path) as cluster:
            job_id, source = await running(cluster)
            gateway = cluster.dispatcher
            await gateway.change_rate_limits(job_id, RateLimitRequest(limits={source: SEVEN}))
            cluster.election.replace()
            three = RateLimitRequest(limits={source: RateLimit(rows_per_second=3)})
            with pytest.raises(
                RateLimitsNotStoredError, match=f"{job_id} goes on with its former rate limits"
            ):
                await gateway.change_rate_limits(job_id, three)
            assert (await gateway.request_rate_limits(job_id)).operators[0].limit == SEVEN

    run(body())
