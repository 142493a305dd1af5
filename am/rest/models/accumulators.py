"""Accumulators as REST shows them: name, kind and value as text.

Owner: none (pure).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from pydantic import BeforeValidator

from yarrow.am.rest.models.base import RestModel
from yarrow.runtime.common.accumulators import unmerged_parts

_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "BooleanAccumulator"),
    (int, "IntCounter"),
    (float, "DoubleCounter"),
    (list, "ListAccumulator"),
    (dict, "Histogram"),
)


class UserAccumulator(RestModel):
    """An accumulator with its value as text."""

    name: str
    type: str
    value: str


def _user_accumulators(values: Mapping[str, Any]) -> list[dict[str, str]]:
    """The fields of accumulators, in order of their names."""
    return [
        {"name": name, "type": _kind(values[name]), "value": _text(values[name])} for name in sorted(values)
    ]


#: Made of values by name.
UserAccumulators = Annotated[list[UserAccumulator], BeforeValidator(_user_accumulators)]


def _serialized(values: Mapping[str, Any]) -> dict[str, str]:
    """The accumulators that the client merges, as JSON in base64."""
    return {
        name: base64.b64encode(_encoded(value)).decode()
        for name, value in values.items()
        if unmerged_parts(value) is not None
    }


#: Made of values by name.
SerializedAccumulators = Annotated[dict[str, str], BeforeValidator(_serialized)]


def _kind(value: Any) -> str:
    if parts := unmerged_parts(value):
        return parts[0].class_name
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "Accumulator")


def _text(value: Any) -> str:
    if parts := unmerged_parts(value):
        return parts[0].text if len(parts) == 1 else f"by subtask: {'; '.join(part.text for part in parts)}"
    return value if isinstance(value, str) else _encoded(value).decode()


def as_json(value: Any) -> Any:
    """The value in JSON: NaN and infinities become null, values without a JSON type become text."""
    return msgspec.json.decode(_encoded(value))


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (TypeError, ValueError, msgspec.MsgspecError):  # such as a map whose keys are tuples
        return msgspec.json.encode(str(value))
