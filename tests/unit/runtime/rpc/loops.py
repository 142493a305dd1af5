"""Running a coroutine on a fresh event loop, with every leftover task an error."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds after which a test that waits for ever fails.
DEADLINE = 180.0


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` to its end; fails when it takes longer than DEADLINE or leaves tasks behind."""

    async def bounded() -> T:
        result = await asyncio.wait_for(work, DEADLINE)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        left = {task for task in left if not _is_transport(task)}
        # Behind an answer gRPC's server ends the call: these tasks run our handlers, so they must end.
        if calls := {task for task in left if "grpcio" in repr(task)}:
            await asyncio.wait(calls, timeout=DEADLINE)
        left = {task for task in left if not task.done()}
        assert not left, f"the test left tasks running: {left}"
        return result

    return asyncio.run(bounded())


def _is_transport(task: asyncio.Task[Any]) -> bool:
    """Tasks of gRPC's own end a little after its server."""
    return "grpc" in repr(task.get_coro())


async def settled() -> None:
    """Returns when everything that can run without outside events has run."""
    for _ in range(50):
        await asyncio.sleep(0)
