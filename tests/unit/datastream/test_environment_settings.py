"""Settings of a whole program: parallelism of embedded clusters, chains and slot sharing groups."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.datastream import SlotSharingGroup, StreamExecutionEnvironment
from yarrow.runtime.common.errors import UnsupportedFeatureError

DIFFERENT = "pipeline.operator-chaining.chain-operators-with-different-max-parallelism"


def test_the_default_of_embedded_clusters_holds_for_environments_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Undone when the test ends, since it concerns the whole process.
    monkeypatch.setattr(StreamExecutionEnvironment, "_default_local_parallelism", None)
    before = StreamExecutionEnvironment.create_local_environment()
    cores = StreamExecutionEnvironment.get_default_local_parallelism()
    StreamExecutionEnvironment.set_default_local_parallelism(cores + 3)
    assert StreamExecutionEnvironment.get_default_local_parallelism() == cores + 3
    assert StreamExecutionEnvironment.create_local_environment().get_parallelism() == cores + 3
    assert StreamExecutionEnvironment.create_local_environment(2).get_parallelism() == 2
    assert StreamExecutionEnvironment.create_remote_environment("host", 8081).get_parallelism() == 1
    assert before.get_parallelism() == cores
    with pytest.raises(ValueError, match="parallelism must be at least 1, not 0"):
        StreamExecutionEnvironment.set_default_local_parallelism(0)


def test_settings_of_another_type_are_refused_by_name() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_sequence(1, 3).map(str)
    refused: list[tuple[Any, Any, str]] = [
        (env.set_parallelism, None, "parallelism must be a whole number of at least 1, not None"),
        (env.set_parallelism, "2", "parallelism must be a whole number of at least 1, not '2'"),
        (env.set_max_parallelism, "2", "max parallelism must be 1 to 32768, not '2'"),
        (stream.name, None, "name must be a text, not None"),
        (stream.slot_sharing_group, 5, "takes the name of a group or a SlotSharingGroup, not 5"),
    ]
    for setting, value, message in refused:
        with pytest.raises((TypeError, ValueError), match=message):
            setting(value)


def test_chaining_is_on_until_it_is_disabled() -> None:
    chains = {}
    for disabled in (False, True):
        env = environment()
        if disabled:
            env.disable_operator_chaining()
        assert env.is_chaining_enabled() is not disabled
        env.from_sequence(1, 9).map(lambda x: x).filter(bool).print()
        chains[disabled] = len(env.get_job_graph().vertices)
    assert chains == {False: 1, True: 4}


@pytest.mark.parametrize(("enabled", "chains"), [(True, 1), (False, 2)])
def test_operators_with_another_max_parallelism_are_chained_if_that_is_enabled(
    enabled: bool, chains: int
) -> None:
    env = environment(settings={DIFFERENT: str(enabled).lower()})
    assert env.is_chaining_of_operators_with_different_max_parallelism_enabled() is enabled
    assert environment().is_chaining_of_operators_with_different_max_parallelism_enabled()
    env.from_sequence(1, 9).set_max_parallelism(16).map(lambda x: x).set_max_parallelism(32)
    assert len(env.get_job_graph().vertices) == chains


def test_operators_may_name_a_group_that_was_registered() -> None:
    env = environment()
    group = SlotSharingGroup.builder("heavy").build()
    assert env.register_slot_sharing_group(group) is env
    env.from_sequence(1, 9).map(lambda x: x).slot_sharing_group(group.get_name()).print()
    groups = [vertex.slot_sharing_group for vertex in env.get_job_graph().vertices]
    assert groups == ["default", "heavy"]
    large = SlotSharingGroup.builder("large").set_cpu_cores(2).set_task_heap_memory_mb(100).build()
    with pytest.raises(UnsupportedFeatureError, match="'large' asks for resources of its own"):
        env.register_slot_sharing_group(large)


def test_a_stream_knows_the_settings_of_its_program() -> None:
    env = environment()
    config = env.from_sequence(1, 9).get_execution_config()
    config.set_parallelism(7)
    assert config is env.get_config() and env.get_parallelism() == 7


def test_an_operator_that_is_not_parallel_stays_so() -> None:
    env = environment(parallelism=3)
    single = env.from_sequence(1, 9).map(lambda x: x).force_non_parallel()
    single.rebalance().map(lambda x: x).print()
    widths = [(vertex.parallelism, vertex.max_parallelism) for vertex in env.get_job_graph().vertices]
    assert [parallelism for parallelism, _ in widths] == [3, 1, 3] and widths[1] == (1, 1)
    with pytest.raises(Exception, match="'Map' can only run with parallelism 1, not 2"):
        single.set_parallelism(2)


def test_a_sink_has_an_id_a_text_and_slots_of_its_own() -> None:
    env = environment()
    sink = env.from_sequence(1, 9).print().set_description("all numbers, as lines")
    assert sink.set_uid_hash("0123456789abcdef" * 2).slot_sharing_group("ends") is sink
    assert "all numbers, as lines" in env.get_execution_plan()
    source, end = env.get_job_graph().vertices
    assert (source.slot_sharing_group, end.slot_sharing_group) == ("default", "ends")
    (operator,) = end.operators
    assert (operator.id, operator.description) == ("0123456789abcdef" * 2, "all numbers, as lines")
