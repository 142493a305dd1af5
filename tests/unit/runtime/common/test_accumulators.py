"""Merging of accumulators."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.runtime.common.accumulators import AccumulatorMergeError, merge_accumulators


def test_each_kind_merges_in_its_own_way() -> None:
    parts: list[dict[str, Any]] = [
        {"count": 1, "rate": 0.5, "seen": ["a"], "sizes": {"1": 2, "5": 1}},
        {"count": 2, "rate": 1.5, "seen": ["b"], "sizes": {"5": 3, "9": 1}},
        {"other": 7},
    ]
    assert merge_accumulators(parts) == {
        "count": 3,
        "rate": 2.0,
        "seen": ["a", "b"],
        "sizes": {"1": 2, "5": 4, "9": 1},
        "other": 7,
    }


def test_the_parts_are_left_alone() -> None:
    first: dict[str, list[int]] = {"seen": [1]}
    merge_accumulators([first, {"seen": [2]}])
    assert first == {"seen": [1]}


def test_kinds_that_differ_are_refused_by_name() -> None:
    with pytest.raises(AccumulatorMergeError, match="'count' is int in one subtask and list in another"):
        merge_accumulators([{"count": 1}, {"count": [1]}])
