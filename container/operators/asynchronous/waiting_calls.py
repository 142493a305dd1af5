"""WaitingCallsOperator: what all operators of asynchronous functions have in common, for rows and for columns.

Owner: the task thread. Finished calls come from the event loop's thread through an inbox, with one mail for all of a
turn. What has not left is operator state; after a restore its calls begin first. A full queue takes no input, and
barriers pass it. Must not know how calls are run, which result may leave, nor what a record is.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.user_functions import close_function, load_function, open_function
from yarrow.container.operators.asynchronous.call_batches import CallBatches
from yarrow.container.operators.asynchronous.call_runner import CallLimits, CallRunner, FinishedCall, Request
from yarrow.container.operators.asynchronous.called_function import CalledFunction, ResultsOf
from yarrow.container.operators.asynchronous.calling_threads import CallingThreads
from yarrow.container.operators.asynchronous.event_loop import EventLoopThread
from yarrow.container.operators.asynchronous.result_queue import PendingResult, ResultQueue
from yarrow.container.operators.asynchronous.retrying import Retrying
from yarrow.container.operators.asynchronous.timed_calls import TimedCalls
from yarrow.container.operators.base import Operator, OperatorContext
from yarrow.container.operators.calls_beside import CallingOperator
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.state import ListState, ListStateDescriptor
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.config.options import python
from yarrow.runtime.data.elements import MAX_TIMESTAMP, Watermark, WatermarkStatus
from yarrow.runtime.graph.async_spec import AsyncWaitOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.snapshot.handles import OperatorStateMode

if TYPE_CHECKING:
    # Most processes leave out no records.
    from yarrow.container.operators.failed_records import FailedRecords

#: Name of the operator's list state; part of the format of savepoints.
IN_FLIGHT = "async-in-flight"

#: Seconds after which a blocked event loop is told of.
_BLOCKED_SECONDS = 1.0
#: Seconds for which a task that ends waits for cancelled calls.
_CLOSE_SECONDS = 0.5

_logger = logging.getLogger(__name__)


class FailedResults(list[Any]):
    """The results of a record whose call has failed: none, and the error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class BatchCall:
    """A call for several records."""

    __slots__ = ("argument", "records")

    def __init__(self, records: list[PendingResult], argument: Any) -> None:
        self.records = records
        self.argument = argument


