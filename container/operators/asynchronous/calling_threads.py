"""CallingThreads: threads that call a function whose client knows no asyncio, for coroutines that await its results.

Owner: the thread of the event loop awaits; each thread here runs one call at a time. A call cannot be interrupted:
the thread of a cancelled call goes on until the call returns. Must not know records, deadlines or attempts.
"""

from __future__ import annotations

import threading
from asyncio import Future
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

from yarrow.container.operators.asynchronous.event_loop import EventLoopThread
from yarrow.container.operators.calls_beside import CallingOperator, CallsBeside
from yarrow.runtime.common.clock import perf_counter

#: What a call returned, or what it raised.
_Ended = tuple[Any, BaseException | None]


class CallingThreads(CallsBeside):
    """The threads of one operator; calls wait for a free one in the order in which they began."""

    def __init__(
        self, thread: EventLoopThread, function: Callable[[Any], Any], number: int, caller: CallingOperator
    ) -> None:
        super().__init__(caller)
        self._loop_thread = thread
        self._function = function
        self._waiting: SimpleQueue[tuple[Any, Future[_Ended]] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{caller.operator_name}, calls {index}", daemon=True)
            for index in range(number)
        ]
        for each in self._threads:
            each.start()

    async def call(self, argument: Any) -> Any:
        """Returns what the function returns for the argument, and raises what the function raises."""
        ended: Future[_Ended] = self._loop_thread.loop.create_future()
        self._waiting.put((argument, ended))
        returned, error = await ended
        if error is not None:
            raise error
        return returned

    def close(self, seconds: float) -> bool:
        """Ends the threads; False if a call has not returned after so many seconds."""
        for _ in self._threads:
            self._waiting.put(None)
        until = perf_counter() + seconds
        for each in self._threads:
            each.join(max(0.0, until - perf_counter()))
        return not any(each.is_alive() for each in self._threads)

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            argument, ended = waiting
            if ended.done():
                continue  # Its time was over before a thread was free.
            outcome = self._outcome(argument)
            try:
                self._loop_thread.call(partial(_settle, ended, outcome))
            except RuntimeError:
                return  # The event loop has ended meanwhile: nobody waits.

    def argument_in(self, held: Mapping[str, Any]) -> Any:
        return held.get("argument")

    def _outcome(self, argument: Any) -> _Ended:
        try:
            return self._function(argument), None
        except BaseException as error:  # user code may raise anything; the thread serves other calls
            return None, error


def _settle(ended: Future[_Ended], outcome: _Ended) -> None:
    if not ended.done():
        ended.set_result(outcome)
