"""Accumulator values of a task as they travel: read while the task runs, plain enough for messages.

Owner: any thread of the worker; an accumulator of the user's that raises harms nobody else.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from yarrow.container.operators.base import TaskEnvironment

_log = logging.getLogger(__name__)


def accumulated(environment: TaskEnvironment) -> dict[str, Any]:
    """The accumulators of a task; one of the user's that raises is left out and logged."""
    values: dict[str, Any] = {}
    for name, accumulator in list(environment.accumulators.items()):
        try:
            values[name] = accumulator.get_local_value()
        except Exception:
            _log.exception("accumulator '%s' of task '%s' raised", name, environment.task_name)
    return plain_values(values)


def plain_values(values: dict[str, Any]) -> dict[str, Any]:
    """Accumulator results as msgpack can carry them; what it cannot becomes its text."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        try:
            msgspec.msgpack.encode(value)
            plain[name] = value
        except (TypeError, OverflowError, msgspec.MsgspecError):
            plain[name] = str(value)
    return plain
