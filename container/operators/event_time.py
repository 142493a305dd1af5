"""Timestamps of rows, and the limits on a user's watermark generator.

Owner: the task thread. Watermarks never go back. An idle stream becomes active with its next watermark. One
record advances event time by at most `pipeline.watermark.max-jump`. Must not know batches, splits or chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from yarrow.container.operators.base import Operator, OperatorContext, TaskEnvironment
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.container.protocol.errors import TimestampError
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.rpc.messages import GeneratorReport

_TIMESTAMP_TYPES = frozenset((int, type(None)))

#: The metric of records that came after a watermark had passed them.
LATE_RECORDS = "numLateRecords"
#: The metric of records whose timestamp was too far ahead to be believed.
BOUNDED_JUMPS = "numWatermarkJumpsBounded"


class WatermarkTarget(Protocol):
    """Takes the watermarks of an operator that makes them: the chain, which forwards them behind the operator."""

    @property
    def watermark(self) -> int:
        """The last forwarded watermark; MIN_TIMESTAMP before the first."""
        ...

    def emit_watermark(self, watermark: int) -> None:
        """Forwards a watermark and ends idleness; no effect unless it is higher than the last."""

    def set_idle(self, idle: bool) -> None:
        """Forwards a change of idleness."""


class _Nowhere:
    """The target of an operator outside of a chain; it drops everything."""

    watermark = MIN_TIMESTAMP

    def emit_watermark(self, watermark: int) -> None:
        return None

    def set_idle(self, idle: bool) -> None:
        return None


class HandedWatermark:
    """The hand-over watermark in the state of an operator: a history leaves it, and the stream begins with it."""

    def __init__(self, context: OperatorContext, name: str) -> None:
        """`name`: that of the operator state, part of the format of savepoints."""
        self._states = context.operator_state
        self._descriptor: ListStateDescriptor[int] = ListStateDescriptor(name)
        #: The least over all subtasks that have left one; MIN_TIMESTAMP = none. Snapshots of the stream lack it.
        self.first: int = min(self._states.take_union_list(self._descriptor), default=MIN_TIMESTAMP)

    def leave(self, watermark: int | None) -> None:
        """Sets this subtask's watermark at the end of history; None = nothing holds event time back here."""
        state = self._states.union_list_state(self._descriptor)
        state.update([] if watermark is None else [watermark])


class WatermarkMaker(Operator):
    """Base of operators that make watermarks."""

    makes_watermarks = True

    #: Set by the chain before `setup`.
    watermarks_to: WatermarkTarget = _Nowhere()

    def begin_time(self) -> None:
        """Sends the watermark with which the stream begins, before the first row; the whole chain is open."""
        return None

    def generator_report(self) -> GeneratorReport:
        """What the operator knows of its generator, for the question who holds event time back. Any thread."""
        return GeneratorReport(splits=(), number_of_splits=0, own_generator=True)

    def rows_wait(self, waiting: bool) -> None:
        """Says that no row can come because the task does not read its input, or that the task reads again.

        The time to idleness stands meanwhile.
        """
        return None


class TimeSettings:
    """The options of watermarks, in milliseconds."""

    def __init__(self, context: OperatorContext) -> None:
        settings = context.environment.settings
        #: 0 = generators are never asked periodically.
        self.interval_ms = round(settings.get(pipeline.AUTO_WATERMARK_INTERVAL).seconds * 1000)
        jump = settings.get(pipeline.WATERMARK_MAX_JUMP)
        #: None = no limit.
        self.max_jump_ms = None if jump is None else round(jump.seconds * 1000)
        characteristic = settings.get(pipeline.TIME_CHARACTERISTIC)
        #: Sources stamp rows with the machine's time.
        self.ingestion = characteristic is TimeCharacteristic.INGESTION_TIME


