"""AsyncWaitingOperator: begins a call for each record, and emits results as the queue lets them leave.

Owner: the task thread. Finished calls come from the event loop's thread through an inbox, with one mail for all of a
turn. Records whose results have not left are operator state; after a restore their calls begin first. A full queue
takes no rows, and barriers pass it. Must not know how calls are run, nor which result may leave.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Self, cast

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.codegen.user_functions import close_function, load_function, open_function
from yarrow.container.operators.asynchronous.call_runner import CallLimits, CallRunner, FinishedCall
from yarrow.container.operators.asynchronous.event_loop import EventLoopThread
from yarrow.container.operators.asynchronous.result_queue import PendingResult, ResultQueue
from yarrow.container.operators.asynchronous.retrying import Retrying
from yarrow.container.operators.base import OperatorContext, declared_type, input_type_of
from yarrow.container.operators.registry import runs
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.operators.sinks.print_sink import BulkRowOperator
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import Watermark, WatermarkStatus
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import AsyncWaitOperator
from yarrow.runtime.snapshot.handles import OperatorStateMode

#: Name of the operator's list state; part of the format of savepoints.
IN_FLIGHT = "async-in-flight"

#: Seconds after which a blocked event loop is told of.
_BLOCKED_SECONDS = 1.0
#: Seconds for which a task that ends waits for cancelled calls.
_CLOSE_SECONDS = 0.5

_logger = logging.getLogger(__name__)


@runs(AsyncWaitOperator)
class AsyncWaitingOperator(BulkRowOperator):
    """Runs an AsyncFunction."""

    has_upkeep = True
    holds_time = True
    mixes_keys = True
    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {IN_FLIGHT: OperatorStateMode.SPLIT}

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        return cls(
            descriptor.name,
            cast(AsyncWaitOperator, descriptor.spec),
            declared_type(input_type_of(descriptor)),
        )

    def __init__(self, name: str, spec: AsyncWaitOperator, input_type: TypeInformation | None) -> None:
        super().__init__(name)
        self._spec = spec
        row_type = Types.PICKLED_BYTE_ARRAY() if input_type is None else input_type
        #: True if the record has a timestamp, the timestamp or 0, the record.
        self._stored_type = Types.TUPLE([Types.BOOLEAN(), Types.LONG(), row_type])
        self._queue = ResultQueue.of(ordered=spec.ordered)
        self._runner: CallRunner | None = None
        self._opened = False
        #: Finished calls on their way from the event loop.
        self._inbox: deque[Sequence[FinishedCall]] = deque()
        #: Set while finished calls are on their way.
        self.arrived = threading.Event()
        #: Time (perf_counter) of the next look at the event loop; the loop was told of as blocked.
        self._look_at = 0.0
        self._told = False

    # ------------------------------------------------------------------ life cycle

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._function = load_function(self._spec.function, self.name)
        self._strategy = load_function(self._spec.strategy, self.name)

    def open(self) -> None:
        context = self.context
        self._in_flight = context.operator_state.list_state(ListStateDescriptor(IN_FLIGHT, self._stored_type))
        self._opened = True
        open_function(self._function, OperatorRuntimeContext(context, keyed=False))
        retrying = Retrying(self._strategy)
        self._thread = EventLoopThread.acquire()
        limits = CallLimits(self._spec.timeout_ms / 1000, self._spec.capacity)
        self._runner = CallRunner(
            self._thread, self._function, retrying, limits, context.environment.clock, self._deliver
        )
        self._register_metrics(self._runner)
        restored = list(self._in_flight.get())
        self._in_flight.clear()
        self._begin([(row, stamp if timed else None) for timed, stamp, row in restored])

    def _register_metrics(self, runner: CallRunner) -> None:
        metrics = self.context.metric_group
        metrics.register("asyncCallsInFlight", lambda: len(self._queue))
        metrics.register("asyncOldestCallMs", runner.oldest_ms)
        metrics.register("asyncRetries", lambda: runner.retries)
        metrics.register("asyncTimeouts", lambda: runner.timeouts)

    def close(self) -> None:
        runner, self._runner = self._runner, None
        try:
            if runner is not None and not runner.close(_CLOSE_SECONDS):
                _logger.warning(
                    "operator '%s': calls of %s go on although they were cancelled",
                    self.name,
                    type(self._function).__name__,
                )
        finally:
            if runner is not None:
                EventLoopThread.release()
            if self._opened:
                self._opened = False
                close_function(self._function)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._in_flight.update(
            [
                (pending.timestamp is not None, pending.timestamp or 0, pending.row)
                for pending in self._queue.pending()
            ]
        )

    # ------------------------------------------------------------------ records

    @property
    def room(self) -> int:
        return max(0, self._spec.capacity - len(self._queue))

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        self._begin(list(zip(rows, timestamps or [None] * len(rows), strict=True)))

    def _begin(self, rows: Sequence[tuple[Any, int | None]]) -> None:
        """Begins the calls of records with their timestamps."""
        if not rows:
            return
        assert self._runner is not None, "the operator is open"
        if not len(self._queue):
            self._look_at = perf_counter() + _BLOCKED_SECONDS
        self._runner.submit([self._queue.add(row, timestamp) for row, timestamp in rows])

    # ------------------------------------------------------------------ results

    def _deliver(self, finished: Sequence[FinishedCall]) -> None:
        """Takes finished calls; runs on the thread of the event loop."""
        self._inbox.append(finished)
        self.arrived.set()
        self.context.environment.post(self._take_inbox)

    def _take_inbox(self) -> None:
        """Completes the records of finished calls. Raises OperatorFailure with the record if one has failed."""
        self.arrived.clear()
        while self._inbox:
            for call in self._inbox.popleft():
                if call.error is not None:
                    raise OperatorFailure(self.name, short_record(call.pending.row), call.error)
                self._queue.complete(call.pending, call.results)

    @property
    def awaits_results(self) -> bool:
        return len(self._queue) > 0 or self._queue.may_leave

    def await_results(self, seconds: float) -> None:
        if not self._queue.may_leave:
            self.arrived.wait(seconds)
            self._take_inbox()

    def _leaving(self, deadline: float) -> Iterator[tuple[Any, int | None]]:
        """What may leave: results of whole records, and marks of time in their places."""
        while (left := self._queue.pop()) is not None:
            if isinstance(left, PendingResult):
                assert left.results is not None, "only complete records leave"
                for result in left.results:
                    yield result, left.timestamp
            elif isinstance(left, Watermark):
                self.time_behind.forward(left.timestamp)
            else:
                self.time_behind.set_idle(left.idle)
            if perf_counter() > deadline:
                return

    def next_timer(self) -> int | None:
        return 0 if self._queue.may_leave else None

    def fire_timers(self, now: int, deadline: float) -> Iterator[tuple[Any, int | None]]:
        return self._leaving(deadline)

    # ------------------------------------------------------------------ time

    def on_watermark(self, timestamp: int) -> Iterator[tuple[Any, int | None]]:
        self._queue.add_mark(Watermark(timestamp))
        return self._leaving(inf)

    def on_idle(self, idle: bool) -> Iterator[tuple[Any, int | None]]:
        self._queue.add_mark(WatermarkStatus(idle))
        return self._leaving(inf)

    def forwarded_watermark(self, timestamp: int) -> None:
        return None

    def end_keys(self) -> tuple[()]:
        """Nothing ends with a key: results wait for the end of the input at most."""
        return ()

    # ------------------------------------------------------------------ a blocked event loop

    def seconds_until_upkeep(self) -> float | None:
        return self._look_at - perf_counter() if len(self._queue) else None

    def upkeep(self) -> None:
        """Tells, once for each time, of a function that blocks the event loop."""
        self._look_at = perf_counter() + _BLOCKED_SECONDS
        blocked = self._thread.blocked_seconds()
        if blocked < _BLOCKED_SECONDS:
            self._told = False
            return
        line = self._thread.present_line()
        if line and not self._told:
            self._told = True
            _logger.warning(
                "operator '%s': a function has blocked the event loop of the asynchronous functions for %.1f s, at %s."
                " Await the answer there, or call the outside system in a map that sets `blocking = True`.",
                self.name,
                blocked,
                line,
            )
