"""What a keyed stream lets a program do with it: functions and ends as of any stream, and no other distribution."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common.typeinfo import Types
from yarrow.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedStream,
    KeySelector,
    RuntimeContext,
    SinkFunction,
    ValueStateDescriptor,
)
from yarrow.datastream.state import ValueState
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.testing.operator_harness import OperatorHarness

PAIRS = Types.TUPLE([Types.STRING(), Types.LONG()])


class OfWord(KeySelector[Any, str]):
    """The first field."""

    def get_key(self, value: Any) -> str:
        return str(value[0])


class OfNumber(KeySelector[Any, int]):
    """The second field."""

    def get_key(self, value: Any) -> int:
        return int(value[1])


def by_word(stream: DataStream) -> KeyedStream:
    return stream.key_by(OfWord(), Types.STRING())


def pairs_by_word() -> KeyedStream:
    return by_word(environment().from_collection([("a", 1)], PAIRS))


class Repeated(FlatMapFunction[Any, Any]):
    """Each number as often as its key has come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def flat_map(self, value: Any) -> Iterable[int]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        return [value[1]] * count


class Taken(SinkFunction[Any]):
    """Keeps what it gets, in the process of the test."""

    rows: list[Any] = []  # noqa: RUF012

    def invoke(self, value: Any, context: Any) -> None:
        self.rows.append(value)


def test_flat_map_reaches_the_state_of_the_key_of_its_record() -> None:
    with OperatorHarness(lambda s: by_word(s).flat_map(Repeated(), Types.LONG()), types=[PAIRS]) as harness:
        harness.push(("a", 1), ("b", 2), ("a", 3))
        assert harness.take() == [1, 2, 3, 3]


def test_project_takes_fields_of_the_records_and_not_the_key() -> None:
    projected = pairs_by_word().project(1)
    assert projected.get_type() == Types.TUPLE([Types.LONG()])
    with OperatorHarness(lambda s: by_word(s).project(1), types=[PAIRS]) as harness:
        harness.push(("a", 1), ("b", 2))
        assert harness.take() == [(1,), (2,)]


def test_a_union_with_a_keyed_stream_has_the_records_of_both_and_no_key() -> None:
    def both(first: DataStream, second: DataStream) -> DataStream:
        united = by_word(first).union(second)
        assert not isinstance(united, KeyedStream)
        return united.map(lambda pair: pair[1])

    with OperatorHarness(both, inputs=2, types=[PAIRS, PAIRS]) as harness:
        harness.push(("a", 1), input=0)
        harness.push(("b", 2), input=1)
        assert harness.take() == [1, 2]


def test_a_keyed_stream_ends_in_lines_and_in_functions() -> None:
    def ends(stream: DataStream) -> list[DataStream]:
        keyed = by_word(stream)
        keyed.print("pairs")
        keyed.add_sink(Taken())
        return []

    Taken.rows.clear()
    with OperatorHarness(ends, types=[PAIRS]) as harness:
        harness.push(("a", 1), ("b", 2))
        harness.finish()
        assert harness.printed == ["pairs> ('a', 1)", "pairs> ('b', 2)"]
    assert Taken.rows == [("a", 1), ("b", 2)]


def test_the_last_of_two_keys_counts() -> None:
    def summed(stream: DataStream) -> DataStream:
        again = by_word(stream).key_by(OfNumber())
        return again.reduce(lambda first, second: (first[0] + second[0], first[1]))

    with OperatorHarness(summed, types=[PAIRS]) as harness:
        harness.push(("a", 1), ("b", 1), ("a", 2))
        assert harness.take() == [("a", 1), ("ab", 1), ("a", 2)]
    env = environment()
    summed(env.from_collection([("a", 1)], PAIRS)).print()
    (edge,) = [
        each for each in env.get_job_graph().edges if each.partitioner.kind is PartitionerKind.KEY_GROUP
    ]
    assert isinstance(pickle.loads(edge.partitioner.key_selector or b""), OfNumber)


DISTRIBUTIONS: dict[str, Callable[[], object]] = {
    "BROADCAST": lambda: pairs_by_word().broadcast(),
    "CUSTOM": lambda: pairs_by_word().partition_custom(lambda key, number: 0, OfNumber()),
    "FORWARD": lambda: pairs_by_word().forward(),
    "RESCALE": lambda: pairs_by_word().rescale(),
    "SHUFFLE": lambda: pairs_by_word().shuffle(),
}


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_no_other_distribution_undoes_the_key(kind: str) -> None:
    with pytest.raises(InvalidProgramError, match=f"is distributed by its key, which {kind} would undo"):
        DISTRIBUTIONS[kind]()


SETTINGS: dict[str, Callable[[], object]] = {
    "disable_chaining": lambda: pairs_by_word().disable_chaining(),
    "force_non_parallel": lambda: pairs_by_word().force_non_parallel(),
    "get_name": lambda: pairs_by_word().get_name(),
    "name": lambda: pairs_by_word().name("Pairs"),
    "set_buffer_timeout": lambda: pairs_by_word().set_buffer_timeout(10),
    "set_max_parallelism": lambda: pairs_by_word().set_max_parallelism(8),
    "set_parallelism": lambda: pairs_by_word().set_parallelism(3),
    "set_uid_hash": lambda: pairs_by_word().set_uid_hash("0" * 32),
    "slot_sharing_group": lambda: pairs_by_word().slot_sharing_group("words"),
    "start_new_chain": lambda: pairs_by_word().start_new_chain(),
    "uid": lambda: pairs_by_word().uid("pairs"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_belong_to_the_operators_before_and_behind_the_key(setting: str) -> None:
    """As in PyFlink, a key is no operator, which could be given a name or a parallelism."""
    with pytest.raises(InvalidProgramError, match=rf"^{setting}\(\) concerns an operator"):
        SETTINGS[setting]()


def test_only_a_key_hides_the_name_of_an_operator() -> None:
    pairs = pairs_by_word().sum(1)
    assert pairs.get_name() == "Keyed Aggregation" and pairs.rebalance().get_name() == "Partition"
    with pytest.raises(InvalidProgramError, match=r"^get_name\(\) concerns an operator"):
        pairs.to_arrow(pa.schema([("word", pa.string()), ("n", pa.int64())])).key_by("word").get_name()


def test_records_of_a_keyed_stream_are_not_kept_for_later_jobs() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"cache is refused: .* no cached intermediate results"):
        pairs_by_word().cache()