def strategy_in(environment: TaskEnvironment, strategy: WatermarkStrategy) -> WatermarkStrategy:
    """The strategy, without its generator where input is bounded: it then only assigns timestamps."""
    if not environment.bounded:
        return strategy
    return replace(
        WatermarkStrategy.no_watermarks(),
        timestamp_assigner=strategy.timestamp_assigner,
        timestamp_column=strategy.timestamp_column,
    )


def check_timestamps(timestamps: Sequence[int | None], rows: Sequence[Any], operator: str) -> None:
    """Raises OperatorFailure naming the first row whose timestamp is neither None nor an int64."""
    kinds = set(map(type, timestamps))
    if kinds <= _TIMESTAMP_TYPES:
        numbers = timestamps if len(kinds) == 1 else [t for t in timestamps if t is not None]
        if kinds == {type(None)} or not timestamps:
            return
        if min(numbers) >= MIN_TIMESTAMP and max(numbers) <= MAX_TIMESTAMP:  # type: ignore[type-var, operator]
            return
    for timestamp, row in zip(timestamps, rows, strict=False):
        if timestamp is not None:
            check_timestamp(timestamp, row, operator)


def check_timestamp(timestamp: Any, row: Any, operator: str) -> int:
    """The timestamp. Raises OperatorFailure with the row if it is no int64."""
    if type(timestamp) is int and MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        return timestamp
    error = TimestampError(
        f"operator '{operator}': the timestamp of a record is {short_record(timestamp)} ("
        f"{type(timestamp).__name__}); expected whole milliseconds since the epoch, an int of 64 bits."
        " Convert it in the timestamp assigner or source"
    )
    raise OperatorFailure(operator, short_record(row), error)


def refuse_missing(row: Any, operator: str) -> NoReturn:
    """Raises OperatorFailure for a row without timestamp."""
    error = TimestampError(
        f"operator '{operator}': a record has no timestamp, but its watermark strategy needs one. Give the"
        " strategy a timestamp assigner (with_timestamp_assigner), or emit records with timestamps from"
        " the source"
    )
    raise OperatorFailure(operator, short_record(row), error)


def refuse_untimed(row: Any, operator: str, key: Any = NO_KEY) -> NoReturn:
    """Raises OperatorFailure for a row without timestamp in an operator of event time, with the row's key if given."""
    error = TimestampError(
        f"operator '{operator}': a record has no timestamp, but the operator works by event time. Call"
        " assign_timestamps_and_watermarks with a timestamp assigner before it, or emit records with timestamps from"
        " the source"
    )
    shown = short_record(row)
    raise OperatorFailure(operator, shown if key is NO_KEY else f"{shown} (key {short_record(key)})", error)


