"""on_error of functions of batches: a batch that fails costs its failing rows alone, and letters hold rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from yarrow.common.typeinfo import Types
from yarrow.datastream import (
    CheckpointedFunction,
    DataStream,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from yarrow.datastream.connectors.dead_letters import RECORD_PICKLED, RECORD_SHOWN, DeadLetter
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

SCHEMA = pa.schema([pa.field("n", pa.int64())])
NUMBERS = Types.ROW_NAMED(["n"], [Types.LONG()])


def refuse_tens(batch: Any) -> None:
    bad = [number for number in batch.column("n").to_pylist() if number % 10 == 0]
    if bad:
        raise ValueError(f"{bad} in a batch of {batch.num_rows}")


def doubled(batch: Any) -> Any:
    refuse_tens(batch)
    return pa.record_batch([pc.multiply(batch.column("n"), 2)], SCHEMA)


def in_parts(batch: Any) -> Iterator[Any]:
    """Gives results before it fails."""
    for row in range(batch.num_rows):
        part = batch.slice(row, 1)
        refuse_tens(part)
        yield pa.record_batch([pc.multiply(part.column("n"), 2)], SCHEMA)


def with_letters(stream: DataStream, **bounds: Any) -> list[DataStream]:
    stream = stream.uid("the function").on_error("dead_letter", **bounds)
    return [stream.to_rows(), stream.dead_letters()]


def numbers_in(letters: list[DeadLetter]) -> list[int]:
    return [serializer_for(None).load_rows(letter.raw or b"")[0].n for letter in letters]


@pytest.mark.parametrize("function", [doubled, in_parts])
@pytest.mark.parametrize("stamped", [False, True])
def test_failing_rows_of_a_batch_leave_nothing_but_letters(function: Any, stamped: bool) -> None:
    with OperatorHarness(
        lambda s: with_letters(s.to_arrow(SCHEMA).map_batches(function, SCHEMA)), types=[NUMBERS]
    ) as harness:
        harness.push(*((n,) for n in range(1, 41)), timestamps=range(40) if stamped else None)
        harness.end()
        assert [row.n for row in harness.outputs(0)] == [2 * n for n in range(1, 41) if n % 10]
        letters: list[DeadLetter] = harness.outputs(1)
        assert [v for k, v in harness.metrics().items() if k.endswith("numRecordsInErrors") and v] == [4]
    assert numbers_in(letters) == [10, 20, 30, 40]
    assert [letter.timestamp for letter in letters] == ([9, 19, 29, 39] if stamped else [None] * 4)
    for letter in letters:
        assert letter.operator == "the function" and letter.encoding == RECORD_PICKLED
        assert letter.error.endswith("in a batch of 1") and "refuse_tens" in letter.traceback
        # It tells the row's error alone, and not those of the batches that were divided.
        assert letter.traceback.count("Traceback (most") == 1


def test_rows_at_which_a_filter_fails_are_left_out() -> None:
    def small(batch: Any) -> Any:
        refuse_tens(batch)
        return pc.less(batch.column("n"), 15)

    with OperatorHarness(
        lambda s: with_letters(s.to_arrow(SCHEMA).filter_batches(small)), types=[NUMBERS]
    ) as harness:
        harness.push(*((n,) for n in range(1, 31)))
        harness.end()
        assert [row.n for row in harness.outputs(0)] == [n for n in range(1, 15) if n % 10]
        assert numbers_in(harness.outputs(1)) == [10, 20, 30]


def test_a_value_that_does_not_fit_its_declared_column_costs_its_row() -> None:
    def as_it_is(batch: Any) -> Any:
        return batch

    small = pa.schema([pa.field("n", pa.int8(), nullable=False)])
    with OperatorHarness(
        lambda s: with_letters(s.to_arrow(SCHEMA).map_batches(as_it_is, small)), types=[NUMBERS]
    ) as harness:
        harness.push((1,), (1000,), (None,), (2,))
        harness.end()
        assert [row.n for row in harness.outputs(0)] == [1, 2]
        assert numbers_in(harness.outputs(1)) == [1000, None]


@pytest.mark.parametrize("treatment", ["skip", "dead_letter"])
def test_a_failing_row_that_python_cannot_hold_is_shown_as_text(treatment: str) -> None:
    schema = pa.schema([pa.field("t", pa.timestamp("ns"))])

    def refuse(batch: Any) -> Any:
        if batch.column("t").cast(pa.int64()).to_pylist() != [1000]:
            raise ValueError("no whole microseconds")
        return batch

    def program(s: DataStream) -> list[DataStream]:
        stream = s.map_batches(refuse, schema).on_error(treatment)
        rows = stream.map_batches(whole, SCHEMA).to_rows()
        return [rows, stream.dead_letters()] if treatment == "dead_letter" else [rows]

    def whole(batch: Any) -> Any:
        return pa.record_batch([batch.column("t").cast(pa.int64())], SCHEMA)

    with OperatorHarness(program, types=[schema]) as harness:
        harness.push_batch(pa.record_batch([pa.array([1000, 1001], pa.timestamp("ns"))], schema))
        harness.end()
        assert [row.n for row in harness.outputs(0)] == [1000]
        if treatment == "dead_letter":
            (letter,) = harness.outputs(1)
            assert letter.encoding == RECORD_SHOWN and b"00:00:00.000001001" in letter.raw


class Counts(CheckpointedFunction):
    """Has counted the rows of a batch when it fails."""

    def __init__(self) -> None:
        self.rows = 0

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def map_batches(self, batch: Any) -> Any:
        self.rows += batch.num_rows
        refuse_tens(batch)
        return pa.record_batch([[self.rows] * batch.num_rows], SCHEMA)

    __call__ = map_batches


def test_a_batch_of_a_function_with_state_is_left_out_whole() -> None:
    with OperatorHarness(lambda s: with_letters(s.map_batches(Counts(), SCHEMA)), types=[SCHEMA]) as harness:
        for numbers in ([1, 2, 10], [3, 4]):
            harness.push_batch(pa.record_batch([numbers], SCHEMA))
        harness.end()
        assert [row.n for row in harness.outputs(0)] == [5, 5]
        assert numbers_in(harness.outputs(1)) == [1, 2, 10]


def test_an_error_that_is_none_of_a_row_fails_the_job() -> None:
    def other(batch: Any) -> Any:
        return pa.record_batch([pa.array(["x"] * batch.num_rows)], ["text"])

    with (
        pytest.raises(FragmentFailedError, match=r"operator .* expected"),
        OperatorHarness(
            lambda s: with_letters(s.to_arrow(SCHEMA).map_batches(other, SCHEMA)), types=[NUMBERS]
        ) as harness,
    ):
        harness.push((1,))
        harness.end()


def test_past_a_bound_the_job_fails() -> None:
    with (
        pytest.raises(FragmentFailedError, match="failed at 3 of the latest 30 records"),
        OperatorHarness(
            lambda s: with_letters(s.to_arrow(SCHEMA).map_batches(doubled, SCHEMA), max_share=0.05),
            types=[NUMBERS],
        ) as harness,
    ):
        harness.push(*((n,) for n in range(1, 31)))
        harness.end()


def test_other_operators_of_columns_refuse_it() -> None:
    with pytest.raises(InvalidProgramError, match="does not take its records one by one"):
        OperatorHarness(lambda s: s.to_arrow(SCHEMA).select("n").on_error("skip"), types=[NUMBERS])
