"""Replay: repeats the decisions of a dump, and finds the first one that differs.

Owner: none (pure). It needs neither a cluster nor user code: a dump holds the JobScheduler's state and its events.
"""

from __future__ import annotations

import msgspec

from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.recorded_events import RecordedAction, recorded_action
from yarrow.am.jobmaster.scheduling.scheduler_log import DUMP_FORMAT, LoggedDecision, SchedulerDump
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import RandomIdFactory


class DumpNotReadError(YarrowError):
    """The file is no dump of a JobScheduler, or was written by another version of Yarrow."""


class ReplayDifferenceError(YarrowError):
    """A repeated decision differs from the dump; `number` is that of the event."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def read_dump(data: bytes) -> SchedulerDump:
    """The dump in `data`; raises DumpNotReadError."""
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != DUMP_FORMAT:
            raise DumpNotReadError(
                f"the dump has the form {version}, this version of Yarrow reads the form {DUMP_FORMAT}:"
                " replay it with the version of Yarrow that wrote it"
            )
        return msgspec.json.decode(data, type=SchedulerDump)
    except msgspec.DecodeError as error:
        raise DumpNotReadError(f"the file is no dump of a JobScheduler: {error}") from error


class _Version(msgspec.Struct):
    format: int


def replay(dump: SchedulerDump) -> None:
    """Handles all events again; raises ReplayDifferenceError at the first action or error that differs."""
    snapshot = dump.snapshot
    graph = ExecutionGraph(snapshot.job, ManualClock(), RandomIdFactory())
    scheduler = JobScheduler.restored(snapshot, graph)
    for logged in dump.events:
        _compare(logged, *_decide(scheduler, logged))


def _decide(scheduler: JobScheduler, logged: LoggedDecision) -> tuple[list[RecordedAction], str]:
    try:
        return list(map(recorded_action, scheduler.handle(logged.event))), ""
    except Exception as error:
        return [], type(error).__name__


def _compare(logged: LoggedDecision, actions: list[RecordedAction], error: str) -> None:
    what = f"event {logged.number} ({type(logged.event).__name__})"
    if error != logged.error:
        first, second = (f"raised {name}" if name else "raised nothing" for name in (logged.error, error))
        raise ReplayDifferenceError(logged.number, f"{what}: the scheduler {first}; replayed, it {second}")
    for index in range(max(len(actions), len(logged.actions))):
        then, now = _action(logged.actions, index), _action(actions, index)
        if then != now:
            raise ReplayDifferenceError(
                logged.number,
                f"{what}, action {index + 1}: it was {_shown(then)}; replayed, it is {_shown(now)}",
            )


def _action(actions: list[RecordedAction], index: int) -> RecordedAction | None:
    return actions[index] if index < len(actions) else None


def _shown(action: RecordedAction | None) -> str:
    return "none" if action is None else msgspec.json.encode(action).decode()
