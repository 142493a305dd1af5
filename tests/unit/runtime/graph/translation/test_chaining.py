"""Flink's chaining conditions, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.datastream import DataStream
from yarrow.datastream.functions import CoMapFunction
from yarrow.runtime.graph.stream_graph import StreamGraph
from yarrow.runtime.graph.translation.chaining import chain_name, chain_of, heads, is_chainable
from yarrow.runtime.graph.translation.job_graph_generator import derived_max_parallelism


@dataclass(frozen=True)
class Case:
    name: str
    change: Callable[[DataStream, DataStream], object]
    chained: bool


CASES = [
    Case("nothing set", lambda first, second: None, True),
    Case("upstream begins a chain", lambda first, second: first.start_new_chain(), True),
    Case("downstream begins a chain", lambda first, second: second.start_new_chain(), False),
    Case("upstream is never chained", lambda first, second: first.disable_chaining(), False),
    Case("downstream is never chained", lambda first, second: second.disable_chaining(), False),
    Case("other group downstream", lambda first, second: second.slot_sharing_group("other"), False),
    Case("other group upstream is inherited", lambda first, second: first.slot_sharing_group("g"), True),
    Case("other parallelism", lambda first, second: second.set_parallelism(3), False),
    Case("other max parallelism", lambda first, second: second.set_max_parallelism(7), True),
    Case("forced to one subtask", lambda first, second: second.force_non_parallel(), False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_maps(case: Case) -> None:
    env = environment()
    first = env.from_sequence(1, 9).disable_chaining().map(lambda x: x)
    second = first.map(lambda x: x)
    case.change(first, second)
    graph = env.get_stream_graph()
    node = graph.nodes[second.transformation.id]
    assert is_chainable(node.in_edges[0], graph) is case.chained


@pytest.mark.parametrize("method", ["shuffle", "rebalance", "rescale", "broadcast", "global_"])
def test_redistribution_breaks_the_chain(method: str) -> None:
    env = environment()
    getattr(env.from_sequence(1, 9), method)().map(lambda x: x)
    assert vertex_names(env.get_stream_graph()) == ["Source: Sequence Source", "Map"]


def test_explicit_forward_is_chained() -> None:
    env = environment()
    env.from_sequence(1, 9).forward().map(lambda x: x)
    assert vertex_names(env.get_stream_graph()) == ["Source: Sequence Source -> Map"]


def test_the_partitioner_nearest_to_the_consumer_counts() -> None:
    env = environment()
    env.from_sequence(1, 9).shuffle().rebalance().map(lambda x: x)
    graph = env.get_stream_graph()
    (edge,) = [edge for node in graph.nodes.values() for edge in node.in_edges]
    assert edge.partitioner.kind.value == "REBALANCE"


def test_different_max_parallelism_breaks_the_chain_where_configured() -> None:
    key = "pipeline.operator-chaining.chain-operators-with-different-max-parallelism"
    env = environment(settings={key: "false"})
    env.from_sequence(1, 9).map(lambda x: x).set_max_parallelism(8)
    assert vertex_names(env.get_stream_graph()) == ["Source: Sequence Source", "Map"]


def test_chaining_can_be_switched_off() -> None:
    env = environment()
    env.disable_operator_chaining()
    env.from_sequence(1, 9).map(lambda x: x).print()
    assert vertex_names(env.get_stream_graph()) == [
        "Source: Sequence Source",
        "Map",
        "Sink: Print to Std. Out",
    ]


def test_union_breaks_the_chain_but_parts_of_it_do_not() -> None:
    env = environment()
    left, right = env.from_sequence(1, 9), env.from_sequence(1, 9)
    left.union(right).map(lambda x: x)
    assert vertex_names(env.get_stream_graph()) == [
        "Source: Sequence Source",
        "Source: Sequence Source",
        "Map",
    ]


def test_a_stream_in_union_with_itself_is_two_edges() -> None:
    env = environment()
    source = env.from_sequence(1, 9)
    source.union(source).map(lambda x: x)
    graph = env.get_stream_graph()
    assert [len(node.in_edges) for node in graph.nodes.values()] == [0, 2]
    assert len(vertex_names(graph)) == 2


class Both(CoMapFunction[int, int, int]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return value


def test_two_inputs_begin_a_chain() -> None:
    env = environment()
    env.from_sequence(1, 9).connect(env.from_sequence(1, 9)).map(Both()).print()
    assert vertex_names(env.get_stream_graph())[-1] == "Co-Map -> Sink: Print to Std. Out"


def test_a_divided_chain_is_a_tree_named_like_flinks() -> None:
    env = environment()
    mapped = env.from_sequence(1, 9).map(lambda x: x)
    mapped.filter(bool)
    mapped.map(lambda x: x).print()
    graph = env.get_stream_graph()
    (head,) = heads(graph)
    assert chain_name(head, graph) == (
        "Source: Sequence Source -> Map -> (Filter, Map -> Sink: Print to Std. Out)"
    )
    assert [node.name for node in chain_of(head, graph)] == [
        "Source: Sequence Source",
        "Map",
        "Filter",
        "Map",
        "Sink: Print to Std. Out",
    ]


@pytest.mark.slow
def test_long_programs_do_not_exhaust_the_stack() -> None:
    env = environment()
    stream = env.from_sequence(1, 9)
    for _ in range(3000):
        stream = stream.map(str)
    joined = stream
    for _ in range(1500):
        joined = joined.union(stream)
    joined.map(str)
    first, last = env.get_job_graph().vertices
    assert len(first.operators) == 3001 and first.name.endswith("Map -> Map")
    assert len(last.operators) == 1


def vertex_names(graph: StreamGraph) -> list[str]:
    return [chain_name(head, graph) for head in heads(graph)]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        (1, 128),
        (85, 128),
        (86, 256),
        (128, 256),
        (170, 256),
        (171, 256),
        (172, 512),
        (4096, 8192),
        (32_768, 32_768),
    ],
)
def test_derived_max_parallelism(parallelism: int, expected: int) -> None:
    assert derived_max_parallelism(parallelism) == expected