class WaitingCallsOperator(Operator):
    """Base of operators that wait for the answers of many records at a time."""

    has_upkeep = True
    holds_time = True
    mixes_keys = True
    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {IN_FLIGHT: OperatorStateMode.SPLIT}
    #: The type of a record in flight in the operator's state.
    stored_type: TypeInformation

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        return cls(descriptor.name, cast(AsyncWaitOperator, descriptor.spec), descriptor)

    def __init__(self, name: str, spec: AsyncWaitOperator, descriptor: OperatorDescriptor) -> None:
        super().__init__(name)
        self._spec = spec
        self._queue = ResultQueue.of(spec.order)
        #: Records that wait for a call of several; None = each record has a call of its own.
        self._batches = None if spec.batch is None else CallBatches(spec.batch)
        #: Calls for many rows that have begun and not ended.
        self._under_way = 0
        #: Measures calls for the size of batches.
        self._timed: TimedCalls | None = None
        self._runner: CallRunner | None = None
        self._threads: CallingThreads | None = None
        self._opened = False
        #: Finished calls on their way from the event loop.
        self._inbox: deque[Sequence[FinishedCall]] = deque()
        #: Set while finished calls are on their way.
        self.arrived = threading.Event()
        #: Time (perf_counter) of the next look at the event loop; the loop was told of as blocked.
        self._look_at = 0.0
        self._told = False

    # ------------------------------------------------------------------ what rows and columns differ in

    @abstractmethod
    def argument_of(self, records: Sequence[PendingResult]) -> Any:
        """What the function gets for these records together."""

    @property
    @abstractmethod
    def results_of(self) -> ResultsOf:
        """How results are found in what the function returned."""

    @abstractmethod
    def shares_of(self, records: Sequence[PendingResult], results: list[Any]) -> Iterable[list[Any]]:
        """The results of each record, among those of a call for several."""

    @abstractmethod
    def emitted(self, complete: PendingResult) -> Iterable[Any]:
        """The results of a record in the form in which they leave the operator."""

    @abstractmethod
    def stored(self, pending: PendingResult) -> Any:
        """A record as state has it."""

    @abstractmethod
    def restored(self, elements: Sequence[Any]) -> Iterable[PendingResult]:
        """The records that state had."""

    @abstractmethod
    def described(self, records: Sequence[PendingResult]) -> str:
        """The records of a failed call, for people."""

    # ------------------------------------------------------------------ life cycle

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._function = load_function(self._spec.function, self.name)
        self._strategy = load_function(self._spec.strategy, self.name)

    def in_flight_state(self) -> ListState[Any]:
        """The list state of records in flight."""
        return self.context.operator_state.list_state(ListStateDescriptor(IN_FLIGHT, self.stored_type))

    def open(self) -> None:
        context = self.context
        self._in_flight = self.in_flight_state()
        self._opened = True
        open_function(self._function, OperatorRuntimeContext(context, keyed=False))
        retrying = Retrying(self._strategy)
        self._timed = None if self._batches is None else TimedCalls(context.environment.clock)
        self._thread = EventLoopThread.acquire(context.environment.settings.get(python.EVENT_LOOP))
        self._runner = self._new_runner(retrying)
        self._register_metrics(self._runner)
        restored = list(self._in_flight.get())
        self._in_flight.clear()
        self.begin(self.restored(restored))

    @property
    def argument_copier(self) -> Callable[[Any], Any] | None:
        """Copies what the function gets, where it could change that: state has the record as it came.

        None = nothing can change.
        """
        return None

    def _new_runner(self, retrying: Retrying) -> CallRunner:
        function, spec, copier = self._function, self._spec, self.argument_copier
        invoke, timeout, timed = function.async_invoke, function.timeout, self._timed
        caller = CallingOperator(self.name, self.context.environment.attempt_id)
        if spec.threads:
            blocking = invoke if timed is None else timed.blocking(invoke)
            self._threads = CallingThreads(self._thread, blocking, spec.threads, caller)
            invoke = self._threads.call
        elif timed is not None:
            invoke = timed.coroutine(invoke)
        if copier is not None:
            # A call begins anew behind a crash, and with each attempt.
            invoke, timeout = partial(_with_copy, copier, invoke), partial(_with_copy, copier, timeout)
        called = CalledFunction(invoke, timeout, self.results_of)
        limits = CallLimits(spec.timeout_ms / 1000, spec.capacity)
        return CallRunner(
            self._thread, called, retrying, limits, self.context.environment.clock, self._deliver, caller
        )

    def calls_in_flight(self) -> list[Any]:
        runner = self._runner
        return [] if runner is None else runner.in_flight()

    def _register_metrics(self, runner: CallRunner) -> None:
        metrics = self.context.metric_group
        metrics.register("asyncCallsInFlight", lambda: len(self._queue))
        metrics.register("asyncOldestCallMs", runner.oldest_ms)
        metrics.register("asyncRetries", lambda: runner.retries)
        metrics.register("asyncTimeouts", lambda: runner.timeouts)
        batches = self._batches
        if batches is not None:
            metrics.register("asyncBatchRows", lambda: batches.size.rows)

    def close(self) -> None:
        runner, self._runner = self._runner, None
        try:
            if runner is not None and not self._calls_end(runner):
                _logger.warning(
                    "operator '%s': calls of %s go on although they were cancelled",
                    self.name,
                    type(self._function).__name__,
                )
        finally:
            if runner is not None:
                self._thread.release()
            if self._opened:
                self._opened = False
                close_function(self._function)

    def _calls_end(self, runner: CallRunner) -> bool:
        """Cancels all calls; False if some have not ended in time."""
        until = perf_counter() + _CLOSE_SECONDS
        ended = runner.close(_CLOSE_SECONDS)
        threads, self._threads = self._threads, None
        return (threads is None or threads.close(until - perf_counter())) and ended

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._in_flight.update([self.stored(pending) for pending in self._queue.pending()])

    # ------------------------------------------------------------------ calls

    @property
    def room(self) -> int:
        return max(0, self._spec.capacity - len(self._queue))

    def begin(self, records: Iterable[PendingResult]) -> None:
        """Takes records; their calls begin now, or with others."""
        if not len(self._queue):
            self._look_at = perf_counter() + _BLOCKED_SECONDS
        added = list(records)
        self._queue.add(added)
        batches = self._batches
        if batches is None:
            self._submit(added)
        elif added:
            now = self.context.environment.clock.epoch_ms()
            batches.add(added, now)
            # Nothing more comes into a full queue.
            self._begin_batches(now if self.room else None)

    def _begin_batches(self, now: int | None) -> None:
        """Begins the calls that are due at `now` (epoch ms); None = those of all records that wait."""
        if self._batches is not None:
            taken = self._batches.take(now, self._free_calls)
            self._under_way += len(taken)
            self._submit([BatchCall(records, self.argument_of(records)) for records in taken])

    @property
    def _free_calls(self) -> int | None:
        """Number of threads without a call, -1 if a call waits for one; None = calls for many rows need no thread."""
        threads = self._spec.threads
        return threads - self._under_way if threads else None

    def _submit(self, requests: Sequence[Request]) -> None:
        if requests:
            assert self._runner is not None, "the operator is open"
            self._runner.submit(requests)

    # ------------------------------------------------------------------ results

    def _deliver(self, finished: Sequence[FinishedCall]) -> None:
        """Takes finished calls; runs on the thread of the event loop."""
        self._inbox.append(finished)
        self.arrived.set()
        self.context.environment.post(self._take_inbox)

    def _take_inbox(self) -> None:
        """Completes the records of finished calls. Raises OperatorFailure with the records of one that has failed."""
        self.arrived.clear()
        batches, complete = self._batches, self._queue.complete
        if batches is not None and self._timed is not None:
            for rows, seconds in self._timed.taken():
                batches.size.measured(rows, seconds)
        while self._inbox:
            for request, results, error in self._inbox.popleft():
                if error is not None:
                    self._fail([request] if batches is None else request.records, error)
                elif batches is None:
                    complete(request, results[0])
                else:
                    self._complete_batch(request.records, results)
        self._begin_batches(self.context.environment.clock.epoch_ms())

    def _fail(self, records: list[PendingResult], error: BaseException) -> None:
        """Take the error of a call. Raises OperatorFailure with its records, unless `on_error` leaves these out."""
        failed = self.failed
        if failed is None or not isinstance(error, Exception) or failed.is_fatal(error):
            raise OperatorFailure(self.name, self.described(records), error)
        self._under_way -= self._batches is not None
        if len(records) == 1:
            self.failed_alone(records[0], error)
            return
        # Nobody says which row is at fault, so that halves are called until it is alone.
        middle = len(records) // 2
        self.call_halves(records[:middle], records[middle:])

    def failed_alone(self, record: PendingResult, error: Exception) -> None:
        """Take the error of a record that had a call of its own: it is in flight until its letter leaves there."""
        self._queue.complete(record, FailedResults(error))

    def call_halves(self, *halves: Sequence[PendingResult]) -> None:
        """Begin a call for each half of the records of a failed one."""
        self._under_way += len(halves)
        self._submit([BatchCall(list(half), self.argument_of(half)) for half in halves])

    def leave_out_by(self, failed: FailedRecords) -> None:
        # The loop only collects rows: a record is left out when its call has failed.
        failed.inputs = ()
        super().leave_out_by(failed)
        self.emits_tagged = True

    def _complete_batch(self, records: Sequence[PendingResult], results: list[Any]) -> None:
        self._under_way -= 1
        complete = self.complete
        for record, share in zip(records, self.shares_of(records, results), strict=True):
            complete(record, share)

    @property
    def complete(self) -> Callable[[PendingResult, list[Any]], None]:
        """Takes the results of a record."""
        return self._queue.complete

    @property
    def awaits_results(self) -> bool:
        return len(self._queue) > 0 or self._queue.may_leave

    def await_results(self, seconds: float) -> None:
        # Whoever waits here has no input for the records that wait for others.
        self._begin_batches(None)
        if not self._queue.may_leave:
            self.arrived.wait(seconds)
            self._take_inbox()
        due = self.seconds_until_upkeep()
        if due is not None and due <= 0:
            self.upkeep()

    def _leaving(self, deadline: float) -> Iterator[Any]:
        """What may leave: results of whole records, and marks of time in their places."""
        # Each name that is looked up here costs every record.
        pop, seconds = self._queue.pop, perf_counter
        emitted = self.emitted if self.failed is None else self.emitted_or_left_out
        while (left := pop()) is not None:
            if isinstance(left, PendingResult):
                yield from emitted(left)
            elif isinstance(left, Watermark):
                self.time_behind.forward(left.timestamp)
            else:
                self.time_behind.set_idle(left.idle)
            if seconds() > deadline:
                return

    def emitted_or_left_out(self, complete: PendingResult) -> Iterable[Any]:
        """The results of a record, or its letter if somebody reads letters."""
        failed, results = self.failed, complete.results
        assert failed is not None, "the program says on_error"
        failed.seen[0] += complete.size
        if not isinstance(results, FailedResults):
            return self.emitted(complete)
        letters = failed.tagged_letters(results.error, 0, complete.row, complete.timestamp)
        return [(each, complete.timestamp) for each in letters]

    def next_timer(self) -> int | None:
        if self._queue.may_leave:
            return 0
        free = self._free_calls
        return None if self._batches is None or (free is not None and free <= 0) else self._batches.due

    def fire_timers(self, now: int, deadline: float) -> Iterator[Any]:
        self._begin_batches(now)
        yield from self._leaving(deadline)

    # ------------------------------------------------------------------ time

    def on_watermark(self, timestamp: int) -> Iterator[Any]:
        self._queue.add_mark(Watermark(timestamp))
        if timestamp == MAX_TIMESTAMP:
            self._begin_batches(None)
        yield from self._leaving(inf)

    def on_idle(self, idle: bool) -> Iterator[Any]:
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
                " Await the answer there, or let threads call the function: pass `threads=8` with the stream.",
                self.name,
                blocked,
                line,
            )


def _with_copy(copier: Callable[[Any], Any], method: Callable[[Any], Any], argument: Any) -> Any:
    """Calls a method of the function with a copy of its argument."""
    return method(copier(argument))
