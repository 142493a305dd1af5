"""What a function asks its runtime context about the job and the task that it runs in."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, MapFunction, RuntimeContext
from yarrow.testing.operator_harness import OperatorHarness


class Facts(MapFunction[Any, Any]):
    """A fact of the task for each record that names one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = runtime_context

    def map(self, value: Any) -> Any:
        context: RuntimeContext = self._context
        if value == "task":
            return context.get_task_name()
        if value == "most subtasks":
            return context.get_max_number_of_parallel_subtasks()
        return context.get_job_parameter(value, "the default")


def facts(stream: DataStream) -> DataStream:
    return stream.map(Facts(), Types.PICKLED_BYTE_ARRAY()).name("Facts").map(lambda fact: fact).name("Same")


def test_a_task_has_the_name_of_its_chain() -> None:
    with OperatorHarness(facts) as harness:
        harness.push("task")
        assert harness.take() == ["Facts -> Same"]


@pytest.mark.parametrize(("configured", "most"), [({}, 128), ({"pipeline.max-parallelism": "48"}, 48)])
def test_the_most_subtasks_are_the_key_groups_of_the_task(configured: dict[str, str], most: int) -> None:
    with OperatorHarness(facts, configuration=configured) as harness:
        harness.push("most subtasks")
        assert harness.take() == [most]


def test_the_max_parallelism_of_the_operator_counts_and_not_that_of_the_job() -> None:
    def own(stream: DataStream) -> DataStream:
        return stream.map(Facts()).set_max_parallelism(16)

    with OperatorHarness(own, configuration={"pipeline.max-parallelism": "48"}) as harness:
        harness.push("most subtasks")
        assert harness.take() == [16]


def test_parameters_of_the_program_stand_before_keys_of_the_job() -> None:
    parameters = {
        "pipeline.global-job-parameters": "limit:10,rest.address:mine",
        "rest.address": "master",
        "pipeline.name": "orders",
    }
    with OperatorHarness(facts, configuration=parameters) as harness:
        harness.push("limit", "rest.address", "pipeline.name", "unknown")
        assert harness.take() == ["10", "mine", "orders", "the default"]
