"""The reading side of sources: a task's head that polls a SourceReader, and the adapter for SourceFunction.

Owner: the task thread; a SourceFunction's run() has a thread of its own that hands rows over a bounded queue. The
enumerator lives in source_coordinator.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.errors import TimestampError
from yarrow.container.operators.base import OperatorContext, TaskEnvironment
from yarrow.container.operators.checkpointed import (
    initialize_function,
    notify_function_aborted,
    notify_function_complete,
    snapshot_function,
)
from yarrow.container.operators.event_time import TimeSettings, WatermarkMaker
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.operators.source_watermarks import IngestionTime, SourceTime, SplitWatermarks
from yarrow.container.operators.subtask_context import SubtaskContext
from yarrow.container.operators.user_functions import close_function, load_function, open_function
from yarrow.container.task.checkpointing.source_events import (
    UNNUMBERED,
    Message,
    Progress,
    ReaderInbox,
    encode_to_coordinator,
)
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.functions import SourceFunction
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark, WatermarkStatus
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.graph.operator_spec import SourceFunctionOperator, SourceOperator

_log = logging.getLogger(__name__)

COORDINATOR = -1
#: Names of operator states; part of the format of savepoints.
SPLITS = "source-splits"
PROGRESS = "source-progress"


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

    def fire_timers(self, now: int, deadline: float) -> Iterator[tuple[Any, int | None]]:
        # A generator function, so that it runs where its errors get the operator's name.
        self._time.emit_if_due(now)
        yield from ()

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """As SourceReader.poll."""
        raise TypeError(f"operator '{self.name}' is no source")

    def handle_event(self, payload: bytes) -> None:
        """An event from the coordinator."""
        return None

    def before_cut(self) -> Iterable[SourceRecords]:
        """Records that were read and belong before the barrier; nothing is read between them and `after_cut`."""
        return ()

    def after_cut(self, checkpoint_id: int) -> None:
        """The state is frozen, or the cut has failed."""
        return None

    def stopped(self) -> None:
        """A savepoint has stopped the job: nothing more is waited for."""
        return None

    def skipped(
        self, environment: TaskEnvironment, operator_id: OperatorID, *, beside_enumerator: bool
    ) -> None:
        """In place of setup and open, where the reader had ended before the restored checkpoint."""
        return None

    @property
    def awaits_readers(self) -> bool:
        """True while a source that was skipped has to stay, for the sake of the enumerator that other readers need."""
        return False

    def cancel(self) -> None:
        """The task is being cancelled: let go of threads that run user code."""
        return None

    @property
    def has_live_thread(self) -> bool:
        """True while a thread of user code is left."""
        return False


class ReaderContext(SubtaskContext):
    """The SourceReaderContext of one subtask."""

    def __init__(self, context: OperatorContext, inbox: ReaderInbox) -> None:
        super().__init__(context)
        self._context = context
        self._inbox = inbox
        self._numbers = itertools.count()

    def request_split(self) -> None:
        """Asks the enumerator."""
        self.send("request")

    def send_event_to_enumerator(self, event: Any) -> None:
        """Sends a picklable event."""
        self.send("event", event)

    def send(self, *message: Any) -> None:
        """A message to the coordinator."""
        self._environment.send_operator_event(
            self._context.descriptor.id,
            COORDINATOR,
            self._environment.subtask,
            encode_to_coordinator(self._inbox.taken, next(self._numbers), message),
        )

    def wake_up(self) -> None:
        """Any thread: poll soon."""
        self._environment.wake()


class ReadingSource(SourceHead):
    """Polls the reader of a Source.

    Its state is the list of splits with their positions, and which event of the enumerator it has taken last.
    """

    def __init__(self, name: str, spec: SourceOperator) -> None:
        super().__init__(name)
        self._blob = spec.source
        self._strategy_blob = spec.watermark_strategy
        self._reader: SourceReader[Any, SourceSplit] | None = None
        self._coordinator_complete = False
        self._no_more_splits = False
        #: Waits for this at its end: the first checkpoint behind it, where the reader commits by notifications.
        self._commits = False
        self._ended = False
        #: It was skipped, and the enumerator beside it is not done.
        self._serves = False
        self._last_cut: int | None = None
        self._errors = 0

    def strategy(self) -> WatermarkStrategy | None:
        blob = self._strategy_blob
        return None if blob is None else cast(WatermarkStrategy, load_function(blob, self.name))

    def open(self) -> None:
        environment = self.context.environment
        source: Source[Any, SourceSplit] = load_function(self._blob, self.name)
        state = self.context.operator_state
        self._splits_state = state.get_list_state(ListStateDescriptor(SPLITS))
        self._progress_state = state.get_union_list_state(ListStateDescriptor(PROGRESS))
        restored: list[SourceSplit] = list(self._splits_state.get())
        progress = [tuple(entry) for entry in self._progress_state.get()]
        own = (environment.subtask, environment.parallelism)
        mine = next((entry for entry in progress if entry[:2] == own), None)
        self._inbox = ReaderInbox(environment.restored.checkpoint_id, -1 if mine is None else mine[2])
        context = self._reader_context = ReaderContext(self.context, self._inbox)
        self.context.metric_group.gauge("numRecordsInErrors", lambda: self._errors)
        self._reader = source.create_reader(context)
        self._commits = (
            type(self._reader).notify_checkpoint_complete is not SourceReader.notify_checkpoint_complete
            and environment.settings.get(checkpointing.INTERVAL) is not None
            and environment.settings.get(checkpointing.AFTER_TASKS_FINISH)
        )
        context.send("register", "", progress, environment.restored.checkpoint_id)
        if restored:
            self._add_splits(restored)
        if mine is not None and mine[3]:
            self._take([("no_more",)])
        self._reader.start()

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        assert self._reader is not None
        records = self._reader.poll(max_rows)
        if isinstance(records, SourceRecords):
            self.records_in += len(records.rows)
            self._errors += records.num_errors
        return records

    def handle_event(self, payload: bytes) -> None:
        if self._reader is not None:
            self._take(self._inbox.receive(payload))
        elif self._serves:
            self._coordinator_complete |= ("complete",) in ReaderInbox(UNNUMBERED, UNNUMBERED).receive(payload)

    def _take(self, messages: Iterable[Message]) -> None:
        reader = self._reader
        assert reader is not None
        for message in messages:
            if message[0] == "complete":
                self._coordinator_complete = True
            elif message[0] == "splits":
                self._add_splits(message[1])
            elif message[0] == "no_more":
                self._no_more_splits = True
                reader.notify_no_more_splits()
            elif message[0] == "event":
                reader.handle_source_event(message[1])

    def _add_splits(self, splits: Sequence[SourceSplit]) -> None:
        """Assigned or restored ones: each counts for the watermark from now on."""
        assert self._reader is not None
        self._time.add_splits([split.split_id for split in splits])
        self._reader.add_splits(splits)

    def snapshot_state(self, checkpoint_id: int) -> None:
        assert self._reader is not None
        environment = self.context.environment
        self._splits_state.update(self._reader.snapshot_state(checkpoint_id))
        progress: Progress = (
            environment.subtask, environment.parallelism, self._inbox.taken, self._no_more_splits,
        )  # fmt: skip
        self._progress_state.update([progress])
        if self._ended and self._last_cut is None:
            self._last_cut = checkpoint_id

    def after_cut(self, checkpoint_id: int) -> None:
        if self._reader is not None:
            self._reader_context.send("cut", checkpoint_id)
            self._take(self._inbox.cut(checkpoint_id))
            self.context.environment.wake()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        assert self._reader is not None
        self._reader.notify_checkpoint_complete(checkpoint_id)
        if self._last_cut is not None and checkpoint_id >= self._last_cut:
            self._commits = False

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._take(self._inbox.give_up(checkpoint_id))
        self.context.environment.wake()

    def skipped(
        self, environment: TaskEnvironment, operator_id: OperatorID, *, beside_enumerator: bool
    ) -> None:
        self._serves = beside_enumerator
        # The coordinator lives with subtask 0, which ends last: with it there is nobody to tell.
        if environment.subtask != 0 or beside_enumerator:
            payload = encode_to_coordinator(UNNUMBERED, 0, ("finished",))
            environment.send_operator_event(operator_id, COORDINATOR, environment.subtask, payload)

    @property
    def awaits_readers(self) -> bool:
        return self._serves and not self._coordinator_complete

    def finish(self) -> None:
        self._ended = True
        self._reader_context.send("finished")

    def stopped(self) -> None:
        self._coordinator_complete = True
        self._commits = False

    @property
    def is_drained(self) -> bool:
        # The coordinator lives with subtask 0 and must outlive the other readers.
        return not self._commits and (self.context.environment.subtask != 0 or self._coordinator_complete)

    def close(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.close()


#: How long the end of a task waits for run() to return after cancel(); meanwhile its thread stands still.
_JOIN_SECONDS = 1.0
#: How long the task waits for a SourceFunction's lock before it takes rows, for which that thread may be waiting.
_HOLD_SECONDS = 0.002
#: Rows a SourceFunction may be ahead of the task.
_HANDOVER_ROWS = 8192


class CheckpointLock(AbstractContextManager[None]):
    """Held by a source function while it emits records and moves its position; the task holds it during a cut.

    A task that wants it goes first: a function that emits without a pause would not let it in otherwise.
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
        """True when nobody emits any more until `let_go`; False when somebody still did after `seconds`."""
        self._open.clear()
        return self._lock.acquire(timeout=seconds)

    def let_go(self, *, held: bool) -> None:
        """Functions may emit again."""
        if held:
            self._lock.release()
        self._open.set()


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
        self._lock = CheckpointLock()
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
        # Nothing comes between the last row before a cut and the cut.
        with self._lock:
            self._append_locked(entry)

    def _append_locked(self, entry: tuple[Any, int | None] | Watermark | WatermarkStatus) -> None:
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
    def hold(self) -> bool:
        """Keeps the source's thread from emitting until `let_go`; False when it is still emitting."""
        return self._lock.hold(_HOLD_SECONDS)

    def let_go(self, *, held: bool) -> None:
        """The source's thread may emit again."""
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
            return records
        if done:
            if self._failure is not None:
                raise self._failure
            return None
        return NothingAvailable()

    def _take_rows(self, max_rows: int = _HANDOVER_ROWS) -> SourceRecords | None:
        while True:
            rows, stamps, self._mark = self._handover.take(max_rows)
            if rows:
                self.records_in += len(rows)
                return SourceRecords(rows, stamps)
            if self._mark is None:
                return None
            self._send_mark()

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

    def before_cut(self) -> Iterator[SourceRecords]:
        """Everything emitted before the function could be stopped between two records."""
        while True:
            # A function that holds the lock may wait for room: it gets it.
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
