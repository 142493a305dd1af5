"""Operations that a request begins and another asks about, at the end of their server."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.am.rest.running import run
from yarrow.am.rest import operations
from yarrow.am.rest.errors import NotFoundError
from yarrow.am.rest.operations import Operations
from yarrow.am.rest.services import RestSettings
from yarrow.runtime.common.clock import ManualClock, SystemClock
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.config.settings import Settings


async def done() -> str:
    return "the path"


def begun() -> tuple[Operations, str]:
    here = Operations(SystemClock(), RandomIdFactory())
    return here, here.begin("savepoints", None, done)


def test_a_server_that_ends_waits_until_the_answer_was_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "ANSWER_GRACE", 60.0)

    async def main() -> None:
        here, trigger = begun()
        ending = asyncio.create_task(here.answer())
        while (outcome := here.outcome("savepoints", trigger)) is None:
            assert not ending.done()
            await asyncio.sleep(0)
        assert outcome.value == "the path"
        await ending

    run(main())


def test_it_does_not_wait_long_for_who_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "ANSWER_GRACE", 0.01)

    async def main() -> None:
        here, _ = begun()
        await here.answer()
        here.close()

    run(main())


def test_results_are_kept_as_long_as_set() -> None:
    async def main() -> None:
        clock = ManualClock()
        kept = RestSettings.of(Settings({"rest.async.store-duration": "10 s"})).operation_store_seconds
        here = Operations(clock, RandomIdFactory(), kept)
        ended = asyncio.Event()

        async def work() -> None:
            asyncio.get_running_loop().call_later(0, ended.set)

        trigger = here.begin("savepoints", None, work)
        await ended.wait()
        clock.advance(9.0)
        assert here.outcome("savepoints", trigger) is not None
        clock.advance(2.0)
        with pytest.raises(NotFoundError, match="ended more than 10 s ago"):
            here.outcome("savepoints", trigger)

    run(main())


def test_what_was_answered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "ANSWER_GRACE", 3600.0)

    async def main() -> None:
        here = Operations(SystemClock(), RandomIdFactory())
        ended = asyncio.Event()

        async def work() -> None:
            asyncio.get_running_loop().call_later(0, ended.set)

        trigger = here.begin("savepoints", None, work)
        await ended.wait()
        assert here.outcome("savepoints", trigger) is not None
        await here.answer()

    run(main())
