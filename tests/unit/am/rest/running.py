"""Runs a test's coroutine to its end on a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: No test of this part waits longer for anything.
DEADLINE = 180.0


def run(main: Coroutine[Any, Any, T]) -> T:
    """The result; TimeoutError after the deadline."""

    async def limited() -> T:
        async with asyncio.timeout(DEADLINE):
            return await main

    return asyncio.run(limited())
