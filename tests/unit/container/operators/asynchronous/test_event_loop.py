"""The event loop of asynchronous functions: which library gives it, who shares it, and what functions may do on it."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from yarrow.container.operators.asynchronous.event_loop import EventLoopThread
from yarrow.runtime.config.options.python import EventLoopKind

GIVE_UP_SECONDS = 30.0


@pytest.fixture(params=list(EventLoopKind), ids=lambda kind: kind.value)
def thread(request: pytest.FixtureRequest) -> Iterator[EventLoopThread]:
    found = EventLoopThread.acquire(request.param)
    yield found
    found.release()
    assert not EventLoopThread._running


def result_of(thread: EventLoopThread, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, thread.loop).result(GIVE_UP_SECONDS)


def library_of(thread: EventLoopThread) -> str:
    return type(thread.loop).__module__.partition(".")[0]


def test_each_kind_has_a_thread_of_its_own_which_its_operators_share() -> None:
    pytest.importorskip("uvloop")
    fast, plain = (EventLoopThread.acquire(kind) for kind in (EventLoopKind.UVLOOP, EventLoopKind.ASYNCIO))
    assert (library_of(fast), library_of(plain)) == ("uvloop", "asyncio")
    assert EventLoopThread.acquire(EventLoopKind.UVLOOP) is fast
    fast.release()
    assert result_of(fast, asyncio.sleep(0, "still there")) == "still there"
    fast.release()
    assert fast.loop.is_closed()
    assert result_of(plain, asyncio.sleep(0, "still there")) == "still there"
    plain.release()
    assert plain.loop.is_closed()
    assert not EventLoopThread._running


def test_without_uvloop_functions_run_on_asyncio(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with caplog.at_level(logging.INFO):
        found = EventLoopThread.acquire(EventLoopKind.UVLOOP)
    assert library_of(found) == "asyncio"
    assert result_of(found, asyncio.sleep(0, 1)) == 1
    found.release()
    (record,) = caplog.records
    assert "uvloop is not usable" in record.getMessage()


def test_asyncio_s_debug_mode_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    for kind in EventLoopKind:
        found = EventLoopThread.acquire(kind)
        assert found.loop.get_debug()
        found.release()


def test_a_function_may_start_a_program(thread: EventLoopThread) -> None:
    async def answer() -> tuple[bytes, int | None]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print(input())", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        written, _ = await process.communicate(b"42\n")
        return written, process.returncode

    assert result_of(thread, answer()) == (b"42\n", 0)


def _in_child() -> None:
    asyncio.run(asyncio.sleep(0.001))


def test_a_function_may_fork(thread: EventLoopThread) -> None:
    """The child has none of the loop's threads; it makes a loop of its own."""

    async def ended() -> int | None:
        child = multiprocessing.get_context("fork").Process(target=_in_child)
        child.start()
        child.join(GIVE_UP_SECONDS)
        return child.exitcode

    assert result_of(thread, ended()) == 0
    assert result_of(thread, asyncio.sleep(0.001, "goes on")) == "goes on"


def test_a_function_may_use_threads_of_the_loop(thread: EventLoopThread) -> None:
    async def answer() -> Any:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(GIVE_UP_SECONDS):
            return await loop.run_in_executor(None, sum, [1, 2]), await loop.getaddrinfo("127.0.0.1", 80)

    total, addresses = result_of(thread, answer())
    assert total == 3
    assert ("127.0.0.1", 80) in [address for *_, address in addresses]
