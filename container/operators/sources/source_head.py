"""SourceHead: a task's head that is polled for rows instead of being given them.

Owner: the task thread. What both kinds of source have in common; the kinds are source_reader.py and source_function.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.operators.base import OperatorContext, TaskEnvironment
from yarrow.container.operators.event_time import TimeSettings, WatermarkMaker
from yarrow.container.operators.sources.source_metrics import SourceMetrics
from yarrow.container.operators.sources.source_watermarks import IngestionTime, SourceTime, SplitWatermarks
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    SourceRecords,
)
from yarrow.runtime.common.ids import OperatorID


class SourceHead(WatermarkMaker):
    """Base of both kinds of source: the task polls it for rows, and has them timed."""

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
            self._time = SplitWatermarks(self.name, strategy, context, settings, self.watermarks_to)
        self.stamps_rows = type(self._time) is not SourceTime

    def strategy(self) -> WatermarkStrategy | None:
        """What makes watermarks inside the source."""
        return None

    def timed(self, records: SourceRecords) -> Iterator[SourceRecords]:
        """What `poll` gave, with timestamps, in parts between which watermarks go out; see SourceTime."""
        for part in self._time.timed(records):
            self.measured.emitted(part)
            yield part

    def next_timer(self) -> int | None:
        return self._time.next_emission()

    def fire_timers(self, now: int, deadline: float) -> Iterator[tuple[Any, int | None]]:
        # A generator function, so that it runs where its errors get the operator's name.
        self._time.emit_if_due(now)
        yield from ()

    #: It may be asked for more rows than a chunk has: what waits is timed in parts, and may go into the state.
    reads_ahead = False

    def rows_wait(self, waiting: bool) -> None:
        """Rows that it gave wait, or the task stands still: it is not asked for others meanwhile; or it is again."""
        self._time.rows_wait(waiting)

    def carry(self, records: list[SourceRecords]) -> bool:
        """Has what it gave, and was not run, be part of its state at the cut that comes now; False where it cannot."""
        return False

    def take_carried(self) -> list[SourceRecords]:
        """What the restored state holds of that, once."""
        return []

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

    #: A savepoint has stopped the job.
    was_stopped = False

    def stopped(self) -> None:
        """A savepoint has stopped the job: nothing more is waited for."""
        self.was_stopped = True

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
    def stands_still(self) -> bool:
        """True while user code waits in the middle of an emit because the task takes no rows."""
        return False

    @property
    def has_live_thread(self) -> bool:
        """True while a thread of user code is left."""
        return False
