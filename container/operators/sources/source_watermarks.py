"""SourceTime: timestamps and watermarks inside a source: a generator for each split, the minimum over the splits.

Owner: the task thread of the source. A split counts from its assignment until its reader reports its end;
idle splits do not count. A reader without splits keeps its watermark, or is idle after the strategy's time. A
batch is cut where a generator emits between two of its rows. Must not know readers or chains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.event_time import (
    BOUNDED_JUMPS,
    LATE_RECORDS,
    PeriodicEmission,
    TimeSettings,
    WatermarkTarget,
    WatermarkTracker,
    check_timestamps,
    refuse_missing,
)
from yarrow.container.operators.late_ledger import LateLedger
from yarrow.container.operators.pausable_clock import PausableClock
from yarrow.container.operators.sources.split_time import SplitTime
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.runtime.common.late_records import LateRemedy
from yarrow.runtime.data.elements import MIN_TIMESTAMP, is_record_batch


class SourceTime:
    """The event time of a source; by default it only checks timestamps."""

    def __init__(self, name: str) -> None:
        self._name = name

    def timed(self, records: SourceRecords) -> Iterable[SourceRecords]:
        """The records with their timestamps, in parts; watermarks are sent between two parts.

        Each part must be processed before the next is requested. Raises OperatorFailure for a wrong
        timestamp.
        """
        if (
            records.timestamps is not None
            and not records.has_checked_timestamps
            and isinstance(records.rows, Sequence)
        ):
            check_timestamps(records.timestamps, records.rows, self._name)
        return (records,)

    def add_splits(self, split_ids: Iterable[str]) -> None:
        """Adds the reader's new splits."""
        return None

    def next_emission(self) -> int | None:
        """Epoch ms of the next periodic watermark; None = none."""
        return None

    def emit_if_due(self, now_ms: int) -> None:
        """Sends a periodic watermark if it is due."""
        return None

    def rows_wait(self, waiting: bool) -> None:
        """Says that no split is polled, because rows wait or the task is suspended; or that splits are polled again."""
        return None

    def not_read_for(self, milliseconds: int) -> None:
        """Says that the task did something else, though the source was to be polled so long ago."""
        return None

    def unreachable(self, split_ids: Collection[str]) -> None:
        """Says which splits cannot be reached now: they are not idle, though no rows of them come."""
        return None

    def splits(self) -> list[tuple[str | None, SplitTime]]:
        """The counting splits with their ids; None = the reader's records name no split. Any thread."""
        return []


class IngestionTime(SourceTime):
    """Stamps rows with the time at which they are read; the watermark follows the clock."""

    def __init__(
        self, name: str, context: OperatorContext, settings: TimeSettings, target: WatermarkTarget
    ) -> None:
        super().__init__(name)
        self._clock = context.environment.clock
        self._target = target
        self._periodic = PeriodicEmission(settings.interval_ms, self._clock.epoch_ms())
        self._last = MIN_TIMESTAMP
        #: Rows with the stamp `_last` may not have run.
        self._at_hand = False

    def timed(self, records: SourceRecords) -> Iterator[SourceRecords]:
        # The clock may be set back: a watermark's promise stays.
        self._last = max(self._last, self._clock.epoch_ms())
        records.timestamps = [self._last] * _length(records)
        self._at_hand = True
        yield records
        self._at_hand = False

    def next_emission(self) -> int | None:
        return self._periodic.next_ms

    def emit_if_due(self, now_ms: int) -> None:
        if self._periodic.is_due(now_ms):
            if not self._at_hand:
                self._last = max(self._last, now_ms)
            self._target.emit_watermark(self._last - 1)


