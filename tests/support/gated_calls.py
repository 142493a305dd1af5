"""Asynchronous functions whose calls a test lets end one by one, in the process of the test.

Owner: the test's thread; the functions run on the event loop of the asynchronous functions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from yarrow.container.operators.asynchronous.event_loop import EventLoopThread
from yarrow.container.operators.asynchronous.waiting_calls import WaitingCallsOperator
from yarrow.datastream.functions import AsyncFunction, RuntimeContext
from yarrow.testing.operator_harness import OperatorHarness

#: Seconds after which a test that waits gives up.
GIVE_UP_SECONDS = 30.0


class Gates:
    """The calls that have begun, and the gates behind which they wait."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        #: Values of all calls that have begun, in order.
        self.begun: list[Any] = []
        #: Values of the calls that were cancelled.
        self.cancelled: list[Any] = []
        self._futures: dict[Any, list[asyncio.Future[Any]]] = {}
        #: Number of calls that wait now, and the most there were.
        self.open_calls = self.most_open_calls = 0
        self.closed = 0

    async def wait(self, value: Any) -> Any:
        """Waits for `release`; returns what that gives, and raises it if it is an error."""
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            self.begun.append(value)
            self._futures.setdefault(value, []).append(future)
            self.open_calls += 1
            self.most_open_calls = max(self.most_open_calls, self.open_calls)
            self._lock.notify_all()
        try:
            answer = await future
        except asyncio.CancelledError:
            with self._lock:
                self.cancelled.append(value)
                self._lock.notify_all()
            raise
        finally:
            self.open_calls -= 1
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits until calls have come so far."""
        with self._lock:
            # Other conditions than those of calls notify nobody.
            for _ in range(int(GIVE_UP_SECONDS / 0.05)):
                if self._lock.wait_for(condition, 0.05):
                    return
            raise AssertionError(f"begun: {self.begun}, cancelled: {self.cancelled}")

    def release(self, value: Any, answer: Any) -> None:
        """Ends the oldest waiting call with that value, once it has begun."""
        self.until(lambda: bool(self._futures.get(value)))
        future = self._futures[value].pop(0)

        def end() -> None:
            if not future.done():
                future.set_result(answer)

        future.get_loop().call_soon_threadsafe(end)


#: The gates of the present test.
gates = Gates()


def new_gates() -> Gates:
    """Gates for a test that begins."""
    global gates
    gates = Gates()
    return gates


class Gated(AsyncFunction[Any, Any]):
    """Gives for each value what the test releases."""

    async def async_invoke(self, value: Any) -> list[Any]:
        answer: list[Any] = await gates.wait(value)
        return answer

    def close(self) -> None:
        gates.closed += 1


class Forgiving(Gated):
    """Gives `late VALUE` for a value whose time is over."""

    def timeout(self, value: Any) -> list[Any]:
        return [f"late {value}"]


class Deferred(AsyncFunction[int, Any]):
    """Gives each number and its double after a turn or more of the loop, the later the smaller its last digit."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._opened = True

    async def async_invoke(self, value: int) -> list[Any]:
        assert self._opened
        for _ in range(10 - value % 10):
            await asyncio.sleep(0)
        return [value, 2 * value]


def asynchronous_operator(harness: OperatorHarness) -> WaitingCallsOperator:
    """The only one of the harness."""
    operators = [operator for task in harness.tasks for operator in task.chain.operators]
    return next(operator for operator in operators if isinstance(operator, WaitingCallsOperator))


def run_until(harness: OperatorHarness, condition: Callable[[], bool]) -> None:
    """Runs the harness whenever calls have ended, until the condition holds."""
    operator = asynchronous_operator(harness)
    for _ in range(int(GIVE_UP_SECONDS / 0.05)):
        harness.run()
        if condition():
            return
        operator.arrived.wait(0.05)
    raise AssertionError(f"it has not come so far: {harness.output}")


def loop_is_idle() -> bool:
    """Whether no operator uses an event loop any more."""
    return not EventLoopThread._running
