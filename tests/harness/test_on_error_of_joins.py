"""on_error of joins: a pair at which the function fails leaves as a letter, and its rows stay for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, OutputTag, ProcessJoinFunction
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.dead_letters import PAIR_OF_INPUTS, RECORD_PICKLED, RECORD_TYPED
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

ASIDE = OutputTag("aside")
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
#: A key and a number.
Row = tuple[str, int]


def is_refused(left: Row | None, right: Row | None) -> bool:
    return left is None or right is None or (left[1] + right[1]) % 3 == 0


def times_of(ctx: Any) -> tuple[int | None, int | None]:
    return ctx.get_left_timestamp(), ctx.get_right_timestamp()


class Refusing(ProcessJoinFunction[Any, Any, Any]):
    """Fails behind its first result; one list is changed and given again."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        made: list[Any] = [left, right]
        yield made
        if is_refused(left, right):
            raise ValueError(f"no {left} with {right}")
        made.append(ctx.get_timestamp())
        yield made


class Leaving(ProcessJoinFunction[Any, Any, Any]):
    """Gives what `Refusing` gives, and nothing for a pair at which that fails."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        if is_refused(left, right):
            return ()
        return [[left, right], [left, right, ctx.get_timestamp()]]


class OneValue(ProcessJoinFunction[Any, Any, Any]):
    """A function that loops may compute without a call."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield 12 // ((left[1] + right[1]) % 3)


def keyed(stream: DataStream) -> Any:
    return stream.key_by(lambda row: row[0], Types.STRING())


def ms(number: int) -> Time:
    return Time.milliseconds(number)


Join = Callable[[DataStream, DataStream], Any]
JOINS: dict[str, Join] = {
    "interval": lambda a, b: keyed(a).interval_join(keyed(b)).between(ms(-5), ms(5)),
    "outer interval": lambda a, b: keyed(a).interval_join(keyed(b)).between(ms(-5), ms(5)).full_outer(),
    "as of": lambda a, b: keyed(a).as_of_join(keyed(b)).backward(),
    "outer as of": lambda a, b: keyed(a).as_of_join(keyed(b)).backward().left_outer(),
    "delayed": lambda a, b: keyed(a).delayed_join(keyed(b)).after(ms(5)),
    "immediate": lambda a, b: keyed(a).immediate_join(keyed(b)),
}


def with_letters(stream: DataStream) -> list[DataStream]:
    stream = stream.uid("the join").on_error("dead_letter")
    return [stream, stream.dead_letters()]


def pairs_of(letters: list[DeadLetter], join: str) -> list[tuple[Any, ...]]:
    """Both rows and their times."""
    declared = None if "outer" in join else Types.TUPLE([PAIR, PAIR])
    load = serializer_for(declared).load_rows
    expected = RECORD_PICKLED if declared is None else RECORD_TYPED
    assert {(letter.input, letter.encoding) for letter in letters} <= {(PAIR_OF_INPUTS, expected)}
    return [(*pair, *letter.row_times) for letter in letters for pair in load(letter.raw or b"")]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.tuples(st.sampled_from("ab"), st.integers(0, 9)),
        st.integers(0, 20),
        st.none() | st.integers(0, 20),
    ),
    max_size=12,
)


def feed(harness: OperatorHarness, steps: list[Any], reached: int) -> int:
    for side, row, time, watermark in steps:
        harness.push(row, timestamps=[time], input=side)
        if watermark is not None and watermark > reached:
            reached = watermark
            for each in (0, 1):
                harness.watermark(reached, input=each)
    harness.run()
    return reached


def ended(harness: OperatorHarness) -> None:
    for each in (0, 1):
        harness.watermark(1000, input=each)
    harness.run()