class WatermarkTracker:
    """One generator with its latest watermark and idleness.

    `changed` is called when these may move the stream's watermark.

    It is the WatermarkOutput that the generator sees.
    """

    def __init__(
        self,
        generator: WatermarkGenerator,
        max_jump_ms: int | None,
        changed: Callable[[], None],
        ledger: LateLedger | None = None,
    ) -> None:
        """`ledger` hears of records whose time is too far ahead to be believed."""
        self._generator = generator
        self._ledger = ledger
        self._changed = changed
        self._max_jump = max_jump_ms
        self.needs_each_event = generator.needs_each_event
        #: The highest believed timestamp; None before the first.
        self.greatest: int | None = None
        self.watermark = MIN_TIMESTAMP
        self.idle = False
        self.late_records = 0
        self.bounded_jumps = 0
        self._in_event = False

    def begin_at(self, watermark: int, greatest: int | None) -> None:
        """Goes on behind records that another tracker has seen: their watermark and their highest timestamp."""
        self.watermark, self.greatest = watermark, greatest
        self._changed()

    # ------------------------------------------------------------------ records

    def on_event(self, row: Any, timestamp: int) -> None:
        """Passes an emitted record to the generator."""
        if timestamp <= self.watermark and timestamp != MIN_TIMESTAMP:
            self.late_records += 1
        self._in_event = True
        self._generator.on_event(row, self._believed(timestamp), self)
        self._in_event = False

    def on_events(self, rows: Sequence[Any], timestamps: Sequence[int]) -> None:
        """Passes many records; only for generators that do not need each."""
        watermark = self.watermark
        if min(timestamps) <= watermark:
            self.late_records += sum(t <= watermark for t in timestamps)
        greatest = max(timestamps)
        bound = self._max_jump
        if bound is None:
            if self.greatest is None or greatest > self.greatest:
                self.greatest = greatest
        elif self.greatest is None or greatest - self.greatest > bound:
            greatest = max(map(self._believed, timestamps))
        else:
            self.greatest = max(greatest, self.greatest)
        self._generator.on_event(rows[-1], greatest, self)

    def on_untimed(self) -> None:
        """Passes rows without timestamps: they end idleness, and make no watermark. For generators that need no row."""
        self._generator.on_event(None, MIN_TIMESTAMP, self)

    def on_batch(self, greatest: int, late: int, timestamps: Callable[[], Sequence[int]]) -> None:
        """Passes rows of columns: their greatest timestamp, and how many are late.

        `timestamps` gives those of all rows in their order, for the bound on jumps. For generators that need no row.
        """
        self.late_records += late
        bound, former = self._max_jump, self.greatest
        if bound is None or (former is not None and greatest - former <= bound):
            self.greatest = greatest if former is None else max(greatest, former)
        else:
            greatest = max(map(self._believed, timestamps()))
        self._generator.on_event(None, greatest, self)

    def _believed(self, timestamp: int) -> int:
        greatest = self.greatest
        if greatest is None:
            self.greatest = timestamp
        elif timestamp > greatest:
            bound = self._max_jump
            if bound is not None and timestamp - greatest > bound:
                self.bounded_jumps += 1
                if self._ledger is not None:
                    self._ledger.ahead(LateTime(timestamp, self.watermark, timestamp - greatest - bound))
                timestamp = greatest + bound
            self.greatest = timestamp
        return timestamp

    def on_periodic_emit(self) -> None:
        """Asks the generator, because the interval has passed."""
        self._generator.on_periodic_emit(self)

    # ------------------------------------------------------------------ WatermarkOutput

    def emit_watermark(self, watermark: int) -> None:
        if type(watermark) is not int or not MIN_TIMESTAMP <= watermark <= MAX_TIMESTAMP:
            raise TimestampError(
                f"a watermark generator emitted {short_record(watermark)} ({type(watermark).__name__}); expected whole "
                "milliseconds since the epoch, an int of 64 bits"
            )
        former = self.watermark
        if watermark <= former:
            return
        bound = self._max_jump
        if self._in_event and bound is not None and former != MIN_TIMESTAMP and watermark - former > bound:
            self.bounded_jumps += 1
            watermark = former + bound
        self.watermark = watermark
        self.idle = False
        self._changed()

    def mark_idle(self) -> None:
        if not self.idle:
            self.idle = True
            self._changed()

    def mark_active(self) -> None:
        if self.idle:
            self.idle = False
            self._changed()


def tracker_of(
    strategy: WatermarkStrategy,
    processing_time: Callable[[], int],
    settings: TimeSettings,
    changed: Callable[[], None],
    ledger: LateLedger,
) -> WatermarkTracker:
    """A new generator of the strategy; `processing_time` returns milliseconds."""
    generator = strategy.create_watermark_generator(processing_time)
    return WatermarkTracker(generator, settings.max_jump_ms, changed, ledger)


class PeriodicEmission:
    """Says when generators are asked next; an interval of 0 never asks."""

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self._interval = interval_ms
        self.next_ms: int | None = now_ms + interval_ms if interval_ms else None

    def is_due(self, now_ms: int) -> bool:
        """Whether generators are due; sets the next time if so."""
        if self.next_ms is None or now_ms < self.next_ms:
            return False
        self.next_ms = now_ms + self._interval
        return True
