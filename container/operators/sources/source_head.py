"""SourceHead: a task's head that is polled for rows instead of being given them.

Owner: the task thread. The common part of both kinds of source: source_reader.py and source_function.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from yarrow.common.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from yarrow.container.operators.base import OperatorContext, TaskEnvironment
from yarrow.container.operators.event_time import TimeSettings, WatermarkMaker, strategy_in
from yarrow.container.operators.sources.source_metrics import SourceMetrics
from yarrow.container.operators.sources.source_watermarks import IngestionTime, SourceTime, SplitWatermarks
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    SourceRecords,
)
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.rpc.messages import GeneratorReport

#: Splits of a source that a report names, the slowest first.
SPLITS_REPORTED = 10


class SourceHead(WatermarkMaker):
    """The head of a source's chain: the task polls it for rows, and gets their times from it."""

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        settings = TimeSettings(context)
        self._time = SourceTime(self.name)
        target = self.watermarks_to
        self.measured = SourceMetrics(
            context.metric_group, context.environment.clock, lambda: target.watermark
        )
        if settings.ingestion:
            self._time = IngestionTime(self.name, context, settings, self.watermarks_to)
        elif (strategy := self.strategy()) is not None:
            strategy = strategy_in(context.environment, strategy)
            self._strategy, self.alignment_rule = strategy, strategy.alignment
            self._time = SplitWatermarks(self.name, strategy, context, settings, self.watermarks_to)
        self.stamps_rows = type(self._time) is not SourceTime

    #: True for a source whose user code may emit watermarks.
    emits_watermarks = False
    #: The strategy of watermarks inside the source, once it is set up; None = there is none.
    _strategy: WatermarkStrategy | None = None
    #: The rule by which the source waits for others; None = it waits for none.
    alignment_rule: WatermarkAlignment | None = None

    def strategy(self) -> WatermarkStrategy | None:
        """The strategy of watermarks inside the source; None = there is none."""
        return None

    def timed(self, records: SourceRecords) -> Iterator[SourceRecords]:
        """The records of `poll` with timestamps, in parts; watermarks are sent between parts. See SourceTime."""
        for part in self._time.timed(records):
            self.measured.emitted(part)
            yield part

    def next_timer(self) -> int | None:
        return self._time.next_emission()

    def fire_timers(self, now: int, deadline: float) -> Iterator[tuple[Any, int | None]]:
        # A generator function, so that its errors get the operator's name.
        self._time.emit_if_due(now)
        yield from ()

    #: It may be asked for more rows than a chunk has: waiting rows are timed in parts, and may go into the
    #: state.
    reads_ahead = False

    @property
    def gives_fixed_rows(self) -> bool:
        """Whether rows stay as they are when the source is polled again: its declared type proves it."""
        return False

    def rows_wait(self, waiting: bool) -> None:
        self._time.rows_wait(waiting)

    def not_read_for(self, milliseconds: int) -> None:
        """Says that the task did something else, though the source was to be polled so long ago."""
        self._time.not_read_for(milliseconds)

    def carry(self, records: list[SourceRecords]) -> bool:
        """Adds unprocessed records to its state at the coming cut; False if it cannot."""
        return False

    def take_carried(self) -> list[SourceRecords]:
        """The restored unprocessed records, once."""
        return []

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Like SourceReader.poll."""
        raise TypeError(f"operator '{self.name}' is no source")

    def generator_report(self) -> GeneratorReport:
        strategy = self._strategy
        if strategy is None:
            # A source function may emit watermarks itself.
            own = self.emits_watermarks
            return GeneratorReport(splits=(), number_of_splits=0, own_generator=own, makes_watermarks=own)
        splits = self._time.splits()
        slowest = sorted(splits, key=lambda entry: (entry[1].tracker.idle, entry[1].tracker.watermark))
        group = strategy.alignment
        return GeneratorReport(
            splits=tuple(split.report(split_id or "") for split_id, split in slowest[:SPLITS_REPORTED]),
            number_of_splits=len(splits),
            idle_timeout_ms=strategy.idle_timeout_ms,
            own_generator=strategy.has_own_generator,
            makes_watermarks=strategy.has_generator,
            alignment_group="" if group is None else group.watermark_group,
        )

    def take_bound(self, bound_ms: int) -> None:
        """Takes the event time in ms behind which an aligned source must wait."""
        return None

    def handle_event(self, payload: bytes) -> None:
        """Takes an event of the coordinator."""
        return None

    def before_cut(self) -> Iterable[SourceRecords]:
        """Records that were read and belong before the barrier; none is read between them and `after_cut`."""
        return ()

    def after_cut(self, checkpoint_id: int) -> None:
        """Ends a cut: the state is frozen, or the cut has failed."""
        return None

    #: A savepoint has stopped the job.
    was_stopped = False

    def stopped(self) -> None:
        """Takes note that a savepoint has stopped the job: nothing more is awaited."""
        self.was_stopped = True

    def skipped(
        self, environment: TaskEnvironment, operator_id: OperatorID, *, beside_enumerator: bool
    ) -> None:
        """Replaces setup and open if the reader had ended before the restored checkpoint."""
        return None

    @property
    def awaits_readers(self) -> bool:
        """True while a skipped source must stay, because other readers need the enumerator beside it."""
        return False

    def cancel(self) -> None:
        """Releases threads of user code, because the task is being cancelled."""
        return None

    @property
    def stands_still(self) -> bool:
        """True while user code is blocked in an emit because the task takes no rows."""
        return False

    @property
    def has_live_thread(self) -> bool:
        """True while a thread of user code is alive."""
        return False
