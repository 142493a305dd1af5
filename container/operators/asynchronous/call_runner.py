"""CallRunner: runs the calls of one asynchronous function: attempts, deadlines, cancellation.

Owner: the thread of the event loop, but for `submit` and `close`. Calls run on long-lived coroutines, as many as the
capacity. Deadlines are looked at once a tick. All decisions fall on one thread, so that of a timeout and a result
exactly one wins. Must not know queues, tasks or state, nor whether a call has one record or many.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from yarrow.container.operators.asynchronous.called_function import CalledFunction
from yarrow.container.operators.asynchronous.event_loop import EventLoopThread
from yarrow.container.operators.asynchronous.retrying import Retrying
from yarrow.container.operators.calls_beside import CallingOperator, CallsBeside
from yarrow.runtime.common.clock import Clock

#: Bounds of the seconds between two looks at the deadlines.
_TICK_SECONDS = (0.005, 0.1)


class Request(Protocol):
    """A call that somebody asks for: that of one record, or of several."""

    @property
    def argument(self) -> Any:
        """What the function gets."""
        ...


class CallLimits(NamedTuple):
    """The limits of the calls of one operator."""

    timeout_seconds: float
    #: Most calls at a time.
    capacity: int


#: A decided call: its request, its results as of CalledFunction, and the error that fails the job. There is one for
#: each record, so it is the cheapest object that there is.
FinishedCall = tuple[Any, list[Any], BaseException | None]


class AsyncCall:
    """The call that one coroutine makes now, over all attempts. It is used again for the coroutine's next request."""

    __slots__ = ("argument", "began", "decided", "request", "worker")

    def __init__(self, worker: asyncio.Task[None]) -> None:
        #: The coroutine that runs it.
        self.worker = worker
        self.request: Any = None
        #: The argument of the function.
        self.argument: Any = None
        #: Time (monotonic) of the first attempt.
        self.began = 0.0
        #: True from the moment at which its results, error or timeout are known.
        self.decided = True


