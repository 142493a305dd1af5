"""Operator ids stay: of a uid for ever, of a place as long as the graph keeps its shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.translation.operator_ids import operator_id_of_uid


def ids_of(build: Callable[[StreamExecutionEnvironment], object]) -> dict[str, str]:
    env = environment()
    build(env)
    graph = env.get_job_graph()
    return {
        f"{number} {operator.name}": operator.id
        for number, operator in enumerate(op for vertex in graph.vertices for op in vertex.operators)
    }


def test_the_id_of_a_uid_is_a_stored_format() -> None:
    assert operator_id_of_uid("count per carrier") == "72c49b9588dfe5b88afdaacfd76ad3bd"


def test_ids_of_places_are_a_stored_format() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_sequence(1, 9).map(lambda x: x).key_by(lambda x: x).reduce(lambda a, b: a).print()

    assert ids_of(build) == GOLDEN_PLACES


GOLDEN_PLACES = {
    "0 Source: Sequence Source": "cac3abd91c2834d0cbd35fc3be6acdf0",
    "1 Map": "70b5e1b93478423779be145671b5599a",
    "2 Keyed Reduce": "764de51acf831a59ab54be694646b412",
    "3 Sink: Print to Std. Out": "6d718964f732a8c07a60e37646f5f30b",
}


def test_names_functions_and_parallelism_do_not_change_an_id() -> None:
    def first(env: StreamExecutionEnvironment) -> None:
        env.from_sequence(1, 9).map(lambda x: x).name("a").key_by(lambda x: x).sum().print()

    def second(env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(3)
        env.from_sequence(5, 6).map(lambda x: -x).name("b").key_by(lambda x: 1).sum().print()

    assert list(ids_of(first).values()) == list(ids_of(second).values())


def test_the_shape_does() -> None:
    def first(env: StreamExecutionEnvironment) -> None:
        env.from_sequence(1, 9).map(lambda x: x).print()

    def second(env: StreamExecutionEnvironment) -> None:
        env.from_sequence(1, 9).map(lambda x: x).start_new_chain().print()

    assert not set(ids_of(first).values()) >= set(ids_of(second).values())


def test_a_uid_keeps_its_id_whatever_is_around_it() -> None:
    def first(env: StreamExecutionEnvironment) -> None:
        env.from_sequence(1, 9).key_by(lambda x: x).sum().uid("sums").print()

    def second(env: StreamExecutionEnvironment) -> None:
        env.from_sequence(1, 9).map(lambda x: x).filter(bool).key_by(lambda x: x).sum().uid("sums").print()

    assert operator_id_of_uid("sums") in ids_of(first).values()
    assert operator_id_of_uid("sums") in ids_of(second).values()


def test_the_vertex_has_the_id_of_its_head() -> None:
    env = environment()
    env.from_sequence(1, 9).map(lambda x: x).start_new_chain().uid("head").map(lambda x: x).uid("tail")
    vertex = env.get_job_graph().vertices[1]
    assert str(vertex.id) == str(vertex.operators[0].id) == operator_id_of_uid("head")
    assert vertex.operators[1].uid == "tail"


def test_a_uid_hash_is_the_id() -> None:
    env = environment()
    env.from_sequence(1, 9).map(lambda x: x).set_uid_hash("ab" * 16)
    assert env.get_job_graph().vertices[0].operators[1].id == "ab" * 16


def test_a_malformed_uid_hash_is_refused() -> None:
    env = environment()
    env.from_sequence(1, 9).map(lambda x: x).set_uid_hash("AB")
    with pytest.raises(InvalidProgramError, match=r"'Map' was given the uid hash 'AB': it must have 32 hex"):
        env.get_job_graph()


def test_a_uid_given_twice_is_refused() -> None:
    env = environment()
    env.from_sequence(1, 9).map(lambda x: x).uid("same").filter(bool).uid("same")
    with pytest.raises(
        InvalidProgramError, match=r"uid 'same' is given to two operators, 'Map' and 'Filter'"
    ):
        env.get_job_graph()


def test_operators_without_uid_are_refused_where_configured() -> None:
    env = environment()
    env.get_config().disable_auto_generated_uids()
    env.from_sequence(1, 9).uid("source").map(lambda x: x)
    with pytest.raises(
        InvalidProgramError, match=r"'Map' has no uid, and pipeline\.auto-generate-uids is false"
    ):
        env.get_job_graph()
