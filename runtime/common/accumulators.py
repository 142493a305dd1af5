"""Merging of accumulators: the values that subtasks hold under one name become one value.

Owner: none (pure). Numbers add up, lists are concatenated, histograms (maps) add up bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from yarrow.runtime.common.errors import YarrowError


class AccumulatorMergeError(YarrowError):
    """Subtasks use one name for accumulators of different kinds."""


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
