"""The reading side of sources: a task's head that polls a SourceReader, and the adapter for SourceFunction.

Owner: the task thread; a SourceFunction's run() has a thread of its own that hands rows over a bounded queue. The
enumerator lives in source_coordinator.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.errors import TimestampError
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.event_time import TimeSettings, WatermarkMaker
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.operators.source_watermarks import IngestionTime, SourceTime, SplitWatermarks
from yarrow.container.operators.subtask_context import SubtaskContext
from yarrow.container.operators.user_functions import close_function, load_function, open_function
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.functions import SourceFunction
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark, WatermarkStatus
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.graph.operator_spec import SourceFunctionOperator, SourceOperator

_log = logging.getLogger(__name__)

#: Event payloads are pickled tuples. To the coordinator: ("register", host), ("request",), ("event", object),
#: ("finished",); to a reader: ("splits", [...]), ("no_more",), ("event", object), ("complete",).
COORDINATOR = -1


class SourceHead(WatermarkMaker):
    """Base of both kinds of source: the task polls it for rows, and has them timed."""

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        settings = TimeSettings(context)
        self._time = SourceTime(self.name)
        if settings.ingestion:
            self._time = IngestionTime(self.name, context, settings, self.watermarks_to)
        elif (strategy := self.strategy()) is not None:
            self._time = SplitWatermarks(self.name, strategy, context, settings, self.watermarks_to)
        self.stamps_rows = type(self._time) is not SourceTime

    def strategy(self) -> WatermarkStrategy | None:
        """What makes watermarks inside the source."""
        return None

    def timed(self, records: SourceRecords) -> Iterable[SourceRecords]:
        """What `poll` gave, with timestamps, in parts between which watermarks go out; see SourceTime."""
        return self._time.timed(records)

    def next_timer(self) -> int | None:
        return self._time.next_emission()

    def fire_timers(self, now: int, deadline: float) -> Iterable[tuple[Any, int | None]]:
        self._time.emit_if_due(now)
        return ()

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """As SourceReader.poll."""
        raise TypeError(f"operator '{self.name}' is no source")

    def handle_event(self, payload: bytes) -> None:
        """An event from the coordinator."""
        return None

    def cancel(self) -> None:
        """The task is being cancelled: let go of threads that run user code."""
        return None

    @property
    def has_live_thread(self) -> bool:
        """True while a thread of user code is left."""
        return False


class ReaderContext(SubtaskContext):
    """The SourceReaderContext of one subtask."""

    def __init__(self, context: OperatorContext) -> None:
        super().__init__(context)
        self._context = context

    def request_split(self) -> None:
        """Asks the enumerator."""
        self.send("request")

    def send_event_to_enumerator(self, event: Any) -> None:
        """Sends a picklable event."""
        self.send("event", event)

    def send(self, *message: Any) -> None:
        """A message to the coordinator."""
        self._environment.send_operator_event(
            self._context.descriptor.id, COORDINATOR, self._environment.subtask, pickle.dumps(message, 5)
        )

    def wake_up(self) -> None:
        """Any thread: poll soon."""
        self._environment.wake()


class ReadingSource(SourceHead):
    """Polls the reader of a Source."""

    def __init__(self, name: str, spec: SourceOperator) -> None:
        super().__init__(name)
        self._blob = spec.source
        self._strategy_blob = spec.watermark_strategy
        self._reader: SourceReader[Any, SourceSplit] | None = None
        self._coordinator_complete = False
        self._errors = 0

    def strategy(self) -> WatermarkStrategy | None:
        blob = self._strategy_blob
        return None if blob is None else cast(WatermarkStrategy, load_function(blob, self.name))

    def open(self) -> None:
        source: Source[Any, SourceSplit] = load_function(self._blob, self.name)
        context = ReaderContext(self.context)
        self.context.metric_group.gauge("numRecordsInErrors", lambda: self._errors)
        self._reader = source.create_reader(context)
        context.send("register", "")
        self._reader.start()

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        assert self._reader is not None
        records = self._reader.poll(max_rows)
        if isinstance(records, SourceRecords):
            self.records_in += len(records.rows)
            self._errors += records.num_errors
        return records

    def handle_event(self, payload: bytes) -> None:
        message = pickle.loads(payload)
        if message[0] == "complete":
            self._coordinator_complete = True
        elif self._reader is None:
            return
        elif message[0] == "splits":
            self._add_splits(message[1])
        elif message[0] == "no_more":
            self._reader.notify_no_more_splits()
        elif message[0] == "event":
            self._reader.handle_source_event(message[1])

    def _add_splits(self, splits: Sequence[SourceSplit]) -> None:
        """Assigned or restored ones: each counts for the watermark from now on."""
        assert self._reader is not None
        self._time.add_splits([split.split_id for split in splits])
        self._reader.add_splits(splits)

    def finish(self) -> None:
        ReaderContext(self.context).send("finished")

    @property
    def is_drained(self) -> bool:
        # The coordinator lives with subtask 0 and must outlive the other readers.
        return self.context.environment.subtask != 0 or self._coordinator_complete

    def close(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.close()


#: How long the end of a task waits for run() to return after cancel(); meanwhile its thread stands still.
_JOIN_SECONDS = 1.0
#: Rows a SourceFunction may be ahead of the task.
_HANDOVER_ROWS = 8192


class _Handover:
    """A bounded queue from the source's thread to the task, and the SourceContext in front of it."""

    def __init__(self, wake: Callable[[], None], source_name: str, object_reuse: bool) -> None:
        self._wake = wake
        self._name = source_name
        self._object_reuse = object_reuse
        #: (row, timestamp) in order, and marks of event time between them.
        self._rows: deque[tuple[Any, int | None] | Watermark | WatermarkStatus] = deque()
        #: Marks put in and taken out.
        self._marks_put = 0
        self._marks_taken = 0
        self._room = threading.Condition()
        self._lock = threading.RLock()
        self._sleeping = True
        self.cancelled = False

    # ---- source thread
    def collect(self, element: Any) -> None:
        """A row without timestamp."""
        self._put(element, None)

    def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
        """A row with its event time."""
        self._put(element, timestamp)

    def _put(self, element: Any, timestamp: int | None) -> None:
        # Fixed here: the task reads it while the function already changes its object for the next.
        self._append((element if self._object_reuse else freeze_or_copy(element), timestamp))

    def _append(self, entry: tuple[Any, int | None] | Watermark | WatermarkStatus) -> None:
        rows = self._rows
        if len(rows) >= _HANDOVER_ROWS:
            with self._room:
                while len(rows) >= _HANDOVER_ROWS and not self.cancelled:
                    self._room.wait(0.2)
        if self.cancelled:
            raise SourceCancelledError
        rows.append(entry)
        if self._sleeping:
            self._sleeping = False
            self._wake()

    def emit_watermark(self, timestamp: int) -> None:
        """No record at or before `timestamp` will follow; a lower one than before has no effect."""
        if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            raise TimestampError(
                f"source '{self._name}': emit_watermark({timestamp!r}): expected whole milliseconds since the epoch, "
                "an int of 64 bits"
            )
        self._put_mark(Watermark(timestamp))

    def mark_as_temporarily_idle(self) -> None:
        """Nothing holds its breath for this source until its next record or watermark."""
        self._put_mark(WatermarkStatus(True))

    def _put_mark(self, mark: Watermark | WatermarkStatus) -> None:
        self._marks_put += 1
        self._append(mark)

    def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
        """Held while a record is emitted and the position moved."""
        return self._lock

    def close(self) -> None:
        """Part of the SourceContext interface."""
        return None

    # ---- task thread
    def take(
        self, max_rows: int
    ) -> tuple[list[Any], list[int | None] | None, Watermark | WatermarkStatus | None]:
        """Rows up to the next mark, their timestamps if any has one, and the mark."""
        rows = self._rows
        count = min(max_rows, len(rows))
        if not count:
            self._sleeping = True
            # A row may have come between the look and the flag.
            count = min(max_rows, len(rows))
        mark: Watermark | WatermarkStatus | None = None
        taken: list[Any] = []
        if self._marks_put == self._marks_taken:
            # A mark that comes now lies behind these rows: what counts is that there was none among them.
            taken = [rows.popleft() for _ in range(count)]
        while len(taken) < count and mark is None:
            entry = rows.popleft()
            if isinstance(entry, tuple):
                taken.append(entry)
            else:
                mark = entry
                self._marks_taken += 1
        with self._room:
            self._room.notify_all()
        values = [value for value, _ in taken]
        stamps = [stamp for _, stamp in taken]
        return values, stamps if any(stamp is not None for stamp in stamps) else None, mark


