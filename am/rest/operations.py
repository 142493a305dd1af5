"""Operations: work that one request begins and another asks about by trigger id: checkpoints, savepoints, disposals.

Owner: the event loop of the REST server. An operation continues even if nobody asks; its result is kept for a
while. A repeated trigger id returns the running operation. A server that ends gives clients a moment to fetch
results: a savepoint that stops a job also ends an embedded cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from yarrow.am.rest.errors import NotFoundError
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.rpc.errors import qualified_name

#: Default seconds for which results are kept, and most kept results.
KEPT_SECONDS = 300.0
KEPT_AT_MOST = 1000
#: Seconds that an ending server waits for clients to fetch the results of operations.
ANSWER_GRACE = 3.0


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """The outcome of an operation: its value, or the class and text of its error."""

    value: Any = None
    error_class: str = ""
    error_text: str = ""

    @property
    def failed(self) -> bool:
        """True if it ended with an error."""
        return bool(self.error_class)


@dataclass(slots=True)
class _Operation:
    task: asyncio.Task[OperationOutcome]
    ended: float | None = None
    #: Set when a client has been told the outcome.
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Operations:
    """Operations of one REST server."""

    def __init__(self, clock: Clock, ids: IdFactory, kept_seconds: float = KEPT_SECONDS) -> None:
        """`kept_seconds`: rest.async.store-duration."""
        self._clock = clock
        self._kept_seconds = kept_seconds
        self._ids = ids
        self._operations: dict[tuple[str, str], _Operation] = {}

    def begin(self, scope: str, trigger_id: str | None, work: Callable[[], Coroutine[Any, Any, Any]]) -> str:
        """Begins `work`, unless the scope has an operation of that id; returns the id."""
        self._forget()
        chosen = (trigger_id or self._ids.hex_id()).lower()
        key = (scope, chosen)
        if key not in self._operations:
            task = asyncio.get_running_loop().create_task(_outcome(work()), name=f"operation {chosen}")
            operation = self._operations[key] = _Operation(task)
            task.add_done_callback(lambda done: self._ended(operation))
        return chosen

    def outcome(self, scope: str, trigger_id: str) -> OperationOutcome | None:
        """The outcome; None while the operation runs. Raises NotFoundError for an unknown or forgotten id."""
        self._forget()
        operation = self._operations.get((scope, trigger_id.lower()))
        if operation is None:
            raise NotFoundError(
                f"no operation {trigger_id} was begun here, or it ended more than {self._kept_seconds:g} s "
                "ago"
            )
        if not operation.task.done():
            return None
        operation.answered.set()
        return operation.task.result()

    async def answer(self) -> None:
        """Returns when clients know all outcomes, or have not asked in time."""
        limit = self._clock.monotonic() - ANSWER_GRACE
        recent = [
            asyncio.create_task(item.answered.wait())
            for item in self._operations.values()
            if item.ended is None or item.ended > limit
        ]
        if recent:
            _, late = await asyncio.wait(recent, timeout=ANSWER_GRACE)
            for each in late:
                each.cancel()

    def close(self) -> None:
        """Ends all waiting."""
        for operation in self._operations.values():
            operation.task.cancel()
        self._operations.clear()

    def _ended(self, operation: _Operation) -> None:
        operation.ended = self._clock.monotonic()

    def _forget(self) -> None:
        limit = self._clock.monotonic() - self._kept_seconds
        ended = [(key, item.ended) for key, item in self._operations.items() if item.ended is not None]
        surplus = len(ended) - KEPT_AT_MOST
        for number, (key, when) in enumerate(ended):
            if number < surplus or when < limit:
                del self._operations[key]


async def _outcome(work: Coroutine[Any, Any, Any]) -> OperationOutcome:
    try:
        return OperationOutcome(value=await work)
    except Exception as error:
        return OperationOutcome(
            error_class=qualified_name(type(error)), error_text=str(error) or type(error).__name__
        )