@pytest.mark.parametrize("join", JOINS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=12)
@given(STEPS, st.integers(0, 12), st.booleans())
def test_only_the_pair_that_fails_is_left_out(join: str, steps: list[Any], cut: int, restarts: bool) -> None:
    build = JOINS[join]

    def fragment(a: DataStream, b: DataStream) -> list[DataStream]:
        return with_letters(build(a, b).process(Refusing()))

    found: list[list[Any]] = [[], []]
    with OperatorHarness(fragment, inputs=2, types=[PAIR, PAIR]) as harness:
        reached = feed(harness, steps[:cut], -1)
        current = harness
        if restarts:
            found = [harness.outputs(index) for index in range(2)]
            current = harness.restarted(harness.snapshot())
        with current:
            feed(current, steps[cut:], reached)
            ended(current)
            found = [before + current.outputs(index) for index, before in enumerate(found)]
    with OperatorHarness(
        lambda a, b: build(a, b).process(Leaving()), inputs=2, types=[PAIR, PAIR]
    ) as harness:
        feed(harness, steps, -1)
        ended(harness)
        assert sorted(map(repr, found[0])) == sorted(map(repr, harness.outputs(0)))
    refused = pairs_of(found[1], join)
    assert all(is_refused(left, right) for left, right, *_ in refused)
    with OperatorHarness(
        lambda a, b: build(a, b).process(Refused()), inputs=2, types=[PAIR, PAIR]
    ) as harness:
        feed(harness, steps, -1)
        ended(harness)
        assert sorted(map(repr, refused)) == sorted(map(repr, harness.outputs(0)))


class Refused(ProcessJoinFunction[Any, Any, Any]):
    """The pairs at which `Refusing` fails."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        return [(left, right, *times_of(ctx))] if is_refused(left, right) else ()


def test_a_letter_tells_both_rows_the_key_and_the_time() -> None:
    def fragment(a: DataStream, b: DataStream) -> list[DataStream]:
        return with_letters(JOINS["interval"](a, b).process(OneValue(), Types.LONG()))

    with OperatorHarness(fragment, inputs=2, types=[PAIR, PAIR]) as harness:
        harness.push(("a", 1), ("b", 1), timestamps=[1, 2])
        harness.push(("a", 1), ("a", 2), ("b", 5), timestamps=[3, 4, 5], input=1)
        ended(harness)
        assert harness.outputs(0) == [6]
        first, second = harness.outputs(1)
        assert pairs_of([first, second], "interval") == [
            (("a", 1), ("a", 2), 1, 4),
            (("b", 1), ("b", 5), 2, 5),
        ]
        assert (first.operator, first.timestamp, first.error_class) == ("the join", 4, "ZeroDivisionError")
        assert [each.key for each in (first, second)] == [encode_key("a"), encode_key("b")]
        assert first.record_type == str(Types.TUPLE([PAIR, PAIR]))
        metrics = {name: value for name, value in harness.metrics().items() if "numRecordsInErrors" in name}
        assert [*metrics.values()] == [2]


class ChangingAside(ProcessJoinFunction[Any, Any, Any]):
    """Changes a list after it has given it to a side output."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        made = [1]
        yield ASIDE, made
        made.append(2)
        yield 3


def test_a_side_output_is_as_it_was_emitted() -> None:
    def fragment(a: DataStream, b: DataStream) -> list[DataStream]:
        joined = JOINS["interval"](a, b).process(ChangingAside(), Types.LONG()).on_error("skip")
        return [joined, joined.get_side_output(ASIDE)]

    with OperatorHarness(fragment, inputs=2, types=[PAIR, PAIR]) as harness:
        harness.push(("a", 1), timestamps=[1])
        harness.push(("a", 1), timestamps=[1], input=1)
        ended(harness)
        assert (harness.outputs(0), harness.outputs(1)) == ([3], [[1]])


def test_past_a_bound_the_job_fails() -> None:
    with (
        pytest.raises(FragmentFailedError, match=r"(?s)failed at 2 of the latest 3 records"),
        OperatorHarness(
            lambda a, b: JOINS["interval"](a, b).process(OneValue()).on_error("skip", max_share=0.5),
            inputs=2,
            types=[PAIR, PAIR],
        ) as harness,
    ):
        harness.push(("a", 1), ("b", 1), timestamps=[1, 2])
        harness.push(("a", 1), ("a", 2), ("b", 5), timestamps=[3, 4, 5], input=1)
        for each in (0, 1):
            harness.end(input=each)
        harness.run()
