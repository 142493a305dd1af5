"""When attempts and vertices began and ended, how long they were in each state.

Owner: none (pure). Times are epoch milliseconds, durations milliseconds; -1 = not yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import AttemptDetails

#: States of a live attempt, in order.
LIVING = (
    ExecutionState.CREATED,
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


class Span(NamedTuple):
    """The fields of a body that say when and how long."""

    start_time: int
    end_time: int
    duration: int


def attempt_span(attempt: AttemptDetails, now: int) -> Span:
    """From the deployment of an attempt to its end."""
    start = attempt.timestamps.get(ExecutionState.DEPLOYING, 0) or -1
    end = attempt.timestamps.get(attempt.state, 0) if attempt.state.is_terminal else 0
    return _span(start, end or -1, now)


def tasks_span(attempts: Iterable[AttemptDetails], now: int) -> Span:
    """From the first deployment to the last end, which counts only when all have ended."""
    spans = [attempt_span(attempt, now) for attempt in attempts]
    start = min((span.start_time for span in spans if span.start_time > 0), default=-1)
    ended = bool(spans) and all(span.end_time > 0 for span in spans)
    return _span(start, max(span.end_time for span in spans) if ended else -1, now)


def _span(start: int, end: int, now: int) -> Span:
    if start < 0:
        return Span(start, end, -1)
    return Span(start, end, max(0, (end if end > 0 else now) - start))


def state_durations(attempt: AttemptDetails, now: int) -> dict[ExecutionState, int]:
    """Milliseconds in each live state, up to now; -1 for a state that was never entered."""
    stamps = sorted(stamp for stamp in attempt.timestamps.values() if stamp > 0)
    durations = {}
    for state in LIVING:
        begin = attempt.timestamps.get(state, 0)
        later = next((stamp for stamp in stamps if stamp > begin), begin if attempt.state != state else now)
        durations[state] = max(0, later - begin) if begin else -1
    return durations


def state_counts(attempts: Iterable[AttemptDetails]) -> dict[ExecutionState, int]:
    """Subtasks by state."""
    counts = dict.fromkeys(ExecutionState, 0)
    for attempt in attempts:
        counts[attempt.state] += 1
    return counts


#: The state of a vertex whose subtasks differ: the first of these that any subtask has.
_FIRST = (
    ExecutionState.FAILED,
    ExecutionState.CANCELING,
    ExecutionState.CANCELED,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)
_THEN = (
    ExecutionState.DEPLOYING,
    ExecutionState.RECONCILING,
    ExecutionState.SCHEDULED,
    ExecutionState.CREATED,
)


def aggregate_state(attempts: Sequence[AttemptDetails]) -> ExecutionState:
    """The state of a vertex."""
    states = {attempt.state for attempt in attempts}
    if states == {ExecutionState.FINISHED}:
        return ExecutionState.FINISHED
    for state in _FIRST:
        if state in states:
            return state
    if ExecutionState.FINISHED in states:
        return ExecutionState.RUNNING
    return next((state for state in _THEN if state in states), ExecutionState.CREATED)
