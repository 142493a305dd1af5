"""Accumulator values of a running task, converted to plain values for messages.

Owner: any thread of the worker. An accumulator of the user that raises affects no other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from yarrow.container.operators.base import TaskEnvironment

if TYPE_CHECKING:
    from yarrow.common.accumulators import Accumulator

_log = logging.getLogger(__name__)


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
    # Imported late: few tasks have accumulators.
    from yarrow.common.accumulators import DoubleCounter, Histogram, IntCounter, ListAccumulator

    value, own = accumulator.get_local_value(), type(accumulator)
    kinds: tuple[type[Accumulator[Any, Any]], ...] = (IntCounter, DoubleCounter, Histogram, ListAccumulator)
    # A subclass that changes neither of them merges as its base does.
    if any(own.merge is kind.merge and own.get_local_value is kind.get_local_value for kind in kinds):
        return value
    return _unmerged(accumulator, str(value))


def _unmerged(accumulator: Accumulator[Any, Any], text: str) -> Any:
    import base64

    from yarrow.runtime.common.accumulators import UnmergedPart, unmerged
    from yarrow.runtime.snapshot.plain_trees import UnwritableValueError
    from yarrow.runtime.snapshot.plain_values import dump_plain

    encoded, reason = b"", ""
    try:
        encoded = dump_plain([accumulator])
    except UnwritableValueError as error:
        reason = str(error)
    return unmerged(
        UnmergedPart(type(accumulator).__name__, text, base64.b64encode(encoded).decode(), reason)
    )


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
