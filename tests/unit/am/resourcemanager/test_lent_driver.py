"""LentDriver: who leads no more asks for no container, gives none back and hears of none; the next leadership does."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.am.yarn.containers_of_yarn import ContainersOfYarn
from tests.unit.am.yarn.test_yarn_driver import ANY, LEADER, Heard, driving, until
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
            with pytest.raises(TaskExecutorStartError, match="does not lead any more"):
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


def test_what_is_released_in_a_moment_of_doubt_is_released_once_it_is_over() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, _):
            leads, asked = True, 0

            def sure() -> bool:
                nonlocal asked
                asked += 1
                return leads

            lent, heard = LentDriver(driver, sure, pause=0.001), Heard()
            await lent.initialize(heard, LEADER)
            first, second, third = [await lent.request_task_executor(ANY) for _ in range(3)]
            leads = False
            await lent.release_task_executor(second)
            await lent.release_task_executor(first)
            await until(lambda: asked > 10)
            assert yarn.released == []
            assert lent.refusal(first) and not lent.refusal(third), "it serves nobody any more"
            yarn.end("taskexecutor_0", "FAILED", "lost")
            await until(lambda: first in heard.ended)
            leads = True
            await until(lambda: yarn.released == ["taskexecutor_1"])
            assert lent.refusal(second) and list(lent.living) == [third]
            await lent.terminate()

    asyncio.run(run())


def test_what_was_not_released_before_a_leadership_ended_is_living_to_the_next() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, _):
            leads = True
            former = LentDriver(driver, lambda: leads, pause=0.001)
            await former.initialize(Heard(), LEADER)
            one = await former.request_task_executor(ANY)
            leads = False
            await former.release_task_executor(one)
            await former.terminate()
            leads = True
            following = LentDriver(driver, lambda: leads)
            await following.initialize(Heard(), LEADER)
            assert list(following.living) == [one] and following.refusal(one) == ""
            assert yarn.released == []

    asyncio.run(run())