class CallRunner(CallsBeside):
    """The calls of one operator; `deliver` gets finished ones on the loop's thread, together for each turn."""

    def __init__(
        self,
        thread: EventLoopThread,
        function: CalledFunction,
        retrying: Retrying,
        limits: CallLimits,
        clock: Clock,
        deliver: Callable[[Sequence[FinishedCall]], None],
        caller: CallingOperator,
    ) -> None:
        super().__init__(caller)
        self._thread = thread
        self._loop = thread.loop
        self._function = function
        self._retrying = retrying
        self._timeout, self._capacity = limits
        self._clock = clock
        self._deliver = deliver
        self._waiting: deque[Request] = deque()
        #: Futures of coroutines that wait for a request.
        self._idle: deque[asyncio.Future[None]] = deque()
        #: Coroutines that take requests.
        self._workers: set[asyncio.Task[None]] = set()
        #: Coroutines that were cancelled and have not ended.
        self._cancelled: set[asyncio.Task[None]] = set()
        #: Undecided calls, in order of their first attempts, and so of their deadlines.
        self._calls: dict[AsyncCall, None] = {}
        self._finished: list[FinishedCall] = []
        self._ticking = False
        self._tick_seconds = min(max(self._timeout / 20, _TICK_SECONDS[0]), _TICK_SECONDS[1])
        self._closing = False
        #: Number of attempts after the first one of each call.
        self.retries = 0
        #: Number of calls whose time was over.
        self.timeouts = 0

    # ------------------------------------------------------------------ any thread

    def submit(self, requests: Sequence[Request]) -> None:
        """Begins calls, in order, as far as the capacity allows; the others wait for their turn."""
        self._thread.call(lambda: self._take(requests))

    def oldest_ms(self) -> float:
        """Milliseconds since the oldest undecided call began; 0 = there is none."""
        try:
            first = next(iter(self._calls), None)
        except RuntimeError:  # changed by the loop meanwhile
            first = None
        return 0.0 if first is None else 1000 * (self._clock.monotonic() - first.began)

    def in_flight(self) -> list[Any]:
        """What the undecided calls have got, the oldest first."""
        try:
            return [call.argument for call in list(self._calls)]
        except RuntimeError:  # changed by the loop meanwhile
            return []

    def argument_in(self, held: Mapping[str, Any]) -> Any:
        call = held.get("call")
        return call.argument if type(call) is AsyncCall else None

    def close(self, seconds: float) -> bool:
        """Cancels all calls; False if they have not ended after so many seconds."""
        ended = threading.Event()
        self._thread.call(lambda: self._cancel_all(ended))
        return ended.wait(seconds)

    # ------------------------------------------------------------------ coroutines

    def _take(self, requests: Sequence[Request]) -> None:
        if self._closing:
            return
        self._waiting.extend(requests)
        for _ in range(min(len(self._idle), len(self._waiting))):
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
        while len(self._workers) < min(self._capacity, len(self._waiting) + len(self._calls)):
            self._begin_worker()

    def _begin_worker(self) -> None:
        if not self._closing:
            worker = self._loop.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._worker_ended)

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._cancelled.discard(worker)
        if not worker.cancelled():
            worker.exception()

    async def _work(self) -> None:
        """Makes one call after another; waits while there is none."""
        worker = asyncio.current_task()
        assert worker is not None, "it runs as a task of the loop"
        # Each name that is looked up here costs every call.
        waiting, calls, invoke, now = self._waiting, self._calls, self._function.invoke, self._clock.monotonic
        never_again, cancelled, call = not self._retrying.is_possible, self._cancelled, AsyncCall(worker)
        while True:
            while not waiting:
                call.request = call.argument = None
                idle = self._loop.create_future()
                self._idle.append(idle)
                await idle
            call.request = request = waiting.popleft()
            call.argument = argument = request.argument
            call.began, call.decided = now(), False
            calls[call] = None
            if not self._ticking:
                self._tick_later()
            attempts = 0
            while True:
                attempts += 1
                try:
                    returned, error = await invoke(argument), None
                except BaseException as raised:  # user code may raise anything; it must not end the loop
                    returned, error = None, raised
                if call.decided or self._closing:
                    break
                if never_again:
                    self._decide(call, returned, error, "async_invoke")
                    break
                delay = self._seconds_until_retry(call, attempts, returned, error)
                if delay is None:
                    break
                await asyncio.sleep(delay)
            if self._closing or (cancelled and worker in cancelled):
                return  # In the latter case another coroutine has taken this one's place.

    def _seconds_until_retry(
        self, call: AsyncCall, attempts: int, returned: Any, error: BaseException | None
    ) -> float | None:
        """Seconds to wait before the next attempt; None = the outcome stands, and has decided the call."""
        try:
            delay = self._retrying.seconds_until_retry(attempts, returned, error)
        except BaseException as raised:  # predicates are user code
            returned, error, delay = None, raised, None
        if delay is None:
            self._decide(call, returned, error, "async_invoke")
        else:
            self.retries += 1
        return delay

    # ------------------------------------------------------------------ decisions

    def _decide(self, call: AsyncCall, returned: Any, error: BaseException | None, method: str) -> None:
        call.decided = True
        del self._calls[call]
        results: list[Any] = []
        if error is None:
            try:
                results = self._function.results(call.argument, returned, method)
            except BaseException as refused:  # also what a user's object raises while it is shown
                error = refused
        if not self._finished:
            self._loop.call_soon(self._flush)
        self._finished.append((call.request, results, error))

    def _flush(self) -> None:
        finished, self._finished = self._finished, []
        if not self._closing:
            self._deliver(finished)

    def _tick_later(self) -> None:
        if not self._ticking and self._calls:
            self._ticking = True
            self._loop.call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        """Ends the calls whose time is over."""
        self._ticking = False
        overdue = self._clock.monotonic() - self._timeout
        while not self._closing and (call := next(iter(self._calls), None)) is not None:
            if call.began > overdue:
                break
            self._time_out(call)
        self._tick_later()

    def _time_out(self, call: AsyncCall) -> None:
        """Cancels a call and asks `timeout`; another coroutine takes the place of the cancelled one."""
        self.timeouts += 1
        worker = call.worker
        self._workers.discard(worker)
        self._cancelled.add(worker)
        worker.cancel()
        returned, error = None, None
        try:
            returned = self._function.timeout(call.argument)
        except BaseException as raised:  # user code may raise anything
            error = raised
        self._decide(call, returned, error, "timeout")
        self._begin_worker()

    def _cancel_all(self, ended: threading.Event) -> None:
        self._closing = True
        self._waiting.clear()
        self._calls.clear()
        left = self._workers | self._cancelled
        for worker in left:
            worker.cancel()
        if left:
            gathered = asyncio.gather(*left, return_exceptions=True)
            gathered.add_done_callback(lambda _: ended.set())
        else:
            ended.set()
