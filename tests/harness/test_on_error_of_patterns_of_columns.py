"""on_error of patterns of columns: a row at which a condition fails leaves as a letter, and so does a match."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.failing_patterns import DRAWN_ROWS, FailingPattern, Row
from tests.support.batch_runner import collect
from tests.unit.runtime.graph.programs import environment
from yarrow.cep import CEP, AfterMatchSkipStrategy, Pattern, PatternProcessFunction
from yarrow.cep.conditions import IterativeCondition
from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import DataStream, OutputTag
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.dead_letters import LAST_OF_MATCH, RECORD_PICKLED
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.table.expressions import col
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

#: A key, a letter and a number of its own. The letter "x" fails every condition that is no plain comparison.
SCHEMA = pa.schema([("key", pa.string()), ("letter", pa.string()), ("number", pa.int64())])
ROW = Types.ROW_NAMED(SCHEMA.names, [Types.STRING(), Types.STRING(), Types.LONG()])


def expression(letter: str) -> Any:
    """An Arrow expression that fails on the letter "x"."""
    divisor = pc.if_else(pc.field("letter") == "x", 0, 1)
    return (pc.scalar(1) / divisor == 1) & (pc.field("letter") == letter)


def function(letter: str) -> Callable[[Any], bool]:
    def condition(row: Any) -> bool:
        if row.letter == "x":
            raise ValueError(f"no {row.number}")
        return bool(row.letter == letter)

    return condition


class Rises(IterativeCondition):
    """A "b" with a greater number than all before it."""

    def filter(self, value: Any, ctx: Any) -> bool:
        if value.letter == "x":
            raise ValueError(f"no {value.number}")
        return value.letter == "b" and all(
            row.number < value.number for row in ctx.get_events_for_pattern("first")
        )


def within(pattern: Any) -> Any:
    return pattern.within(Time.milliseconds(30))


SKIPPING = AfterMatchSkipStrategy.skip_past_last_event()
PATTERNS: dict[str, Callable[[], Any]] = {
    "plain sequence": lambda: within(
        Pattern.begin("first").where(expression("a")).followed_by("last").where(expression("b"))
    ),
    "strict": lambda: within(
        Pattern.begin("first").where(expression("a")).next("last").where(expression("b"))
    ),
    "held": lambda: within(
        Pattern.begin("first").where(expression("a")).one_or_more().followed_by("last").where(expression("b"))
    ),
    "skipping": lambda: within(
        Pattern.begin("first", SKIPPING).where(expression("a")).followed_by_any("last").where(expression("b"))
    ),
    "functions": lambda: within(
        Pattern.begin("first").where(function("a")).next("last").where(function("b"))
    ),
    "iterative": lambda: within(
        Pattern.begin("first").where(function("a")).followed_by_any("last").where(Rises())
    ),
    "both": lambda: within(
        Pattern.begin("first").where(function("a")).followed_by("last").where(expression("b"))
    ),
}


class Shown(PatternProcessFunction):
    def process_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        yield repr(match), ctx.timestamp()


def matching(pattern: Any, stream: DataStream, function: Any = None) -> DataStream:
    return CEP.pattern(stream.to_arrow(SCHEMA).key_by("key"), pattern).process(function or Shown())


def with_letters(stream: DataStream, **bounds: Any) -> list[DataStream]:
    stream = stream.uid("the pattern").on_error("dead_letter", **bounds)
    return [stream, stream.dead_letters()]


def rows_of(letters: list[DeadLetter]) -> list[Row]:
    load = serializer_for(None).load_rows
    return [tuple(row) for letter in letters for row in load(letter.raw or b"")]


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=10)
@given(DRAWN_ROWS, st.integers(0, 12), st.sampled_from(["hashmap", "rocksdb"]))
def test_a_row_that_fails_changes_no_partial_match(
    pattern: str, drawn: list[Any], cut: int, backend: str
) -> None:
    build = PATTERNS[pattern]
    failing = FailingPattern(
        lambda s: with_letters(matching(build(), s)), lambda s: matching(build(), s), ROW, rows_of
    )
    failing.check_failing_rows(drawn, cut, backend)


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def of_batches(pattern: Any, **bounds: Any) -> Callable[[DataStream], list[DataStream]]:
    def fragment(batches: DataStream) -> list[DataStream]:
        return with_letters(CEP.pattern(batches.key_by("key"), pattern).process(Shown()), **bounds)

    return fragment


@pytest.mark.parametrize("kind", ["plain sequence", "strict"])
def test_of_a_batch_only_the_failing_rows_leave_and_at_once(kind: str) -> None:
    letters = ["x" if at in {0, 7, 8, 99} else "ab"[at % 2] for at in range(100)]
    rows = [("k", letter, at) for at, letter in enumerate(letters)]
    with OperatorHarness(of_batches(PATTERNS[kind]()), types=[SCHEMA]) as harness:
        harness.send(ArrowBatch(batch(rows), pa.array(range(100), pa.int64())))
        found: list[DeadLetter] = harness.outputs(1)
        assert rows_of(found) == [row for row in rows if row[1] == "x"]
        harness.watermark(1000)
        harness.run()
        assert len(harness.outputs(0)) == 47
        assert harness.metrics()["CEP.numRecordsInErrors"] == 4
    letter = found[1]
    assert (letter.operator, letter.input, letter.timestamp) == ("the pattern", 0, 7)
    assert (letter.key, letter.encoding, letter.error_class) == (
        encode_key("k"),
        RECORD_PICKLED,
        "ExpressionError",
    )
    assert "fails on row 0 of a batch, with letter = x: divide by zero" in letter.error


def test_a_letter_of_a_function_leaves_in_the_turn_of_its_row() -> None:
    with OperatorHarness(of_batches(PATTERNS["functions"]()), types=[SCHEMA]) as harness:
        rows = [("k", "x", 1), ("k", "a", 2), ("l", "x", 3), ("k", "b", 4)]
        harness.send(ArrowBatch(batch(rows), pa.array([1, 2, 3, 4], pa.int64())))
        assert harness.outputs(1) == []
        harness.watermark(3)
        (first, second) = sorted(harness.outputs(1))
        harness.watermark(4)
        harness.run()
        assert [time for _, time in harness.outputs(0)] == [4]
    assert rows_of([first, second]) == [("k", "x", 1), ("l", "x", 3)]
    assert (second.timestamp, second.key, second.error) == (3, encode_key("l"), "ValueError: no 3")
    assert "raise ValueError" in second.traceback


class Refuses(PatternProcessFunction):
    """Fails behind its first result, if the last number is even; it has changed the row by then."""

    def process_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        made = [match["first"][0].number]
        yield made
        made.append(match["last"][0].number)
        match["last"][0].letter = "changed"
        if made[1] % 2 == 0:
            raise ValueError(f"no {made[1]}")
        yield made


@pytest.mark.parametrize("kind", ["plain sequence", "strict", "both"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_match_that_fails_gives_a_letter_with_its_last_row(kind: str, backend: str) -> None:
    configuration = {"state.backend.type": backend}
    with OperatorHarness(
        lambda s: with_letters(matching(PATTERNS[kind](), s, Refuses())),
        types=[ROW],
        configuration=configuration,
    ) as harness:
        harness.push(("k", "a", 1), ("k", "b", 2), ("k", "a", 3), timestamps=[1, 2, 3])
        harness.watermark(3)
        snapshot = harness.snapshot()
        first = harness.outputs(1)
        with harness.restarted(snapshot) as again:
            again.push(("k", "b", 5), timestamps=[5])
            again.watermark(100)
            again.run()
            assert (again.outputs(0), again.outputs(1)) == ([[3], [3, 5]], [])
    (letter,) = first
    assert rows_of([letter]) == [("k", "b", 2)]
    assert (letter.input, letter.timestamp, letter.key) == (LAST_OF_MATCH, 2, encode_key("k"))
    assert letter.error.startswith("ValueError: no 2; match {'first': [Row(key='k', letter='a', number=1)]")
    assert letter.steps == ("first", "last") and (letter.match_time, letter.timed_out) == (2, False)
    rows = serializer_for(None).load_rows(letter.rows or b"")
    assert [tuple(row) for row in rows] == [("k", "a", 1), ("k", "b", 2)]


def test_late_rows_leave_as_batches_beside_letters() -> None:
    late = OutputTag("late", Types.PICKLED_BYTE_ARRAY())

    def fragment(batches: DataStream) -> list[DataStream]:
        looked = CEP.pattern(batches.key_by("key"), PATTERNS["plain sequence"]()).side_output_late_data(late)
        found, letters = with_letters(looked.process(Shown()))
        return [found, letters, found.get_side_output(late).to_rows()]

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        harness.watermark(10)
        rows = [("k", "x", 1), ("k", "x", 2), ("k", "a", 3)]
        harness.send(ArrowBatch(batch(rows), pa.array([1, 12, 13], pa.int64())))
        harness.run()
        assert rows_of(harness.outputs(1)) == [("k", "x", 2)]
        assert [tuple(row) for row in harness.outputs(2)] == [("k", "x", 1)]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [({"max_per_minute": 2}, "3 records within a minute"), ({"max_share": 0.4}, "3 of the latest 6 records")],
)
@pytest.mark.parametrize("kind", ["strict", "functions"])
def test_past_a_bound_the_job_fails(kind: str, bounds: dict[str, Any], expected: str) -> None:
    with (
        pytest.raises(FragmentFailedError, match=f"(?s)failed at {expected}"),
        OperatorHarness(of_batches(PATTERNS[kind](), **bounds), types=[SCHEMA]) as harness,
    ):
        rows = [("k", letter, at) for at, letter in enumerate("cxcxcx")]
        harness.send(ArrowBatch(batch(rows), pa.array(range(1, 7), pa.int64())))
        harness.watermark(100)
        harness.end()
        harness.run()


def changed(letter: str, wanted: list[str]) -> Any:
    """A condition as it was, or the repaired one: an expression that fails on "x"."""
    return expression(letter) if wanted[0] == "failing" else col("letter").in_(letter, "x")


@pytest.mark.parametrize("waits", ["in the operator", "in a partial match"])
@pytest.mark.parametrize("next_is", ["barrier", "watermark", "rows", "end"])
def test_restored_rows_at_which_a_changed_condition_fails_leave_as_letters(waits: str, next_is: str) -> None:
    wanted = ["as before"]

    def fragment(stream: DataStream) -> list[DataStream]:
        pattern = Pattern.begin("first").where(changed("a", wanted))
        return with_letters(matching(within(pattern.followed_by("last").where(col("letter") == "b")), stream))

    with OperatorHarness(fragment, types=[ROW]) as harness:
        harness.push(("k", "x", 1), ("k", "a", 2), timestamps=[1, 2])
        harness.watermark(2 if waits == "in a partial match" else 0)
        harness.run()
        wanted[0] = "failing"
        with harness.restarted() as again:
            if next_is == "barrier":
                snapshot = again.snapshot()
            elif next_is == "watermark":
                again.watermark(3)
            elif next_is == "rows":
                again.push(("k", "c", 3), timestamps=[3])
            else:
                again.finish()
            again.run()
            (letter,) = again.outputs(1)
            assert rows_of([letter]) == [("k", "x", 1)] and letter.timestamp == 1
            if next_is == "barrier":
                # The letter has left before the barrier: it does not come again.
                with again.restarted(snapshot) as third:
                    third.push(("k", "b", 5), timestamps=[5])
                    third.watermark(100)
                    third.run()
                    assert len(third.outputs(0)) == 1 and third.outputs(1) == []


@pytest.mark.parametrize("kind", PATTERNS)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_on_error_may_come_and_go_over_a_savepoint(kind: str, backend: str) -> None:
    def plain(stream: DataStream) -> DataStream:
        return matching(PATTERNS[kind](), stream).uid("the pattern")

    def guarded(stream: DataStream) -> DataStream:
        return plain(stream).on_error("skip")

    with OperatorHarness(plain, types=[ROW], configuration={"state.backend.type": backend}) as first:
        first.push(("k", "a", 1), ("l", "a", 2), timestamps=[1, 2])
        first.watermark(2)
        with first.restarted(fragment=guarded) as second:
            second.push(("k", "x", 3), ("k", "b", 4), timestamps=[3, 4])
            second.watermark(4)
            found = list(second.output)
            with second.restarted(fragment=plain) as third:
                third.push(("l", "b", 5), timestamps=[5])
                third.watermark(100)
                third.run()
                found += third.output
    assert [time for _, time in found] == [4, 5]


class Numbered(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        number: int = value[2]
        return number


@pytest.mark.parametrize("kind", ["plain sequence", "strict", "functions"])
def test_a_bounded_input(kind: str) -> None:
    env = environment(2)
    rows = [("k", "a", 1), ("k", "x", 2), ("k", "b", 3), ("l", "x", 4)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
    stream = env.from_collection(rows, ROW).assign_timestamps_and_watermarks(strategy)
    found = matching(PATTERNS[kind](), stream).uid("the pattern").on_error("dead_letter")
    letters = found.dead_letters().map(lambda letter: (letter.operator, letter.timestamp))
    assert sorted(time for _, time in collect(env, found.union(letters))) == [2, 3, 4]
