"""The reading side of sources: a task's head that polls a SourceReader, and the adapter for SourceFunction.

Owner: the task thread; a SourceFunction's run() has a thread of its own that hands rows over a bounded queue. The
enumerator lives in source_coordinator.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from yarrow.container.operators.base import Operator, OperatorContext
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
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
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.graph.operator_spec import SourceFunctionOperator, SourceOperator

_log = logging.getLogger(__name__)

#: Event payloads are pickled tuples. To the coordinator: ("register", host), ("request",), ("event", object),
#: ("finished",); to a reader: ("splits", [...]), ("no_more",), ("event", object), ("complete",).
COORDINATOR = -1


class SourceHead(Operator):
    """Base of both kinds of source: the task polls it for rows."""

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
        self._reader: SourceReader[Any, SourceSplit] | None = None
        self._coordinator_complete = False
        self._errors = 0

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
            self._reader.add_splits(message[1])
        elif message[0] == "no_more":
            self._reader.notify_no_more_splits()
        elif message[0] == "event":
            self._reader.handle_source_event(message[1])

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
        self._rows: deque[tuple[Any, int | None]] = deque()
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
        rows = self._rows
        if len(rows) >= _HANDOVER_ROWS:
            with self._room:
                while len(rows) >= _HANDOVER_ROWS and not self.cancelled:
                    self._room.wait(0.2)
        if self.cancelled:
            raise SourceCancelledError
        # Fixed here: the task reads it while the function already changes its object for the next.
        rows.append((element if self._object_reuse else freeze_or_copy(element), timestamp))
        if self._sleeping:
            self._sleeping = False
            self._wake()

    def emit_watermark(self, timestamp: int) -> None:
        """Event time is not available in this version."""
        raise UnsupportedFeatureError(
            f"source '{self._name}': emit_watermark is not available in this version; emit records without watermarks"
        )

    def mark_as_temporarily_idle(self) -> None:
        """Nothing depends on idleness while there are no watermarks."""
        return None

    def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
        """Held while a record is emitted and the position moved."""
        return self._lock

    def close(self) -> None:
        """Part of the SourceContext interface."""
        return None

    # ---- task thread
    def take(self, max_rows: int) -> tuple[list[Any], list[int | None] | None]:
        rows = self._rows
        count = min(max_rows, len(rows))
        if not count:
            self._sleeping = True
            # A row may have come between the look and the flag.
            count = min(max_rows, len(rows))
        taken = [rows.popleft() for _ in range(count)]
        with self._room:
            self._room.notify_all()
        values = [value for value, _ in taken]
        stamps = [stamp for _, stamp in taken]
        return values, stamps if any(stamp is not None for stamp in stamps) else None


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
        done = self._done
        rows, stamps = self._handover.take(max_rows)
        if rows:
            self.records_in += len(rows)
            return SourceRecords(rows, stamps)
        if done:
            if self._failure is not None:
                raise self._failure
            return None
        return NothingAvailable()

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
