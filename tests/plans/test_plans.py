"""The plans of a dozen programs against those stored beside this file.

A difference means that a program of before gets other operators, names, ids or exchanges: where that is
meant, write the plans anew with `python -m tests.plans.test_plans` and look at the difference.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest

from tests.plans.programs import PROGRAMS, Program
from tests.unit.runtime.graph.programs import environment
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, decode_job_graph, encode_job_graph
from yarrow.runtime.graph.translation.plan import execution_plan_of_job, stream_graph_of_job

FOLDER = Path(__file__).parent


def described(program: Program) -> dict[str, Any]:
    """Everything of a program's graphs that does not depend on the bytes of its functions."""
    env = environment(parallelism=2)
    program(env)
    execution_plan = json.loads(env.get_execution_plan())
    graph = env.get_job_graph("plan")
    return {
        "execution_plan": execution_plan,
        "plan": graph.plan,
        "vertices": [_vertex(vertex) for vertex in graph.vertices],
        "edges": [
            {
                "source": edge.source,
                "source_operator": edge.source_operator,
                "target": edge.target,
                "target_input": edge.target_input,
                "partitioner": edge.partitioner.kind.value,
                "key_column": edge.partitioner.key_column,
                "result_type": edge.result_type.value,
                "stream_kind": edge.stream_kind.value,
                "type": edge.type_spec,
                "side_output": edge.side_output,
            }
            for edge in graph.edges
        ],
    }


def _vertex(vertex: JobVertex) -> dict[str, Any]:
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "slot_sharing_group": vertex.slot_sharing_group,
        "buffer_timeout_ms": vertex.buffer_timeout_ms,
        "blocking": vertex.blocking,
        "operators": [
            {
                "id": operator.id,
                "name": operator.name,
                "uid": operator.uid,
                "spec": operator.spec.__struct_config__.tag,
                "input_types": list(operator.input_types),
                "output_type": operator.output_type,
                "output_kind": operator.output_kind.value,
            }
            for operator in vertex.operators
        ],
        "chained_edges": [[edge.source, edge.target, edge.side_output] for edge in vertex.chained_edges],
    }


def _stored(name: str) -> Path:
    return FOLDER / f"{name}.json"


@pytest.mark.parametrize("name", PROGRAMS)
def test_plan_is_as_stored(name: str) -> None:
    made = json.loads(json.dumps(described(PROGRAMS[name])))
    assert made == json.loads(_stored(name).read_text())


def test_no_stored_plan_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_hold_together(name: str) -> None:
    """What the control plane relies on, for every shape."""
    graph = _graph(name)
    order = {vertex.id: number for number, vertex in enumerate(graph.vertices)}
    assert [edge.index for edge in graph.edges] == list(range(len(graph.edges)))
    sources = [vertex.is_source for vertex in graph.vertices]
    assert sources == sorted(sources, reverse=True), "sources come first"
    for edge in graph.edges:
        assert order[edge.source] < order[edge.target]
        assert edge.source_operator < len(graph.vertex(edge.source).operators)
    for vertex in graph.vertices:
        assert vertex.is_source == (not graph.inputs_of(vertex.id))
        targets = [edge.target for edge in vertex.chained_edges]
        assert sorted(targets) == list(range(1, len(vertex.operators))), "a chain is a tree"
        assert all(edge.source < edge.target for edge in vertex.chained_edges)
    assert decode_job_graph(encode_job_graph(graph)) == graph


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_execution_plan_can_be_told_from_the_job_graph(name: str) -> None:
    """All but the numbers and their order."""
    nodes = execution_plan_of_job(_graph(name))["nodes"]
    stored = json.loads(_stored(name).read_text())["execution_plan"]["nodes"]
    assert sorted(map(_without_numbers, nodes)) == sorted(map(_without_numbers, stored))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_stream_graph_has_each_operator_with_its_vertex_and_each_edge(name: str) -> None:
    graph = _graph(name)
    nodes = stream_graph_of_job(graph)["nodes"]
    operators = [(vertex.id, operator.name) for vertex in graph.vertices for operator in vertex.operators]
    assert [(node["job_vertex_id"], html.unescape(node["operator"])) for node in nodes] == operators
    vertex_of = {node["id"]: node["job_vertex_id"] for node in nodes}
    exchanges = sorted(
        (vertex_of[read["id"]], node["job_vertex_id"], read["ship_strategy"], read["exchange"])
        for node in nodes
        for read in node["inputs"]
        if vertex_of[read["id"]] != node["job_vertex_id"]
    )
    planned = sorted(
        (read["id"], node["id"], read["ship_strategy"], read["exchange"])
        for node in graph.plan["nodes"]
        for read in node.get("inputs", ())
    )
    assert exchanges == planned
    chained = sum(len(vertex.chained_edges) for vertex in graph.vertices)
    assert sum(len(node["inputs"]) for node in nodes) == chained + len(planned)


def _without_numbers(node: dict[str, Any]) -> str:
    inputs = [{**read, "id": 0} for read in node.get("predecessors", [])]
    return json.dumps({**node, "id": 0, "predecessors": inputs}, sort_keys=True)


def _graph(name: str) -> JobGraph:
    env = environment(parallelism=2)
    PROGRAMS[name](env)
    return env.get_job_graph("plan")


if __name__ == "__main__":
    for program_name, program in PROGRAMS.items():
        _stored(program_name).write_text(json.dumps(described(program), indent=1) + "\n")
