"""Accumulators as REST shows them: name, kind and value as text.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from yarrow.am.rest.models.jobs import UserAccumulator

_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "BooleanAccumulator"),
    (int, "IntCounter"),
    (float, "DoubleCounter"),
    (list, "ListAccumulator"),
    (dict, "Histogram"),
)


def user_accumulators(values: Mapping[str, Any]) -> list[UserAccumulator]:
    """Accumulators in order of their names."""
    return [
        UserAccumulator(name=name, type=_kind(values[name]), value=_text(values[name]))
        for name in sorted(values)
    ]


def _kind(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "Accumulator")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encoded(value).decode()


def as_json(value: Any) -> Any:
    """The value in JSON: NaN and infinities become null, values without a JSON type become text."""
    return msgspec.json.decode(_encoded(value))


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (TypeError, ValueError, msgspec.MsgspecError):  # such as a map whose keys are tuples
        return msgspec.json.encode(str(value))