class SplitWatermarks(SourceTime):
    """Event time by a strategy, with a generator for each split."""

    def __init__(
        self,
        name: str,
        strategy: WatermarkStrategy,
        context: OperatorContext,
        settings: TimeSettings,
        target: WatermarkTarget,
    ) -> None:
        super().__init__(name)
        self._strategy = strategy
        self._context = context
        self._settings = settings
        self._target = target
        assigner = strategy.timestamp_assigner
        self._extract = None if assigner is None else assigner.extract_timestamp
        self._clock = context.environment.clock
        #: A split is not idle because it was not polled: this time stands meanwhile.
        self._read_time = PausableClock(self._clock.epoch_ms)
        interval = settings.interval_ms if strategy.makes_watermarks else 0
        self._periodic = PeriodicEmission(interval, context.environment.clock.epoch_ms())
        self._ledger = LateLedger(name, LateRemedy.MORE_DISORDER)
        self._ledger.register(context.environment.metrics)
        self._splits: dict[str, SplitTime] = {}
        #: Counts while there is no split, and takes records of readers that name none.
        self._without_split = self._new_split()
        #: True for a reader whose records name no split.
        self._unnamed = False
        self._moved = False
        #: A generator has seen rows that may not have run: its watermark waits for them.
        self._ahead = False
        #: The interval passed meanwhile.
        self._was_due = False
        #: Sums over the ended splits.
        self._late_before = 0
        self._bounded_before = 0
        context.metric_group.gauge(
            LATE_RECORDS, lambda: self._late_before + sum(t.late_records for t in self._trackers())
        )
        context.metric_group.gauge(
            BOUNDED_JUMPS, lambda: self._bounded_before + sum(t.bounded_jumps for t in self._trackers())
        )

    def _new_split(self) -> SplitTime:
        return SplitTime(
            self._strategy, self._read_time, self._settings.max_jump_ms, self._note_move, self._ledger
        )

    def _add_split(self, split_id: str) -> SplitTime:
        split = self._splits[split_id] = self._new_split()
        split.measure(self._context.metric_group, split_id)
        return split

    def _note_move(self) -> None:
        self._moved = True

    def _trackers(self) -> list[WatermarkTracker]:
        return [split.tracker for split in (self._without_split, *list(self._splits.values()))]

    def _counted(self) -> list[WatermarkTracker]:
        """The generators whose minimum is the watermark."""
        if self._splits and not self._unnamed:
            return [split.tracker for split in self._splits.values()]
        return [self._without_split.tracker]

    def splits(self) -> list[tuple[str | None, SplitTime]]:
        if self._unnamed:
            return [(None, self._without_split)]
        return list(self._splits.items())

    # ------------------------------------------------------------------ splits

    def add_splits(self, split_ids: Iterable[str]) -> None:
        for split_id in split_ids:
            if split_id not in self._splits:
                self._add_split(split_id)
                self._moved = True
        # The first split of an idle reader makes it active before its records come.
        self._hand_on()

    def _end_splits(self, split_ids: Iterable[str]) -> None:
        for split_id in split_ids:
            split = self._splits.pop(split_id, None)
            if split is None:
                continue
            self._forget(split.tracker)
            split.remove()
            # The last removed split leaves its watermark, and the time to idleness begins anew.
            self._moved = bool(self._splits)
            if not self._splits and not self._unnamed:
                self._forget(self._without_split.tracker)
                self._without_split = self._new_split()

    def _forget(self, tracker: WatermarkTracker) -> None:
        self._late_before += tracker.late_records
        self._bounded_before += tracker.bounded_jumps

    def _split_of(self, split_id: str | None) -> SplitTime:
        if split_id is None:
            self._unnamed = True
            return self._without_split
        split = self._splits.get(split_id)
        return self._add_split(split_id) if split is None else split

    def _hand_on(self) -> None:
        """Sends the generators' changes since the last call to the stream."""
        if not self._moved or self._ahead:
            return
        self._moved = False
        counted = self._counted()
        active = [tracker for tracker in counted if not tracker.idle]
        if active:
            self._target.set_idle(False)
            self._target.emit_watermark(min(tracker.watermark for tracker in active))
        else:
            self._target.emit_watermark(max(tracker.watermark for tracker in counted))
            self._target.set_idle(True)

    # ------------------------------------------------------------------ records

    def timed(self, records: SourceRecords) -> Iterator[SourceRecords]:
        self._end_splits(records.finished_before)
        rows = records.rows
        if not _length(records):
            self._hand_on()
            yield records
            return
        split = self._split_of(records.split_id)
        tracker = split.tracker
        if not isinstance(rows, Sequence):
            yield records
            if self._strategy.makes_watermarks:
                self._note_timestamps(split, rows, records.timestamps)
            return
        stamps = self._stamps(rows, records.timestamps)
        records.timestamps = stamps
        if not self._strategy.makes_watermarks:
            yield records
        elif tracker.needs_each_event:
            yield from self._each(records, rows, stamps, tracker)
            split.note_rows(stamps[-1], self._clock.epoch_ms())
        else:
            yield records
            self._note_timestamps(split, rows, stamps)

    def _note_timestamps(self, split: SplitTime, rows: Any, stamps: Sequence[int | None] | None) -> None:
        """Passes rows that have run to a generator that needs only the greatest of their timestamps."""
        last = None
        if stamps is None:
            split.tracker.on_untimed()
        else:
            last = stamps[-1]
            known = [stamp for stamp in stamps if stamp is not None] if stamps.count(None) else stamps
            if known:
                split.tracker.on_events(rows, known)  # type: ignore[arg-type]
            else:
                split.tracker.on_untimed()
        split.note_rows(last, self._clock.epoch_ms())
        self._hand_on()

    def _each(
        self,
        records: SourceRecords,
        rows: Sequence[Any],
        stamps: Sequence[int | None],
        tracker: WatermarkTracker,
    ) -> Iterator[SourceRecords]:
        start = 0
        side, errors = records.side, records.num_errors
        for index, stamp in enumerate(stamps):
            tracker.on_event(rows[index], MIN_TIMESTAMP if stamp is None else stamp)
            if self._moved:
                end = index + 1
                yield from self._seen(
                    SourceRecords(rows[start:end], stamps[start:end], records.split_id, side, errors)
                )
                start, side, errors = end, None, 0
        if start < len(rows):
            yield from self._seen(SourceRecords(rows[start:], stamps[start:], records.split_id, side, errors))

    def _seen(self, part: SourceRecords) -> Iterator[SourceRecords]:
        """A part that the generator has seen completely; mails of the task may run between two of its rows."""
        self._ahead = True
        yield part
        self._ahead = False
        if self._was_due:
            self._was_due = False
            self._ask()
        self._hand_on()

    def _stamps(self, rows: Sequence[Any], former: Sequence[int | None] | None) -> list[int | None]:
        """The timestamp of each row; the assigner's if there is one."""
        extract = self._extract
        stamps: list[Any] = []
        if extract is None:
            # As in Flink a source may have no timestamps: its records then make no watermark.
            stamps = [None] * len(rows) if former is None else list(former)
        else:
            append, row = stamps.append, None
            try:
                if former is None:
                    for row in rows:
                        append(extract(row, MIN_TIMESTAMP))
                else:
                    for row, stamp in zip(rows, former, strict=True):
                        append(extract(row, MIN_TIMESTAMP if stamp is None else stamp))
            except BaseException as error:  # user code may raise anything, SystemExit included
                raise OperatorFailure(self._name, short_record(row), error) from error
            if None in stamps:
                refuse_missing(rows[stamps.index(None)], self._name)
        check_timestamps(stamps, rows, self._name)
        return stamps

    # ------------------------------------------------------------------ periodic

    def rows_wait(self, waiting: bool) -> None:
        self._read_time.pause(waiting)

    def not_read_for(self, milliseconds: int) -> None:
        self._read_time.leave_out(milliseconds)

    def unreachable(self, split_ids: Collection[str]) -> None:
        for split_id, split in self._splits.items():
            split.reach(split_id not in split_ids)

    def next_emission(self) -> int | None:
        return self._periodic.next_ms

    def emit_if_due(self, now_ms: int) -> None:
        if not self._periodic.is_due(now_ms):
            return
        if self._ahead:
            self._was_due = True
            return
        self._ask()
        self._hand_on()

    def _ask(self) -> None:
        for tracker in self._counted():
            tracker.on_periodic_emit()


def _length(records: SourceRecords) -> int:
    rows = records.rows
    return rows.num_rows if is_record_batch(rows) else len(rows)
