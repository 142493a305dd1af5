"""Accumulator values of a running task, converted to plain values for messages.

Owner: any thread of the worker. An accumulator of the user that raises affects no other.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from yarrow.container.operators.base import TaskEnvironment

_log = logging.getLogger(__name__)


def accumulated(environment: TaskEnvironment) -> dict[str, Any]:
    """The accumulators of a task; a user's accumulator that raises is left out and logged."""
    values: dict[str, Any] = {}
    for name, accumulator in list(environment.accumulators.items()):
        try:
            values[name] = accumulator.get_local_value()
        except Exception:
            _log.exception("accumulator '%s' of task '%s' raised", name, environment.task_name)
    return plain_values(values)


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
