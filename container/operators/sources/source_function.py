"""SourceFunctionHead: runs a SourceFunction, whose run() has its own thread and passes rows to the task.

Owner: the task thread, except the function's side. `_Handover` is a bounded queue between the two threads.
CheckpointLock keeps the function from emitting within a cut.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from yarrow.container.codegen.user_functions import close_function, load_function, open_function
from yarrow.container.operators.checkpointed import (
    initialize_function,
    notify_function_aborted,
    notify_function_complete,
    snapshot_function,
)
from yarrow.container.operators.registry import runs
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.operators.sources.source_head import SourceHead
from yarrow.container.operators.sources.source_watermarks import IngestionTime
from yarrow.container.protocol.errors import TimestampError
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    SourceRecords,
)
from yarrow.datastream.functions import SourceFunction
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark, WatermarkStatus
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.graph.connector_spec import SourceFunctionOperator

_log = logging.getLogger(__name__)
#: Most rows that a SourceFunction may be ahead of the task.
_HANDOVER_ROWS = 8192
#: Seconds that the end of a task waits for run() after cancel(); its thread is blocked meanwhile.
_JOIN_SECONDS = 1.0
#: Seconds that the task waits for a SourceFunction's lock before it takes rows, for which that thread may be
#: waiting.
_HOLD_SECONDS = 0.002


class CheckpointLock(AbstractContextManager[None]):
    """A lock that a source function holds while it emits and moves its position; the task holds it during a cut.

    The task has priority: a function that emits without a pause would otherwise keep it out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            self._open.wait()
            self._lock.acquire()
            self._owner = me
        self._depth += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()

    # ---- task thread

    def hold(self, seconds: float) -> bool:
        """True if no function emits until `let_go`; False if one still did after `seconds`."""
        self._open.clear()
        return self._lock.acquire(timeout=seconds)

    def let_go(self, *, held: bool) -> None:
        """Lets functions emit again."""
        if held:
            self._lock.release()
        self._open.set()


class _Handover:
    """A bounded queue from the source's thread to the task, with the SourceContext as its input."""

    def __init__(self, wake: Callable[[], None], source_name: str, object_reuse: bool) -> None:
        self._wake = wake
        self._name = source_name
        self._object_reuse = object_reuse
        #: (row, timestamp) in order, with watermarks and statuses between them.
        self._rows: deque[tuple[Any, int | None] | Watermark | WatermarkStatus] = deque()
        #: Number of marks put in and taken out.
        self._marks_put = 0
        self._marks_taken = 0
        self._room = threading.Condition()
        self._lock = CheckpointLock()
        self._sleeping = True
        #: The source's thread waits for room.
        self.is_full = False
        self.cancelled = False

    # ---- source thread
    def collect(self, element: Any) -> None:
        """Emits a row without timestamp."""
        self._put(element, None)

    def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
        """Emits a row with its event time in epoch ms."""
        self._put(element, timestamp)

    def _put(self, element: Any, timestamp: int | None) -> None:
        # Copied here: the task reads it while the function may already change its object.
        self._append((element if self._object_reuse else freeze_or_copy(element), timestamp))

    def _append(self, entry: tuple[Any, int | None] | Watermark | WatermarkStatus) -> None:
        # Nothing comes between the last row before a cut and the cut.
        with self._lock:
            self._append_locked(entry)

    def _append_locked(self, entry: tuple[Any, int | None] | Watermark | WatermarkStatus) -> None:
        rows = self._rows
        if len(rows) >= _HANDOVER_ROWS:
            self.is_full = True
            # A task that waits for credit must hear that the function is blocked.
            self._wake()
            with self._room:
                while len(rows) >= _HANDOVER_ROWS and not self.cancelled:
                    self._room.wait(0.2)
            self.is_full = False
        if self.cancelled:
            raise SourceCancelledError
        rows.append(entry)
        if self._sleeping:
            self._sleeping = False
            self._wake()

    def emit_watermark(self, timestamp: int) -> None:
        """Promises that no record at or before `timestamp` will follow; no effect if it is lower than before."""
        if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            raise TimestampError(
                f"source '{self._name}': emit_watermark({timestamp!r}): expected whole milliseconds since the epoch, "
                "an int of 64 bits"
            )
        self._put_mark(Watermark(timestamp))

    def mark_as_temporarily_idle(self) -> None:
        """Excludes this source from watermarks until its next record or watermark."""
        self._put_mark(WatermarkStatus(True))

    def _put_mark(self, mark: Watermark | WatermarkStatus) -> None:
        self._marks_put += 1
        self._append(mark)

    def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
        """The lock to hold while a record is emitted and the position moved."""
        return self._lock

    def close(self) -> None:
        """Does nothing; part of the SourceContext interface."""
        return None

    # ---- task thread
    def hold(self) -> bool:
        """Keeps the source's thread from emitting until `let_go`; False if it is still emitting."""
        return self._lock.hold(_HOLD_SECONDS)

    def let_go(self, *, held: bool) -> None:
        """Lets the source's thread emit again."""
        self._lock.let_go(held=held)

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
            # A mark that comes now lies behind these rows; there was none among them.
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


