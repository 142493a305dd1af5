"""Accumulators on their way from subtasks to the program: merged by kind, or by their own class."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.largest import Largest
from tests.support.task_environments import task_environment
from yarrow.am.rest.models.accumulators import as_json
from yarrow.am.rest.models.jobs import JobAccumulators
from yarrow.client.job_results import merged_values
from yarrow.common.accumulators import Accumulator, AverageAccumulator, IntCounter, LongCounter
from yarrow.container.task.accumulated_values import accumulated
from yarrow.runtime.common.accumulators import merge_accumulators


class Doubled(IntCounter):
    """Shows twice its sum, and merges sums."""

    def get_local_value(self) -> int:
        return 2 * self._sum

    def merge(self, other: Accumulator[int, int]) -> None:
        assert isinstance(other, Doubled)
        self._sum += other._sum


class Failing(Largest):
    def merge(self, other: Accumulator[int, int]) -> None:
        raise ValueError("no merge today")


def of_subtasks(kind: type[Accumulator[Any, Any]], parts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The merged values of the master, whose subtasks have added these numbers to the accumulator `x`."""
    values = []
    for numbers in parts:
        accumulator = kind()
        for number in numbers:
            accumulator.add(number)
        values.append(accumulated(task_environment(accumulators={"x": accumulator})))
    return merge_accumulators(values)


def test_the_class_of_an_accumulator_merges_it() -> None:
    parts = [[1, 2, 9], [4], [5, 6]]
    expected: dict[type[Accumulator[Any, Any]], float] = {
        AverageAccumulator: 4.5,
        Largest: 9,
        Doubled: 54,
        IntCounter: 27,
        LongCounter: 27,
    }
    assert {kind: merged_values(of_subtasks(kind, parts))["x"] for kind in expected} == expected


def test_it_is_the_same_over_rest() -> None:
    """A client of a remote cluster gets what JSON holds."""
    value = json.loads(json.dumps(as_json(of_subtasks(Largest, [[3], [8]])["x"])))
    assert merged_values({"x": value}) == {"x": 8}


def test_rest_shows_the_value_of_each_subtask() -> None:
    values = {**of_subtasks(Largest, [[3], [8]]), "y": 1}
    shown = JobAccumulators.model_validate({"accumulators": values})
    assert [(each.name, each.type, each.value) for each in shown.user_task_accumulators] == [
        ("x", "Largest", "by subtask: 3; 8"),
        ("y", "IntCounter", "1"),
    ]
    assert list(shown.serialized_user_task_accumulators) == ["x"]
    (alone,) = JobAccumulators.model_validate(
        {"accumulators": of_subtasks(Largest, [[3]])}
    ).user_task_accumulators
    assert alone.value == "3"


def test_an_accumulator_that_cannot_be_merged_gives_the_reason() -> None:
    class Local(Largest):
        pass

    assert merged_values(of_subtasks(Failing, [[1], [2]])) == {
        "x": "not merged: the accumulator 'x' of class Failing: no merge today"
    }
    assert "move the class to module level" in merged_values(of_subtasks(Local, [[1], [2]]))["x"]
