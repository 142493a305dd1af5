"""Settings of an environment and what the graphs make of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import yarrow.datastream
from tests.unit.runtime.graph.programs import environment
from yarrow.common.configuration import Configuration
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import (
    CheckpointingMode,
    RuntimeExecutionMode,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.job_graph import ResultPartitionType


def test_every_name_of_the_package_is_there() -> None:
    assert {name for name in yarrow.datastream.__all__ if hasattr(yarrow.datastream, name)} == set(
        yarrow.datastream.__all__
    )
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        yarrow.datastream.Nothing  # noqa: B018


@pytest.mark.differs("StreamExecutionEnvironment.get_parallelism", told="takes the number of cores")
def test_default_parallelism() -> None:
    cores = len(os.sched_getaffinity(0))
    assert StreamExecutionEnvironment.get_execution_environment().get_parallelism() == cores
    assert StreamExecutionEnvironment.create_local_environment().get_parallelism() == cores
    assert StreamExecutionEnvironment.create_local_environment(5).get_parallelism() == 5
    assert StreamExecutionEnvironment.create_remote_environment("host", 8081).get_parallelism() == 1
    configured = Configuration.from_dict({"parallelism.default": "3"})
    assert StreamExecutionEnvironment.get_execution_environment(configured).get_parallelism() == 3


def test_a_remote_environment_says_where() -> None:
    values = (
        StreamExecutionEnvironment.create_remote_environment("master", 8099).get_configuration().to_dict()
    )
    assert values["execution.target"] == "remote"
    assert (values["rest.address"], values["rest.port"]) == ("master", "8099")


def test_parallelism_is_that_of_the_moment() -> None:
    env = environment(parallelism=2)
    first = env.from_sequence(1, 9).map(lambda x: x)
    env.set_parallelism(5)
    second = first.map(lambda x: x)
    graph = env.get_stream_graph()
    assert [graph.nodes[stream.transformation.id].parallelism for stream in (first, second)] == [2, 5]


@pytest.mark.parametrize(
    ("job", "operator", "expected"),
    [(None, None, 100), (7, None, 7), (-1, None, -1), (-1, 0, 0), (50, -1, 50)],
)
def test_buffer_timeout(job: int | None, operator: int | None, expected: int) -> None:
    env = environment()
    if job is not None:
        assert env.set_buffer_timeout(job).get_buffer_timeout() == job
    mapped = env.from_sequence(1, 9).map(lambda x: x)
    if operator is not None:
        mapped.set_buffer_timeout(operator)
    other = env.from_sequence(1, 9).set_buffer_timeout(1000)
    mapped.rebalance().print()
    mapped.filter(bool).rebalance().print()
    other.rebalance().print()
    assert env.get_job_graph().vertices[0].buffer_timeout_ms == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"FORWARD": "PIPELINED", "REBALANCE": "PIPELINED"}),
        ({"execution.exchange-mode": "blocking"}, {"FORWARD": "PIPELINED", "REBALANCE": "BLOCKING"}),
    ],
)
def test_exchange_mode(settings: dict[str, str], expected: dict[str, str]) -> None:
    env = environment(settings=settings)
    env.from_sequence(1, 9).map(lambda x: x).start_new_chain().rebalance().print()
    edges = env.get_job_graph().edges
    assert {edge.partitioner.kind.value: edge.result_type.value for edge in edges} == expected
    assert all(isinstance(edge.result_type, ResultPartitionType) for edge in edges)


def test_max_parallelism_of_job_operator_and_chain() -> None:
    env = environment()
    env.set_max_parallelism(64)
    env.from_sequence(1, 9).map(lambda x: x).set_max_parallelism(16).rebalance().print()
    assert [vertex.max_parallelism for vertex in env.get_job_graph().vertices] == [16, 64]


def test_slot_sharing_groups_are_inherited_where_inputs_agree() -> None:
    env = environment()
    left = env.from_sequence(1, 9).slot_sharing_group("a")
    right = env.from_sequence(1, 9).slot_sharing_group(SlotSharingGroup.builder("b").build())
    same = left.union(left.map(lambda x: x)).map(lambda x: x).name("same")
    other = left.union(right).map(lambda x: x).name("other")
    given = other.map(lambda x: x).name("given").slot_sharing_group("c")
    graph = env.get_stream_graph()
    groups = {node.name: node.slot_sharing_group for node in graph.nodes.values()}
    assert (groups["same"], groups["other"], groups["given"]) == ("a", "default", "c")
    assert given.get_name() == "given" and same.get_name() == "same"


def test_checkpoint_settings_are_stored() -> None:
    env = environment()
    env.enable_checkpointing(5000, CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_checkpoint_interval() == 5000
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE


def test_streaming_is_the_mode() -> None:
    env = environment().set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.from_sequence(1, 9).print()
    assert env.get_job_graph().configuration["execution.runtime-mode"] == "STREAMING"


def test_a_configuration_with_a_wrong_key_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"parallelism\.defualt"):
        StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({"parallelism.defualt": "2"})
        )
    with pytest.raises(ValueError, match=r"parallelism\.defualt"):
        environment().configure(Configuration.from_dict({"parallelism.defualt": "2"}))


def test_types_of_sources(tmp_path: Path) -> None:
    env = environment()
    assert env.from_collection([1]).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert env.from_collection(["a"], Types.STRING()).get_type() == Types.STRING()
    assert env.from_sequence(1, 2).get_type() == Types.LONG()
    source = NumberSequenceSource(1, 2)
    declared = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers", Types.INT())
    assert declared.get_type() == Types.INT() and declared.get_name() == "Numbers"
    (tmp_path / "text").write_text("a\n")
    lines = env.read_text_file(str(tmp_path / "text"))
    assert lines.get_type() == Types.STRING()


def test_a_missing_input_file_is_refused_at_the_call() -> None:
    with pytest.raises(InvalidProgramError, match=r"input file or folder /nowhere/missing\.txt does not exist"):
        environment().read_text_file("/nowhere/missing.txt")


def test_types_follow_the_operators() -> None:
    env = environment()
    pairs = Types.TUPLE([Types.STRING(), Types.LONG()])
    stream = env.from_collection([("a", 1)], pairs)
    assert stream.filter(bool).get_type() == pairs
    assert stream.key_by(lambda pair: pair[0]).sum(1).get_type() == pairs
    assert stream.project(1).get_type() == Types.TUPLE([Types.LONG()])
    assert stream.map(lambda pair: pair[0]).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert stream.map(lambda pair: Row(pair[0]), [Types.STRING()]).get_type() == Types.ROW([Types.STRING()])  # type: ignore[arg-type]
    assert stream.union(stream).get_type() == pairs
    assert stream.union(env.from_collection([1])).get_type() == Types.PICKLED_BYTE_ARRAY()


def test_execution_plan_is_flinks_json() -> None:
    env = environment()
    env.from_sequence(1, 9).map(lambda x: x).set_description("adds nothing").rebalance().print()
    plan: dict[str, Any] = json.loads(env.get_execution_plan())
    assert plan["nodes"][1] == {
        "id": 2,
        "type": "Map",
        "pact": "Operator",
        "contents": "adds nothing",
        "parallelism": 2,
        "predecessors": [{"id": 1, "ship_strategy": "FORWARD", "side": "first", "stream_kind": "row"}],
    }
    assert env.get_job_graph().vertices, "the plan takes nothing away"


def test_the_configured_path_goes_to_the_workers() -> None:
    env = environment(settings={"python.pythonpath": "/opt/first:/opt/second"})
    env.from_sequence(1, 9).print()
    assert env.get_job_graph().user_code.python_path[:2] == ("/opt/first", "/opt/second")
