"""New delegation tokens reach TaskExecutors and SparkDrivers, also those that were away or come later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.control.control_cluster import control_cluster, eventually
from tests.cluster.control.test_batch_jobs import bounded_job
from tests.unit.runtime.rpc.loops import run
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.runtime.rpc.messages import DelegationTokens, RegistrationSuccess

pytestmark = pytest.mark.cluster
FIRST = DelegationTokens(number=1, content=b"first")
#: Idle TaskExecutors stay.
KEPT = SlotManagerSettings(task_executor_timeout=1000.0)
SECOND = DelegationTokens(number=2, content=b"second")


def test_task_executors_get_tokens_when_they_register_and_with_heartbeats(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, standalone=False, slots=KEPT) as cluster:
            (executor,) = cluster.executors
            await cluster.pass_time(20)
            assert executor.tokens == []

            cluster.driver.tokens = FIRST
            # One whose answer is lost gets them again.
            cluster.fault.drop_replies("update_delegation_tokens", 1)
            await cluster.pass_time(10)
            await eventually(lambda: executor.tokens == [FIRST])
            await cluster.pass_time(10)
            await eventually(lambda: executor.tokens == [FIRST, FIRST])
            await cluster.pass_time(20)
            assert executor.tokens == [FIRST, FIRST], "it has said that it has them"

            cluster.driver.tokens = SECOND
            later = await cluster.add(1)
            await eventually(lambda: bool(later.registrations))
            assert later.tokens == [SECOND]
            await cluster.pass_time(20)
            await eventually(lambda: executor.tokens[-1] == SECOND)

    run(body())


def test_spark_drivers_get_tokens_when_they_register_and_with_heartbeats(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, standalone=False) as cluster:
            cluster.driver.tokens = FIRST
            await cluster.submit(bounded_job())
            driver = await cluster.next_spark_driver()
            answer = await driver.register()
            assert isinstance(answer, RegistrationSuccess)
            assert answer.tokens == FIRST

            cluster.driver.tokens = SECOND
            await cluster.pass_time(20)
            await eventually(lambda: SECOND in driver.tokens)

    run(body())
