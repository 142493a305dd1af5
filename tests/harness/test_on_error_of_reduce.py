"""on_error of reduce and aggregates by key: a row at which they fail leaves as a letter, and the value is as before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collect
from tests.unit.runtime.graph.programs import environment
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, ReduceFunction, RuntimeContext, ValueStateDescriptor
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.state import ValueState
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
#: A key and a number; negative ones fail.
Pair = tuple[str, int]


def add(first: Pair, second: Pair) -> Pair:
    if second[1] < 0:
        raise ValueError(f"no {second[1]}")
    return first[0], first[1] + second[1]


class Collecting(ReduceFunction[Any]):
    """Changes the value so far, also before a row fails."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        value1[1].extend(value2[1])
        if value2[1][0] < 0:
            raise ValueError(f"no {value2[1]}")
        return value1


def keyed(stream: DataStream) -> Any:
    return stream.key_by(lambda pair: pair[0], Types.STRING())


def with_letters(stream: DataStream) -> list[DataStream]:
    stream = stream.uid("the fold").on_error("dead_letter")
    return [stream, stream.dead_letters()]


def sums_of(rows: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The results, and the rows that fail. The first row of a key cannot fail."""
    values: dict[str, int] = {}
    results, failed = list[Pair](), list[Pair]()
    for key, number in rows:
        if key in values and number < 0:
            failed.append((key, number))
            continue
        values[key] = values.get(key, 0) + number
        results.append((key, values[key]))
    return results, failed


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 9)), max_size=12)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@settings(deadline=None, max_examples=15)
@given(ROWS, st.integers(0, 12), st.booleans())
def test_a_row_that_fails_changes_nothing(backend: str, rows: list[Pair], cut: int, stamped: bool) -> None:
    results, failed = sums_of(rows)
    found: list[list[Any]] = []
    with OperatorHarness(
        lambda s: with_letters(keyed(s).reduce(add)),
        types=[PAIR],
        configuration={"state.backend.type": backend},
    ) as harness:
        harness.push(*rows[:cut], timestamps=range(len(rows[:cut])) if stamped else None)
        snapshot = harness.snapshot()
        found = [harness.outputs(index) for index in range(2)]
        # What follows the snapshot is lost by the crash.
        harness.push(*rows[cut:])
        with harness.restarted(snapshot) as again:
            again.push(*rows[cut:])
            again.end()
            found = [before + again.outputs(index) for index, before in enumerate(found)]
    load = serializer_for(PAIR).load_rows
    assert found[0] == results
    assert [row for letter in found[1] for row in load(letter.raw or b"")] == failed


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_value_that_the_function_has_changed_is_as_before_the_row(backend: str) -> None:
    with OperatorHarness(
        lambda s: with_letters(keyed(s).reduce(Collecting())),
        configuration={"state.backend.type": backend},
    ) as harness:
        harness.push(("a", [1]), ("a", [-2]), ("a", [3]))
        with harness.restarted(harness.snapshot()) as again:
            again.push(("a", [-4]), ("a", [5]))
            again.end()
            assert again.outputs(0) == [("a", [1, 3, 5])]
            assert len(again.outputs(1)) == 1


def test_a_letter_tells_the_row_its_key_and_its_time() -> None:
    with OperatorHarness(lambda s: with_letters(keyed(s).reduce(add)), types=[PAIR]) as harness:
        harness.push(("a", 1), ("b", -1), ("b", -7), timestamps=[3, 4, 5])
        harness.end()
        assert (harness.outputs(0), harness.timestamps(0)) == ([("a", 1), ("b", -1)], [3, 4])
        letters: list[DeadLetter] = harness.outputs(1)
        (letter,) = letters
        assert (letter.operator, letter.input, letter.timestamp) == ("the fold", 0, 5)
        assert (letter.error, letter.error_class) == ("ValueError: no -7", "ValueError")
        assert letter.key == encode_key("b") and letter.record_type == str(PAIR)
        assert "raise ValueError" in letter.traceback and "KeyError" not in letter.traceback
        assert [v for k, v in harness.metrics().items() if k.endswith("numRecordsInErrors")] == [1]


class Counting(ReduceFunction[Any]):
    """Counts the rows of a key in a state of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def reduce(self, value1: Any, value2: Any) -> Any:
        count = (self.count.value() or 0) + 1
        result = (value1[0], count * 100 + 12 // value2[1])
        self.count.update(count)
        return result


def test_a_function_with_state_of_its_own() -> None:
    with OperatorHarness(
        lambda s: with_letters(keyed(s).reduce(Counting())), types=[PAIR], chunk_rows=2
    ) as harness:
        harness.push(("a", 1), ("a", 2), ("b", 1), ("a", 0), ("b", 0), ("a", 3))
        harness.end()
        assert harness.outputs(0) == [("a", 1), ("a", 106), ("b", 1), ("a", 204)]
        assert [letter.error_class for letter in harness.outputs(1)] == ["ZeroDivisionError"] * 2


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (lambda k: k.sum(1), [("a", 1), ("a", 3)]),
        (lambda k: k.max(1), [("a", 1), ("a", 2)]),
        (lambda k: k.min_by(1), [("a", 1), ("a", 1)]),
    ],
)
def test_aggregates_leave_out_values_that_do_not_fit(fold: Any, expected: Any) -> None:
    with OperatorHarness(lambda s: with_letters(fold(keyed(s)))) as harness:
        harness.push(("a", 1), ("a", "x"), ("a", 2))
        harness.end()
        assert harness.outputs(0) == expected
        assert [letter.error_class for letter in harness.outputs(1)] == ["TypeError"]


def test_past_a_bound_the_job_fails() -> None:
    with (
        pytest.raises(FragmentFailedError, match=r"(?s)failed at 5 of the latest 10 records"),
        OperatorHarness(
            lambda s: keyed(s).reduce(add).on_error("skip", max_share=0.4), types=[PAIR]
        ) as harness,
    ):
        harness.push(*[("a", number if number % 2 else -number) for number in range(1, 11)])
        harness.end()


@pytest.mark.parametrize("commutes", [False, True])
def test_a_bounded_input_is_reduced_row_by_row(commutes: bool) -> None:
    env = environment(2)
    numbers = env.from_collection([("a", 1), ("a", -2), ("b", 3), ("a", 4), ("b", -5)], PAIR)
    reduced = keyed(numbers).reduce(add, commutes=commutes).uid("the fold").on_error("dead_letter")
    letters = reduced.dead_letters().map(lambda letter: (letter.operator, letter.error))
    assert sorted(collect(env, reduced.union(letters))) == [
        ("a", 5),
        ("b", 3),
        ("the fold", "ValueError: no -2"),
        ("the fold", "ValueError: no -5"),
    ]
