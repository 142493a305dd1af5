"""LentDriver: who leads no more asks for no container, gives none back and hears of none; the next leadership does."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.am.containers_of_yarn import ContainersOfYarn
from tests.unit.am.test_yarn_driver import ANY, LEADER, Heard, driving, until
from yarrow.am.resourcemanager.driver import TaskExecutorStartError
from yarrow.am.resourcemanager.lent_driver import LentDriver
from yarrow.runtime.common.ids import ResourceID


def test_containers_are_those_of_whoever_leads() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, _):
            leads = True
            former, heard = LentDriver(driver, lambda: leads), Heard()
            await former.initialize(heard, LEADER)
            first, second = [await former.request_task_executor(ANY) for _ in range(2)]

            leads = False
            await former.release_task_executor(first)
            with pytest.raises(TaskExecutorStartError, match="leads no more"):
                await former.request_task_executor(ANY)
            assert yarn.released == [] and len(yarn.environments) == 2
            await former.terminate()

            present, told = LentDriver(driver, lambda: True), Heard()
            await present.initialize(told, LEADER)
            assert list(present.living) == [first, second]
            assert present.refusal(first) == "" != present.refusal(ResourceID("container_1_1"))
            await present.release_task_executor(first)
            assert yarn.released == ["taskexecutor_0"]
            yarn.end("taskexecutor_1", "FAILED", "lost")
            await until(lambda: second in told.ended)
            assert heard.ended == {}

    asyncio.run(run())
