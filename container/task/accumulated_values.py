"""Accumulator values of a running task, converted to plain values for messages.

Owner: any thread of the worker. An accumulator of the user that raises affects no other.
"""

from __future__ import annotations

import base64
import logging
from typing import Any

import msgspec

from yarrow.common.accumulators import Accumulator, DoubleCounter, Histogram, IntCounter, ListAccumulator
from yarrow.container.operators.base import TaskEnvironment
from yarrow.runtime.common.accumulators import UnmergedPart, unmerged
from yarrow.runtime.snapshot.plain_trees import UnwritableValueError
from yarrow.runtime.snapshot.plain_values import dump_plain

_log = logging.getLogger(__name__)
#: Classes whose values merge as `merge_accumulators` does it, and their subclasses that change nothing of it.
_MERGED_BY_KIND: tuple[type[Accumulator[Any, Any]], ...] = (
    IntCounter,
    DoubleCounter,
    Histogram,
    ListAccumulator,
)


def accumulated(environment: TaskEnvironment) -> dict[str, Any]:
    """The accumulators of a task; a user's accumulator that raises is left out and logged."""
    values: dict[str, Any] = {}
    for name, accumulator in list(environment.accumulators.items()):
        try:
            values[name] = _value_of(accumulator)
        except Exception:
            _log.exception("accumulator '%s' of task '%s' raised", name, environment.task_name)
    return plain_values(values)


def _value_of(accumulator: Accumulator[Any, Any]) -> Any:
    """The value, if values of subtasks merge by their kind; else the accumulator itself, for the client to merge."""
    value, own = accumulator.get_local_value(), type(accumulator)
    if any(
        own.merge is kind.merge and own.get_local_value is kind.get_local_value for kind in _MERGED_BY_KIND
    ):
        return value
    encoded, reason = b"", ""
    try:
        encoded = dump_plain([accumulator])
    except UnwritableValueError as error:
        reason = str(error)
    return unmerged(UnmergedPart(own.__name__, str(value), base64.b64encode(encoded).decode(), reason))


def plain_values(values: dict[str, Any]) -> dict[str, Any]:
    """Accumulator results for msgpack; a value that msgpack cannot carry becomes its text."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        try:
            msgspec.msgpack.encode(value)
            plain[name] = value
        except (TypeError, OverflowError, msgspec.MsgspecError):
            plain[name] = str(value)
    return plain