class SourceCancelledError(Exception):
    """Raised inside a SourceFunction's collect after cancel, so that its run() ends."""


class SourceFunctionHead(SourceHead):
    """Runs a SourceFunction in a thread of its own."""

    def __init__(self, name: str, spec: SourceFunctionOperator) -> None:
        super().__init__(name)
        self._blob = spec.function
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._done = False
        self._mark: Watermark | WatermarkStatus | None = None

    def open(self) -> None:
        environment = self.context.environment
        self._function: SourceFunction[Any] = load_function(self._blob, self.name)
        open_function(self._function, OperatorRuntimeContext(self.context, keyed=False))
        self._handover = _Handover(environment.wake, self.name, environment.object_reuse)
        self._thread = threading.Thread(
            target=self._run, name=f"source {self.name} {environment.subtask}", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        try:
            self._function.run(self._handover)
        except SourceCancelledError:
            pass
        except BaseException as error:  # reported as the task's failure, SystemExit included
            self._failure = error
        finally:
            self._done = True
            self.context.environment.wake()

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        while True:
            done = self._done
            rows, stamps, self._mark = self._handover.take(max_rows)
            if rows:
                self.records_in += len(rows)
                return SourceRecords(rows, stamps)
            if self._mark is None:
                break
            self._send_mark()
        if done:
            if self._failure is not None:
                raise self._failure
            return None
        return NothingAvailable()

    def timed(self, records: SourceRecords) -> Iterator[SourceRecords]:
        self.watermarks_to.set_idle(False)
        yield from super().timed(records)
        self._send_mark()

    def _send_mark(self) -> None:
        """Sends the watermark or status behind the rows at hand; where sources stamp rows, theirs does not count."""
        mark, self._mark = self._mark, None
        if mark is None or isinstance(self._time, IngestionTime):
            return
        if isinstance(mark, Watermark):
            self.watermarks_to.emit_watermark(mark.timestamp)
            self.watermarks_to.set_idle(False)
        else:
            self.watermarks_to.set_idle(True)

    def cancel(self) -> None:
        if self._thread is None or self._done or self._handover.cancelled:
            return
        self._handover.cancelled = True
        try:
            self._function.cancel()
        except Exception:
            # The task ends in any case; run() leaves at its next collect.
            _log.exception("cancel() of source '%s' raised", self.name)

    @property
    def has_live_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        if self._thread is not None:
            self.cancel()
            self._thread.join(_JOIN_SECONDS)
            close_function(self._function)
