"""Connected streams in a program: one key space, the declared type of results, functions that do not fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common.typeinfo import Types
from yarrow.datastream import (
    CoFlatMapFunction,
    ConnectedStreams,
    DataStream,
    MapFunction,
    RuntimeContext,
    ValueStateDescriptor,
)
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.state import ValueState
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.testing.operator_harness import OperatorHarness


class Enriched(CoFlatMapFunction[Any, Any, Any]):
    """Texts are kept for their key; each number gives the text of its key so often, or nothing if none has come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._text: ValueState[str] = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))

    def flat_map1(self, value: Any) -> None:
        self._text.update(value[1])

    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        text = self._text.value()
        return None if text is None else [(value[0], text)] * value[1]


def enriched(texts: DataStream, numbers: DataStream) -> DataStream:
    connected: ConnectedStreams = texts.connect(numbers).key_by(
        lambda text: text[0], lambda number: number[0], Types.STRING()
    )
    return connected.flat_map(Enriched(), Types.TUPLE([Types.STRING(), Types.STRING()]))


def test_flat_map_shares_the_state_of_a_key_between_both_streams() -> None:
    with OperatorHarness(enriched, inputs=2) as harness:
        harness.push(("a", 2), input=1)
        harness.push(("a", "first"), ("b", "other"), input=0)
        harness.push(("a", 2), ("b", 1), ("c", 3), ("a", 0), input=1)
        harness.push(("a", "second"), input=0)
        harness.push(("a", 1), input=1)
        assert harness.output == [("a", "first"), ("a", "first"), ("b", "other"), ("a", "second")]


def test_results_have_the_declared_type_and_keys_theirs() -> None:
    env = environment()
    made = enriched(env.from_collection([("a", "x")]), env.from_collection([("a", 1)]))
    assert made.get_type() == Types.TUPLE([Types.STRING(), Types.STRING()])
    assert operator_of(made).state_key_type == Types.STRING()


def test_keys_of_types_that_never_meet_are_refused() -> None:
    env = environment()
    texts = env.from_collection([("a", 1)]).key_by(lambda row: row[0], Types.STRING())
    numbers = env.from_collection([("a", 1)]).key_by(lambda row: row[1], Types.LONG())
    with pytest.raises(
        InvalidProgramError,
        match="connect: keys of type Long never equal those of the first stream, of type String",
    ):
        texts.connect(numbers).flat_map(Enriched())


def test_flat_map_takes_a_function_of_both_streams() -> None:
    class Same(MapFunction[Any, Any]):
        def map(self, value: Any) -> Any:
            return value

    env = environment()
    connected: ConnectedStreams = env.from_sequence(1, 9).connect(env.from_sequence(1, 9))
    with pytest.raises(
        TypeError, match="flat_map on connected streams takes a CoFlatMapFunction, not a Same"
    ):
        connected.flat_map(Same())  # type: ignore[arg-type]
