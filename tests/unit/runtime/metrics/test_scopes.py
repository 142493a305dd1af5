"""Metrics of a subtask by scope, and values as text."""

from __future__ import annotations

import pytest

from yarrow.container.metrics.metric_registry import metric_scope
from yarrow.runtime.metrics.scopes import metric_text, operator_scope, split_by_operator


def test_operator_metrics_are_told_from_dotted_task_metrics() -> None:
    values = {
        "numRecordsIn": 1.0,
        "Shuffle.Netty.Input.Buffers.inputQueueLength": 2.0,
        "Source__gen.numRecordsOut": 3.0,
        "map.group.hits": 4.0,
        "map_2.hits": 5.0,
        "map.": 6.0,
    }
    found = split_by_operator(values, ["Source: gen", "map", "map 2"])
    assert found.task == {
        "numRecordsIn": 1.0,
        "Shuffle.Netty.Input.Buffers.inputQueueLength": 2.0,
        "map.": 6.0,
    }
    assert found.operators == {
        "Source: gen": {"numRecordsOut": 3.0},
        "map": {"group.hits": 4.0},
        "map 2": {"hits": 5.0},
    }


@pytest.mark.parametrize("name", ["Source: gen", "sink", "Zähler 1", "a.b -> c"])
def test_tasks_and_rest_name_operators_alike(name: str) -> None:
    assert operator_scope(name) == metric_scope(name)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5"),
        (0.25, "0.25"),
        (-(2.0**63), str(-(2**63))),
        (2.0**63, str(2**63 - 1)),
        (1e300, "1e+300"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_whole_numbers_have_no_fraction(value: float, text: str) -> None:
    assert metric_text(value) == text
