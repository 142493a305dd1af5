"""TimestampsAndWatermarks: a row operator that stamps each row and makes watermarks of the timestamps.

Owner: the task thread. The fused loop calls the assigner once for each record. If the generator needs only
the greatest timestamp, the loop keeps that and calls nothing else. A watermark of `on_event` is emitted at
once, between two rows. Watermarks and idleness from upstream end here, except the one that ends event time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Never

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import generate_call
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import Emit, HistoryTime, OperatorContext, RowOperator
from yarrow.container.operators.event_time import (
    BOUNDED_JUMPS,
    LATE_RECORDS,
    HandedWatermark,
    PeriodicEmission,
    TimeSettings,
    WatermarkMaker,
    check_timestamp,
    refuse_missing,
    strategy_in,
    tracker_of,
)
from yarrow.container.operators.late_ledger import LateLedger
from yarrow.container.operators.pausable_clock import PausableClock
from yarrow.container.operators.registry import runs
from yarrow.runtime.common.late_records import LateRemedy
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.graph.operator_spec import TimestampsAndWatermarksOperator
from yarrow.runtime.rpc.messages import GeneratorReport, SplitTimeReport
from yarrow.runtime.snapshot.handles import OperatorStateMode

#: The operator state with the hand-over watermark of each subtask that has run a history; part of the format of
#: savepoints.
HANDED_WATERMARK = "watermark"


class AssignedTime(WatermarkMaker):
    """Event time by one strategy, with one generator a subtask."""

    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {HANDED_WATERMARK: OperatorStateMode.UNION}

    def __init__(self, name: str, strategy: bytes) -> None:
        """`strategy` is a pickled WatermarkStrategy."""
        super().__init__(name)
        self._blob = strategy
        #: The highest timestamp that the generator gets when it is asked, if it is not told of each row before.
        self.greatest = MIN_TIMESTAMP
        #: True if the generator hears of rows when they come.
        self._each_row = True
        #: Rows have come since the generator was asked last.
        self._rows_came = False
        #: Greatest timestamp and number of late rows when the generator was asked last.
        self._seen = (MIN_TIMESTAMP, 0)
        #: Epoch ms of the interval in which the last row came; None = none has come.
        self._last_row_ms: int | None = None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._strategy = strategy_in(context.environment, load_function(self._blob, self.name))
        settings = TimeSettings(context)
        ledger = LateLedger(self.name, LateRemedy.MORE_DISORDER)
        ledger.register(context.environment.metrics)
        # No row comes while the task waits for credit: that makes the stream no more idle (FLIP-471).
        self._idle_time = PausableClock(context.environment.clock.epoch_ms)
        self._tracker = tracker_of(self._strategy, self._idle_time, settings, self._changed, ledger)
        interval = settings.interval_ms if self._strategy.makes_watermarks else 0
        self._periodic = PeriodicEmission(interval, context.environment.clock.epoch_ms())
        self._handed = HandedWatermark(context, HANDED_WATERMARK)
        context.metric_group.gauge(LATE_RECORDS, lambda: self._tracker.late_records)
        context.metric_group.gauge(BOUNDED_JUMPS, lambda: self._tracker.bounded_jumps)

    def _changed(self) -> None:
        tracker = self._tracker
        if tracker.idle:
            self.watermarks_to.set_idle(True)
        else:
            self.watermarks_to.set_idle(False)
            self.watermarks_to.emit_watermark(tracker.watermark)

    # ------------------------------------------------------------------ time

    def forwarded_watermark(self, timestamp: int) -> int | None:
        return timestamp if timestamp == MAX_TIMESTAMP else None

    def begin_time(self) -> None:
        first, delay = self._handed.first, self._strategy.max_out_of_orderness_ms
        if first == MIN_TIMESTAMP:
            return
        # A generator that keeps more than the greatest timestamp begins anew, and no watermark goes back.
        greatest = None if delay is None else first + delay + 1
        self._tracker.begin_at(first, greatest)
        self.greatest = MIN_TIMESTAMP if greatest is None else greatest

    def rows_wait(self, waiting: bool) -> None:
        self._idle_time.pause(waiting)

    def next_timer(self) -> int | None:
        return self._periodic.next_ms

    def generator_report(self) -> GeneratorReport:
        greatest = self._tracker.greatest if self._each_row else self.greatest
        known = greatest is not None and greatest != MIN_TIMESTAMP
        split = SplitTimeReport(
            split_id="",
            watermark=self._tracker.watermark,
            last_timestamp=greatest if known else None,
            last_row_ms=self._last_row_ms,
            idle=self._tracker.idle,
        )
        strategy = self._strategy
        return GeneratorReport(
            splits=(split,),
            number_of_splits=1,
            idle_timeout_ms=strategy.idle_timeout_ms,
            own_generator=strategy.has_own_generator,
            makes_watermarks=strategy.has_generator,
        )

    def fire_timers(self, now: int, deadline: float) -> Iterator[Never]:
        # A generator function, so that its errors get the operator's name.
        if self._periodic.is_due(now):
            self._note_rows(now)
            self._ask()
        yield from ()

    def _note_rows(self, now: int) -> None:
        """Notes the interval in which the last row came; the loop tells it of no row that moves nothing."""
        seen = (self.greatest, self._tracker.late_records)
        if self._rows_came or seen != self._seen:
            self._last_row_ms, self._rows_came, self._seen = now, False, seen

    def _ask(self) -> None:
        if not self._each_row and self.greatest != MIN_TIMESTAMP:
            self._tracker.on_event(None, self.greatest)
        self._tracker.on_periodic_emit()

    def end_history(self, before: HistoryTime) -> HistoryTime:
        time = self._time_behind_history(before)
        self._handed.leave(time.watermark)
        return time

    def _time_behind_history(self, before: HistoryTime) -> HistoryTime:
        delay = self._strategy.max_out_of_orderness_ms
        if delay is None:
            return HistoryTime(MIN_TIMESTAMP)
        self._ask()
        greatest = self._tracker.greatest if self._each_row else self.greatest
        if greatest is None or greatest == MIN_TIMESTAMP:
            # Rows may still come from an input that goes on without a watermark of its own.
            waits = before.watermark == MIN_TIMESTAMP and self._strategy.idle_timeout_ms is None
            return HistoryTime(MIN_TIMESTAMP if waits else None, delay + 1)
        return HistoryTime(self._tracker.watermark, delay + 1)


@runs(TimestampsAndWatermarksOperator)
class TimestampsAndWatermarks(AssignedTime, RowOperator):
    """Stamps rows and makes watermarks, by one strategy."""

    one_to_one = True
    passes_rows = True
    stamps_rows = True

    def __init__(self, name: str, spec: TimestampsAndWatermarksOperator) -> None:
        super().__init__(name, spec.strategy)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        stamped = self._strategy.needs_timestamps or self._strategy.timestamp_assigner is not None
        # An idle stream must wake at its very next row, and a limit needs each row's timestamp.
        self._each_row = (
            self._tracker.needs_each_event
            or not stamped
            or self._strategy.idle_timeout_ms is not None
            or TimeSettings(context).max_jump_ms is not None
        )

    # ------------------------------------------------------------------ rows

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        stamp = self._generate_timestamp(code, value, timestamp)
        if not self._strategy.makes_watermarks:
            emit(value, stamp)
        elif self._each_row:
            emit(value, stamp)
            code.line(f"{code.bind('on_row', self._on_row)}({value}, {stamp})")
        else:
            operator, tracker = code.bind("operator", self), code.bind("tracker", self._tracker)
            with code.block(f"if {stamp} > {operator}.greatest:"):
                code.line(f"{operator}.greatest = {stamp}")
            with code.block(f"elif {stamp} <= {tracker}.watermark:"):
                code.line(f"{tracker}.late_records += 1")
            emit(value, stamp)

    def _generate_timestamp(self, code: CodeWriter, value: str, timestamp: str | None) -> str:
        """Generates code for the row's timestamp, an int if one is needed; returns its variable."""
        assigner = self._strategy.timestamp_assigner
        stamp = code.fresh("t")
        former = "None" if timestamp is None else timestamp
        if assigner is None:
            code.line(f"{stamp} = {former}")
            if self._strategy.needs_timestamps:
                with code.block(f"if {stamp} is None:"):
                    code.line(f"{code.bind('missing', self._refuse_missing)}({value})")
            return stamp
        minimum = code.bind("none", MIN_TIMESTAMP)
        if timestamp is None:
            former = minimum
        else:
            former = code.fresh("t")
            code.line(f"{former} = {timestamp} if {timestamp} is not None else {minimum}")
        generate_call(code, "extract", assigner.extract_timestamp, [value, former], stamp)
        maximum = code.bind("most", MAX_TIMESTAMP)
        with code.block(f"if {stamp}.__class__ is not int or not {minimum} <= {stamp} <= {maximum}:"):
            code.line(f"{code.bind('check', self._check)}({stamp}, {value})")
        return stamp

    def _refuse_missing(self, row: Any) -> None:
        refuse_missing(row, self.name)

    def _check(self, timestamp: Any, row: Any) -> None:
        check_timestamp(timestamp, row, self.name)

    def _on_row(self, row: Any, timestamp: int | None) -> None:
        self._rows_came = True
        self._tracker.on_event(row, MIN_TIMESTAMP if timestamp is None else timestamp)
