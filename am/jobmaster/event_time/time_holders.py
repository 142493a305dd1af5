"""TimeHolders: the search for who holds event time back: from each end of the job against the stream, up to a split.

Owner: none; pure, without clock or I/O. The search follows the slowest channel of each task to the task that feeds
it. It ends at a generator of watermarks, or where rows or watermarks wait. `holder_texts` says why and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from yarrow.am.jobmaster.event_time.holder_texts import HolderFacts, holder_of
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.rpc.messages import (
    EventTimeHolder,
    GeneratorReport,
    HolderReason,
    OperatorEventTime,
    OperatorTimeReport,
    TaskTimeReport,
)

#: A slice of work, or a time without rows, that lasts so many ms is worth a word.
LONG_MS = 1_000

_Place = tuple[JobVertexID, int]


class AskedTask(NamedTuple):
    """A subtask with its answer."""

    vertex: JobVertex
    subtask: int
    #: Name of the worker; "" = it has none.
    worker: str
    is_running: bool
    #: It has finished: it holds nobody back.
    has_ended: bool
    #: None = it has not answered.
    report: TaskTimeReport | None


class TimeHolders:
    """The search in one job."""

    def __init__(self, job: JobGraph, tasks: Sequence[AskedTask]) -> None:
        self._job = job
        self._tasks: Mapping[_Place, AskedTask] = {(task.vertex.id, task.subtask): task for task in tasks}

    def holders(self) -> tuple[EventTimeHolder, ...]:
        """One holder for each end of the job whose event time has not ended; equal ones are named once."""
        found: dict[tuple[str, int, str], EventTimeHolder] = {}
        for vertex in self._job.vertices:
            if self._job.outputs_of(vertex.id):
                continue
            slowest = self._slowest_of(vertex)
            if slowest is not None:
                holder = self._follow(slowest)
                if holder is not None:
                    found.setdefault((holder.operator, holder.subtask, holder.split_id), holder)
        return tuple(found.values())

    def operators(self) -> tuple[OperatorEventTime, ...]:
        """Event time behind each operator, in the order of the stream."""
        return tuple(
            time
            for vertex in self._job.vertices
            for index in range(len(vertex.operators))
            if (time := self._time_behind(vertex, index)) is not None
        )

    def silent(self) -> tuple[str, ...]:
        """Names of running subtasks that have not answered."""
        return tuple(_title(task) for task in self._tasks.values() if task.is_running and task.report is None)

    # ------------------------------------------------------------------ vertices

    def _answers(self, vertex: JobVertex) -> Iterator[tuple[AskedTask, TaskTimeReport]]:
        for subtask in range(vertex.parallelism):
            task = self._tasks.get((vertex.id, subtask))
            if task is not None and task.report is not None:
                yield task, task.report

    def _time_behind(self, vertex: JobVertex, index: int) -> OperatorEventTime | None:
        behind = [(task, report.operators[index]) for task, report in self._answers(vertex)]
        if not behind:
            return None
        active = [(task, operator) for task, operator in behind if not operator.idle] or behind
        task, least = min(active, key=lambda entry: entry[1].watermark)
        return OperatorEventTime(
            name=vertex.operators[index].name,
            least=least.watermark,
            subtask=task.subtask,
            greatest=max(operator.watermark for _, operator in behind),
            idle=all(operator.idle for _, operator in behind),
        )

    def _slowest_of(self, vertex: JobVertex) -> AskedTask | None:
        """The subtask whose event time is behind; None = event time has ended in all of them."""
        tasks = [task for task in self._tasks.values() if task.vertex.id == vertex.id]
        without = [task for task in tasks if task.report is None and not task.has_ended]
        if without:
            return without[0]
        answers = [
            (task, report)
            for task, report in self._answers(vertex)
            if report.operators[-1].watermark != MAX_TIMESTAMP
        ]
        active = [entry for entry in answers if not entry[1].operators[-1].idle] or answers
        slowest = min(active, key=lambda entry: entry[1].operators[-1].watermark, default=None)
        return None if slowest is None else slowest[0]

    # ------------------------------------------------------------------ the search

    def _follow(self, start: AskedTask) -> EventTimeHolder | None:
        task, last, path = start, len(start.vertex.operators) - 1, list[str]()
        # Feedback of a loop is no edge of the graph, which has no circle: the search ends.
        while True:
            report = task.report
            if report is None:
                reason = HolderReason.NO_ANSWER if task.is_running else HolderReason.NOT_RUNNING
                path.append(task.vertex.operators[0].name)
                return holder_of(HolderFacts(task.vertex.operators[0].name, task.subtask, reason), path)
            for operator in reversed(report.operators[: last + 1]):
                path.append(operator.name)
                if operator.generator is not None:
                    return holder_of(self._at_generator(task, report, operator, operator.generator), path)
            here = self._at_head(task, report)
            if here is not None:
                return holder_of(here, path)
            slowest = report.slowest
            assert slowest is not None, "a head without active inputs holds event time itself"
            edge = self._job.edges[slowest.edge]
            feeding = self._tasks[(edge.source, slowest.producer)]
            if feeding.report is not None:
                sent = feeding.report.operators[edge.source_operator].watermark
                if sent > slowest.watermark:
                    return holder_of(self._at_input(task, report, slowest.queued), path)
            elif feeding.has_ended:
                return holder_of(self._at_input(task, report, slowest.queued), path)
            task, last = feeding, edge.source_operator

    def _at_head(self, task: AskedTask, report: TaskTimeReport) -> HolderFacts | None:
        """What the head of a task holds back itself; None = its input does."""
        head = report.operators[0]
        facts = HolderFacts(head.name, task.subtask, HolderReason.ALL_IDLE, watermark=head.watermark)
        if report.fires_timers:
            return facts.because(HolderReason.TIMERS_UNDER_WAY, slice_ms=report.slice_ms)
        if head.holds_time and head.watermark < report.input_watermark:
            return facts.because(HolderReason.RESULTS_AWAITED)
        return facts if report.slowest is None else None

    def _at_input(self, task: AskedTask, report: TaskTimeReport, queued: int) -> HolderFacts:
        """Why a watermark that was sent to a task has not been taken there."""
        facts = HolderFacts(
            report.operators[0].name, task.subtask, HolderReason.INPUT_NOT_TAKEN, report.input_watermark
        )
        busy = self._busy(task)
        if busy is not None:
            return facts.because(HolderReason.SLOW_SLICE, other=busy.name, slice_ms=busy.slice_ms)
        if report.blocked:
            return facts.because(HolderReason.NO_CREDIT, other=self._consumer_of(task))
        if report.aligns_barriers:
            return facts.because(HolderReason.WAITS_FOR_BARRIERS)
        return facts.because(HolderReason.INPUT_NOT_TAKEN, queued=queued)

    def _at_generator(
        self, task: AskedTask, report: TaskTimeReport, operator: OperatorTimeReport, made: GeneratorReport
    ) -> HolderFacts:
        """Why a generator does not go on, by its slowest split."""
        split = made.splits[0] if made.splits else None
        last_ms = None if split is None else split.last_row_ms
        facts = HolderFacts(
            operator.name,
            task.subtask,
            HolderReason.OLD_ROWS,
            watermark=operator.watermark if split is None else split.watermark,
            split_id="" if split is None else split.split_id,
            last_timestamp=None if split is None else split.last_timestamp,
            age_ms=None if last_ms is None else max(0, report.now_ms - last_ms),
            idle=operator.idle if split is None else split.idle,
            idle_timeout_ms=made.idle_timeout_ms,
        )
        if not made.makes_watermarks:
            return facts.because(HolderReason.NO_WATERMARKS)
        busy = self._busy(task)
        if busy is not None:
            return facts.because(HolderReason.SLOW_SLICE, other=busy.name, slice_ms=busy.slice_ms)
        if report.blocked:
            return facts.because(HolderReason.NO_CREDIT, other=self._consumer_of(task))
        if split is None:
            own = made.own_generator
            return facts.because(HolderReason.GENERATOR_SAID_NOTHING if own else HolderReason.NO_SPLITS)
        if split.idle:
            return facts.because(HolderReason.ALL_IDLE)
        if split.paused:
            return facts.because(
                HolderReason.PAUSED_BY_ALIGNMENT, other=self._slowest_of_group(made.alignment_group)
            )
        if facts.age_ms is None:
            return facts.because(HolderReason.NO_ROWS_YET)
        if split.last_timestamp is None and not made.own_generator:
            return facts.because(HolderReason.NO_TIMESTAMPS)
        if facts.age_ms >= LONG_MS:
            unset = made.idle_timeout_ms is None
            return facts.because(HolderReason.NO_IDLENESS_SET if unset else HolderReason.NO_ROWS_SINCE)
        if made.own_generator and (split.last_timestamp is None or split.last_timestamp > split.watermark):
            return facts.because(HolderReason.GENERATOR_SAID_NOTHING)
        return facts

    # ------------------------------------------------------------------ others

    def _busy(self, task: AskedTask) -> _Busy | None:
        """The task of the same worker that has been at one slice of work for long; the task itself goes first."""
        beside = [other for other in self._tasks.values() if other.worker == task.worker]
        for other in (task, *beside):
            if other.report is not None and other.report.slice_ms >= LONG_MS:
                return _Busy(_title(other), other.report.slice_ms)
        return None

    def _consumer_of(self, task: AskedTask) -> str:
        """The slowest consumer of a task without credit; it may wait for credit itself."""
        seen = {task.vertex.id}
        vertex = task.vertex
        while True:
            consumers = [
                self._job.vertex(edge.target)
                for edge in self._job.outputs_of(vertex.id)
                if edge.target not in seen
            ]
            if not consumers:
                return vertex.name
            blocked = [
                consumer
                for consumer in consumers
                if any(report.blocked for _, report in self._answers(consumer))
            ]
            vertex = (blocked or consumers)[0]
            seen.add(vertex.id)
            if not blocked:
                return vertex.name

    def _slowest_of_group(self, group: str) -> str:
        """The split or source that the others of an aligned group wait for."""
        times = [
            (
                split.watermark,
                f"{operator.name}, split {split.split_id!r}" if split.split_id else operator.name,
            )
            for task in self._tasks.values()
            if task.report is not None
            for operator in task.report.operators
            if operator.generator is not None and operator.generator.alignment_group == group
            for split in operator.generator.splits
            if not split.idle
        ]
        return min(times)[1] if times else ""


class _Busy(NamedTuple):
    """A task that has been at one slice of work for long."""

    name: str
    slice_ms: int


def _title(task: AskedTask) -> str:
    return f"{task.vertex.name} ({task.subtask + 1}/{task.vertex.parallelism})"
