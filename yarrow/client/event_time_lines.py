"""The lines that show event time of a job, operator by operator, and who holds it back.

Owner: none (functions). Lines are for readers; scripts ask REST.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any


def event_time_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """The lines of an answer of REST."""
    operators = answer["operators"]
    if not operators:
        yield f"No task of the job tells its event time. The job is {answer['status']}."
    width = max((len(operator["name"]) for operator in operators), default=0)
    for operator in operators:
        yield f"{operator['name']:<{width}}  {_time_of(operator)}"
    for name in answer["silent"]:
        yield f"{name} does not answer."
    for holder in answer["holders"]:
        yield ""
        yield f"{' <- '.join(holder['path'])}"
        yield f"  Event time waits here: {holder['explanation']}."
        yield f"  {holder['remedy']}."
    if operators and not answer["holders"]:
        yield "Nothing holds event time back: it has ended."


def _time_of(operator: Mapping[str, Any]) -> str:
    if operator["has-ended"]:
        return "has ended"
    if operator["least"] is None:
        text = f"no watermark yet in subtask {operator['subtask'] + 1}"
    else:
        text = f"{_moment(operator['least'])} in subtask {operator['subtask'] + 1}"
    greatest = operator["greatest"]
    if greatest is not None and greatest != operator["least"]:
        text += f", up to {_moment(greatest)}"
    return f"{text}, idle" if operator["idle"] else text


def _moment(timestamp: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03}"