@runs(SourceFunctionOperator)
class SourceFunctionHead(SourceHead):
    """Runs a SourceFunction in a thread of its own."""

    emits_watermarks = True

    def __init__(self, name: str, spec: SourceFunctionOperator) -> None:
        super().__init__(name)
        self._blob = spec.function
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._done = False
        self._held = False
        self._mark: Watermark | WatermarkStatus | None = None

    def open(self) -> None:
        environment = self.context.environment
        self._function: SourceFunction[Any] = load_function(self._blob, self.name)
        initialize_function(self._function, self.context, None)
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
        records = self._take_rows(max_rows)
        if records is not None:
            self.measured.fetched()
            return records
        if done:
            if self._failure is not None:
                raise self._failure
            return None
        self.measured.nothing_there()
        return NothingAvailable()

    def _take_rows(self, max_rows: int = _HANDOVER_ROWS) -> SourceRecords | None:
        while True:
            rows, stamps, self._mark = self._handover.take(max_rows)
            if rows:
                return SourceRecords(rows, stamps)
            if self._mark is None:
                return None
            self._send_mark()

    def timed(self, records: SourceRecords) -> Iterator[SourceRecords]:
        self.watermarks_to.set_idle(False)
        yield from super().timed(records)
        self._send_mark()

    def _send_mark(self) -> None:
        """Sends the watermark or status behind the present rows; ignored if sources stamp rows themselves."""
        mark, self._mark = self._mark, None
        if mark is None or isinstance(self._time, IngestionTime):
            return
        if isinstance(mark, Watermark):
            self.watermarks_to.emit_watermark(mark.timestamp)
            self.watermarks_to.set_idle(False)
        else:
            self.watermarks_to.set_idle(True)

    def before_cut(self) -> Iterator[SourceRecords]:
        """All rows emitted before the function could be stopped between two records."""
        while True:
            # A function that holds the lock may wait for room, and gets it.
            self._held = self._handover.hold()
            while isinstance(records := self._take_rows(), SourceRecords):
                yield records
            if self._held:
                return

    def snapshot_state(self, checkpoint_id: int) -> None:
        snapshot_function(self._function, checkpoint_id)

    def after_cut(self, checkpoint_id: int) -> None:
        self._handover.let_go(held=self._held)
        self._held = False

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        notify_function_complete(self._function, checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        notify_function_aborted(self._function, checkpoint_id)

    def cancel(self) -> None:
        if self._thread is None or self._done or self._handover.cancelled:
            return
        self._handover.cancelled = True
        try:
            self._function.cancel()
        except Exception:
            # The task ends in any case; run() ends at its next collect.
            _log.exception("cancel() of source '%s' raised", self.name)

    @property
    def stands_still(self) -> bool:
        return self._handover.is_full

    @property
    def has_live_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        if self._thread is not None:
            self.cancel()
            self._thread.join(_JOIN_SECONDS)
            close_function(self._function)
