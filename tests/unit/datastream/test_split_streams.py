"""split and select: streams by the names that a selector gives, over side outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.batch_runner import collect, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, OutputSelector, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness


class Divisors(OutputSelector[int]):
    def select(self, value: int) -> Iterable[str]:
        return [name for name, number in (("two", 2), ("three", 3)) if value % number == 0]


def run(build: Any, *rows: Any, timestamps: list[int] | None = None) -> OperatorHarness:
    harness = OperatorHarness(build)
    with harness:
        harness.push(*rows, timestamps=timestamps)
    return harness


@pytest.mark.differs(told="gives records the names of streams")
def test_a_record_goes_to_each_selection_that_has_one_of_its_names() -> None:
    def build(rows: DataStream) -> list[DataStream]:
        split = rows.split(Divisors())
        return [
            split.select("two"),
            split.select("three"),
            split.select("three", "two"),
            split.select("five"),
        ]

    harness = run(build, *range(1, 13))
    assert harness.outputs(0) == [2, 4, 6, 8, 10, 12]
    assert harness.outputs(1) == [3, 6, 9, 12]
    # A record of both names comes once.
    assert harness.outputs(2) == [2, 3, 4, 6, 8, 9, 10, 12]
    assert harness.outputs(3) == []


def test_a_callable_may_give_one_name_and_records_keep_their_time() -> None:
    def build(rows: DataStream) -> list[DataStream]:
        return [rows.split(lambda row: "odd" if row % 2 else "even").select("odd")]

    harness = run(build, 1, 2, 3, timestamps=[10, 20, 30])
    assert list(zip(harness.outputs(0), harness.timestamps(0), strict=True)) == [(1, 10), (3, 30)]


def test_a_selection_made_twice_is_one_side_output() -> None:
    def build(rows: DataStream) -> list[DataStream]:
        split = rows.split(Divisors())
        first, second = split.select("two"), split.select("two")
        return [first.union(second)]

    assert sorted(run(build, 1, 2).outputs(0)) == [2, 2]


def test_an_answer_that_is_no_name_fails_with_its_record() -> None:
    with pytest.raises(FragmentFailedError, match=r"(?s)selector of split returned 7.*Split"):
        run(lambda rows: [rows.split(lambda row: row).select("a")], 7)


def test_split_runs_in_batch_mode() -> None:
    env = environment(2)
    split = env.from_collection([*range(1, 13)], Types.LONG()).split(Divisors())
    joined = split.select("two").union(split.select("three"))
    assert sorted(collect(env, joined, deal=shuffled(1))) == [2, 3, 4, 6, 6, 8, 9, 10, 12, 12]


def test_a_selection_has_the_type_of_the_stream() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    split = env.from_collection([1], Types.LONG()).split(Divisors())
    selected = split.select("two")
    assert selected.get_type() == Types.LONG()
    assert operator_of(selected.map(str)).name == "Map"


def test_what_cannot_work_is_refused_by_name() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection([1], Types.LONG())
    with pytest.raises(TypeError, match=r"split takes an? OutputSelector or a callable, not 'two'"):
        rows.split("two")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="split takes an object, not a class: pass Divisors"):
        rows.split(Divisors)  # type: ignore[arg-type]
    for names in ((), (3,)):
        with pytest.raises(InvalidProgramError, match="select takes names of streams"):
            rows.split(Divisors()).select(*names)
