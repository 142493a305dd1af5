"""AlignedSources: takes reports of aligned readers, and sends each group its bounds at its interval.

Owner: the JobMaster's loop. AlignmentGroup decides. A bound is sent again at each interval, so that a lost message
does not stop a reader for ever. A reader keeps its last bound while no JobMaster sends one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.event_time.watermark_alignment import AlignedReader, AlignmentGroup
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.rpc.messages import WatermarkBounds, WatermarkReport


class BoundReceiver(Protocol):
    """A TaskExecutor as a receiver of bounds."""

    def send_bounds(self, bounds: WatermarkBounds) -> None:
        """Delivers bounds in place of earlier ones that have not been sent."""
        ...


class AlignedSources:
    """The groups of aligned sources of one job."""

    def __init__(
        self, graph: ExecutionGraph, links: Mapping[ResourceID, BoundReceiver], timers: NamedTimers
    ) -> None:
        """`links`: TaskExecutors of the job; the mapping is always current."""
        self._graph = graph
        self._links = links
        self._timers = timers
        self._groups: dict[str, AlignmentGroup] = {}

    def report(self, report: WatermarkReport) -> None:
        """Takes a report; a reader that waits for its first bound gets it at once."""
        group = self._groups.setdefault(report.group, AlignmentGroup())
        group.take(report.attempt_id, AlignedReader(report.reached, report.max_drift_ms, report.interval_ms))
        if report.needs_bound or not self._timers.is_set(_timer(report.group)):
            self._announce(report.group)

    def least_of(self, name: str) -> int | None:
        """The least event time of a group, in ms; None = nobody holds it back, or there is no such group."""
        group = self._groups.get(name)
        return None if group is None else group.least

    def _announce(self, name: str) -> None:
        group = self._groups[name]
        group.forget_ended(self._is_live)
        interval_ms = group.interval_ms
        if interval_ms is None:
            del self._groups[name]
            self._timers.cancel(_timer(name))
            return
        by_task_executor: dict[ResourceID, dict[ExecutionAttemptID, int]] = defaultdict(dict)
        for attempt, bound in group.bounds().items():
            execution = self._graph.execution(attempt)
            if execution is not None and execution.worker is not None:
                by_task_executor[execution.worker.resource_id][attempt] = bound
        for resource_id, bounds in by_task_executor.items():
            link = self._links.get(resource_id)
            if link is not None:
                link.send_bounds(WatermarkBounds(job_id=self._graph.job.job_id, bounds=bounds))
        self._timers.after(_timer(name), interval_ms / 1000, partial(self._announce, name))

    def _is_live(self, attempt: ExecutionAttemptID) -> bool:
        execution = self._graph.execution(attempt)
        return execution is not None and not execution.state.is_terminal


def _timer(group: str) -> str:
    return f"watermark alignment of {group}"
