"""SourceAlignment: keeps one reader behind the bound of its group: reports, bounds, and pauses of splits.

Owner: the task thread of the source. The JobMaster compares the readers of a group. The reader reports the event time
that it has reached, and waits where that is above the last bound. `split_pauses` decides what waits. The bound is
operator state, so that a restored reader keeps it until the next JobMaster sends another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.common.watermark_strategy import WatermarkAlignment
from yarrow.container.operators.base import OperatorContext, ReaderProgress
from yarrow.container.operators.event_time import PeriodicEmission
from yarrow.container.operators.sources.source_watermarks import SourceTime
from yarrow.container.operators.sources.split_pauses import pauses
from yarrow.container.protocol.errors import WatermarkAlignmentError
from yarrow.datastream.connectors.base import SourceReader
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

#: Name of the operator state with the last bound of each subtask; part of the format of savepoints.
ALIGNMENT_BOUND = "source-alignment"


class SourceAlignment:
    """The alignment of one reader."""

    def __init__(
        self,
        name: str,
        rule: WatermarkAlignment,
        context: OperatorContext,
        time: SourceTime,
        report: Callable[[ReaderProgress], None],
    ) -> None:
        """`name` is the source's. `report` sends what the reader has reached to the JobMaster."""
        self._name = name
        self.rule = rule
        self._time = time
        self._report = report
        environment = context.environment
        self._clock = environment.clock
        self._allows_unaligned = environment.settings.get(pipeline.ALLOW_UNALIGNED_SOURCE_SPLITS)
        self._periodic = PeriodicEmission(rule.update_interval, environment.clock.epoch_ms())
        descriptor: ListStateDescriptor[int] = ListStateDescriptor(ALIGNMENT_BOUND)
        self._bound_state = context.operator_state.union_list_state(descriptor)
        #: Event time in ms behind which the reader waits; None = it has none yet.
        self.bound: int | None = min(self._bound_state.get(), default=None)
        self._reader: SourceReader[Any, Any]
        self._pauses_splits = False
        #: Ids of the splits that the reader has been told to pause.
        self._told: set[str] = set()
        #: The reader is not polled.
        self.waits = False
        #: Splits or their times may have changed since pauses were decided on.
        self._is_stale = True
        self._last_report: ReaderProgress | None = None
        self._has_ended = False
        context.metric_group.register("watermarkAlignmentDrift", self._drift)

    def read_by(self, reader: SourceReader[Any, Any]) -> None:
        """Sets the reader whose splits are paused."""
        self._reader = reader
        self._pauses_splits = type(reader).pause_or_resume_splits is not SourceReader.pause_or_resume_splits
        self._told = set()

    # ------------------------------------------------------------------ splits and rows

    def splits_added(self) -> None:
        """Takes note of new splits. Raises WatermarkAlignmentError if the reader cannot align several."""
        splits = self._time.splits()
        if len(splits) > 1 and not (self._pauses_splits or self._allows_unaligned):
            raise WatermarkAlignmentError(
                f"source '{self._name}' aligns its watermarks in the group '{self.rule.watermark_group}', and its "
                f"{type(self._reader).__name__} has got {len(splits)} splits, but cannot pause single ones. Implement "
                "pause_or_resume_splits in the reader, or give it one split at a time. Or set "
                f"{pipeline.ALLOW_UNALIGNED_SOURCE_SPLITS.key} to true: then the slowest split says when "
                "the reader waits"
            )
        self._is_stale = True
        self._report_change()

    def rows_ran(self) -> None:
        """Takes note of rows that have moved the time of a split."""
        self._is_stale = True

    def may_poll(self) -> bool:
        """Whether the reader may be polled now; pauses and resumes single splits before."""
        if self._is_stale:
            self._is_stale = False
            self._decide()
            if self.waits and self._needs_bound:
                self._report_change()
        return not self.waits

    def _decide(self) -> None:
        splits = self._time.splits()
        reached = {split_id: split.reached for split_id, split in splits}
        decided = pauses(reached, self.bound, single_splits=self._pauses_splits)
        self.waits = decided.whole_reader
        for split_id, split in splits:
            split.pause(split_id in decided.paused)
        if self.waits or not self._pauses_splits:
            return
        # The reader that is not polled need not know, and one split alone never gets here.
        paused = {split_id for split_id in decided.paused if split_id is not None}
        resumed = {split_id for split_id in self._told - paused if split_id in reached}
        fresh = paused - self._told
        self._told = paused
        if fresh or resumed:
            self._reader.pause_or_resume_splits(sorted(fresh), sorted(resumed))

    # ------------------------------------------------------------------ reports and bounds

    @property
    def _needs_bound(self) -> bool:
        """True until the whole group has reached some time: nobody can go on before that."""
        return self.bound is None or self.bound <= MIN_TIMESTAMP + self.rule.max_allowed_watermark_drift

    @property
    def _reached(self) -> int | None:
        """The least event time of the active splits; None = the reader holds nobody back."""
        if self._has_ended:
            return None
        return min(
            (split.reached for _, split in self._time.splits() if not split.tracker.idle), default=None
        )

    def begin(self) -> None:
        """Tells the group of the reader, which is open."""
        self._report_change()

    def end(self) -> None:
        """Tells the group that the reader has ended: it holds nobody back, though its task may go on for long."""
        self._has_ended = True
        self._report_change()

    def take_bound(self, bound_ms: int) -> None:
        """Takes the bound of the JobMaster, which may also be lower than the last: a slower reader has come."""
        if bound_ms != self.bound:
            self.bound = bound_ms
            self._is_stale = True

    def next_report(self) -> int | None:
        """Epoch ms of the next report."""
        return self._periodic.next_ms

    def report_if_due(self, now_ms: int) -> None:
        """Reports what the reader has reached, once an interval."""
        if self._periodic.is_due(now_ms):
            self._report_change()

    def _report_change(self) -> None:
        rule = self.rule
        progress = ReaderProgress(
            rule.watermark_group,
            self._reached,
            rule.max_allowed_watermark_drift,
            rule.update_interval,
            self._needs_bound,
        )
        if progress != self._last_report:
            self._last_report = progress
            self._report(progress)

    def snapshot(self) -> None:
        """Puts the bound into the state."""
        self._bound_state.update([] if self.bound is None else [self.bound])

    def _drift(self) -> int | None:
        """By how many ms the reader is ahead of the slowest one of its group. Any thread."""
        bound, reached = self.bound, self._reached
        if bound is None or reached is None or bound == MAX_TIMESTAMP or self._needs_bound:
            return None
        return max(0, reached - (bound - self.rule.max_allowed_watermark_drift))
