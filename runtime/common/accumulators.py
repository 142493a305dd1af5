"""Merging of accumulators: the values that subtasks hold under one name become one value.

Owner: none (pure). Numbers add up, lists are concatenated, histograms (maps) add up bucket by bucket. An accumulator
whose class merges otherwise stays a list of its subtasks' accumulators, which the client merges: no master runs code of
the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from yarrow.runtime.common.errors import YarrowError

#: The only key of the value of an accumulator that the client merges.
_UNMERGED = "yarrow.unmerged"


class UnmergedPart(NamedTuple):
    """The accumulator of one subtask, which the client merges with those of the others."""

    class_name: str
    #: Its value as text.
    text: str
    #: The accumulator itself as a plain value, in base64; or, where it has no such form, nothing.
    encoded: str
    #: Why it has no such form.
    reason: str = ""


class AccumulatorMergeError(YarrowError):
    """Subtasks use one name for accumulators of different kinds."""


def unmerged(part: UnmergedPart) -> dict[str, list[list[str]]]:
    """The value of an accumulator that the client merges, as one subtask has it."""
    return {_UNMERGED: [list(part)]}


def unmerged_parts(value: Any) -> list[UnmergedPart] | None:
    """The parts of an accumulator that the client merges, one a subtask; None for a value that is merged."""
    if not isinstance(value, Mapping) or value.keys() != {_UNMERGED}:
        return None
    return [UnmergedPart(*part) for part in value[_UNMERGED]]


def merge_accumulators(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the merged values by name.

    Raises AccumulatorMergeError for an accumulator whose kinds differ.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            merged[name] = _merge(name, merged[name], value) if name in merged else _copy(value)
    return merged


def _copy(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _merge(name: str, left: Any, right: Any) -> Any:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        both = {key: _merge(name, left[key], right[key]) for key in left if key in right}
        return {**left, **right, **both}
    if isinstance(left, list) and isinstance(right, list | tuple):
        return [*left, *right]
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left + right
    raise AccumulatorMergeError(
        f"the accumulator {name!r} is {type(left).__name__} in one subtask and {type(right).__name__} in"
        " another: use one kind for one name"
    )
