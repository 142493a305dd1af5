"""Chains longer than Python can nest blocks: the rest becomes a subroutine of the generated function."""

from __future__ import annotations

import pytest

from tests.support.worker_harness import JobFailedInHarness, WorkerHarness
from yarrow.datastream import StreamExecutionEnvironment


def _environment() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    return env


def test_forty_flat_maps_and_filters_in_one_chain() -> None:
    env = _environment()
    stream = env.from_collection([1, 2, 3])
    for _ in range(40):
        stream = stream.flat_map(lambda x: [x + 1]).filter(lambda x: x > 0)
    stream.map(lambda x: f"result {x}").print()
    with WorkerHarness(1, processes=False) as harness:
        harness.run(env.get_job_graph())
        assert harness.output == ["result 41", "result 42", "result 43"]


def test_a_failure_deep_in_a_chain_names_operator_and_record() -> None:
    env = _environment()
    stream = env.from_collection([7])
    for _ in range(30):
        stream = stream.flat_map(lambda x: [x + 1])
    stream.map(lambda x: x / 0).name("the last").print()
    with WorkerHarness(1, processes=False) as harness, pytest.raises(JobFailedInHarness) as failed:
        harness.run(env.get_job_graph())
    assert failed.value.cause.operator_name == "the last"
    assert failed.value.cause.record == "37"
