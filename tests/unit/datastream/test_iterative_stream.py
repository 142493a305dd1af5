"""iterate, close_with and with_feedback_type: the graph that they make, and the programs that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.common import Configuration, Types
from yarrow.datastream import (
    ConnectedIterativeStreams,
    DataStream,
    IterativeStream,
    StreamExecutionEnvironment,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.loops.loop_paths import loops_of

NUMBER = Types.LONG()


def environment(**settings: str) -> StreamExecutionEnvironment:
    keys = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(keys)
    ).set_parallelism(2)


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_sequence(1, 9).map(lambda x: x, NUMBER)


def less(stream: Any) -> DataStream:
    made: DataStream = stream.map(lambda x: x - 1, NUMBER)
    return made


def graph_of(stream: DataStream) -> JobGraph:
    stream.print()
    return stream.get_execution_environment().get_job_graph("loop")


def test_a_loop_without_exchange_is_one_task() -> None:
    loop = numbers(environment()).iterate()
    assert isinstance(loop, IterativeStream)
    body = less(loop)
    assert loop.close_with(body) is body
    (path,) = loops_of(graph_of(body))
    assert (path.head, path.edges, path.quiet_rounds) == (path.tail, frozenset(), 2)


def test_markers_go_along_the_edges_of_the_loop_alone() -> None:
    env = environment()
    loop = numbers(env).iterate()
    keyed = less(loop).key_by(lambda x: x, NUMBER).map(lambda x: x, NUMBER).name("Body")
    loop.close_with(keyed.rebalance())
    aside = numbers(env).name("Aside")
    graph = graph_of(keyed.union(aside).rebalance().map(lambda x: x, NUMBER).name("Behind"))
    (path,) = loops_of(graph)
    names = {v.id: v.name for v in graph.vertices}
    along = [(names[e.source], names[e.target]) for e in graph.edges if e.index in path.edges]
    assert along == [("Iteration -> Map", "Body"), ("Body", "Feedback")]


def test_a_rescaled_loop_needs_a_quiet_round_for_each_step_between_its_heads() -> None:
    loop = numbers(environment()).iterate()
    loop.close_with(less(less(loop).rescale()).rescale())
    (path,) = loops_of(loop.get_execution_environment().get_job_graph())
    assert path.quiet_rounds == 3


def test_head_and_tail_share_their_slots() -> None:
    env = environment()
    loop = numbers(env).slot_sharing_group("left").iterate()
    body = less(loop).slot_sharing_group("right")
    loop.close_with(body)
    groups = {vertex.name: vertex.slot_sharing_group for vertex in graph_of(body).vertices}
    assert groups["Iteration"] == groups["Feedback"] == "left"


def test_feedback_of_another_type_reaches_the_second_input() -> None:
    loop = numbers(environment()).iterate().with_feedback_type(Types.STRING())
    assert isinstance(loop, ConnectedIterativeStreams)
    assert loop.stream2.get_type() == Types.STRING()
    assert loop.stream2.transformation.inputs[0] is loop.stream1.transformation


def test_an_open_loop_is_refused() -> None:
    loop = numbers(environment()).iterate().name("Shrinking")
    less(loop).print()
    with pytest.raises(InvalidProgramError, match="'Shrinking' is not closed: call close_with"):
        loop.get_execution_environment().get_job_graph()


def test_a_loop_is_closed_once() -> None:
    loop = numbers(environment()).iterate()
    loop.close_with(less(loop))
    with pytest.raises(InvalidProgramError, match=r"'Iteration' is closed\. Give close_with the union"):
        loop.close_with(less(loop))


def test_feedback_of_another_parallelism() -> None:
    loop = numbers(environment()).iterate()
    loop.close_with(less(loop).name("Alone").set_parallelism(1))
    with pytest.raises(
        InvalidProgramError, match="comes from 'Alone' with parallelism 1, but the iteration has 2"
    ):
        loop.get_execution_environment().get_job_graph()


def test_feedback_of_another_type() -> None:
    loop = numbers(environment()).iterate()
    with pytest.raises(InvalidProgramError, match=r"the feedback has the type String, but the iteration"):
        loop.close_with(loop.map(str, Types.STRING()))
    connected = numbers(environment()).iterate().with_feedback_type(Types.STRING())
    with pytest.raises(InvalidProgramError, match=r"but the iteration .* takes String"):
        connected.close_with(connected.stream1.map(lambda x: x, NUMBER))


def test_feedback_from_elsewhere() -> None:
    env = environment()
    loop = numbers(env).iterate()
    loop.close_with(numbers(env))
    with pytest.raises(InvalidProgramError, match="does not come from it"):
        env.get_job_graph()
    with pytest.raises(
        InvalidProgramError, match="close_with: the streams belong to two execution environments"
    ):
        numbers(environment()).iterate().close_with(numbers(env))
    with pytest.raises(TypeError, match="close_with takes DataStreams, not int"):
        numbers(env).iterate().close_with(3)  # type: ignore[arg-type]


def test_a_loop_in_a_loop() -> None:
    outer = numbers(environment()).iterate().name("Outer")
    inner = less(outer).iterate().name("Inner")
    inner.close_with(less(inner))
    outer.close_with(less(inner))
    with pytest.raises(UnsupportedFeatureError, match="'Inner' is a part of the iteration 'Outer'"):
        outer.get_execution_environment().get_job_graph()


def test_two_loops_in_a_row() -> None:
    first = numbers(environment()).iterate()
    second = first.close_with(less(first)).iterate()
    assert len(loops_of(graph_of(second.close_with(less(second))))) == 2


def test_blocking_exchanges() -> None:
    loop = numbers(environment(execution__exchange_mode="blocking")).iterate()
    loop.close_with(less(loop.rebalance()))
    with pytest.raises(UnsupportedFeatureError, match="blocking exchange before 'Map'"):
        loop.get_execution_environment().get_job_graph()


@pytest.mark.parametrize("wait", [-1, True, 1.5])
def test_the_wait_is_a_number_of_milliseconds(wait: Any) -> None:
    with pytest.raises((InvalidProgramError, TypeError), match=r"iterate.*milliseconds"):
        numbers(environment()).iterate(wait)


def test_columns_do_not_go_round() -> None:
    with pytest.raises(InvalidProgramError, match=r"convert it with to_rows\(\) first"):
        numbers(environment()).to_arrow().iterate()


@pytest.mark.parametrize("mode", ["BATCH", "AUTOMATIC"])
def test_batch_refuses_loops(mode: str) -> None:
    env = environment(execution__runtime_mode=mode)
    loop = env.from_collection([1, 2], NUMBER).iterate()
    loop.close_with(less(loop))
    less(loop).print()
    with pytest.raises(
        UnsupportedFeatureError, match=r"'Iteration': it is the iteration of a stream.*STREAMING"
    ):
        env.execute()
